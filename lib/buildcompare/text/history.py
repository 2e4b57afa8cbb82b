"""Sentences about the past of a comparison: setup, drift, databases, and what a whole ledger states."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from buildcompare.config.errors import plural
from buildcompare.results.codes import DriftKind, NoHistory, SetupChange
from buildcompare.results.history import BetweenComparisons, DatabaseOrder, Drift, RepeatedMeasurements, SetupDifference
from buildcompare.text.numbers import change, db_name, interval, listed, percent, ranged, significant, test_words
from buildcompare.text.reasons import NO_HISTORY_WORDS

DRIFT_WORDS = {
    DriftKind.SAME_VERSION: "same version, measured again",
    DriftKind.PREVIOUS_NEW: "new against the previous new",
    DriftKind.BETWEEN_DATABASES: "between databases",
}
TOO_FEW = "too few comparisons of one version to tell whether the level jumped"


def no_history(reason: NoHistory | None) -> str:
    """Why a comparison was not compared with earlier ones."""
    return f"Not compared with earlier comparisons: {NO_HISTORY_WORDS[reason or NoHistory.FIRST]}."


def setup_words(differences: Sequence[SetupDifference]) -> str:
    """Setup differences in words: ``Load-test version v1.23.0 → v1.24.0``, or that none is recorded."""
    changed = [f"{row.setting} {row.before} → {row.now}" for row in differences if row.kind == SetupChange.CHANGED]
    unknown = [row.setting for row in differences if row.kind == SetupChange.NOT_RECORDED]
    words = "; ".join(changed) if changed else "none recorded"
    return f"{words} (not recorded in both: {listed(unknown)})" if unknown else words


def setup_compared(differences: Sequence[SetupDifference], against: str) -> str:
    """Setup differences to the comparison `against`, as a sentence."""
    return f"Setup, compared with {against}: {setup_words(differences)}."


def level_drift(rows: Sequence[Drift], between: Sequence[BetweenComparisons]) -> str:
    """The same version at another level than in one earlier comparison, in each test of `rows`."""
    first = rows[0]
    moved = "jumped" if any(row.jump for row in rows) else "moved"
    sizes = "; ".join(_size(row) for row in rows)
    changed = first.setup_changed
    setup = f"the setup changed too ({listed(changed)})" if changed else "no setup difference is recorded"
    text = f"The level {moved}: {first.label} against {first.against_label} in {first.against}: {sizes}. Both are "
    text += f"builds of one version, so the build hardly explains it; {setup}."
    keys = {(row.type, (row.db_engine or "").casefold()) for row in rows}
    usual = [
        f"{percent(each.sd_percent)} on {db_name(each.db_engine) or each.type} ({plural(each.links, 'pair')})"
        for each in between
        if each.sd_percent is not None and (each.type, each.db_engine or "") in keys
    ]
    more = f" Between comparisons the same version moves with a standard deviation of {listed(usual)}."
    return text + more if usual else text


def previous_new(rows: Sequence[Drift]) -> str:
    """New against the previous new: a figure that is easily taken for the drift."""
    changes = ", ".join(f"{_test(row)} {change(row.delta_percent)}" for row in rows)
    words = f"{rows[0].label} against {rows[0].against_label} in {rows[0].against}: {changes}"
    return f"{words}; this holds that drift and the change of the build together."


def between_databases(rows: Sequence[Drift], earlier: Sequence[DatabaseOrder], *, fewer: bool) -> str:
    """Two databases that changed places; `rows` are their difference in each build."""
    sizes = [(row, interval(row.ci_low, row.ci_high)) for row in rows]
    moved = [f"{change(row.delta_percent)} with {row.label} (95 % interval {size})" for row, size in sizes]
    if not earlier:
        before = "The ledger has no earlier comparison in which that was so."
    elif len(earlier) > 4:
        before = f"That was so in {plural(len(earlier), 'earlier comparison')}, last in {earlier[-1].comparison}."
    else:
        before = f"That was so before in {listed([f'{each.comparison} ({_sides(each)})' for each in earlier])}."
    text = f"{db_name(rows[0].db_engine)} supports {'fewer' if fewer else 'more'} users than {db_name(rows[0].against)}"
    return f"{text}, unlike in the comparison before: {', '.join(moved)}. {before}"


def former_setup(row: Drift, changed: Sequence[SetupDifference]) -> str:
    """Suggest to repeat the test of `row` on the setup that it had before."""
    settings = listed([f"{each.setting} {each.before}" for each in changed])
    return (
        f"Repeat {row.type.capitalize()} {_test(row)} of {row.label} on the setup of {row.against} ({settings}): it "
        f"would tell whether the drift of {change(row.delta_percent)} comes from the setup."
    )


def variance(between: Sequence[BetweenComparisons], repeats: RepeatedMeasurements | None) -> list[str]:
    """What a ledger taught about variance: between comparisons, and from run to run."""
    lines = [
        f"Between comparisons, {db_name(row.db_engine) or row.type}: the same version (major.minor) moves with a "
        f"standard deviation of {percent(row.sd_percent)} (robust, {plural(row.links, 'pair')})."
        for row in between
        if row.sd_percent is not None
    ]
    if repeats is not None:
        lines.append(
            f"From run to run, one build measured repeatedly on one recorded setup: a standard deviation of "
            f"{percent(repeats.sd_percent)} (95 % interval {percent(repeats.ci_low)} to {percent(repeats.ci_high)}, "
            f"{repeats.df} degrees of freedom)."
        )
    return lines


def users_changed(entry: Any, test: Any, size: Any) -> str:
    """Supported users of one test of a ledger's entry, their change (an `Effect`), and what was published."""
    users, (base, new) = test.supported_users, entry.builds
    text = f"{test_words(test.type, test.db_engine)}: {new.title} supports {users.new:,.0f} users against "
    text += f"{users.base:,.0f} of {base.title}, {ranged(size.delta_percent, *size.interval())}."
    if test.written is None or test.written == users:
        return text
    if not any(test.written):
        return f"{text} Nobody wrote about it."
    figures = " and ".join(f"{figure:,.0f}" if figure else "none" for figure in test.written)
    return f"{text} Published with other figures: {figures}."


