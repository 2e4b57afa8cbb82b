"""Read the summaries that k6, vegeta, wrk, hey and oha print of a whole run: one number for each metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import Measurement

_Values: TypeAlias = Mapping[str, float | None]
"""Numbers of one run: the names are those of the catalogue `http`."""


def _shares(percentiles: Mapping[str, Any], names: Mapping[str, str], unit: float) -> dict[str, float | None]:
    """Take percentiles by their names in a summary."""
    given = {stat: percentiles.get(name) for stat, name in names.items()}
    return {f"{stat} response time": None if value is None else float(value) * unit for stat, value in given.items()}


def _k6_summary(data: Any) -> _Values:
    metrics = {name: each.get("values", each) for name, each in data["metrics"].items()}
    times = next(metrics[f"{name}_req_duration"] for name in ("http", "grpc") if f"{name}_req_duration" in metrics)
    failed = metrics.get("http_req_failed", {})
    share = failed.get("value", failed.get("rate"))
    return {
        "Requests": metrics["http_reqs"]["rate"],
        "Response time": times["avg"] / 1e3,
        **_shares(times, {"P50": "med", "P95": "p(95)", "P99": "p(99)"}, 1e-3),
        "Successful requests": None if share is None else 100.0 - 100.0 * share,
    }


def _vegeta_summary(data: Any) -> _Values:
    times = data["latencies"]
    return {
        "Requests": data["rate"],
        "Response time": times["mean"] / 1e9,
        **_shares(times, {"P50": "50th", "P95": "95th", "P99": "99th"}, 1e-9),
        "Successful requests": 100.0 * data["success"],
    }


def _oha_summary(data: Any) -> _Values:
    summary = data["summary"]
    return {
        "Requests": summary["requestsPerSec"],
        "Response time": summary["average"],
        **_shares(data["latencyPercentiles"], {"P50": "p50", "P95": "p95", "P99": "p99"}, 1.0),
        "Successful requests": 100.0 * summary["successRate"],
    }


_DURATION = r"([\d.]+)([^\s\d.]*)"
_SECONDS = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def _first(pattern: str, text: str) -> float | None:
    """Find a number, with its unit of time if the pattern has one."""
    match = re.search(pattern, text)
    return None if match is None else float(match[1]) * _SECONDS[(match[2] if match.re.groups > 1 else "") or ""]


def _wrk_summary(text: str) -> _Values:
    requests, bad = _first(r"(\d+) requests in", text), _first(r"Non-2xx or 3xx responses: (\d+)", text) or 0.0
    return {
        "Requests": _first(r"Requests/sec:\s*([\d.]+)", text),
        "Response time": _first(rf"Latency\s+{_DURATION}", text),
        **{f"P{share} response time": _first(rf"\n\s*{share}(?:\.0+)?%\s+{_DURATION}", text) for share in (50, 95, 99)},
        "Successful requests": 100.0 - 100.0 * bad / requests if requests else None,
    }


def _hey_summary(text: str) -> _Values:
    codes = [(int(code), int(count)) for code, count in re.findall(r"\[(\d{3})\]\s+(\d+) responses", text)]
    failed = sum(int(count) for count in re.findall(r"\n\s*\[(\d+)\]\s+\D", text.partition("Error distribution")[2]))
    asked = failed + sum(count for _, count in codes)
    good = sum(count for code, count in codes if code < 400)
    return {
        "Requests": _first(r"Requests/sec:\s*([\d.]+)", text),
        "Response time": _first(r"Average:\s*([\d.]+) secs", text),
        **{f"P{share} response time": _first(rf"{share}%+ in ([\d.]+) secs", text) for share in (50, 95, 99)},
        "Successful requests": 100.0 * good / asked if asked else None,
    }


def _reader(kind: str, make: Callable[[Any], _Values]) -> Callable[[BinaryIO, InputFile, Catalogue], Recording]:
    def read(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
        whole = InputFile(file.path, stream.read(), file.stored)
        try:
            values = make(whole.contents.decode("utf-8") if make in (_wrk_summary, _hey_summary) else whole.json())
            numbers = {name: value for name, value in values.items() if value is not None and np.isfinite(value)}
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise file.fault("summary", "requests and their times", f"{type(error).__name__}: {error}") from None
        if not numbers:
            raise file.fault("summary", "requests and their times", "none")
        measurements = tuple(Measurement.of(name, [value], catalogue) for name, value in numbers.items())
        provenance = {"kind": kind, "files": [file.provenance]}
        return Recording((), (0.0, 0.0), stop_known=True, measurements=measurements, provenance=provenance)

    return read


SUMMARIES = tuple(
    (kind, pattern, _reader(kind, make))
    for kind, pattern, make in (
        ("k6", rb'\{.*"metrics"\s*:.*"(?:http|grpc)_req_duration"', _k6_summary),
        ("vegeta", rb'\{.*"latencies"\s*:.*"50th"', _vegeta_summary),
        ("oha", rb'\{.*"summary"\s*:.*"requestsPerSec"', _oha_summary),
        ("wrk", rb"Running \S+ test @ ", _wrk_summary),
        ("hey", rb"Summary:\s+Total:\s", _hey_summary),
    )
)
"""Tool, pattern of a summary's first bytes, and reader."""
