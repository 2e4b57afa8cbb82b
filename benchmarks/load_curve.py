"""How often is the comparison at equal load wrong? On simulated pairs whose truth is known.

    python benchmarks/load_curve.py [PAIRS] [FIRST_SEED]

Each pair draws its own server: capacity, cost of logins, cores, cold caches and pace of the coordinator. Its builds
differ in nothing, in the alert thresholds, in the user ceiling, or in that every request takes 10 % longer. Prints
which part of metric rows and of pairs is called changed, by the noise that the catalogue lends; settings of
:class:`CompareAtLoad` were chosen on seeds below 10,000.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace

import numpy as np

from buildcompare.analysis.load_adjusted import JudgeAtLoad, LoadAdjusted
from buildcompare.analysis.load_curve import CompareAtLoad, LoadedRun
from buildcompare.analysis.run_to_run import RunToRun
from buildcompare.metrics import read_catalogue
from buildcompare.recording import Recording
from buildcompare.run_view import ViewRun
from buildcompare.simulate import Coordinator, NoiseModel, RunSettings, ServerModel, Thresholds, simulate_run
from buildcompare.simulate.bundled import QUIET

CATALOGUE = read_catalogue("mattermost")
LOAD = "number-of-connected-devices"
SLOWER = 1.1
CALLED = ("regression", "improvement")


_judge = JudgeAtLoad(CATALOGUE.find, lambda metric: RunToRun()(metric, "unbounded"))


def main(pairs: int = 100, first_seed: int = 40_000) -> None:
    """Print the table."""
    print(f"{pairs} pairs of each kind, seeds from {first_seed}; one run per build unless said otherwise")
    print(
        "called: beyond its margin with an adjusted p-value below 0.05; worse: a 95 % interval wholly on the bad side"
    )
    print(f"{'builds differ in':42s} {'rows':>5s} {'called':>7s} {'interval has 0':>15s} {'pairs called':>13s}", end="")
    print(f" {'pairs worse':>12s} {'CPU ms':>7s}")
    for name, runs, noise in (
        ("nothing", 1, NoiseModel()),
        ("alert thresholds", 1, NoiseModel()),
        ("user ceiling", 1, NoiseModel()),
        ("10 % slower", 1, NoiseModel()),
        ("10 % slower, two runs per build", 2, NoiseModel()),
        ("10 % slower, three runs per build", 3, NoiseModel()),
        ("10 % slower, runs as alike as the bundled", 1, QUIET),
    ):
        rows: list[LoadAdjusted] = []
        called = worse = 0
        cost = 0.0
        for pair in range(pairs):
            sides = _sides(name, runs, noise, first_seed + 100 * pair)
            start = time.process_time()
            judged = _judge(CompareAtLoad()(*sides), (runs, runs))
            cost += time.process_time() - start
            rows += judged.values()
            called += any(row.status in CALLED for row in judged.values())
            worse += any(
                _interval(row)[0] > 0 for slug, row in judged.items() if CATALOGUE.find(slug).better == "lower"
            )
        changed = sum(row.status in CALLED for row in rows) / len(rows)
        covering = sum(low <= 0 <= high for low, high in map(_interval, rows)) / len(rows)
        print(f"{name:42s} {len(rows):5d} {changed:7.1%} {covering:15.1%} {called / pairs:13.1%}", end="")
        print(f" {worse / pairs:12.1%} {1000 * cost / pairs:7.0f}")


def _sides(name: str, runs: int, noise: NoiseModel, seed: int) -> list[list[LoadedRun]]:
    base = replace(_server(np.random.default_rng(seed)), noise=noise)
    new = _changed(base, name, np.random.default_rng(seed + 1))
    return [
        [_loaded(simulate_run(settings, seed + 10 * (side + 1) + run).recording) for run in range(runs)]
        for side, settings in enumerate((base, new))
    ]


def _interval(row: LoadAdjusted) -> tuple[float, float]:
    return row.effect.interval() if row.effect else (-math.inf, math.inf)


def _server(rng: np.random.Generator) -> RunSettings:
    """Any server of the simulator's range that reaches its limit."""
    server = ServerModel(
        capacity_users=float(rng.uniform(5000, 14_000)),
        login_weight_s=float(rng.uniform(0.1, 0.3)),
        cold_gain=float(rng.uniform(0, 6)),
        cold_requests=float(rng.uniform(2000, 10_000)),
        cpu_at_capacity_percent=float(rng.uniform(20, 60)),
        cpu_per_login_percent=float(rng.uniform(3, 6.5)),
    )
    return RunSettings(server=server, coordinator=Coordinator(evaluate_every_s=float(rng.uniform(1.6, 2.2))))


def _changed(base: RunSettings, name: str, rng: np.random.Generator) -> RunSettings:
    """The new build."""
    rule, server = base.coordinator, base.server
    if name == "alert thresholds":
        limits = Thresholds(client_avg_s=float(rng.choice([0.06, 0.075, 0.13, 0.16])))
        return replace(base, coordinator=replace(rule, thresholds=limits))
    if name == "user ceiling":
        ceiling = int(server.capacity_users * rng.uniform(0.45, 0.75))
        return replace(base, coordinator=replace(rule, max_users=ceiling), time_limit_s=9000.0)
    if name.startswith("10 %"):
        levels = server.levels
        slow = replace(
            server,
            client_avg_idle_s=server.client_avg_idle_s * SLOWER,
            client_avg_at_capacity_s=server.client_avg_at_capacity_s * SLOWER,
            cpu_at_capacity_percent=server.cpu_at_capacity_percent * SLOWER,
            cpu_per_login_percent=server.cpu_per_login_percent * SLOWER,
            levels=replace(
                levels,
                api_avg_s=levels.api_avg_s * SLOWER,
                api_p99_s=levels.api_p99_s * SLOWER,
                store_avg_s=levels.store_avg_s * SLOWER,
                store_p99_s=levels.store_p99_s * SLOWER,
            ),
        )
        return replace(base, server=slow)
    return base


def _loaded(recording: Recording) -> LoadedRun:
    view = ViewRun(CATALOGUE)(recording, "unbounded")
    if view.users is None or view.stop is None:
        raise SystemExit("a simulated run without users")
    curves = {series.metric: recording.curve(series) for series in recording.graphs() if series.metric != LOAD}
    return LoadedRun(view.users, curves, view.stop.at_s)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
