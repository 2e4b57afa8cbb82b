"""How often is each label called, and what do its call rate and its times show over a run?

How often Mattermost calls a label is not published; here it is as often as it is short, so that no label decides an
average alone. Traffic stands beside the settings of a run, not in them: without it nothing of a recording changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.recording import FloatArray, LabelSummary, Series
from buildcompare.simulate.labels import typical_seconds
from buildcompare.simulate.settings import RunSettings

STEP_S = 60
"""What each point of a label's series covers, as in pulled recordings."""
SHARE_SD = 0.01
"""Run-to-run standard deviation of the log of a label's share of the calls: agents draw their actions from fixed
probabilities, so shares vary as the requests per second do (`measure.LEVEL_SD`)."""
STORE_CALLS_PER_REQUEST = 8.0
"""Database calls for each request of the API, in the order of magnitude of published totals."""
AVERAGES = {"api": "avg-api-times", "store": "avg-store-times"}


@dataclass(frozen=True)
class Traffic:
    """What is called how often, and how long it takes, as factors by ``group/label``; ``group/*`` means every label."""

    calls: tuple[tuple[str, float], ...] = ()
    times: tuple[tuple[str, float], ...] = ()

    def of_label(self, factors: tuple[tuple[str, float], ...], group: str, label: str) -> float:
        """The product of all factors that name this label."""
        found = [factor for name, factor in factors if name in (f"{group}/{label}", f"{group}/*")]
        return float(np.prod(found)) if found else 1.0

    def average_factor(self, group: str, settings: RunSettings) -> float:
        """The true ratio of the average over all calls to that of unchanged traffic."""
        typical = typical_seconds(settings)[group]
        plain = len(typical) / sum(1.0 / seconds for seconds in typical.values())
        calls = {label: self.of_label(self.calls, group, label) / s for label, s in typical.items()}
        spent = sum(calls[label] * s * self.of_label(self.times, group, label) for label, s in typical.items())
        return float(spent / sum(calls.values()) / plain)


def with_traffic(
    series: tuple[Series, ...],
    summaries: tuple[LabelSummary, ...],
    settings: RunSettings,
    traffic: Traffic,
    requests: FloatArray,
    slow: FloatArray,
    rng: np.random.Generator,
) -> tuple[tuple[Series, ...], tuple[LabelSummary, ...]]:
    """The graphs moved by `traffic` with a series of each label, and the summaries.

    `requests` (per second) and `slow` (factor on times) have one value for each second of the run.
    """
    factors = {AVERAGES[group]: traffic.average_factor(group, settings) for group in AVERAGES}
    graphs = tuple(
        Series(s.metric, s.name, s.unit, s.times, s.values * factors[s.metric]) if s.metric in factors else s
        for s in series
    )
    scaled = tuple(
        LabelSummary(r.group, r.label, r.stat, r.value * traffic.of_label(traffic.times, r.group, r.label))
        for r in summaries
    )
    count = requests.size // STEP_S
    served = requests[: count * STEP_S].reshape(count, STEP_S).mean(axis=1)
    shape = slow[: count * STEP_S].reshape(count, STEP_S).mean(axis=1) / float(np.average(slow, weights=requests))
    times = settings.start + STEP_S * np.arange(1.0, count + 1.0)
    return graphs + tuple(_labels(scaled, settings, traffic, times, served, shape, rng)), scaled


def _labels(
    summaries: tuple[LabelSummary, ...],
    settings: RunSettings,
    traffic: Traffic,
    times: FloatArray,
    served: FloatArray,
    shape: FloatArray,
    rng: np.random.Generator,
) -> list[Series]:
    found = []
    for group, typical in typical_seconds(settings).items():
        per_request = STORE_CALLS_PER_REQUEST if group == "store" else 1.0
        total = sum(1.0 / seconds for seconds in typical.values())
        drawn = np.exp(rng.normal(size=len(typical)) * SHARE_SD * settings.noise.level_scale)
        for (label, seconds), jitter in zip(typical.items(), drawn, strict=True):
            share = jitter / seconds / total * traffic.of_label(traffic.calls, group, label)
            rate = served * per_request * share
            found.append(Series(group, label, "calls/s", times, rate, role="label", stat="calls"))
            for row in summaries:
                if (row.group, row.label) == (group, label):
                    values = np.where(rate > 0, row.value * shape, np.nan)
                    found.append(Series(group, label, "seconds", times, values, role="label", stat=row.stat))
    return found
