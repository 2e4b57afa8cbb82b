"""What differs at equal load, and what limited each build?"""

from __future__ import annotations

from buildcompare.analysis.limits import AlertUse, FindLimits
from buildcompare.analysis.load_adjusted import JudgeAtLoad, LoadAdjusted
from buildcompare.analysis.load_curve import CompareAtLoad, LoadedRun
from buildcompare.analysis.run_to_run import RunToRun
from buildcompare.compare.sides import SIDES, Views
from buildcompare.metrics import Catalogue
from buildcompare.params import Coordinator, Test
from buildcompare.results import AlertResult, LimitedBy, Side
from buildcompare.run_view import RunView
from buildcompare.wording_limits import limited_words


def at_equal_load(test: Test, views: Views, catalogue: Catalogue, run_to_run: RunToRun) -> dict[str, LoadAdjusted]:
    """Each metric of an unbounded test by its slug, at the highest load that both builds sustained.

    A metric that is not judged in a recording that was read off a plot is not called here either.
    """
    if test.type != "unbounded":
        return {}
    runs = {side: [run for view in views[side] if (run := _loaded(view, catalogue)) is not None] for side in SIDES}
    if not runs["base"] or not runs["new"]:
        return {}
    curves = CompareAtLoad()(runs["base"], runs["new"])
    judge = JudgeAtLoad(catalogue.find, lambda metric: run_to_run(metric, test.type))
    digitised = any(view.recording.digitised for side in SIDES for view in views[side])
    return {
        slug: LoadAdjusted(each.at_load, None, None, "inconclusive")
        if digitised and catalogue.find(slug).biased_when_digitised
        else each
        for slug, each in judge(curves, (len(runs["base"]), len(runs["new"]))).items()
    }


def limited_by(test: Test, views: Views, catalogue: Catalogue, coordinator: Coordinator) -> LimitedBy | None:
    """What limited each build of an unbounded test, where the alerts' queries were recorded."""
    if test.type != "unbounded":
        return None
    find = FindLimits(catalogue.alerts, coordinator.thresholds)
    words: dict[Side, str | None] = {}
    alerts: list[AlertResult] = []
    for side in SIDES:
        runs = [find(v.recording, v.stop.at_s, v.steady.window) for v in views[side] if v.stop is not None]
        limits = find.of_build(runs)
        words[side] = limited_words(limits) if limits is not None else None
        alerts += [_alert(side, use) for use in limits.alerts] if limits is not None else []
    return LimitedBy(base=words["base"], new=words["new"], alerts=alerts) if any(words.values()) else None


def _alert(side: Side, use: AlertUse) -> AlertResult:
    return AlertResult(
        build=side,
        alert=use.alert.slug,
        threshold=use.threshold,
        first_s=use.first_s,
        times=use.times,
        share_steady=use.share_steady,
        nearness=use.nearness,
    )


def _loaded(view: RunView, catalogue: Catalogue) -> LoadedRun | None:
    if view.users is None or view.stop is None:
        return None
    load = catalogue.load
    slugs = {series.metric for series in view.recording.graphs()} - ({load.slug} if load else set())
    totals = {slug: view.recording.total(slug) for slug in sorted(slugs)}
    curves = {slug: view.recording.curve(series) for slug, series in totals.items() if series is not None}
    return LoadedRun(view.users, curves, view.stop.at_s)
