"""Read numbers without times: the summaries that k6, vegeta, wrk, hey and oha print, and the results of pyperf."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.units import unit_factor
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import Measurement, Note
from loadfiles.request_log import CHECKS, endpoint_of

_Values: TypeAlias = tuple[float | None, float, Iterable[float | None], *tuple[float | None, ...]]
"""Requests per second, the unit of times in seconds, mean, p50, p95 and p99, and the part of requests that succeeded;
then, for k6, that of checks."""
_NAMES = (
    "Requests",
    "Response time",
    *(f"P{share} response time" for share in (50, 95, 99)),
    "Successful requests",
    CHECKS,
)


def _k6(data: Any) -> _Values:
    """Read k6's summary; its new form lists the metrics, and has no rate."""
    stated = data.get("metrics") or {each["name"]: each for each in data["results"]["metrics"]}
    metrics = {name: each.get("values", each) for name, each in stated.items()}
    times = next(metrics[f"{name}_req_duration"] for name in ("http", "grpc") if f"{name}_req_duration" in metrics)
    failed = metrics.get("http_req_failed", {})
    part = failed.get("value", failed.get("rate"))
    requests = metrics["http_reqs" if "http_reqs" in metrics else "iterations"]
    rate = requests["rate"] if "rate" in requests else requests["count"] / data["config"]["duration"]
    shares = (times.get(f"p({share})", times.get(f"p{share}")) for share in (95, 99))
    checks = metrics.get("checks", {})
    good = None if part is None else 1.0 - part
    return rate, 1e-3, (times["avg"], times.get("med"), *shares), good, checks.get("value", checks.get("rate"))


def _vegeta(data: Any) -> _Values:
    times = data["latencies"]
    return data["rate"], 1e-9, (times["mean"], *map(times.get, ("50th", "95th", "99th"))), data["success"]


def _oha(data: Any) -> _Values:
    """Read oha's JSON; its success rate counts every answer, so that codes tell which failed."""
    summary, codes = data["summary"], data.get("statusCodeDistribution") or {}
    bad = sum(count for code, count in codes.items() if int(code) >= 400) / max(sum(codes.values()), 1)
    times = (summary["average"], *map(data["latencyPercentiles"].get, ("p50", "p95", "p99")))
    return summary["requestsPerSec"], 1.0, times, summary["successRate"] * (1.0 - bad)


COARSE_S = 0.005  # hey prints 0.1 ms, which misstates longer times by at most 1 %; the margins of times are 10 %
_COARSE = "times below 5 ms are left out, as hey prints four decimals: use `hey -o csv`"
_DURATION = r"([0-9.]+)([^\s\d.,]*)"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def _first(pattern: str, text: str) -> float | None:
    """Find a number, with its unit of time if the pattern has one."""
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1]) * _SECONDS[match[2] if match.re.groups > 1 else ""] if match else None


def _vegeta_text(text: str) -> _Values:
    rate, good = _first(r"^Requests .*\] +\d+, ([0-9.]+)", text), _first(r"^Success .*\] +([0-9.]+)%", text)
    times = re.search(r"(?m)^Latencies [^\[\n]*\[([^\]\n]*)\] +(.*)", text)
    stated = dict(zip(times[1].split(", "), times[2].split(", "), strict=True)) if times else {}
    parts = (re.findall(_DURATION, stated[name]) if name in stated else () for name in ("mean", "50", "95", "99"))
    seconds = (sum(float(size) * _SECONDS[unit] for size, unit in each) if each else None for each in parts)
    return rate, 1.0, seconds, None if good is None else good / 100.0


def _wrk(text: str) -> _Values:
    requests, bad = _first(r"^ *([0-9]+) requests in", text), _first(r"Non-2xx or 3xx responses: ([0-9]+)", text) or 0.0
    lost = sum(map(int, re.findall(r"\d+", (re.search(r"Socket errors:(.*)", text) or "0")[0])))
    shares = (_first(rf"^[ \t]*{share}(?:\.0+)?%\s+{_DURATION}", text) for share in (50, 95, 99))
    times = (_first(rf"Latency\s+{_DURATION}", text), *shares)
    good = 1.0 - (bad + lost) / (requests + lost) if requests else None
    return _first(r"Requests/sec:\s*([0-9.]+)", text), 1.0, times, good


def _hey(text: str) -> _Values:
    codes = [(int(code), int(count)) for code, count in re.findall(r"\[(\d{3})\]\s+([0-9]+) responses", text)]
    failed = sum(map(int, re.findall(r"(?m)^[ \t]*\[([0-9]+)\]\s+\D", text.partition("Error distribution")[2])))
    asked, good = failed + sum(count for _, count in codes), sum(count for code, count in codes if code < 400)
    shares = (_first(rf"{share}%+ in ([0-9.]+) secs", text) for share in (50, 95, 99))
    stated = (_first(r"Average:\s*([0-9.]+) secs", text), *shares)
    times = (math.inf if seconds is not None and seconds < COARSE_S else seconds for seconds in stated)
    return _first(r"Requests/sec:\s*([0-9.]+)", text), 1.0, times, good / asked if asked else None


