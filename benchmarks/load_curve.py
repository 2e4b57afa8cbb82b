"""How often is the comparison at equal load wrong? On simulated pairs whose truth is known, and on real ones.

    python benchmarks/load_curve.py [PAIRS] [FIRST_SEED]
    python benchmarks/load_curve.py real

Each pair draws its own server: capacity, cost of logins, cores, cold caches and pace of the coordinator. Its builds
differ in nothing, in the alert thresholds, in the user ceiling, in that every request takes 10 % longer, or in that
the API's times alone are 40 % longer. Each is judged by the noise that the catalogue lends, and by calibrations from
other servers' repeated runs. Settings were chosen on seeds below 10,000. The real runs (identical pairs of the ceiling
tests in both orders, each setup judged by the others; the comparisons by all of them) are found through
BUILDCOMPARE_REAL. Most setups have no curve of users: they are compared over goroutines, as a report never does.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.calibration.file import beside_runs
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source
from buildcompare.config.project import root
from buildcompare.load.view import view_run
from buildcompare.metrics.equal_load import LoadedRun, equal_load, loaded_run
from buildcompare.metrics.judge_at_load import MeasuredAtLoad, measure_noise_at_load, noise_at_load, noise_between
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import record
from buildcompare.results import LoadAdjustedResult
from buildcompare.stats.noise import RepeatedRuns
from buildcompare.stats.planning import ALPHA
from loadsim import Coordinator, NoiseModel, RunSettings, ServerModel, Thresholds, simulate_run
from loadsim.bundled import QUIET

CATALOGUE = read_catalogue("mattermost")
SLOWER = 1.1
CALLED = ("regression", "improvement")
LONGER = (10, 20, 50)
"""Percent by which times of identical runs are made longer."""
SMALL = ("v1-1.1", "v2-L110", "v2-L222")
"""The smallest machines, whose runs differ by 11 to 26 %: reported apart."""
GROUPS = (2, 3, 4) * 4
"""Runs of each of a calibration's setups."""
HOW = {"catalogue": 0, "calibration of one setup of three runs": 1, "calibration": len(GROUPS)}
"""By how many setups a pair is judged."""
CALIBRATIONS = 10
"""Pairs take turns with so many calibrations, so that none of them decides a table."""
UNLIKE = NoiseModel(level_scale=1.9)
"""CPU at equal users varies by 2.1 % from run to run, and times by 13 to 17 %: about twice what is published."""


@dataclass
class Tally:
    """What was judged of one kind of pairs."""

    pairs: int = 0
    felt: int = 0
    regressions: int = 0
    called: int = 0
    worse: int = 0
    worse_alone: int = 0
    rows: list[LoadAdjustedResult] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, judged: Mapping[str, LoadAdjustedResult]) -> None:
        """One pair."""
        self.pairs += 1
        self.rows += judged.values()
        lower = [row for slug, row in judged.items() if CATALOGUE.find(slug).better == "lower"]
        worse = [slug for slug, row in judged.items() if row.status == "regression"]
        self.felt += any(CATALOGUE.find(slug).gate for slug in worse)
        self.regressions += any(row.status == "regression" for row in lower)
        self.called += any(row.status in CALLED for row in judged.values())
        self.worse += any((row.ci_low or 0.0) > 0 for row in lower)
        self.worse_alone += any(not _holds_zero(row) and (row.delta_percent or 0.0) > 0 for row in lower)

    def line(self, name: str) -> str:
        """The rates in percent, of pairs and of rows."""
        known = [row for row in self.rows if row.p_value is not None]
        covering = sum(_holds_zero(row) for row in known) / max(len(known), 1)
        wide = [(row.ci_low or 0.0, row.ci_high or 0.0) for row in self.rows]
        together = sum(low <= 0 <= high for low, high in wide) / max(len(wide), 1)
        open_rows = sum(row.status == "inconclusive" for row in self.rows) / max(len(self.rows), 1)
        counts = (self.felt, self.regressions, self.called, self.worse, self.worse_alone)
        parts = [each / self.pairs for each in counts]
        rates = "".join(f"{100 * each:11.1f}" for each in (*parts, covering, together, open_rows))
        return f"{name:46s}{rates}{1000 * self.seconds / self.pairs:8.0f}"


def _holds_zero(row: LoadAdjustedResult) -> bool:
    """Whether the 95 % interval of this row by itself does; so it does where nothing is known."""
    return row.p_value is None or row.p_value >= ALPHA


HEAD = f"{'in percent of pairs, and of rows':46s}" + "".join(
    f"{word:>11s}" for word in ("felt", "regression", "any call", "worse", "alone", "zero alone", "zero", "cannot tell")
)
LEGEND = """felt: a regression of a metric that users feel, on which a verdict rests; regression: of any where less is
better; any call: of any metric, in either direction
worse: an interval of the table wholly on the bad side; alone: the same by its p-value at 95 %
zero (alone): rows whose interval, of the table or by itself, holds zero; cannot tell: rows"""


