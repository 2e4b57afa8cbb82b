"""The catalogue: names, queries, units and better directions of metrics."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from buildcompare.config.errors import InputError, meant
from buildcompare.config.project import places, read_text, resolve
from buildcompare.config.units import TIMES
from buildcompare.config.yaml import MAX_BYTES, checked, read_yaml, refuse
from buildcompare.results.codes import Better, TestType

Role = Literal["graph", "label", "bucket", "summary", "alert", "error", "resets"]
FOLDER = Path("params/metrics")
FAILED = r"(err(or)?s?|fail(s|ed|ures?)?|timeouts?|exceptions?|dropped|reject(s|ed)|[45]xx)"
SUCCEEDED = r"(success(es|ful)?|availability)"
"""`FAILED` and `SUCCEEDED` match words in the names of metrics that count failures or successes."""
SHARES = ("percent", "ratio")
COUNTED = (*SHARES, "", "requests", "transactions", "errors")
"""Units of metrics that may count failures or successes; `outcome` also accepts failures in all units with ``/s``."""
_COUNTER = re.compile(r"\b(?:rate|irate|increase)\(\s*([a-zA-Z_:][\w:]*)\s*(\{[^{}]*\})?\s*\[")
"""Pattern of a counter whose rate or increase a query takes: the counter's name and selector."""


class _Strict(BaseModel, extra="forbid", frozen=True): ...


class RunSd(_Strict):
    """Standard deviation of a metric between runs of one build on one setup, in percent."""

    bounded: float | None = Field(default=None, gt=0)
    unbounded: float | None = Field(default=None, gt=0)
    benchmark: float | None = Field(default=None, gt=0)
    equal_load: float | None = Field(default=None, gt=0)
    """Standard deviation between unbounded runs at the same load, in percent, without the error within each run."""
    df: dict[Literal["bounded", "unbounded", "benchmark", "equal_load"], Annotated[float, Field(gt=0)]] = {}
    """Degrees of freedom of each standard deviation: number of measured runs minus number of setups. Default: 8."""


class Metric(_Strict):
    """One quantity of the server under test."""

    name: str
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    aliases: tuple[str, ...] = ()
    unit: str = ""
    better: Better = Better.NEUTRAL
    gate: bool = False
    load: bool = False
    """True for the curve of connected users."""
    margin_percent: float = Field(default=10.0, gt=0)
    least_per: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Slug of another metric -> minimum plausible ratio to that metric; a lower ratio indicates a wrong unit."""
    run_sd_percent: RunSd = RunSd()
    reading_error_percent: float = Field(default=0.0, ge=0)
    """Error of a level that is read off a plot with overlapping curves, as a standard deviation in percent."""
    independent_tests: tuple[TestType, ...] = ()
    """Types of test in which the metric's noise is independent between tests; for `unbounded`, its noise at equal load.

    The changes of the metric are averaged over all tests of one such type."""
    proxy_for: str | None = None
    proxy_per_unit: float | None = Field(default=None, gt=0)
    """Increase of the metric per user if it is a proxy of the load, such as goroutines per user; None if unknown."""
    query: str | None = None
    known: bool = True
    """False if the catalogue does not list the metric."""

    @property
    def outcome(self) -> Literal["failures", "successes"] | None:
        """Whether the metric counts failures or successes, judged by its slug, unit and direction; None for neither."""
        return outcome(self.slug, self.unit, self.better)


def outcome(slug: str, unit: str, better: Better) -> Literal["failures", "successes"] | None:
    """Tell whether a metric measures failures, or the fraction of attempts that succeed; None for other metrics."""
    if unit not in COUNTED and not unit.endswith("/s"):
        return None
    if better == Better.LOWER and re.search(rf"\b{FAILED}\b", slug):
        return "failures"
    share = unit in SHARES or re.search(r"\b(rate|ratio|share|availability)\b", slug)
    succeeded = better == Better.HIGHER and re.search(rf"\b{SUCCEEDED}\b", slug)
    return "successes" if succeeded and share and not unit.endswith("/s") else None


class Operation(_Strict):
    """Settings of one metric. A missing value comes from the catalogue or the metric's name, else from the defaults.

    If none of `better`, the catalogue, name and unit gives a direction, the metric is neutral and `gate` is False.
    """

    unit: str = Field(default="", max_length=60)
    better: Better = Better.LOWER
    margin_percent: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    gate: bool = True
    """If False, a regression of the metric is only a warning."""
    run_sd_percent: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Standard deviation of one run around the level of its build, in percent; None if unknown."""

    def metric(self, name: str, found: Metric) -> Metric:
        """Return a copy of the catalogue's metric `found` with the name `name` and these settings."""
        unit = self.unit or found.unit
        directed = "better" in self.model_fields_set or unit in {*TIMES, "s", "sec"}  # shorter is better
        defaults = None if directed and not found.known and found.better == Better.NEUTRAL else {*self.model_fields_set}
        settings = self.model_dump(include=defaults)
        if settings.get("better", found.better) == Better.NEUTRAL:
            settings.pop("gate", None)
        settings["unit"] = {"s": "seconds", "sec": "seconds", "B": "bytes", "%": "percent"}.get(unit, unit)
        sd = settings.pop("run_sd_percent", None)
        noise = {} if sd is None else {"run_sd_percent": RunSd(bounded=sd, unbounded=sd, benchmark=sd)}
        return found.model_copy(update={**settings, **noise, "name": name, "known": True})


