"""What is known of a run that its validity depends on, from its view and its params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Run, Test
from buildcompare.load.supported_users import SupportedUsers
from buildcompare.load.view import RunView
from buildcompare.text.reasons import reason_words
from buildcompare.validity.reasons import Covered, RunFacts


def facts_of(
    view: RunView,
    estimate: SupportedUsers | None,
    test: Test,
    run: Run,
    catalogue: Catalogue,
    coordinator: Coordinator,
) -> RunFacts:
    """The facts of one run of `test`."""
    known: Mapping[str, Any] = view.recording.provenance
    pulled = run.is_pulled and isinstance(known.get("url"), str)
    resets = known.get("counter_resets")
    return RunFacts(
        kind=test.type,
        load=view.load,
        users=view.users is not None,
        stop=view.stop,
        steady=view.steady.window,
        no_steady=reason_words(view.steady.reason) if view.steady.reason else None,
        target=test.users,
        fastest_fall=coordinator.fastest_fall,
        estimate=estimate,
        reported=run.supported_users,
        coverage={metric.slug: Covered(_covered(view, metric.slug)) for metric in catalogue.metrics},
        window=view.recording.window,
        clock=str(known["url"]) if pulled else None,
        resets=max(map(int, resets.values()), default=0) if isinstance(resets, Mapping) else 0,
        no_users=view.users is None and _only_zeros(view, catalogue),
        silent_s=view.recording.duration_s - view.stop.end_s if view.stop and view.recording.stop_known else 0.0,
        late_s=_late_s(view),
    )


def _late_s(view: RunView) -> float:
    """From the window's start to the first number of any metric; 0 where there is no metric at all."""
    curves = [view.recording.curve(series) for series in view.recording.graphs()]
    first = [float(curve.index[finite][0]) for curve in curves if (finite := np.isfinite(curve.to_numpy())).any()]
    return min(first, default=0.0)


def _only_zeros(view: RunView, catalogue: Catalogue) -> bool:
    series = view.recording.total(catalogue.load.slug) if catalogue.load else None
    values = series.values[np.isfinite(series.values)] if series else np.empty(0)
    return bool(values.size) and not values.any()


def _covered(view: RunView, slug: str) -> float | None:
    """The part of the steady window that is there as a number, in the fullest series of `slug`."""
    found = [series for series in view.recording.graphs() if series.metric == slug]
    if not found or view.steady.window is None:
        return 0.0 if found else None
    start, end = view.steady.window
    parts = []
    for series in found:
        curve = view.recording.curve(series)
        inside = curve[(curve.index > start) & (curve.index <= end)]
        expected = max(round((end - start) / series.step_s), 1) if series.step_s > 0 else max(len(inside), 1)
        parts.append(float(np.isfinite(inside.to_numpy()).sum()) / expected)
    return min(max(parts), 1.0)
