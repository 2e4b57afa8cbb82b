"""When would `watch` have stopped a test, what would that have saved, and was it right?

    python benchmarks/watch.py releases|identical|faults|bounds|cost [FOLDER]

Recordings of `FOLDER` (default: BUILDCOMPARE_REAL, or ../shared/real) are replayed, each build against the other in
both orders. The verdict of the whole test, by the same noise and without tables of labels (which are of whole runs), is
printed beside each decision. Every second release set `LAG` of `loadwatch.decide`, for unbounded tests; the others are
marked "judges". Looks are a minute apart in bounded tests, five in unbounded ones.

- releases, identical: hours of load, decisions that differ from the whole test's, regressions of identical builds.
- faults: twelve planted faults, and how long each took to be certain; valid runs that are stopped for one.
- bounds: how often the range of a final mean fails at any look, of simulated and of real runs.
- cost: CPU of a look at minute 180 with 500 series, and memory over twelve hours.
"""

from __future__ import annotations

import importlib
import math
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from buildcompare.config.params import Test
from buildcompare.load.view import view_run
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import record
from buildcompare.results.codes import SIDES
from buildcompare.stats.levels import mean_with_error
from loadwatch.decide import Code, Decision, decide, error_of, reach_of
from loadwatch.look import Watched
from validity import CATALOGUE, identical, published

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
planted = importlib.import_module("planted").faults
STEP_S = 5.0


