"""What does the verdict say of published releases, and how much does it decide?

    python benchmarks/releases.py [FOLDER]

Runs every published comparison of `FOLDER` (default: BUILDCOMPARE_REAL, or ../shared/real) as a whole release. Printed
are its verdict with the rows that decided it, and over all tests of a type how many rows of each metric got which
status: at the builds' own load, and at equal load. The values were read off plots, so metrics that a plot biases are
left out by the comparison itself.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

from buildcompare.comparison.analysis import analyse, read_recordings
from buildcompare.config.params import Build, Comparison, Source, Test
from buildcompare.findings.verdict import opening
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
    statuses: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for name, tests in releases.items():
        params = Comparison(
            name=name, base=Build(label="base"), new=Build(label="new"), source=Source(kind="recorded"), tests=tests
        )
        results = analyse(params, read_recordings(params)).results
        verdicts[results.verdict] += 1
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
