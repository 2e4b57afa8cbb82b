"""What does a report say of two runs between which nothing changed?

    python benchmarks/identical.py [FOLDER]

A single-test comparison is made of every pair of identical runs of Mattermost's ceiling tests (the folder of real
runs: BUILDCOMPARE_REAL), twice: judged by the other configurations, and by the catalogue's borrowed priors. Printed
are the verdicts, the pairs with a warning, and every finding above info. The smallest machines stand apart. Then
pairs of two configurations are pooled, judged by all others: how many of their metrics differ at 5 %, alone and pooled.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from buildcompare import findings
from buildcompare.calibration.file import beside_runs
from buildcompare.comparison.measure import compare_test
from buildcompare.comparison.pooling import pool_effects
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Test
from buildcompare.config.project import root
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.view import view_run
from buildcompare.recordings import sources
from buildcompare.recordings.recording import Recording
from buildcompare.results.codes import FindingKind
from buildcompare.stats.effects import ALPHA, Effect, measure_effect
from buildcompare.stats.noise import Noise, RepeatedRuns, catalogue_noise, metric_noise
from loadcalibrate.learn import run_levels

SMALL = ("v1-1.1", "v2-L110", "v2-L222")
CATALOGUE = read_catalogue("mattermost")
BEGINNINGS = {FindingKind.BEGINNING, FindingKind.TIME_TO_USERS, FindingKind.WAVES}
"""Findings about the shape of the load, of which one run each is one observation: pairs that have one are counted."""


def main(folder: str | None = None) -> None:
    """Print both tables."""
    given = folder or os.environ.get("BUILDCOMPARE_REAL") or root().parent / "shared" / "real"
    recordings, reported = read(Path(given).resolve())
    groups = {
        (name, kind): RepeatedRuns(
            name, kind, [run_levels(view_run(r, kind, CATALOGUE), kind, CATALOGUE) for r in runs]
        )  # type: ignore[arg-type]
        for (name, kind), runs in recordings.items()
    }
    for calibrated in (True, False):
        print("Judged by the other configurations" if calibrated else "\nJudged by borrowed priors")
        for small in (False, True):
            seen: Counter[str] = Counter()
            for (name, kind), runs in recordings.items():
                if (name in SMALL) is not small:
                    continue
                others = [g for g in groups.values() if calibrated and g.name != name and g.name not in SMALL]
                catalogue = beside_runs(CATALOGUE, others)
                noises = {"groups": others, "label_noise": LabelNoise(others)}
                for (i, first), (j, second) in itertools.combinations(enumerate(runs, 1), 2):
                    base, new = (Run(report="-", supported_users=reported.get((name, n))) for n in (i, j))
                    test = Test(name=f"{name}_{i}_{j}", type=kind, base=[base], new=[new])  # type: ignore[arg-type]
                    result = compare_test(test, {"base": [first], "new": [second]}, catalogue, **noises).result
                    found = findings.find([result], ("first", "second"))
                    grave = [f for f in found if f.severity != "info"]
                    seen.update({each.kind for each in found} & BEGINNINGS)
                    seen[result.verdict] += 1
                    seen["with a warning"] += bool(grave)
                    seen["pass without a warning"] += result.verdict == "pass" and not grave
                    seen["pairs"] += 1
                    for each in grave:
                        print(f"    {test.name}: {each.text[:180]}")
            print(f"  {'smallest machines' if small else 'all others'}: {dict(seen)}")
    pool([group for (name, _), group in groups.items() if name not in SMALL])


def pool(groups: list[RepeatedRuns]) -> None:
    """Print how often pairs of identical runs differ, alone and pooled over two configurations, in every metric."""
    found: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for pair in itertools.combinations(groups, 2):
        others = [group for group in groups if group not in pair]
        for metric in beside_runs(CATALOGUE, others).metrics if pair[0].type == pair[1].type else ():
            kind = pair[0].type
            known = {
                "calibrated": metric_noise(metric, kind, others),
                "borrowed": catalogue_noise(CATALOGUE.find(metric.slug), kind),
            }
            for source, noise in ((source, noise) for source, noise in known.items() if noise is not None):
                alone = [list(changes(group, metric.slug, noise)) for group in pair]
                for one, other in itertools.product(*alone):
                    for sign in (1.0, -1.0):  # which run is the base is nobody's choice
                        turned = replace(other, log_ratio=sign * other.log_ratio)
                        pooled, _ = pool_effects([one, turned])
                        found[kind, source, "alone"] += [each.p_value < ALPHA for each in (one, turned)]
                        found[kind, source, "pooled"].append(pooled.p_value < ALPHA)
    for (kind, source, how), called in sorted(found.items()):
        print(f"{kind:10} {source:10} {how:7} differ: {100.0 * sum(called) / len(called):.1f} % of {len(called)}")


def changes(group: RepeatedRuns, slug: str, noise: Noise) -> Iterator[Effect]:
    """The change of a metric between every two runs of a group."""
    for first, second in itertools.combinations(group.runs, 2):
        levels = [run.metrics[slug] for run in (first, second) if slug in run.metrics]
        effect = measure_effect(levels[:1], levels[1:], noise)
        if effect is not None:
            yield effect


def read(real: Path) -> tuple[dict[tuple[str, str], list[Recording]], dict[tuple[str, int], int]]:
    """The runs of each configuration with at least two of them, and the supported users that were published."""
    table = pd.read_csv(real / "ceiling/runs.csv", dtype={"config": str})
    found: dict[tuple[str, str], list[Recording]] = {}
    reported: dict[tuple[str, int], int] = {}
    for row in table.itertuples():
        try:
            recording = sources.read(real / "ceiling" / str(row.file), catalogue=CATALOGUE, kind="ltctl")
        except InputError:
            continue  # one file is empty, as published
        name = f"{row.suite}-{row.config}"
        runs = found.setdefault((name, str(row.test_type)), [])
        runs.append(recording)
        if row.published_users_run > 0:
            reported[name, len(runs)] = int(row.published_users_run)
    return {key: runs for key, runs in found.items() if len(runs) > 1}, reported


if __name__ == "__main__":
    main(*sys.argv[1:])
