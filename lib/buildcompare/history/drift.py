"""Measure drift, database order, unusual error counts and repeats on the frame of a ledger.

Each comparison measures the version that the one before called new once more, as its base. A difference between the two
is no change of the build: it is run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from buildcompare.results import BetweenComparisons, RepeatedMeasurements
from buildcompare.results.codes import SIDES, DriftKind
from buildcompare.stats.noise import Noise

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
OUTLIER = 3.5
"""Modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5
"""A median over fewer comparisons says nothing."""
LEAST_ERROR_FACTOR = 1.5
"""Smaller changes of error counts are not reported: half as many again, or a third fewer."""


def measure_change(
    before: Sequence[float] | pd.Series,
    value: Sequence[float] | pd.Series,
    noise: Noise,
    runs: tuple[Sequence[float] | pd.Series | int, Sequence[float] | pd.Series | int] = (1, 1),
) -> pd.DataFrame:
    """Compare levels pairwise, with the interval that the noise of single runs gives.

    Parameters
    ----------
    before, value
        Levels of n pairs, each the mean over some runs; a missing level is NaN.
    noise
        Run-to-run noise of a single run (log scale).
    runs
        How many runs stand behind `before` and behind `value`.

    Returns
    -------
    DataFrame
        n rows, index of `before`: before, value, log_ratio, delta_percent, ci_low, ci_high (95 %, in percent), p_value.
        All but the first two are NaN where a level is missing or not positive.

    Examples
    --------
    >>> noise = Noise(sd=0.018, df=math.inf, noise_source="catalogue")
    >>> measure_change([8638.0], [6537.0], noise)[["delta_percent", "ci_low", "ci_high"]].round(1)
       delta_percent  ci_low  ci_high
    0          -24.3   -28.0    -20.5
    """
    from scipy import stats

    found = pd.DataFrame({"before": before, "value": value}, dtype="float64")
    usable = ((found > 0) & (found < math.inf)).all(axis=1)
    ratio = (found["value"] / found["before"]).where(usable).map(math.log, na_action="ignore")
    sd = noise.sd * np.sqrt(1 / np.asarray(runs[0], dtype=float) + 1 / np.asarray(runs[1], dtype=float))
    half = float(stats.t.ppf(0.975, noise.df)) * sd
    return found.assign(
        log_ratio=ratio,
        delta_percent=_percent(ratio),
        ci_low=_percent(ratio - half),
        ci_high=_percent(ratio + half),
        p_value=2 * stats.t.sf(ratio.abs() / sd, noise.df),
    )


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
    """Compare each comparison with the one that measured its base's version before, test by test.

    That is the last comparison whose new build is of that version, so that one that was recorded late, or belongs to an
    older line of releases, does not break the chain of the others; without any, it is the one before. A comparison
    without levels is skipped.

    A drift of the same version is a jump where its modified z-score exceeds 3.5: the log ratio over 1.4826 times the
    median absolute log ratio of the test (its center is zero, where the same version belongs), which is never taken for
    less than the noise of two single runs. Of drawn chains without a jump, whose batches scatter by 8 %, 4 to 6 % have
    one by this rule, with 5 links or with 33 (tests/history/test_drift.py).

    Parameters
    ----------
    both
        The tests of a chain, as :func:`beside` makes them.
    noise
        Of one run's supported users.

    Returns
    -------
    drift
        Two rows for each linked test: `same_version` (this base with the previous new) and `previous_new` (this new
        with the previous new), in the order of the chain.
    between
        By test, how far the same version lies apart; only tests with a link.
    """
    both = both.assign(rank=pd.factorize(both["key"])[0])
    known = both[both["users_base"].notna() | both["users_new"].notna()]
    earlier = _earlier(known)
    now = known[earlier.notna()].reset_index(drop=True)
    then = known.loc[earlier.dropna()].reset_index(drop=True)
    shared = now[["order", "rank", "comparison", "test", "type", "db", "db_engine"]]
    shared = shared.assign(against=then["comparison"], against_label=then["title_new"])
    made = []
    for kind, side in ((DriftKind.SAME_VERSION, "base"), (DriftKind.PREVIOUS_NEW, "new")):
        change = measure_change(then["users_new"], now[f"users_{side}"], noise, (then["runs_new"], now[f"runs_{side}"]))
        same = now[f"minor_{side}"].ne("") & now[f"minor_{side}"].eq(then["minor_new"])
        made.append(shared.join(change).assign(kind=kind, side=side, label=now[f"title_{side}"], same_version=same))
    drift = pd.concat(made, ignore_index=True)
    is_drift = drift["kind"].eq(DriftKind.SAME_VERSION) & drift["same_version"]
    size = drift["log_ratio"].abs().where(is_drift).groupby(drift["rank"])
    links = size.transform("count")
    sd = (MAD_TO_SD * size.transform("median")).clip(lower=math.sqrt(2.0) * noise.sd).where(links >= LEAST_COUNT)
    z = (drift["log_ratio"] / sd).where(is_drift)
    drift = drift.assign(z=z, jump=z.abs() > OUTLIER, links=links, sd_percent=_percent(sd))
    tested = drift.drop_duplicates("rank").sort_values("rank")[["type", "db", "sd_percent", "links"]]
    between = [
        BetweenComparisons(type=kind, db_engine=db or None, sd_percent=sd_percent, links=count)
        for kind, db, sd_percent, count in tested.itertuples(index=False)
    ]
    return drift.dropna(subset=["log_ratio"]).sort_values(["order", "rank"], kind="stable"), between


