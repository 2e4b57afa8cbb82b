"""Read results of pyperf: the values of each benchmark, over all processes of one start."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import InputFile, unit_factor
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, Measurement

PATTERN = rb'\{.*"benchmarks"\s*:\s*\[.*"runs"\s*:\s*\['
"""Recognises a file by its first bytes."""
_UNITS = {"second": ("s", "seconds"), "byte": ("bytes", "bytes"), "integer": ("", "")}
"""Unit of pyperf -> its abbreviation, and the unit of a metric."""


def read_pyperf(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Read a result of pyperf (JSON); its processes share a start and are no runs, so the file is a session."""
    whole = InputFile(file.path, stream.read(), file.stored)
    data = whole.json()
    try:
        shared = data.get("metadata", {})
        measured = [_measured(each, shared, file, catalogue) for each in data["benchmarks"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise file.fault("benchmarks", "names and values of pyperf", f"{type(error).__name__}: {error}") from None
    if twice := {each.metric for each in measured if [other.metric for other in measured].count(each.metric) > 1}:
        raise file.fault("benchmarks", "a different name for each", f"{min(twice)!r} twice")
    if not measured:
        raise file.fault("benchmarks", "at least one", "none")
    provenance = {"kind": "pyperf", "files": [file.provenance]}
    numbers = tuple(measured)
    return Recording((), (0.0, 0.0), stop_known=True, measurements=numbers, provenance=provenance, session="")


def _measured(benchmark: Any, shared: Any, file: InputFile, catalogue: Catalogue) -> Measurement:
    """Take the values of one benchmark; calibrations and warm-ups are left out."""
    metadata = {**shared, **benchmark.get("metadata", {})}
    name, (stated, unit) = str(metadata["name"]), _UNITS[metadata.get("unit", "second")]
    values = [value for run in benchmark["runs"] for value in run.get("values") or ()]
    numbers: FloatArray = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size or not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise file.fault(name, "values above 0", "others" if numbers.size else "none")
    metric = catalogue.find(name)
    if not metric.known:
        return Measurement(metric.slug, name, unit, numbers)
    return Measurement(metric.slug, metric.name, metric.unit, numbers * unit_factor(file, name, stated, metric.unit))