def main(pairs: int = 100, first_seed: int = 40_000) -> None:
    """Print the tables of simulated runs."""
    print(f"{pairs} pairs of each kind, seeds from {first_seed}; one run per build unless said otherwise\n{LEGEND}")
    kinds = (
        ("nothing", 1, NoiseModel()),
        ("alert thresholds", 1, NoiseModel()),
        ("user ceiling", 1, NoiseModel()),
        ("10 % slower", 1, NoiseModel()),
        ("10 % slower, two runs per build", 2, NoiseModel()),
        ("10 % slower, three runs per build", 3, NoiseModel()),
        ("API times alone 40 % longer", 1, NoiseModel()),
        ("nothing, runs 1.9 times as unlike", 1, UNLIKE),
        ("10 % slower, runs 1.9 times as unlike", 1, UNLIKE),
        ("10 % slower, runs as alike as the bundled", 1, QUIET),
    )
    noises: dict[NoiseModel, list[list[RepeatedRuns]]] = {}
    for _, _, noise in kinds:
        if noise not in noises:
            noises[noise] = [calibration(first_seed + 500_000 + 1000 * i, noise) for i in range(CALIBRATIONS)]
    tallies = {(name, how): Tally() for name, _, _ in kinds for how in HOW}
    cpu: dict[str, list[tuple[float, float]]] = {}
    for name, runs, noise in kinds:
        for pair in range(pairs):
            sides = _sides(name, runs, noise, first_seed + 100 * pair)
            calibrated = noises[noise][pair % CALIBRATIONS]
            for how, setups in HOW.items():
                tally = tallies[name, how]
                start = time.process_time()
                tally.add(judge(*sides, calibrated[1:2] if setups == 1 else calibrated[:setups]))
                tally.seconds += time.process_time() - start
            curve = equal_load(*sides)["cpu-utilization"]
            cpu.setdefault(name, []).append((curve.log_ratio, curve.se_log))
    for how in HOW:
        print(f"\nNoise between runs: {how}\n{HEAD}  CPU ms")
        for name, _, _ in kinds:
            print(tallies[name, how].line(name))
    print("\nWho knew the noise of CPU exactly, and looked at nothing else, at 5 % two-sided and beyond the margin")
    usual = math.sqrt(float(np.mean(np.square([ratio for ratio, _ in cpu["nothing"]]))))
    reach = max(-float(special.ndtri(0.025)) * usual, math.log1p(0.05))
    for name in ("nothing", "alert thresholds", "user ceiling", "10 % slower"):
        print(f"{name:46s}{100 * np.mean([ratio > reach for ratio, _ in cpu[name]]):11.1f}")


def judge(
    base: Sequence[LoadedRun], new: Sequence[LoadedRun], known: Sequence[RepeatedRuns], longer: float = 0.0
) -> dict[str, LoadAdjustedResult]:
    """Judge two builds, the times of the new one `longer` by so many percent, by repeated runs or by the catalogue."""
    catalogue, runs = beside_runs(CATALOGUE, known), (len(base), len(new))
    noises = {each.slug: noise_at_load(each, known) for each in catalogue.metrics}
    curves = {slug: each for slug, each in equal_load(base, new, noise_between(noises, runs)).items() if slug in noises}
    for slug in filter(_is_time, curves):
        factor, each = 1.0 + longer / 100.0, curves[slug]
        curves[slug] = replace(each, new=each.new * factor, log_ratio=each.log_ratio + math.log(factor))
    return MeasuredAtLoad(curves, noises, runs).judged(catalogue)


def calibration(first_seed: int, noise: NoiseModel) -> list[RepeatedRuns]:
    """What repeated runs of other servers teach."""
    groups = []
    for i, runs in enumerate(GROUPS):
        settings = replace(_server(np.random.default_rng(first_seed + 50 * i)), noise=noise)
        views = [_loaded(simulate_run(settings, first_seed + 50 * i + 10 + run).recording) for run in range(runs)]
        groups.append(RepeatedRuns(str(i), "unbounded", [], measure_noise_at_load(views)))
    return groups


# ---- Real runs ------------------------------------------------------------------------------------------------------


