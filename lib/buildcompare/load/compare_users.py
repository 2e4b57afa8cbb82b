"""How many users does each build support, and is one of them more?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.sides import SIDES, Views
from buildcompare.load.supported_users import EstimateSupportedUsers, SupportedUsers
from buildcompare.load.view import RunView
from buildcompare.results import Pair, Side, SupportedUsersResult
from buildcompare.results.codes import Better, Status
from buildcompare.stats.effects import measure_effect, p_worse_one_sided, status_of
from buildcompare.stats.levels import delta_percent, mean_of_runs
from buildcompare.stats.noise import RepeatedRuns, RunLevel, metric_noise

CUT_TOLERANCE_S = 60.0
"""Curves of two builds that end this close together, with no stop seen, may have been cut to one length."""


def estimates(test: Test, views: Views, side: Side) -> list[SupportedUsers | None]:
    """What each run of one build supports, by its curve; None in bounded tests."""
    if test.type != "unbounded":
        return [None] * len(views[side])
    base_ends = [view.stop.end_s for view in views["base"] if view.stop]
    return [
        EstimateSupportedUsers()(
            view.users,
            view.stop,
            may_be_cut=side == "new" and _may_be_cut(view, base_ends),
            known_end_s=view.recording.duration_s if view.recording.stop_known else None,
            ceiling=test.users,
        )
        for view in views[side]
    ]


@dataclass(frozen=True)
class CompareSupportedUsers:
    """The supported users of both builds with their interval, from run-to-run variance."""

    catalogue: Catalogue
    groups: Sequence[RepeatedRuns] = ()

    def __call__(self, test: Test, estimates: Mapping[Side, Sequence[SupportedUsers | None]]) -> SupportedUsersResult:
        """Compare the `estimates` of each run, or what the load-test tool reported where it did for all."""
        load = self.catalogue.load
        reports: dict[Side, list[float | None]] = {s: [run.supported_users for run in test.runs(s)] for s in SIDES}
        curves: dict[Side, list[float | None]] = {s: [e.estimated for e in estimates[s] if e] for s in SIDES}
        reported = {s: None if None in reports[s] else mean_of_runs(reports[s]) for s in SIDES}
        estimated = {s: mean_of_runs(curves[s]) for s in SIDES}
        without = {s: estimated[s] is None for s in SIDES}  # a run without an estimate is left out, and said so
        at_least = {s: mean_of_runs([e.at_least for e in estimates[s] if e]) if without[s] else None for s in SIDES}
        reasons = {s: next((e.reason for e in estimates[s] if e and without[s]), None) for s in SIDES}
        if None not in reported.values():
            chosen = reports
        elif None not in estimated.values():
            chosen = curves
        else:
            chosen = {s: reports[s] if reported[s] is not None else curves[s] for s in SIDES}
        best = {s: mean_of_runs(chosen[s]) for s in SIDES}
        delta = delta_percent(best["base"], best["new"])
        noise = metric_noise(load, "unbounded", self.groups) if load else None
        levels = {s: [RunLevel(float(users)) for users in chosen[s] if users is not None] for s in SIDES}
        effect = measure_effect(levels["base"], levels["new"], noise) if noise and delta is not None else None
        band = load.margin_percent if load else None
        judged = status_of(effect, effect.p_value, band, Better.HIGHER) if effect and band else None
        low, high = effect.interval() if effect else (None, None)
        if delta is None and noise and best["base"] and at_least["new"]:  # it may be more, so only the low end is known
            bound = measure_effect(levels["base"], [RunLevel(at_least["new"])], noise)
            low = bound.interval()[0] if bound else None
        return SupportedUsersResult(
            base=best["base"],
            new=best["new"],
            delta_percent=delta,
            ci_low=low,
            ci_high=high,
            p_value=effect.p_value if effect else None,
            p_worse_one_sided=p_worse_one_sided(effect, band, Better.HIGHER) if effect and band else None,
            min_detectable_percent=effect.min_detectable_percent(band or 0.0) if effect else None,
            required_runs=effect.required_runs(band) if effect and band else None,
            noise_source=effect.noise_source if effect else "none",
            run_sd_percent=100.0 * effect.run_sd if effect else None,
            band_percent=band,
            status=judged or (Status.INCONCLUSIVE if delta is not None else Status.NOT_COMPARABLE),
            reported=Pair(**reported),
            estimated=Pair(**estimated),
            at_least=Pair(**at_least),
            reason=Pair(**reasons),
        )


def _may_be_cut(view: RunView, base_ends: list[float]) -> bool:
    if view.recording.stop_known or view.stop is None or view.stop.shutdown:
        return False
    return any(abs(view.stop.end_s - end) <= CUT_TOLERANCE_S for end in base_ends)
