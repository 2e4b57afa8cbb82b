"""Collect the facts of a run that its validity depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Run, Test
from buildcompare.load.curve import Stop
from buildcompare.load.view import RunView
from buildcompare.results import Estimate
from buildcompare.results.codes import Reason, TestType, Window


@dataclass(frozen=True)
class RunFacts:
    """Facts of one run."""

    kind: TestType
    load: pd.Series | None
    """The curve of users, or of a proxy (`users` False), over elapsed seconds."""
    users: bool
    stop: Stop | None
    steady: Window | None
    no_steady: Reason | None = None
    target: int | None = None
    """Users of a bounded test; the ceiling of an unbounded one."""
    fastest_fall: float = 4.0
    """Users per second that the coordinator takes away by itself."""
    estimate: Estimate | None = None
    reported: float | None = None
    coverage: Mapping[str, float | None] = field(default_factory=dict)
    """By slug: the part of the steady window that has a number; None without a series."""
    window: Window = (0.0, 0.0)
    clock: str | None = None
    """The server whose clock `window` is of; None where the clocks of two runs cannot be compared."""
    resets: int = 0
    """How often counters of the server restarted inside the window."""
    no_users: bool = False
    """Whether a curve of users was recorded that is zero from beginning to end."""
    silent_s: float = 0.0
    """From the load's last number to the stop; 0 where the stop is not known."""
    late_s: float = 0.0
    """From the window's start to the first number of any metric."""

    @property
    def under_load(self) -> pd.Series:
        """The finite part of the load up to the stop."""
        if self.load is None:
            return pd.Series(dtype=float)
        end = self.stop.at_s if self.stop else np.inf
        users: pd.Series = self.load[np.isfinite(self.load.to_numpy()) & (self.load.index <= end)]
        return users


def run_facts(
    view: RunView, estimate: Estimate | None, test: Test, run: Run, catalogue: Catalogue, coordinator: Coordinator
) -> RunFacts:
    """Collect the facts of one run of `test`."""
    known: Mapping[str, Any] = view.recording.provenance
    resets = known.get("counter_resets")
    curves = [view.recording.curve(series) for series in view.recording.graphs()]
    first = [float(curve.index[finite][0]) for curve in curves if (finite := np.isfinite(curve.to_numpy())).any()]
    return RunFacts(
        kind=test.type,
        load=view.load,
        users=view.users is not None,
        stop=view.stop,
        steady=view.steady.window,
        no_steady=view.steady.reason,
        target=test.users,
        fastest_fall=coordinator.fastest_fall,
        estimate=estimate,
        reported=run.supported_users,
        coverage={metric.slug: _covered(view, metric.slug) for metric in catalogue.metrics},
        window=view.recording.window,
        clock=str(known["url"]) if run.is_pulled and isinstance(known.get("url"), str) else None,
        resets=max(map(int, resets.values()), default=0) if isinstance(resets, Mapping) else 0,
        no_users=view.users is None and _only_zeros(view, catalogue),
        silent_s=view.recording.duration_s - view.stop.end_s if view.stop and view.recording.stop_known else 0.0,
        late_s=min(first, default=0.0),
    )


def _only_zeros(view: RunView, catalogue: Catalogue) -> bool:
    series = view.recording.total(catalogue.load.slug) if catalogue.load else None
    values = series.values[np.isfinite(series.values)] if series else np.empty(0)
    return bool(values.size) and not values.any()


def _covered(view: RunView, slug: str) -> float | None:
    """The part of the steady window that has a number, in the fullest series of `slug`."""
    found = [series for series in view.recording.graphs() if series.metric == slug]
    if not found or view.steady.window is None:
        return 0.0 if found else None
    return max(view.recording.coverage(series, view.steady.window).fraction for series in found)
