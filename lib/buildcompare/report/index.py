"""Write the page of every release: reports and ledgers in one HTML file that loads nothing, searches and sorts."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from pydantic import ValidationError

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import version_in
from buildcompare.config.project import resolve, root, write_files
from buildcompare.history.chain import Step, analyse_chain, supported_users_noise
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, read_ledger
from buildcompare.history.view import HistoryView
from buildcompare.report import publication
from buildcompare.report.sections import GRAVEST_FIRST, Fragment, page, template
from buildcompare.results import Results, dumps
from buildcompare.results.history import Drift
from buildcompare.text.numbers import db_name

FILES = {publication.HTML: "report", publication.README: "README", publication.RESULTS: "results"}
INDEX = "index.html"
LEDGERS = "data/history"  # where ledgers are kept, one folder each
NEWEST = 500  # comparisons of each ledger that stand on the page


class UsersLine(NamedTuple):
    """Supported users of both builds in one test, None without a figure; fields as in :class:`Drift`."""

    test: str
    db_engine: str | None
    before: float | None
    value: float | None
    delta_percent: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    jump: bool = False


@dataclass(frozen=True)
class IndexRow(Step):
    """One comparison beside its past, as a ledger holds it or would; with a `fault` its results cannot be shown."""

    builds: tuple[str, str] = ("", "")
    users: Sequence[UsersLine] = ()
    links: Sequence[tuple[str, str]] = ()
    fault: str | None = None

    @property
    def drift_lines(self) -> list[Drift]:
        """Each base against the same version in the comparison before."""
        return sorted(self.same_version, key=_by_test)


def write_index(folder: Path, ledgers: Sequence[Path] = (), metrics: str = "mattermost") -> tuple[Path, int]:
    """Write the page into the folder of all reports' folders; its path and its number of rows.

    Without `ledgers` (folders) those that the reports were compared with, and all in ``data/history``. The catalogue
    `metrics` says how far runs scatter, for comparisons that only a ledger holds. A damaged ledger is an InputError; a
    report that cannot be read becomes a row that says so.
    """
    rows, left_out = index_rows(folder, ledgers, metrics)
    shown: dict[str, Any] = {"title": "Every release", "rows": rows, "gravest_first": GRAVEST_FIRST}
    shown["left_out"] = left_out
    write_files({folder / INDEX: page("index/index", "buildcompare/report", "index/index", **shown)})
    return folder / INDEX, len(rows)


def releases(view: HistoryView) -> Fragment:
    """The same table of one ledger, as a notebook shows it: the newest of the chain first, the studies last."""
    rows = []
    studies = [step for step in view.chain.steps.values() if step.entry.kind == "study"]
    for step in (*reversed(view.steps), *studies):
        file = f"reports/{step.entry.name}/{publication.HTML}"
        links = [("report", f"../{quote(file)}")] if (root() / file).is_file() else []  # as a notebook sees it
        rows.append(replace(_of_step(step), links=links))
    html = template("index/releases.html").render(rows=rows, gravest_first=GRAVEST_FIRST)
    return Fragment(Markup(html), f"[{len(rows)} releases]")  # noqa: S704  # escaped by the template


LeftOut = tuple[Path, int, int]
"""A ledger's folder, how many of its comparisons are shown, and of how many."""


