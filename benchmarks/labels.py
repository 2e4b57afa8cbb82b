"""How often is a label said to be slower than noise explains where nothing changed, and in published releases?

    python benchmarks/labels.py [FOLDER]
    python benchmarks/labels.py series [20000]
    python benchmarks/labels.py learn

Releases of four tests are put together from pairs of identical ceiling runs of `FOLDER` (default: BUILDCOMPARE_REAL, or
../shared/real): two unbounded setups, smallest machines left out, and both bounded ones. Counted are those with a label
that is several times slower. Then the labels of the published comparisons that are named, the doubled labels that are
found in identical runs, and, as no published run holds how often a label was called, simulated pairs in which one
handler takes eight times as long.

With `series` it prints instead what a report of one test costs whose runs have so many label series each, and a tenth
and a hundredth of them: CPU beyond that of a report with ten, a series of a run, the largest memory of any process, and
the sizes of page and results. With `learn` it prints `run_sd_percent` of the catalogue's label tables, learned from the
ceiling tests without the smallest machines.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy import real_groups
from identical import CATALOGUE, SMALL, read
from releases import with_labels
from scipy import optimize, special

from buildcompare import findings
from buildcompare.comparison.measure import compare_test
from buildcompare.config.params import Run, Test
from buildcompare.findings.labels import slower_labels
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import record
from buildcompare.recordings.table import write_recording
from buildcompare.results import LabelResult, TestResult
from buildcompare.results.codes import SIDES
from buildcompare.stats.effects import LABEL_ALPHA
from loadcalibrate.learn import check_labels
from loadsim import Coordinator, RunSettings, Thresholds, Traffic, simulate_run
from validity import published

RELEASES = 1000
SEED = 1
HANDLER = "getPostsForChannel"
CALM = Coordinator(max_users=3000, thresholds=Thresholds(None, None, None, None))


NOISY, PRIOR = 3.0, 12.0
"""Labels that scatter this many times as much are named; weight of the table's noise in a label's, in changes."""
CALM_PART, RARE_PART, QUIETEST = 0.8, 0.98, 0.1
"""Quantiles of the scores that a t distribution is fitted to; least spread of a pair, relative to its table's."""


def learn() -> None:
    """Print the noise of label tables, and the labels that scatter, as the catalogue holds them."""
    real = Path(os.environ.get("BUILDCOMPARE_REAL") or "../shared/real").resolve()
    groups = [group for group in real_groups(real)[0] if group.name not in SMALL]
    changes = pd.concat([label_pairs(group).assign(setup=i) for i, group in enumerate(groups)])
    changes = changes.assign(score=changes["change"] / changes["relative"]).sort_values("setup", kind="stable")
    for (group, stat), rows in changes.groupby(["group", "stat"]):
        by_setup = rows.groupby("setup")
        held_out = [of["label"].map(scatter(rows[rows["setup"] != setup])) for setup, of in by_setup]
        score = rows["score"].abs() / pd.concat(held_out).fillna(1.0).to_numpy()  # without the setup's own changes
        pairs = score.groupby([rows["setup"], rows["pair"]]).transform("median")
        calm, rare = (score / np.sqrt((pairs / score.median()).clip(lower=QUIETEST))).quantile([CALM_PART, RARE_PART])
        degrees = np.geomspace(0.5, 100.0, 100)
        ratios = reach(degrees, RARE_PART) / reach(degrees, CALM_PART)
        df = float(np.interp(rare / calm, ratios[::-1], degrees[::-1]))

        def excess(sd: float, score=score, pairs=pairs, df=df) -> float:
            spread = np.sqrt((pairs / sd / reach(df, 0.5)).clip(lower=QUIETEST))
            return float((score / (sd * spread)).quantile(RARE_PART) - reach(df, RARE_PART))

        sd = float(optimize.brentq(excess, 1e-3, 1.0))
        named = {label: f"{100 * np.expm1(sd * each):.2g}" for label, each in scatter(rows).items()}
        print(f"{group} {stat}: percent: {100 * np.expm1(sd):.2g}, df: {df:.2g}, labels: {named}")


def scatter(rows: pd.DataFrame) -> pd.Series:
    """Deviation of labels that scatter more than their table, relative to it, the largest first."""
    sd = 1.4826 * rows["score"].abs().median()
    of = rows.assign(square=rows["score"] ** 2).groupby("label")["square"].agg(["sum", "count"])
    ratio = np.sqrt((PRIOR * sd**2 + of["sum"]) / (PRIOR + of["count"])) / sd
    return ratio[ratio >= NOISY].sort_values(ascending=False)