def errors_changed(entry: Any, changed: Any) -> str:
    """Error counts of one test of a ledger's entry that changed as in no other comparison (an `ErrorChange`)."""
    test, (base, new) = changed.test, entry.builds
    per_user = ", relative to the supported users" if test.type == "unbounded" else ""
    text = f"{test_words(test.type, test.db_engine)}: {test.errors.new:,.0f} errors with {new.title} against "
    text += f"{test.errors.base:,.0f} with {base.title}, {change(changed.delta_percent)}{per_user}; over "
    text += f"{plural(changed.comparisons, 'comparison')} they move with a standard deviation of "
    return f"{text}{percent(changed.usual_percent)} (robust)."


def levels_title(levels: pd.DataFrame, db_engine: str) -> str:
    """Title of the figure of one database's chain; `levels` as :meth:`HistoryView.levels` makes it."""
    where = db_name(db_engine) or "Supported users"
    jumps = list(levels.loc[levels["jump"], "comparison"])
    if jumps:
        return f"{where}: the level jumped at {listed(jumps, most=8)}"
    return f"{where}: {'the level never jumped between comparisons' if levels['judged'].any() else TOO_FEW}"


def levels_alt(levels: pd.DataFrame, db_engine: str) -> str:
    """Alternative text of the same figure."""
    names = list(dict.fromkeys(levels["comparison"]))
    words = (
        f"Supported users over {plural(len(names), 'comparison')}, {names[0]} to {names[-1]}, "
        f"{db_name(db_engine) or 'all databases'}: from {levels['users'].min():,.0f} to {levels['users'].max():,.0f}. "
    )
    found = levels[levels["jump"]]
    jumps = [f"{name} {change(size)}" for name, size in zip(found["comparison"], found["drift_percent"], strict=True)]
    if jumps:
        return f"{words}The same version jumped at {listed(jumps, most=20)}."
    return words + ("The level never jumped." if levels["judged"].any() else f"There are {TOO_FEW}.")


def _size(row: Drift) -> str:
    deviations = f", {significant(abs(row.z), 2)} standard deviations" if row.jump and row.z is not None else ""
    return (
        f"{_test(row)} {change(row.delta_percent)} ({row.value:,.0f} users against {row.before:,.0f}; 95 % interval "
        f"{interval(row.ci_low, row.ci_high)}{deviations})"
    )


def _sides(order: DatabaseOrder) -> str:
    sides = (("base", order.base), ("new", order.new))
    return ", ".join(f"{side} {change(value)}" for side, value in sides if value is not None)


def _test(row: Drift) -> str:
    return db_name(row.db_engine) or row.test
