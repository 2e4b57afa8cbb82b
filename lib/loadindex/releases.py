"""The level of every metric of each test over releases, its lasting changes, and charts of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.figures import chart
from buildcompare.figures.plot import Plot
from buildcompare.history.ledger import LedgerTest
from buildcompare.history.levels import USERS, interval_of, level_frame
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES, Pair
from buildcompare.results.history import Drift
from buildcompare.stats.changepoints import changepoints
from buildcompare.stats.noise import slug_of
from buildcompare.stats.planning import percent
from buildcompare.text.numbers import test_words, unit_scale
from buildcompare.text.sentences import say


class LevelChange(NamedTuple):
    """A lasting level change of the new builds, in percent; `at` is the index of the first release after the change."""

    at: int
    percent: float


@dataclass(frozen=True)
class LevelSeries:
    """Levels of one metric of one test over releases; NaN for a release without a level."""

    key: tuple[str, str, str]  # type, database, and name if a release has several tests of this type and database
    test: str  # title of the test
    slug: str
    name: str
    unit: str
    levels: FloatArray  # shape (releases, 2): base and new, means over the runs
    runs: FloatArray  # shape (releases, 2): number of runs
    half: float | None  # half the 95 % interval of the logarithm of one run's level; None if its noise is unknown
    changes: Sequence[LevelChange]

    def is_of(self, row: Drift) -> bool:
        """Whether `row`, a drift of supported users, concerns the test of this series."""
        return (row.type, (row.db_engine or "").casefold()) == self.key[:2] and self.key[2] in ("", row.test)


def over_releases(releases: Sequence[Sequence[LedgerTest]], catalogue: Catalogue) -> Iterator[LevelSeries]:
    """Yield each metric of each test: supported users first, others in catalogue order; `releases` oldest first."""
    tests = [*level_frame(releases).groupby(["type", "db_engine", "name"], sort=False)]
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
    """Find lasting level changes over the releases that have a positive level, by :func:`changepoints`."""
    places = np.flatnonzero(levels > 0)
    logs = np.log(levels[places])
    if not (changes := changepoints(logs).changes if logs.size else ()):
        return []
    means = [float(part.mean()) for part in np.split(logs, changes)]
    return [
        LevelChange(int(places[at]), percent(after - before))
        for at, before, after in zip(changes, means, means[1:], strict=False)
    ]


def attributes(
    series: LevelSeries, releases: Sequence[Mapping[str, Any]], group: str, changes: Mapping[int, str]
) -> dict[str, str]:
    """Return the attributes of a chart of one metric over releases; charts with the same `group` are zoomed together.

    Each of `releases` has ``name``, ``href`` of the report (or None), the names of ``base`` and ``new``, and ``note``.
    `changes` maps the index of a release to the text shown there.
    """
    title = say("figures", "releases_title", series)
    alt = say("figures", "releases_alt", series, [each["name"] for each in releases])
    header = chart.header_of(series.name, series.unit, Pair("base", "new"), title, alt) | {
        "releases": list(releases),
        "changes": [{"at": at, "text": text} for at, text in sorted(changes.items())],
    }
    floats = []
    for number, side in enumerate(SIDES):
        values, counts = series.levels[:, number], series.runs[:, number]
        if np.isfinite(values).any():
            floats.append(chart.rounded(values))
            run: chart.Header = {"side": side, "run": 1, "size": values.size, "start": 0, "step": 1, "users": []}
            run |= {"half": series.half} | ({} if (counts == 1).all() else {"counts": counts.tolist()})
            header["runs"].append(run)
    return {"group": group, "data": chart.packed(header, floats)}


RELEASES_SIZE = (10.0, 3.3)  # Inches
MOST_NAMES = 8  # Maximum number of release names below the axis


def still(series: LevelSeries, releases: Sequence[str], changes: Mapping[int, str]) -> str:
    """Draw a metric of both builds over releases as SVG; `changes` maps a release's index to the text drawn there."""
    top = 1.06 * float(np.nanmax(series.levels))
    factor, unit = unit_scale(top, series.unit)
    every = math.ceil(len(releases) / MOST_NAMES)
    xticks = [(float(place), releases[place][:14]) for place in range(0, len(releases), every)]
    title, x, y = say("figures", "releases_title", series), (-0.5, len(releases) - 0.5), (0.0, factor * top)
    plot = Plot(RELEASES_SIZE, title, x=x, y=y, xlabel="", ylabel=unit, xticks=xticks)
    for i, (place, text) in enumerate(sorted(changes.items())):
        plot.rule(place - 0.5, "ink", 0.8, (6.0, 3.0))
        plot.text(float(plot.across(place - 0.5)) + 3, plot.top + 10 + 12 * (i % 3), text)
    for number, side in enumerate(SIDES):
        levels = factor * series.levels[:, number]
        shown = np.flatnonzero(np.isfinite(levels))
        plot.curve([(shown, levels[shown])] if shown.size else [], side)
    plot.legend({side: side for side in SIDES})
    return plot.svg(say("figures", "releases_alt", series, releases))