def _earlier(known: pd.DataFrame) -> pd.Series:
    """For each row the index of the row that it is compared with; NaN for the first of its test."""
    previous: dict[str, int] = {}
    new: dict[tuple[str, str], int] = {}
    found: list[int | None] = []
    columns = (known[name] for name in ("key", "minor_base", "minor_new", "users_new"))
    for row, key, base, later, users in zip(known.index, *columns, strict=True):
        found.append(new.get((key, base), previous.get(key)))
        previous[key] = row
        if later and not math.isnan(users):
            new[key, later] = row
    return pd.Series(found, known.index, dtype="float64")


def compare_databases(tests: pd.DataFrame, noise: Noise) -> pd.DataFrame:
    """Compare each pair of databases within each build: the later in the alphabet with the earlier.

    Rows as those of :func:`measure_drift`, with `pair` (of databases) and `flipped`: whether they stand in another
    order than with the last new build before. A comparison with several tests of one type and database is left out.
    """
    one = tests[tests["db"].ne("") & tests["key"].str.endswith("/")].rename(columns={"title": "label"})
    rows = one.merge(one, on=["order", "comparison", "type", "side"], suffixes=("_other", ""))
    rows = rows[rows["db_other"] < rows["db"]].reset_index(drop=True)
    rows = rows.join(measure_change(rows["users_other"], rows["users"], noise, (rows["runs_other"], rows["runs"])))
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
    25 bounded MySQL tests lie beyond it). Counts of unbounded tests are taken relative to the supported users.

    Parameters
    ----------
    both
        The tests of a chain, as :func:`beside` makes them. Those without an error in one build are left out.

    Returns
    -------
    DataFrame
        One row for each such test: the columns of `both`, and delta_percent (relative to the load), usual_percent
        (robust standard deviation over the chain), z, comparisons (how many that was learned from).
    """
    load = (both["users_new"] / both["users_base"]).where(both["type"] == "unbounded", 1.0)
    known = (both["errors_base"] > 0) & (both["errors_new"] > 0) & (load > 0)
    found = both[known].assign(ratio=np.log(both["errors_new"][known] / both["errors_base"][known] / load[known]))
    size = found["ratio"].abs().groupby(found["key"])
    usual = MAD_TO_SD * size.transform("median")
    z: pd.Series = found["ratio"] / np.sqrt(usual**2 + 1 / found["errors_base"] + 1 / found["errors_new"])
    found = found.assign(
        delta_percent=_percent(found["ratio"]),
        usual_percent=_percent(usual),
        z=z,
        comparisons=size.transform("count"),
    )
    large = (z.abs() > OUTLIER) & (found["ratio"].abs() > math.log(LEAST_ERROR_FACTOR))
    return found[large & (found["comparisons"] >= LEAST_COUNT)]


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


def _percent(log_ratio: pd.Series) -> pd.Series:
    percent: pd.Series = 100.0 * np.expm1(log_ratio.clip(upper=700.0))
    return percent
