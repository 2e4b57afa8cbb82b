"""What does the whole ledger state? Every comparison's sentences about its past, in plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError, plural
from buildcompare.findings import history as findings_history
from buildcompare.history.at_hand import SupportedUsersNoise
from buildcompare.history.drift import Change
from buildcompare.history.error_counts import ErrorChange
from buildcompare.history.ledger import Entry, LedgerTest, read_ledger
from buildcompare.history.look_back import LookBack, Step, changes_within, look_back
from buildcompare.results import HistoryResult
from buildcompare.text.numbers import change, db_name, interval, percent


def ledger_text(folder: Path, metrics: str) -> str:
    """The text, comparison by comparison; what is usual is learned from the whole ledger.

    Raises
    ------
    InputError
        Where the ledger is empty or damaged, or the catalogue does not say how far runs scatter.
    """
    ledger = read_ledger(folder)
    if not ledger.entries:
        raise InputError(file=folder, key="history", expected="a ledger with entries", found="none")
    known = SupportedUsersNoise.of(read_catalogue(metrics))
    if known.noise is None:
        expected = "a catalogue that says how far runs scatter"
        raise InputError(file=metrics, key="run_sd_percent", expected=expected, found="none")
    found = look_back(ledger.chain, known.noise, ledger.studies)
    run_sd = 100 * math.expm1(known.noise.sd)
    studies = ", ".join(entry.name for entry in ledger.studies)
    lines = [
        f"{plural(len(ledger.chain), 'comparison')} in the chain, studies outside it: {studies or 'none'}.",
        f"Intervals: 95 %; one run has a standard deviation of {percent(run_sd)} ({known.noise.noise_source}).",
        *variance_lines(found),
    ]
    for step in found.steps:
        lines += ["", f"{step.entry.name}: {step.entry.new.title} against {step.entry.base.title}"]
        lines += [f"- {text}" for text in step_lines(step, found, known.margin_percent)]
    for entry in ledger.studies:
        lines += ["", f"{entry.name} (study): {entry.new.title} against {entry.base.title}"]
        lines += [f"- {text}" for text in study_lines(entry, known)]
    return "\n".join(lines) + "\n"


def variance_lines(found: LookBack) -> list[str]:
    """What the ledger has learned of variance so far, and what that is."""
    lines = [
        f"Between comparisons, {db_name(row.db_engine) or row.type}: the same version (major.minor) moves with a "
        f"standard deviation of {percent(row.sd_percent)} (robust, {plural(row.links, 'pair')})."
        for row in found.between
        if row.sd_percent is not None
    ]
    if found.repeats is not None:
        each = found.repeats
        lines.append(
            f"From run to run, one build measured repeatedly on one recorded setup: a standard deviation of "
            f"{percent(each.sd_percent)} (95 % interval {percent(each.ci_low)} to {percent(each.ci_high)}, "
            f"{each.df} degrees of freedom)."
        )
    return lines


def step_lines(step: Step, found: LookBack, margin_percent: float) -> Iterator[str]:
    """The sentences of one comparison: its own changes first, then its past."""
    yield from _changes(step.entry, step.within, margin_percent)
    for test in step.entry.tests:
        if test.name in step.errors:
            yield _errors(step.entry, test, step.errors[test.name])
    history = HistoryResult(
        ledger="",
        comparisons=0,
        studies=0,
        entries_sha256="",
        before=step.before.name if step.before else None,
        reason="it is the first of the chain",
        margin_percent=margin_percent,
        between=list(found.between),
    )
    findings = findings_history.find(history, step.drift, step.setup_differences)
    if step.before is not None and not any(finding.kind == "setup_differences" for finding in findings):
        yield f"Setup, compared with {step.before.name}: {findings_history.setup_words(step.setup_differences)}."
    yield from (finding.text for finding in findings)


def study_lines(entry: Entry, known: SupportedUsersNoise) -> Iterator[str]:
    """The sentences of a study: its own changes, as it has no past in the chain."""
    if known.noise is not None:
        yield from _changes(entry, changes_within(entry, known.noise), known.margin_percent)


def _changes(entry: Entry, within: Mapping[str, Change], margin_percent: float) -> Iterator[str]:
    for test in entry.tests:
        found = within.get(test.name)
        if found is not None and found.beyond_chance and abs(found.percent) > margin_percent:
            yield _changed(entry, test, found)


def _changed(entry: Entry, test: LedgerTest, within: Change) -> str:
    return (
        f"{_where(test)}: {entry.new.title} supports {within.value:,.0f} users against {within.against:,.0f} of "
        f"{entry.base.title}, {change(within.percent)} (95 % interval {interval(within.low, within.high)})."
        f"{_written(test)}"
    )


def _errors(entry: Entry, test: LedgerTest, found: ErrorChange) -> str:
    per_user = ", relative to the supported users" if test.type == "unbounded" else ""
    return (
        f"{_where(test)}: {found.counts.new:,.0f} errors with {entry.new.title} against {found.counts.base:,.0f} with "
        f"{entry.base.title}, {change(found.percent)}{per_user}; over {plural(found.comparisons, 'comparison')} they "
        f"move with a standard deviation of {percent(found.usual_percent)} (robust)."
    )


def _where(test: LedgerTest) -> str:
    return f"{test.type.capitalize()} {db_name(test.db_engine)}".strip()


def _written(test: LedgerTest) -> str:
    """Whether people wrote these figures, where the ledger's source tells."""
    if test.written is None or test.supported_users is None:
        return ""
    figures: Sequence[float | None] = (test.written.base, test.written.new)
    if not any(figures):
        return " Nobody wrote about it."
    measured = (test.supported_users.base, test.supported_users.new)
    if tuple(figures) != measured:
        return " Published with other figures: " + " and ".join(f"{f:,.0f}" if f else "none" for f in figures) + "."
    return ""
