"""Make a recording of single requests: rate, failures and times in each interval, for all requests and by endpoint.

Times are counted in buckets 2 % wide, so that a test of any length fits in memory. Counts and means are exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.labels.tables import OTHERS as RARE
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import LATEST, TESTED, FloatArray, LabelSummary, Note, Series

GROUP = "endpoint"
FAILURES = "failed-requests", "Failed requests", "requests/s"
CHECKS = "Check success rate"
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
WIDTH = 1.02  # ratio of two bounds of neighbouring buckets: the largest relative error of a percentile is 2 %
SHORTEST_S, LONGEST_S = 1e-5, 7200.0  # bounds of request times; times outside are clipped to them
AROUND_S = 10.0
"""Seconds over which a graph's times are taken, as Locust's are: the geometric mean of shorter ones hides pauses and
depends on how many requests they have (92 instead of 110 a second: P99 +14 %)."""
STEPS_S = (1, 5, 10, 30, 60, 300)
MOST_SAMPLES, MOST_LABEL_SAMPLES = 1_000, 60
"""Most samples of a graph, and of an endpoint; the step is the shortest of `STEPS_S` within this limit."""
MOST_ENDPOINTS, MOST_NAMES = 150, 200_000  # most endpoints (rarer ones are `OTHERS`), and most names that are counted
OTHERS = f"{RARE}endpoints)"
MOST_NEW = 500_000  # counts that wait to be summed; more may wait if the sums so far have more rows
LONGEST_RUN_S = 8 * 86_400
SETTLE_S = 4.0
"""Rate window of these files: a steady window begins this long after the ramp, and lasts at least five times that."""
_BOUNDS = SHORTEST_S * WIDTH ** np.arange(math.ceil(math.log(LONGEST_S / SHORTEST_S, WIDTH)) + 1)
_ID = re.compile(r"(?i)\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=.*\d)[0-9a-f]{8,}|(?=.*\d)[a-z0-9_-]{20,}")
_COLUMNS = ["requests", "seconds", "failed"]
_CODE_BITS, _BUCKET_BITS = MOST_NAMES.bit_length(), _BOUNDS.size.bit_length()
"""Bits of endpoint and bucket in the key of a request, a whole number made of second, endpoint and bucket."""


@lru_cache(65_536)
def endpoint_of(method: str, address: str) -> str:
    """Name the endpoint of a request: method and path, without host and query, its ids as ``{id}``.

    Examples
    --------
    >>> endpoint_of("GET", "https://shop.example/users/42/orders?page=3")
    'GET /users/{id}/orders'
    """
    address = address.removeprefix("${}").replace("${}", "{id}")  # what k6 makes of http.url`...`
    path = (urlsplit(address).path or "/") if "://" in address else address.partition("?")[0]
    masked = "/".join("{id}" if _ID.fullmatch(part) else part for part in path.split("/"))
    return f"{method} {masked}".strip()


def in_seconds(times: FloatArray) -> FloatArray:
    """Convert times since 1970 to seconds; their size tells whether they are milliseconds or finer."""
    while times.size and LATEST <= times.max() < np.inf:
        times = times / 1e3
    return times


def span_of(times: npt.NDArray[Any], file: InputFile) -> tuple[float, float]:
    """Return the first and last of times in seconds since 1970, which must be those of one run."""
    start, end = float(times.min()), float(times.max())
    if not TESTED[0] <= start <= end < TESTED[1]:
        expected = "times from 2000 to 2037 in the unit of the format"
        raise file.fault("times", expected, f"{start:.12g} to {end:.12g} s since 1970")
    if end - start > LONGEST_RUN_S:
        raise file.fault("times", f"a run of at most {LONGEST_RUN_S // 86_400} days", f"{end - start:,.0f} s")
    return start, end


class RequestLog:
    """Requests of one run, counted piece by piece."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        self._codes: dict[str, int] = {}
        self._pieces: list[pd.DataFrame] = []
        self._users: list[pd.Series] = []
        self._checks: list[pd.DataFrame] = []
        self._new = 0  # rows since the pieces were last summed
        self.left_out = np.empty(0, dtype=np.int64)  # numbers of endpoints whose requests count for other endpoints
        self.most_users = 0.0  # stated users; a run that stays below uses them to hold a rate: they are no load
        self.dropped_s = math.inf  # when the first iteration was dropped: before the last twentieth, a rate is held
        self.zero_s = 0.0  # where the run's elapsed time begins, in a file without dates
        self.notes: tuple[Note, ...] = ()

    def codes(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return a number for each endpoint's name."""
        codes = [self._codes.setdefault(name, len(self._codes)) for name in names]
        if len(self._codes) > MOST_NAMES:
            expected = f"at most {MOST_NAMES:,} names of requests (give similar addresses one name)"
            raise self.file.fault("endpoints", expected, "more")
        return np.array(codes, dtype=np.int64)

    def add(
        self,
        times: npt.NDArray[Any],
        codes: npt.NDArray[np.int64],
        *,
        elapsed_s: FloatArray | None = None,
        failed: npt.NDArray[np.bool_] | None = None,
        rounded_s: float = 0.0,
    ) -> None:
        """Count requests by second and endpoint; without `elapsed_s` only failures, of requests counted elsewhere.

        For percentiles, durations that are multiples of `rounded_s` are spread evenly around these.
        """
        if elapsed_s is not None and not (np.isfinite(elapsed_s).all() and (elapsed_s >= 0).all()):
            raise self.file.fault(None, "durations of requests of 0 or more", "negative or missing ones")
        if not times.size:
            return
        span_of(times, self.file)
        lasted = np.zeros(times.size) if elapsed_s is None else elapsed_s
        around = (np.arange(times.size) * 0.618034 % 1.0 - 0.5) * rounded_s
        bucket = np.minimum(np.searchsorted(_BOUNDS, np.where(lasted > 0, lasted + around, 0.0)), _BOUNDS.size - 1)
        of_second = (np.floor(times).astype(np.int64) << _CODE_BITS) | codes
        keys, row = np.unique((of_second << _BUCKET_BITS) | bucket, return_inverse=True)
        sums = {
            "requests": np.bincount(row) if elapsed_s is not None else np.zeros(keys.size, dtype=np.int64),
            "seconds": np.bincount(row, lasted),
            "failed": np.zeros(keys.size) if failed is None else np.bincount(row, failed),
        }
        self._pieces.append(pd.DataFrame(sums, index=keys))
        self._new += keys.size
        if self._new > max(MOST_NEW, len(self._pieces[0])):
            self._pieces, self._new = [self._counted()], 0

    def add_users(self, times: FloatArray, users: FloatArray) -> None:
        """Note how many users are connected; the largest number of a second counts."""
        if users.size:
            self._users.append(pd.Series(users).groupby(np.floor(times)).max())

    def add_checks(self, times: FloatArray, passed: FloatArray) -> None:
        """Note checks of answers by k6: 1 for each that passed, else 0."""
        self._checks.append(pd.DataFrame({"passed": passed, "all": 1.0}).groupby(np.floor(times)).sum())

    def _counted(self) -> pd.DataFrame:
        return pd.concat(self._pieces).groupby(level=0, sort=False).sum()

    def recording(self, catalogue: Catalogue, kind: str) -> Recording:
        """Make the recording."""
        counts = self._counted() if self._pieces else pd.DataFrame(columns=_COLUMNS)
        if not counts["requests"].sum():
            raise self.file.fault("requests", "at least one", "none")
        of_second, bucket = np.divmod(counts.index.to_numpy(), 1 << _BUCKET_BITS)
        seconds, codes = np.divmod(of_second, 1 << _CODE_BITS)
        counts = counts.assign(second=seconds - self.zero_s, code=codes, bucket=bucket)[~np.isin(codes, self.left_out)]
        first, last = (each - self.zero_s for each in span_of(seconds, self.file))
        start, end = int(first), int(last) + 1
        most = counts.groupby("code")["requests"].sum().nlargest(MOST_ENDPOINTS).index
        counts["code"] = counts["code"].where(counts["code"].isin(most), len(self._codes))
        names = [*self._codes, OTHERS]
        at, step = _ends(start, end, MOST_SAMPLES)
        connected = None
        users = pd.concat(self._users).groupby(level=0).max() if self._users else pd.Series(dtype=float)
        if users.size and users.max() >= self.most_users and self.dropped_s > last - (last - first) / 20:
            place = np.searchsorted(at, users.index.to_numpy(dtype=float), side="right")
            connected = users.groupby(place).mean().reindex(range(at.size)).ffill().bfill(limit=1).to_numpy(dtype=float)
        series = [*aggregated(_by_interval(counts, at, step, AROUND_S)[0], catalogue, users=connected)]
        if self._checks:
            series.append(_passed(pd.concat(self._checks), at, int(AROUND_S / step), catalogue))
        at, step = _ends(start, end, MOST_LABEL_SAMPLES)
        summaries: list[LabelSummary] = []
        for code, rows in counts.groupby("code"):
            name = names[int(str(code))]
            requests, buckets, bounds = _by_interval(rows, at, step)
            series += [*labelled(requests, name), *_buckets(at, buckets / step, bounds, name)]
            summaries += _summary(rows, name)
        window = (float(start), float(end))
        about = {"kind": kind, "files": [self.file.provenance], "rate_s": max(SETTLE_S, series[0].step_s)}
        return Recording(tuple(series), window, True, tuple(summaries), notes=self.notes, provenance=about)


def _ends(start: int, end: int, most: int) -> tuple[FloatArray, int]:
    """Choose the ends of at most `most` whole intervals, and their length."""
    seconds = end - start
    step = min(seconds, next((step for step in STEPS_S if seconds <= step * most), math.ceil(seconds / most)))
    return np.arange(start + step, end + 1, step, dtype=np.float64), step


class Intervals(NamedTuple):
    """Requests of successive intervals, all of shape (n,)."""

    at: FloatArray  # end of each interval in seconds since 1970
    lasting_s: FloatArray
    requests: FloatArray
    sums_s: FloatArray  # sum of the request times
    failed: FloatArray
    shares_s: Mapping[str, FloatArray]  # statistic -> percentile of the times


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))


