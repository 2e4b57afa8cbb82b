"""What tests of validity share: facts of runs that are simulated, and of curves made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Coordinator as Rule
from buildcompare.config.params import Run, Test
from buildcompare.load.curve import Stop
from buildcompare.load.users import supported_users
from buildcompare.load.view import view_run
from buildcompare.recordings.recording import Recording
from buildcompare.results.codes import Pair
from buildcompare.validity.facts import RunFacts, run_facts
from buildcompare.validity.rules import TestValidity, judge_facts
from loadsim import (
    Coordinator,
    Injection,
    RunSettings,
    simulate_run,
)

CATALOGUE = read_catalogue("mattermost")
Kind = Literal["bounded", "unbounded"]


def facts(recording: Recording, kind: Kind, users: int | None, run: Run | None = None) -> RunFacts:
    own = run or Run(recording="any.parquet")
    test = Test.model_validate({"name": "t", "type": kind, "users": users, "base": [own], "new": [own]})
    view = view_run(recording, kind, CATALOGUE)
    known_end = recording.duration_s if recording.stop_known else None
    estimate = (
        supported_users(view.users, stop=view.stop, known_end_s=known_end, ceiling=users)
        if kind == "unbounded"
        else None
    )
    return run_facts(view, estimate, test, own, CATALOGUE, Rule())


def bounded(*injections: Injection, seed: int = 2, users: int = 5000) -> RunFacts:
    settings = RunSettings(type="bounded", coordinator=Coordinator(max_users=users), injections=injections)
    return facts(simulate_run(settings, seed).recording, "bounded", users)


def unbounded(*injections: Injection, seed: int = 2, ceiling: int = 20_000) -> RunFacts:
    rule = Coordinator(max_users=ceiling)
    settings = RunSettings(coordinator=rule, injections=injections, time_limit_s=9000.0)
    return facts(simulate_run(settings, seed).recording, "unbounded", ceiling)


def judged(base: RunFacts, new: RunFacts) -> TestValidity:
    return judge_facts(Pair([base], [new]))


def codes(found: TestValidity) -> set[tuple[str, str | None]]:
    return {(reason.code, reason.side) for reason in found.test.reasons}


def flat(curve: Sequence[float] | np.ndarray, **more: Any) -> RunFacts:
    values = np.array(curve, dtype=float)
    load = pd.Series(values, index=np.arange(values.size) * 5.0)
    end = float(load.index[-1])
    own: dict[str, Any] = {
        "kind": "bounded",
        "load": load,
        "users": True,
        "stop": Stop(end, end, shutdown=False),
        "steady": (900.0, end),
        "target": 5000,
        "coverage": {"m": 1.0},
        **more,
    }
    return RunFacts(**own)


HELD = np.concatenate([np.linspace(0, 5000, 160), np.full(840, 5000.0)])