def reach(df: float | np.ndarray, part: float) -> np.ndarray:
    """Half-width of the central part of a t distribution."""
    return np.asarray(special.stdtrit(df, 0.5 + part / 2.0))


def main(folder: str | None = None) -> None:
    """Print the rates."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real").resolve()
    pairs: dict[tuple[str, str], list[list[LabelResult]]] = defaultdict(list)
    for (name, kind), runs in read(real)[0].items():
        for first, second in itertools.combinations(runs, 2):
            if name not in SMALL:
                pairs[kind, name].append(compared(first, second, kind))
    rng = np.random.default_rng(SEED)
    unbounded, bounded = ([key for key in pairs if key[0] == kind] for kind in ("unbounded", "bounded"))
    made = []
    for _ in range(RELEASES):
        setups = [*(unbounded[i] for i in rng.choice(len(unbounded), 2, replace=False)), *bounded]
        made.append({str(key): pairs[key][rng.integers(len(pairs[key]))] for key in setups})
    named = np.mean([bool(slower_labels(release)) for release in made])
    print(f"{RELEASES} releases of identical runs: {named:.1%} name a label")
    releases: dict[str, dict[str, list[LabelResult]]] = defaultdict(dict)
    for name, test, source in published(real):
        release = name.split()[0]
        whole = with_labels(test, real / "comparisons" / release / test.name)
        runs = {side: [record(run, source, CATALOGUE) for run in whole.runs(side)] for side in SIDES}
        releases[release][test.name] = compare_test(whole, runs, CATALOGUE).result.labels
    for release, tests in releases.items():
        for test, row, _ in slower_labels(tests):
            print(f"{release}: {test}: {row.label} {row.stat} {row.delta_percent:+.0f} %")
    doubled(real)
    costly()


def doubled(real: Path) -> None:
    """Print how many labels are marked, and how many doubled ones, in pairs of identical runs, also by halves."""
    groups = [group for group in real_groups(real)[0] if group.name not in SMALL]
    first, second = groups[::2], groups[1::2]
    for half in (groups, first, second):
        rows = check_labels(half)
        marked, found = rows["called"].mean(), rows.groupby("group")[100.0].mean()
        rates = f"marked {marked:.1%}, doubled labels {rows[100.0].mean():.1%} +- {found.sem():.1%}"
        print(f"{len(half)} setups, each by the others: {rates} (setups differ)")
    for by, noise, judged in (
        ("First half, by the second", LabelNoise(second), first),
        ("Second half, by the first", LabelNoise(first), second),
        ("By the catalogue, which comes from these runs", LabelNoise(tables=CATALOGUE.label_tables), groups),
    ):
        p_values = []
        for group in judged:
            for _, pair in label_pairs(group).rename(columns={"first": "base", "second": "new"}).groupby("pair"):
                effects = [each for each in noise.effects(pair)["effect"] if each]
                twice = [replace(each, log_ratio=each.log_ratio + np.log(2.0)) for each in effects]
                p_values += [(each.p_value, other.p_value) for each, other in zip(effects, twice, strict=True)]
        marked, found = (np.array(p_values) < LABEL_ALPHA).mean(axis=0)
        print(f"{by}: marked {marked:.1%}, doubled {found:.1%}")


def costly(pairs: int = 20) -> None:
    """Print how often a handler eight times slower is a warning among the first findings, by its number of calls."""
    for _handler, times, calls in (
        (HANDLER, 1.0, 0),
        (HANDLER, 8.0, 200_000),
        (HANDLER, 8.0, 3_000),
        (HANDLER, 8.0, 50),
    ):
        first = 0
        for seed in range(30_000, 30_000 + pairs):
            result = simulated(seed, ((f"api/{HANDLER}", times),), calls)
            above, _ = findings.above_the_fold(findings.find([result], ("base", "new")))
            first += any(each.kind == "labels_beyond_noise" and each.severity == "warning" for each in above)
        print(f"{HANDLER} x {times:g}, {calls:,} calls: a warning among the first findings in {first} of {pairs}")


def compared(base: Recording, new: Recording, kind: str) -> list[LabelResult]:
    """The label rows of two runs, judged by the catalogue."""
    test = Test(name="x", type=kind, base=[Run(report="-")], new=[Run(report="-")])  # type: ignore[arg-type]
    return compare_test(test, {"base": [base], "new": [new]}, CATALOGUE).result.labels


def simulated(seed: int, times: Sequence[tuple[str, float]] = (), calls: float = 0) -> TestResult:
    """Compare two simulated bounded runs; in the new one labels take so many times as long.

    In both runs they are called about so many times in the steady window, if `calls` is not 0.
    """
    runs = []
    for number in range(2):
        settings = RunSettings(type="bounded", coordinator=CALM)
        traffic = Traffic(times=tuple(times) if number else ())
        run = simulate_run(settings, 2 * seed + number, traffic=traffic).recording
        names, series = {label.split("/", 1)[1] for label, _ in times}, []
        for each in run.series:
            factor = 1.0
            if calls and each.role == "label" and each.stat == "calls" and each.name.split("/")[-1] in names:
                factor = calls / float(np.nanmean(each.values) * np.ptp(each.times))
            series.append(replace(each, values=each.values * factor))
        runs.append(replace(run, series=tuple(series)))
    test = Test(name="x", type="bounded", base=[Run(report="-")], new=[Run(report="-")])
    return compare_test(test, {"base": runs[:1], "new": runs[1:]}, CATALOGUE).result


STARTER = """
import contextlib, ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # fork servers that outlive the command become children of this process
command, used, code = subprocess.Popen(sys.argv[1:]), [], 0
with contextlib.suppress(ChildProcessError):
    while True:
        ended, status, of_process = os.wait3(0)
        used.append(of_process)
        code = os.waitstatus_to_exitcode(status) if ended == command.pid else code
