"""Ask a Prometheus what it measured in two windows, and make a catalogue of what its names and labels tell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from buildcompare.comparison.init import MOST_LABELS, Draft
from buildcompare.config.assumed import SUCCESS_MARGIN_PERCENT, assumed_metric
from buildcompare.config.catalogue import FAILED, Catalogue, LabelTable, Metric, slugify
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source, check_params
from buildcompare.config.yaml import checked
from buildcompare.recordings.prometheus_client import Client
from buildcompare.results.codes import SIDES, Better, Side
from buildcompare.text.sentences import say

MOST_METRICS, MOST_ROWS = 60, 150
"""Most metrics of a catalogue, and most values of a label that becomes a table."""
ENDPOINT = (
    "endpoint",
    "handler",
    "route",
    "path",
    "uri",
    "url",
    "operation",
    "grpc_method",
    "view",
    "action",
    "method",
)
"""Labels that name an endpoint, the surest first."""
STATUS = ("code", "status", "status_code", "http_status", "http_status_code", "http_response_status_code")
_BAD = "5..|error.*|fail.*"
"""Values of a status label that count as errors."""
_REQUESTS = r"requests?|responses?|calls?|queries|transactions?|rpcs?|handled"
_LOAD = r"users|vus|clients|connections|sessions|websockets"
_OF_SERVER = r"(prometheus|promhttp|scrape|net_conntrack|prober)_.*|up|ALERTS.*|.*_created"
_OF_RUNTIME = r"(go|process|jvm|python|nodejs|node|dotnet|container|machine|ruby|php)_.*"
_GAUGES = {
    "process_resident_memory_bytes": "bytes",
    "go_memstats_heap_inuse_bytes": "bytes",
    "jvm_memory_used_bytes": "bytes",
    "nodejs_heap_size_used_bytes": "bytes",
    "go_goroutines": "goroutines",
}
"""Gauges of runtimes: name -> unit; lower is better."""
_HOST = {
    "node_cpu_seconds_total": ("Host CPU", '100 - avg(rate(node_cpu_seconds_total{mode="idle"}[{rate}])) * 100'),
    "node_memory_MemAvailable_bytes": (
        "Host memory",
        "100 - 100 * sum(node_memory_MemAvailable_bytes) / sum(node_memory_MemTotal_bytes)",
    ),
}
"""Metrics of node_exporter, in percent."""


def _words(pattern: str, name: str) -> bool:
    return re.search(rf"(?:^|_)(?:{pattern})(?:_|$)", name) is not None


@dataclass
class _Server:
    """Names of metrics that both windows have, and what the catalogue takes of them."""

    names: set[str]
    labels: Mapping[str, Mapping[str, set[str]]]
    """Name of a metric -> label -> values."""
    gauges: set[str]
    """Names that the server calls gauges, whatever they end in."""
    metrics: list[Metric] = field(default_factory=list)
    tables: list[LabelTable] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def add(self, name: str, unit: str, better: Better, query: str, *uses: str, **settings: object) -> str:
        """Take a metric that is computed from the series `uses`; return its slug."""
        slug = slugify(name)
        if len(self.metrics) < MOST_METRICS and slug not in {each.slug for each in self.metrics}:
            self.used.update(uses)
            self.metrics.append(Metric(name=name, slug=slug, unit=unit, better=better, query=query, **settings))
        return slug

    def histograms(self) -> Iterator[str]:
        """Yield the histograms, those of requests first."""
        stems = [name.removesuffix("_bucket") for name in sorted(self.names) if name.endswith("_bucket")]
        whole = [stem for stem in stems if {f"{stem}_sum", f"{stem}_count"} <= self.names]
        return iter(sorted(whole, key=lambda stem: not _words(f"{_REQUESTS}|http|grpc|api", stem)))

    def counters(self) -> list[str]:
        """List the counters of requests and of failures."""
        totals = (each for each in sorted(self.names - self.gauges) if each.endswith("_total"))
        return [
            each for each in totals if _words(f"{_REQUESTS}|{FAILED}", each) and not re.fullmatch(_OF_RUNTIME, each)
        ]

    def label_of(self, name: str, wanted: Sequence[str]) -> str | None:
        """The first of the `wanted` labels that a metric has."""
        return next((label for label in wanted if label in self.labels.get(name, {})), None)


def _take_histogram(server: _Server, stem: str) -> None:
    """Take mean and percentiles of a histogram, and a table by endpoint."""
    is_request, unit = _words(f"{_REQUESTS}|http|grpc|api", stem), assumed_metric(stem).unit
    gate = is_request and unit in ("seconds", "ms")
    better = Better.LOWER if unit in ("seconds", "ms", "µs", "ns") else Better.NEUTRAL
    parts = tuple(f"{stem}_{part}" for part in ("bucket", "sum", "count"))
    mean = "sum(rate({0}_sum[{1}])){2} / sum(rate({0}_count[{1}])){2}"
    share = "histogram_quantile({3}, sum(rate({0}_bucket[{1}])) by (le{2}))"
    slug = server.add(f"{stem} mean", unit, better, mean.format(stem, "{rate}", ""), *parts, gate=gate)
    for percent in (50, 95, 99):
        query = share.format(stem, "{rate}", "", percent / 100)
        server.add(f"{stem} p{percent}", unit, better, query, gate=gate and percent == 99)
    label = server.label_of(f"{stem}_count", ENDPOINT)
    rows = len(server.labels[f"{stem}_count"][label]) if label else 0
    if label is None or not (1 < rows <= MOST_ROWS and gate and server.used >= {*parts}):
        return
    by, window = f" by ({label})", "{window}"
    queries = {
        "avg": mean.format(stem, window, by),
        "p99": share.format(stem, window, f", {label}", 0.99),
        "calls": f"sum(rate({stem}_count[{window}])){by}",
        "buckets": f"sum(rate({stem}_bucket[{window}])) by (le, {label})",
    }
    group = label if label not in {each.group for each in server.tables} else slugify(stem)
    bounds = [float(each) for each in server.labels.get(f"{stem}_bucket", {}).get("le", ()) if "Inf" not in each]
    table = {"group": group, "title": stem, "label": label, "unit": unit, "top_bucket": max(bounds, default=None)}
    server.tables.append(checked(LabelTable, {**table, "average": slug, "queries": queries}))


def _take_rates(server: _Server) -> None:
    """Take rates of requests and failures, and the share of requests that succeeded by a status label."""
    counters = server.counters()
    requests = [each for each in counters if not _words(FAILED, each)]
    for name in requests or [f"{stem}_count" for stem in server.histograms() if _words(f"{_REQUESTS}|http|grpc", stem)]:
        rate = f"sum(rate({name}[{{rate}}]))"
        server.add(f"{name} per second", "requests/s", Better.HIGHER, rate, name, margin_percent=5.0)
        if status := server.label_of(name, STATUS):
            good = f'100 * sum(rate({name}{{{status}!~"{_BAD}"}}[{{rate}}])) / {rate}'
            settings = {"gate": True, "margin_percent": SUCCESS_MARGIN_PERCENT}
            server.add(f"Successful {name}", "percent", Better.HIGHER, good, name, **settings)
    for name in (each for each in counters if each not in requests):
        rate = f"sum(rate({name}[{{rate}}]))"
        server.add(f"{name} per second", "errors/s", Better.LOWER, rate, name, gate=True)


def _take_resources(server: _Server) -> dict[str, str]:
    """Take CPU and memory, gauges whose names tell a direction, and the load; return variables of the queries."""
    jobs = {job for name in server.used for job in server.labels.get(name, {}).get("job", ())}
    jobs = jobs if all(re.fullmatch(r"[\w./:@-]+", job) for job in jobs) else set()
    app = "{{app}}" if jobs else ""
    if "process_cpu_seconds_total" in server.names:
        query = f"sum(rate(process_cpu_seconds_total{app}[{{rate}}])) * 100"
        server.add("CPU", "percent of one core", Better.LOWER, query, "process_cpu_seconds_total")
    for name, unit in _GAUGES.items():
        if name in server.names:
            server.add(name, unit, Better.LOWER, f"sum({name}{app})", name)
    for name, (title, query) in _HOST.items():
        if name in server.names:
            server.add(title, "percent", Better.LOWER, query, *re.findall(r"node_\w+", query))
    ends = ("_total", "_bucket", "_sum", "_count", "_info")
    gauges = [name for name in sorted(server.names) if name in server.gauges or not name.endswith(ends)]
    own = [name for name in gauges if not re.fullmatch(_OF_RUNTIME, name)]
    for name in [each for each in own if _words(_LOAD, each)][:1]:
        server.add(name, "users", Better.NEUTRAL, f"sum({name})", name, load=True, margin_percent=5.0)
    for name in own:
        assumed = assumed_metric(name)
        if assumed.better != Better.NEUTRAL and name not in server.used:
            server.add(name, assumed.unit, assumed.better, f"sum({name})", name, gate=assumed.gate)
    return {"app": f'job=~"{"|".join(sorted(jobs))}"'} if jobs else {}


def draft_of_server(url: str, windows: Mapping[Side, tuple[str, str]]) -> Draft:
    """Recognise what a Prometheus measured in the windows of both builds.

    Raises
    ------
    InputError
        If an address or time is wrong, or the server has no metric that a rule takes in both windows.
    SourceError
        If the server cannot be reached or fails.
    """
    source = checked(Source, {"kind": "prometheus", "url": url})
    runs = {}
    for side in SIDES:
        start, end = windows[side]
        try:
            runs[side] = checked(Run, {"start": start, "end": end})
        except InputError as error:
            raise error.within(f"--{side}") from None
    with closing(Client(source, url)) as client:
        names = {side: _names(client, runs[side], side) for side in SIDES}
        both = {name for name in names["base"] & names["new"] if not re.fullmatch(_OF_SERVER, name)}
        server = _Server(both, *_described(client, both, runs["new"]))
        for stem in server.histograms():
            _take_histogram(server, stem)
        _take_rates(server)
        variables = _take_resources(server)
        if not server.metrics:
            expected = f"histograms, counters of requests, CPU or memory at {url} in both windows"
            raise InputError(file=None, key="--prometheus", expected=expected, found=f"{len(both)} other metrics")
        settings = _steps(client, runs, min(server.used))
    catalogue = Catalogue(metrics=tuple(server.metrics), label_tables=tuple(server.tables), variables=variables)
    return _draft(windows, server, catalogue, {"kind": "prometheus", "url": url, **settings}, names)


def _names(client: Client, run: Run, side: Side) -> set[str]:
    """Names of all metrics in the window of a build."""
    names = {str(name) for name in client.listing("/api/v1/label/__name__/values", _asked(run))}
    if not names:
        expected = f"a window with metrics at {client.url}"
        raise InputError(file=None, key=f"--{side}", expected=expected, found="none from start to end")
    return names


def _asked(run: Run) -> dict[str, str]:
    assert run.window is not None  # both times were checked
    return {name: f"{instant.timestamp():.3f}" for name, instant in zip(("start", "end"), run.window, strict=True)}


def _described(client: Client, names: set[str], run: Run) -> tuple[dict[str, dict[str, set[str]]], set[str]]:
    """The labels of counters and of counts of histograms, and the names that the server calls gauges."""
    types, within = client.listing("/api/v1/metadata", {}), _asked(run)
    gauges = {name for name, rows in types.items() if any(row.get("type") == "gauge" for row in rows)}
    found: dict[str, dict[str, set[str]]] = {}
    for name in sorted(each for each in names - gauges if re.fullmatch(r"[a-zA-Z_:][\w:]*_(total|count)", each)):
        values = defaultdict[str, set[str]](set)
        if _words(f"{_REQUESTS}|http|grpc|api|{FAILED}", name):
            for series in client.listing("/api/v1/series", {"match[]": name, "limit": "10000", **within}):
                for label, value in series.items():
                    values[label].add(value)
        found[name] = values
        if values and (buckets := name.removesuffix("count") + "bucket") in names:
            found[buckets] = {"le": {*client.listing("/api/v1/label/le/values", {"match[]": buckets, **within})}}
    return found, gauges


def _steps(client: Client, runs: Mapping[Side, Run], name: str) -> dict[str, float]:
    """Choose steps and the window of rates by how often the server scrapes and how long the runs are."""
    scrapes, lengths = [], []
    for side in SIDES:
        start, end = (float(each) for each in _asked(runs[side]).values())
        middle = (start + end) / 2
        asked = middle, min(end, middle + 300.0), 1.0
        times = [
            values for *_, values in client.query_range(f"max(timestamp({name})) by (job, instance)", *asked).series
        ]
        steps = np.diff(np.unique(times[0])) if times else np.empty(0)
        scrapes.append(float(np.median(steps)) if steps.size else 15.0)
        lengths.append(end - start)
    rate = max(5.0, round(4 * max(scrapes)), min(60.0, min(lengths) // 20))
    return {"step_s": float(min(5, max(1, round(min(scrapes))))), "label_step_s": rate, "rate_s": rate}


def _draft(
    windows: Mapping[Side, tuple[str, str]],
    server: _Server,
    catalogue: Catalogue,
    source: Mapping[str, object],
    names: Mapping[Side, set[str]],
) -> Draft:
    """Say what was taken and what was not, and state it as params."""
    keys = {side: {"start": windows[side][0], "end": windows[side][1]} for side in SIDES}
    test = {"name": "bounded", "type": "bounded", "base": [keys["base"]], "new": [keys["new"]]}
    params = check_params({"base": {"label": "base"}, "new": {"label": "new"}, "source": source, "tests": [test]})
    every = names["base"] | names["new"]
    reasons = {
        name: "of_server" if re.fullmatch(_OF_SERVER, name) else "no_rule" if name in server.names else "one_window"
        for name in sorted(every - server.used)
    }
    said = [
        say("init", "server", source["url"], len(every), source["rate_s"]),
        say("init", "metrics", "", assumed=True),
        *(say("init", "metric", each, "") for each in catalogue.metrics),
        say("init", "load", next((each.name for each in catalogue.metrics if each.load), None)),
        *(
            say("init", "labels", each.group, sorted(server.labels[f"{each.title}_count"][each.label]), MOST_LABELS)
            for each in catalogue.label_tables
        ),
    ]
    unused = [say("init", "unused", name, say("init", "why", why)) for name, why in reasons.items()]
    return Draft(params, catalogue, {side: [(keys[side], "")] for side in SIDES}, said, unused)
