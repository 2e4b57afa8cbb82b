"""The catalogue: what each metric is called, how it is asked for, its unit, and which way is better."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from buildcompare.config.errors import InputError, meant
from buildcompare.config.project import read_text, resolve
from buildcompare.config.yaml import MAX_BYTES, checked, read_yaml, refuse
from buildcompare.results.codes import Better, TestType

Role = Literal["graph", "label", "bucket", "summary", "alert", "error", "resets"]
_COUNTER = re.compile(r"\b(?:rate|irate|increase)\(\s*([a-zA-Z_:][\w:]*)\s*(\{[^{}]*\})?\s*\[")
"""Name and selector of a counter, where a query takes its rate."""


class _Strict(BaseModel, extra="forbid", frozen=True): ...


class RunSd(_Strict):
    """Standard deviation of one run around the level of its setup, in percent."""

    bounded: float | None = Field(default=None, gt=0)
    unbounded: float | None = Field(default=None, gt=0)
    benchmark: float | None = Field(default=None, gt=0)
    equal_load: float | None = Field(default=None, gt=0)
    """Of unbounded runs compared at the same number of users, without the errors within the runs."""
    df: dict[Literal["bounded", "unbounded", "benchmark", "equal_load"], Annotated[float, Field(gt=0)]] = {}
    """Degrees of freedom that each is known with: runs less setups. One that is left out counts as known with 8."""


class Metric(_Strict):
    """One quantity of the server under test."""

    name: str
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    aliases: tuple[str, ...] = ()
    unit: str = ""
    better: Better = Better.NEUTRAL
    gate: bool = False
    load: bool = False
    """Whether this is the load itself: the curve of connected users."""
    margin_percent: float = Field(default=10.0, gt=0)
    least_per: dict[str, Annotated[float, Field(gt=0)]] = {}
    """By slug of another metric, the least level for each unit of that one: what lies below is of another unit."""
    run_sd_percent: RunSd = RunSd()
    reading_error_percent: float = Field(default=0.0, ge=0)
    """Standard deviation of what one run's level is misread by where it was read off a plot: lines hide each other."""
    independent_tests: tuple[TestType, ...] = ()
    """Types of test whose noise is independent between the tests of one release (unbounded: at equal load): their
    changes may be pooled."""
    proxy_for: str | None = None
    proxy_per_unit: float | None = Field(default=None, gt=0)
    """How much of a proxy one unit of the load adds, such as goroutines per user."""
    query: str | None = None
    known: bool = True
    """False for a series that the catalogue does not list."""


class Operation(_Strict):
    """What a benchmark measures, where no catalogue holds it: one number of each run, or many."""

    unit: str = Field(default="", max_length=60)
    better: Better = Better.LOWER
    margin_percent: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    gate: bool = True
    """Whether a regression of it is one of the build, or merely a warning."""
    run_sd_percent: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Standard deviation of one run around the level of its build, in percent, where it is known."""

    def metric(self, name: str) -> Metric:
        """The operation as a metric of a catalogue."""
        told = self.model_dump(exclude={"run_sd_percent"})
        return Metric(name=name, slug=slugify(name), run_sd_percent=RunSd(benchmark=self.run_sd_percent), **told)


class ErrorRate(_Strict):
    """How often something failed, relative to how often it was tried."""

    name: str
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    unit: str = "percent"
    query: str


class Alert(ErrorRate):
    """A query that the load-test coordinator watches: above the threshold it takes users away."""

    unit: str = ""
    threshold: float = Field(allow_inf_nan=False)


class LabelSd(_Strict):
    """How far labels of one table and statistic move between two runs of one build."""

    percent: float = Field(gt=0)
    """Standard deviation of one run, of the t distribution with so many degrees of freedom."""
    df: float = Field(gt=0)


class LabelTable(_Strict):
    """A table of one value per label: API handlers, database methods."""

    group: str
    title: str
    label: str
    unit: str = "seconds"
    top_bucket: float | None = Field(default=None, gt=0)
    """The last bound of the server's histogram: a percentile at or above it is a lower bound."""
    average: str | None = None
    """Slug of the metric that averages over all calls of this table: what a changed traffic mix moves."""
    run_sd_percent: dict[Literal["avg", "p99"], LabelSd] = {}
    """By statistic; beyond what all labels of the table move together."""
    queries: dict[Literal["avg", "p99", "calls", "buckets"], str] = {}
    """One query per statistic, each with one series per value of `label`; `buckets` have one per bound (`le`) too.
    `{window}` is the step of the series, such as 60s, and the length of the run for the one value of the whole run."""


class Question(NamedTuple):
    """One query of a catalogue, with its variables filled in, and what its series are."""

    metric: str
    """The slug, or a label table's group."""
    name: str
    unit: str
    role: Role
    query: str
    stat: str = ""
    label: str = ""
    """The label whose value names a series of a label table."""


