"""Read the summaries that k6, vegeta, wrk, hey and oha print of a whole run: one number for each metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import Measurement

_Values: TypeAlias = Mapping[str, float | None]
"""Numbers of one run: the names are those of the catalogue `http`."""


def _values(rate: Any, mean: Any, shares: Sequence[Any], unit: float, good: float | None) -> _Values:
    """Name requests per second, mean time and percentiles in `unit` seconds, and the part that succeeded."""
    times = dict(zip(("Response", "P50 response", "P95 response", "P99 response"), (mean, *shares), strict=True))
    named = {f"{name} time": None if value is None else value * unit for name, value in times.items()}
    return {"Requests": rate, **named, "Successful requests": None if good is None else 100.0 * good}


def _k6_summary(data: Any) -> _Values:
    metrics = {name: each.get("values", each) for name, each in data["metrics"].items()}
    times = next(metrics[f"{name}_req_duration"] for name in ("http", "grpc") if f"{name}_req_duration" in metrics)
    failed, shares = metrics.get("http_req_failed", {}), [times.get(name) for name in ("med", "p(95)", "p(99)")]
    part = failed.get("value", failed.get("rate"))
    rate = metrics["http_reqs" if "http_reqs" in metrics else "iterations"]["rate"]
    return _values(rate, times["avg"], shares, 1e-3, None if part is None else 1.0 - part)


def _vegeta_summary(data: Any) -> _Values:
    times = data["latencies"]
    shares = [times.get(name) for name in ("50th", "95th", "99th")]
    return _values(data["rate"], times["mean"], shares, 1e-9, data["success"])


def _oha_summary(data: Any) -> _Values:
    """Read oha's JSON; its success rate counts every answer, so that codes tell which failed."""
    summary, codes = data["summary"], data.get("statusCodeDistribution") or {}
    bad = sum(count for code, count in codes.items() if int(code) >= 400) / max(sum(codes.values()), 1)
    shares = [data["latencyPercentiles"].get(name) for name in ("p50", "p95", "p99")]
    return _values(summary["requestsPerSec"], summary["average"], shares, 1.0, summary["successRate"] * (1.0 - bad))


_DURATION = r"([\d.]+)([^\s\d.,]*)"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def _first(pattern: str, text: str) -> float | None:
    """Find a number, with its unit of time if the pattern has one."""
    match = re.search(pattern, text)
    return None if match is None else float(match[1]) * _SECONDS[(match[2] if match.re.groups > 1 else "") or ""]


def _vegeta_text(text: str) -> _Values:
    rate, good = _first(r"Requests .*\]\s+\d+, ([\d.]+)", text), _first(r"Success .*\]\s+([\d.]+)%", text)
    times = re.search(r"Latencies .*\[(.*)\]\s+(.*)", text)
    named = dict(zip(times[1].split(", "), times[2].split(", "), strict=True)) if times else {}
    seconds = {
        name: sum(float(size) * _SECONDS[unit] for size, unit in re.findall(_DURATION, each))
        for name, each in named.items()
    }
    shares = [seconds.get(name) for name in ("50", "95", "99")]
    return _values(rate, seconds.get("mean"), shares, 1.0, None if good is None else good / 100.0)


def _wrk_summary(text: str) -> _Values:
    requests, bad = _first(r"(\d+) requests in", text), _first(r"Non-2xx or 3xx responses: (\d+)", text) or 0.0
    lost = sum(map(int, re.findall(r"\d+", (re.search(r"Socket errors:(.*)", text) or "0")[0])))
    shares = [_first(rf"\n\s*{share}(?:\.0+)?%\s+{_DURATION}", text) for share in (50, 95, 99)]
    good = 1.0 - (bad + lost) / (requests + lost) if requests else None
    return _values(
        _first(r"Requests/sec:\s*([\d.]+)", text), _first(rf"Latency\s+{_DURATION}", text), shares, 1.0, good
    )


def _hey_summary(text: str) -> _Values:
    codes = [(int(code), int(count)) for code, count in re.findall(r"\[(\d{3})\]\s+(\d+) responses", text)]
    failed = sum(int(count) for count in re.findall(r"\n\s*\[(\d+)\]\s+\D", text.partition("Error distribution")[2]))
    asked, good = failed + sum(count for _, count in codes), sum(count for code, count in codes if code < 400)
    shares = [_first(rf"{share}%+ in ([\d.]+) secs", text) for share in (50, 95, 99)]
    rate, mean = _first(r"Requests/sec:\s*([\d.]+)", text), _first(r"Average:\s*([\d.]+) secs", text)
    return _values(rate, mean, shares, 1.0, good / asked if asked else None)


def _reader(kind: str, make: Callable[[Any], _Values]) -> Callable[[BinaryIO, InputFile, Catalogue], Recording]:
    def read(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
        whole = InputFile(file.path, stream.read(), file.stored)
        try:
            values = make(
                whole.contents.decode("utf-8") if make in (_vegeta_text, _wrk_summary, _hey_summary) else whole.json()
            )
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
        ("vegeta", rb"Requests\s+\[total, rate", _vegeta_text),
        ("oha", rb'\{.*"summary"\s*:.*"requestsPerSec"', _oha_summary),
        ("wrk", rb"Running \S+ test @ ", _wrk_summary),
        ("hey", rb"Summary:\s+Total:\s", _hey_summary),
    )
)
"""Tool, pattern of a summary's first bytes, and reader."""
