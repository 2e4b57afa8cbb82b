"""Is a test valid? Faults that are put into simulated runs, and the published tests."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from buildcompare.config.params import Run, Source
from buildcompare.load.users import supported_users
from buildcompare.load.view import view_run
from buildcompare.recordings.sources import record
from buildcompare.results.codes import ValidityCode
from buildcompare.validity.rules import RunInTest, TestValidity, voids
from loadsim import Coordinator, Gap, Injection, LostAgent, NanStretch, Restart, RunSettings, Truncation, simulate_run
from support import sure
from validity_cases import CATALOGUE, bounded, codes, in_test, judged, loaded, unbounded


@pytest.mark.parametrize("seed", range(3))
def test_runs_without_a_fault_are_valid(seed: int) -> None:
    assert judged(bounded(seed=seed), bounded(seed=seed + 50)).test.status == "valid"
    found = judged(unbounded(seed=seed), unbounded(seed=seed + 50))
    assert (found.test.status, found.test.reasons, found.test.valid_until_s) == ("valid", [], None)


@pytest.mark.parametrize("at_s", [2000.0, 3000.0, 4500.0])
def test_a_lost_agent_limits_a_bounded_run_to_what_lies_before(at_s: float) -> None:
    found = judged(bounded(seed=1), bounded(LostAgent(at_s)))
    assert codes(found) == {("users_lost", "new")}
    assert [found.test.status, *(runs[0].status for runs in found.runs)] == ["limited", "valid", "limited"]
    assert found.test.valid_until_s == pytest.approx(at_s, abs=10)
    numbers = found.test.reasons[0].numbers
    assert (numbers["before"], numbers["after"]) == (5000, pytest.approx(4545, abs=20))


@pytest.mark.parametrize(
    ("run", "faults", "code", "status"),
    [
        (bounded, [Restart(900.0)], "restarted", "limited"),  # during the ramp: the plateau is whole
        (bounded, [Restart(1450.0)], "restarted", "invalid"),  # before anything was steady
        (bounded, [Truncation(2600.0)], "window_shorter", "limited"),
        (unbounded, [Truncation(4500.0)], "still_climbing", "limited"),
        (bounded, [Gap(1500.0, 3500.0), Gap(3600.0, 5200.0)], "little_coverage", "invalid"),
        (bounded, [LostAgent(900.0)], "users_lost target_not_reached loads_differ", "invalid"),  # it did another test
    ],
)
def test_faults_of_a_whole_run(run: Callable[..., RunInTest], faults: list[Injection], code: str, status: str) -> None:
    found = judged(run(seed=1), run(*faults))
    expected = {(each, None if each == "loads_differ" else "new") for each in code.split()}
    assert (codes(found), found.test.status, found.test.valid_until_s) == (expected, status, None)


@pytest.mark.parametrize("run", [bounded, unbounded])
def test_a_restart_is_told_from_a_lost_agent(run: Callable[..., RunInTest]) -> None:
    found = judged(run(seed=1), run(Restart(3000.0)))
    assert codes(found) == {("restarted", "new")}
    numbers = found.test.reasons[0].numbers
    assert (numbers["at_s"], numbers["after"]) == (pytest.approx(3000, abs=10), 0)
    assert 3030 < numbers["back_s"] < 3120


def test_users_lost_in_the_last_30_minutes_void_the_supported_users() -> None:
    late = judged(unbounded(seed=1), unbounded(Restart(4000.0)))
    assert any(map(voids, late.runs["new"][0].reasons))
    early = judged(unbounded(seed=1), unbounded(Restart(2500.0)))
    assert early.test.status == "limited"
    assert not any(map(voids, early.runs["new"][0].reasons))


def test_users_who_were_not_back_for_the_last_30_minutes_void_the_supported_users() -> None:
    """A tenth of the users goes with a load agent; nothing says that the build would not have carried them."""
    whole = unbounded(seed=1)
    users, window = sure(whole.view.users), sure(whole.view.steady.window)
    lost = loaded(whole, users.where(users.index < window[0] - 300.0, 0.9 * users))
    found = judged(unbounded(seed=2), lost).runs["new"][0]
    assert found.codes == ["users_lost"]
    assert voids(found.reasons[0])
    assert not any(map(voids, judged(unbounded(seed=2), whole).runs["new"][0].reasons))


def test_gaps_and_missing_series_are_named() -> None:
    gaps = judged(bounded(seed=1), bounded(NanStretch(2000.0, 4000.0, "cpu-utilization")))
    assert [(r.code, r.metric) for r in gaps.test.reasons] == [("little_coverage", "cpu-utilization")]
    assert gaps.test.reasons[0].numbers["covered"] == pytest.approx(0.51, abs=0.02)
    missing = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded())
    assert [(r.code, r.metric, r.side) for r in missing.test.reasons] == [("series_missing", "rps", "base")]
    both = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded(NanStretch(0.0, 9000.0, "rps")))
    assert both.test.status == "valid"
    everything = judged(bounded(seed=1), bounded(Gap(3000.0, 4000.0)))
    assert [r.numbers["metrics"] for r in everything.test.reasons] == [10]


def test_at_the_ceiling_the_users_are_at_least() -> None:
    found = judged(unbounded(seed=1, ceiling=5000), unbounded(ceiling=5000))
    assert codes(found) == {("ceiling_reached", "base"), ("ceiling_reached", "new")}
    run = simulate_run(RunSettings(coordinator=Coordinator(max_users=5000), time_limit_s=9000.0), 2).recording
    view = view_run(run, "unbounded", CATALOGUE)
    estimate = supported_users(view.users, stop=view.stop, ceiling=5000)
    assert (estimate.estimated, estimate.reason) == (None, "ceiling_reached")
    assert 4900 <= (estimate.at_least or 0) <= 5000
    free = supported_users(view.users, stop=view.stop)
    assert free.estimated == estimate.at_least


def test_a_run_cut_as_it_arrives_is_limited_and_its_load_is_not_said_to_be_missed() -> None:
    found = judged(bounded(), bounded(Truncation(1500.0)))
    assert (codes(found), found.test.status) == ({("no_steady_window", "new")}, "limited")
    (reason,) = found.test.reasons
    because = sure(reason.because)
    assert (because.code, round(because.minutes or 0.0)) == ("short", 3)


def test_agents_lost_one_by_one_leave_what_was_before_them() -> None:
    lost = bounded(*(LostAgent(at_s) for at_s in (2400.0, 3300.0, 4200.0)))
    windows = [sure(run.view.steady.window) for run in (lost, bounded())]
    assert windows[0][0] == pytest.approx(windows[1][0], abs=10.0)
    found = judged(bounded(), lost)
    assert (codes(found), found.test.valid_until_s) == ({("users_lost", "new")}, pytest.approx(2400.0, abs=15.0))


def test_every_rule_is_in_the_docs(project: Path) -> None:
    cells = re.findall(r"^\| (`.*?) \|", (project / "docs/validity.md").read_text(), re.M)
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(ValidityCode)


def published(real: Path, release: str, test: str) -> TestValidity:
    """The validity of a published test, with what its report and its configuration state."""
    db, kind = test.split("_")
    with (real / "comparisons" / "history.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if (r["release"], r["db"], r["test_type"]) == (release, db, kind)]
    limit = rows[0]["users"] if kind == "bounded" else rows[0]["max_active_users"]
    found = []
    for side in ("base", "new"):
        reported = rows[0][f"su_{side}"]
        run = Run(
            recording=str(real / "comparisons" / release / test / f"{side}.csv.gz"),
            supported_users=int(float(reported)) if reported else None,
        )
        recording = record(run, Source(kind="recorded"), CATALOGUE)
        found.append(in_test(recording, kind, int(float(limit)), run))  # type: ignore[arg-type]
    return judged(*found)


def test_v8_0_is_invalid_since_its_curves_belong_to_other_runs(real: Path) -> None:
    mysql = published(real, "v8.0", "mysql_unbounded")
    assert (mysql.test.status, codes(mysql)) == ("invalid", {("other_runs", "base"), ("other_runs", "new")})
    assert [round(r.numbers["curve"]) for r in mysql.test.reasons] == [13_781, 9391]
    assert [r.numbers["reported"] for r in mysql.test.reasons] == [15_459, 19_913]
    assert ("other_runs", "base") in codes(published(real, "v8.0", "postgresql_unbounded"))
    assert codes(published(real, "v8.0", "postgresql_bounded")) == {
        ("target_not_reached", "new"),
        ("loads_differ", None),
    }


def test_v9_2_is_limited_until_its_agent_is_lost(real: Path) -> None:
    found = published(real, "v9.2", "mysql_bounded")
    assert (found.test.status, codes(found)) == ("limited", {("users_lost", "new")})
    assert found.test.valid_until_s == pytest.approx(75 * 60, abs=30)
    numbers = found.test.reasons[0].numbers
    assert (round(numbers["before"]), round(numbers["after"])) == (5003, 4546)


def test_identical_runs_are_valid(real: Path) -> None:
    """Two users' curves, two of the smallest machine with its goroutines, and two bounded ones."""
    for pair, kind in (
        (("v1-1.1-1", "v1-1.1-2"), "unbounded"),
        (("v1-1.3-1", "v1-1.3-2"), "unbounded"),
        (("v2-L110-1", "v2-L110-2"), "unbounded"),
        (("v1-0.1-1", "v1-0.1-2"), "bounded"),
    ):
        reports = (Run(report=str(real / f"ceiling/{run}.out.gz")) for run in pair)
        recordings = (record(run, Source(kind="ltctl"), CATALOGUE) for run in reports)
        found = judged(*(in_test(each, kind, None) for each in recordings))  # type: ignore[arg-type]
        assert (found.test.status, found.test.reasons) == ("valid", [])
