"""Words of a report's first two sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildcompare.results import MetricResult, SupportedUsersResult
from buildcompare.results.codes import CauseKind
from buildcompare.text.findings import detectable_words
from buildcompare.text.numbers import change, listed, percent

MOST_NAMED = 2
"""Metrics in a title: it is read at a glance, and the findings below name all of them."""
USERS = "supported users"
REGRESSED = "Users feel this; it is more than chance and more than the margin."
SETTLED_BELOW = "See below what would settle it."
_STARTS = {
    CauseKind.LEANING: "May have got worse, but not surely by more than chance",
    CauseKind.LOSS_NOT_EXCLUDED: "The supported users are too uncertain to exclude a loss of twice the margin",
    CauseKind.UNJUDGEABLE: "Users feel it, but one build has no number or is zero",
    CauseKind.NOTHING_JUDGED: "Nothing that users feel could be judged",
}


@dataclass(frozen=True)
class Cause:
    """One reason why a valid test does not pass, with the title of the test and the row that it is about."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Of the metric, or `USERS`; None where the cause is about no single row."""
    delta_percent: float | None = None
    at_unchanged_mix: bool = False
    loss_percent: float | None = None
    """The largest loss of users that the interval does not exclude."""

    @classmethod
    def of(cls, kind: CauseKind, test: str, row: MetricResult | SupportedUsersResult) -> Cause:
        """The cause that `row` is."""
        if isinstance(row, SupportedUsersResult):
            loss = None if row.ci_low is None else -row.ci_low
            return cls(kind, test, USERS, row.delta_percent, loss_percent=loss)
        return cls(kind, test, row.full_name, row.effective_delta_percent, at_unchanged_mix=row.mix is not None)

    @property
    def size(self) -> float:
        """The size of the change."""
        return abs(self.delta_percent or 0.0)


def headed(words: str, causes: Sequence[Cause], tests: int) -> str:
    """A title; one test that has all causes is named once, and not where there is no other."""
    titles = {each.test for each in causes}
    where = f" in {causes[0].test}" if len(titles) == 1 and tests > 1 else ""
    return f"{words}{where}: {named(causes, alone=len(titles) == 1)}" if causes else words


def named(causes: Sequence[Cause], *, alone: bool = False) -> str:
    """Metrics with their change, the supported users first, then what moved most; `alone`: without their tests."""
    by_name: dict[str, list[Cause]] = {}
    for each in sorted(causes, key=lambda each: (each.name != USERS, -each.size)):
        by_name.setdefault(each.name or USERS, []).append(each)
    moved = []
    for name, (largest, *others) in by_name.items():
        tests = {each.test for each in (largest, *others)}
        where = "" if alone else f" in {largest.test}" if len(tests) == 1 else f" in {len(tests)} tests"
        mix = " at unchanged traffic mix" if largest.at_unchanged_mix else ""
        size = f" {'up to ' if len(tests) > 1 else ''}{change(largest.delta_percent)}{mix}"
        moved.append(f"{name}{'' if largest.delta_percent is None else size}{where}")
    return listed(moved, most=MOST_NAMED)


def invalid_words(tests: int, worse: Sequence[Cause]) -> str:
    """What an invalid comparison means, and what got worse in its valid tests."""
    others = f" What could be judged got worse: {named(worse)}." if worse else ""
    return f"{'It' if tests == 1 else 'They'} cannot be judged.{others}"


def undecided_words(causes: Sequence[Cause]) -> Iterator[str]:
    """Why nothing can be concluded, a sentence for each kind of cause."""
    for kind, start in _STARTS.items():
        where = []
        for each in (each for each in causes if each.kind == kind):
            why = each.name
            if kind == CauseKind.LOSS_NOT_EXCLUDED:
                loss = each.loss_percent or 0.0
                why = f"a loss of up to {percent(loss)}" if loss > 0 else "no interval"
            where.append(f"{each.test}: {why}" if why else each.test)
        if where:
            yield f"{start} ({listed(list(dict.fromkeys(where)))})."


def passed_words(detectable: Mapping[str, Sequence[float]], not_judged: Sequence[str]) -> str:
    """What a pass rests on: how small a change could have been missed, and what was not judged at all."""
    text = "No metric that users feel got worse, as far as these tests can show."
    if detectable:
        text += f" Smaller changes could go unseen: {detectable_words(detectable)}."
    return f"{text} Not judged: {listed(not_judged)}." if not_judged else text
