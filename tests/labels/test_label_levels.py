"""Label tables from series per label, against a hand-made run whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from buildcompare.config.catalogue import read_catalogue
from buildcompare.labels import tables
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import histogram_quantile, label_levels, label_table
from buildcompare.recordings.recording import LabelSummary, Recording, Series
from buildcompare.results.codes import Pair
from buildcompare.stats.noise import label_frame
from quiet import compared
from support import users_curve

TIMES = 60.0 * np.arange(1, 61)


def recording(average: float, *, calls: float = 2.0) -> Recording:
    """An hour of one handler: slow and rare before 600 s, then `average` seconds, `calls` a second."""
    early = TIMES <= 600
    values = {
        "avg": np.where(early, 9.0, average),
        "p99": np.where(early, 10.0, 5 * average),
        "calls": np.where(early, 0.1, calls),
    }
    values["avg"][40] = math.nan
    labels = tuple(Series("api", "getPost", "seconds", TIMES, v, role="label", stat=s) for s, v in values.items())
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    load = Series("number-of-connected-devices", "Users", "users", 5.0 * np.arange(users.size), users)
    summaries = (LabelSummary("api", "getPost", "avg", 7.0),)
    return Recording((load, *labels), (0.0, 3600.0), stop_known=True, label_summaries=summaries)


def values_by_stat(of: Recording, window: tuple[float, float] | None) -> dict[str, float]:
    rows = label_levels(of, window)
    assert ({*rows["group"]}, {*rows["label"]}) == ({"api"}, {"getPost"})
    return dict(zip(rows["stat"], rows["value"], strict=True))


def test_an_average_is_weighted_with_its_calls() -> None:
    found = values_by_stat(recording(0.02), (0.0, 3600.0))
    truth = (10 * 0.1 * 9.0 + 49 * 2.0 * 0.02) / (10 * 0.1 + 49 * 2.0)
    assert (found["avg"], found["p99"]) == (pytest.approx(truth, rel=1e-12), pytest.approx(0.1))
    assert found["calls"] == pytest.approx((10 * 0.1 + 50 * 2.0) * 60)


def test_a_label_that_is_called_first_in_mid_window_counts_from_there() -> None:
    whole = recording(0.02)
    late = replace(whole, series=tuple(replace(s, times=s.times[30:], values=s.values[30:]) for s in whole.series))
    assert values_by_stat(late, (0.0, 3600.0))["calls"] == pytest.approx(30 * 2.0 * 60)


@pytest.mark.parametrize("shared", [1.0, 0.6, 1.5])
def test_a_label_that_stays_is_not_called_where_all_others_move(shared: float) -> None:
    rng, labels = np.random.default_rng(3), [f"l{i}" for i in range(25)]
    logs = rng.normal(0.0, 0.01, (6, 25)) + np.outer([0, 0, 0, 1, 1, 1], np.log([1.0, *[shared] * 23, 6.0]))
    runs = [label_frame([("api", each, "avg", v) for each, v in zip(labels, row, strict=True)]) for row in np.exp(logs)]
    of_test = tables.LabelTables(Pair(runs[:3], runs[3:]), steady=True, noise=LabelNoise(), whole=None)
    rows = {row.label: row for row, _ in tables.judge_label_tables(of_test, read_catalogue("http"))}
    assert not rows["l0"].status.changed
    assert (rows["l24"].status, rows["l24"].new / rows["l24"].base) == ("regression", pytest.approx(6.0, rel=0.05))


def test_without_series_the_source_s_own_summaries_count() -> None:
    bare = recording(0.02)
    bare = Recording(bare.series[:1], bare.window, stop_known=True, label_summaries=bare.label_summaries)
    assert values_by_stat(bare, (0.0, 3600.0)) == {"avg": 7.0}
    assert values_by_stat(recording(0.02), None) == {"avg": 7.0}


def test_a_label_table_is_of_the_steady_window_where_it_can_be() -> None:
    average, p99 = compared(recording(0.02), recording(0.03, calls=4.0)).labels
    assert (average.stat, average.window, p99.window) == ("avg", "steady", "steady")
    assert (average.base, average.delta_percent) == (pytest.approx(0.02), pytest.approx(50.0))
    assert average.calls.new == pytest.approx(2 * float(average.calls.base or 0))


def with_buckets() -> Recording:
    plain = recording(0.02)
    early = TIMES <= 600
    counted = {"0.1": np.where(early, 0.0, 1.0), "1": np.where(early, 0.0, 2.0), "+Inf": np.where(early, 50.0, 2.0)}
    counted["1"][45] = math.nan  # a point that is missing in one bucket: rounding, or a late scrape
    counted["+Inf"][45] = math.nan
    counted["0.1"][45] = math.nan
    buckets = tuple(
        Series("api", "getPost", "calls/s", TIMES, v, role="bucket", labels={"le": le}, stat="buckets")
        for le, v in counted.items()
    )
    return replace(plain, series=plain.series + buckets)


def test_a_percentile_comes_from_the_buckets_of_its_window() -> None:
    found = values_by_stat(with_buckets(), (600.0, 3600.0))
    assert found["p99"] == pytest.approx(0.1 + 0.9 * (0.99 * 2 - 1) / 1, rel=1e-12)
    found = values_by_stat(with_buckets(), (0.0, 600.0))
    assert found["p99"] == 1.0  # all of them beyond the last bound: at least that


def test_a_steady_window_is_never_held_against_a_whole_run() -> None:
    restless = replace(recording(0.03), series=tuple(s for s in recording(0.03).series if s.role == "label"))
    [average] = compared(recording(0.02), restless).labels
    assert (average.window, average.base, average.new) == ("whole_run", 7.0, 7.0)


INF = math.inf


@pytest.mark.parametrize(
    ("quantile", "bounds", "counts", "expected"),
    [
        (0.5, [1, 2, INF], [0, 10, 10], 1.5), (0.5, [1, 2, INF], [10, 10, 10], 0.5),
        (0.99, [1, 2, INF], [0, 0, 10], 2), (0.5, [1, 2, INF], [4, 3.9999999999, 8], 1),
        (0.5, [-1, 2, INF], [10, 10, 10], -1), (0.5, [1, 2, INF], [0, 0, 0], math.nan),
        (0.5, [1, 2], [1, 2], math.nan), (0.5, [INF], [1], math.nan),
    ],
)  # fmt: skip
def test_a_quantile_of_buckets(quantile: float, bounds: list[float], counts: list[float], expected: float) -> None:
    found = histogram_quantile(quantile, np.array(bounds, dtype=float), np.array(counts, dtype=float))
    assert found == pytest.approx(expected, nan_ok=True)


TOP = {"api": 10.0}


def labels_of(**values: float) -> pd.DataFrame:
    rows = [("api", *key.split("__"), value) for key, value in values.items()]
    return pd.DataFrame(rows, columns=["group", "label", "stat", "value"])


def test_labels_are_paired_by_name_and_none_is_dropped() -> None:
    base = labels_of(gone__avg=0.5, kept__avg=0.01, kept__p99=3.0, never__avg=math.nan, zero__avg=0.0, top__p99=10.0)
    new = labels_of(came__avg=0.7, kept__avg=0.0115, kept__p99=10.0, never__avg=1.0, zero__avg=0.001, top__p99=10.0)
    table = label_table(base, new, top_buckets=TOP)
    assert [*zip(table["label"], table["reason"].fillna("-"), table["reason_build"].fillna("-"), strict=True)] == [
        ("came", "only_in", "new"), ("gone", "only_in", "base"), ("kept", "-", "-"),
        ("kept", "beyond_last_bucket", "new"), ("never", "never_called", "base"),
        ("top", "beyond_last_bucket", "-"), ("zero", "too_short_to_measure", "base"),
    ]  # fmt: skip
    rows = {(row.label, row.stat): row for row in table.itertuples()}
    assert (rows["gone", "avg"].only_in, rows["came", "avg"].only_in, rows["came", "avg"].new) == ("base", "new", 0.7)
    assert rows["kept", "avg"].delta_percent == pytest.approx(15.0)
    assert {key for key, row in rows.items() if np.isfinite(row.delta_percent)} == {("kept", "avg")}
    assert (rows["kept", "p99"].base_at_least, rows["kept", "p99"].new_at_least) == (False, True)
    assert (rows["top", "p99"].base_at_least, rows["top", "p99"].new_at_least) == (True, True)


def test_an_average_beyond_the_last_bucket_is_a_value() -> None:
    (row,) = label_table(labels_of(slow__avg=30.0), labels_of(slow__avg=33.0), top_buckets=TOP).itertuples()
    assert (row.base_at_least, row.new_at_least, row.delta_percent) == (False, False, pytest.approx(10.0))


def test_repeated_runs_are_averaged_and_calls_are_columns() -> None:
    base = pd.concat([labels_of(a__avg=1.0, a__calls=10.0), labels_of(a__avg=3.0, a__calls=30.0)])
    (row,) = label_table(base, labels_of(a__avg=4.0)).itertuples()
    assert (row.base, row.new, row.delta_percent, row.base_calls) == (2.0, 4.0, pytest.approx(100.0), 20.0)
    assert math.isnan(row.new_calls)


def test_a_table_without_its_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="base: expected the columns group, label, stat, value, found no stat"):
        label_table(labels_of(a__avg=1.0).drop(columns="stat"), labels_of(a__avg=1.0))