class ErrorRate(_Strict):
    """A query for the rate of failures relative to attempts."""

    name: str
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    unit: str = "percent"
    query: str


class Alert(ErrorRate):
    """A query that the load-test coordinator watches: above the threshold, the coordinator removes users."""

    unit: str = ""
    threshold: float = Field(allow_inf_nan=False)


class LabelSd(_Strict):
    """Noise between runs of one build, for one statistic (avg or p99) of the labels in one label table."""

    percent: float = Field(gt=0)
    """Noise of a label in one run, in percent: the scale of a t distribution with `df` degrees of freedom."""
    df: float = Field(gt=0)
    labels: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Label -> standard deviation in percent, for labels that scatter far more than others, such as rare statements."""


def unit_of_label(group: str) -> str:
    """Return the unit of the values in a label table: seconds, or a rate if the table counts log messages."""
    return {"logs": "per minute", "logs by user": "per user and minute"}.get(group, "seconds")


class LabelTable(_Strict):
    """A table with one value per label, such as per API handler or database method."""

    group: str
    title: str
    label: str
    unit: str = "seconds"
    top_bucket: float | None = Field(default=None, gt=0)
    """Highest finite bound of the server's histogram; a percentile at or above this bound is only a lower bound."""
    average: str | None = None
    """Slug of the metric that is the average over all calls of this table; None if the catalogue has no such metric."""
    run_sd_percent: dict[Literal["avg", "p99"], LabelSd] = {}
    """Statistic -> noise of each label between runs, after the median change of all labels is subtracted."""
    queries: dict[Literal["avg", "p99", "calls", "buckets"], str] = {}
    """Statistic -> query for one series per value of `label`; the series of `buckets` also differ by bound (`le`).

    `{window}` is replaced by the step of the series, such as 60s, or by the run's length if a query covers the run."""


class Question(NamedTuple):
    """One query of a catalogue with its variables filled in, and the meaning of its series."""

    metric: str
    """Slug (of a metric, alert or error rate), group (of a label table), or name (of a counter; role `resets`)."""
    name: str
    unit: str
    role: Role
    query: str
    stat: str = ""
    label: str = ""
    """Name of the Prometheus label whose values name the rows of a label table."""


