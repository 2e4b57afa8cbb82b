"""How well are the shapes of runs measured? On simulated runs with known truth, on red noise, and on real runs.

    python benchmarks/shapes.py simulated [FIRST] [COUNT] [users|noisy|goroutines]
    python benchmarks/shapes.py pairs [FIRST] [COUNT]
    python benchmarks/shapes.py red [COUNT]
    python benchmarks/shapes.py real FOLDER

Settings of the analyses were chosen on simulated runs of seeds 0 to 249 and pairs of seeds 0 to 199; figures to
report come from seeds 1000 and up.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source
from buildcompare.load.curve import find_stop
from buildcompare.load.phases import compare_waves, red_noise_test
from buildcompare.load.ramps import shift
from buildcompare.load.view import Shape, measure_shape
from buildcompare.recordings.sources import record
from loadsim import ShapeTruth, SimulatedRun, random_settings, shape_truth, shift_truth, simulate_run

BUMPY = ("v9.2", "v9.5", "v9.6", "v9.8", "v9.10", "v10.1", "v10.4")
"""Releases measured with the data set that made the early bump."""
USERS, GOROUTINES = "number-of-connected-devices", "goroutines-in-use"
ALLOWED = {
    "onset": (20.0, 0.0),
    "slope": (0.0, 0.05),
    "bumps": (0.0, 0.0),
    "kink": (30.0, 0.0),
    "wave_onset": (200.0, 0.0),
    "period": (0.0, 0.1),
    "amplitude": (0.0, 0.1),
    "shift": (20.0, 0.05),
}
"""Stated errors: absolute (s, users), relative to the truth; the larger counts.

