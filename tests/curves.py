"""Curves, recordings and what is said of them: what tests of analyses and comparisons share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildcompare import findings
from buildcompare.config.catalogue import read_catalogue
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import TestResult

CATALOGUE = read_catalogue("mattermost")


def curve(values: Sequence[float] | np.ndarray, step_s: float = 5.0) -> pd.Series:
    values = np.asarray(values, dtype=float)
    return pd.Series(values, index=pd.Index(np.arange(values.size) * step_s, name="elapsed_s"))


def recording(**metrics: np.ndarray) -> Recording:
    series = []
    for name, values in metrics.items():
        metric = CATALOGUE.find(name.replace("_", "-"))
        series.append(Series(metric.slug, metric.name, metric.unit, np.arange(values.size) * 5.0, values))
    return Recording(tuple(series), (0.0, max(s.times[-1] for s in series)), stop_known=True)


def kinds(result: TestResult) -> dict[str, dict[str, Any]]:
    return {finding.kind: finding.evidence for finding in findings.find([result], ("v1", "v2"))}
