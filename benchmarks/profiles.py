"""Simulated profiles: how often a frame is named that did not change, and how often one that grew is found.

python benchmarks/profiles.py [comparisons]     # what reports say, on seeds 2000 and up
python benchmarks/profiles.py choose            # the part of a frame's own variance, on seeds below 250
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np

from buildcompare.profiles import compare
from buildcompare.profiles.compare import compare_profiles
from buildcompare.profiles.stacks import Profile
from buildcompare.results import FrameResult
from buildcompare.results.codes import Pair

SHARES = {
    "few large": np.array([0.4, 0.2, 0.1, *[0.3 / 27] * 27]),
    "even": np.full(40, 1 / 40),
    "long tail": (1.0 / np.arange(1, 201)) / (1.0 / np.arange(1, 201)).sum(),
}
DESIGNS = (
    (2, 1000, 0.0, False), (2, 1000, 0.2, False), (3, 1000, 0.0, False), (3, 1000, 0.2, False), (3, 1000, 0.2, True),
    (5, 5000, 0.2, False), (5, 5000, 0.2, True),
)  # fmt: skip
"""Profiles of each build, samples of each, how far shares scatter between runs, whether some frames scatter more."""
GROWS = 2
"""The frame that is planted: it has about a tenth of the samples, or less."""


Design = tuple[int, int, float, bool]


def profiles(rng: np.random.Generator, shares: np.ndarray, design: Design) -> list[Profile]:
    """Runs of one build: shares that scatter from run to run (log scale), then counted samples."""
    runs, samples, spread, uneven = design
    made = []
    for _ in range(runs):
        scatter = spread * np.resize([0.5, 1.5], shares.size) if uneven else spread
        own = shares * np.exp(rng.normal(0, scatter, shares.size))
        counts = rng.multinomial(samples, own / own.sum())
        made.append(Profile({("main", f"f{i}"): float(n) for i, n in enumerate(counts) if n}, samples))
    return made


def comparisons(shares: np.ndarray, design: Design, grows: float, seeds: range) -> Iterator[list[FrameResult]]:
    """The frames of each comparison; the planted one has `grows` times its share in the new build."""
    new = shares.copy()
    new[GROWS] *= grows
    for seed in seeds:
        rng = np.random.default_rng(seed)
        base = profiles(rng, shares, design)
        yield compare_profiles(Pair(base, profiles(rng, new / new.sum(), design))).own


def measure(shares: np.ndarray, design: Design, seeds: range) -> dict[str, float]:
    """In percent: false alarms (of comparisons, of frames), and of a frame that doubled: named, not told, wrong way."""
    wrong = loud = frames = 0
    for rows in comparisons(shares, design, 1.0, seeds):
        wrong += any((row.p_adjusted or 1.0) < 0.05 for row in rows)
        loud += sum(abs(row.points) > (row.noise_points or 0.0) for row in rows)
        frames += len(rows)
    named = other = 0
    for rows in comparisons(shares, design, 2.0, seeds):
        told = next((row for row in rows if row.frame == f"f{GROWS}" and (row.p_adjusted or 1.0) < 0.05), None)
        named += told is not None and told.points > 0
        other += told is not None and told.points < 0
    count = len(seeds) / 100
    return {
        "comparisons with a false alarm": wrong / count,
        "frames beyond the noise": 100 * loud / frames,
        "doubled: named": named / count,
        "cannot tell": 100 - (named + other) / count,
        "wrong way": other / count,
    }


if __name__ == "__main__":
    compare.MOST_FRAMES = 10_000  # every frame that was judged
    choose = sys.argv[1:] == ["choose"]
    seeds = range(100) if choose else range(2000, 2000 + int(sys.argv[1] if len(sys.argv) > 1 else 400))
    for part in (0.25, 0.5, 0.75) if choose else (compare.OWN_PART,):
        compare.OWN_PART = part
        for (name, shares), design in itertools.product(SHARES.items(), DESIGNS):
            runs, samples, spread, uneven = design
            found = measure(shares, design, seeds)
            figures = ", ".join(f"{key} {value:.1f} %" for key, value in found.items())
            scatter = f"{spread:.0%}{', uneven' if uneven else ''}"
            print(f"{part}: {name}, {runs} x {samples:,} samples, scatter {scatter}: {figures}", flush=True)
