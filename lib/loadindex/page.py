"""Write one searchable HTML page of all releases, from reports and ledgers. The page loads no other file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from jinja2 import ChoiceLoader, FileSystemLoader, Template
from markupsafe import Markup
from pydantic import ValidationError

from buildcompare import figures
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import named
from buildcompare.config.params import version_in
from buildcompare.config.project import resolve, root, write_files, writing
from buildcompare.figures.chart import Header
from buildcompare.findings.verdict import GRAVEST_FIRST
from buildcompare.history.chain import Step
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest, ledger_test, read_ledger
from buildcompare.history.levels import USERS
from buildcompare.history.view import History, analyse_ledger
from buildcompare.report import publication
from buildcompare.report.sections import assets, templates
from buildcompare.results import Results, dumps
from buildcompare.results.history import Drift
from buildcompare.text.numbers import change, db_name
from buildcompare.text.sentences import say
from loadindex import releases
from loadindex.releases import LevelSeries

FILES = {publication.HTML: "report", publication.README: "README", publication.RESULTS: "results"}
INDEX = "index.html"
HERE = Path(__file__).parent / "templates"
LEDGERS = "data/history"  # folder of all ledgers
FEWEST_POINTS = 3  # minimum number of points for a chart of levels
NEWEST = 500  # maximum number of latest comparisons of each ledger; comparisons with a report are shown in addition


def _template() -> Template:
    """Load the template of the page, which extends the page of all reports."""
    made = templates()
    assert made.loader is not None  # `templates` makes one
    return made.overlay(loader=ChoiceLoader([FileSystemLoader(HERE), made.loader])).get_template("index.html.j2")


class UsersLine(NamedTuple):
    """Supported users in one test: `before` of the base build, `value` of the new build; None if unknown."""

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
    """Row of the index page for one comparison; `fault` is a message if the comparison's results cannot be read."""

    builds: tuple[str, str] = ("", "")
    users: Sequence[UsersLine] = ()
    links: Sequence[tuple[str, str]] = ()
    fault: str | None = None
    tests: Sequence[LedgerTest] = ()
    ledger: Path | None = None  # Folder of the ledger that holds the comparison

    @property
    def drift_lines(self) -> list[Drift]:
        """Return the rows that compare a base build with the same version in an earlier comparison."""
        return sorted(self.same_version, key=_by_test)


def write_index(folder: Path, ledgers: Sequence[Path] = (), metrics: str = "mattermost") -> tuple[Path, int]:
    """Write the index page into the folder of all reports; return its path and its number of rows.

    `ledgers` are folders. By default, they are all ledgers in ``data/history`` and the ledgers that reports use.
    `metrics` names a catalogue; for comparisons without a report, the catalogue gives the noise. A damaged ledger
    raises an InputError. A report that cannot be read becomes a row that names the fault.
    """
    catalogue = read_catalogue(metrics)
    rows, views = index_rows(folder, ledgers, catalogue)
    html = _template().render(
        assets(str(HERE / "index"), "buildcompare/report", str(HERE / "index"), component=figures.component()),
        title="Every release",
        rows=rows,
        gravest_first=GRAVEST_FIRST,
        charts=level_charts(rows, catalogue),
        left_out=[(named(at), len(view.steps), view.count) for at, view in views.items() if view.left_out],
    )
    with writing(folder / INDEX, "output", "a file that can be written"):
        write_files({folder / INDEX: html})
    return folder / INDEX, len(rows)


def index_rows(
    folder: Path, ledgers: Sequence[Path], catalogue: Catalogue
) -> tuple[list[IndexRow], dict[Path, History]]:
    """Return the rows of the index page, and the analysis of each ledger by folder.

    The order is: reports in no ledger, monthly ledger entries (newest first), other entries, and unreadable reports.
    """
    folders = [each for each in _folders(folder) if any((each / name).exists() for name in FILES)]
    reports = {each: _read(each / publication.RESULTS) for each in folders}
    stated = {each.history.ledger for each in reports.values() if isinstance(each, Results) and each.history}
    paths = {name: resolve(name, is_folder=True) for name in sorted(stated)}
    opened = [read_ledger(path) for path in ledgers or dict.fromkeys([*paths.values(), *_folders(root() / LEDGERS)])]
    readable = {path: results for path, results in reports.items() if isinstance(results, Results)}
    recorded_at = {path: _place(results, paths, opened) for path, results in readable.items()}
    steps: dict[tuple[Path, str], Step] = {}
    views = {}
    for ledger in opened:
        recorded_names = {place[1] for place in recorded_at.values() if place and place[0] == ledger.folder}
        views[ledger.folder] = analyse_ledger(ledger, catalogue, NEWEST, recorded_names)
        steps |= {(ledger.folder, name): step for name, step in views[ledger.folder].steps.items()}
    unrecorded, recorded, broken, left = [], [], [], dict(steps)
    for path, results in reports.items():
        links = [(text, f"{quote(path.name)}/{name}") for name, text in FILES.items() if (path / name).is_file()]
        place = recorded_at.get(path)
        if isinstance(results, str):
            broken.append(IndexRow(_entry(name=path.name), links=links, fault=results))
        elif place and steps[place].entry.simulated == results.simulated:
            recorded.append(replace(_of_report(results, steps[place], links), ledger=place[0]))
            left.pop(place, None)
        else:
            unrecorded.append(_of_report(results, None, links))
    recorded += [replace(_of_step(step), ledger=at[0]) for at, step in left.items()]
    unrecorded.sort(key=lambda row: _newness(row.builds[1]), reverse=True)
    recorded.sort(key=lambda row: (row.entry.kind == "study", -(row.entry.position or 0)))
    return [*unrecorded, *recorded, *broken], views


