"""How do the label tables of two builds differ: API handlers, database methods?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.recording import LabelSummary
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, ReasonCode
from buildcompare.stats.levels import delta_percent, mean_of_runs

Key = tuple[str, str, str]


@dataclass(frozen=True)
class LabelDelta:
    """One label and statistic in both builds.

    Attributes
    ----------
    base, new
        Mean over the runs, in seconds; None where the label is absent or was never called.
    at_least
        Per build, whether the value is a lower bound because it reaches the histogram's last bucket.
    only_in
        The build that alone has the label.
    """

    group: str
    label: str
    stat: str
    base: float | None
    new: float | None
    delta_percent: float | None
    at_least: tuple[bool, bool]
    only_in: Literal["base", "new"] | None
    reason: Reason | None


@dataclass(frozen=True)
class CompareLabels:
    """Pair the labels of two builds by name; nothing is dropped and nothing is rounded."""

    catalogue: Catalogue

    def __call__(
        self, base: Sequence[Sequence[LabelSummary]], new: Sequence[Sequence[LabelSummary]]
    ) -> tuple[LabelDelta, ...]:
        """Compare the label summaries of the runs of each build, in the order group, label, stat."""
        tables = _by_label(base), _by_label(new)
        return tuple(self._delta(key, *tables) for key in sorted({*tables[0], *tables[1]}))

    def _delta(self, key: Key, base: dict[Key, list[float]], new: dict[Key, list[float]]) -> LabelDelta:
        values = tuple(mean_of_runs([v for v in table.get(key, []) if math.isfinite(v)]) for table in (base, new))
        at_least = (self._at_least(key, base.get(key, [])), self._at_least(key, new.get(key, [])))
        only_in: Literal["base", "new"] | None = "new" if key not in base else "base" if key not in new else None
        delta, reason = None, None
        if only_in:
            reason = Reason(code=ReasonCode.ONLY_IN, build=only_in)
        elif None in values:
            reason = _reason(ReasonCode.NEVER_CALLED, [value is None for value in values])
        elif any(at_least):
            reason = _reason(ReasonCode.BEYOND_LAST_BUCKET, at_least)
        elif 0 in values:
            # A time is never zero: it was too short for the source's resolution, so no ratio can be trusted.
            reason = _reason(ReasonCode.TOO_SHORT_TO_MEASURE, [value == 0 for value in values])
        else:
            delta = delta_percent(*values)
        return LabelDelta(*key, values[0], values[1], delta, at_least, only_in, reason)

    def _at_least(self, key: Key, values: Sequence[float]) -> bool:
        """Whether a percentile sits at the end of the histogram (averages come from sums and may exceed it)."""
        group, _, stat = key
        top = self.catalogue.label_table(group).top_bucket
        return stat.startswith("p") and top is not None and any(value >= top for value in values)


def _reason(code: ReasonCode, holds: Sequence[bool]) -> Reason:
    """The reason that holds for the base, for the new build, or for both."""
    return Reason(code=code, build=None if all(holds) else SIDES[list(holds).index(True)])


def _by_label(runs: Sequence[Sequence[LabelSummary]]) -> dict[Key, list[float]]:
    table: dict[Key, list[float]] = {}
    for run in runs:
        for summary in run:
            table.setdefault((summary.group, summary.label, summary.stat), []).append(summary.value)
    return table
