"""Show a ledger: the tables of the notebook of all releases, and the text of ``buildcompare history``."""

import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError, named, plural
from buildcompare.config.project import resolve
from buildcompare.findings import history as findings
from buildcompare.history.chain import ChainAnalysis, Step, analyse_chain, supported_users_noise
from buildcompare.history.ledger import Entry, Ledger, read_ledger
from buildcompare.results.codes import SIDES
from buildcompare.results.history import HistoryResult
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise
from buildcompare.stats.planning import ALPHA
from buildcompare.text.numbers import percent
from buildcompare.text.sentences import say

USUAL = "data/history/mattermost"  # what the notebook opens when nobody said which ledger
NEWEST = 100  # comparisons that are shown of a longer chain where nobody said how many


@dataclass(frozen=True)
class HistoryView:
    """A ledger that was read and analysed, of which some comparisons are shown."""

    ledger: Ledger
    chain: ChainAnalysis
    margin_percent: float

    @property
    def noise(self) -> Noise:
        """Of one run's supported users."""
        assert self.chain.noise is not None  # see view_ledger
        return self.chain.noise

    @property
    def databases(self) -> Sequence[str]:
        """Databases of the unbounded tests, in the order of their appearance."""
        return self.chain.databases

    @property
    def count(self) -> int:
        """Of all comparisons, studies too."""
        return self.chain.comparisons + len(self.chain.studies)

    @property
    def left_out(self) -> int:
        """How many of them are not shown."""
        return self.count - len(self.chain.steps)

    @property
    def steps(self) -> list[Step]:
        """The comparisons of the chain that are shown, in its order."""
        return [step for step in self.chain.steps.values() if step.entry.kind == "monthly"]

    def levels(self, db_engine: str) -> pd.DataFrame:
        """Supported users of each build of each comparison that is shown, in the chain's order.

        Columns: comparison; side; build; users with `low` and `high` (95 %, one level by itself); drift_percent (a base
        against the same version in an earlier comparison; NaN otherwise); against (that comparison); judged (whether
        enough is known to call it a jump); jump; setup_changed (settings).
        """
        rows = []
        for step in self.steps:
            tests = [test for test, _ in step.changes if test.key == ("unbounded", db_engine)][:1]
            for test, side in itertools.product(tests, SIDES):
                if (users := test.levels[side]) is None:
                    continue
                low, high = level_interval(users, test.runs[side], self.noise)
                row: list[Any] = [step.entry.name, side, step.entry.builds[side].title, users, low, high]
                drift = [each for each in step.same_version if (each.test, each.side) == (test.name, side)]
                row += [drift[0].delta_percent, drift[0].against] if drift else [math.nan, ""]
                row += [any(each.z is not None for each in drift), any(each.jump for each in drift)]
                rows.append([*row, step.setup_changed])
        columns = "comparison side build users low high drift_percent against judged jump setup_changed"
        return pd.DataFrame(rows, columns=columns.split())

    def statements(self) -> pd.DataFrame:
        """Every sentence about each comparison shown, then about each study: columns comparison, sentence."""
        rows = [(_name(step.entry), line) for step in self.chain.steps.values() for line in self.sentences(step)]
        return pd.DataFrame(rows, columns=["comparison", "sentence"])

    def variance(self) -> list[str]:
        """What was learned of variance so far, in sentences."""
        known = [row for row in self.chain.between if row.sd_percent is not None]
        lines = [say("history", "between_comparisons", row) for row in known]
        return [*lines, say("history", "from_run_to_run", self.chain.repeats)] if self.chain.repeats else lines

    def sentences(self, step: Step) -> Iterator[str]:
        """What the ledger states about one comparison: the changes within it first, then its past."""
        for test, size in step.changes:
            if size and abs(size.delta_percent) > self.margin_percent and size.p_value < ALPHA:
                yield say("history", "users_changed", step.entry, test, size)
        yield from (say("history", "errors_changed", step.entry, changed) for changed in step.errors)
        if step.entry.kind == "study":
            return
        known = {"before": step.before, "margin_percent": self.margin_percent, "between": self.chain.between}
        unnamed = {"ledger": "", "comparisons": 0, "studies": 0, "entries_sha256": ""}
        history = HistoryResult.model_validate({**unnamed, **known})
        if step.before is not None and not step.setup_changed:
            yield say("history", "setup_compared", step.setup_differences, step.before)
        yield from (each.whole for each in findings.find(history, step.drift, step.setup_differences))


def open_history(variables: Mapping[str, Any]) -> HistoryView:
    """The ledger that a notebook's variables name (`history`, `metrics`), or else the environment variable HISTORY."""
    folder = str(variables.get("history") or os.environ.get("HISTORY") or USUAL)
    last = int(variables.get("last", NEWEST)) or None
    ledger = read_ledger(resolve(folder, is_folder=True))
    return view_ledger(ledger, str(variables.get("metrics") or "mattermost"), last)


def view_ledger(ledger: Ledger, metrics: str, newest: int | None = None, named: Collection[str] = ()) -> HistoryView:
    """Analyse a ledger by the catalogue `metrics`, which must say how far runs scatter; others as `analyse_chain`."""
    noise, margin_percent = supported_users_noise(read_catalogue(metrics))
    if noise is None:
        expected = "a catalogue that says how far runs scatter"
        raise InputError(file=metrics, key="run_sd_percent", expected=expected, found="none")
    return HistoryView(ledger, analyse_chain(ledger, noise, newest, named), margin_percent)


def ledger_text(folder: Path, metrics: str, *, last: int = 0, only: str | None = None) -> str:
    """The text of a ledger, comparison by comparison; an InputError where it is empty or damaged.

    `last`: so many of the newest comparisons (0: all); `only`: the comparison of this name alone.
    """
    view = view_ledger(read_ledger(folder), metrics, 0 if only else last or None, [only] if only else [])
    chain, noise, steps = view.chain, view.noise, view.chain.steps.values()
    if not view.count:
        raise InputError(file=folder, key="history", expected="a ledger with entries", found="none")
    if only and not steps:
        raise InputError(file=folder, key="--only", expected="the name of a comparison", found=repr(only))
    run_sd = percent(100 * math.expm1(noise.sd))
    studies = ", ".join(chain.studies[: last or None])
    lines = [
        f"{plural(chain.comparisons, 'comparison')} in the chain, studies outside it: {studies or 'none'}.",
        f"Intervals: 95 %; one run has a standard deviation of {run_sd} ({noise.noise_source}).",
        *view.variance(),
    ]
    if view.left_out and not only:
        lines.append(say("history", "newest_shown", len(steps), view.count, named(folder)))
    for step in steps:
        lines += ["", f"{_name(step.entry)}: {step.entry.new.title} against {step.entry.base.title}"]
        lines += [f"- {sentence}" for sentence in view.sentences(step)]
    return "\n".join(lines) + "\n"


def level_interval(users: float, runs: int, noise: Noise) -> list[float]:
    """The 95 % interval of a positive level, the mean over `runs` runs."""
    half = Effect(0.0, noise.sd / math.sqrt(runs), noise.df, noise.sd, noise.noise_source)
    return [users * (1.0 + percent / 100.0) for percent in half.interval()]


def _name(entry: Entry) -> str:
    return entry.name if entry.kind == "monthly" else f"{entry.name} (study)"
