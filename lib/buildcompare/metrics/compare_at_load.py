"""What differs at equal load?"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.load_adjusted import JudgeAtLoad, LoadAdjusted
from buildcompare.metrics.load_curve import CompareAtLoad, LoadedRun
from buildcompare.metrics.load_noise import NoiseAtLoad
from buildcompare.results.codes import SIDES, Status
from buildcompare.stats.noise import RepeatedRuns


def at_equal_load(
    test: Test, views: Views, catalogue: Catalogue, groups: Sequence[RepeatedRuns]
) -> dict[str, LoadAdjusted]:
    """Each metric of an unbounded test by its slug, at the highest load that both builds sustained.

    A metric that is not judged in a recording that was read off a plot is not called here either.
    """
    if test.type != "unbounded":
        return {}
    runs = {side: [run for view in views[side] if (run := loaded_run(view, catalogue)) is not None] for side in SIDES}
    if not runs["base"] or not runs["new"]:
        return {}
    curves = CompareAtLoad()(runs["base"], runs["new"])
    judge = JudgeAtLoad(catalogue.find, NoiseAtLoad(groups))
    digitised = any(view.recording.digitised for side in SIDES for view in views[side])
    return {
        slug: LoadAdjusted(each.at_load, None, None, Status.INCONCLUSIVE)
        if digitised and catalogue.find(slug).biased_when_digitised
        else each
        for slug, each in judge(curves, (len(runs["base"]), len(runs["new"]))).items()
    }


def loaded_run(view: RunView, catalogue: Catalogue) -> LoadedRun | None:
    """A run with its metrics over the connected users; None without a curve of users."""
    if view.users is None or view.stop is None:
        return None
    load = catalogue.load
    return LoadedRun(view.users, _curves(view, {load.slug} if load else set()), view.stop.at_s)


def loaded_by_proxy(view: RunView, catalogue: Catalogue) -> LoadedRun | None:
    """The same over a curve that stands in for the users, which is then no metric; None where its scale is unknown.

    It serves to compare runs of one build, which have the same number of it per user.
    """
    if view.users is not None or view.load is None or view.load_slug is None or view.stop is None:
        return None
    per_user = catalogue.find(view.load_slug).proxy_per_unit
    if per_user is None:
        return None
    return LoadedRun(view.load / per_user, _curves(view, {view.load_slug}), view.stop.at_s)


def _curves(view: RunView, without: set[str]) -> dict[str, pd.Series]:
    slugs = {series.metric for series in view.recording.graphs()} - without
    totals = {slug: view.recording.total(slug) for slug in sorted(slugs)}
    return {slug: view.recording.curve(series) for slug, series in totals.items() if series is not None}
