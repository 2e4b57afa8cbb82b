"""What a watch reads of a server that fails or is late, what it decides, and what its command does."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Test
from buildcompare.recordings.prometheus import WINDOW_KEYS
from buildcompare.recordings.table import write_recording
from loadwatch import follow
from loadwatch.decide import Code, Decision, decide
from loadwatch.follow import Followed, followed
from loadwatch.look import Watched, cut
from planted import faults, scaled
from pulling import at, source
from serving import Answer, serving
from simulated import BOUNDED, UNBOUNDED, run
from support import command, write_params

CATALOGUE = read_catalogue("mattermost")
WHOLE = run(BOUNDED, 3).recording
START, LENGTH_S, EVERY_S = WHOLE.window[0], 1200.0, 120.0


class Server:
    """A server of one recording on a clock of its own, on which only sleeping takes time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late_s: float = 0.0, ahead_s: float = 0.0) -> None:
        self.now, self.late_s, self.ahead_s = START + 6.0, late_s, ahead_s
        self.down: Callable[[float], bool] = lambda _: False
        self.asked: list[float] = []
        self.takes_s = 0.0
        monkeypatch.setattr(follow, "pull_run", self.pull)
        monkeypatch.setattr("loadwatch.follow.time.time", lambda: self.now - self.ahead_s)
        monkeypatch.setattr(Followed, "skew", lambda _: self.ahead_s)

    def pull(self, asked: Run, *_: object) -> bc.Recording:
        begin, end = (instant.timestamp() for instant in asked.window or ())
        self.now += self.takes_s
        if self.down(self.now - START):
            if self.now - START < 300.0:
                raise bc.InputError(file=None, key="metrics", expected="samples", found="no series `rps`")
            raise bc.SourceError(url="http://server", expected="an answer", found="connection refused")
        self.asked.append(end - begin)
        until = cut(WHOLE, min(end, self.now - self.late_s) - START)
        kept = [(each, each.times >= begin - 1e-3) for each in until.series]
        series = tuple(replace(each, times=each.times[at], values=each.values[at]) for each, at in kept)
        if not any(each.times.size for each in series):
            raise bc.InputError(file=None, key=WINDOW_KEYS, expected="samples", found="none")
        return replace(until, series=series)

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.5)


def of_server(file: Path, start_s: float = 0.0, length_s: float = LENGTH_S) -> Followed:
    asked = Run(start=at(START + start_s), end=at(START + start_s + length_s))
    return Followed(asked, source("http://server", step_s=5.0, rate_s=60.0), CATALOGUE, file)


def expected(length_s: float = LENGTH_S) -> dict[str, int]:
    return {each.metric: int(np.sum(each.times <= START + length_s)) for each in WHOLE.graphs()}


@pytest.mark.parametrize(
    ("server", "down", "said"),
    [
        pytest.param({}, lambda _: False, "", id="as planned"),
        pytest.param({}, lambda at: 300.0 < at < 800.0, "nothing new and is asked again", id="the server restarts"),
        pytest.param({}, lambda at: at < 250.0, "asked again: metrics: ", id="exporters that start late"),
        pytest.param({"late_s": 90.0}, lambda _: False, "", id="late samples"),
        pytest.param({"ahead_s": 40.0}, lambda _: False, "40 s ahead", id="a clock that is ahead"),
        pytest.param({"ahead_s": -40.0}, lambda _: False, "40 s behind", id="a clock that is behind"),
    ],
)
def test_nothing_is_lost_and_nothing_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, float], down: Any, said: str
) -> None:
    clock = Server(monkeypatch, **server)
    clock.down = down
    looks = list(followed([of_server(tmp_path / "new.parquet")], EVERY_S, sleep=clock.sleep))
    at_s, (held,), _ = looks[-1]
    late = server.get("late_s", 0.0)
    assert (at_s, {each.metric: each.times.size for each in held.graphs()}) == (LENGTH_S, expected(LENGTH_S - late))
    assert all(np.all(np.diff(each.times) > 0.0) for each in held.series)
    assert sum(clock.asked) <= LENGTH_S + len(clock.asked) * (120.0 + 2.0 * 5.0 + late)
    assert said in " ".join(note for _, _, notes in looks for note in notes)
    assert all(at_s <= 300.0 for at_s, _, notes in looks if "refused" in " ".join(notes)), "no silence of the run"


