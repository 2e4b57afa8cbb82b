"""Split the change of an average into changed speed of calls and changed traffic mix (the labels' shares of calls).

The change of an average over all calls is a mix part plus a speed part, both summed over labels. A label's mix part is
the change of its share of calls times its mean duration. A label's speed part is the change of its duration times its
mean share of calls. These Marshall-Edgeworth weights give the Shapley value of two factors (Sun 1998, Energy Economics
20; Ang 2004, Energy Policy 32). Unlike logarithmic weights, these weights suit labels that only one build calls.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.labels.noise import FEWEST_ROWS
from buildcompare.labels.tables import CALLS, LEAST_ADDED, LabelTables, expect_columns
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import LEANING, LabelResult, MetricResult, MixMover, TrafficMixResult
from buildcompare.stats.effects import Effect, TestedEffect, judge_metrics
from buildcompare.stats.noise import LABEL_KEY, Noise
from buildcompare.stats.planning import ALPHA, Looks, quantile

Interval = tuple[float, float]
MixKind = Literal["mix", "speed", "both", "neither", "unknown"]
MATERIAL = 0.5  # Minimum change due to the traffic mix that matters, as a fraction of the metric's margin
LEAST_KNOWN = 0.99  # Minimum share of the calls of each build that must have a duration
SPEED_ALPHA = 0.01
"""Significance level of a change of speed. It is low because noise from another setup may be 10 % too small. Such noise
doubles the false positives. 0.02 was rejected on simulated runs (seeds 2000 to 2099 of `benchmarks/traffic_mix.py`)."""
MOST_MOVERS = 5  # Maximum number of labels per metric in results.json; a few cause most of the mix part


@dataclass(frozen=True, eq=False)
class TrafficMix:
    """Change of an average in percent of the base: `delta_percent` is `mix_percent` plus `speed_percent`."""

    base: float
    new: float  # Average in seconds over the labels, like `base`
    delta_percent: float
    mix_percent: float
    speed_percent: float
    log_ratio: float  # Logarithm of new / base; `log_mix` is the part that comes from the traffic mix
    log_mix: float
    mix_ci: Interval | None  # 95 % interval of `mix_percent`; None if the labels' noise is unknown
    speed_ci: Interval | None
    movers: pd.DataFrame
    """Labels whose share of all calls changed, sorted by the size of `percent`. Columns: label, base_share_percent,
    new_share_percent, seconds (per call, mean of both builds), percent (the label's part of `mix_percent`)."""

    def is_material(self, margin_percent: float) -> bool:
        """Whether the traffic mix changed the average by enough to matter. An interval that contains 0 gives False."""
        by_chance = self.mix_ci is not None and self.mix_ci[0] <= 0 <= self.mix_ci[1]
        return abs(self.mix_percent) >= MATERIAL * margin_percent and not by_chance

    def unmixed(self, effect: Effect) -> Effect:
        """Convert the average's `effect` to the effect at unchanged traffic mix."""
        return replace(effect, log_ratio=effect.log_ratio - self.log_mix)

    def kind(self, effect: Effect | None, margin_percent: float) -> MixKind:
        """Return what changed: traffic mix, speed, both, neither; `unknown` if the mix changed and `effect` is None.

        Speed has changed if the average's change (`effect`) at unchanged mix is significant, given noise between runs.
        """
        material = self.is_material(margin_percent)
        if effect is not None and self.unmixed(effect).p_value < SPEED_ALPHA:
            return "both" if material else "speed"
        return "neither" if not material else "unknown" if effect is None else "mix"


def traffic_mix(
    base: pd.DataFrame, new: pd.DataFrame, *, noise: Mapping[str, Noise] | None = None
) -> TrafficMix | None:
    """Split the change of an average over labels into a part due to the traffic mix and a part due to the calls' speed.

    Parameters
    ----------
    base, new
        One row per label, columns label, calls, seconds (per call; NaN without calls).
    noise
        Run-to-run noise of the seconds by label, already divided by the root of the number of runs per build. There are
        intervals only if labels of known noise make up at least 90 % of the average.

    Returns
    -------
    TrafficMix or None
        None if a build has no calls or an average of 0, or the share of calls with a duration is below `LEAST_KNOWN`.
        A label without calls in one build takes the other build's duration.

    Raises
    ------
    ValueError
        If a frame lacks a column, or has several rows for a label.

    Examples
    --------
    >>> base = pd.DataFrame({"label": ["fast", "slow"], "calls": [300.0, 100.0], "seconds": [0.001, 0.009]})
    >>> new = pd.DataFrame({"label": ["fast", "slow"], "calls": [100.0, 100.0], "seconds": [0.001, 0.0099]})
    >>> mix = traffic_mix(base, new)
    >>> f"{mix.delta_percent:.1f} % = {mix.mix_percent:.1f} % mix + {mix.speed_percent:.1f} % speed"
    '81.7 % = 70.4 % mix + 11.3 % speed'
    """
    for name, side in (("base", base), ("new", new)):
        expect_columns(name, side, ("label", CALLS, "seconds"))
        if side["label"].duplicated().any():
            raise ValueError(f"{name}: expected one row per label, found several")
    both = pd.concat([side.set_index("label") for side in (base, new)], axis=1, keys=["base", "new"]).sort_index()
    calls, seconds = (both.xs(name, axis=1, level=1).to_numpy(dtype=np.float64).T for name in (CALLS, "seconds"))
    usable = np.isfinite(seconds) & (seconds >= 0) & np.isfinite(calls) & (calls > 0)
    calls = np.where(np.isfinite(calls), calls, 0.0)
    total, usable_calls = calls.sum(axis=1), (calls * usable).sum(axis=1)
    if total.min() <= 0 or np.any(usable_calls < LEAST_KNOWN * total):
        return None
    shares = calls * usable / usable_calls[:, None]
    filled = np.where(usable, seconds, np.where(usable[::-1], seconds[::-1], 0.0))
    averages = (shares * filled).sum(axis=1)
    if averages.min() <= 0:
        return None
    moved, share, typical = shares[1] - shares[0], shares.mean(axis=0), filled.mean(axis=0)
    # Subtract the average duration: calls that move to a label of average duration do not change the average.
    percent = 100.0 * moved * (typical - averages.mean()) / averages[0]
    mix, speed = float(percent.sum()), 100.0 * float(((filled[1] - filled[0]) * share).sum() / averages[0])
    delta, log_ratio = 100.0 * float(averages[1] / averages[0] - 1.0), math.log(averages[1] / averages[0])
    scale = log_ratio / delta if abs(delta) > 1e-9 else 0.01  # converts percent of the base to a log ratio
    columns = {"label": both.index, "base_share_percent": 100.0 * shares[0], "new_share_percent": 100.0 * shares[1]}
    parts = pd.DataFrame({**columns, "seconds": typical, "percent": percent})[moved != 0]
    reach = _reach(both.index, moved * typical, share * typical, noise or {})
    halves = None if reach is None else [100.0 * each / averages[0] for each in reach]
    return TrafficMix(
        base=float(averages[0]), new=float(averages[1]), delta_percent=delta, mix_percent=mix, speed_percent=speed,
        log_ratio=log_ratio, log_mix=mix * scale,
        mix_ci=None if halves is None else (mix - halves[0], mix + halves[0]),
        speed_ci=None if halves is None else (speed - halves[1], speed + halves[1]),
        movers=parts.sort_values("percent", key=np.abs, ascending=False, kind="stable", ignore_index=True),
    )  # fmt: skip


def _reach(
    labels: pd.Index, moved: FloatArray, shared: FloatArray, noise: Mapping[str, Noise]
) -> tuple[float, float] | None:
    """Return half the widths (s) of both parts' intervals; None if the noise of over 10 % of the average is unknown."""
    by_label = {label: noise[label] for label in labels if label in noise}
    sd = pd.Series({label: each.sd for label, each in by_label.items()}, dtype=float).reindex(labels)
    if shared[sd.notna()].sum() < 0.9 * shared.sum():
        return None
    half = quantile(1.0 - ALPHA / 2.0, min(each.df for each in by_label.values()))
    # With one build's variance v, the mean of two builds has the variance v / 2, and their difference 2 v.
    of_mix = half * math.sqrt(float(((moved * sd) ** 2).sum()) / 2.0)
    return of_mix, half * math.sqrt(float(((shared * sd) ** 2).sum()) * 2.0)


def split_averages(tables: LabelTables, catalogue: Catalogue) -> dict[str, tuple[str, TrafficMix]]:
    """Map the slug of each average to its label table and the split of its change; omit averages with unknown calls."""
    if not tables.steady or not all(run["stat"].eq(CALLS).any() for side in tables.runs for run in side):
        return {}
    root = math.sqrt(min(map(len, tables.runs)))
    labels = pd.concat([*tables.runs.base, *tables.runs.new]).drop_duplicates(LABEL_KEY)
    splits = {}
    for table in catalogue.label_tables:
        averages = labels[(labels["group"] == table.group) & (labels["stat"] == "avg")]
        noise = {key[1]: replace(each, sd=each.sd / root) for key, each in tables.noise.predict(averages).items()}
        split = traffic_mix(*(_traffic(side, table.group) for side in tables.runs), noise=noise)
        if table.average is not None and split is not None:
            splits[table.average] = (table.group, split)
    return splits


def explained_by_labels(
    labels: Sequence[LabelResult],
    metrics: Sequence[tuple[MetricResult, Effect | None]],
    catalogue: Catalogue,
    recorded: Mapping[str, tuple[str, TrafficMix]],
) -> dict[str, tuple[str, TrafficMix]]:
    """Split changes of metrics into speed (the change of their labels) and mix of calls (the remainder).

    A metric is split only if its change is significant and larger than that of each label with p < 2 * `LEANING`.
    The speed part is the labels' median change; for a percentile, at least the largest change with such a p-value.
    An average is split only without recorded calls. A percentile is split only if the mix materially moved its average
    in the same direction, and each label with `LEAST_ADDED` of the time has a p-value. The result includes `recorded`.
    """
    splits = {**recorded}
    for table in catalogue.label_tables:
        average, of_table = table.average or "", [row for row in labels if row.group == table.group]
        _, known = recorded.get(average, ("", None))
        costly = {row.label for row in of_table if max(each or 0.0 for each in row.time_share or (0.0,)) >= LEAST_ADDED}
        for metric, effect in metrics:
            if metric.labels or effect is None or effect.p_value >= ALPHA:
                continue
            rows = [row for row in of_table if row.p_value is not None]
            if known is None:
                rows = [row for row in rows if row.stat == "avg"]
                usable = not recorded and metric.slug == average and len(rows) >= FEWEST_ROWS
            else:
                stat, _, name = metric.slug.partition("-")
                rows = [row for row in rows if row.label in costly and row.stat == stat]
                follows = name == average.removeprefix("avg-") and {row.label for row in rows} == costly
                usable = follows and known.is_material(metric.margin_percent) and known.log_mix * effect.log_ratio > 0.0
            parts = np.log([(row.new or 1.0) / (row.base or 1.0) for row in rows]) / effect.log_ratio
            leaning = parts[[(row.p_value or 0.0) < 2.0 * LEANING for row in rows]]
            if not usable or np.any(leaning >= 1.0):
                continue
            speed = float(max([np.median(parts), *(leaning if known else ())]))
            delta, movers = effect.delta_percent, known.movers if known else pd.DataFrame()
            averages = (metric.base or 0.0, metric.new or 0.0, delta, (1.0 - speed) * delta, speed * delta)
            logs = (effect.log_ratio, (1.0 - speed) * effect.log_ratio)
            splits[metric.slug] = (table.group, TrafficMix(*averages, *logs, None, None, movers))
    return splits


def _traffic(runs: Sequence[pd.DataFrame], group: str) -> pd.DataFrame:
    """Sum each label's calls, and average its seconds per call, over all runs of a build."""
    tables = (run[run["group"] == group].pivot_table("value", "label", "stat") for run in runs)
    both = pd.concat(tables).reindex(columns=[CALLS, "avg"]).dropna(subset=[CALLS])
    spent = (both[CALLS] * both["avg"]).where(both[CALLS] > 0, 0.0)
    traffic = both.assign(spent=spent).groupby("label")[[CALLS, "spent"]].sum(skipna=False).reset_index()
    return traffic.assign(seconds=traffic["spent"] / traffic[CALLS].where(traffic[CALLS] > 0))


def with_traffic_mix(
    rows: Sequence[MetricResult],
    effects: Sequence[tuple[Metric, Effect | None]],
    splits: Mapping[str, tuple[str, TrafficMix]],
    looks: Looks | None = None,
) -> list[MetricResult]:
    """Return `rows`; where a split fits the measured change, add a judgement of the row at unchanged traffic mix."""
    moved, unmixed = {}, [*effects]
    for i, (row, (metric, effect)) in enumerate(zip(rows, effects, strict=True)):
        if row.slug in splits and not row.labels:
            _, split = splits[row.slug]
            if effect is None or abs(split.log_ratio - effect.log_ratio) <= math.log1p(row.margin_percent / 100.0):
                moved[i], unmixed[i] = splits[row.slug], (metric, effect and split.unmixed(effect))
    judged = judge_metrics(unmixed, looks) if moved else []
    split_rows = [*rows]
    for i, (group, split) in moved.items():
        result = _result(rows[i], group, split, effects[i][1], judged[i])
        split_rows[i] = rows[i].model_copy(update={"traffic_mix": result})
    return split_rows


def _result(
    row: MetricResult, group: str, split: TrafficMix, effect: Effect | None, judged: TestedEffect | None
) -> TrafficMixResult:
    mix, speed = split.mix_ci or (None, None), split.speed_ci or (None, None)
    if judged is not None:  # base the interval of `speed_percent` on the noise between whole runs
        chance = math.expm1(math.log1p(judged.interval[1] / 100.0) - judged.effect.log_ratio) * 100.0
        speed = split.speed_percent - chance, split.speed_percent + chance
    result = TrafficMixResult(
        group=group, kind=split.kind(effect, row.margin_percent), base=split.base, new=split.new,
        delta_percent=split.delta_percent, mix_percent=split.mix_percent, speed_percent=split.speed_percent,
        counts=judged is not None and split.is_material(row.margin_percent),
        mix_ci_low=mix[0], mix_ci_high=mix[1], speed_ci_low=speed[0], speed_ci_high=speed[1],
        movers=[MixMover.model_validate(mover) for mover in split.movers.head(MOST_MOVERS).to_dict("records")],
        status=row.status, at_unchanged_mix_percent=judged and judged.effect.delta_percent,
    )  # fmt: skip
    return judged.filled(result) if judged else result
