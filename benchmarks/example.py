"""How often are identical runs of the bundled example called changed?

    python benchmarks/example.py [DRAWS]

Draws two groups of one to seven runs of one variant, by default 200 times of each variant and size, and judges them as
two builds: by the runs of the other variant as calibration, and by nothing but their own repeats. Printed are the part
of the metrics that are called changed, and the part of the draws in which any is.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.project import root
from buildcompare.load.view import view_run
from buildcompare.recordings.sources import read
from buildcompare.stats.effects import judge_metrics, measure_effect
from buildcompare.stats.noise import RepeatedRuns, RunLevels, metric_noise
from loadcalibrate.learn import run_levels

CATALOGUE = read_catalogue("postgresql")
METRICS = [metric for metric in CATALOGUE.metrics if not metric.load]
SIZES = range(2, 8)


class Rate(NamedTuple):
    """Of one size of groups and source of noise."""

    noise: str
    size: int
    judged: int
    called: int
    draws: int
    any_called: int


def rates(draws: int) -> Iterator[Rate]:
    """The rates of each size, calibrated and by repeats alone; of one run each nobody knows the noise without."""
    runs: dict[str, list[RunLevels]] = defaultdict(list)
    for file in sorted((root() / "data/recordings/missing-index").glob("**/*.parquet")):
        view = view_run(read(file, catalogue=CATALOGUE), "bounded", CATALOGUE)
        runs[file.name.partition("-")[0]].append(run_levels(view, "bounded", CATALOGUE))
    groups = {name: RepeatedRuns(name, "bounded", of) for name, of in runs.items()}
    rng = np.random.default_rng(1)
    for noise, size in [("calibration", 1), *itertools.product(("calibration", "repeats"), SIZES)]:
        called = []
        for variant, of in runs.items():
            others = [each for name, each in groups.items() if name != variant] if noise == "calibration" else []
            for _ in range(draws):
                base, new = rng.permutation(len(of))[: 2 * size].reshape(2, size).tolist()
                called.append(judged([of[i] for i in base], [of[i] for i in new], others))
        rows = [each for of_draw in called for each in of_draw]
        yield Rate(noise, size, len(rows), sum(rows), len(called), sum(map(any, called)))


def judged(base: list[RunLevels], new: list[RunLevels], others: list[RepeatedRuns]) -> list[bool]:
    """Whether each metric that could be judged is called changed."""
    effects = []
    for metric in METRICS:
        one, two = ([run.metrics[metric.slug] for run in of if metric.slug in run.metrics] for of in (base, new))
        effects.append((metric, measure_effect(one, two, metric_noise(metric, "bounded", others))))
    return [each.status in ("regression", "improvement") for each in judge_metrics(effects) if each is not None]


def main(draws: str = "200") -> None:
    """Print the rates."""
    for each in rates(int(draws)):
        part, any_part = 100.0 * each.called / each.judged, 100.0 * each.any_called / each.draws
        print(
            f"{each.noise:12} {each.size} runs each: {part:.1f} % of {each.judged:,} metrics called, "
            f"any in {any_part:.1f} % of {each.draws} draws"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
