"""Write the page of every release: reports and ledgers in one HTML file that loads nothing, searches and sorts."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pydantic import ValidationError

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.project import resolve, root, write_files
from buildcompare.history.chain import Step, analyse_chain, supported_users_noise
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest, read_ledger, version_in
from buildcompare.report import publication
from buildcompare.report.sections import GRAVEST_FIRST, page
from buildcompare.results import Results, dumps
from buildcompare.results.codes import Verdict
from buildcompare.text import numbers as wording

FILES = {publication.HTML: "report", publication.README: "README", publication.RESULTS: "results"}
INDEX = "index.html"
LEDGERS = "data/history"  # where ledgers are kept, one folder each


class UsersLine(NamedTuple):
    """Supported users of both builds in one test, or of one version in two comparisons; None without a figure."""

    test: str
    before: float | None
    value: float | None
    percent: float | None = None
    low: float | None = None
    high: float | None = None
    jump: bool = False


@dataclass(frozen=True)
class IndexRow:
    """One comparison; without a `verdict` it was never a report of ours, with a `fault` its results cannot be shown.

    `before` is the comparison that `drift` and `setup` look back to; None where nothing is said of them.
    """

    name: str
    base: str = ""
    new: str = ""
    verdict: Verdict | None = None
    simulated: bool = False
    study: bool = False
    position: int = 0
    users: Sequence[UsersLine] = ()
    drift: Sequence[UsersLine] = ()
    before: str | None = None
    setup: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()
    fault: str | None = None


def write_index(folder: Path, ledgers: Sequence[Path] = (), metrics: str = "mattermost") -> tuple[Path, int]:
    """Write the page into the folder of all reports' folders; its path and its number of rows.

    Without `ledgers` (folders) those that the reports were compared with, and all in ``data/history``. The catalogue
    `metrics` says how far runs scatter, for comparisons that only a ledger holds. A damaged ledger is an InputError; a
    report that cannot be read becomes a row that says so.
    """
    rows = index_rows(folder, ledgers, metrics)
    styles = ("buildcompare/report", "index/index")
    write_files({folder / INDEX: page("index/index", *styles, rows=rows, gravest_first=GRAVEST_FIRST)})
    return folder / INDEX, len(rows)


def index_rows(folder: Path, ledgers: Sequence[Path], metrics: str) -> list[IndexRow]:
    """The newest of the chain first; before it what no ledger holds, after it the studies, then what is broken."""
    folders = [each for each in _folders(folder) if any((each / name).exists() for name in FILES)]
    reports = {each: _read(each / publication.RESULTS) for each in folders}
    named = [resolve(each.history.ledger) for each in reports.values() if isinstance(each, Results) and each.history]
    opened = [read_ledger(path) for path in (ledgers or dict.fromkeys([*named, *_folders(root() / LEDGERS)]))]
    noise, _ = supported_users_noise(read_catalogue(metrics))
    steps: dict[tuple[Path, str], Step] = {}
    for ledger in opened:
        if noise:
            found = analyse_chain(ledger.chain, noise, ledger.studies).steps
        else:
            changes = {
                entry.name: [(test, None) for test in entry.tests if any(test.levels)] for entry in ledger.entries
            }
            found = {entry.name: Step(entry, changes=changes[entry.name]) for entry in ledger.entries}
        steps |= {(ledger.folder, name): step for name, step in found.items()}
    unrecorded, recorded, broken, reported = [], [], [], set()
    for path, results in reports.items():
        links = [(text, f"{quote(path.name)}/{name}") for name, text in FILES.items() if (path / name).is_file()]
        if isinstance(results, str):
            broken.append(IndexRow(path.name, fault=results, links=links))
            continue
        own = resolve(results.history.ledger) if results.history else None
        nearest = sorted(opened, key=lambda ledger: ledger.folder != own)
        entries = ((each.folder, each.find(_entry(results))) for each in nearest)
        place = next(((folder, entry.name) for folder, entry in entries if entry), None)
        step = steps[place] if place else None
        if step is None or step.entry.simulated != results.simulated:
            unrecorded.append(_of_report(results, None, links))
        else:
            recorded.append(_of_report(results, step, links))
            reported.add(place)
    recorded += [_of_step(step) for place, step in steps.items() if place not in reported]
    unrecorded.sort(key=lambda row: _newness(row.new), reverse=True)
    chain = sorted((row for row in recorded if not row.study), key=lambda row: -row.position)
    return [*unrecorded, *chain, *(row for row in recorded if row.study), *broken]


def _folders(folder: Path) -> list[Path]:
    """Folders in a folder, by name; hidden ones are being made."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _newness(label: str) -> tuple[list[int], bool, list[int]]:
    """Later versions are larger, a release larger than its candidates, a label without a version the least."""
    number, _, candidate = (version_in(label) or "").partition("-")
    numbers, candidates = ([int(part) for part in re.findall(r"\d+", text)] for text in (number, candidate))
    return numbers, not candidate, candidates


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


def _of_report(results: Results, held: Step | None, links: Sequence[tuple[str, str]]) -> IndexRow:
    """The row of a report, with its own past or else that of its entry in a ledger (`held`)."""
    users = [
        UsersLine(_test(test.db_engine, test.name), at.base, at.new, at.delta_percent, at.ci_low, at.ci_high)
        for test in results.tests
        if (at := test.supported_users)
    ]
    entry, history, past = _entry(results), results.history, held if users else None
    if history and history.before is not None:
        past = Step(entry, history.before, results.setup_differences, results.drift)
    if held:
        entry = entry.model_copy(update={"kind": held.entry.kind, "position": held.entry.position})
    return replace(_row(entry, users, past), base=results.base.label, new=results.new.label, links=links)


def _of_step(step: Step) -> IndexRow:
    users = []
    for test, change in step.changes:
        size = (change.delta_percent, *change.interval()) if change else ()
        users.append(UsersLine(_test(test.db_engine, test.name), *test.levels, *size))
    return _row(step.entry, users, step)


def _row(entry: Entry, users: Iterable[UsersLine], past: Step | None) -> IndexRow:
    drift = [
        UsersLine(
            _test(row.db_engine, row.test), row.before, row.value, row.delta_percent, row.ci_low, row.ci_high, row.jump
        )
        for row in (past.same_version if past else ())
    ]
    builds = (entry.base.title, entry.new.title)
    row = IndexRow(entry.name, *builds, entry.verdict, entry.simulated, entry.kind == "study", entry.position or 0)
    row = replace(row, users=sorted(users, key=_by_test), drift=sorted(drift, key=_by_test))
    return replace(row, before=past.before, setup=past.setup_changed) if past else row


def _test(db_engine: str | None, name: str) -> str:
    return wording.db_name(db_engine) or name


def _by_test(line: UsersLine) -> str:
    """One order in all columns and rows, whatever order the tests were written down in."""
    return line.test.casefold()


def _entry(results: Results) -> Entry:
    """What a ledger knows a report's comparison by."""
    builds = {"base": LedgerBuild.of(results.base.label), "new": LedgerBuild.of(results.new.label)}
    judged = {"verdict": results.verdict, "simulated": results.simulated}
    tests = [LedgerTest(name="any", type="bounded")]
    return Entry.model_validate(
        {"name": results.comparison, "position": 1, "tests": tests, "source": "report", **builds, **judged}
    )
