"""Ask a Prometheus what it measured in two windows, and make a catalogue of what its names and labels tell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from buildcompare.config.assumed import SUCCESS_MARGIN_PERCENT, assumed_metric
from buildcompare.config.catalogue import FAILED, SHARES, Catalogue, LabelTable, Metric, slugify
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source
from buildcompare.config.units import TIMES
from buildcompare.config.yaml import checked
from buildcompare.recordings.frames import BAD, GOOD, STATUS
from buildcompare.recordings.prometheus_client import Client
from buildcompare.results.codes import SIDES, Better, Side
from buildcompare.text.sentences import say
from loadinit.files import Draft, Runs, first_params

MOST_METRICS = 60  # of a catalogue
MOST_ROWS, MOST_SERIES = 150, 10_000  # values of a label that becomes a table, and series of a metric that are read
ENDPOINT = ("endpoint", "handler", "route", "path", "uri", "url", "operation", "grpc_method", "view", "method")
"""Labels that name an endpoint, the surest first."""
_PARTS = ("0.5", "0.9", "0.95", "0.99")  # values of a summary's label `quantile` that become metrics
_OF_SERVER = r"(prometheus|promhttp|scrape|net_conntrack)_.*|up|ALERTS.*|.*_created"
_NOT_RUNTIME = r"(?!(?:go|process|jvm|python|nodejs|node)_)(?:.*_)?"
_REQUEST = rf"{_NOT_RUNTIME}(?:http|requests?|responses?|calls?|quer(?:y|ies)|transactions?|rpcs?|grpc|api)_.*"


class _Rule(NamedTuple):
    """Entry for metrics whose name matches; in titles and queries {0} is the name, {1} selects the jobs under test."""

    pattern: str
    title: str
    unit: str
    better: Better
    query: str
    gate: bool = False
    load: bool = False


_ASKED = rf"{_REQUEST}(?<=_total|_count)"
_LOADS = ("vus", "users", "clients", "sessions", "connections", "websockets")  # words for the load, the surest first
_BEGUN = "sum(rate({0}[{{rate}}])) or vector(0)"  # a counter of failures is there from the first failure on
_LOW, _RATE, _SUM = Better.LOWER, "sum(rate({0}[{{rate}}]))", "sum({0}{1})"
_RULES = (
    _Rule(rf"{_NOT_RUNTIME}{FAILED}_(?:.*_)?total", "{0} per second", "errors/s", _LOW, _BEGUN, gate=True),
    _Rule(rf"{_ASKED}(?<!bytes_total|conds_total)", "{0} per second", "requests/s", Better.HIGHER, _RATE),
    _Rule("process_cpu_seconds_total", "CPU", "percent of one core", _LOW, "sum(rate({0}{1}[{{rate}}])) * 100"),
    _Rule(
        "process_resident_memory_bytes|(?:go|jvm|nodejs)_.*(?:heap_inuse|heap.*used).*bytes", "{0}", "bytes", _LOW, _SUM
    ),
    _Rule("go_goroutines", "{0}", "goroutines", _LOW, _SUM),
    _Rule("node_cpu_seconds_total", "Host CPU", "percent", _LOW, '100 - avg(rate({0}{{mode="idle"}}[{{rate}}])) * 100'),
    _Rule("node_load1", "{0}", "", _LOW, "sum({0})"),
    _Rule(
        rf"(?!.*(?:max|limit|pool|idle)){_NOT_RUNTIME}(?:{'|'.join(_LOADS)})(?:_.*)?(?<!_total|_count)",
        *("{0}", "users", Better.NEUTRAL, _SUM),
        load=True,
    ),
)


@dataclass
class _Server:
    """Metrics in both windows, and those that the catalogue uses."""

    names: set[str]
    labels: Mapping[str, Mapping[str, set[str]]]  # name of a metric -> label -> values
    gauges: set[str]  # names that the server declares as gauges, whatever their suffix
    metrics: dict[str, Metric] = field(default_factory=dict)  # by slug
    tables: list[LabelTable] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def add(self, name: str, unit: str, better: Better, query: str, uses: str, **settings: object) -> str:
        """Add a metric whose query reads the series that match the pattern `uses`; return its slug."""
        slug = slugify(name)
        if len(self.metrics) < MOST_METRICS and slug not in self.metrics:
            self.used |= {each for each in self.names if re.fullmatch(uses, each)}
            self.metrics[slug] = Metric(name=name, slug=slug, unit=unit, better=better, query=query, **settings)
        return slug

    def take_histogram(self, stem: str) -> None:
        """Take mean and percentiles of a histogram, and of requests a table by endpoint."""
        unit = assumed_metric(stem).unit
        better = Better.LOWER if unit in ("seconds", "ms", "µs", "ns") else Better.NEUTRAL
        gate = better == Better.LOWER and re.fullmatch(_REQUEST, stem) is not None
        rate, share = "sum(rate({0}_{1}[{2}])){3}", "histogram_quantile({0}, sum(rate({1}_bucket[{2}])) by (le{3}))"

        def mean(window: str, by: str) -> str:
            return f"{rate.format(stem, 'sum', window, by)} / {rate.format(stem, 'count', window, by)}"

        uses = f"{stem}_(bucket|sum|count)"
        slug = self.add(f"{stem} mean", unit, better, mean("{rate}", ""), uses, gate=gate)
        for part in (50, 95, 99):
            query = share.format(part / 100, stem, "{rate}", "")
            self.add(f"{stem} p{part}", unit, better, query, uses, gate=gate and part == 99)
        labels, bounds = self.labels.get(f"{stem}_count", {}), self.labels.get(f"{stem}_bucket", {}).get("le", ())
        label = next((each for each in ENDPOINT if 1 < len(labels.get(each, ())) <= MOST_ROWS), None)
        if label and gate and slug in self.metrics:
            by = f" by ({label})"
            queries = {
                "avg": mean("{window}", by),
                "p99": share.format(0.99, stem, "{window}", f", {label}"),
                "calls": rate.format(stem, "count", "{window}", by),
                "buckets": f"sum(rate({stem}_bucket[{{window}}])) by (le, {label})",
            }
            group = label if label not in {each.group for each in self.tables} else stem
            top = max((float(each) for each in bounds if "Inf" not in each), default=None)
            table = {"group": group, "title": stem, "label": label, "unit": unit, "top_bucket": top, "average": slug}
            self.tables.append(checked(LabelTable, {**table, "queries": queries}))

    def take_native_histogram(self, name: str) -> None:
        """Take mean and percentiles of a native histogram, which has one series without suffix."""
        unit, rate = assumed_metric(name).unit, f"sum(rate({name}[{{rate}}]))"
        better = Better.LOWER if unit in TIMES else Better.NEUTRAL
        gate = better == Better.LOWER and re.fullmatch(_REQUEST, name) is not None
        self.add(f"{name} mean", unit, better, f"histogram_sum({rate}) / histogram_count({rate})", name, gate=gate)
        for part in (50, 95, 99):
            query = f"histogram_quantile({part / 100}, {rate})"
            self.add(f"{name} p{part}", unit, better, query, name, gate=gate and part == 99)

    def take_by_rules(self) -> dict[str, str]:
        """Take counters, resources and the load, and gauges whose names tell a direction; return their variables."""
        jobs = {job for name in self.used for job in self.labels.get(name, {}).get("job", ())}
        jobs = jobs if all(re.fullmatch(r"[\w./:@-]+", job) for job in jobs) else set()
        for rule in _RULES:
            fit = [name for name in sorted(self.names) if re.fullmatch(rule.pattern, name)]
            fit = [name for name in fit if not name.endswith("_total") or name not in self.gauges]
            fit = [name for name in fit if not name.endswith("_count")] or fit
            for name in sorted(fit, key=_place_of_load) if rule.load else fit:
                load = rule.load and not any(each.load for each in self.metrics.values())
                query = rule.query.format(name, "{{app}}" if jobs and not rule.load else "")
                named = assumed_metric(name).better
                better = named if rule.better == Better.HIGHER and named != Better.NEUTRAL else rule.better
                self.add(rule.title.format(name), rule.unit, better, query, name, gate=rule.gate, load=load)
                labels = self.labels.get(name, {})
                status = next(
                    (each for each in STATUS if any(re.fullmatch(GOOD, of) for of in labels.get(each, ()))), ""
                )
                if better == Better.HIGHER and status:
                    good = f'100 * (sum(rate({name}{{{status}!~"{BAD}"}}[{{rate}}])) or 0 * {query}) / {query}'
                    settings = {"gate": True, "margin_percent": SUCCESS_MARGIN_PERCENT}
                    self.add(f"Successful {name}", "percent", Better.HIGHER, good, name, **settings)
        for name in sorted(self.names - self.used):
            assumed = assumed_metric(name)
            is_gauge = name in self.gauges or not re.search("_(total|bucket|sum|count|info)$", name)
            directed = assumed.better != Better.NEUTRAL and not re.search("(^|_)last_", name)
            if not (is_gauge and directed and re.fullmatch(f"{_NOT_RUNTIME}.*", name)):
                continue
            parts = sorted({*_PARTS} & self.labels.get(name, {}).get("quantile", set()), key=float)
            for part in parts:
                gate, query = assumed.gate and part == parts[-1], f'max({name}{{quantile="{part}"}})'
                self.add(f"{name} p{100 * float(part):g}", assumed.unit, assumed.better, query, name, gate=gate)
            if "quantile" not in self.labels.get(name, {}):
                extreme = re.search(r"(^|_)(max|p\d+)(_|$)", name)
                by = "max" if extreme else "avg" if assumed.unit in {*TIMES, *SHARES} else "sum"  # over all instances
                self.add(name, assumed.unit, assumed.better, f"{by}({name})", name, gate=assumed.gate)
        return {"app": f'job=~"{"|".join(sorted(jobs))}"'} if jobs else {}


def _place_of_load(name: str) -> tuple[int, str]:
    """Order of a metric among those of the load: by its surest word, then by name."""
    return next(i for i, word in enumerate(_LOADS) if re.search(rf"(^|_){word}(_|$)", name)), name


def draft_of_server(url: str, windows: Mapping[Side, tuple[str, str]]) -> Draft:
    """Recognise what a Prometheus measured in the windows of both builds (start and end, with zones).

    Raises
    ------
    InputError, SourceError
        If an address or time is wrong, the server fails, or no metric is recognised in both windows.
    """
    keys: Runs = {side: [{"start": windows[side][0], "end": windows[side][1]}] for side in SIDES}
    source = {"kind": "prometheus", "url": url}
    asked, runs = checked(Source, source), {}
    for side in SIDES:
        try:
            runs[side] = checked(Run, keys[side][0])
        except InputError as error:
            raise error.within(f"--{side}") from None
    with closing(Client(asked, url)) as client:
        names = {side: _names(client, runs[side], side) for side in SIDES}
        every, both = names["base"] | names["new"], names["base"] & names["new"]
        failing = {side: {n for n in names[side] - both if re.fullmatch(_RULES[0].pattern, n)} for side in SIDES}
        begun = set[str]() if failing["base"] else failing["new"]  # a counter that the base alone has was renamed
        both = {name for name in both | begun if not re.fullmatch(_OF_SERVER, name)}
        labels, types = _described(client, both, runs)
        server = _Server(both, labels, {name for name, kinds in types.items() if "gauge" in kinds})
        stems = [name.removesuffix("_bucket") for name in sorted(both) if name.endswith("_bucket")]
        for stem in sorted(stems, key=lambda stem: not re.fullmatch(_REQUEST, stem)):
            if {f"{stem}_sum", f"{stem}_count"} <= both:
                server.take_histogram(stem)
        for name in sorted(name for name in both if "histogram" in types.get(name, ())):
            server.take_native_histogram(name)
        variables = server.take_by_rules()
        if not server.metrics:
            expected = f"histograms, counters of requests, CPU or memory at {url} in both windows"
            raise InputError(file=None, key="--prometheus", expected=expected, found=f"{len(both)} other metrics")
        steps = _steps(client, runs, sorted(name for name in server.used if re.search("_(total|count)$", name)))
    metrics, tables = tuple(server.metrics.values()), tuple(server.tables)
    catalogue = Catalogue(metrics=metrics, label_tables=tables, variables=variables)
    return Draft(
        first_params(SIDES, {**source, **steps}, "bounded", keys),
        keys,
        catalogue,
        sources=[say("init", "server", url, len(every), steps["rate_s"])],
        load=[say("init", "load", catalogue.load and catalogue.load.name)],
        labels={each.group: server.labels[f"{each.title}_count"][each.label] for each in tables},
        unused={
            name: "of_server" if re.fullmatch(_OF_SERVER, name) else "no_rule" if name in both else "one_window"
            for name in sorted(every - server.used)
        },
        recorded=server.metrics,
    )


def _asked(run: Run) -> dict[str, str]:
    assert run.window is not None  # both times were checked
    return {name: f"{instant.timestamp():.3f}" for name, instant in zip(("start", "end"), run.window, strict=True)}


def _names(client: Client, run: Run, side: Side) -> set[str]:
    """Names of all metrics in the window of a build."""
    if names := client.listing("/api/v1/label/__name__/values", _asked(run)):
        return {str(name) for name in names}
    expected = f"a window with metrics at {client.url}"
    raise InputError(file=None, key=f"--{side}", expected=expected, found="none from start to end")


def _described(
    client: Client, names: set[str], runs: Mapping[Side, Run]
) -> tuple[dict[str, dict[str, set[str]]], dict[str, set[str]]]:
    """The labels of requests' counters, histograms and summaries, and the types that targets declare, by name."""
    types = client.listing("/api/v1/metadata", {})
    labels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    counted = sorted(each for each in names if re.fullmatch(_ASKED, each))
    for within in map(_asked, runs.values()):
        for selected in (*counted, '{quantile!=""}'):
            asked = {"match[]": selected, "limit": str(MOST_SERIES), **within}
            for series in client.listing("/api/v1/series", asked):
                for label, value in series.items():
                    labels[series["__name__"]][label].add(value)
        for buckets in {f"{name.removesuffix('count')}bucket" for name in counted} & names:
            labels[buckets]["le"] |= {*client.listing("/api/v1/label/le/values", {"match[]": buckets, **within})}
    return labels, {name: {str(row.get("type")) for row in rows} for name, rows in types.items()}


def _steps(client: Client, runs: Mapping[Side, Run], counters: Sequence[str]) -> dict[str, float]:
    """Choose steps and the window of rates by how often the server scrapes and how long the runs are."""
    scrapes, lengths = [15.0], []
    for side in SIDES:
        start, end = (float(each) for each in _asked(runs[side]).values())
        middle = (start + end) / 2
        lengths.append(end - start)
        for query in (f"max(timestamp({name})) by (job, instance)" for name in counters):
            answer = client.query_range(query, middle, min(end, middle + 300.0), 1.0)
            steps = [np.diff(np.unique(values)) for *_, values in answer.series]
            scrapes += [float(np.median(each)) for each in steps if each.size]
    scrapes = scrapes[1:] or scrapes
    fits = max(60.0, min(lengths) // 7)  # a steady window holds five of them
    rate = max(5.0, min(round(4 * max(scrapes)), fits), min(60.0, min(lengths) // 20))
    return {"step_s": float(min(5, max(1, round(min(scrapes))))), "label_step_s": rate, "rate_s": rate}