def test_a_watch_that_is_restarted_asks_only_for_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = Server(monkeypatch), tmp_path / "new.parquet"
    for at_s, _, _ in followed([of_server(file)], EVERY_S, sleep=clock.sleep):
        if at_s > 600.0:
            break
    clock.asked.clear()
    clock.now += 60.0
    *_, (_, (held,), _) = followed([of_server(file)], EVERY_S, sleep=clock.sleep)
    assert clock.asked[0] < 400.0
    assert {each.metric: each.times.size for each in held.graphs()} == expected()
    clock.now = START + 300.0  # another run is another file's
    assert not of_server(file, 60.0).kept().series


def test_a_base_that_runs_beside_ends_the_watch_with_its_own_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Server(monkeypatch)
    runs = [of_server(tmp_path / "new.parquet"), of_server(tmp_path / "base.parquet", 60.0, LENGTH_S + 240.0)]
    looks = list(followed(runs, EVERY_S, sleep=clock.sleep))
    times = [at_s for at_s, _, _ in looks]
    assert (times == sorted(times), times[-1], times.count(LENGTH_S)) == (True, LENGTH_S, 1)
    assert [each.duration_s for each in looks[-1][1]] == [LENGTH_S, LENGTH_S + 240.0]


def test_a_command_runs_once_however_often_the_watch_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recording(run(BOUNDED, 2).recording, tmp_path / "base.parquet")
    times = {"start": at(START).isoformat(), "end": at(START + LENGTH_S).isoformat()}
    params = {
        "base": {"label": "v1"}, "new": {"label": "v2"}, "source": {"kind": "prometheus", "url": "http://server"},
        "tests": [{"name": "t", "type": "bounded", "users": 5000,
                   "base": {"recording": str(tmp_path / "base.parquet")}, "new": times}],
    }  # fmt: skip
    write_params(tmp_path / "live.yaml", params)
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    counting = f"sh -c 'echo once >> {tmp_path}/runs; cat'"
    for _ in range(2):
        clock = Server(monkeypatch, late_s=1e9)
        clock.takes_s = 100.0
        ended = bc.watch(tmp_path / "live.yaml", every_s=1e-3, on_stop=counting, report=False)
        assert (ended.decision.code, ended.decision.fault.code) == ("stop_invalid", "silent_end")
        assert ended.decision.at_s < 400.0
    assert (tmp_path / "runs").read_text() == "once\n"
    assert json.loads((tmp_path / "data/watch/live/t/on-stop.txt").read_text())["code"] == "stop_invalid"


RAMP_S, HELD_S = 700.0, 2400.0
PLANTED = faults(RAMP_S, HELD_S)


def watched(base: bc.Recording, new: bc.Recording, kind: str = "bounded", users: int = 5000) -> Watched:
    runs = [Run(recording="any.parquet")]
    test = Test(name="t", type=kind, users=users, base=runs, new=runs)
    return Watched(test, CATALOGUE, [base], new.duration_s, labels=("v8.6.0", "v8.7.0"))


def ending(test: Watched, new: bc.Recording, since_s: float = 60.0, every_s: float = 60.0) -> Decision:
    times = np.append(np.arange(since_s, test.length_s, every_s), test.length_s)
    looks = (decide(test, new, float(at_s))[0] for at_s in times)
    return next(each for each in looks if each.code != Code.RUNNING)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_certain_within_five_minutes(name: str) -> None:
    base, valid = run(BOUNDED, 2).recording, run(BOUNDED, 3).recording
    since_s, plant = PLANTED[name]
    new = plant(valid)
    test = watched(base, new)
    before = np.arange(max(since_s - 120.0, 60.0), since_s + 1.0, 60.0)
    assert all(decide(test, new, float(at_s))[0].fault is None for at_s in before)
    late_s = 600.0 if since_s == 0.0 else since_s + 300.0  # a fault of the load shows under load
    found = ending(test, new, since_s + 60.0)
    assert (found.code, found.at_s <= late_s) == (Code.INVALID, True), found.text