The wave onset may be one wave off, because a fall of 39 users is none and one of 40 is. A slope is stated where its
interval is finite: a stretch of less than a minute and a half has none.
"""


def measured(run: SimulatedRun, slug: str = USERS, *, noise: float = 0.0) -> Shape | None:
    """The shape of a simulated run whose recording lost 2 % of its samples and a minute of them in one piece."""
    rng = np.random.default_rng(run.truth.seed)
    series = run.recording.find(slug)
    assert series is not None
    curve = run.recording.curve(series)
    values = curve.to_numpy() + noise * rng.normal(size=len(curve))
    values[rng.uniform(size=len(curve)) < 0.02] = np.nan
    hole = int(rng.integers(len(curve) - 12))
    values[hole : hole + 12] = np.nan
    rule = run.truth.settings.coordinator
    curve = pd.Series(values, curve.index)
    proxy = slug != USERS
    per_user = run.truth.settings.server.levels.goroutines_per_user if proxy else None
    fastest = None if proxy else rule.users_dec / max(rule.evaluate_every_s, rule.rest_s)
    stop = find_stop(curve, fastest_fall=fastest)
    return measure_shape(curve, stop, proxy=proxy, per_user=per_user, step=rule.users_dec)


def compared(truth: ShapeTruth, shape: Shape, unit: float = 1.0) -> dict[str, tuple[float, float]]:
    """(truth, measured) of everything that is stated."""
    number = lambda value: math.nan if value is None else float(value)  # noqa: E731
    ramp = shape.ramp
    return {
        "onset": (truth.onset_s, number(shape.beginning.onset_s)),
        "slope": (truth.slope_at((ramp.start_s + ramp.end_s) / 2), ramp.slope / unit)
        if ramp and ramp.end_s - ramp.start_s >= 60.0
        else (math.nan, math.nan),
        "kink": (truth.first_alert_s, ramp.kink_s) if ramp and ramp.kink_s else (math.nan, math.nan),
        "bumps": (truth.early_bumps, len(shape.beginning.bumps)),
        "wave_onset": (number(truth.wave_onset_s), number(shape.waves.onset_s)),
        "period": (number(truth.wave_period_s), number(shape.waves.period_s)),
        "amplitude": (number(truth.wave_amplitude_users), number(shape.waves.amplitude) / unit),
    }


def within(name: str, true: float, found: float) -> bool:
    """Whether a value is as exact as stated; nothing where there is nothing is right."""
    absolute, relative = ALLOWED[name]
    return (math.isnan(true) and math.isnan(found)) or abs(found - true) <= max(absolute, relative * abs(true)) + 1e-9


def simulated(first: int, count: int, kind: str = "users") -> None:
    rows, spent = [], 0.0
    for seed in range(first, first + count):
        run = simulate_run(random_settings(seed), seed)
        start = time.process_time()
        shape = measured(run, GOROUTINES if kind == "goroutines" else USERS, noise=3.0 if kind == "noisy" else 0.0)
        spent += time.process_time() - start
        truth = shape_truth(run.truth)
        unit = run.truth.settings.server.levels.goroutines_per_user if kind == "goroutines" else 1.0
        found = {} if shape is None else compared(truth, shape, unit)
        rows += [(seed, name, *found.get(name, (0.0, math.nan))) for name in ALLOWED if name != "shift"]
    table = pd.DataFrame(rows, columns=["seed", "what", "true", "found"])
    table["right"] = [within(r.what, r.true, r.found) for r in table.itertuples()]
    table["error"] = table["found"] - table["true"]
    print(f"{count} simulated runs from seed {first} ({kind}), {1000 * spent / count:.1f} ms of CPU each")
    for what, group in table.groupby("what", sort=False):
        absolute, relative = ALLOWED[str(what)]
        error = group["error"] / group["true"] if relative else group["error"]
        low, high = np.nanquantile(error, [0.025, 0.975])
        print(
            f"{what:12s} within {absolute:g} or {100 * relative:g} %: {100 * group['right'].mean():5.1f} %"
            f"   95 % of the errors from {low:.3g} to {high:.3g}   withheld: {group['found'].isna().sum()}"
            f"   wrong: {group.loc[~group['right'], 'seed'].tolist()[:12]}"
        )


def pairs(first: int, count: int) -> None:
    """Shifts between two runs of equal settings, and against a build whose caches stay cold for much longer."""
    for title, slower in (("equal settings", False), ("slowly warming caches against warm ones", True)):
        significant, errors, right, waves = 0, [], 0, []
        for seed in range(first, first + count):
            settings = random_settings(seed)
            cold = replace(settings.server, cold_gain=1.8, cold_requests=90_000.0) if slower else settings.server
            runs = [
                simulate_run(replace(settings, server=server), 100_000 + 2 * seed + k)
                for k, server in enumerate((settings.server, cold))
            ]
            shapes = [measured(run) for run in runs]
            if shapes[0] is None or shapes[1] is None:
                continue
            found = shift(shapes[0], shapes[1])
            truth = shift_truth(*(shape_truth(run.truth) for run in runs))
            if found is None or truth is None:
                continue
            significant += found.significant
            period, fall = compare_waves(shapes[0].waves, shapes[1].waves)
            if period is not None and fall is not None:
                waves.append((period.excludes_zero, fall.excludes_zero))
            errors.append(found.users - truth)
            right += within("shift", truth, found.users)
        number = len(errors)
        print(
            f"{count} pairs from seed {first}, {title}: {number} have a common ramp, "
            f"{100 * significant / number:.1f} % called significant; shift within 20 users or 5 %: "
            f"{100 * right / number:.1f} %, 95 % of the errors from "
            f"{np.quantile(errors, 0.025):.1f} to {np.quantile(errors, 0.975):.1f} users"
        )
        called = 100 * np.mean(waves, axis=0)
        print(
            f"    waves of {len(waves)} pairs: period called different in {called[0]:.1f} %, fall in {called[1]:.1f} %"
        )


def red(count: int) -> None:
    """Waves claimed where there is only red noise: on a plateau, and through the whole pipeline after a ramp."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(20)
    for phi, samples in itertools.product((0.0, 0.5, 0.9), (360, 1080)):
        alone = whole = 0
        for _ in range(count):
            noise = lfilter([1.0], [1.0, -phi], rng.normal(size=samples + 300))[300:] * math.sqrt(1 - phi**2)
            test = red_noise_test(np.arange(samples) * 5.0, noise, 5.0)
            alone += test is not None and test.p_value <= 0.05
            users = np.concatenate([np.arange(0.0, 6000.0, 20.0), 6000.0 + 30.0 * noise])
            curve = pd.Series(users, np.arange(users.size) * 5.0)
            shape = measure_shape(curve)
            whole += shape is not None and shape.waves.claimed
        print(
            f"red noise, phi {phi}, {samples} samples: "
            f"test {100 * alone / count:.1f} %, claimed {100 * whole / count:.1f} %"
        )