def main(what: str = "releases", folder: str | None = None) -> None:
    """Print a table."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    {"releases": releases, "identical": pairs, "faults": faults, "bounds": bounds, "cost": cost}[what](real)


# ---- Whole tests ----------------------------------------------------------------------------------------------------


def replay(watched: Watched, running: Recording) -> tuple[Decision, str]:
    """The decision that ends the watch, and the verdict of the whole test."""
    every_s = 60.0 if watched.test.type == "bounded" else 300.0
    whole = decide(watched, running, watched.length_s)[0]
    times = np.append(np.arange(every_s, watched.length_s, every_s), watched.length_s)
    looks = (decide(watched, running, float(at_s))[0] for at_s in times)
    return next(each for each in looks if each.code != Code.RUNNING), str(whole.verdict)


def report(tests: Iterator[tuple[str, Test, dict[str, Recording]]]) -> None:
    """Replay every test in both orders, and print rows and sums by type."""
    sums: Counter[tuple[str, str]] = Counter()
    for name, test, runs in tests:
        for base, new in (SIDES, SIDES[::-1]):
            turned = test if base == "base" else test.model_copy(update={"base": test.new, "new": test.base})
            watched = Watched(turned, CATALOGUE, [runs[base]], runs[new].duration_s)
            seen, whole = replay(watched, runs[new])
            known = str(seen.verdict)
            differs = known != whole
            print(f"{name:34} {new:4} {test.type:9} {seen.code:15} at {seen.at_s / 60:4.0f} of"
                  f" {seen.length_s / 60:4.0f} min: {known:12} whole test: {whole:12} {'DIFFERS' if differs else ''}"
                  f" {seen.fault.text[:90] if seen.fault else ''}", flush=True)  # fmt: skip
            minutes = round(seen.length_s / 60), round(seen.saved_s / 60)
            counts = {"replays": 1, seen.code: 1, "differ": differs, "minutes": minutes[0], "minutes saved": minutes[1]}
            sums.update({(test.type, what): n for what, n in counts.items()})
    for kind in sorted({kind for kind, _ in sums}):
        print(f"{kind:9} " + ", ".join(f"{n} {what}" for (each, what), n in sums.items() if each == kind))


def releases(real: Path) -> None:
    """Replay both builds of each release."""
    names = list(dict.fromkeys(name.split()[0] for name, _, _ in published(real)))
    judging = {name: "judges" if i % 2 else "" for i, name in enumerate(names)}
    report((f"{name} {judging[name.split()[0]]}", test, read(test, source)) for name, test, source in published(real))


def pairs(real: Path) -> None:
    """Replay identical runs."""
    report((name, test, read(test, source)) for name, test, source in identical(real))


def read(test: Test, source: object) -> dict[str, Recording]:
    """The recordings of a test."""
    return {side: record(test.runs(side)[0], source, CATALOGUE) for side in SIDES}  # type: ignore[arg-type]


# ---- Planted faults -------------------------------------------------------------------------------------------------


def faults(real: Path) -> None:
    """Plant each fault into every second valid bounded release, and watch what becomes of it."""
    taken: Counter[str] = Counter()
    late: list[float] = []
    for name, test, source in [each for each in published(real) if each[1].type == "bounded"][1::4]:
        runs = read(test, source)
        watched = Watched(test, CATALOGUE, [runs["base"]], runs["new"].duration_s)
        watched = replace(watched, labels=("v8.6.0", "v8.7.0"))
        view = watched.view(runs["new"])
        if view.steady.window is None:
            continue
        held = view.steady.window[0] + 600.0
        for what, (since_s, plant) in planted(0.6 * view.steady.window[0], held, watched.ramp[0]).items():
            new = plant(runs["new"])
            times = np.arange(since_s + 60.0, since_s + 961.0, 60.0)
            looks = ((at, decide(watched, new, float(at))[0]) for at in times)
            found = next((at - since_s for at, each in looks if each.code == Code.INVALID), math.inf)
            late.append(found)
            taken[what] += found <= 300.0
            print(f"{name:34} {what:28} certain after {found / 60:.0f} min", flush=True)
    print(f"within five minutes: {sum(each <= 300.0 for each in late)} of {len(late)}; by fault {dict(taken)}")


# ---- Bounds, and cost -----------------------------------------------------------------------------------------------


def bounds(real: Path, repetitions: int = 400) -> None:
    """How often the range of a final mean fails at any look: of AR(1) samples, and of times of real bounded runs."""
    for phi in (0.0, 0.5, 0.9, 0.97):
        rng = np.random.default_rng(1000)
        noise = rng.normal(size=(repetitions, 1380))
        print(
            f"AR(1) {phi}: {left([np.asarray(lfilter([1.0], [1.0, -phi], each)[300:]) for each in noise])}", flush=True
        )
    kept: dict[str, list[np.ndarray]] = {"published": [], "identical": []}
    for kind, tests in (("published", published(real)), ("identical", identical(real))):
        single = {str(run): (run, source) for _, test, source in tests if test.type == "bounded"
                for side in SIDES for run in test.runs(side)}  # fmt: skip
        for run, source in single.values():
            view = view_run(record(run, source, CATALOGUE), "bounded", CATALOGUE)  # type: ignore[arg-type]
            for slug in ("avg-api-times", "p99-api-times") if view.steady.window else ():
                if (series := view.recording.find(slug)) is not None:
                    elapsed, values = view.recording.samples(series)
                    values = values[(elapsed > view.steady.window[0]) & (elapsed <= view.steady.window[1])]
                    kept[kind].append(np.log(values[values > 0.0]))
        print(f"{kind} runs: {left(kept[kind])}", flush=True)


def left(runs: list[np.ndarray]) -> str:
    """Rates by the error of a report and by the careful one, and the part of the test at which the latter is known."""
    failed, began = np.zeros(2), list[float]()
    for values in runs:
        looks = np.arange(120, values.size, 12)
        parts = looks / values.size
        reach = np.array([reach_of(part, parts[0]) for part in parts]) * np.sqrt(1.0 - parts)
        off = np.abs([values[:size].mean() - values.mean() for size in looks])
        errors = np.array([(mean_with_error(values[:size])[1], error_of(values[:size])) for size in looks])
        failed += [(off > reach * error).any() for error in errors.T]
        began.append(min(parts[np.isfinite(errors[:, 1])], default=1.0))
    rates = " and ".join(f"{100.0 * rate:.1f} %" for rate in failed / len(runs))
    since = f"known from {np.median(began):.2f} of the test on"
    return f"{rates} of {len(runs)} leave the range, by the report's error and the careful one, {since}"


def cost(real: Path) -> None:
    """CPU of a look at minute 180 with 500 series, and memory while 12 hours are replayed."""
    _name, test, source = next(each for each in published(real) if each[1].type == "bounded")
    runs = {side: long(run, 43_200.0) for side, run in read(test, source).items()}
    watched = Watched(test, CATALOGUE, [long(runs["base"], 10_800.0)], 43_200.0)
    decide(watched, runs["new"], 10_800.0)
    began = time.process_time()
    for at_s in np.arange(10_800.0, 11_400.0, 60.0):
        decide(watched, runs["new"], float(at_s))
    print(
        f"{(time.process_time() - began) / 10:.2f} s of CPU for a look at minute 180, {len(runs['new'].series)} series"
    )
    before = 0
    for at_s in np.arange(600.0, 43_200.0, 600.0):
        decide(watched, runs["new"], float(at_s))
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if at_s % 7200.0 == 0.0:
            print(f"hour {at_s / 3600:.0f}: {now} MB at most ({now - before:+} MB)")
            before = now


def long(run: Recording, seconds: float) -> Recording:
    """The run with its last half hour again and again, and 500 series."""
    times = run.window[0] + np.arange(0.0, seconds, STEP_S)

    def longer(series: Series) -> Series:
        usable = series.values[:-60]
        repeated = np.concatenate([usable, np.tile(usable[-360:], 30)])
        return replace(series, times=times, values=np.resize(repeated, times.size))

    kept = [longer(each) for each in run.series if each.values.size > 500]
    more = [replace(kept[0], metric=f"other-{i}", name=f"other {i}") for i in range(500 - len(kept))]
    return replace(run, series=(*kept, *more), window=(run.window[0], run.window[0] + seconds), label_summaries=())


if __name__ == "__main__":
    main(*sys.argv[1:])
