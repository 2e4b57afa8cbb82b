"""Export results as time series: OpenMetrics text for Prometheus, gauges in UDP packets for statsd."""

import hashlib
import math
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from pydantic import ValidationError

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.kinds import Sample, kind_of_results
from buildcompare.config.project import read_text, writing
from buildcompare.results import MetricResult, Results, Tested
from buildcompare.results.codes import Status, Verdict

PREFIX = "buildcompare"
MAX_BYTES = 500_000_000  # largest results.json
PACKET_BYTES = 1432
"""Size of a statsd packet that passes an Ethernet unfragmented."""
UNITS = {
    "seconds": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "milliseconds": ("seconds", 1e-3),
    "bytes": ("bytes", 1.0),
    "percent": ("ratio", 1e-2),
    "percent of one core": ("ratio", 1e-2),
}
"""Unit -> Prometheus base unit (the name's suffix) and factor; other units become the label `unit`."""
HELP = {
    "comparison_info": "The builds that were compared.",
    "verdict": "1 for the verdict of the comparison, 0 for the others.",
    "test_verdict": "1 for the verdict of the test, 0 for the others.",
    "test_metrics": "Metrics of the test by status.",
    "metric_seconds": "Level of a metric that is a time.",
    "metric_bytes": "Level of a metric in bytes.",
    "metric_ratio": "Level of a metric that is a part of a whole.",
    "metric_value": "Level of a metric in the unit that the label names.",
    "metric_change_ratio": "Change from base to new, 0.1 for 10 % more.",
    "metric_change_low_ratio": "Lower end of the 95 % interval of the change.",
    "metric_change_high_ratio": "Upper end of the 95 % interval of the change.",
    "metric_status": "1 for the status of the metric, 0 for the others.",
    "supported_users": "Users that a build supports.",
    "supported_users_change_ratio": "Change of the supported users from base to new.",
    "supported_users_change_low_ratio": "Lower end of the 95 % interval of the change.",
    "supported_users_change_high_ratio": "Upper end of the 95 % interval of the change.",
    "supported_users_status": "1 for the status of the supported users, 0 for the others.",
}

_FIRST = ("comparison", "test", "metric", "series", "operation", "variant")
"""Labels that stand before the name in a gauge of statsd."""


def read_results(file: Path) -> Results:
    """Read a results.json; an :class:`InputError` where it is none."""
    expected = "the results.json of a report"
    try:
        return Results.model_validate_json(read_text(file, expected, max_bytes=MAX_BYTES))
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"]) or None
        raise InputError(file=file, key=key, expected=expected, found=fault["msg"].casefold()) from None


def samples(results: Results) -> Iterator[Sample]:
    """Every exported number: name without prefix, labels, value (NaN if unknown)."""
    of = {"comparison": results.comparison}
    yield "comparison_info", {**of, "base": results.base.label, "new": results.new.label}, 1.0
    yield from _one_of("verdict", of, "verdict", Verdict, results.verdict)
    for test in results.tests:
        of_test = {**of, "test": test.name}
        yield from _one_of("test_verdict", of_test, "verdict", Verdict, test.verdict)
        for status in Status:
            count = sum((row.deciding or row).status == status for row in test.metrics)
            yield "test_metrics", {**of_test, "status": status}, float(count)
        for row in test.metrics:
            yield from _of_metric(of_test, row)
        if users := test.supported_users:
            for side in ("base", "new"):
                yield "supported_users", {**of_test, "build": side}, _float(getattr(users, side))
            yield from of_change("supported_users", of_test, users)
    if kind := kind_of_results(results):
        yield from kind.samples(results, of)


def _of_metric(of_test: dict[str, str], row: MetricResult) -> Iterator[Sample]:
    """The row that the verdict counts, such as at equal load or at unchanged traffic mix."""
    decides = row.deciding or row
    of_row = {**of_test, "metric": row.slug, "decided_by": row.decided_by}
    of_row |= {"series": ", ".join(row.labels.values())} if row.labels else {}
    unit, factor = UNITS.get(row.unit, ("value", 1.0))
    for side in ("base", "new"):
        labels = {**of_row, "build": side} | ({"unit": row.unit} if unit == "value" else {})
        yield f"metric_{unit}", labels, _float(getattr(decides, side)) * factor
    yield from of_change("metric", of_row, decides)


