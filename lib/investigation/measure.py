"""Measure one metric or label over its windows: numbers, frames, and what moves with it.

Numbers over the steady windows are the report's; those over other windows come from the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import methodcaller
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.findings.subject import subject
from buildcompare.labels.tables import judge_label_tables, label_tables
from buildcompare.labels.traffic_mix import split_averages
from buildcompare.load.view import RunView, is_geometric
from buildcompare.metrics.compare import judge_measured, measure_metrics
from buildcompare.metrics.compare_events import compare_events, search_events
from buildcompare.metrics.events import search_window
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import LabelResult, MetricResult
from buildcompare.results.codes import Better, Pair, Side, Status, Window
from buildcompare.results.users import RampUps
from buildcompare.stats.effects import GATE, LABEL_ALPHA, Effect
from buildcompare.stats.levels import MINUTE_S, measure_level, minute_means
from buildcompare.stats.planning import Looks, plan_runs
from buildcompare.text.sentences import say, title
from investigation.comments import keep_comment
from investigation.live import ask_server
from investigation.target import Target, label_name, label_series, metric_key

FEWEST_MINUTES = 10  # minimum number of minutes for a correlation
LONGEST_LAG_S = 1200.0  # longest lag of an autocorrelation; load waves have periods of up to 250 s
EVENT_COLUMNS = ["build", "run", "kind", "at_s", "size_percent", "phase", "matched"]
ANSWER_COLUMNS = [
    "base", "new", "change_percent", "ci_low", "ci_high", "status", "n_effective", "detectable_percent",
    "margin_percent",
]  # fmt: skip
CLAIM_COLUMNS = ["status", "claim", "number", "limit", "holds"]


@dataclass(frozen=True, repr=False, eq=False)
class Investigation(Target):
    """Numbers and frames of one metric or label of one test, over chosen windows.

    :func:`buildcompare.investigate` returns it. It does not change: :meth:`over`, :meth:`choose` and
    :meth:`with_margin` return another one. Frames are computed when they are first used.
    """

    @cached_property
    def rows(self) -> list[MetricResult]:
        """Return the rows of all metrics of the test over these windows, as in results.json."""
        if not self.moved or self.view.result.type == "benchmark":
            return self.view.result.metrics
        at_load = {row.slug: row.load_adjusted for row in self.view.result.metrics if row.load_adjusted}
        steady, catalogue = self.estimates, self.analysis.catalogue
        measured = measure_metrics(steady.test, self.views, catalogue, steady.groups, steady.past)
        splits = split_averages(label_tables(self.views, steady.label_noise), catalogue)
        return judge_measured(measured, steady.test, catalogue, at_load=at_load, splits=splits, looks=steady.looks)

    @cached_property
    def row(self) -> MetricResult | LabelResult:
        """Return the row of the metric or label over these windows, as in results.json."""
        if self.label is not None:
            return self._judged_label[0]
        return next(row for row in self.rows if metric_key(row) == self.metric)

    @cached_property
    def levels(self) -> pd.DataFrame:
        """Return the level of each run.

        Columns: build, run, from_s, to_s (elapsed seconds), level, samples, missing, n_effective (number of
        independent samples with the same standard error) and se_percent (standard error within the run).
        """
        rows = []
        for side, number, run, series in self.runs():
            window = run.steady.window
            if series is None or window is None:
                continue
            level = measure_level(run.recording.curve(series), window, geometric=is_geometric(self.views, series))
            counts = (level.samples, level.missing, level.n_effective, 100.0 * level.se_log)
            rows.append([side, number, *window, level.value, *counts])
        columns = "build run from_s to_s level samples missing n_effective se_percent"
        return pd.DataFrame(rows, columns=columns.split())

    @cached_property
    def answer(self) -> pd.DataFrame:
        """Return the main numbers: over the windows, at equal load, and of supported users, as far as measured.

        Columns: base, new, change_percent, ci_low, ci_high, status, n_effective (smallest of the runs),
        detectable_percent (the smallest rise that is detected in four of five cases), margin_percent.
        """
        row = self.row
        judged: list[tuple[str, Any]] = [("windows", row)]
        if isinstance(row, MetricResult) and row.load_adjusted is not None:
            judged.append(("equal_load", row.load_adjusted))
        if self.is_load and (users := self.view.result.supported_users) is not None:
            judged.append(("supported_users", users))
        frame = pd.DataFrame(index=[over for over, _ in judged], columns=ANSWER_COLUMNS, dtype=object)
        for over, each in judged:
            margin = getattr(each, "band_percent", self.margin_percent)
            detectable = getattr(each, "min_detectable_percent", None)
            n_effective = math.nan
            if over == "windows":
                n_effective = self.levels["n_effective"].min()
                detectable = self._judged_label[1] if self.label else detectable
            change = (each.base, each.new, each.delta_percent, each.ci_low, each.ci_high, each.status.value)
            frame.loc[over] = [*change, n_effective, detectable, margin]
        return frame.infer_objects()

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Return all samples: columns build, run, elapsed_s, value (NaN if recorded so), inside (the window or not)."""
        frames = []
        for side, number, run, series in self.runs():
            if series is not None:
                curve, window = run.recording.curve(series), run.steady.window or (math.inf, math.inf)
                elapsed = curve.index.to_numpy()
                inside = (elapsed > window[0]) & (elapsed <= window[1])
                columns = {"elapsed_s": elapsed, "value": curve.to_numpy(), "inside": inside}
                frames.append(pd.DataFrame({"build": side, "run": number, **columns}))
        empty = pd.DataFrame(columns=["build", "run", "elapsed_s", "value", "inside"]).astype({"inside": bool})
        return pd.concat(frames, ignore_index=True) if frames else empty

    def curve(self, build: Side, run: int = 1) -> pd.Series:
        """Return the samples of one run by elapsed seconds, as the analyses of `buildcompare` take them."""
        of_run = self.samples[(self.samples["build"] == build) & (self.samples["run"] == run)]
        return of_run.set_index("elapsed_s")["value"]

    @cached_property
    def autocorrelation(self) -> pd.DataFrame:
        """Return the autocorrelation of the samples in the windows.

        Columns: build, run, lag_s, correlation, chance (95 % bound for independent samples).
        """
        from statsmodels.tsa.stattools import acf  # late: it takes a second

        frames = []
        inside = self.samples[self.samples["inside"]]
        for (side, number), each in inside.groupby(["build", "run"]):
            values = each["value"].astype(float).replace([-np.inf, np.inf], np.nan).to_numpy()
            step = float(each["elapsed_s"].diff().median())
            count = int(np.isfinite(values).sum())
            if count < FEWEST_MINUTES or not step > 0 or not np.nanstd(values) > 0:
                continue
            lags = min(int(LONGEST_LAG_S / step), values.size // 2)
            alike = acf(values, nlags=lags, missing="conservative")
            columns = {"lag_s": step * np.arange(lags + 1), "correlation": alike, "chance": 1.96 / math.sqrt(count)}
            frames.append(pd.DataFrame({"build": side, "run": number, **columns}))
        empty = pd.DataFrame(columns=["build", "run", "lag_s", "correlation", "chance"])
        return pd.concat(frames, ignore_index=True) if frames else empty

    @cached_property
    def events(self) -> pd.DataFrame:
        """Return level shifts, spikes and drops of the metric in the windows.

        Columns: build, run, kind, at_s, size_percent, phase, matched (whether the other build shows it too).
        """
        frame = self._all_events
        return frame.loc[frame["metric"] == self.slug, EVENT_COLUMNS].reset_index(drop=True)

    @cached_property
    def events_beside(self) -> pd.DataFrame:
        """Return events of the other metrics of the test, first those at the time of an event of this metric.

        Columns: name (of the metric), those of :attr:`events`, together.
        """
        frame = self._all_events
        is_target = frame["metric"] == self.slug
        together = frame["group"].isin(frame.loc[is_target, "group"].dropna())
        names = {row.slug: row.name for row in self.view.result.metrics}
        beside = frame.assign(name=frame["metric"].map(names), together=together)[~is_target]
        beside = beside.sort_values(["together", "at_s"], ascending=[False, True], ignore_index=True)
        return beside[["name", *EVENT_COLUMNS, "together"]]

    @cached_property
    def beginning(self) -> pd.DataFrame:
        """Return the report's numbers of the ramp-up; no row unless the metric is the connected users.

        Indexed by measure (times in elapsed seconds, levels in users); columns base, new, difference (new minus base),
        and its ci_low and ci_high where repeated runs give an interval.
        """
        frame = _beginning(self.view.result.ramp_up)
        return frame if self.is_load else frame.iloc[:0]

    @cached_property
    def findings(self) -> pd.DataFrame:
        """Return the report's findings on this metric or label, then on the test and the comparison.

        Columns: id, severity, text, detail.
        """
        results, first, others = self.analysis.results, [], []
        for finding in results.findings:
            about = subject(finding, results.tests)
            row = [finding.id, finding.severity.value, finding.text, finding.detail]
            if about.test == self.test and (about.metric, about.label) == (self.metric, self.label):
                first.append(row)
            elif about.test in (None, self.test) and not (about.metric or about.label):
                others.append(row)
        return pd.DataFrame([*first, *others], columns=["id", "severity", "text", "detail"])

    @property
    def searched(self) -> dict[Side, Window | None]:
        """Return the span of each build's first run in which events are searched; None if it is too short."""
        kind = self.view.result.type
        windows = {side: runs[0].steady.window if runs else None for side, runs in self.views.items()}
        return {side: search_window(window, kind) for side, window in windows.items()}

    @cached_property
    def moves_with(self) -> pd.DataFrame:
        """Return all other metrics and the averages of all labels, the most correlated first.

        Columns: kind (metric or label), name, change_percent, status, base and new: by build, the correlation of
        changes from minute to minute in the windows. Rows without samples over time have NaN and stand last, in order
        of their p-values.
        """
        rows: list[list[Any]] = []
        for row in self.rows:
            if metric_key(row) != self.metric:
                alike = _correlations(self._changes, methodcaller("find", row.slug, row.labels))
                rows.append(["metric", row.full_name, row.delta_percent, row.status.value, *alike, row.p_value])
        for label in self._label_rows:
            key = (label.group, label.label, label.stat)
            if label.stat == "avg" and key != self.label:
                alike = _correlations(self._changes, partial(label_series, label=key))
                row_of_label = [label_name(label), label.delta_percent, label.status.value]
                rows.append(["label", *row_of_label, *alike, label.p_value])
        frame = pd.DataFrame(rows, columns=["kind", "name", "change_percent", "status", "base", "new", "p_value"])
        weakness = -frame[["base", "new"]].astype(float).abs().mean(axis=1)
        order = frame.assign(weakness=weakness).sort_values(["weakness", "p_value"], na_position="last").index
        return frame.loc[order].drop(columns="p_value").reset_index(drop=True)

    @cached_property
    def why(self) -> pd.DataFrame:
        """Return the claims behind the status in the order of their tests, up to the first that holds.

        Columns: status (of the claim), claim, number, limit (the number must be below it), holds.
        """
        row = self.row
        if not isinstance(row, MetricResult) or row.se_log is None or row.p_adjusted is None:
            return pd.DataFrame(columns=CLAIM_COLUMNS)
        level, effect = self.view.result.level, _effect(row)
        low, high = effect.interval(1.0 - 2.0 * level)
        least, most = effect.interval(1.0 - level)
        worst = {Better.LOWER: most, Better.HIGHER: -least}.get(row.better, math.nan)
        is_worse = (effect.log_ratio > 0) == (row.better == "lower")
        changed = "changed_gate" if row.family == GATE else "changed"
        small = row.family == GATE and abs(effect.delta_percent) <= row.margin_percent
        claims = [
            (Status.EQUIVALENT, "equivalent", max(-low, high), row.margin_percent),
            (Status.REGRESSION if is_worse else Status.IMPROVEMENT, changed, row.p_adjusted, level),
            (Status.NOT_WORSE, "not_worse", worst, 2.0 * row.margin_percent),
        ]
        lines = [
            (
                status.value,
                say("investigation", "claim", code),
                n,
                limit,
                bool(n < limit) and not (code == changed and small),
            )
            for status, code, n, limit in claims
        ]
        lines.append((Status.INCONCLUSIVE.value, say("investigation", "claim", "none"), math.nan, math.nan, True))
        first = next(i for i, line in enumerate(lines) if line[-1])
        return pd.DataFrame(lines[: first + 1], columns=CLAIM_COLUMNS)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the change in percent; NaN without an estimate of noise."""
        row = self.row
        if not isinstance(row, MetricResult) or row.se_log is None:
            return math.nan, math.nan
        return _effect(row).interval(level)

    def further_runs(self, most: int = 6) -> pd.DataFrame:
        """Return the changes that 1 to `most` further runs of each build detect in four of five cases.

        Columns: further, found_percent (the smallest rise that is detected), no_worse_than_percent (the change for the
        worse that is excluded if nothing changed).
        """
        row = self.row
        if not isinstance(row, MetricResult) or row.run_sd_percent is None:
            return pd.DataFrame(columns=["further", "found_percent", "no_worse_than_percent"])
        effect = _effect(row)
        family = sum(each.family == row.family and each.p_value is not None for each in self.rows)
        steps = plan_runs(
            effect.run_sd, effect.df, looks=Looks.of(self.view.result.looks).runs, most=most, family=family,
            margin_percent=row.margin_percent, better=row.better, gate=row.gate,
        )  # fmt: skip
        return pd.DataFrame(map(vars, steps))

    def ask(self, query: str | None = None) -> pd.DataFrame:
        """Query the server of the params file now, over the times of the runs.

        Parameters
        ----------
        query
            PromQL; by default :attr:`query`.

        Returns
        -------
        DataFrame
            Columns build, run, series (its labels), elapsed_s, value; empty where the server has no samples.

        Raises
        ------
        InputError
            Where the params name no server, or it refuses the query.
        SourceError
            Where the server does not answer.
        """
        return ask_server(self.analysis.params, self.views, query or self.query or "")

    def keep(self, comment: str) -> int:
        """Append a comment to the params file; its other comments, order and quotes stay.

        Parameters
        ----------
        comment
            Markdown without HTML; the report shows it below the verdict.

        Returns
        -------
        int
            Number of the comment in the file, counted from 1.

        Raises
        ------
        InputError
            Where the comparison has no params file, or the file would become invalid.
        """
        return keep_comment(self.analysis.params.file, comment)

    @property
    def measured(self) -> str:
        """Describe the windows of the numbers."""
        spans = Pair.of(lambda side: [run.steady.window for run in self.views[side] if run.steady.window])
        return say("investigation", "measured", self.moved, self.labels, spans, self.follows)

    @property
    def comment(self) -> str:
        """Write a note about these numbers, which the analyst may edit."""
        about = (self.name, self.unit, self.row, title(self.view.result), self.measured)
        return say("investigation", "comment", *about, self.better, self.margin_percent)

    @cached_property
    def _all_events(self) -> pd.DataFrame:
        """Return the events of all metrics, with the metric's slug and the group of simultaneous events."""
        events = self.view.result.events
        if self.moved and self.view.result.type != "benchmark":
            catalogue, test, views = self.analysis.catalogue, self.estimates.test, self.views
            slugs = dict.fromkeys(row.slug for row in self.view.result.metrics)
            narrowed = catalogue.model_copy(update={"metrics": tuple(map(catalogue.find, slugs))})
            events = compare_events(search_events(test, views, narrowed, self.estimates.groups), narrowed)
        columns = [*EVENT_COLUMNS, "metric", "group"]
        return pd.DataFrame([event.model_dump(include={*columns}) for event in events], columns=columns)

    @cached_property
    def _judged_labels(self) -> list[tuple[LabelResult, Any]]:
        tables = label_tables(self.views, self.estimates.label_noise)
        return judge_label_tables(tables, self.analysis.catalogue)

    @cached_property
    def _judged_label(self) -> tuple[LabelResult, float | None]:
        """Return the label's row over these windows, and its smallest detectable change."""
        row, tested = next((r, t) for r, t in self._judged_labels if (r.group, r.label, r.stat) == self.label)
        return row, tested.effect.min_detectable_percent(level=LABEL_ALPHA) if tested else None

    @property
    def _label_rows(self) -> list[LabelResult]:
        """Return the labels over these windows; values of whole runs are the report's."""
        rows = self.view.result.labels
        if not self.moved or all(row.window != "steady" for row in rows):
            return rows
        return [row for row, _ in self._judged_labels]

    @cached_property
    def _changes(self) -> list[tuple[Side, RunView, pd.Series]]:
        return [(side, run, _minute_changes(run, series)) for side, _, run, series in self.runs() if series is not None]


def _correlations(
    changes: Sequence[tuple[Side, RunView, pd.Series]], find: Callable[[Recording], Series | None]
) -> tuple[float, float]:
    """Return the mean correlation with another series over the runs of each build."""
    by_side: dict[Side, list[float]] = {"base": [], "new": []}
    for side, run, minutes in changes:
        series = find(run.recording)
        if series is not None:
            with np.errstate(invalid="ignore", divide="ignore"):  # constant series
                by_side[side].append(minutes.corr(_minute_changes(run, series), min_periods=FEWEST_MINUTES))
    base, new = (float(np.mean(each)) if each else math.nan for each in by_side.values())
    return base, new


def _effect(row: MetricResult) -> Effect:
    """Return the change of `row` with its noise."""
    df = math.inf if row.noise_df is None else row.noise_df
    run_sd = math.log1p((row.run_sd_percent or 0.0) / 100.0)
    return Effect(math.log1p((row.delta_percent or 0.0) / 100.0), row.se_log or 0.0, df, run_sd, row.noise_source)


def _beginning(ramps: RampUps) -> pd.DataFrame:
    base, new = (side.model_dump(exclude={"bumps", "time_to"}) for side in (ramps.base, ramps.new))
    rows: dict[str, dict[str, object]] = {name: {"base": base[name], "new": new[name]} for name in base}
    for mark, seconds in ramps.base.time_to.items():
        rows[f"seconds to {mark} users"] = {"base": seconds, "new": ramps.new.time_to.get(mark)}
    shift: dict[str, object] = {
        "difference": ramps.shift_users,
        "ci_low": ramps.shift_ci_low,
        "ci_high": ramps.shift_ci_high,
    }
    rows["shift_users"], rows["shift_seconds"] = shift, {"difference": ramps.shift_seconds}
    for name in ("wave_period_s", "wave_amplitude_users"):
        if (apart := getattr(ramps, name)) is not None:
            rows[name] |= {"difference": apart.value, "ci_low": apart.ci_low, "ci_high": apart.ci_high}
    columns = ["base", "new", "difference", "ci_low", "ci_high"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).dropna(how="all")


def _minute_changes(run: RunView, series: Series) -> pd.Series:
    """Return the differences of successive minute means in a run's window."""
    if run.steady.window is None:
        return pd.Series(dtype=float)
    start, end = run.steady.window
    count = math.ceil((end - start) / MINUTE_S)
    means = minute_means(*run.recording.samples(series), start_s=start, count=count, closed="right")
    return pd.Series(means).diff()
