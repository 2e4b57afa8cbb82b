"""A label that no noise explains stands in the verdict by name and value; what moved most stands first in its table."""

import re
from dataclasses import replace

import pytest

from buildcompare.comparison.analysis import Analysis
from buildcompare.findings.verdict import opening
from buildcompare.labels.tables import added_share, slower_labels
from buildcompare.report import sections
from buildcompare.results import LabelResult, Validity
from buildcompare.results.codes import SIDES, Pair, Status, ValidityStatus
from loadsim import Traffic, simulate_run
from quiet import SETTINGS, analysed

HANDLER = "getPostsForChannel"
LONG = replace(SETTINGS, duration_s=3600.0)


def row(label: str = "getPost", **fields: object) -> LabelResult:
    """A handler that became eight times as slow over many calls."""
    known: dict[str, object] = {
        "group": "api", "label": label, "stat": "avg", "base": 0.01, "new": 0.08, "delta_percent": 700.0,
        "shared_percent": 2.0, "p_value": 0.008, "p_adjusted": 0.4, "calls": Pair(120_000.0, 110_000.0),
        "time_share": Pair(0.03, 0.2), "window": "steady", "status": Status.REGRESSION, "only_in": None,
        "at_least": Pair(False, False), "reason": None,
    }  # fmt: skip
    return LabelResult(**known | fields)


def named(**tests: list[LabelResult]) -> list[str]:
    return [row.label for _, row, _ in slower_labels(tests)]


@pytest.mark.parametrize(
    ("fields", "is_named"),
    [
        ({}, True),
        ({"p_value": None, "p_adjusted": None, "status": Status.INCONCLUSIVE}, True),
        ({"time_share": Pair(0.001, 0.008)}, False),
        ({"status": Status.INCONCLUSIVE}, False),
        ({"shared_percent": 300.0}, False),
        ({"new": 0.02, "delta_percent": 100.0}, False),
        ({"new": 0.001, "delta_percent": -90.0, "status": Status.IMPROVEMENT}, False),
        ({"calls": None, "time_share": None}, False),
        ({"calls": None, "time_share": None, "p_adjusted": 0.01}, True),
    ],
    ids=["much time", "noise unknown", "little time", "not marked", "its whole table", "twice", "faster",
         "calls unknown, likely", "calls unknown, unlikely"],
)  # fmt: skip
def test_a_label_counts_by_the_time_that_it_adds(fields: dict[str, object], *, is_named: bool) -> None:
    p99 = row(stat="p99", base=0.5, new=10.0, delta_percent=None, p_value=None, at_least=Pair(False, True))
    assert named(a=[row(**fields), p99]) == (["getPost"] if is_named else [])


def test_the_costliest_label_of_all_tests_stands_first_and_its_percentile_must_follow_without_calls() -> None:
    assert added_share(row(shared_percent=0.0, calls=Pair(1e5, 1e5))) == pytest.approx(7 * 0.03)
    assert named(a=[row()], b=[row("costlier", time_share=Pair(0.2, 0.6))]) == ["costlier", "getPost"]
    unknown = row(calls=None, time_share=None, p_adjusted=0.01)
    assert named(a=[unknown]) == named(a=[unknown, row(stat="p99", new=0.011, delta_percent=10.0)]) == []


def slower(times: float, seed: int = 11) -> Analysis:
    """Two runs of one build, but that one handler takes so many times as long in the second."""
    base = simulate_run(LONG, seed, traffic=Traffic()).recording
    slow = Traffic(times=((f"api/{HANDLER}", times),))
    return analysed(base, simulate_run(LONG, seed + 1, traffic=slow).recording, "bounded", users=2000)


@pytest.mark.slow
def test_a_handler_eight_times_slower_stands_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = slower(8.0)
    (found,) = [each for each in analysis.results.findings if each.kind == "labels_beyond_noise"]
    assert found.severity == "warning"
    assert found.text.startswith(f"{HANDLER} avg ")
    (label,) = found.evidence["labels"]
    assert label["times"] == pytest.approx(8.0, rel=0.3)
    assert label["calls"]["new"] > 10_000
    said = opening(analysis.results).sentence
    assert re.search(
        rf"{HANDLER} avg takes [\d.]+ times as long \([\d,]+ calls, which add [\d.]+ % to the time of all calls", said
    )
    assert re.search(rf"{HANDLER} avg [\d.]+ .?s → [\d.]+ .?s \(\+\d+ %, p99 .* calls in Load test\)", found.detail)
    rows = re.findall(r'<tr[^>]*><th scope="row">(\w+)</th>', sections.labels(analysis).html)
    assert rows[0] == HANDLER
    monkeypatch.setattr(sections, "MOST_LABELS", 1)  # of a long table what moved is shown
    short = sections.labels(analysis).html
    kept = re.findall(r'<tr[^>]*><th scope="row">(\w+)</th>', short)
    marked = {each.label for each in analysis.results.tests[0].labels if each.status.changed}
    assert kept == [each for each in rows if each in marked or each == HANDLER]
    assert f"{len(rows) - len(kept)} labels that moved less are not shown here" in short
    (moved,) = [each.detail for each in analysis.results.findings if each.kind == "labels"]
    assert re.match(rf"Moved most: {HANDLER} avg \+\d+ % \([\d,]+ calls, \d+ ?% of the time of all calls\)", moved)
    invalid = analysis.results.tests[0].model_copy(update={"validity": Validity(status=ValidityStatus.INVALID)})
    assert "times as long" not in opening(analysis.results.model_copy(update={"tests": [invalid]})).sentence


@pytest.mark.slow
@pytest.mark.untraced
def test_identical_runs_name_no_label() -> None:
    for seed in range(50, 60, 2):
        analysis = slower(1.0, seed)
        assert "labels_beyond_noise" not in {each.kind for each in analysis.results.findings}
        assert "times as long" not in opening(analysis.results).sentence


@pytest.mark.slow
def test_shares_of_time_add_up_and_both_windows_are_measured() -> None:
    rows = [each for each in slower(1.0).results.tests[0].labels if each.stat == "avg" and each.group == "api"]
    for side in SIDES:
        shares = [each.time_share[side] or 0.0 for each in rows if each.time_share]
        assert (len(shares), sum(shares)) == (len(rows), pytest.approx(1.0))
    both = [(each.whole_run_percent, each.delta_percent) for each in rows]
    assert None not in [percent for pair in both for percent in pair]
    assert max(abs((whole or 0.0) - (steady or 0.0)) for whole, steady in both) < 60.0
    assert any(whole != steady for whole, steady in both)
