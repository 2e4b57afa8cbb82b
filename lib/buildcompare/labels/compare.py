"""How did every label change: API handlers, database methods?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.labels.levels import LabelLevels
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import CompareLabels, LabelDelta
from buildcompare.load.sides import SIDES, Views
from buildcompare.results import LabelResult, Number, Pair, Side
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode, Status
from buildcompare.stats.effects import Effect, TestedEffect, judge_labels, measure_effect
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import LabelValue, RunLevel

_LabelValues = Mapping[tuple[str, str, str], LabelValue]


@dataclass(frozen=True)
class CompareLabelTables:
    """Values, change and status of each row of the label tables."""

    catalogue: Catalogue
    label_noise: LabelNoise

    def __call__(self, test: Test, views: Views) -> list[LabelResult]:
        """Every label of `test`, paired by name and judged."""
        levels = {side: [view.labels() for view in views[side]] for side in SIDES}
        steady = all(level.steady for side in SIDES for level in levels[side])
        if not steady and all(view.recording.label_summaries for side in SIDES for view in views[side]):
            # A steady window is never held against a whole run, where all can be compared over the whole.
            levels = {side: [view.labels(steady=False) for view in views[side]] for side in SIDES}
        tables = {side: [level.summaries for level in levels[side]] for side in SIDES}
        deltas = CompareLabels(self.catalogue)(tables["base"], tables["new"])
        calls = {(d.group, d.label): _calls(levels, (d.group, d.label)) for d in deltas}
        rows = {side: [_by_label(level) for level in levels[side]] for side in SIDES}
        effects = [self._label_effect(test, d, rows) for d in deltas]
        judged = judge_labels([((d.group, d.stat), effect) for d, effect in zip(deltas, effects, strict=True)])
        return [
            _label_result(d, j, calls[d.group, d.label], steady=steady) for d, j in zip(deltas, judged, strict=True)
        ]

    def _label_effect(self, test: Test, delta: LabelDelta, rows: Mapping[Side, list[_LabelValues]]) -> Effect | None:
        if delta.delta_percent is None:
            return None
        key = (delta.group, delta.stat, delta.label)
        values = {side: [row[key] for row in rows[side] if key in row] for side in SIDES}
        noise = self.label_noise(key[:2], delta.label, values["base"] + values["new"], test.type)
        if noise is None:
            return None
        levels = {side: [RunLevel(value.value) for value in values[side]] for side in SIDES}
        return measure_effect(levels["base"], levels["new"], noise)


def _label_result(
    delta: LabelDelta, judged: TestedEffect | None, calls: Pair[Number] | None, *, steady: bool
) -> LabelResult:
    low, high = judged.effect.interval() if judged else (None, None)
    return LabelResult(
        group=delta.group,
        label=delta.label,
        stat=delta.stat,
        base=delta.base,
        new=delta.new,
        delta_percent=delta.delta_percent,
        ci_low=low,
        ci_high=high,
        p_value=judged.p_value if judged else None,
        p_adjusted=judged.p_adjusted if judged else None,
        calls=calls,
        window="steady" if steady else "whole_run",
        status=judged.status
        if judged
        else Status.INCONCLUSIVE
        if delta.delta_percent is not None
        else Status.NOT_COMPARABLE,
        only_in=delta.only_in,
        at_least=Pair(base=delta.at_least[0], new=delta.at_least[1]),
        reason=delta.reason or (None if judged else Reason(code=ReasonCode.NO_NOISE)),
    )


def _by_label(levels: LabelLevels) -> _LabelValues:
    """The values of one run by (group, statistic, label), without those that are no number."""
    return {
        (row.group, row.stat, row.label): LabelValue(row.value, levels.calls.get((row.group, row.label)))
        for row in levels.summaries
        if math.isfinite(row.value)
    }


def _calls(levels: Mapping[Side, list[LabelLevels]], label: tuple[str, str]) -> Pair[Number] | None:
    """Calls of a label in the steady window, the mean over the runs of each build."""
    known = {side: mean_of_runs([level.calls.get(label) for level in levels[side]]) for side in SIDES}
    return None if known == {"base": None, "new": None} else Pair(**known)