def test_identical_builds_are_stopped_for_no_fault_and_no_regression() -> None:
    runs = [run(BOUNDED, seed).recording for seed in (2, 3)]
    for base, new in (runs, runs[::-1]):
        found = ending(watched(base, new), new, every_s=300.0)
        assert (found.code in (Code.ENOUGH, Code.FINISHED), found.verdict) == (True, "pass"), found.text
        row = found.rows[0]
        assert row.end_low <= row.change_percent <= row.end_high


def test_a_large_regression_is_certain_long_before_the_end() -> None:
    base, new = run(BOUNDED, 2).recording, scaled(run(BOUNDED, 3).recording, 2.5, 0.0, "p99-api-times", "avg-api-times")
    found = ending(watched(base, new), new, every_s=300.0)
    assert (found.code, found.verdict) == (Code.REGRESSION, "regression"), found.text
    assert found.at_s < 0.8 * found.length_s


@pytest.mark.parametrize(("early", "late", "certain"), [(99.2, 99.7, False), (99.5, 99.5, False), (80.0, 80.0, True)])
def test_failures_are_certain_only_if_the_rest_without_any_cannot_make_up(
    early: float, late: float, certain: bool
) -> None:
    times, rng, http = np.arange(0.0, 2400.0, 10.0), np.random.default_rng(1), read_catalogue("http")

    def made(*share: float) -> bc.Recording:
        columns = {"Users": np.minimum(times, 100.0), "Requests": rng.normal(100, 1, times.size),
                   "Response time": rng.lognormal(-3, 0.02, times.size),
                   "Successful requests": np.where(times < 720, *share) + rng.normal(0, 0.01, times.size)}  # fmt: skip
        return bc.Recording.from_frame(pd.DataFrame(columns, times), catalogue=http)

    runs = [Run(recording="any.parquet")]
    test = Test(name="t", type="bounded", users=100, base=3 * runs, new=runs)
    new = made(early, late)
    found = ending(Watched(test, http, [made(99.5, 99.5) for _ in range(3)], 2400.0), new)
    assert (found.code == Code.REGRESSION) == certain, found.text
    assert "Successful requests" in found.text


def test_a_loss_of_users_is_certain_once_both_curves_left_their_ramps() -> None:
    base = run(UNBOUNDED, 1).recording
    new = run(UNBOUNDED, 2).recording
    lost = scaled(new, 0.7, 0.0, "number-of-connected-devices")
    found = ending(watched(base, lost, "unbounded", 20_000), lost, every_s=600.0)
    assert (found.code, found.rows[0].end_low) == (Code.REGRESSION, None), found.text
    assert ending(watched(base, new, "unbounded", 20_000), new, every_s=600.0).code == Code.FINISHED


PARAMS = "params/v10.4.0-rc1.yaml"


