"""Write the page of every release: reports and ledgers in one HTML file that loads nothing, searches and sorts."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import ValidationError

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.project import resolve, root
from buildcompare.history.chain import Step, analyse_chain
from buildcompare.history.compare import supported_users_noise
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest, read_ledger, version_in
from buildcompare.report import publication
from buildcompare.results import Results, TestResult, dumps
from buildcompare.results.codes import Verdict
from buildcompare.text import numbers as wording

FILES = {publication.HTML: "report", publication.README: "README", publication.RESULTS: "results"}
INDEX = "index.html"
LEDGERS = "data/history"
"""Where ledgers are kept, one folder each."""
_GRAVEST_FIRST = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.PASS)


@dataclass(frozen=True)
class UsersLine:
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
    users: Sequence[UsersLine] = ()
    drift: Sequence[UsersLine] = ()
    before: str | None = None
    setup: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()
    fault: str | None = None
    position: int = field(default=0, compare=False)

    @property
    def words(self) -> str:
        """What a search looks through beside the shown text."""
        return " ".join(word for word, shown in (("simulated", self.simulated), ("study", self.study)) if shown)

    @property
    def largest_change(self) -> float:
        """For sorting: the change of the supported users that is furthest down."""
        return min((line.percent for line in self.users if line.percent is not None), default=1e9)

    @property
    def largest_drift(self) -> float:
        """For sorting: the largest drift, whichever way."""
        return -max((abs(line.percent) for line in self.drift if line.percent is not None), default=-1.0)

    @property
    def verdict_rank(self) -> int:
        """For sorting: the gravest first."""
        return _GRAVEST_FIRST.index(self.verdict) if self.verdict else len(_GRAVEST_FIRST)


def write_index(folder: Path, ledgers: Sequence[Path] = (), metrics: str = "mattermost") -> tuple[Path, int]:
    """Write the page into the folder of all reports' folders; its path and its number of rows.

    Without `ledgers` (folders) those that the reports were compared with, and all in ``data/history``. The catalogue
    `metrics` says how far runs scatter, for comparisons that only a ledger holds. A damaged ledger is an InputError; a
    report that cannot be read becomes a row that says so.
    """
    rows = index_rows(folder, ledgers, metrics)
    publication.write_text(folder / INDEX, render(rows))
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
        found = [Step(entry, changes=[(test, None) for test in entry.tests]) for entry in ledger.entries]
        if noise:
            found = [*analyse_chain(ledger.chain, noise, ledger.studies).steps.values()]
        steps |= {(ledger.folder, step.entry.name): step for step in found}
    unrecorded, recorded, broken = [], [], []
    reported: set[tuple[Path, str]] = set()
    for path, results in reports.items():
        links = [(text, f"{quote(path.name)}/{name}") for name, text in FILES.items() if (path / name).is_file()]
        if not isinstance(results, Results):
            broken.append(IndexRow(name=path.name, fault=results, links=links))
            continue
        row = _of_report(results, links)
        own = resolve(results.history.ledger) if results.history else None
        nearest = sorted(opened, key=lambda ledger: ledger.folder != own)
        held = next(((each.folder, entry) for each in nearest if (entry := each.find(_probe(results)))), None)
        if held is None or held[1].simulated != results.simulated:
            unrecorded.append(row)
            continue
        folder, entry = held
        step = steps[folder, entry.name]
        reported.add((folder, entry.name))
        if row.before is None and row.users:
            row = _with_past(row, step)
        recorded.append(replace(row, position=entry.position or 0, study=entry.kind == "study"))
    recorded += [_of_step(step) for place, step in steps.items() if place not in reported]
    unrecorded.sort(key=lambda row: _newness(row.new), reverse=True)
    chain = sorted((row for row in recorded if not row.study), key=lambda row: -row.position)
    return [*unrecorded, *chain, *(row for row in recorded if row.study), *broken]


def render(rows: Sequence[IndexRow]) -> str:
    """The page, rows in the given order."""
    templates = files("buildcompare.report") / "templates"
    script = (templates / "index/index.js").read_text("utf-8")
    css = [(templates / name).read_text("utf-8") for name in ("buildcompare/report.css", "index/index.css")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    environment = Environment(
        loader=PackageLoader("buildcompare.report", "templates/index"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["change"] = wording.change
    return environment.get_template("index.html.j2").render(
        rows=rows,
        css=Markup("\n".join(css)),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own file, the one that the page's policy lets run
        script_hash=f"'sha256-{digest}'",
        interval=wording.interval,
        VERDICT_WORDS=wording.VERDICT_WORDS,
        VERDICT_SYMBOLS=wording.VERDICT_SYMBOLS,
    )


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


def _of_report(results: Results, links: Sequence[tuple[str, str]]) -> IndexRow:
    row = IndexRow(
        name=results.comparison,
        base=results.base.label,
        new=results.new.label,
        verdict=results.verdict,
        simulated=results.simulated,
        users=_lines((test, test.supported_users, test.supported_users) for test in results.tests),
        links=links,
    )
    history = results.history
    if history is None or history.before is None:
        return row
    return _with_past(row, Step(_probe(results), history.before, results.setup_differences, results.drift))


def _of_step(step: Step) -> IndexRow:
    entry = step.entry
    row = IndexRow(
        name=entry.name,
        base=entry.base.title,
        new=entry.new.title,
        verdict=entry.verdict,
        simulated=entry.simulated,
        study=entry.kind == "study",
        users=_lines((test, test.supported_users, step.changes.get(test.name)) for test in entry.tests),
        position=entry.position or 0,
    )
    return _with_past(row, step)


def _with_past(row: IndexRow, step: Step) -> IndexRow:
    lines = []
    for each in step.same_version:
        size = (each.delta_percent, each.ci_low, each.ci_high, each.jump)
        lines.append(UsersLine(wording.db_name(each.db_engine) or each.test, each.before, each.value, *size))
    return replace(row, before=step.before, drift=sorted(lines, key=_by_test), setup=step.setup_changed)


def _lines(tests: Iterable[tuple[TestResult | LedgerTest, Any, Any]]) -> list[UsersLine]:
    """Each test with its users and their change, where there are any."""
    lines = []
    for test, users, change in tests:
        known = change is not None and change.delta_percent is not None and not math.isnan(change.delta_percent)
        size = (change.delta_percent, change.ci_low, change.ci_high) if known else (None, None, None)
        if users:
            lines.append(UsersLine(wording.db_name(test.db_engine) or test.name, users.base, users.new, *size))
    return sorted(lines, key=_by_test)


def _by_test(line: UsersLine) -> str:
    """One order in all columns and rows, whatever order the tests were written down in."""
    return line.test.casefold()


def _probe(results: Results) -> Entry:
    """What a ledger knows a report's comparison by."""
    base, new = LedgerBuild.of(results.base.label), LedgerBuild.of(results.new.label)
    tests = [LedgerTest(name="any", type="bounded")]
    return Entry(name=results.comparison, position=1, base=base, new=new, tests=tests, source="report")
