"""The level of every metric over releases, in each test, with the places where it changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.history.ledger import LedgerTest
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES
from buildcompare.results.history import Drift
from buildcompare.stats.changepoints import changepoints
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import catalogue_noise, slug_of
from buildcompare.stats.planning import ALPHA, percent, quantile
from buildcompare.text.numbers import test_words

USERS = "supported-users"  # the series of supported users, beside those of metrics


class LevelChange(NamedTuple):
    """A change of the level of new builds between the release before and the one at this place."""

    at: int
    percent: float


@dataclass(frozen=True)
class LevelSeries:
    """One metric of one test over releases, NaN where a release has no level of it."""

    key: tuple[str, str, str]  # type, database, and the name where several tests share them
    test: str  # in words
    slug: str
    name: str
    unit: str
    levels: FloatArray  # shape (releases, 2): base and new, means over the runs
    runs: FloatArray  # shape (releases, 2): how many there were
    half: float | None  # half the 95 % interval of one run's log level, where the catalogue knows it
    changes: Sequence[LevelChange]

    def is_of(self, row: Drift) -> bool:
        """Whether it is of the test of this row."""
        return (row.type, (row.db_engine or "").casefold()) == self.key[:2] and self.key[2] in ("", row.test)


def over_releases(releases: Sequence[Sequence[LedgerTest]], catalogue: Catalogue) -> Iterator[LevelSeries]:
    """Every metric of every test of releases, oldest first: supported users first, others in the catalogue's order."""
    tests: dict[tuple[str, str, str], dict[int, LedgerTest]] = {}
    for place, held in enumerate(releases):
        several = Counter(test.key for test in held)
        for test in held:
            tests.setdefault((*test.key, test.name if several[test.key] > 1 else ""), {})[place] = test
    for key, found in sorted(tests.items(), key=lambda each: not any(any(test.levels) for test in each[1].values())):
        words = test_words(key[0], key[1] or None) + (f" ({key[2]})" if key[2] else "")
        kind = next(iter(found.values())).type
        metrics = dict.fromkeys(series for test in found.values() for series in test.levels_of_runs)
        ordered = sorted(metrics, key=lambda series: catalogue.position(slug_of(series)))
        for series in ([USERS] if any(any(test.levels) for test in found.values()) else []) + ordered:
            levels, runs = np.full((len(releases), 2), np.nan), np.ones((len(releases), 2))
            for place, test in found.items():
                for number, side in enumerate(SIDES):
                    own = test.levels_of_runs[series][side] if series in test.levels_of_runs else []
                    level = test.levels[side] if series == USERS else mean_of_runs(own)
                    levels[place, number] = math.nan if level is None else level
                    runs[place, number] = test.runs[side] if series == USERS else max(len(own), 1)
            metric = (catalogue.load if series == USERS else None) or catalogue.find(slug_of(series))
            name, unit = ("Supported users", "users") if series == USERS else (_name(metric, series), metric.unit)
            noise = catalogue_noise(metric, kind)
            half = quantile(1.0 - ALPHA / 2.0, noise.df) * noise.sd if noise else None
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
    if not (found := changepoints(logs).changes if logs.size else ()):
        return []
    means = [float(part.mean()) for part in np.split(logs, found)]
    return [
        LevelChange(int(places[at]), percent(after - before))
        for at, before, after in zip(found, means, means[1:], strict=False)
    ]


def _name(metric: Metric, series: str) -> str:
    """What a series is called: the metric by its name, its labels behind it."""
    _, brace, labels = series.partition("{")
    return f"{metric.name} {brace}{labels}".strip()
