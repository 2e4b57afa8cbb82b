"""Tabulate the level of each metric over releases, and compute the deviations from which noise is estimated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.history.ledger import Ledger, LedgerTest, entry_of
from buildcompare.history.setup import SETUP_COLUMNS, changed_settings, setup_differences
from buildcompare.results.codes import SIDES
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import CONTRAST, Contrasts, catalogue_noise, slug_of
from buildcompare.stats.planning import ALPHA, quantile

USERS = "supported-users"  # name of the series of supported users; other series are metrics


def level_frame(releases: Sequence[Sequence[LedgerTest]]) -> pd.DataFrame:
    """One row per metric and build of each test: levels are means; `runs` is the number of runs.

    Columns: release (index), type, db_engine, name, test, metric, misread (True if levels are read off plots), side,
    level, runs. The name is empty if the database is known and no other test has the same type and database.
    """
    rows = []
    for place, tests in enumerate(releases):
        several = Counter(test.key for test in tests)
        for test in tests:
            about = (place, *test.key, test.name if several[test.key] > 1 or not test.db_engine else "", test.name)
            for side in SIDES:
                rows.append((*about, USERS, False, side, test.levels[side], test.runs[side]))
                for metric, runs in test.levels_of_runs.items():
                    misread, levels = slug_of(metric) in test.misread, runs[side]
                    rows.append((*about, metric, misread, side, mean_of_runs(levels, geometric=True), len(levels)))
    columns = ["release", "type", "db_engine", "name", "test", "metric", "misread", "side", "level", "runs"]
    return pd.DataFrame(rows, columns=columns).astype({"level": np.float64}).dropna(subset=["level"])


def interval_of(catalogue: Catalogue, test_type: str, series: str) -> float | None:
    """Return half the width of the 95 % interval of one run's log(level); None if the catalogue states no noise."""
    metric = catalogue.load if series == USERS else None
    noise = catalogue_noise(metric or catalogue.find(slug_of(series)), test_type)  # type: ignore[arg-type]  # a type
    return quantile(1.0 - ALPHA / 2.0, noise.df) * noise.sd if noise else None


NOT_OF_NOISE = {SETUP_COLUMNS["load_test_version"], "Metrics server"}
"""Settings whose change does not affect the noise between runs."""
NEWEST = 100
"""Maximum number of monthly comparisons (the latest) from which noise is estimated. With 100 comparisons of two
databases each, the estimated standard deviation has a standard error of 7 %."""


def contrasts_in(ledger: Ledger, params: Comparison, samples: Collection[str], *, simulated: bool) -> Contrasts:
    """Return squared deviations of metric changes in the ledger's comparisons, from which noise is estimated.

    A deviation is a metric's change in a test minus the mean change over the comparison's tests. If base and new are
    the same build, it is the change itself. Comparisons of the builds in `params` or of another setup, and tests with
    a run in `samples`, are left out.
    """
    now, last = entry_of(params, position=1), ledger.next_position - 1
    same, compared = {*ledger.alike(now)}, {*samples}
    releases, repeated = [], []
    for listed in ledger.listed:
        other = listed.simulated == simulated and listed.name not in same and (listed.position or last) > last - NEWEST
        if other and not {*changed_settings(setup_differences(listed, now))} - NOT_OF_NOISE:
            tests = ledger.entry(listed.name).tests
            releases.append([test for test in tests if compared.isdisjoint(test.samples)])
            repeated.append(listed.base.without_run == listed.new.without_run)
    return _contrasts(level_frame(releases).query(f"metric != '{USERS}'"), np.flatnonzero(repeated))


def _contrasts(frame: pd.DataFrame, repeated: npt.NDArray[np.int64]) -> Contrasts:
    """Compute squared deviations of metric changes in `frame`; `repeated` lists the releases whose base equals new."""
    key = ["type", "metric", "misread", "release", "test"]
    base, new = (frame[frame["side"] == side].set_index(key)[["level", "runs"]] for side in SIDES)
    both = base.add_suffix("_base").join(new.add_suffix("_new"), how="inner").reset_index()
    same = both["release"].isin(repeated)
    per_run = (1.0 / both["runs_base"] + 1.0 / both["runs_new"]) ** 0.5
    changes = (both["level_new"] / both["level_base"]).map(math.log) / per_run
    groups = changes.groupby([both[name] for name in key[:-1]])
    rests = changes - groups.transform("mean").where(~same, 0.0)
    rows = both.assign(comparison=both["release"], squares=rests**2, df=1.0 - (~same) / groups.transform("count"))
    by_metric = rows[rows["df"] > 0].groupby(["type", rows["metric"].map(slug_of)])
    return {(str(kind), str(slug)): each[[*CONTRAST]] for (kind, slug), each in by_metric}