class Catalogue(_Strict):
    """The metrics of one kind of server, in the order of reports."""

    prior_source: str | None = None
    variables: dict[str, str] = {}
    metrics: tuple[Metric, ...] = Field(min_length=1)
    label_tables: tuple[LabelTable, ...] = ()
    alerts: tuple[Alert, ...] = ()
    error_rates: tuple[ErrorRate, ...] = ()

    @model_validator(mode="after")
    def _answerable(self) -> Catalogue:
        questions = self.questions(label_step_s=60.0)  # raises an error for an unknown variable
        for (role, slug, _), count in Counter((each.role, each.metric, each.stat) for each in questions).items():
            refuse(count > 1, f"a different slug for each {role}", f"{slug!r} twice")
        slugs = {metric.slug for metric in self.metrics}
        strange = sorted({slug for metric in self.metrics for slug in metric.least_per} - slugs)
        refuse(bool(strange), "slugs of metrics in `least_per`", ", ".join(map(repr, strange)))
        for table in self.label_tables:
            unknown = table.average not in (None, *(metric.slug for metric in self.metrics))
            refuse(unknown, f"the slug of a metric as the average of {table.group!r}", repr(table.average))
        return self

    def questions(
        self, *, label_step_s: float, run_s: float | None = None, rate_s: float = 60.0
    ) -> tuple[Question, ...]:
        """Return all queries for one run; the points of label series are `label_step_s` apart.

        `rate_s` replaces `{rate}`; queries of label tables must not contain `{rate}`. If the length `run_s` of the run
        is given, queries over the whole run are added: averages and percentiles of labels, and restarts of counters.
        """
        rate = _duration(rate_s)

        def filled(query: str) -> str:
            return self._filled(query.replace("{rate}", rate))

        asked = [Question(m.slug, m.name, m.unit, "graph", filled(m.query)) for m in self.metrics if m.query]
        for table in self.label_tables:
            for stat, query in table.queries.items():
                unit = "calls/s" if stat in ("calls", "buckets") else table.unit
                windows: list[tuple[Role, float]] = [("bucket" if stat == "buckets" else "label", label_step_s)]
                windows += [("summary", run_s)] if run_s is not None and stat in ("avg", "p99") else []
                for role, length_s in windows:
                    text = self._filled(query, _duration(length_s))
                    asked.append(Question(table.group, table.title, unit, role, text, stat, table.label))
        asked += [Question(a.slug, a.name, a.unit, "alert", filled(a.query)) for a in self.alerts]
        asked += [Question(e.slug, e.name, e.unit, "error", filled(e.query)) for e in self.error_rates]
        if run_s is None:
            return tuple(asked)
        counters: dict[str, str] = {}  # counter name -> its range selector, from the first query that uses it
        for name, selector in _COUNTER.findall("\n".join(each.query for each in asked if each.role == "graph")):
            if not name.endswith(("_bucket", "_sum")):  # _bucket and _sum reset together with _count
                counters.setdefault(name, f"{name}{selector}[{_duration(run_s)}]")
        for name, counter in counters.items():  # per instance, use the series with the most resets
            asked.append(Question(name, name, "resets", "resets", f"sum(max(resets({counter})) by (instance))"))
        return tuple(asked)

    def _filled(self, query: str, window: str | None = None) -> str:
        """Replace `{{app}}` by the selector of the variable `app`, and `{window}` by `window`."""

        def selector(match: re.Match[str]) -> str:
            names = ", ".join(self.variables) or "none"
            unknown = match[1] not in self.variables
            refuse(unknown, f"a variable that `variables` has ({names})", f"{match[0]!r} in {query!r}")
            return "{" + self.variables[match[1]] + "}"

        filled = re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", selector, query)
        stray = window is None and "{window}" in filled
        refuse(stray, "{window} only in queries of label tables", f"it in {query!r}")
        refuse("{rate}" in query, "{window} instead of {rate} in queries of label tables", repr(query))
        return filled.replace("{window}", window or "")

    def find(self, name: str) -> Metric:
        """Find a metric by slug, name or alias; an unlisted name gives a metric with `known` False."""
        wanted = slugify(name)
        for metric in self.metrics:
            if wanted == metric.slug or wanted in {slugify(n) for n in (metric.name, *metric.aliases)}:
                return metric
        return Metric(name=name, slug=wanted, known=False)

    def with_operations(
        self, operations: Mapping[str, Operation], assume: Callable[[str], Metric] | None = None
    ) -> Catalogue:
        """Return a copy with the metrics of `operations` in front; `assume` makes those that the catalogue lacks."""
        found = {
            name: metric if (metric := self.find(name)).known or not assume else assume(name) for name in operations
        }
        made = tuple(each.metric(name, found[name]) for name, each in operations.items())
        slugs = {metric.slug for metric in made}
        if len(slugs) < len(made):
            raise InputError(
                file=None, key="operations", expected="names that differ in letters or digits", found="two alike"
            )
        return self.model_copy(update={"metrics": (*made, *(m for m in self.metrics if m.slug not in slugs))})

    def with_margins(self, margins: Mapping[str, float]) -> Catalogue:
        """Return a copy with other margins, in percent by slug or name; refuse unlisted metrics."""
        slugs = [metric.slug for metric in self.metrics]
        if unknown := [name for name in margins if slugify(name) not in slugs]:
            expected = f"a metric of the catalogue ({', '.join(slugs)})"
            found = f"{unknown[0]!r}{meant(slugify(unknown[0]), slugs)}"
            raise InputError(file=None, key=f"margins.{unknown[0]}", expected=expected, found=found)
        for name, percent in margins.items():
            if not 0.0 < percent < math.inf:
                raise InputError(file=None, key=f"margins.{name}", expected="percent above 0", found=f"{percent:g}")
        by_slug = {slugify(name): percent for name, percent in margins.items()}
        changed = (m.model_copy(update={"margin_percent": by_slug.get(m.slug, m.margin_percent)}) for m in self.metrics)
        return self.model_copy(update={"metrics": tuple(changed)})

    @property
    def leaves_rates_open(self) -> bool:
        """Whether a query of a metric, alert or error rate contains `{rate}`, a placeholder for `rate_s`."""
        queries = (each.query for of in (self.metrics, self.alerts, self.error_rates) for each in of)
        return any("{rate}" in (query or "") for query in queries)

    @property
    def load(self) -> Metric | None:
        """The metric of connected users; None if the catalogue lists none."""
        return next((metric for metric in self.metrics if metric.load), None)

    def last_bound(self, slug: str, unit: str) -> float:
        """Return the last finite bound of the histogram behind a percentile; infinity if no label table states it."""
        tables = [table for table in self.label_tables if table.unit == unit and table.top_bucket]
        average = re.sub(r"^p\d+\b", "avg", slug)
        of_it = [each for each in tables if each.average == average or (len(tables) == 1 and each.average is None)]
        return of_it[0].top_bucket or math.inf if of_it and average != slug else math.inf

    def proxies(self) -> tuple[Metric, ...]:
        """Return the metrics whose curves can replace the curve of the load (their `proxy_for` names the load)."""
        load = self.load
        return tuple(m for m in self.metrics if load is not None and m.proxy_for == load.slug)

    def position(self, slug: str) -> int:
        """Return the position of a metric in reports; unlisted metrics come last."""
        slugs = [metric.slug for metric in self.metrics]
        return slugs.index(slug) if slug in slugs else len(slugs)

    def label_table(self, group: str) -> LabelTable:
        """Find a label table by its group; an unlisted group gets a default table."""
        listed = next((table for table in self.label_tables if table.group == group), None)
        return listed or LabelTable(group=group, title=group, label="label", unit=unit_of_label(group))


def _duration(seconds: float) -> str:
    """Format a duration for PromQL: ``60s``, ``1500ms``."""
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


@lru_cache(maxsize=10_000)
def slugify(name: str) -> str:
    """Make a slug from a name: ``avg-api-times`` from ``Avg API times``."""
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:80] or "unnamed"


def catalogue_names() -> list[str]:
    """Return the names of the catalogues in ``params/metrics/``: the project's, then the shipped ones."""
    files = (file for place in places() for file in sorted((place / FOLDER).glob("*.yaml")))
    return list(dict.fromkeys(file.stem for file in files))


def read_catalogue(name: str | Catalogue) -> Catalogue:
    """Read a catalogue by its name in ``params/metrics/`` or by the path of its file; return a Catalogue unchanged."""
    if isinstance(name, Catalogue):
        return name
    file = resolve(name if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml")
    return _read(file, read_text(file, "a YAML file", max_bytes=MAX_BYTES))


@lru_cache(maxsize=8)
def _read(file: Path, text: str) -> Catalogue:
    """Read a catalogue's file. Its contents, `text`, only let the cache recognise a changed file."""
    return checked(Catalogue, read_yaml(file))
