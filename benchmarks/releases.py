"""What does the verdict say of published releases, and how much does it decide?

    python benchmarks/releases.py [FOLDER] [--ledger | --claims]

Runs every published comparison of `FOLDER` (default: BUILDCOMPARE_REAL, or ../shared/real) as a whole release. Printed
are its verdict with the rows that decided it, and over all tests of a type how many rows of each metric got which
status: at the builds' own load, and at equal load. Then how independent the tests on two databases are, by metric:
the standard deviation of the mean change of both as a part of one's (0.71: independent; 1: they move together), of
changes cut off at two robust deviations, with its 90 % interval (bootstrap over releases). Last the P99 API times of
every new build are made 10 and 20 % slower, and it is counted how often that is found. With `--ledger` all releases are
recorded in a ledger first: each is judged by the noise that the others teach. With `--claims` it is counted instead how
many claims of published reports, and of the recordings' README, stand in the findings, with their figures.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.params import Build, Comparison, Source, Test
from buildcompare.findings.verdict import opening
from buildcompare.history.ledger import entry_of, record
from buildcompare.recordings.recording import FloatArray, Recording
from buildcompare.results import Results
from buildcompare.results.codes import SIDES, Side
from loadfiles.comparisons import import_table
from validity import published

ORDER = ("regression", "improvement", "equivalent", "not_worse", "inconclusive", "not_comparable")
P99, INJECTED = "p99-api-times", (10, 20)

CLAIMS = {
    "v10.4": (
        ("unchanged.bounded", "no difference beyond chance"),
        ("history.between_databases", "Postgres supports fewer users than MySQL"),
        ("history.between_databases", "−7.9 % with v10.3.0"),
        ("history.between_databases", "−2.7 % with v10.4.0-rc1"),
        ("history.level_drift", "MySQL −10.5 %"),
        ("history.level_drift", "Postgres −24.3 %"),
        ("history.setup_differences", "v1.23.0 → v1.24.0"),
        ("mysql_unbounded.beginning", "3 early bumps against 1 early bump"),
        ("postgresql_unbounded.beginning", "[34] early bumps against 1 early bump"),
        ("mysql_unbounded.beginning", r"(8[5-9]|9[0-4])\d users behind"),
        ("postgresql_unbounded.beginning", r"1,(5[5-9]|6[0-4])\d users behind"),
        ("postgresql_unbounded.beginning", r"ramp itself rises by 2.\d+ users per second against 2.\d+"),
        ("postgresql_unbounded.beginning", r"waves begin at 67.\d min instead of 45.\d min"),
        ("mysql_unbounded.supported_users", r"\+0.4 %: no (difference|worse)"),
        ("postgresql_unbounded.supported_users", r"\+6.1 %: improvement"),
        ("counted_errors", r"0.99\d+ against 1.0|1.0\d* against 0.99"),
    ),
    "v11.1": (
        ("postgresql_unbounded.supported_users", "−3.6 %: no worse"),
        ("unchanged.bounded", "no difference beyond chance"),
        ("history.setup_differences", "7500 → 5000"),
        ("postgresql_bounded.event.base", "Heap In Use .* at (42|43)"),
    ),
    "v9.6": (
        ("mysql_unbounded.supported_users", "−0.1 %: no difference"),
        ("postgresql_unbounded.supported_users", "−0.3 %: no difference"),
        ("unchanged.bounded", "no difference beyond chance"),
        ("bumps_in_both.1", "1 early bump"),
    ),
    "v9.1": (
        ("mysql_bounded.event.base", "P99 API times of v9.0.0 has a spike .* at 31"),
        ("mysql_bounded.event.base", r"Goroutines In Use \+(9|1[0-2])\.\d %, Stack"),
    ),
    "v9.2": (
        ("mysql_bounded.validity", "75 min: 5,003 users before, 4,546 after"),
        ("mysql_bounded.metric.stack-in-use", r"\+2[0-4].\d %.*Postgres \+(19|2[0-2])"),
        ("bumps_in_both.1", "1 early bump"),
    ),
    "v10.5": (("history.bumps_changed", "begin without early bumps in 2 tests, unlike both builds in v10.4"),),
    "v9.11-v10.5": (
        ("mysql_bounded.traffic_mix.avg-store-times", "other calls were made"),
        ("postgresql_bounded.traffic_mix.avg-store-times", "other calls were made"),
    ),
}
"""Release -> id of a finding, and a pattern of what it says."""

Recordings = Mapping[str, Mapping[Side, list[Recording]]]


def main(*given: str) -> None:
    """Print the verdicts, then the tables of statuses and of what is found."""
    folder = next((each for each in given if not each.startswith("--")), None)
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    tests: dict[str, list[Test]] = defaultdict(list)
    for name, test, _ in published(real):
        release = name.split()[0]
        tests[release].append(with_labels(test, real / "comparisons" / release / test.name))
    if "--claims" in given:
        count_claims(real, tests)
        return
    releases = {name: comparison(name, each) for name, each in tests.items()}
    recordings = {name: read_recordings(params) for name, params in releases.items()}
    with tempfile.TemporaryDirectory() as ledger:
        if "--ledger" in given:
            alone = {name: analyse(params, recordings[name]).results.tests for name, params in releases.items()}
            places = {name: None if "-run" in name else i for i, name in enumerate(releases, 1)}  # studies have none
            record(Path(ledger), [entry_of(releases[n], alone[n], position=place) for n, place in places.items()])
            releases = {name: each.model_copy(update={"history": ledger}) for name, each in releases.items()}
        judge(releases, recordings)


def count_claims(real: Path, tests: Mapping[str, list[Test]]) -> None:
    """Print which claims the findings reproduce; the ledger holds the table of all releases, then what was compared."""
    table = pd.read_csv(real / "comparisons/history.csv")
    said = 0
    with tempfile.TemporaryDirectory() as folder:
        imported = {each.name: each for each in import_table(real / "comparisons/history.csv", Path(folder))}
        for release, claims in CLAIMS.items():
            name = release if release in tests else f"{release}-run1"
            entry, rows = imported[name], table[table["release"] == release]
            figures = {
                f"{row.db}_{row.test_type}": row for row in rows[rows["run"].isin([np.nan, "run1"])].itertuples()
            }
            whole = [counted(test, figures[test.name]) for test in tests[name]]
            builds = Build(label=str(rows["readme_base"].iloc[0])), Build(label=str(rows["readme_new"].iloc[0]))
            params = comparison(name, whole).model_copy(
                update={"base": builds[0], "new": builds[1], "setup": entry.setup, "history": folder}
            )
            results = analyse(params, read_recordings(params)).results
            record(Path(folder), [entry_of(params, results.tests, position=entry.position)])
            for identity, pattern in claims:
                texts = [each.whole for each in results.findings if re.fullmatch(rf"{identity}(\.\d+)?", each.id)]
                found = any(re.search(pattern, text) for text in texts)
                said += found
                print(f"{'said' if found else 'MISSING':8} {release:12} {identity}: {pattern}")
    print(f"{said} of {sum(map(len, CLAIMS.values()))} claims are said")


def counted(test: Test, row: Any) -> Test:
    """The test with its database, and the error counts of the table."""
    sides = {
        side: [run.model_copy(update={"errors": int(getattr(row, f"errors_{side}"))}) for run in test.runs(side)]
        for side in SIDES
    }
    return test.model_copy(update={**sides, "db_engine": row.db})


def comparison(name: str, tests: list[Test]) -> Comparison:
    """The comparison of one release; runs of one study measured the same builds."""
    study = name.partition("-run")[0]
    labels = Build(label=f"before {study}"), Build(label=study)
    return Comparison(name=name, base=labels[0], new=labels[1], source=Source(kind="recorded"), tests=tests)


def judge(releases: Mapping[str, Comparison], recordings: Mapping[str, Recordings]) -> None:
    """Print what the verdict says of each release, the statuses, and how often a slower P99 is found."""
    verdicts: Counter[str] = Counter()
    by_release: list[Results] = []
    statuses: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    found: dict[tuple[str, str, int], list[bool]] = defaultdict(list)
    for name, params in releases.items():
        results = analyse(params, recordings[name]).results
        verdicts[results.verdict] += 1
        by_release.append(results)
        rests_on = deciding(results) or [opening(results).sentence]
        print(f"{name:20} {results.verdict:13} {'; '.join(rests_on)}")
        for test in results.tests:
            for row in test.metrics:
                statuses[test.type, "own load", row.slug][row.status] += 1
                if row.load_adjusted is not None:
                    statuses[test.type, "equal load", row.slug][row.load_adjusted.status] += 1
        for percent in INJECTED:
            for test in analyse(params, slower(recordings[name], percent)).results.tests:
                row = next(each for each in test.metrics if each.slug == P99)
                if test.validity.status != "invalid":
                    found[test.type, "own load", percent].append(row.status == "regression")
                    if row.load_adjusted is not None:
                        found[test.type, "equal load", percent].append(row.load_adjusted.status == "regression")
    print("\nin all:", ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    print(f"\n{'':42} {' '.join(f'{status:>14}' for status in ORDER)}")
    for (kind, load, slug), counts in sorted(statuses.items()):
        print(f"{kind:10} {load:11} {slug:20} {' '.join(f'{counts[status]:14}' for status in ORDER)}")
    for of in sorted({key[:2] for key in statuses}):
        judged = sum((counts for key, counts in statuses.items() if key[:2] == of), Counter[str]())
        total = judged.total() - judged["not_comparable"]
        print(f"{' '.join(of):42} {' '.join(f'{100 * judged[status] / total:12.1f} %' for status in ORDER[:-1])}")
    print(f"\n{P99} made slower:")
    for (kind, load, percent), each in sorted(found.items()):
        print(f"{kind:10} {load:11} +{percent} %: found in {100 * sum(each) / len(each):.0f} % of {len(each)} tests")
    print()
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


def slower(recordings: Recordings, percent: float) -> Recordings:
    """The recordings with the P99 API times of the new build that much higher."""
    factor = 1.0 + percent / 100.0

    def changed(run: Recording) -> Recording:
        scaled = (replace(each, values=each.values * factor) if each.metric == P99 else each for each in run.series)
        return replace(run, series=tuple(scaled))

    return {name: {**runs, "new": [changed(run) for run in runs["new"]]} for name, runs in recordings.items()}


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
