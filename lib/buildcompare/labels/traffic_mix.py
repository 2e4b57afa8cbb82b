"""Did an average change because calls became slower, or because other calls were made?

An average over all calls is the sum of share times duration over the labels. Its change is split exactly into a mix
part (shares moved, at the mean of both builds' durations) and a speed part (durations moved, at the mean of both
builds' shares): the symmetric weights of Marshall and Edgeworth, which for two factors are the Shapley value (Sun 1998,
"Accounting for the dynamic SO2 emission", Energy Economics 20; Ang 2004, "Decomposition analysis for policymaking in
energy", Energy Policy 32). Unlike logarithmic weights they need no care where a label is called in one build only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise

Interval = tuple[float, float]
MixKind = Literal["mix", "speed", "both", "neither", "unknown"]
"""What moved: `unknown` where the mix did and nobody knows how far speed moves by chance."""


@dataclass(frozen=True)
class Traffic:
    """One label in one build: how often it was called, and seconds per call (NaN where it was never called)."""

    calls: float
    seconds: float


@dataclass(frozen=True)
class Mover:
    """A label whose share moved the average: its shares of all calls, seconds per call, and its part in percent."""

    label: str
    base_share: float
    new_share: float
    seconds: float
    percent: float


@dataclass(frozen=True)
class Split:
    """The change of an average, in percent of the base's: `delta_percent` is `mix_percent` plus `speed_percent`.

    Attributes
    ----------
    base, new
        The averages in seconds, from the labels.
    log_mix, log_ratio
        The mix part and the whole change as logarithms of ratios; the rest of `log_ratio` is the speed part.
    mix_ci, speed_ci
        95 % intervals of the parts, where the noise of the labels is known.
    movers
        Labels by the size of their part in the mix, the largest first.
    """

    base: float
    new: float
    delta_percent: float
    mix_percent: float
    speed_percent: float
    log_mix: float
    log_ratio: float
    mix_ci: Interval | None
    speed_ci: Interval | None
    movers: tuple[Mover, ...]


@dataclass(frozen=True)
class SplitAverage:
    """Split the change of an average over labels into mix and speed.

    Parameters
    ----------
    least_known
        Part of the calls of each build that must have a duration. A label that one build never called has the other
        build's: its speed did not change, as far as anybody knows.
    """

    least_known: float = 0.99
    level: float = 0.95

    def __call__(
        self, base: Mapping[str, Traffic], new: Mapping[str, Traffic], noise: Mapping[str, Noise] | None = None
    ) -> Split | None:
        """Split the change from `base` to `new`, by label; None where calls or durations are not known well enough.

        `noise` is that of single runs by label, already divided by the number of runs where there are several.
        """
        labels = sorted({*base, *new})
        none = Traffic(0.0, math.nan)
        calls = np.array([[side.get(label, none).calls for label in labels] for side in (base, new)])
        seconds = np.array([[side.get(label, none).seconds for label in labels] for side in (base, new)])
        usable = np.isfinite(seconds) & (seconds >= 0) & np.isfinite(calls) & (calls > 0)
        calls = np.where(np.isfinite(calls), calls, 0.0)
        total, known = calls.sum(axis=1), (calls * usable).sum(axis=1)
        if not labels or total.min() <= 0 or np.any(known < self.least_known * total):
            return None
        shares = calls * usable / known[:, None]
        filled = np.where(usable, seconds, np.where(usable[::-1], seconds[::-1], 0.0))
        averages = (shares * filled).sum(axis=1)
        if averages.min() <= 0:
            return None
        moved, typical = shares[1] - shares[0], filled.mean(axis=0)
        # Shares sum to one, so moving calls to a label of average duration changes nothing: parts are against it.
        parts = 100.0 * moved * (typical - averages.mean()) / averages[0]
        mix, speed = float(parts.sum()), float(((filled[1] - filled[0]) * shares.mean(axis=0)).sum())
        speed *= 100.0 / averages[0]
        delta = 100.0 * float(averages[1] / averages[0] - 1.0)
        log_ratio = math.log(averages[1] / averages[0])
        scale = log_ratio / delta if abs(delta) > 1e-9 else 0.01  # one over the logarithmic mean of both averages
        order = np.argsort(-np.abs(parts), kind="stable")
        intervals = self._intervals(
            labels, noise or {}, moved * typical, shares.mean(axis=0) * typical, averages[0], (mix, speed)
        )
        return Split(
            base=float(averages[0]),
            new=float(averages[1]),
            delta_percent=delta,
            mix_percent=mix,
            speed_percent=speed,
            log_mix=mix * scale,
            log_ratio=log_ratio,
            mix_ci=intervals[0],
            speed_ci=intervals[1],
            movers=tuple(
                Mover(labels[i], float(shares[0, i]), float(shares[1, i]), float(typical[i]), float(parts[i]))
                for i in order
                if moved[i] != 0
            ),
        )

    def _intervals(
        self,
        labels: list[str],
        noise: Mapping[str, Noise],
        moved: FloatArray,
        weight: FloatArray,
        base: float,
        parts: tuple[float, float],
    ) -> tuple[Interval | None, Interval | None]:
        """From the labels' noise; None where labels that make up a tenth of the average have none.

        The mean of two builds' durations varies by a half, their difference by two variances of a single run.
        """
        known = np.array([label in noise for label in labels])
        if weight[known].sum() < 0.9 * weight.sum():
            return None, None
        sd = np.array([noise[label].sd if label in noise else 0.0 for label in labels])
        df = min(each.df for each in noise.values())
        reach = float(
            special.ndtri(0.5 + self.level / 2) if math.isinf(df) else special.stdtrit(df, 0.5 + self.level / 2)
        )
        half_mix = reach * 100.0 / base * math.sqrt(float(((moved * sd) ** 2).sum()) / 2.0)
        half_speed = reach * 100.0 / base * math.sqrt(float(((weight * sd) ** 2).sum()) * 2.0)
        mix, speed = parts
        return (mix - half_mix, mix + half_mix), (speed - half_speed, speed + half_speed)


@dataclass(frozen=True)
class TellMix:
    """Say what moved an average whose noise between runs is known.

    The noise of the labels knows nothing of what slows a whole run, so speed is judged with the noise that the average
    itself has between runs of one build.

    Parameters
    ----------
    material
        A mix part of this part of the metric's margin is worth a word: half, as movements of several tests agree.
    alpha
        Of pairs whose speed did not change at most this part is said to have changed. It is small because the noise
        of an average is often borrowed from other setups: with a tenth more noise than assumed it is twice as much.
    """

    material: float = 0.5
    alpha: float = 0.01

    def __call__(self, split: Split, effect: Effect | None, margin_percent: float) -> MixKind:
        """Which of the parts of `split` moved; `effect` is that of the average itself."""
        moved = self.is_material(split, margin_percent)
        if effect is None:
            return "unknown" if moved else "neither"
        faster_or_slower = at_unchanged_mix(effect, split).p_value < self.alpha
        if moved:
            return "both" if faster_or_slower else "mix"
        return "speed" if faster_or_slower else "neither"

    def is_material(self, split: Split, margin_percent: float) -> bool:
        """Whether the mix moved the average by more than chance and by enough to matter."""
        if abs(split.mix_percent) < self.material * margin_percent:
            return False
        return split.mix_ci is None or split.mix_ci[0] > 0 or split.mix_ci[1] < 0

    def agrees(self, split: Split, effect: Effect, margin_percent: float) -> bool:
        """Whether the labels add up to the average: its own change is theirs within the margin."""
        return abs(split.log_ratio - effect.log_ratio) <= math.log1p(margin_percent / 100.0)


def at_unchanged_mix(effect: Effect, split: Split) -> Effect:
    """The effect on an average, had both builds been asked the same."""
    return replace(effect, log_ratio=effect.log_ratio - split.log_mix)
