"""Which comparisons are there? Published reports and ledgers become the rows of one page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.project import resolve, root
from buildcompare.history.at_hand import SupportedUsersNoise
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest, read_ledger, version_in
from buildcompare.history.look_back import Step, changes_within, look_back
from buildcompare.report import publication
from buildcompare.report.index_page import IndexRow, UsersLine, render
from buildcompare.results import Drift, Results, SetupDifference, dumps
from buildcompare.stats.noise import Noise
from buildcompare.text.numbers import db_name

FILES = {publication.HTML: "report", publication.README: "README", publication.RESULTS: "results"}
INDEX = "index.html"
LEDGERS = "data/history"
"""Where ledgers are kept, one folder each."""


def write_index(folder: Path, ledgers: Sequence[Path] = (), metrics: str = "mattermost") -> tuple[Path, int]:
    """Write the page into the folder of all reports; its path and its number of rows.

    Parameters
    ----------
    ledgers
        Folders of ledgers; by default those that the reports were held against, and all in ``data/history``.
    metrics
        The catalogue that says how far runs scatter, for comparisons that only a ledger holds.

    Raises
    ------
    InputError
        Where a ledger is damaged. A report that cannot be read becomes a row that says so.
    """
    rows = index_rows(folder, ledgers, metrics)
    publication.write_text(folder / INDEX, render(rows))
    return folder / INDEX, len(rows)


def index_rows(folder: Path, ledgers: Sequence[Path], metrics: str) -> list[IndexRow]:
    """The newest of the chain first; before it what no ledger holds, after it the studies, then what is broken."""
    folders = [each for each in _folders(folder) if any((each / name).exists() for name in FILES)]
    reports = {each.name: _read(each / publication.RESULTS) for each in folders}
    known = [results for results in reports.values() if isinstance(results, Results)]
    named = [resolve(results.history.ledger) for results in known if results.history]
    opened = [read_ledger(path) for path in (ledgers or dict.fromkeys([*named, *_folders(root() / LEDGERS)]))]
    noise = SupportedUsersNoise.of(read_catalogue(metrics)).noise
    steps = {(ledger.folder, step.entry.name): step for ledger in opened for step in _steps(ledger, noise)}
    alone, recorded, broken = [], [], []
    taken: set[tuple[Path, str]] = set()
    for name, results in reports.items():
        if not isinstance(results, Results):
            broken.append(IndexRow(name=name, fault=results, links=_links(folder / name)))
            continue
        row = _of_report(results, _links(folder / name))
        held = resolve(results.history.ledger) if results.history else None
        nearest = sorted(opened, key=lambda ledger: ledger.folder != held)
        found = next(((each, entry) for each in nearest if (entry := each.find(_probe(results)))), None)
        if found is None or found[1].simulated != results.simulated:
            alone.append(row)
            continue
        ledger, entry = found
        taken.add((ledger.folder, entry.name))
        step = steps.get((ledger.folder, entry.name))
        if step is not None and row.before is None and row.users:
            row = _with_past(row, step.before.name if step.before else None, step.drift, step.setup_differences)
        recorded.append(replace(row, position=entry.position or 0, study=entry.kind == "study"))
    for ledger in opened:
        rest = [entry for entry in ledger.entries if (ledger.folder, entry.name) not in taken]
        recorded += [_of_entry(entry, steps.get((ledger.folder, entry.name)), noise) for entry in rest]
    alone.sort(key=lambda row: _newness(row.new), reverse=True)
    chain = sorted((row for row in recorded if not row.study), key=lambda row: -row.position)
    return [*alone, *chain, *(row for row in recorded if row.study), *broken]


def _folders(folder: Path) -> list[Path]:
    """Folders in a folder, by name; hidden ones are being made."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _newness(label: str) -> tuple[list[int], bool, list[int]]:
    """Later versions are larger, a release larger than its candidates, a label without a version the least."""
    number, _, candidate = (version_in(label) or "").partition("-")
    return (
        [int(part) for part in re.findall(r"\d+", number)],
        not candidate,
        [int(x) for x in re.findall(r"\d+", candidate)],
    )


def _read(file: Path) -> Results | str:
    """The results, or why there are none."""
    try:
        results = Results.model_validate(json.loads(file.read_text(encoding="utf-8")))
        dumps(results).encode()  # half a character could be read, and never written again
    except FileNotFoundError:
        return "results.json is missing"
    except (ValidationError, ValueError, RecursionError, OSError):
        return "results.json cannot be read by this version"
    return results


def _steps(ledger: Ledger, noise: Noise | None) -> Sequence[Step]:
    return look_back(ledger.chain, noise, ledger.studies).steps if noise else ()


def _of_report(results: Results, links: Sequence[tuple[str, str]]) -> IndexRow:
    lines = [
        UsersLine(
            test=db_name(test.db_engine) or test.name,
            against=users.base,
            value=users.new,
            percent=users.delta_percent,
            low=users.ci_low,
            high=users.ci_high,
        )
        for test in results.tests
        if (users := test.supported_users) is not None
    ]
    row = IndexRow(
        name=results.comparison,
        base=results.base.label,
        new=results.new.label,
        verdict=results.verdict,
        simulated=results.simulated,
        users=sorted(lines, key=_by_test),
        links=links,
    )
    if results.history is None or results.history.before is None:
        return row
    return _with_past(row, results.history.before, results.drift, results.setup_differences)


def _of_entry(entry: Entry, step: Step | None, noise: Noise | None) -> IndexRow:
    lines = []
    within = changes_within(entry, noise) if noise else {}
    for test in entry.tests:
        users = test.supported_users
        if users is not None:
            change = within.get(test.name)
            figures = (change.percent, change.low, change.high) if change else (None, None, None)
            lines.append(UsersLine(db_name(test.db_engine) or test.name, users.base, users.new, *figures))
    row = IndexRow(
        name=entry.name,
        base=entry.base.title,
        new=entry.new.title,
        verdict=entry.verdict,
        simulated=entry.simulated,
        study=entry.kind == "study",
        users=sorted(lines, key=_by_test),
        position=entry.position or 0,
    )
    if step is None:
        return row
    return _with_past(row, step.before.name if step.before else None, step.drift, step.setup_differences)


def _with_past(
    row: IndexRow, before: str | None, drift: Iterable[Drift], differences: Iterable[SetupDifference]
) -> IndexRow:
    lines = [
        UsersLine(
            test=db_name(each.db_engine) or each.test,
            against=each.before,
            value=each.value,
            percent=each.delta_percent,
            low=each.ci_low,
            high=each.ci_high,
            jump=each.jump,
        )
        for each in drift
        if each.kind == "same_version" and each.same_version
    ]
    changed = [each.setting for each in differences if each.kind == "changed"]
    return replace(row, before=before, drift=sorted(lines, key=_by_test), setup=changed)


def _by_test(line: UsersLine) -> str:
    """One order in all columns and rows, whatever order the tests were written down in."""
    return line.test.casefold()


def _links(folder: Path) -> list[tuple[str, str]]:
    return [(text, f"{quote(folder.name)}/{name}") for name, text in FILES.items() if (folder / name).is_file()]


def _probe(results: Results) -> Entry:
    """What a ledger knows a report's comparison by."""
    builds = [LedgerBuild(label=side.label, version=version_in(side.label)) for side in (results.base, results.new)]
    test = LedgerTest(name="any", type="bounded")
    return Entry(name=results.comparison, position=1, base=builds[0], new=builds[1], tests=[test], source="report")