command.returncode = code
print(sum(each.ru_utime + each.ru_stime for each in used), max(each.ru_maxrss for each in used) / 1e3)
sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """What a report of so many label series a run takes; `each_ms` is CPU beyond that of the first, a series."""

    count: int
    cpu_s: float
    each_ms: float
    memory_mb: float
    page_mb: float
    results_mb: float


def costs(counts: Sequence[int]) -> Iterator[Cost]:
    """Make three reports of each: medians of CPU, and the most memory that a process held."""
    fixed = 0.0
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "buildcompare", "report", str(many_labels(Path(folder), count)), "--quiet"]
            used = [ended([*command, "--output", f"{folder}/report"]) for _ in range(3)]
            cpu, memory = statistics.median(cpu for cpu, _ in used), max(memory for _, memory in used)
            sizes = (Path(folder, "report", name).stat().st_size / 1e6 for name in ("report.html", "results.json"))
            fixed = fixed or cpu
            yield Cost(count, cpu, 1e3 * (cpu - fixed) / count, memory, *sizes)


def ended(command: list[str]) -> tuple[float, float]:
    """CPU seconds of a command, and MB of its largest process.

    What it is started by is new too: a process's memory counts what its parent held before it began.
    """
    told = subprocess.run([sys.executable, "-c", STARTER, *command], check=True, stdout=subprocess.PIPE)
    cpu, memory = map(float, told.stdout.split())
    return cpu, memory


def series(most: int) -> None:
    """Print what reports of many label series cost."""
    print("series a run    CPU s  ms a series  memory MB  page MB  results MB")
    for cost in costs((10, most // 100, most // 10, most)):
        about = f"{cost.count:12,} {cost.cpu_s:8.1f} {cost.each_ms:12.2f} {cost.memory_mb:10.0f}"
        print(f"{about} {cost.page_mb:8.2f} {cost.results_mb:11.2f}", flush=True)


def many_labels(folder: Path, count: int) -> Path:
    """The params file of a bounded test whose runs have `count` label series: the mean and the calls of each label."""
    sides = {}
    for number, side in enumerate(SIDES):
        rng = np.random.default_rng(number)
        run = simulate_run(RunSettings(type="bounded", coordinator=CALM), 7 + number).recording
        kept = [each for each in run.series if each.role == "graph"]
        times = np.arange(run.window[0] + 60.0, run.window[1], 60.0)
        for label in range(count // 2):
            usual = {"avg": 0.001 * (1 + label % 400), "calls": 20.0 + label % 7}
            for stat, level in usual.items():
                values = level * np.exp(rng.normal(0.0, 0.05, times.size))
                kept.append(Series("api", f"api/handler{label}", "", times, values, role="label", stat=stat))
        write_recording(replace(run, series=tuple(kept), label_summaries=()), folder / f"{side}.parquet")
        sides[side] = {"recording": str(folder / f"{side}.parquet")}
    test = {"name": "labels", "type": "bounded", "db_engine": "postgresql", "users": 3000, **sides}
    params = {"base": {"label": "v1"}, "new": {"label": "v2"}, "source": {"kind": "recorded"}, "tests": [test]}
    (folder / "labels.yaml").write_text(json.dumps(params, default=str), "utf-8")
    return folder / "labels.yaml"


if __name__ == "__main__":
    if sys.argv[1:2] == ["series"]:
        series(int(*sys.argv[2:] or [20_000]))
    elif sys.argv[1:] == ["learn"]:
        learn()
    else:
        main(*sys.argv[1:])
