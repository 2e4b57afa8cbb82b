"""Measure drift, database order, unusual error counts and repeats on the frame of a ledger.

Each comparison measures the version that the one before called new once more, as its base. A difference between the two
is no change of the build: it is run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.results.codes import SIDES, DriftKind
from buildcompare.results.history import BetweenComparisons, RepeatedMeasurements
from buildcompare.stats.noise import Noise

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
OUTLIER = 3.5
"""Modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5
"""A median over fewer comparisons says nothing."""
LEAST_ERROR_FACTOR = 1.5
"""Smaller changes of error counts are not reported: half as many again, or a third fewer."""

Array = npt.NDArray[Any]


def measure_change(
    before: npt.ArrayLike, value: npt.ArrayLike, noise: Noise, runs: tuple[npt.ArrayLike, npt.ArrayLike] = (1, 1)
) -> dict[str, Array]:
    """Compare n levels pairwise, each the mean over some `runs`, with the interval that the noise of single runs gives.

    The columns are before, value, log_ratio, delta_percent, ci_low, ci_high (95 %, in percent) and p_value; all but the
    first two are NaN where a level is missing or not positive.

    >>> noise = Noise(sd=0.018, df=math.inf, noise_source="catalogue")
    >>> change = measure_change([8638.0], [6537.0], noise)
    >>> [round(float(change[name][0]), 1) for name in ("delta_percent", "ci_low", "ci_high")]
    [-24.3, -28.0, -20.5]
    """
    from scipy import stats

    levels = np.array([before, value], dtype=float)
    usable = ((levels > 0) & (levels < math.inf)).all(axis=0)
    ratio = np.full(usable.shape, math.nan)
    ratio[usable] = [math.log(new / base) for base, new in levels[:, usable].T]
    sd = noise.sd * np.sqrt(1 / np.asarray(runs[0], dtype=float) + 1 / np.asarray(runs[1], dtype=float))
    half = float(stats.t.ppf(0.975, noise.df)) * sd
    return {
        "before": levels[0],
        "value": levels[1],
        "log_ratio": ratio,
        "delta_percent": _percent(ratio),
        "ci_low": _percent(ratio - half),
        "ci_high": _percent(ratio + half),
        "p_value": 2 * stats.t.sf(np.abs(ratio) / sd, noise.df),
    }


def beside(tests: pd.DataFrame) -> pd.DataFrame:
    """One row for each test of each comparison, what is known of each build in columns such as ``users_base``."""
    own = ["order", "test", "title", "minor", "version", "users", "runs", "errors", "written"]
    base, new = (tests[tests["side"] == side].drop(columns="side") for side in SIDES)
    return base.merge(new[own], on=["order", "test"], suffixes=("_base", "_new"))


def level_interval(users: pd.Series, runs: pd.Series, noise: Noise) -> tuple[pd.Series, pd.Series]:
    """The 95 % interval of positive levels, each a mean over `runs` runs."""
    from scipy import stats

    half = float(stats.t.ppf(0.975, noise.df)) * noise.sd / np.sqrt(runs)
    return users * np.exp(-half), users * np.exp(half)


def measure_drift(both: pd.DataFrame, noise: Noise) -> tuple[pd.DataFrame, list[BetweenComparisons]]:
    """Compare each comparison of a chain (`both`: see :func:`beside`) with the one that measured its base before.

    That is, test by test, the last comparison whose new build is of its base's version, so that one that was recorded
    late, or belongs to an older line of releases, does not break the chain of the others; without any, it is the one
    before. A comparison without levels is skipped.

    A drift of the same version is a jump where its modified z-score exceeds 3.5: the log ratio over 1.4826 times the
    median absolute log ratio of the test (its center is zero, where the same version belongs), which is never taken for
    less than the noise of two single runs. Of drawn chains without a jump, whose batches scatter by 8 %, 4 to 6 % have
    one by this rule, with 5 links or with 33 (tests/history/test_drift.py).

    The frame has two rows for each linked test, `same_version` (this base with the previous new) and `previous_new`
    (this new with the previous new), in the order of the chain; the list, by test, how far the same version lies apart.
    """
    rows = {str(name): column.to_numpy() for name, column in both.items()}
    now, then = np.tile(_links(rows), 2)
    is_base = np.arange(now.size) < now.size // 2
    names = ("minor", "users", "runs", "title")
    own = {name: np.where(is_base, rows[f"{name}_base"][now], rows[f"{name}_new"][now]) for name in names}
    change = measure_change(rows["users_new"][then], own["users"], noise, (rows["runs_new"][then], own["runs"]))
    ratio = change["log_ratio"]
    same_version = (own["minor"] != "") & (own["minor"] == rows["minor_new"][then])
    is_drift = is_base & same_version
    rank = pd.factorize(both["key"])[0][now]
    sd, links = _robust_sd(np.where(is_drift, ratio, math.nan), rank)
    sd = np.where(links >= LEAST_COUNT, np.fmax(sd, math.sqrt(2.0) * noise.sd), math.nan)
    z = np.where(is_drift, ratio / sd, math.nan)
    between = [
        BetweenComparisons(
            type=rows["type"][now[i]],
            db_engine=rows["db"][now[i]] or None,
            sd_percent=float(_percent(sd[i])),
            links=int(links[i]),
        )
        for i in np.unique(rank, return_index=True)[1]
    ]
    drift = {
        **{name: rows[name][now] for name in ("order", "comparison", "test", "type", "db", "db_engine")},
        "against": rows["comparison"][then],
        "against_label": rows["title_new"][then],
        **change,
        "kind": np.where(is_base, DriftKind.SAME_VERSION, DriftKind.PREVIOUS_NEW),
        "side": np.where(is_base, "base", "new"),
        "label": own["title"],
        "same_version": same_version,
        "z": z,
        "jump": np.abs(z) > OUTLIER,
    }
    kept = np.lexsort((rank, drift["order"]))
    kept = kept[~np.isnan(ratio[kept])]
    return pd.DataFrame({name: column[kept] for name, column in drift.items()}), between


