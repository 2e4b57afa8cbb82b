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

from buildcompare.analysis.validity import JudgeValidity
from buildcompare.analysis.validity_reasons import TestVerdict
from buildcompare.compare import CompareTest
from buildcompare.errors import InputError
from buildcompare.metrics import read_catalogue
from buildcompare.params import Coordinator, Source, Test
from buildcompare.recording import Recording
from buildcompare.run_view import ViewRun
from buildcompare.sources import record
from buildcompare.validity_facts import facts_of
from buildcompare.wording_validity import said

CATALOGUE = read_catalogue("mattermost")


def main(folder: str | None = None) -> None:
    """Print both tables."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    for tests in (published(real), identical(real)):
        seen: Counter[str] = Counter()
        for name, test, source in tests:
            verdict = judged(test, source)
            seen[verdict.test.status] += 1
            reasons = "; ".join(said(reason) for reason in verdict.test.reasons)
            until = verdict.test.valid_until_s
            print(
                f"{name:40s} {verdict.test.status:8s} {'' if until is None else f'until {until:.0f} s':13s} {reasons}"
            )
        print("in all:", ", ".join(f"{count} {status}" for status, count in sorted(seen.items())), "\n")


def judged(test: Test, source: Source) -> TestVerdict:
    """The verdict on one test."""
    coordinator = Coordinator()
    compare = CompareTest(CATALOGUE, coordinator)
    view = ViewRun(CATALOGUE, coordinator)
    recordings: dict[str, list[Recording]] = {
        side: [record(run, source, CATALOGUE) for run in test.runs(side)] for side in ("base", "new")
    }
    views = {side: [view(recording, test.type) for recording in recordings[side]] for side in ("base", "new")}
    facts = {
        side: [
            facts_of(v, e, test, run, CATALOGUE, coordinator)
            for v, e, run in zip(views[side], compare._estimates(test, views, side), test.runs(side), strict=True)
        ]
        for side in ("base", "new")
    }
    return JudgeValidity()(facts["base"], facts["new"])


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
