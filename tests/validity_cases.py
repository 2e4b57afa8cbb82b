"""What tests of validity share: runs that are simulated, and curves made by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Coordinator as Rule
from buildcompare.config.params import Run, Test
from buildcompare.load.curve import Stop
from buildcompare.load.view import RunView, view_run
from buildcompare.recordings.recording import Series
from buildcompare.results import Estimate, Validity
from buildcompare.results.codes import Pair
from buildcompare.validity.rules import RunInTest, judge_runs
from loadsim import Coordinator, Injection, RunSettings, simulate_run

CATALOGUE = read_catalogue("mattermost")
Kind = Literal["bounded", "unbounded"]


def in_test(recording: bc.Recording, kind: Kind, users: int | None, run: Run | None = None) -> RunInTest:
    own = run or Run(recording="any.parquet")
    test = Test(name="t", type=kind, users=users, base=[own], new=[own])
    view = view_run(recording, kind, CATALOGUE)
    known_end = recording.duration_s if recording.stop_known else None
    estimate = None
    if kind == "unbounded":
        estimate = bc.supported_users(view.users, stop=view.stop, known_end_s=known_end, ceiling=users)
    return RunInTest(replace(view, run=own, estimate=estimate), test, CATALOGUE, Rule())


def recorded(*injections: Injection, seed: int = 2, users: int = 5000) -> bc.Recording:
    settings = RunSettings(type="bounded", coordinator=Coordinator(max_users=users), injections=injections)
    return simulate_run(settings, seed).recording


def changed(recording: bc.Recording, change: Callable[[Series], Series | None]) -> bc.Recording:
    return replace(recording, series=tuple(new for each in recording.series if (new := change(each))))


def scaled(recording: bc.Recording, metric: str, factor: float) -> bc.Recording:
    return changed(recording, lambda s: replace(s, values=s.values * factor) if s.metric == metric else s)


def bounded(*injections: Injection, seed: int = 2, users: int = 5000) -> RunInTest:
    return in_test(recorded(*injections, seed=seed, users=users), "bounded", users)


def unbounded(*injections: Injection, seed: int = 2, ceiling: int = 20_000) -> RunInTest:
    rule = Coordinator(max_users=ceiling)
    settings = RunSettings(coordinator=rule, injections=injections, time_limit_s=9000.0)
    return in_test(simulate_run(settings, seed).recording, "unbounded", ceiling)


class JudgedRuns(NamedTuple):
    test: Validity
    runs: Pair[list[Validity]]


def judged(base: RunInTest, new: RunInTest) -> JudgedRuns:
    return JudgedRuns(*judge_runs(Pair([base], [new])))


def codes(found: JudgedRuns) -> set[tuple[str, str | None]]:
    return {(reason.code, reason.side) for reason in found.test.reasons}


def flat(
    curve: Sequence[float] | np.ndarray, *, kind: Kind = "bounded", target: int | None = 5000, users: bool = True,
    estimate: Estimate | None = None, reported: int | None = None, window: tuple[float, float] = (0.0, 0.0),
    clock: str | None = None, resets: int = 0,
) -> RunInTest:  # fmt: skip
    """A run whose load is `curve`, steady from 900 s on; `clock`: the server that it was pulled from."""
    values = np.array(curve, dtype=float)
    load = pd.Series(values, index=np.arange(values.size) * 5.0)
    end = float(load.index[-1])
    of: dict[str, Any] = {"start": "2024-05-01T10:00:00Z", "end": "2024-05-01T12:00:00Z"} if clock else {"report": "a"}
    run = Run(**of, supported_users=reported)
    recording = bc.Recording((), window, False, provenance={"url": clock, "counter_resets": {"requests": resets}})
    steady = bc.SteadyState((900.0, end), "target_reached")
    stop = Stop(end, end, shutdown=False)
    seen = load if users else None
    view = RunView(recording, steady, load=load, users=seen, stop=stop, run=run, estimate=estimate)
    test = Test(name="t", type=kind, users=target, base=[run], new=[run])
    return RunInTest(view, test, CATALOGUE, Rule())


def loaded(own: RunInTest, load: pd.Series, stop_s: float | None = None) -> RunInTest:
    stop = own.view.stop if stop_s is None else Stop(stop_s, stop_s, shutdown=False)
    return replace(own, view=replace(own.view, load=load, users=load, stop=stop))


HELD = np.concatenate([np.linspace(0, 5000, 160), np.full(840, 5000.0)])
