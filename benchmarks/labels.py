"""How often is a label said to be slower than noise explains where nothing changed, and in published releases?

    python benchmarks/labels.py [FOLDER]

Releases of four tests are put together from pairs of identical ceiling runs of `FOLDER` (default: BUILDCOMPARE_REAL, or
../shared/real): two unbounded setups, smallest machines left out, and both bounded ones. Counted are those with a label
that is several times slower in two tests, and the same without the bound on unlikely changes. Then the labels of the
published comparisons that are named. No published run holds how often a label was called: what many calls do is
counted in pairs of simulated runs of one build, and in others where one handler takes eight times as long.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from identical import CATALOGUE, SMALL, read
from releases import with_labels

from buildcompare.comparison.analysis import compare_test
from buildcompare.config.params import Run, Test
from buildcompare.labels import tables
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import record
from buildcompare.results import LabelResult
from buildcompare.results.codes import SIDES
from loadsim import Coordinator, RunSettings, Thresholds, Traffic, simulate_run
from validity import published

RELEASES = 1000
SEED = 1


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
    for least in (tables.UNLIKELY, 1.01):
        with mock.patch.object(tables, "UNLIKELY", least):
            named = np.mean([bool(tables.unexplained_labels(release)) for release in made])
        print(f"{RELEASES} releases of identical runs, adjusted p below {least}: {named:.1%} name a label")
    releases: dict[str, dict[str, list[LabelResult]]] = defaultdict(dict)
    for name, test, source in published(real):
        release = name.split()[0]
        whole = with_labels(test, real / "comparisons" / release / test.name)
        runs = {side: [record(run, source, CATALOGUE) for run in whole.runs(side)] for side in SIDES}
        releases[release][test.name] = compare_test(whole, runs, CATALOGUE).result.labels
    for release, tests in releases.items():
        for rows in tables.unexplained_labels(tests):
            row = next(iter(rows.values()))
            sizes = ", ".join(f"{each.delta_percent:+.0f} %" for each in rows.values())
            print(f"{release}: {row.label} {row.stat} {sizes}")
    for times, names in (((), "unchanged"), ((("api/getPostsForChannel", 8.0),), "getPostsForChannel x 8")):
        found = [tables.unexplained_labels({"test": simulated(seed, times)}) for seed in range(30_000, 30_040)]
        part = np.mean([bool(each) for each in found])
        print(f"{len(found)} simulated pairs, calls known, {names}: {part:.1%} name one")


def compared(base: Recording, new: Recording, kind: str) -> list[LabelResult]:
    """The label rows of two runs, judged by the catalogue."""
    test = Test(name="x", type=kind, base=[Run(report="-")], new=[Run(report="-")])  # type: ignore[arg-type]
    return compare_test(test, {"base": [base], "new": [new]}, CATALOGUE).result.labels


def simulated(seed: int, times: Sequence[tuple[str, float]] = ()) -> list[LabelResult]:
    """The label rows of two simulated bounded runs, of which in the new one labels take so many times as long."""
    calm = Coordinator(max_users=3000, thresholds=Thresholds(None, None, None, None))
    runs = []
    for number, traffic in enumerate((Traffic(), Traffic(times=tuple(times)))):
        settings = RunSettings(type="bounded", coordinator=calm)
        runs.append(simulate_run(settings, 2 * seed + number, traffic=traffic).recording)
    return compared(runs[0], runs[1], "bounded")


if __name__ == "__main__":
    main(*sys.argv[1:])