def real() -> None:
    """Print the tables of published runs."""
    folder = Path(os.environ.get("BUILDCOMPARE_REAL") or root().parent / "shared" / "real").resolve()
    if not folder.is_dir():
        print("No real runs: BUILDCOMPARE_REAL names no folder.")
        return
    print(f"Published runs\n{LEGEND}\n{HEAD}")
    runs = dict(_ceiling(folder))
    groups = [RepeatedRuns(name, "unbounded", [], measure_noise_at_load(each)) for name, each in runs.items()]
    useful = [group for group in groups if group.name not in SMALL]
    power = []
    of_setups = {
        "identical pairs": (useful, useful),
        "of the half that chose settings": (useful[::2], useful),
        "of the other half": (useful[1::2], useful),
        "with the smallest machines": (groups, groups),
    }
    for name, (judged_groups, kept) in of_setups.items():
        for how in ("catalogue", "calibration"):
            tally, found = Tally(), {percent: [] for percent in LONGER}
            for group in judged_groups:
                known = [each for each in kept if each is not group] if how == "calibration" else []
                for both in itertools.permutations(runs[group.name], 2):
                    tally.add(judge(both[:1], both[1:], known))
                    for percent in LONGER:
                        judged = judge(both[:1], both[1:], known, percent)
                        found[percent] += [row.status == "regression" for slug, row in judged.items() if _is_time(slug)]
            print(tally.line(f"{tally.pairs} {name}, {how}"))
            rates = (f"{100 * np.mean(each):11.1f}" for each in found.values())
            power.append(f"{tally.pairs} {name}, {how}".ljust(70) + "".join(rates))
    for how, known in (("catalogue", []), ("calibration", useful)):
        tally = Tally()
        for sides in _comparisons(folder):
            tally.add(judge(*sides, known))
        print(tally.line(f"{tally.pairs} releases, {how}"))
    print(f"\nTimes of one of two identical runs {LONGER} % longer, both orders: percent of rows called a regression")
    print("\n".join(power))
    print("\nRuns of one setup, standard deviation in percent: users, CPU at equal load, and errors within runs in it")
    for suite in ("v1-", "v2-"):
        names = [group.name for group in useful if group.name.startswith(suite)]
        print(_spread(f"{len(names)} setups of {suite[:2]}", [runs[name] for name in names]))
    played = []
    for seed in range(30_000, 30_600, 50):
        settings = _server(np.random.default_rng(seed))
        played.append([_loaded(simulate_run(settings, seed + run).recording) for run in range(3)])
    print(_spread(f"{len(played)} simulated setups", played))


def _spread(name: str, setups: Sequence[Sequence[LoadedRun]]) -> str:
    """Pooled over setups; the users are those of the last 30 minutes."""
    cpu = [measure_noise_at_load(runs)["cpu-utilization"] for runs in setups]
    users = [[float(run.users[run.users.index > run.stop_s - 1800].mean()) for run in runs] for runs in setups]
    spreads = [float(np.mean([np.var(np.log(each), ddof=1) for each in users]))]
    spreads += [float(np.mean([each.variance for each in cpu])), float(np.mean([each.within for each in cpu]))]
    return f"{name:46s}" + "".join(f"{100 * math.sqrt(each):11.2f}" for each in spreads)


def _is_time(slug: str) -> bool:
    return CATALOGUE.find(slug).unit == "seconds"


def _ceiling(folder: Path) -> Iterator[tuple[str, list[LoadedRun]]]:
    """Repeated unbounded runs by setup; where they lack the users, over the goroutines that stand in for them."""
    table = pd.read_csv(folder / "ceiling/runs.csv", dtype={"config": str})
    for (suite, config), rows in table[table["test_type"] == "unbounded"].groupby(["suite", "config"]):
        runs = []
        for file in rows["file"]:
            try:
                recording = record(Run(report=str(folder / "ceiling" / file)), Source(kind="ltctl"), CATALOGUE)
            except InputError:
                continue  # one file is empty, as published
            view = view_run(recording, "unbounded", CATALOGUE)
            run = loaded_run(view, CATALOGUE, by_proxy=True)
            runs += [run] if run is not None else []
        if len(runs) > 1:
            yield f"{suite}-{config}", runs


def _comparisons(folder: Path) -> Iterator[tuple[list[LoadedRun], list[LoadedRun]]]:
    for test in sorted(folder.glob("comparisons/*/*_unbounded")):
        recordings = [
            record(Run(recording=str(test / f"{side}.csv.gz")), Source(kind="recorded"), CATALOGUE)
            for side in ("base", "new")
        ]
        runs = [loaded_run(view_run(each, "unbounded", CATALOGUE), CATALOGUE) for each in recordings]
        if runs[0] is not None and runs[1] is not None:
            yield [runs[0]], [runs[1]]


# ---- Simulated pairs ------------------------------------------------------------------------------------------------


def _sides(name: str, runs: int, noise: NoiseModel, seed: int) -> list[list[LoadedRun]]:
    base = replace(_server(np.random.default_rng(seed)), noise=noise)
    new = _changed(base, name, np.random.default_rng(seed + 1))
    return [
        [_loaded(simulate_run(settings, seed + 10 * (side + 1) + run).recording) for run in range(runs)]
        for side, settings in enumerate((base, new))
    ]


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
    if name.startswith("API times"):
        api = replace(server.levels, api_avg_s=server.levels.api_avg_s * 1.4, api_p99_s=server.levels.api_p99_s * 1.4)
        return replace(base, server=replace(server, levels=api))
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
    run = loaded_run(view_run(recording, "unbounded", CATALOGUE), CATALOGUE)
    if run is None:
        raise SystemExit("a simulated run without users")
    return run


if __name__ == "__main__":
    if sys.argv[1:] == ["real"]:
        real()
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
