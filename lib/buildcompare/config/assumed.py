"""Recognise the catalogue of a set of metrics; assume the units and directions of unlisted metrics from their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from buildcompare.config.catalogue import (
    FAILED,
    SUCCEEDED,
    Catalogue,
    LabelTable,
    Metric,
    Operation,
    catalogue_names,
    read_catalogue,
    slugify,
)
from buildcompare.config.units import LASTS, OF_SYSTEM, OF_WORDS
from buildcompare.results.codes import Better

_PART = re.compile(r"\b(?:(\d\d(?:\.\d+)?)\s*%(?:ile)?|(?:pct|tp)(\d\d))")  # `95%`, `pct95` are percentiles
_AGES = r"(uptime|age|timestamp|created|start-time)"
_PER = r"per-(second|sec|s|minute|min|millisecond|ms)"
_RATE = re.compile(
    r"(?<![a-z])((?:rows|records|events|messages|msgs|ops|operations|reqs|requests|queries|transactions|txns|calls|jobs"
    r"|items|docs|documents|points|samples|spans|lines|errors|packets|frames|hits|reads|writes|inserts|updates|deletes"
    r"|commits|bytes|tuples|tasks|tokens|iterations|objects|users)|[kmg]i?b)-(s|secs?)$"
)
"""Short form of a rate, such as ``rows_s`` or ``mb_sec``. After other words, ``_s`` means seconds, as in ``dns_s``."""
_SET = r"((timeout|ttl|interval|period|think-time|idle-time|mtbf|(session|test)-duration)-([mun]?s|seconds?))$"
_STAT = r"mean|avg|average|median|max|p\d+"
_USE = (
    r"bytes|[kmgt]i?b|[kmg]?bits?|packets|faults|switches|alloc\w*|gcs?|pauses|time|cpu|seconds|ms|us|interrupts|lines"
    r"|reads|writes|fsyncs|syscalls|scans"
)
_DIRECTIONS = {
    OF_SYSTEM: (Better.NEUTRAL, False),
    _SET: (Better.NEUTRAL, False),
    r"(free|available|remaining|headroom)": (Better.HIGHER, False),
    rf"({FAILED}|(http|status|code)-[45]\d\d|non-2xx)": (Better.LOWER, True),
    rf"(latency|duration|delay|rtt|ttfb|elapsed|resptime|({_STAT})-response$|rt(-({_STAT}))?$)": (Better.LOWER, True),
    _AGES: (Better.NEUTRAL, False),
    r"((?<!per-)(ms|us|ns|[mun]secs?|(milli|micro|nano)(s|seconds?))$)": (Better.LOWER, True),
    r"(retries|restarts|miss(es)?|deadlocks|slow|throttled|evictions|kills|aborts?|rollbacks?)": (Better.LOWER, False),
    r"(waits|disconnects|reconnects|retransmits|refused|cancell?ed|blocked|stalls|rejections?)": (Better.LOWER, False),
    r"(crash(es)?|panics|warnings|conflicts|violations|lost|loss|jitter|saturation|io-?wait)": (Better.LOWER, False),
    r"(invalid|bad|duplicates?|skipped|unhandled|lagging|utili[sz]ation)": (Better.LOWER, False),
    rf"(({_USE})(-[a-z]+)?-{_PER})": (Better.NEUTRAL, False),
    rf"(throughput|goodput|apdex(-score)?$|[rqtf]ps|tpmc?|{_PER}|requests-s|{SUCCEEDED})": (Better.HIGHER, True),
    r"(hits?|idle)": (Better.HIGHER, False),
    r"(cpu|memory|mem|heap|rss|ram|stack|swap|gc|threads|goroutines|queue|backlog|lag|allocs?)": (Better.LOWER, False),
    r"(percent|pct|percentage)": (Better.NEUTRAL, False),
    rf"({LASTS}|(seconds?|secs?|s)$|(ms|us|ns|seconds?|secs?)-per-[a-z]+$|mspt)": (Better.LOWER, True),
}
"""Words in a name -> better direction, and True if a regression fails the comparison. The first match counts."""
SUCCESS_MARGIN_PERCENT = 0.1
"""Margin in percent for the fraction of successful requests. The catalogue `http` uses the same margin."""
_TIMED = {"unit": "seconds", "better": Better.LOWER, "gate": True}
_TIMED["margin_percent"] = Operation.model_fields["margin_percent"].default
_LOAD = r"(users|vus|clients|concurrency|user-count|all-threads)$"


class OpenCatalogue(Catalogue):
    """A catalogue that assumes the unit and direction of metrics that it does not list."""

    metrics: tuple[Metric, ...] = ()

    def find(self, name: str) -> Metric:
        """Return the listed metric for `name`, else a metric assumed from the words of `name`."""
        metric = super().find(name)
        return metric if metric.known or any(metric is each for each in self.metrics) else assumed_metric(name)


def with_assumed(catalogue: Catalogue, units: Mapping[str, str]) -> Catalogue:
    """Return a copy of `catalogue` that also lists the metrics in `units`, a mapping from name to unit."""
    metrics = [*catalogue.metrics]
    for name, unit in units.items():
        metric = catalogue.find(name)
        if not metric.known and metric.slug not in {each.slug for each in metrics}:
            load = metric.load and not any(each.load for each in metrics)
            neutral = metric.better == Better.NEUTRAL and not _words(f"{_AGES}|{_SET}", metric.slug)
            timed = unit == "seconds" and neutral
            metrics.append(metric.model_copy(update={"unit": unit, "load": load} | (_TIMED if timed else {})))
    return catalogue.model_copy(update={"metrics": tuple(metrics)})


def with_times(catalogue: Catalogue, units: Iterable[tuple[str, str]]) -> Catalogue:
    """Add unlisted metrics in seconds to the catalogue, so that an increase beyond the margin fails the comparison.

    `units` holds pairs of name and unit. The margin is the default margin of an :class:`Operation`. If a metric's name
    already implies seconds, such as ``uptime_seconds``, :func:`assumed_metric` sets direction, margin and gate instead.
    """
    timed = [catalogue.find(name) for name, unit in dict.fromkeys(units) if unit == "seconds"]
    assumed = [assumed_metric(metric.name) for metric in timed if not metric.known]
    times = {each.slug: each if each.unit == "seconds" else each.model_copy(update=_TIMED) for each in assumed}
    others = (metric for metric in catalogue.metrics if metric.slug not in times)
    return catalogue.model_copy(update={"metrics": (*others, *times.values())})


@lru_cache(maxsize=1_000)
def assumed_metric(name: str) -> Metric:
    """Assume from a metric's name its unit, its better direction, and whether a regression fails the comparison (gate).

    Examples
    --------
    >>> metric = assumed_metric("checkout_duration_ms")
    >>> metric.unit, str(metric.better), metric.gate
    ('ms', 'lower', True)
    """
    spelled = _PART.sub(r"p\1\2 ", name).replace("%", " percent ")
    spelled = re.sub(r"/\s*(s|secs?|seconds?)(?!\w)", " per second", spelled)
    slug = slugify(re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z0-9])", "_", spelled))
    slug, unit = _RATE.sub(r"\1-per-second", slug), ""
    for pattern, unit_of_words in OF_WORDS.items():
        if words := _words(pattern, slug):
            unit = unit_of_words.format(words.partition("-")[0].upper().replace("IB", "iB"))
            break
    rules = (rule for pattern, rule in _DIRECTIONS.items() if _words(pattern, slug))
    better, gate = next(rules, (Better.NEUTRAL, False))
    load = better == Better.NEUTRAL and bool(_words(_LOAD, slug))
    metric = Metric(name=name, slug=slugify(name), unit=unit, better=better, gate=gate, load=load, known=False)
    margin = {"margin_percent": SUCCESS_MARGIN_PERCENT} if metric.outcome == "successes" else {}
    return metric.model_copy(update=margin)


def _words(pattern: str, slug: str) -> str:
    match = re.search(rf"(?:^|-)({pattern})(?:-|$)", slug)
    return match[1] if match else ""


def open_catalogue(names: Iterable[str] | None = None) -> OpenCatalogue:
    """Merge the named catalogues, or all catalogues by default. If metrics have the same slug, the first is kept."""
    read = [read_catalogue(name) for name in (catalogue_names() if names is None else names)]
    metrics: dict[str, Metric] = {}
    tables: dict[str, LabelTable] = {}
    variables: dict[str, str] = {}
    for each in read:
        metrics = {metric.slug: metric for metric in each.metrics} | metrics
        tables = {table.group: table for table in each.label_tables} | tables
        variables = each.variables | variables
    only = read[0] if len(read) == 1 else None
    return OpenCatalogue.model_construct(
        prior_source=only.prior_source if only else None,
        variables=variables,
        metrics=tuple(metrics.values()),
        label_tables=tuple(tables.values()),
        alerts=only.alerts if only else (),
        error_rates=only.error_rates if only else (),
    )


def given_or_open(catalogue: str | Catalogue | None) -> Catalogue:
    """Return a given catalogue unchanged, or read the one of this name or path; for None, merge all catalogues."""
    return open_catalogue() if catalogue is None else read_catalogue(catalogue)


def recognised(names: Iterable[str]) -> str | None:
    """Return the name of the catalogue that lists the most of these metrics; None if no catalogue qualifies.

    A catalogue qualifies if it lists at least half of the metrics. At least one of the listed metrics must have a name
    of several words (names such as `cpu` are too common), and must be the load or a metric that decides the verdict.
    """
    names, best = [*names], (0, "")
    for each in catalogue_names():
        catalogue = read_catalogue(each)
        matches = [(name, metric) for name in names if (metric := catalogue.find(name)).known]
        telling = any((metric.gate or metric.load) and "-" in slugify(name) for name, metric in matches)
        if telling and 2 * len(matches) >= len(names) and len(matches) > best[0]:
            best = len(matches), each
    return best[1] or None
