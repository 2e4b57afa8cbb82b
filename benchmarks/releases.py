"""What does the verdict say of published releases, and how much does it decide?

    python benchmarks/releases.py [FOLDER]

Runs every published comparison of `FOLDER` (default: BUILDCOMPARE_REAL, or ../shared/real) as a whole release. Printed
are its verdict with the rows that decided it, and over all tests of a type how many rows of each metric got which
status: at the builds' own load, and at equal load. Then how independent the tests on two databases are, by metric:
the standard deviation of the mean change of both as a part of one's (0.71: independent; 1: they move together), of
changes cut off at two robust deviations, with its 90 % interval (bootstrap over releases).
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from buildcompare.comparison.analysis import analyse, read_recordings
from buildcompare.config.params import Build, Comparison, Source, Test
from buildcompare.findings.verdict import opening
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import Results
from buildcompare.results.codes import SIDES
from validity import published

ORDER = ("regression", "improvement", "equivalent", "not_worse", "inconclusive", "not_comparable")


def main(folder: str | None = None) -> None:
    """Print the verdicts, then the table of statuses."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    releases: dict[str, list[Test]] = defaultdict(list)
    for name, test, _ in published(real):
        release = name.split()[0]
        releases[release].append(with_labels(test, real / "comparisons" / release / test.name))
    verdicts: Counter[str] = Counter()
    by_release: list[Results] = []
    statuses: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for name, tests in releases.items():
        params = Comparison(
            name=name, base=Build(label="base"), new=Build(label="new"), source=Source(kind="recorded"), tests=tests
        )
        results = analyse(params, read_recordings(params)).results
        verdicts[results.verdict] += 1
        by_release.append(results)
        rests_on = deciding(results) or [opening(results).sentence]
        print(f"{name:20} {results.verdict:13} {'; '.join(rests_on)}")
        for test in results.tests:
            for row in test.metrics:
                statuses[test.type, "own load", row.slug][row.status] += 1
                if row.load_adjusted is not None:
                    statuses[test.type, "equal load", row.slug][row.load_adjusted.status] += 1
    print("\nin all:", ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    print(f"\n{'':42} {' '.join(f'{status:>14}' for status in ORDER)}")
    for (kind, load, slug), counts in sorted(statuses.items()):
        print(f"{kind:10} {load:11} {slug:20} {' '.join(f'{counts[status]:14}' for status in ORDER)}")
    for (kind, slug), pairs in sorted(both_databases(by_release).items()):
        low, high = np.quantile([together(pairs[drawn]) for drawn in resampled(len(pairs))], (0.05, 0.95))
        print(f"{kind:10} {slug:30} {len(pairs)} releases: {together(pairs):.2f} ({low:.2f} to {high:.2f})")


def both_databases(releases: Iterable[Results]) -> dict[tuple[str, str], FloatArray]:
    """By type of test and metric, the log ratios on MySQL and Postgres of each release; unbounded at equal load."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for results in releases:
        valid = {test.name: test for test in results.tests if test.verdict != "invalid"}
        for kind in ("bounded", "unbounded"):
            tests = [valid.get(f"{db}_{kind}") for db in ("mysql", "postgresql")]
            rows = [
                {row.slug: row if kind == "bounded" else row.load_adjusted for row in t.metrics} for t in tests if t
            ]
            for slug in rows[0] if len(rows) == 2 else ():
                changes = [row.delta_percent for each in rows if (row := each.get(slug)) is not None]
                if len(changes) == 2 and None not in changes:
                    found[kind, slug].append(tuple(math.log1p((change or 0.0) / 100.0) for change in changes))
    return {key: np.array(pairs) for key, pairs in found.items() if key[1] != "number-of-connected-devices"}


def together(pairs: FloatArray) -> float:
    """Standard deviation of the mean of both columns about zero, as a part of that of one."""
    scale = 1.4826 * np.median(np.abs(pairs), axis=0)
    cut = np.clip(pairs / scale, -2.0, 2.0)
    return math.sqrt(float((cut.mean(axis=1) ** 2).mean() / (cut**2).mean()))


def resampled(size: int) -> Iterator[npt.NDArray[np.int64]]:
    """A thousand draws of `size` releases."""
    rng = np.random.default_rng(1)
    return (rng.integers(0, size, size) for _ in range(1000))


def with_labels(test: Test, folder: Path) -> Test:
    """The test with the label tables that stand beside its recordings."""
    tables = {side: folder / f"{side}.labels.csv.gz" for side in SIDES}
    changed = {
        side: [run.model_copy(update={"labels": str(table)}) for run in test.runs(side)]
        for side, table in tables.items()
        if table.exists()
    }
    return test.model_copy(update=changed)


def deciding(results: Results) -> list[str]:
    """The rows that regressed in a metric that users feel, and the tests that are not valid."""
    found = [f"{test.name}: {', '.join(test.validity.codes)}" for test in results.tests if test.verdict == "invalid"]
    for test in results.tests:
        if test.supported_users is not None and test.supported_users.status == "regression":
            found.append(f"{test.name} supported users {test.supported_users.delta_percent:+.1f} %")
        for row in test.metrics:
            deciding = row.deciding
            if row.gate and deciding and deciding.status == "regression":
                found.append(f"{test.name} {row.slug} {deciding.delta_percent:+.0f} % ({row.decided_by})")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