@pytest.fixture
def place(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("params", "data", "notebooks"):
        (tmp_path / name).symlink_to(project / name) if name != "data" else (tmp_path / name).mkdir()
    (tmp_path / "data/recordings").symlink_to(project / "data/recordings")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def sent() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    def take(method: str, path: str, body: bytes) -> Answer:
        bodies.append(body)
        return 204, {}, b""

    with serving(lambda path, asked: (404, {}, b""), take) as url:
        yield url, bodies


watch = partial(command, "watch")


@pytest.mark.slow
def test_a_replay_ends_with_a_decision_a_report_and_one_command(place: Path, sent: tuple[str, list[bytes]]) -> None:
    url, bodies = sent
    act = ["--page", str(place / "page.html"), "--on-stop", "wc -l", "--webhook", url]
    replay = ["--replay", PARAMS, "--test", "mysql_bounded", "--speed", "1e9", "--every", "900"]
    done = watch(*replay, *act)
    assert (done.exit_code, done.output.count("running")) == (10, 4), done.output
    assert "cannot change the verdict (Pass)" in done.output
    (decision,) = map(json.loads, bodies)
    assert (decision["code"], decision["verdict"], decision["at_s"]) == ("stop_enough", "pass", 4500.0)
    kept = place / "data/watch/v10.4.0-rc1/mysql_bounded/on-stop.txt"
    assert int(kept.read_text()) > 10
    page = (place / "page.html").read_text()
    assert ("http-equiv" in page, page.count("<build-chart") >= 3) == (False, True)
    report = place / "reports/v10.4.0-rc1-mysql_bounded-watch"
    results = json.loads((report / "results.json").read_text())
    assert results["comments"][0].startswith("Stopped early, 75 min after the start")
    runs = results["tests"][0]["runs"]
    assert [runs[side][0]["duration_s"] for side in ("base", "new")] == [5445.0, 4500.0]


def test_a_series_stays_one_where_the_other_instance_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Server(monkeypatch)

    def pull(*asked: Any) -> bc.Recording:
        rps = clock.pull(*asked).series[0]
        stays = rps.times <= START + 600.0
        every = {"0": rps, "1": replace(rps, times=rps.times[stays], values=rps.values[stays])}
        pods = {name: each for name, each in every.items() if each.times.size}
        common: Any = {"pod": "0"} if len(pods) == 1 else {}
        series = tuple(replace(each, labels={} if common else {"pod": name}) for name, each in pods.items())
        queries: Any = [{"metric": rps.metric, "role": rps.role, "stat": "", "common_labels": common}]
        return replace(WHOLE, series=series, provenance={"queries": queries})

    monkeypatch.setattr(follow, "pull_run", pull)
    *_, (_, (held,), _) = followed([of_server(tmp_path / "new.parquet")], EVERY_S, sleep=clock.sleep)
    assert {each.labels["pod"]: each.times[-1] - START for each in held.series} == {"0": LENGTH_S, "1": 600.0}


def test_looks_are_shown_as_they_come() -> None:
    shown = []
    settings = {"replay": True, "speed": 1e9, "every_s": 2250.0, "report": False}
    ended = bc.watch(
        PARAMS, "mysql_bounded", show=lambda decision, compared: shown.append((decision, compared)), **settings
    )
    assert [each.code for each, _ in shown] == ["running", "stop_enough"]
    assert (ended.decision, ended.report, ended.outcomes) == (shown[-1][0], None, ())
    assert shown[-1][1].result.name == "mysql_bounded"
    again = bc.watch(
        PARAMS, "mysql_bounded", **settings | {"replay": "data/recordings/v10.4.0-rc1/mysql_bounded/new.parquet"}
    )
    assert again.decision == ended.decision, "a recording beside the base of a params file"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([PARAMS, "--test", "none"], "test: expected one of mysql_bounded, "),
        (["--replay", "run.parquet"], "PARAMS: expected a params file that names the base, found --replay run.parquet"),
        (["--replay", PARAMS, "--speed", "0"], "speed: expected a number above 0, found 0"),
        ([PARAMS, "--on-stop", "kill 'it"], "on_stop: expected a command, found kill 'it (No closing quotation)"),
        ([PARAMS, "--on-stop", "no-such"], "on_stop: expected a program that can be run, found no-such"),
        ([PARAMS, "--webhook", "host/hook"], "webhook: expected an address with http:// or https://, found host/hook"),
        ([PARAMS], "new: expected `start` and `end` of a run that still goes on, or --replay, found data/recordings"),
    ],
)
def test_faults_name_file_key_and_what_was_found(arguments: list[str], fault: str) -> None:
    done = watch(*arguments)
    assert (done.exit_code, fault in done.output) == (3, True), done.output