def _by_interval(
    counts: pd.DataFrame, at: FloatArray, step: int, around_s: float = 0.0
) -> tuple[Intervals, FloatArray, FloatArray]:
    """Sum counts by interval, also by bucket, and return the buckets' bounds; the last is left out if not whole.

    Percentiles are those of the requests of `around_s` seconds around each interval.
    """
    place = ((counts["second"] - (at[0] - step)) // step).to_numpy(dtype=np.int64)
    used, column = np.unique(counts["bucket"].to_numpy(), return_inverse=True)
    rows, place, column = (each[place < at.size] for each in (counts, place, column))
    requests, sums, failed = (np.bincount(place, rows[name], at.size).astype(float) for name in _COLUMNS)
    cell, bounds = place * used.size + column, _BOUNDS[used]
    buckets = np.bincount(cell, rows["requests"], at.size * used.size).reshape(at.size, -1).astype(np.float64)
    near = _around(buckets, int(around_s / step))
    shares = {stat: _quantile(part, near, bounds) for stat, part in PERCENTILES.items()}
    return Intervals(at, np.full(at.size, step), requests, sums, failed, shares), buckets, bounds


def _around(values: FloatArray, intervals: int) -> FloatArray:
    """Sum the rows of so many successive intervals around each one; at the ends these are the first and the last."""
    summed = np.concatenate([np.zeros((1, *values.shape[1:])), values.cumsum(axis=0)])
    wide = min(max(intervals, 1), len(values))
    first = (np.arange(len(values)) - wide // 2).clip(0, len(values) - wide)
    return np.asarray(summed[first + wide] - summed[first])


def _quantile(quantile: float, counts: FloatArray, bounds: FloatArray) -> FloatArray:
    """Compute a quantile of each row of counts by bucket; NaN without any."""
    summed = counts.cumsum(axis=1)
    index = (summed < quantile * summed[:, -1:]).sum(axis=1).clip(max=bounds.size - 1)
    return np.where(summed[:, -1] > 0, bounds[index] / math.sqrt(WIDTH), np.nan)


def aggregated(all_requests: Intervals, catalogue: Catalogue, *, users: FloatArray | None = None) -> Iterable[Series]:
    """Yield the graphs of all requests: rate, times, successes, failures and users."""
    failures = all_requests.failed / all_requests.lasting_s
    near = int(AROUND_S / np.median(all_requests.lasting_s))
    counts = (all_requests.sums_s, all_requests.failed, all_requests.requests)
    sums_s, failed, requests = (_around(np.nan_to_num(each), near) for each in counts)
    part = _ratio(all_requests.failed, all_requests.requests)
    part = np.where(np.isnan(part), _ratio(failed, requests), part)  # where a second has no request
    values = {
        "Requests": all_requests.requests / all_requests.lasting_s,
        "Response time": _ratio(sums_s, requests),
        **{f"{stat.upper()} response time": share for stat, share in all_requests.shares_s.items()},
        "Successful requests": 100.0 - 100.0 * part,
    }
    for name, numbers in {**values, **({} if users is None else {"Users": users})}.items():
        metric = catalogue.find(name)
        yield Series(metric.slug, name, metric.unit, all_requests.at, numbers)
    yield Series(*FAILURES, all_requests.at, failures, role="error")


def _passed(checks: pd.DataFrame, at: FloatArray, intervals: int, catalogue: Catalogue) -> Series:
    """Return the percentage of checks that passed, over so many intervals around each one."""
    place = np.searchsorted(at, checks.index.to_numpy(dtype=float), side="right")
    sums = checks.groupby(place).sum().reindex(range(at.size), fill_value=0.0)
    passed, counted = (_around(sums[each].to_numpy(dtype=np.float64), intervals) for each in ("passed", "all"))
    return Series(catalogue.find(CHECKS).slug, CHECKS, "percent", at, 100.0 * _ratio(passed, counted))


def labelled(requests: Intervals, label: str) -> Iterable[Series]:
    """Yield the calls, mean, percentiles and failures of one endpoint."""
    values = {"calls": requests.requests / requests.lasting_s, "avg": _ratio(requests.sums_s, requests.requests)}
    for stat, numbers in {**values, **requests.shares_s}.items():
        if stat in values or not requests.requests.any() or np.isfinite(numbers).any():
            yield Series(GROUP, label, "seconds", requests.at, numbers, role="label", stat=stat)
    yield Series(*FAILURES, requests.at, requests.failed / requests.lasting_s, role="error", labels={GROUP: label})


def _buckets(at: FloatArray, rates: FloatArray, bounds: FloatArray, label: str) -> Iterable[Series]:
    """Yield requests per second of one endpoint at or below each bound."""

    def at_most(bound: str, values: FloatArray) -> Series:
        return Series(GROUP, label, "seconds", at, values, role="bucket", labels={"le": bound})

    below, edge = np.zeros(at.size), 0.0
    for bound, column in zip(bounds, rates.T, strict=True):
        if edge < bound / WIDTH * 0.999:  # empty buckets before this one
            yield at_most(f"{bound / WIDTH:.9g}", below)
        below, edge = below + column, bound
        yield at_most(f"{bound:.9g}", below)
    yield at_most("+Inf", below)


def _summary(rows: pd.DataFrame, label: str) -> Iterable[LabelSummary]:
    """Count and average one endpoint's requests of the whole run exactly, and compute percentiles."""
    requests = int(rows["requests"].sum())
    yield LabelSummary(GROUP, label, "calls", float(requests))
    if not requests:
        return
    yield LabelSummary(GROUP, label, "avg", float(rows["seconds"].sum()) / requests)
    counts = rows.groupby("bucket")["requests"].sum()
    for stat, part in PERCENTILES.items():
        value = _quantile(part, counts.to_numpy(dtype=float)[None, :], np.asarray(_BOUNDS[counts.index]))[0]
        yield LabelSummary(GROUP, label, stat, float(value))
