# ruff: noqa: E501 - a sentence stays on one line
"""The words of findings, suggestions, reasons and first sentences: everything about wording is asserted here."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from buildcompare.findings import RANKS
from buildcompare.findings.finding import sentence, suggestion
from buildcompare.findings.verdict import Cause
from buildcompare.results import ValidityReason, codes
from buildcompare.results.base import Length, Reason
from buildcompare.results.codes import Pair
from buildcompare.text.sentences import Names, macros, say
from support import yaml_data

PG, MY = "postgresql_bounded", "mysql_bounded"
NAMES = Names(Pair("v1", "v2"), {PG: "Bounded Postgres", MY: "Bounded MySQL", "other": "Unbounded MySQL"})
OF_HISTORY = {"between_databases", "bumps_changed", "level_drift", "no_history", "previous_new", "setup_differences"}
CHANGE = {"delta_percent": 23.64, "ci_low": 17.0, "ci_high": 30.5, "status": "regression", "margin_percent": 10.0}
CHANGE |= {"by_chance_percent": 5.6}
SAMPLES, WORDS = (yaml_data(Path(__file__).with_name(f"{n}.yaml").read_text("utf-8")) for n in ("findings", "words"))


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_finding_in_words(kind: str) -> None:
    said = sentence(codes.FindingKind(kind), SAMPLES[kind]["evidence"], NAMES, PG)
    assert " // ".join(filter(None, said)) == SAMPLES[kind]["says"]


@pytest.mark.parametrize(
    ("same", "undecided", "expected"),
    [
        (3, 0, "no difference beyond chance in any of 3 judged metrics."),
        (0, 3, "no difference beyond chance in any of 3 judged metrics, but none of them is decided."),
        (0, 1, "no difference beyond chance in the one judged metric, but it is not decided."),
        (1, 2, "no difference beyond chance in any of 3 judged metrics: 1 is the same, 2 not decided."),
    ],
)
def test_unchanged_and_not_decided_are_other_metrics(same: int, undecided: int, expected: str) -> None:
    counted = {"judged": same + undecided, "same": ["a"] * same, "not_worse": [], "undecided": ["b"] * undecided}
    evidence = {**SAMPLES["unchanged"]["evidence"], **counted, "tests": [PG], "largest_undecided": None}
    assert sentence(codes.FindingKind.UNCHANGED, evidence, NAMES, PG)[0] == f"Bounded Postgres: {expected}"


def test_every_kind_has_a_sentence_and_a_sample() -> None:
    assert set(SAMPLES) == set(codes.FindingKind) - OF_HISTORY
    assert set(RANKS) <= set(codes.FindingKind)


@pytest.mark.parametrize(
    ("file", "words"),
    [("findings", codes.FindingKind), ("suggestions", codes.SuggestionKind), ("validity", codes.ValidityCode)],
)
def test_every_code_has_a_macro_of_its_name(file: str, words: type[StrEnum]) -> None:
    assert [code for code in words if not callable(getattr(macros(file), code, None))] == []


@pytest.mark.parametrize(("change", "expected"), WORDS["conclusions"])
def test_a_conclusion_in_words(change: dict[str, Any], expected: str) -> None:
    row = {**CHANGE, "no_worse_than_percent": None, **change}
    assert " // ".join(say("reasons", part, row, "lower") for part in ("told", "basis")) == expected


@pytest.mark.parametrize(("change", "expected"), WORDS["glances"])
def test_a_row_at_a_glance(change: dict[str, Any], expected: str) -> None:
    row = {**CHANGE, "base": 1.0, "new": 1.3, "no_worse_than_percent": None, **change}
    assert say("reasons", "at_a_glance", row, "lower") == expected


@pytest.mark.parametrize(("kind", "evidence", "expected"), WORDS["suggestions"])
def test_a_suggestion_in_words(kind: str, evidence: dict[str, Any], expected: str) -> None:
    assert suggestion(codes.SuggestionKind(kind), evidence, NAMES, test=PG).text == expected


def test_reasons_in_words() -> None:
    for code in codes.ReasonCode:
        reason = Reason(code=code, build="new", minutes=2.0, because=codes.ReasonCode.NO_SAMPLES)
        assert re.search(r"[^.]$", say("reasons", "reason_words", reason))
    assert set(macros("reasons").REASONS) == set(codes.ReasonCode)
    assert set(macros("reasons").NO_ESTIMATE) == set(codes.NoEstimate)
    assert (set(macros("history").NO_HISTORY), set(macros("history").DRIFT)) == (
        set(codes.NoHistory),
        set(codes.DriftKind),
    )
    because = Reason(code=codes.ReasonCode.NO_STEADY_WINDOW, build="base", because=codes.ReasonCode.SHORT, minutes=2.4)
    said = say("reasons", "reason_words", because)
    assert said == "no steady window in the base build: only 2 minutes of steady load"
    length = Length(run_s=74.0, needed_s=370.0, rate_s=5.0)
    said = say("reasons", "reason_words", because.model_copy(update={"length": length}))
    assert said.endswith(": the run is 74 s long; a steady window needs 6 min 10 s, or rate_s: 5")


def test_a_run_is_named_by_its_build_and_number() -> None:
    reason = ValidityReason(
        code=codes.ValidityCode.GAPS, status=codes.ValidityStatus.LIMITED, text="gaps", side="new", run=2
    )
    assert say("reasons", "limits", [reason], False, Pair("v1", "v2")) == "v2: gaps"
    assert say("reasons", "limits", [reason, reason], several=True) == "new run 2: gaps; new run 2: gaps"


def test_the_first_sentences() -> None:
    leaning = Cause(codes.CauseKind.LEANING, "Bounded Postgres", "P99 API times", 25.0)
    loss = Cause(codes.CauseKind.LOSS_NOT_EXCLUDED, "Unbounded MySQL", "supported users", -7.0, loss_percent=14.0)
    assert say("opening", "undecided", [leaning, loss], settle=True) == (
        "Not decided: it may be worse, or this may be chance (Bounded Postgres: P99 API times). "
        "The supported users are too uncertain to exclude a loss of twice the margin (Unbounded MySQL: a loss of up to 14.0 %). "
        "See below what would settle it."
    )
    largest = {"label": "GET /a", "delta_percent": 36.7, "ci_low": -9.0, "ci_high": 99.0}
    assert say(
        "opening", "pass", {"CPU": 19.0}, ["RPS"], unmoved={"count": 5, "faster": False, "largest": largest}
    ) == (
        "Nothing speaks against shipping: no deciding metric got worse by more than its margin, as far as these tests "
        "can show. None of five endpoints was found to have changed; the largest difference, GET /a +36.7 % (−9.0 to "
        "+99.0 %), may be chance. Still possible: CPU 19.0 % worse. Not judged: RPS."
    )
    said = say("opening", "pass", {}, [], slower=True, others=[[leaning]])
    assert said.startswith("It may ship once that is explained")
    assert said.endswith("deciding: P99 API times +25.0 %.")


HOSTILE = "{{ 7 * 7 }} {% raw %} {e}  two spaces\nand a line"


def test_what_people_wrote_is_said_letter_for_letter() -> None:
    names = Names(Pair(HOSTILE, "v2"), {PG: HOSTILE, MY: HOSTILE})
    said = sentence(codes.FindingKind.NO_LABEL_TABLE, {"side": "base", "group": HOSTILE}, names, PG)
    assert said == (f"{HOSTILE}: {HOSTILE} recorded no label table {HOSTILE}.", "")


def test_every_number_in_a_row_s_explanation_is_written_for_readers() -> None:
    change = {"status": "inconclusive", "ci_low": -3.0, "by_chance_percent": 24.0, "min_detectable_percent": 41.0}
    row = {**CHANGE, **change, "required_runs": 11, "required_runs_show_percent": 9.956310511383226}
    said = say("reasons", "explain", row)
    assert said.endswith("11 runs of each build would show a change of 10.0 %."), said


def test_a_value_that_a_sentence_needs_must_be_there() -> None:
    with pytest.raises(UndefinedError, match="group"):
        sentence(codes.FindingKind.NO_LABEL_TABLE, {"side": "base"}, NAMES, PG)
