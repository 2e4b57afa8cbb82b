"""Words of a report's first two sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
class Figure:
    """A row that made the verdict, with the title of its test."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Of the metric, or `USERS`; None where the cause is about no single row."""
    delta_percent: float | None = None
    at_unchanged_mix: bool = False
    loss_percent: float | None = None
    """The largest loss of users that the interval does not exclude."""

    @property
    def size(self) -> float:
        """The size of the change."""
        return abs(self.delta_percent or 0.0)


def headed(words: str, figures: Sequence[Figure], tests: int) -> str:
    """A title; one test that has all figures is named once, and not where there is no other."""
    titles = list(dict.fromkeys(each.test for each in figures))
    if not titles:
        return words
    if len(titles) > 1:
        return f"{words}: {named(figures)}"
    where = f" in {titles[0]}" if tests > 1 else ""
    return f"{words}{where}: {named(figures, alone=True)}"


def named(figures: Sequence[Figure], *, alone: bool = False) -> str:
    """Metrics with their change, the supported users first, then what moved most; `alone`: without their tests."""
    by_name: dict[str, list[Figure]] = {}
    for each in figures:
        by_name.setdefault(each.name or USERS, []).append(each)
    ordered = sorted(by_name.items(), key=lambda item: (item[0] != USERS, -max(each.size for each in item[1])))
    return listed([_moved(name, those, alone=alone) for name, those in ordered], most=MOST_NAMED)


def _moved(name: str, figures: Sequence[Figure], *, alone: bool) -> str:
    largest = max(figures, key=lambda each: each.size)
    tests = {each.test for each in figures}
    where = "" if alone else f" in {largest.test}" if len(tests) == 1 else f" in {len(tests)} tests"
    if largest.delta_percent is None:
        return f"{name}{where}"
    mix = " at unchanged traffic mix" if largest.at_unchanged_mix else ""
    return f"{name} {'up to ' if len(tests) > 1 else ''}{change(largest.delta_percent)}{mix}{where}"


def invalid_words(tests: int, worse: Sequence[Figure]) -> str:
    """What an invalid comparison means, and what got worse in its valid tests."""
    others = f" What could be judged got worse: {named(worse)}." if worse else ""
    return f"{'It' if tests == 1 else 'They'} cannot be judged.{others}"


def undecided_words(figures: Sequence[Figure]) -> Iterator[str]:
    """Why nothing can be concluded, a sentence for each kind of cause."""
    for kind, start in _STARTS.items():
        where = []
        for each in (each for each in figures if each.kind == kind):
            cause = each.name
            if kind == CauseKind.LOSS_NOT_EXCLUDED:
                cause = (
                    f"a loss of up to {percent(each.loss_percent)}" if (each.loss_percent or 0.0) > 0 else "no interval"
                )
            where.append(f"{each.test}: {cause}" if cause else each.test)
        if where:
            yield f"{start} ({listed(list(dict.fromkeys(where)))})."


def passed_words(detectable: Mapping[str, Sequence[float]], not_judged: Sequence[str]) -> str:
    """What a pass rests on: how small a change could have been missed, and what was not judged at all."""
    text = "No metric that users feel got worse, as far as these tests can show."
    if detectable:
        text += f" Smaller changes could go unseen: {detectable_words(detectable)}."
    return f"{text} Not judged: {listed(not_judged)}." if not_judged else text