class Catalogue(_Strict):
    """The metrics of one kind of server, in the order in which reports show them."""

    prior_source: str | None = None
    variables: dict[str, str] = {}
    metrics: tuple[Metric, ...] = Field(min_length=1)
    label_tables: tuple[LabelTable, ...] = ()
    alerts: tuple[Alert, ...] = ()
    error_rates: tuple[ErrorRate, ...] = ()

    @model_validator(mode="after")
    def _answerable(self) -> Catalogue:
        questions = self.questions(label_step_s=60.0)  # an unknown variable is an error when the file is read
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
        """Everything that a server is asked about one run, whose label series have points of `label_step_s`.

        Rates are over `rate_s` where a query says `{rate}`.
        With the length `run_s` of the run, averages, percentiles and counters' restarts are asked for over all of it.
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
        counters: dict[str, str] = {}  # by name, with the selector of its first query
        for name, selector in _COUNTER.findall("\n".join(each.query for each in asked if each.role == "graph")):
            if not name.endswith(("_bucket", "_sum")):  # their _count starts again with them
                counters.setdefault(name, f"{name}{selector}[{_duration(run_s)}]")
        for name, counter in counters.items():  # of each instance the series that started again most often
            asked.append(Question(name, name, "resets", "resets", f"sum(max(resets({counter})) by (instance))"))
        return tuple(asked)

    def _filled(self, query: str, window: str | None = None) -> str:
        """`query` with `{{app}}` as the selector `{...}` that `variables` has for app, and `{window}` filled in."""

        def selector(found: re.Match[str]) -> str:
            known = ", ".join(self.variables) or "none"
            unknown = found[1] not in self.variables
            refuse(unknown, f"a variable that `variables` has ({known})", f"{found[0]!r} in {query!r}")
            return "{" + self.variables[found[1]] + "}"

        filled = re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", selector, query)
        stray = window is None and "{window}" in filled
        refuse(stray, "{window} only in queries of label tables", f"it in {query!r}")
        return filled.replace("{window}", window or "")

    def find(self, name: str) -> Metric:
        """The metric that `name` (a slug, a name or an alias) means; an unknown one is made up from it."""
        wanted = slugify(name)
        for metric in self.metrics:
            if wanted == metric.slug or wanted in {slugify(n) for n in (metric.name, *metric.aliases)}:
                return metric
        return Metric(name=name, slug=wanted, known=False)

    def with_operations(self, operations: Mapping[str, Operation]) -> Catalogue:
        """The catalogue with these operations before its metrics, and in the place of those of their name."""
        made = tuple(each.metric(name) for name, each in operations.items())
        slugs = {metric.slug for metric in made}
        if len(slugs) < len(made):
            raise InputError(file=None, key="operations", expected="different names", found="two that differ in signs")
        return self.model_copy(update={"metrics": (*made, *(m for m in self.metrics if m.slug not in slugs))})

    def with_margins(self, margins: Mapping[str, float]) -> Catalogue:
        """The catalogue with other margins (percent, by slug)."""
        known = [metric.slug for metric in self.metrics]
        if unknown := [slug for slug in margins if slug not in known]:
            expected = f"a metric of the catalogue ({', '.join(known)})"
            found = f"{unknown[0]!r}{meant(unknown[0], known)}"
            raise InputError(file=None, key=f"margins.{unknown[0]}", expected=expected, found=found)
        for slug, percent in margins.items():
            if not 0.0 < percent < math.inf:
                raise InputError(file=None, key=f"margins.{slug}", expected="percent above 0", found=f"{percent:g}")
        changed = (m.model_copy(update={"margin_percent": margins.get(m.slug, m.margin_percent)}) for m in self.metrics)
        return self.model_copy(update={"metrics": tuple(changed)})

    @property
    def leaves_rates_open(self) -> bool:
        """Whether `rate_s` of a source says over how many seconds its rates are."""
        queries = (each.query for of in (self.metrics, self.alerts, self.error_rates) for each in of)
        return any("{rate}" in (query or "") for query in queries)

    @property
    def load(self) -> Metric | None:
        """The curve of connected users, where the catalogue names one."""
        return next((metric for metric in self.metrics if metric.load), None)

    def proxies(self) -> tuple[Metric, ...]:
        """Metrics that follow the load closely enough to stand in for its shape."""
        load = self.load
        return tuple(m for m in self.metrics if load is not None and m.proxy_for == load.slug)

    def position(self, slug: str) -> int:
        """Where reports show this metric: the catalogue's order, unknown ones after it."""
        slugs = [metric.slug for metric in self.metrics]
        return slugs.index(slug) if slug in slugs else len(slugs)

    def label_table(self, group: str) -> LabelTable:
        """The description of a label table; an unknown group is named after itself."""
        known = next((table for table in self.label_tables if table.group == group), None)
        return known or LabelTable(group=group, title=group, label="label")


def _duration(seconds: float) -> str:
    """As PromQL writes it."""
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


def slugify(name: str) -> str:
    """``Avg API times`` -> ``avg-api-times``."""
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:80] or "unnamed"


def read_catalogue(name: str) -> Catalogue:
    """Read ``params/metrics/<name>.yaml``, or the YAML file at the path `name`."""
    file = resolve(name if name.endswith((".yaml", ".yml")) else Path("params/metrics") / f"{name}.yaml")
    return _read(file, read_text(file, "a YAML file", max_bytes=MAX_BYTES))


@lru_cache(maxsize=8)
def _read(file: Path, text: str) -> Catalogue:
    """The catalogue of a file that holds `text`; a comparison asks for the same one several times."""
    return checked(Catalogue, read_yaml(file))
