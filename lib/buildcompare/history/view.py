"""Show a ledger: frames for notebooks, and the text of ``buildcompare history``."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError, named, plural
from buildcompare.config.project import resolve
from buildcompare.findings import history as findings
from buildcompare.history.chain import Chain, Step, supported_users_noise
from buildcompare.history.ledger import Entry, Ledger, read_ledger
from buildcompare.history.levels import interval_of, level_frame
from buildcompare.results.history import Drift, HistoryResult
from buildcompare.stats.noise import Noise
from buildcompare.stats.planning import ALPHA
from buildcompare.stats.planning import percent as percent_of
from buildcompare.text.numbers import percent
from buildcompare.text.sentences import say

USUAL = "data/history/mattermost"  # the default ledger of :func:`read_history`


@dataclass(frozen=True, repr=False)
class History:
    """An analysed ledger, of which some or all comparisons are shown.

    Attributes
    ----------
    steps
        Comparisons that are shown, by name: first monthly ones in the order of the ledger, then studies.
    count
        Number of all comparisons in the ledger.
    """

    folder: Path
    chain: Chain
    catalogue: Catalogue
    steps: Mapping[str, Step]

    @property
    def count(self) -> int:
        """Number of all comparisons, studies included."""
        return len(self.chain.entries)

    @property
    def left_out(self) -> int:
        """Number of comparisons that are not shown."""
        return self.count - len(self.steps)

    @property
    def margin_percent(self) -> float:
        """Margin of the supported users in percent; smaller changes do not matter."""
        return self.catalogue.load.margin_percent if self.catalogue.load else 0.0

    @functools.cached_property
    def levels(self) -> pd.DataFrame:
        """One row per metric and build of each test; supported users are the metric ``supported-users``.

        Columns: comparison, kind (``monthly`` or ``study``), build, type, db_engine, test, metric, side, level (mean
        over the runs), runs, low and high (limits of the level's 95 % interval; NaN if the noise is unknown).
        """
        entries = [step.entry for step in self.steps.values()]
        frame = level_frame([entry.tests for entry in entries]).drop(columns="name")
        about = [
            (entry.name, entry.kind, entry.builds[side].title, side, place)
            for place, entry in enumerate(entries)
            for side in ("base", "new")
        ]
        names = pd.DataFrame(about, columns=["comparison", "kind", "build", "side", "release"])
        frame = names.merge(frame, on=["release", "side"]).drop(columns="release")
        halves = {
            (kind, metric): interval_of(self.catalogue, kind, metric)
            for kind, metric in frame[["type", "metric"]].drop_duplicates().itertuples(index=False)
        }
        half = np.array([halves[key] for key in zip(frame["type"], frame["metric"], strict=True)], dtype=np.float64)
        half /= np.sqrt(frame["runs"].to_numpy(dtype=np.float64))
        return frame.assign(low=frame["level"] * np.exp(-half), high=frame["level"] * np.exp(half))

    @functools.cached_property
    def drift(self) -> pd.DataFrame:
        """Supported users against an earlier level or another database: rows as in ``drift`` of results.json."""
        rows = [row.model_dump() for step in self.steps.values() for row in step.drift]
        return pd.DataFrame(rows, columns=[*Drift.model_fields])

    @functools.cached_property
    def statements(self) -> pd.DataFrame:
        """Every sentence about each comparison: columns comparison, sentence."""
        rows = [(_title(step.entry), line) for step in self.steps.values() for line in self.sentences(step)]
        return pd.DataFrame(rows, columns=["comparison", "sentence"])

    def variance(self) -> list[str]:
        """Sentences about the scatter between comparisons and from run to run."""
        if self.chain.noise is None or not self.count:
            return []
        rows = (row for row in self.chain.between if row.sd_percent is not None)
        lines = [say("history", "between_comparisons", row) for row in rows]
        repeats = self.chain.repeats
        return [*lines, say("history", "from_run_to_run", repeats)] if repeats else lines

    def sentences(self, step: Step) -> Iterator[str]:
        """Sentences about one comparison: changes between its two builds, then changes since earlier comparisons."""
        for test, size in step.changes:
            if size and abs(size.delta_percent) > self.margin_percent and size.p_value < ALPHA:
                yield say("history", "users_changed", step.entry, test, size)
        yield from (say("history", "errors_changed", step.entry, changed) for changed in step.errors)
        if step.entry.kind == "study":
            return
        unused = {"ledger": "", "comparisons": 0, "studies": 0, "entries_sha256": ""}
        used = {"before": step.before, "margin_percent": self.margin_percent, "between": self.chain.between}
        history = HistoryResult.model_validate({**unused, **used, "bumps": step.bumps})
        if step.before is not None and not step.setup_changed:
            yield say("history", "setup_compared", step.setup_differences, step.before)
        yield from (each.whole for each in findings.find(history, step.drift, step.setup_differences))

    def __repr__(self) -> str:
        chain = plural(self.chain.length, "comparison")
        return f"<buildcompare.History: {chain} and {self.count - self.chain.length} studies in {named(self.folder)}>"


def analyse_ledger(
    ledger: Ledger, catalogue: Catalogue, newest: int | None = None, also: Collection[str] = ()
) -> History:
    """Estimate the usual scatter between the comparisons of a whole ledger, and analyse some of its entries.

    Up to `newest` monthly comparisons and up to `newest` studies are analysed (None: all). `also` adds entries by name.
    """
    noise, _ = supported_users_noise(catalogue)
    chain = Chain(ledger.listed, noise)
    names = [entry.name for entry in chain.entries]
    newest = len(names) if newest is None else newest
    shown = range(chain.length - newest, chain.length + newest)
    places = [place for place, name in enumerate(names) if place in shown or name in also]
    steps = {names[place]: chain.step(place, ledger.entry(names[place])) for place in places}
    return History(ledger.folder, chain, catalogue, steps)


def read_history(
    folder: str | os.PathLike[str] | None = None, *, catalogue: str = "mattermost", last: int | None = 100
) -> History:
    """Read and analyse a ledger of earlier comparisons: levels, drift and jumps over releases.

    Parameters
    ----------
    folder
        The ledger; by default that of the environment variable HISTORY, else ``data/history/mattermost``.
    catalogue
        Name or file of the catalogue, which states the metrics and their noise between runs.
    last
        Number of newest monthly comparisons, and of studies, to show; None: all. All are used for the usual drift.

    Returns
    -------
    History
        The frames ``levels``, ``drift`` and ``statements``.

    Raises
    ------
    InputError
        If an entry of the ledger is damaged, or the catalogue lacks the noise of supported users.

    Examples
    --------
    >>> read_history("no such ledger").levels.columns[:3].tolist()
    ['comparison', 'kind', 'build']
    """
    return _open(resolve(os.fspath(folder or os.environ.get("HISTORY") or USUAL), is_folder=True), catalogue, last)


def _open(folder: Path, catalogue: str, last: int | None, also: Collection[str] = ()) -> History:
    history = analyse_ledger(read_ledger(folder), read_catalogue(catalogue), last, also)
    if history.chain.noise is None:
        expected = "the run-to-run deviation of the users, in percent, at the metric with `load: true`"
        raise InputError(file=catalogue, key="run_sd_percent", expected=expected, found="none")
    return history


def ledger_text(folder: Path, metrics: str, *, last: int = 0, only: str | None = None) -> str:
    """Return the text of a ledger, comparison by comparison; raise an InputError if the ledger is empty or damaged.

    `last` is the number of newest comparisons to show (0: all). With `only`, just the comparison of this name is shown.
    """
    history = _open(folder, metrics, 0 if only else last or None, [only] if only else [])
    chain, steps = history.chain, history.steps.values()
    if not history.count:
        raise InputError(file=folder, key="history", expected="a ledger with entries", found="none")
    if only and not steps:
        raise InputError(file=folder, key="--only", expected="the name of a comparison", found=repr(only))
    noise: Noise = chain.noise  # type: ignore[assignment]  # _open raises if it is None
    studies = ", ".join(entry.name for entry in chain.entries[chain.length :][: last or None])
    lines = [
        f"{plural(chain.length, 'comparison')} in the chain, studies outside it: {studies or 'none'}.",
        f"Intervals: 95 %; one run has a standard deviation of {percent(percent_of(noise.sd))} ({noise.noise_source}).",
        *history.variance(),
    ]
    if history.left_out and not only:
        lines.append(say("history", "newest_shown", len(steps), history.count, named(folder)))
    for step in steps:
        lines += ["", f"{_title(step.entry)}: {step.entry.new.title} against {step.entry.base.title}"]
        lines += [f"- {sentence}" for sentence in history.sentences(step)]
    return "\n".join(lines) + "\n"


def _title(entry: Entry) -> str:
    return entry.name if entry.kind == "monthly" else f"{entry.name} (study)"