def index_rows(folder: Path, ledgers: Sequence[Path], metrics: str) -> tuple[list[IndexRow], list[LeftOut]]:
    """The newest of the chain first; before it what no ledger holds, after it the studies, then what is broken.

    Of a ledger with more than `NEWEST` comparisons, the newest and those that have a report; which ledgers these are.
    """
    folders = [each for each in _folders(folder) if any((each / name).exists() for name in FILES)]
    reports = {each: _read(each / publication.RESULTS) for each in folders}
    named = [resolve(each.history.ledger) for each in reports.values() if isinstance(each, Results) and each.history]
    opened = [read_ledger(path) for path in (ledgers or dict.fromkeys([*named, *_folders(root() / LEDGERS)]))]
    noise, _ = supported_users_noise(read_catalogue(metrics))
    readable = {path: results for path, results in reports.items() if isinstance(results, Results)}
    held = {path: _place(results, opened) for path, results in readable.items()}
    steps: dict[tuple[Path, str], Step] = {}
    left_out = []
    for ledger in opened:
        recorded_names = {place[1] for place in held.values() if place and place[0] == ledger.folder}
        chain = analyse_chain(ledger, noise, NEWEST, recorded_names)
        steps |= {(ledger.folder, name): step for name, step in chain.steps.items()}
        if (count := chain.comparisons + len(chain.studies)) > len(chain.steps):
            left_out.append((ledger.folder, len(chain.steps), count))
    unrecorded, recorded, broken, reported = [], [], [], set()
    for path, results in reports.items():
        links = [(text, f"{quote(path.name)}/{name}") for name, text in FILES.items() if (path / name).is_file()]
        if isinstance(results, str):
            broken.append(IndexRow(_entry(path.name), links=links, fault=results))
            continue
        entry, place = _entry_of(results), held[path]
        if place and steps[place].entry.simulated == results.simulated:
            recorded.append(_of_report(results, entry, steps[place], links))
            reported.add(place)
        else:
            unrecorded.append(_of_report(results, entry, None, links))
    recorded += [_of_step(step) for place, step in steps.items() if place not in reported]
    unrecorded.sort(key=lambda row: _newness(row.builds[1]), reverse=True)
    recorded.sort(key=lambda row: (row.entry.kind == "study", -(row.entry.position or 0)))
    return [*unrecorded, *recorded, *broken], left_out


def _place(results: Results, opened: Sequence[Ledger]) -> tuple[Path, str] | None:
    """The ledger and the name by which a report's comparison is held, first by the one that it was held against."""
    own, entry = resolve(results.history.ledger) if results.history else None, _entry_of(results)
    for ledger in sorted(opened, key=lambda ledger: ledger.folder != own):
        if name := ledger.book.held(entry):
            return ledger.folder, name
    return None


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


def _entry(name: str, **known: Any) -> Entry:
    """An entry that no ledger holds: of one, all would be known."""
    return Entry.model_construct(name=name, **known)


def _entry_of(results: Results) -> Entry:
    """What a ledger knows a report's comparison by."""
    base, new = LedgerBuild.of(results.base.label), LedgerBuild.of(results.new.label)
    return _entry(results.comparison, base=base, new=new, verdict=results.verdict, simulated=results.simulated)


def _of_report(results: Results, entry: Entry, held: Step | None, links: Sequence[tuple[str, str]]) -> IndexRow:
    """The row of a report, with its own past or else that of its entry in a ledger (`held`)."""
    users = [
        UsersLine(test.name, test.db_engine, at.base, at.new, at.delta_percent, at.ci_low, at.ci_high)
        for test in results.tests
        if (at := test.supported_users)
    ]
    past = held if held and users else Step(entry)
    if results.history and results.history.before is not None:
        past = Step(entry, results.history.before, results.setup_differences, results.drift)
    if held:
        entry = entry.model_copy(update={"kind": held.entry.kind, "position": held.entry.position})
    builds = (results.base.label, results.new.label)
    shown = {"entry": entry, "builds": builds, "users": sorted(users, key=_by_test), "links": links}
    return IndexRow(**vars(past) | shown)


def _of_step(step: Step) -> IndexRow:
    users = []
    for test, change in step.changes:
        size = (change.delta_percent, *change.interval()) if change else ()
        users.append(UsersLine(test.name, test.db_engine, *test.levels, *size))
    builds = (step.entry.base.title, step.entry.new.title)
    return IndexRow(**vars(step), builds=builds, users=sorted(users, key=_by_test))


def _by_test(line: UsersLine | Drift) -> str:
    """One order in all columns and rows, whatever order the tests were written down in."""
    return (db_name(line.db_engine) or line.test).casefold()
