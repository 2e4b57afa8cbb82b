"""Which of the published tests are fit to be judged?

    python benchmarks/validity.py [FOLDER]

Prints status and reasons of every test of the published comparisons in `FOLDER` (default: BUILDCOMPARE_REAL, or
../shared/real), with the supported users that were reported, and of every pair of identical runs of the ceiling
tests; how many tests each rule limits and how many it makes invalid; and of how many unbounded runs, whole and cut at
some parts of their linear ramp, it is said that they were cut there.
"""

from __future__ import annotations

import csv
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from identical import SMALL
from identical import read as ceiling

from buildcompare.comparison.measure import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Coordinator, Source, Test
from buildcompare.load.view import RunView, view_run
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import record
from buildcompare.results import Validity
from buildcompare.results.codes import SIDES, Side, ValidityCode
from buildcompare.validity.rules import RunInTest

CATALOGUE = read_catalogue("mattermost")
PARTS = (0.3, 0.5, 0.7)


def main(folder: str | None = None) -> None:
    """Print all tables."""
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    for tests in (published(real), identical(real)):
        seen: Counter[str] = Counter()
        rules: Counter[tuple[str, str]] = Counter()
        for name, test, source in tests:
            validity = judged(test, source)
            seen[validity.status] += 1
            rules.update({(reason.code, reason.status) for reason in validity.reasons})
            until = "" if validity.valid_until_s is None else f"until {validity.valid_until_s:.0f} s"
            print(
                f"{name:40s} {validity.status:8s} {until:13s} {'; '.join(reason.text for reason in validity.reasons)}"
            )
        print("in all:", ", ".join(f"{count} {status}" for status, count in sorted(seen.items())))
        for code in ValidityCode:
            print(f"{code:20s} {rules[code, 'limited']:4d} limited {rules[code, 'invalid']:4d} invalid")
        print()
    cut: Counter[tuple[str, object]] = Counter()
    for suite, recording in unbounded_runs(real):
        view = view_run(recording, "unbounded", CATALOGUE)
        cut[suite, "runs"] += 1
        cut[suite, "whole"] += climbs(view)
        if view.shape and view.shape.ramp:
            start = view.shape.beginning.onset_s or 0.0
            for part in PARTS:
                until_s = start + part * (view.shape.ramp.end_s - start)
                cut[suite, part] += climbs(view_run(cut_at(recording, until_s), "unbounded", CATALOGUE))
    for suite in dict.fromkeys(suite for suite, _ in cut):
        found = ", ".join(f"{part} {cut[suite, part]}" for part in ("whole", *PARTS))
        print(f"said to be cut on their ramp, of {cut[suite, 'runs']} runs of {suite}: {found}")


def climbs(view: RunView) -> bool:
    """Whether it is said of the run that it was cut on its ramp."""
    test = Test.model_construct(name="x", type="unbounded")
    return RunInTest(view, test, CATALOGUE, Coordinator()).climb is not None


def cut_at(recording: Recording, end_s: float) -> Recording:
    """The recording up to `end_s` after its start."""
    end = recording.window[0] + end_s
    kept = [(series, series.times <= end) for series in recording.series]
    series = tuple(replace(each, times=each.times[at], values=each.values[at]) for each, at in kept)
    return replace(recording, series=series, window=(recording.window[0], end), stop_known=False)


def unbounded_runs(real: Path) -> Iterator[tuple[str, Recording]]:
    """Every unbounded run with what it is of: releases, useful machines or the smallest ones."""
    for _, test, source in published(real):
        for run in (run for side in SIDES for run in test.runs(side) if test.type == "unbounded"):
            yield "releases", record(run, source, CATALOGUE)
    for (name, kind), recordings in ceiling(real)[0].items():
        suite = "the smallest machines" if name in SMALL else "the other ceiling tests"
        yield from ((suite, recording) for recording in recordings if kind == "unbounded")


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
