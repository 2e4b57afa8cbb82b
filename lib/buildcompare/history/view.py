"""What the notebook of all releases calls: a ledger in, its look back and plain tables out."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from pandas.io.formats.style import Styler
from pandas.io.formats.style_render import CSSDict

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve, root
from buildcompare.history.at_hand import SupportedUsersNoise
from buildcompare.history.drift import Change, MeasureChange
from buildcompare.history.ledger import Entry, Ledger, LedgerTest, read_ledger
from buildcompare.history.look_back import SIDES, LookBack, changes_within, look_back
from buildcompare.history.text import step_lines, study_lines, variance_lines
from buildcompare.results import Drift, Side
from buildcompare.text.numbers import MISSING, VERDICT_WORDS, change, db_name, interval

USUAL = "data/history/mattermost"
"""What the notebook opens when nobody said which ledger."""
COLUMNS = (
    "comparison",
    "side",
    "build",
    "users",
    "low",
    "high",
    "drift_percent",
    "against",
    "judged",
    "jump",
    "setup_changed",
)


@dataclass(frozen=True)
class HistoryView:
    """A ledger that was read and looked at."""

    ledger: Ledger
    looked: LookBack
    known: SupportedUsersNoise

    @property
    def measure(self) -> MeasureChange:
        """Intervals of levels, by the noise of single runs."""
        if self.known.noise is None:
            raise ValueError("open_history refuses a catalogue that knows no noise")
        return MeasureChange(self.known.noise)

    @property
    def databases(self) -> list[str]:
        """Databases of the unbounded tests, in the order of their appearance."""
        tests = (test for entry in self.ledger.chain for test in entry.tests)
        return list(dict.fromkeys(test.key[1] for test in tests if test.supported_users is not None))

    def levels(self, db_engine: str) -> pd.DataFrame:
        """Supported users of each build of each comparison, in the chain's order.

        Returns
        -------
        DataFrame
            Columns: comparison; side; build; users with `low` and `high` (95 %, one level by itself); drift_percent
            (a base against the same version in an earlier comparison; NaN otherwise); against (that comparison);
            judged (whether enough is known to call it a jump); jump; setup_changed (settings).
        """
        rows = []
        for step in self.looked.steps:
            test = _unbounded(step.entry, db_engine)
            if test is None or test.supported_users is None:
                continue
            drift = next((row for row in step.drift if row.test == test.name and row.kind == "same_version"), None)
            moved = drift is not None and drift.same_version
            changed = [each.setting for each in step.setup_differences if each.kind == "changed"]
            for side in SIDES:
                users = getattr(test.supported_users, side)
                if users is None:
                    continue
                low, high = self.measure.interval(users, getattr(test.runs, side))
                is_base = side == "base" and drift is not None and moved
                percent = drift.delta_percent if is_base and drift else float("nan")
                build = _title(step.entry, side)
                against = drift.against if is_base and drift else ""
                judged = bool(is_base and drift and drift.z is not None)
                jump = bool(is_base and drift and drift.jump)
                rows.append((step.entry.name, side, build, users, low, high, percent, against, judged, jump, changed))
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def releases(self) -> pd.DataFrame:
        """Every release and study, the newest first, with what a reader wants to know of it and where its report is.

        Returns
        -------
        DataFrame
            Columns: comparison; builds; verdict; supported users (each test with its change and 95 % interval); drift
            (likewise, of the same version against an earlier comparison); setup (what changed); report (a link).
        """
        known = self.known.noise
        steps = {step.entry.name: step for step in self.looked.steps}
        rows = []
        for entry in [*reversed(self.ledger.chain), *self.ledger.studies]:
            step = steps.get(entry.name)
            within = changes_within(entry, known) if known else {}
            drift = [row for row in step.drift if row.kind == "same_version" and row.same_version] if step else []
            changed = [each.setting for each in step.setup_differences if each.kind == "changed"] if step else []
            rows.append(
                (
                    entry.name if entry.kind == "monthly" else f"{entry.name} (study)",
                    f"{entry.base.title} → {entry.new.title}",
                    VERDICT_WORDS[entry.verdict] if entry.verdict else "not judged",
                    "; ".join(sorted(_measured(test, within) for test in entry.tests if test.supported_users)),
                    "; ".join(sorted(_drifted(row) for row in drift)) or MISSING,
                    (", ".join(changed) or "none recorded") if step and step.before else MISSING,
                    _report(entry.name),
                )
            )
        columns = ["comparison", "builds", "verdict", "supported users", "drift", "setup changed", "report"]
        return pd.DataFrame(rows, columns=columns)

    def statements(self) -> pd.DataFrame:
        """Every sentence about each comparison, then about each study: columns comparison, sentence."""
        rows = [
            (step.entry.name, line)
            for step in self.looked.steps
            for line in step_lines(step, self.looked, self.known.margin_percent)
        ]
        rows += [
            (f"{entry.name} (study)", line) for entry in self.ledger.studies for line in study_lines(entry, self.known)
        ]
        return pd.DataFrame(rows, columns=["comparison", "sentence"])

    def variance(self) -> list[str]:
        """What was learned of variance so far, in sentences."""
        return variance_lines(self.looked)


def open_history(variables: Mapping[str, Any]) -> HistoryView:
    """The ledger that a notebook's variables name (`history`, `metrics`), or else the environment variable HISTORY.

    Raises
    ------
    InputError
        Where the ledger is damaged, or the catalogue does not say how far runs scatter.
    """
    folder = str(variables.get("history") or os.environ.get("HISTORY") or USUAL)
    catalogue = str(variables.get("metrics") or "mattermost")
    known = SupportedUsersNoise.of(read_catalogue(catalogue))
    if known.noise is None:
        expected = "a catalogue that says how far runs scatter"
        raise InputError(file=catalogue, key="run_sd_percent", expected=expected, found="none")
    ledger = read_ledger(resolve(folder))
    looked = look_back(ledger.chain, known.noise, ledger.studies)
    return HistoryView(ledger, looked, known)


def _measured(test: LedgerTest, within: Mapping[str, Change]) -> str:
    users = test.supported_users
    told = [f"{each:,.0f}" if each else "unknown" for each in (users.base, users.new)] if users else []
    found = within.get(test.name)
    size = f", {change(found.percent)} ({interval(found.low, found.high)})" if found else ""
    return f"{db_name(test.db_engine) or test.name} {' → '.join(told)}{size}"


def _drifted(row: Drift) -> str:
    jump = ", jump" if row.jump else ""
    size = f"{change(row.delta_percent)} ({interval(row.ci_low, row.ci_high)})"
    return f"{db_name(row.db_engine) or row.test} {size} since {row.against}{jump}"


def _report(name: str) -> str:
    """Where the published report is, seen from a notebook; nothing where there is none."""
    file = Path("reports") / name / "report.html"
    return f"../{quote(file.as_posix())}" if (root() / file).is_file() else ""


def linked(releases: pd.DataFrame) -> Styler:
    """`releases` as a table for people: every text is text, reports are links."""
    left: list[CSSDict] = [{"selector": "th, td", "props": [("text-align", "left"), ("vertical-align", "top")]}]
    shown = releases.style.hide(axis="index").format(escape="html").set_table_styles(left)
    return shown.format(_link, subset=["report"])


def _link(href: object) -> str:
    return f'<a href="{html.escape(str(href))}">report</a>' if href else MISSING


def _unbounded(entry: Entry, db_engine: str) -> LedgerTest | None:
    return next((test for test in entry.tests if test.key == ("unbounded", db_engine) and test.supported_users), None)


def _title(entry: Entry, side: Side) -> str:
    return entry.base.title if side == "base" else entry.new.title
