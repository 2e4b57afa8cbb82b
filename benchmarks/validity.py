"""Which of the published tests are fit to be judged?

    python benchmarks/validity.py [FOLDER]

Prints status and reasons of every test of the published comparisons in `FOLDER` (default: BUILDCOMPARE_REAL, or
../shared/real), with the supported users that were reported, and of every pair of identical runs of the ceiling
tests.
"""

from __future__ import annotations

import csv
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from buildcompare.comparison.analysis import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Source, Test
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import record
from buildcompare.results import Validity
from buildcompare.results.codes import SIDES, Side

CATALOGUE = read_catalogue("mattermost")


def main(folder: str | None = None) -> None:
    """Print both tables."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    for tests in (published(real), identical(real)):
        seen: Counter[str] = Counter()
        for name, test, source in tests:
            validity = judged(test, source)
            seen[validity.status] += 1
            until = "" if validity.valid_until_s is None else f"until {validity.valid_until_s:.0f} s"
            print(
                f"{name:40s} {validity.status:8s} {until:13s} {'; '.join(reason.text for reason in validity.reasons)}"
            )
        print("in all:", ", ".join(f"{count} {status}" for status, count in sorted(seen.items())), "\n")


def judged(test: Test, source: Source) -> Validity:
    """The validity of one test."""
    recordings: dict[Side, list[Recording]] = {
        side: [record(run, source, CATALOGUE) for run in test.runs(side)] for side in SIDES
    }
    return compare_test(test, recordings, CATALOGUE).result.validity


def published(real: Path) -> Iterator[tuple[str, Test, Source]]:
    """Every test of the published comparisons."""
    with (real / "comparisons" / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for folder in sorted((real / "comparisons").glob("*/*_*bounded")):
        db, kind = folder.name.split("_")
        release, _, number = folder.parent.name.partition("-run")
        row = next(
            r
            for r in rows
            if (r["release"], r["db"], r["test_type"]) == (release, db, kind) and (not number or number in r["run"])
        )
        users = row["users"] if kind == "bounded" else row["max_active_users"]
        sides = {
            side: {
                "recording": str(folder / f"{side}.csv.gz"),
                "supported_users": int(float(row[f"su_{side}"])) if row[f"su_{side}"] else None,
            }
            for side in ("base", "new")
        }
        test = Test.model_validate(
            {"name": folder.name, "type": kind, "users": int(float(users)) if users else None, **sides}
        )
        yield f"{folder.parent.name} {folder.name}", test, Source(kind="recorded")


def identical(real: Path) -> Iterator[tuple[str, Test, Source]]:
    """Every pair of runs of one configuration."""
    with (real / "ceiling" / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for first, second in itertools.combinations(rows, 2):
        if (first["suite"], first["config"]) != (second["suite"], second["config"]):
            continue
        runs = {}
        for side, row in (("base", first), ("new", second)):
            runs[side] = {"report": str(real / "ceiling" / row["file"])}
            if row["published_users_run"]:
                runs[side]["supported_users"] = int(float(row["published_users_run"]))  # type: ignore[assignment]
        test = Test.model_validate(
            {"name": "x", "type": first["test_type"], "users": int(float(first["max_active_users"])), **runs}
        )
        try:
            for side in ("base", "new"):
                record(test.runs(side)[0], Source(kind="ltctl"), CATALOGUE)  # type: ignore[arg-type]
        except InputError:
            continue  # one file is empty, as published
        yield f"{first['run_id']} {second['run_id']}", test, Source(kind="ltctl")


if __name__ == "__main__":
    main(*sys.argv[1:])