def real(folder: Path) -> None:
    catalogue = read_catalogue("mattermost")
    spent = 0.0
    there: list[bool] = []
    elsewhere: list[bool] = []
    print(
        "run                                 bumps (peak, fall)               onset slope kink waves period fall reg."
    )
    for test in sorted(folder.glob("comparisons/*/*_unbounded")):
        shapes = []
        for side in ("base", "new"):
            recording = record(Run(recording=str(test / f"{side}.csv.gz")), Source(kind="recorded"), catalogue)
            series = recording.find(USERS)
            assert series is not None
            start = time.process_time()
            shape = _shape(recording.curve(series), proxy=False)
            spent += time.process_time() - start
            shapes.append(shape)
            bumpy = there if test.parent.name in BUMPY else elsewhere
            bumpy.append(shape is not None and bool(shape.beginning.bumps))
            print(f"{test.parent.name:17s} {test.name.split('_')[0]:10s} {side:4s} {_row(shape)}")
        if shapes[0] is None or shapes[1] is None:
            continue
        start = time.process_time()
        found = shift(*shapes)
        spent += time.process_time() - start
        if found is not None:
            low, high = found.users_ci
            print(
                f"    shift {found.users:.0f} users [{low:.0f}, {high:.0f}], "
                f"{found.seconds:.0f} s, p {found.p_value:.3f}"
            )
    print(f"early bumps in {sum(there)} of {len(there)} curves of {', '.join(BUMPY)}")
    print(f"early bumps in {sum(elsewhere)} of {len(elsewhere)} other curves")
    print(f"{spent:.2f} s of CPU for {len(there) + len(elsewhere)} curves and their shifts")
    waves: dict[str, list[tuple[float, float]]] = {"period": [], "fall": []}  # variances of groups, with their df
    setups: dict[str, list[Shape]] = {}
    for file in sorted(folder.glob("ceiling/*.gz")):
        if file.stat().st_size < 100:  # one was published empty
            continue
        recording = record(Run(report=str(file)), Source(kind="ltctl"), catalogue)
        series = recording.find(USERS)
        known = series is not None and bool(np.isfinite(series.values).sum() > 100)
        series = series if known else recording.find(GOROUTINES)
        if series is not None:
            shape = _shape(recording.curve(series), proxy=not known)
            print(f"{file.name[:-7]:34s} {_row(shape)}")
            if shape is not None and shape.waves.claimed:
                setups.setdefault(file.name.rpartition("-")[0], []).append(shape)
    for shapes in setups.values():
        for name, of_runs in (
            ("period", [each.waves.period_s for each in shapes if each.waves.period_s]),
            ("fall", [each.waves.amplitude for each in shapes if each.waves.amplitude]),
        ):
            if len(of_runs) > 1:
                waves[name].append((float(np.var(np.log(of_runs), ddof=1)), len(of_runs) - 1))
    for name, found in waves.items():
        df = sum(each for _, each in found)
        sd = math.sqrt(sum(variance * each for variance, each in found) / df)
        print(f"{name} of waves, from run to run: standard deviation {sd:.3f} (log), {df} degrees of freedom")


def _shape(curve: pd.Series, *, proxy: bool) -> Shape | None:
    stop = find_stop(curve, fastest_fall=None if proxy else 4.0)
    return None if stop is None else measure_shape(curve, stop, proxy=proxy, per_user=3.08 if proxy else None)


def _row(shape: Shape | None) -> str:
    if shape is None:
        return "no load"
    bumps = " ".join(f"{b.peak_s:.0f}s:{b.depth_users:.0f}" for b in shape.beginning.bumps)
    number = lambda value, digits=0: "-" if value is None else f"{value:.{digits}f}"  # noqa: E731
    ramp, waves = shape.ramp, shape.waves
    return (
        f"{len(shape.beginning.bumps)} {bumps:30s} {number(shape.beginning.onset_s):>5s}"
        f" {number(ramp and ramp.slope, 2):>5s} {number(ramp and ramp.kink_s):>5s}"
        f" {number(waves.onset_s):>5s} {number(waves.period_s):>5s}"
        f" {number(waves.amplitude):>5s} {number(waves.regularity, 2):>5s}{' waves' if waves.claimed else ''}"
    )


def main() -> None:
    """Run what the command line names."""
    what, *rest = sys.argv[1:] or ["simulated"]
    if what == "real":
        real(Path(rest[0]))
    elif what == "red":
        red(int(rest[0]) if rest else 400)
    else:
        first, count = int(rest[0]) if rest else 1000, int(rest[1]) if len(rest) > 1 else 500
        if what == "pairs":
            pairs(first, count)
        else:
            simulated(first, count, *rest[2:])


if __name__ == "__main__":
    main()
