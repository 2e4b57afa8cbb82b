"""The level of every metric over releases, in each test, with the places where it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.history.ledger import LedgerTest
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES
from buildcompare.results.history import Drift
from buildcompare.stats.changepoints import changepoints
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import catalogue_noise, slug_of
from buildcompare.stats.planning import ALPHA, percent, quantile
from buildcompare.text.numbers import test_words

USERS = "supported-users"  # the series of supported users beside those of metrics


class LevelChange(NamedTuple):
    """A change of the level of new builds between the release before and the one at this place."""

    at: int
    percent: float


@dataclass(frozen=True)
class LevelSeries:
    """One metric of one test over releases, NaN if a release has no level of it."""

    key: tuple[str, str, str]  # type, database, and the name if tests of a release share both
    test: str  # in words
    slug: str
    name: str
    unit: str
    levels: FloatArray  # shape (releases, 2): base and new, means over the runs
    runs: FloatArray  # shape (releases, 2): number of runs
    half: float | None  # half the 95 % interval of one run's log level, if the catalogue has its noise
    changes: Sequence[LevelChange]

    def is_of(self, row: Drift) -> bool:
        """Whether the drift is of this test."""
        return (row.type, (row.db_engine or "").casefold()) == self.key[:2] and self.key[2] in ("", row.test)


def level_frame(releases: Sequence[Sequence[LedgerTest]]) -> pd.DataFrame:
    """One row per metric and build of each test: levels are means over so many `runs`.

    Columns: release (its place), type, db_engine, name (only if tests of a release share both), test, metric, side,
    level, runs.
    """
    rows = []
    for place, tests in enumerate(releases):
        several = Counter(test.key for test in tests)
        for test in tests:
            about = (place, *test.key, test.name if several[test.key] > 1 else "", test.name)
            for side in SIDES:
                rows.append((*about, USERS, side, test.levels[side], test.runs[side]))
                levels = ((metric, each[side]) for metric, each in test.levels_of_runs.items())
                rows += [(*about, metric, side, mean_of_runs(each), len(each)) for metric, each in levels]
    columns = ["release", "type", "db_engine", "name", "test", "metric", "side", "level", "runs"]
    return pd.DataFrame(rows, columns=columns).astype({"level": np.float64}).dropna(subset=["level"])


def interval_of(catalogue: Catalogue, test_type: str, series: str) -> float | None:
    """Half the 95 % interval of one run's log level, if the catalogue has its noise."""
    metric = catalogue.load if series == USERS else None
    noise = catalogue_noise(metric or catalogue.find(slug_of(series)), test_type)  # type: ignore[arg-type]  # a type
    return quantile(1.0 - ALPHA / 2.0, noise.df) * noise.sd if noise else None


def over_releases(releases: Sequence[Sequence[LedgerTest]], catalogue: Catalogue) -> Iterator[LevelSeries]:
    """Every metric of every test, oldest release first: supported users first, others in the catalogue's order."""
    frame = level_frame(releases)
    tests = [*frame.groupby(["type", "db_engine", "name"], sort=False)]
    for key, test in sorted(tests, key=lambda each: USERS not in set(each[1]["metric"])):
        words = test_words(key[0], key[1] or None) + (f" ({key[2]})" if key[2] else "")
        metrics = dict.fromkeys(test["metric"])
        ordered = sorted(metrics, key=lambda each: -1 if each == USERS else catalogue.position(slug_of(each)))
        for series in ordered:
            rows = test[test["metric"] == series]
            at = rows["release"], rows["side"].map(SIDES.index)
            levels, runs = np.full((len(releases), 2), np.nan), np.ones((len(releases), 2))
            levels[at], runs[at] = rows["level"], rows["runs"]
            name, unit = "Supported users", "users"
            if series != USERS:
                metric, (_, brace, labels) = catalogue.find(slug_of(series)), series.partition("{")
                name, unit = f"{metric.name} {brace}{labels}".strip(), metric.unit
            half = interval_of(catalogue, key[0], series)
            yield LevelSeries(key, words, series, name, unit, levels, runs, half, level_changes(levels[:, 1]))


def level_changes(levels: FloatArray) -> list[LevelChange]:
    """Where the level of successive releases changed for good, at the false alarms of :func:`changepoints`.

    Parameters
    ----------
    levels
        Shape (n,), in any unit; releases without a positive level (NaN) are passed over.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> changes = level_changes(np.repeat([100.0, 130.0], 20) * np.exp(0.02 * rng.normal(size=40)))
    >>> [(change.at, round(change.percent)) for change in changes]
    [(20, 30)]
    """
    places = np.flatnonzero(levels > 0)
    logs = np.log(levels[places])
    if not (changes := changepoints(logs).changes if logs.size else ()):
        return []
    means = [float(part.mean()) for part in np.split(logs, changes)]
    return [
        LevelChange(int(places[at]), percent(after - before))
        for at, before, after in zip(changes, means, means[1:], strict=False)
    ]