_Form: TypeAlias = tuple[str, bytes, Callable[[BinaryIO, InputFile, Catalogue], Recording]]


def _summary(kind: str, pattern: bytes, make: Callable[[Any], _Values], target: bytes = b"", note: str = "") -> _Form:
    def read(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
        file = replace(file, contents=stream.read())
        is_json, at = pattern.startswith(rb"\{"), re.search(target, file.contents[:200]) if target else None
        if (runs := len(re.findall(rb"\n\}\{|\}\r?\n\{" if is_json else pattern, file.contents)) + is_json) > 1:
            raise file.fault("contents", "one run per file", f"{runs} runs")
        rate, unit, times, *good = make(file.json() if is_json else file.contents.decode())
        numbers = np.array([rate, *times, *good], dtype=np.float64) * [1.0, *[unit] * 4, *[100.0] * len(good)]
        numbers[:5] = np.nan if good[0] == 0 else numbers[:5]  # times of failures say nothing
        named = ((name, value) for name, value in zip(_NAMES, numbers, strict=False) if np.isfinite(value))
        measured = (Measurement.of(name, [value], catalogue) for name, value in named)
        read = _whole_run(
            kind, file, (replace(each, unit="percent") if each.name == CHECKS else each for each in measured)
        )
        notes = (Note("source", note),) if note and np.isinf(numbers).any() else ()
        about = {"target": endpoint_of("", at[1].decode())} if at else {}
        return replace(read, notes=notes, provenance={**read.provenance, **about})

    return kind, pattern, read


def _whole_run(kind: str, file: InputFile, measured: Iterable[Measurement], session: str | None = None) -> Recording:
    numbers, about = tuple(measured), {"kind": kind, "files": [file.provenance]}
    if not numbers:
        raise file.fault("contents", f"numbers of {kind}", "none")
    return Recording((), (0.0, 0.0), True, measurements=numbers, provenance=about, session=session)


_UNITS = {"second": ("s", "seconds"), "byte": ("bytes", "bytes"), "integer": ("", "")}
"""Unit of pyperf -> its abbreviation, and the unit of a metric."""


def _pyperf(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Read a result of pyperf (JSON); its processes share a start and are no runs, so the file is a session."""
    file = replace(file, contents=stream.read())
    data = file.json()
    measured = [_measured(each, data.get("metadata", {}), file, catalogue) for each in data["benchmarks"]]
    names = [each.metric for each in measured]
    if twice := {name for name in names if names.count(name) > 1}:
        raise file.fault("benchmarks", "a different name for each", f"{min(twice)!r} twice")
    return _whole_run("pyperf", file, measured, session="")


def _measured(benchmark: Any, shared: Any, file: InputFile, catalogue: Catalogue) -> Measurement:
    """Take the values of one benchmark; calibrations and warm-ups are left out."""
    metadata = {**shared, **benchmark.get("metadata", {})}
    name, (stated, unit) = str(metadata["name"]), _UNITS[metadata.get("unit", "second")]
    numbers = np.array([value for run in benchmark["runs"] for value in run.get("values") or ()], dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size or not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise file.fault(name, "values above 0", "other values" if numbers.size else "none")
    metric = catalogue.find(name)
    shown, unit = (metric.name, metric.unit) if metric.known else (name, unit)
    return Measurement(metric.slug, shown, unit, numbers * unit_factor(file.fault, name, stated, unit))


NUMBERS = (
    ("pyperf", rb'\{(?=.*"benchmarks"\s*:\s*\[).*"runs"\s*:\s*\[', _pyperf),
    _summary("k6", rb'\{(?:(?=.*"metrics"\s*:).*"(?:http|grpc)_req_|\s*"config"\s*:\s*\{\s*"duration"\s*:)', _k6),
    _summary("vegeta", rb'\{(?=.*"latencies"\s*:).*"50th"', _vegeta),
    _summary("vegeta", rb"Requests\s+\[total, rate", _vegeta_text),
    _summary("oha", rb'\{(?=.*"summary"\s*:).*"requestsPerSec"', _oha),
    _summary("wrk", rb"Running \S+ test @ ", _wrk, target=rb"test @ (\S+)"),
    _summary("hey", rb"Summary:\s+Total:\s", _hey, note=_COARSE),
)
"""Tool, pattern of a file's first bytes, and reader."""
