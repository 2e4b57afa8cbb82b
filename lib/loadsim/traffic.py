"""How often is each label called, and what do its call rate and its times show over a run?

How often Mattermost calls a label is not published; here it is as often as it is short, so that no label decides an
average alone. Traffic stands beside the settings of a run, not in them: without it nothing of a recording changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from buildcompare.recordings.recording import FloatArray, LabelSummary, Series
from loadsim.labels import typical_seconds
from loadsim.settings import RunSettings

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


@dataclass(frozen=True)
class PlayTraffic:
    """Give a recording a series of each label, and its averages what follows from them.

    Attributes
    ----------
    requests, slow
        Requests per second, and the factor on the server's times, for each second of the run.
    slowed
        The factor of the whole run on API and on store times, shape (2,): what the summaries hold already.
    """

    settings: RunSettings
    traffic: Traffic
    requests: FloatArray
    slow: FloatArray
    slowed: FloatArray

    def __call__(
        self, graphs: tuple[Series, ...], summaries: tuple[LabelSummary, ...], rng: np.random.Generator
    ) -> tuple[tuple[Series, ...], tuple[LabelSummary, ...]]:
        """The graphs with a series of each label, and the summaries."""
        scaled = tuple(
            replace(row, value=row.value * self.traffic.of_label(self.traffic.times, row.group, row.label))
            for row in summaries
        )
        shares, factors = {}, {}
        for (group, slug), slowed in zip(AVERAGES.items(), self.slowed, strict=True):
            shares[group] = self._shares(group, rng)
            averages = {row.label: row.value for row in scaled if (row.group, row.stat) == (group, "avg")}
            spent = sum(share * averages[label] for label, share in shares[group].items())
            factors[slug] = spent / sum(shares[group].values()) / (self._plain(group) * float(slowed))
        moved = tuple(replace(s, values=s.values * factors[s.metric]) if s.metric in factors else s for s in graphs)
        return moved + tuple(self._labels(scaled, shares)), scaled

    def _plain(self, group: str) -> float:
        """The average over all calls with unchanged traffic, where every label takes its typical time."""
        typical = typical_seconds(self.settings)[group]
        return len(typical) / sum(1.0 / seconds for seconds in typical.values())

    def _shares(self, group: str, rng: np.random.Generator) -> dict[str, float]:
        """By label, its calls as a part of all calls of unchanged traffic."""
        typical = typical_seconds(self.settings)[group]
        total = sum(1.0 / seconds for seconds in typical.values())
        drawn = np.exp(rng.normal(size=len(typical)) * SHARE_SD * self.settings.noise.level_scale)
        return {
            label: float(jitter) / seconds / total * self.traffic.of_label(self.traffic.calls, group, label)
            for (label, seconds), jitter in zip(typical.items(), drawn, strict=True)
        }

    def _labels(self, summaries: tuple[LabelSummary, ...], shares: dict[str, dict[str, float]]) -> list[Series]:
        count = self.requests.size // STEP_S
        served = self.requests[: count * STEP_S].reshape(count, STEP_S).mean(axis=1)
        shape = self.slow[: count * STEP_S].reshape(count, STEP_S).mean(axis=1)
        shape /= float(np.average(self.slow, weights=self.requests))
        times = self.settings.start + STEP_S * np.arange(1.0, count + 1.0)
        found = []
        for group, of_label in shares.items():
            for label, share in of_label.items():
                rate = served * share * (STORE_CALLS_PER_REQUEST if group == "store" else 1.0)
                found.append(Series(group, label, "calls/s", times, rate, role="label", stat="calls"))
        for row in summaries:
            values = row.value * shape if shares[row.group][row.label] > 0 else np.full(count, np.nan)
            found.append(Series(row.group, row.label, "seconds", times, values, role="label", stat=row.stat))
        return found