def level_charts(rows: Sequence[IndexRow], catalogue: Catalogue) -> list[tuple[str, list[tuple[LevelSeries, Markup]]]]:
    """Return a heading and charts for each ledger. Each chart shows one metric of one test over all releases."""
    chains: dict[tuple[Path | None, bool], list[IndexRow]] = {}
    for row in reversed(rows):
        if row.tests and row.entry.kind == "monthly":
            chains.setdefault((row.ledger, row.ledger is None and row.entry.simulated), []).append(row)
    charts = []
    for number, ((ledger, simulated), chain) in enumerate(chains.items()):
        drawn: list[tuple[LevelSeries, Markup]] = []
        shown = [_release(row) for row in chain]
        jumps = [(at, line) for at, row in enumerate(chain) for line in row.drift_lines if line.jump]
        for series in releases.over_releases([row.tests for row in chain], catalogue):
            if np.isfinite(series.levels).any(axis=1).sum() < FEWEST_POINTS:
                continue
            marked = {each.at: change(each.percent) for each in series.changes}
            if series.slug == USERS:
                marked |= {at: say("figures", "jump", row.delta_percent) for at, row in jumps if series.is_of(row)}
            attributes = releases.attributes(series, shown, f"releases-{number}", marked)
            is_first = all(series.test != each.test for each, _ in drawn)  # only a test's first chart is also an image
            still = releases.still(series, [row.entry.name for row in chain], marked) if is_first else ""
            drawn.append((series, Markup(figures.element(attributes, still))))  # noqa: S704  # our HTML
        charts.append((say("figures", "chain_heading", ledger and ledger.name, simulated), drawn))
    return charts


def _release(row: IndexRow) -> Header:
    """Return what a chart shows of one release: name, address of the report, builds, and a note on changed settings."""
    href = next((href for text, href in row.links if text == "report"), None)
    base, new = row.builds
    note = say("history", "changed_settings", row.setup_changed) if row.setup_changed else ""
    return {"name": row.entry.name, "href": href, "base": base, "new": new, "note": note}


def _place(results: Results, paths: Mapping[str, Path], opened: Sequence[Ledger]) -> tuple[Path, str] | None:
    """Find a report's comparison in the ledgers; return the ledger's folder and the comparison's name, or None."""
    first, entry = paths[results.history.ledger] if results.history else None, _entry_of(results)
    for ledger in sorted(opened, key=lambda ledger: ledger.folder != first):
        if recorded := ledger.find(entry):
            return ledger.folder, recorded.name
    return None


def _folders(folder: Path) -> list[Path]:
    """List the folders in `folder` by name, without hidden folders, which hold incomplete reports."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _newness(label: str) -> tuple[list[int], bool, list[int]]:
    """Return the sort key of a version: a release follows its candidates; labels without a version come first."""
    number, _, candidate = (version_in(label) or "").partition("-")
    numbers, candidates = ([int(part) for part in re.findall(r"\d+", text)] for text in (number, candidate))
    return numbers, not candidate, candidates


def _read(file: Path) -> Results | str:
    """Read results.json; return a message if it cannot be read."""
    try:
        results = Results.model_validate(json.loads(file.read_text(encoding="utf-8")))
        dumps(results).encode()  # raises an error for lone surrogates, which UTF-8 cannot encode
    except FileNotFoundError:
        return "results.json is missing"
    except (ValidationError, ValueError, RecursionError, OSError):
        return "results.json cannot be read by this version"
    return results


def _entry(**fields: Any) -> Entry:
    """Make a ledger entry that has only `fields`, without validation."""
    return Entry.model_construct(**fields)


def _entry_of(results: Results) -> Entry:
    """Make a ledger entry from a report's results, with only the fields that identify the comparison."""
    base, new = LedgerBuild.of(results.base.label), LedgerBuild.of(results.new.label)
    return _entry(name=results.comparison, base=base, new=new, verdict=results.verdict, simulated=results.simulated)


def _of_report(results: Results, step: Step | None, links: Sequence[tuple[str, str]]) -> IndexRow:
    """Make the row of a report. If the report has no history, the history in the ledger entry `step` is shown."""
    entry = _entry_of(results)
    users = [
        UsersLine(test.name, test.db_engine, at.base, at.new, at.delta_percent, at.ci_low, at.ci_high)
        for test in results.tests
        if (at := test.supported_users)
    ]
    past = step if step and users else Step(entry)
    if results.history and results.history.before is not None:
        past = Step(entry, results.history.before, results.setup_differences, results.drift)
    if step:
        entry = entry.model_copy(update={"kind": step.entry.kind, "position": step.entry.position})
    builds = (results.base.label, results.new.label)
    shown = {"entry": entry, "builds": builds, "users": sorted(users, key=_by_test), "links": links}
    return IndexRow(**vars(past) | shown, tests=[ledger_test(test) for test in results.tests])


def _of_step(step: Step) -> IndexRow:
    users = []
    for test, effect in step.changes:
        size = (effect.delta_percent, *effect.interval()) if effect else ()
        users.append(UsersLine(test.name, test.db_engine, *test.levels, *size))
    builds = (step.entry.base.title, step.entry.new.title)
    return IndexRow(**vars(step), builds=builds, users=sorted(users, key=_by_test), tests=step.entry.tests)


def _by_test(line: UsersLine | Drift) -> str:
    """Return the sort key of a line: the name of its database, or the name of its test if no database is given."""
    return (db_name(line.db_engine) or line.test).casefold()