def of_change(name: str, labels: dict[str, str], row: Tested) -> Iterator[Sample]:
    """Samples of a change in percent, its interval and its status."""
    for end, percent in (("", row.delta_percent), ("low_", row.ci_low), ("high_", row.ci_high)):
        yield f"{name}_change_{end}ratio", labels, _float(percent) / 100.0
    yield from _one_of(f"{name}_status", labels, "status", Status, row.status)


def _one_of(name: str, labels: dict[str, str], label: str, values: Iterable[str], true: str) -> Iterator[Sample]:
    return ((name, {**labels, label: value}, float(value == true)) for value in values)


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def openmetrics(results: Results) -> bytes:
    """Write the results as OpenMetrics text, which Prometheus and node_exporter's textfile collector read."""
    families: dict[str, GaugeMetricFamily] = {}
    kind = kind_of_results(results)
    help_of = {**HELP, **(kind.help if kind else {})}
    for name, labels, value in samples(results):
        if math.isfinite(value):
            family = families.setdefault(name, GaugeMetricFamily(f"{PREFIX}_{name}", help_of[name]))
            family.add_sample(family.name, labels, value)

    collected = SimpleNamespace(collect=families.values)
    text: bytes = generate_latest(collected)  # type: ignore[no-untyped-call]  # it has no types
    return text


def statsd_lines(results: Results) -> list[str]:
    """Write gauges of statsd, labels as parts of their names: ``buildcompare.COMPARISON.TEST.METRIC.metric_seconds``.

    A number below zero follows a zero: alone it would be a decrement. Characters that a name cannot have are replaced;
    if names become equal by this, the changed parts end with a hash of the original.
    """
    gauges: list[tuple[list[str], float]] = []
    for name, labels, value in samples(results):
        if name != "comparison_info" and math.isfinite(value):
            first = [labels[key] for key in _FIRST if key in labels]
            last = [text for key, text in labels.items() if key not in (*_FIRST, "unit", "decided_by")]
            gauges.append(([PREFIX, *first, name, *last], value))
    plain = Counter(".".join(map(_plain, parts)) for parts, _ in gauges)
    lines = []
    for parts, value in gauges:
        gauge = ".".join(map(_plain, parts))
        if plain[gauge] > 1:
            gauge = ".".join(part if part == _plain(part) else _hashed(part) for part in parts)
        zero = f"{gauge}:0|g\n" if value < 0 else ""
        lines.append(f"{zero}{gauge}:{value:.10g}|g")
    return lines


def _plain(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", part)[:100]


def _hashed(part: str) -> str:
    return f"{_plain(part)}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def packets(lines: Iterable[str]) -> Iterator[bytes]:
    """Join lines to packets of at most `PACKET_BYTES`."""
    packet = ""
    for line in lines:
        if packet and len(packet) + 1 + len(line) > PACKET_BYTES:
            yield packet.encode()
            packet = ""
        packet = f"{packet}\n{line}" if packet else line
    if packet:
        yield packet.encode()


def statsd_address(target: str) -> tuple[Any, Any]:
    """Resolve ``HOST:PORT`` to the family and address of a socket."""
    named = re.fullmatch(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^\s:\[\]/]+):(\d{1,5})", target)
    if named is None or not 0 < int(named[2]) < 65_536:
        expected = "HOST:PORT, such as 127.0.0.1:8125"
        raise InputError(file=None, key="--statsd", expected=expected, found=repr(target[:80]))
    try:
        resolved = socket.getaddrinfo(named[1].strip("[]"), int(named[2]), type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        found = f"{named[1]}: {getattr(error, 'strerror', None) or 'no name that a host can have'}"
        raise InputError(file=None, key="--statsd", expected="a host that can be found", found=found) from None
    return resolved[0][0], resolved[0][4]


def send_statsd(results: Results, address: tuple[Any, Any]) -> int:
    """Send the gauges and return their number; a refusal by the receiving machine is a :class:`SourceError`."""
    lines = statsd_lines(results)
    with socket.socket(address[0], socket.SOCK_DGRAM) as sender:
        try:
            sender.connect(address[1])
            for packet in packets(lines):
                sender.send(packet)
        except OSError as error:
            url = f"statsd at {address[1][0]}:{address[1][1]}"
            raise SourceError(url=url, expected="a server of statsd", found=error.strerror or str(error)) from None
    return len(lines)


def check_file(file: Path) -> None:
    """Refuse a file that cannot be written, before anything is read."""
    with writing(file, "--openmetrics", "a file that can be written"):
        existed = file.exists()
        file.open("ab").close()
        if not existed:
            file.unlink()