def _links(rows: dict[str, Array]) -> npt.NDArray[np.int64]:
    """Places of rows with levels, but for the first of each test, and of the rows that they are compared with."""
    previous: dict[str, int] = {}
    new: dict[tuple[str, str], int] = {}
    found = []
    columns = ("key", "minor_base", "minor_new", "users_base", "users_new")
    for row, (key, base, later, *users) in enumerate(zip(*(rows[name] for name in columns), strict=True)):
        if math.isnan(users[0]) and math.isnan(users[1]):
            continue
        if key in previous:
            found.append((row, new.get((key, base), previous[key])))
        previous[key] = row
        if later and not math.isnan(users[1]):
            new[key, later] = row
    return np.array(found, dtype=np.int64).reshape(-1, 2).T


def _robust_sd(log_ratio: Array, test: Array) -> tuple[Array, Array]:
    """For each row: the robust standard deviation around zero of its test, and from how many rows that is."""
    sd, count = np.full(log_ratio.shape, math.nan), np.zeros(log_ratio.shape, dtype=int)
    for each in range(test.max(initial=-1) + 1):
        mine = test == each
        known = np.abs(log_ratio[mine & ~np.isnan(log_ratio)])
        count[mine] = known.size
        if known.size:
            sd[mine] = MAD_TO_SD * np.median(known)
    return sd, count


def compare_databases(tests: pd.DataFrame, noise: Noise) -> pd.DataFrame:
    """Compare each pair of databases within each build: the later in the alphabet with the earlier.

    Rows as those of :func:`measure_drift`, with `pair` (of databases) and `flipped`: whether they stand in another
    order than with the last new build before. A comparison with several tests of one type and database is left out.
    """
    one = tests[tests["db"].ne("") & tests["key"].str.endswith("/")].rename(columns={"title": "label"})
    rows = one.merge(one, on=["order", "comparison", "type", "side"], suffixes=("_other", ""))
    rows = rows[rows["db_other"] < rows["db"]].reset_index(drop=True)
    rows = rows.assign(**measure_change(rows["users_other"], rows["users"], noise, (rows["runs_other"], rows["runs"])))
    rows = rows.dropna(subset=["log_ratio"]).assign(pair=lambda r: r["type"] + "/" + r["db_other"] + "/" + r["db"])
    rows = rows.sort_values(["order", "pair", "side"])
    new = rows["delta_percent"].where(rows["side"] == "new")
    last = new.groupby(rows["pair"]).transform(lambda each: each.ffill().shift())
    return rows.assign(
        kind=DriftKind.BETWEEN_DATABASES,
        against=rows["db_engine_other"],
        against_label=rows["label"],
        same_version=True,
        z=math.nan,
        jump=False,
        flipped=last * rows["delta_percent"] < 0,
    )


def find_error_changes(both: pd.DataFrame) -> pd.DataFrame:
    """Find the comparisons whose error counts changed as they do in no other comparison of the chain.

    Counts of errors have no published run-to-run deviation, so each change is compared with those of all others: it is
    reported where it is more than 3.5 robust standard deviations (the chance of counting, Poisson, included) and half
    or more. The first rule alone calls too much: published counts have heavier tails than a normal distribution (9 of
    25 bounded MySQL tests lie beyond it). Counts of unbounded tests are taken relative to the supported users; a test
    without an error in one build is left out.

    The frame has a row for each such test: the columns of `both`, and delta_percent (relative to the load),
    usual_percent (robust standard deviation over the chain), z, comparisons (how many that was learned from).
    """
    columns = ("errors_base", "errors_new", "users_base", "users_new")
    base, new, *users = (both[name].to_numpy(dtype=float) for name in columns)
    load = np.where(both["type"].to_numpy() == "unbounded", users[1] / users[0], 1.0)
    known = (base > 0) & (new > 0) & (load > 0)
    base, new = base[known], new[known]
    ratio = np.log(new / base / load[known])
    usual, count = _robust_sd(ratio, pd.factorize(both["key"])[0][known])
    z = ratio / np.sqrt(usual**2 + 1 / base + 1 / new)
    large = (np.abs(z) > OUTLIER) & (np.abs(ratio) > math.log(LEAST_ERROR_FACTOR)) & (count >= LEAST_COUNT)
    found = {"delta_percent": _percent(ratio), "usual_percent": _percent(usual), "z": z, "comparisons": count}
    rows: pd.DataFrame = both.iloc[np.flatnonzero(known)[large]]
    return rows.assign(**{name: each[large] for name, each in found.items()})


def measure_repeats(users: pd.Series, build: pd.Series) -> RepeatedMeasurements | None:
    """Pool the variance of positive levels within groups, one group for each `build`, with its chi-squared interval."""
    from scipy import stats

    groups = np.log(users).groupby(build)
    df = len(users) - groups.ngroups
    if df == 0:
        return None
    squares = float(((np.log(users) - groups.transform("mean")) ** 2).sum())
    low, high = (math.sqrt(squares / float(stats.chi2.ppf(p, df))) for p in (0.975, 0.025))
    sd_percent, ci_low, ci_high = (100.0 * math.expm1(sd) for sd in (math.sqrt(squares / df), low, high))
    return RepeatedMeasurements(sd_percent=sd_percent, ci_low=ci_low, ci_high=ci_high, df=df)


def _percent(log_ratio: Array) -> Array:
    return 100.0 * np.expm1(np.minimum(log_ratio, 700.0))
