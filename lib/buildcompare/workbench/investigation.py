"""One metric or label of one test, over any window: its numbers, what moves with it, why it has its status.

Numbers over the runs' own windows are the report's; over others they are made by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.comparison.analysis import Analysis, Evidence, TestView, compare_levels, with_margins
from buildcompare.config.errors import InputError, meant
from buildcompare.findings.subject import subject
from buildcompare.labels.tables import judge_label_tables, label_tables
from buildcompare.load.curve import SteadyState
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.events import compare_events, search_events, search_window
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import LabelResult, MetricResult
from buildcompare.results.codes import SIDES, Better, Pair, Side, Status, Window
from buildcompare.stats.effects import LABEL_ALPHA, LABEL_MARGIN_PERCENT, Effect
from buildcompare.stats.levels import measure_level
from buildcompare.stats.noise import series_key
from buildcompare.stats.planning import Looks, plan_runs
from buildcompare.text.sentences import say, title
from buildcompare.workbench.comments import keep_comment
from buildcompare.workbench.live import ask_server

MINUTE_S = 60.0  # what moves together is looked for in means over this long, as events are: rates are over one minute
FEWEST_MINUTES = 10  # fewer say nothing on what moves together
STEADY: Pair[Window | None] = Pair(None, None)
"""No window was chosen: each run is measured over its own."""
EVENT_COLUMNS = ["build", "run", "kind", "at_s", "size_percent", "phase", "matched"]
LONGEST_LAG_S = 1200.0  # of an autocorrelation: waves of a load have periods of up to 250 s


@dataclass(frozen=True, repr=False, eq=False)
class Investigation:
    """One metric or label of one test of a comparison, over the windows that were chosen.

    Made by :func:`buildcompare.investigate`. It does not change: :meth:`over` and :meth:`choose` return another one,
    which reads and compares nothing again but what the change touches.

    Attributes
    ----------
    analysis
        The whole comparison.
    test
        The test's name.
    metric
        The metric's slug (with its labels, where a metric has several series); None where it is a label.
    label
        Group, label and statistic, such as ``("api", "getPost", "p99")``; None where it is a metric.
    windows
        By build, start and end in elapsed seconds; None: each run's steady window.
    """

    analysis: Analysis
    test: str
    metric: str | None = None
    label: tuple[str, str, str] | None = None
    windows: Pair[Window | None] = STEADY

    def __repr__(self) -> str:
        return f"<Investigation of {self.name} in {self.test}: {self.labels.base} against {self.labels.new}>"

    # ---- What is looked at ------------------------------------------------------------------------------------------

    @cached_property
    def view(self) -> TestView:
        """The test with its recordings and its results."""
        return next(view for view in self.analysis.tests() if view.result.name == self.test)

    @property
    def labels(self) -> Pair[str]:
        """The builds by name."""
        return self.view.labels

    @property
    def file(self) -> Path | None:
        """The params file, if the comparison was read from one."""
        return self.analysis.params.file

    @property
    def name(self) -> str:
        """The metric's or the label's name."""
        return " ".join(self.label) if self.label else self._reported.full_name

    @property
    def unit(self) -> str:
        """In which levels and samples are."""
        return self.analysis.catalogue.label_table(self.label[0]).unit if self.label else self._reported.unit

    @property
    def better(self) -> str:
        """``lower``, ``higher`` or ``neutral``."""
        return "lower" if self.label else str(self._reported.better)

    @property
    def has_margin(self) -> bool:
        """Whether the catalogue has a margin of it."""
        return self.label is None and any(metric.slug == self._slug for metric in self.analysis.catalogue.metrics)

    @property
    def margin_percent(self) -> float:
        """The smallest change that matters."""
        return LABEL_MARGIN_PERCENT if self.label else self._reported.margin_percent

    @property
    def metrics(self) -> dict[str, str]:
        """The test's metrics: what :meth:`choose` takes, and the name of each."""
        return {_key(row): row.full_name for row in self.view.result.metrics}

    @property
    def label_names(self) -> list[str]:
        """The test's labels, as :meth:`choose` takes them: ``api getPost p99``."""
        return [_label_name(row) for row in self.view.result.labels]

    def choose(self, test: str | None = None, metric: str | None = None, label: str | None = None) -> Investigation:
        """Look at another test, metric or label of the same comparison.

        Parameters
        ----------
        test, metric, label
            The test by its name; the metric by slug or name, or the label as ``api getPost p99`` or by its name alone.
            Without a test it stays; without metric and label, the metric does where the test has it.

        Returns
        -------
        Investigation
            Over the windows that were chosen, or in another test over the steady windows.

        Raises
        ------
        InputError
            Where there is no such test, metric or label; it names those that there are.
        """
        tests = [each.name for each in self.analysis.results.tests]
        name = _one_of("test", test or self.test or tests[0], tests)
        moved = replace(self, test=name, windows=self.windows if name == self.test else STEADY)
        if label:
            if metric:
                raise InputError(file=None, key="label", expected="a metric or a label", found="both")
            known = {_label_name(row): (row.group, row.label, row.stat) for row in moved.view.result.labels}
            short = next((full for full, each in known.items() if each[1] == label), label)
            return replace(moved, metric=None, label=known[_one_of("label", short, [*known])])
        known_metrics = [*moved.metrics]
        kept = self.metric if self.metric in known_metrics else next(iter(known_metrics), "")
        asked = metric or kept
        slug = asked if asked in known_metrics else self.analysis.catalogue.find(asked).slug
        return replace(moved, label=None, metric=_one_of("metric", slug, known_metrics, asked))

    def over(
        self, window: Sequence[float] | None = None, *, base: Sequence[float] | None = None,
        new: Sequence[float] | None = None,
    ) -> Investigation:  # fmt: skip
        """Measure over other windows.

        Parameters
        ----------
        window
            Start and end in elapsed seconds, of both builds; without any, the steady windows.
        base, new
            The same of one build.

        Returns
        -------
        Investigation
            The same metric or label over these windows.

        Raises
        ------
        InputError
            Where a window does not lie in its runs.
        """
        chosen = Pair(_window(self.view, "base", base or window), _window(self.view, "new", new or window))
        return replace(self, windows=chosen)

    def with_margin(self, percent: float) -> Investigation:
        """Judge the comparison by another margin of this metric; nothing is measured again.

        Parameters
        ----------
        percent
            The smallest change that matters.

        Returns
        -------
        Investigation
            The same metric over the same windows.

        Raises
        ------
        InputError
            Where the margin is not above 0, or the catalogue has none for it: for labels there is one for all.
        """
        return replace(self, analysis=with_margins(self.analysis, {self._slug: percent}))

    # ---- Its numbers ------------------------------------------------------------------------------------------------

    @property
    def moved(self) -> bool:
        """Whether windows were chosen."""
        return any(self.windows)

    @property
    def follows(self) -> bool:
        """Whether numbers follow the windows: those of whole runs, and of benchmarks without times, do not."""
        if self.label is not None:
            return bool(self._reported.window == "steady")
        return self.view.result.type != "benchmark"

    @property
    def views(self) -> Views:
        """The runs of both builds, over these windows."""
        return self._evidence.views

    @cached_property
    def rows(self) -> list[MetricResult]:
        """Every metric of the test over these windows, as in results.json."""
        if not self.moved or self.view.result.type == "benchmark":
            return self.view.result.metrics
        at_load = {row.slug: row.load_adjusted for row in self.view.result.metrics if row.load_adjusted}
        tables = label_tables(self.views, self._evidence.label_noise)
        return compare_levels(self._evidence, tables, self.analysis.catalogue, at_load=at_load)

    @cached_property
    def row(self) -> MetricResult | LabelResult:
        """Base, new, change, interval and status, as in results.json."""
        if self.label is not None:
            return self._judged_label[0]
        return next(row for row in self.rows if _key(row) == self.metric)

    @cached_property
    def levels(self) -> pd.DataFrame:
        """One row for each run.

        Columns: build, run, from_s, to_s (elapsed seconds), level, samples, missing, n_effective (how many independent
        samples would know the level as well) and se_percent (its standard error within the run).
        """
        rows = []
        for side, number, run, series in self._runs():
            window = run.steady.window
            if series is None or window is None:
                continue
            level = measure_level(run.recording.curve(series), window, geometric=series.unit == "seconds")
            counts = (level.samples, level.missing, level.n_effective, 100.0 * level.se_log)
            rows.append([side, number, *window, level.value, *counts])
        columns = "build run from_s to_s level samples missing n_effective se_percent"
        return pd.DataFrame(rows, columns=columns.split())

    @cached_property
    def answer(self) -> pd.DataFrame:
        """The numbers at a glance: over the windows; in unbounded tests at equal load, or of the supported users.

        Columns: base, new, change_percent, ci_low, ci_high, status, n_effective (of the run where it is smallest),
        detectable_percent (the smallest rise that would have been called in four of five cases), margin_percent.
        """
        row = self.row
        asked: list[tuple[str, Any]] = [("windows", row)]
        if isinstance(row, MetricResult) and row.load_adjusted is not None:
            asked.append(("equal_load", row.load_adjusted))
        if self._is_load and (users := self.view.result.supported_users) is not None:
            asked.append(("supported_users", users))
        found = {
            over: {
                "base": each.base,
                "new": each.new,
                "change_percent": each.delta_percent,
                "ci_low": each.ci_low,
                "ci_high": each.ci_high,
                "status": each.status.value,
                "n_effective": self.levels["n_effective"].min() if over == "windows" else math.nan,
                "detectable_percent": getattr(each, "min_detectable_percent", None),
                "margin_percent": getattr(each, "band_percent", self.margin_percent),
            }
            for over, each in asked
        }
        if self.label is not None:
            found["windows"]["detectable_percent"] = self._label_detectable
        columns = "base new change_percent ci_low ci_high status n_effective detectable_percent margin_percent"
        return pd.DataFrame.from_dict(found, orient="index").reindex(columns=columns.split())

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every sample: columns build, run, elapsed_s, value (NaN as recorded) and inside (of the window)."""
        frames = []
        for side, number, run, series in self._runs():
            if series is not None:
                curve, window = run.recording.curve(series), run.steady.window or (math.inf, math.inf)
                elapsed = curve.index.to_numpy()
                inside = (elapsed > window[0]) & (elapsed <= window[1])
                columns = {"elapsed_s": elapsed, "value": curve.to_numpy(), "inside": inside}
                frames.append(pd.DataFrame({"build": side, "run": number, **columns}))
        empty = pd.DataFrame(columns=["build", "run", "elapsed_s", "value", "inside"]).astype({"inside": bool})
        return pd.concat(frames, ignore_index=True) if frames else empty

    def curve(self, build: Side, run: int = 1) -> pd.Series:
        """The samples of one run over elapsed seconds, as the analyses of `buildcompare` take them."""
        of_run = self.samples[(self.samples["build"] == build) & (self.samples["run"] == run)]
        return of_run.set_index("elapsed_s")["value"]

    @cached_property
    def autocorrelation(self) -> pd.DataFrame:
        """How far samples in the windows are like those some time before them.

        Columns: build, run, lag_s, correlation, chance (what independent samples stay within in 19 of 20 cases).
        """
        rows = []
        inside = self.samples[self.samples["inside"]]
        for (side, number), each in inside.groupby(["build", "run"]):
            values, elapsed = each["value"].to_numpy(dtype=np.float64), each["elapsed_s"].to_numpy()
            step = float(np.median(np.diff(elapsed))) if elapsed.size > 1 else math.nan
            known = np.isfinite(values)
            if known.sum() < FEWEST_MINUTES or not step > 0:
                continue
            centred = np.where(known, values - values[known].mean(), 0.0)
            power, chance = float(centred @ centred), 1.96 / math.sqrt(known.sum())
            for lag in range(min(int(LONGEST_LAG_S / step), values.size // 2) + 1):
                alike = float(centred[lag:] @ centred[: values.size - lag]) / power if power > 0 else math.nan
                rows.append((side, number, lag * step, alike, chance))
        return pd.DataFrame(rows, columns=["build", "run", "lag_s", "correlation", "chance"])

    @cached_property
    def events(self) -> pd.DataFrame:
        """Level shifts, spikes and drops of the metric in the windows and on the ramps before them.

        Columns: build, run, kind, at_s, size_percent, phase, matched (whether the other build shows it too).
        """
        frame = self._all_events
        return frame.loc[frame["metric"] == self._slug, EVENT_COLUMNS].reset_index(drop=True)

    @cached_property
    def events_beside(self) -> pd.DataFrame:
        """The same of every other metric of the test, those that happened together with one of this metric first.

        Columns: name (of the metric), those of :attr:`events`, together.
        """
        frame = self._all_events
        own = frame["metric"] == self._slug
        together = frame["group"].isin(frame.loc[own, "group"].dropna())
        beside = frame.assign(name=frame["metric"].map(self._names), together=together)[~own]
        beside = beside.sort_values(["together", "at_s"], ascending=[False, True], ignore_index=True)
        return beside[["name", *EVENT_COLUMNS, "together"]]

    @cached_property
    def beginning(self) -> pd.DataFrame:
        """How the load came up, as the report has it, where the metric is the connected users; else no row.

        Indexed by measure (bumps, times in elapsed seconds, levels in users); columns base, new, difference (new minus
        base), and its ci_low and ci_high where runs of one build say how far it varies.
        """
        ramps = self.view.result.ramp_up
        told = [side.model_dump(exclude={"bumps", "time_to"}) for side in (ramps.base, ramps.new)]
        rows = {name: {"base": base, "new": told[1][name]} for name, base in told[0].items()}
        for mark, seconds in ramps.base.time_to.items():
            rows[f"seconds to {mark} users"] = {"base": seconds, "new": ramps.new.time_to.get(mark)}
        shift = {"difference": ramps.shift_users, "ci_low": ramps.shift_ci_low, "ci_high": ramps.shift_ci_high}
        rows |= {"shift_users": shift, "shift_seconds": {"difference": ramps.shift_seconds}}
        for name in ("wave_period_s", "wave_amplitude_users"):
            if (apart := getattr(ramps, name)) is not None:
                rows[name] |= {"difference": apart.value, "ci_low": apart.ci_low, "ci_high": apart.ci_high}
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["base", "new", "difference", "ci_low", "ci_high"])
        return frame.dropna(how="all") if self._is_load else frame.iloc[:0]

    @cached_property
    def findings(self) -> pd.DataFrame:
        """What the report says of this metric or label, then of the whole test and of the whole comparison.

        Columns: id, severity, text, detail (what it rests on).
        """
        results, own, others = self.analysis.results, [], []
        for finding in results.findings:
            about = subject(finding, results.tests)
            row = [finding.id, finding.severity.value, finding.text, finding.detail]
            if about.test == self.test and (about.metric, about.label) == (self.metric, self.label):
                own.append(row)
            elif about.test in (None, self.test) and not (about.metric or about.label):
                others.append(row)
        return pd.DataFrame([*own, *others], columns=["id", "severity", "text", "detail"])

    @property
    def searched(self) -> dict[Side, Window | None]:
        """By build, the part of the first run's window in which events are searched; None where it is too short."""
        kind = self.view.result.type
        windows = {side: runs[0].steady.window if runs else None for side, runs in self.views.items()}
        return {side: search_window(window, kind) for side, window in windows.items()}

    @cached_property
    def moves_with(self) -> pd.DataFrame:
        """What else moves in these windows: every other metric, and every label's average.

        The most alike first; those without samples over time by how unlikely their change is.

        Columns: kind (metric or label), name, change_percent, status, base and new: by build, the correlation of the
        changes from minute to minute in the windows (NaN where there are no samples over time).
        """
        rows: list[list[Any]] = []
        for row in self.rows:
            if _key(row) != self.metric:
                like = self._alike(lambda of, row=row: of.find(row.slug, row.labels))
                rows.append(["metric", row.full_name, row.delta_percent, row.status.value, *like, row.p_value])
        for label in self._label_rows:
            key = (label.group, label.label, label.stat)
            if label.stat == "avg" and key != self.label:
                like = self._alike(lambda of, key=key: _label_series(of, key))
                rows.append(
                    ["label", _label_name(label), label.delta_percent, label.status.value, *like, label.p_value]
                )
        frame = pd.DataFrame(rows, columns=["kind", "name", "change_percent", "status", "base", "new", "p_value"])
        alike = frame[["base", "new"]].astype(float).abs().mean(axis=1)
        order = frame.assign(alike=-alike).sort_values(["alike", "p_value"], na_position="last").index
        return frame.loc[order].drop(columns="p_value").reset_index(drop=True)

    @cached_property
    def why(self) -> pd.DataFrame:
        """Why it has its status: the claims in the order in which they are asked for, up to the first that holds.

        Columns: status (that the claim makes), claim, number and limit (what must be below it), holds.
        """
        row = self.row
        if not isinstance(row, MetricResult) or row.se_log is None or row.p_adjusted is None:
            return pd.DataFrame(columns=["status", "claim", "number", "limit", "holds"])
        level, margin = self.view.result.level, row.margin_percent
        effect = self._effect(row)
        low, high = effect.interval(1.0 - 2.0 * level)
        least, most = effect.interval(1.0 - level)
        worst = {Better.LOWER: most, Better.HIGHER: -least}.get(row.better, math.nan)
        changed = Status.REGRESSION if (effect.log_ratio > 0) == (row.better == "lower") else Status.IMPROVEMENT
        asked = [
            (Status.EQUIVALENT, "equivalent", max(-low, high), margin),
            (changed, "changed", row.p_adjusted, level),
            (Status.NOT_WORSE, "not_worse", worst, 2.0 * margin),
        ]
        lines = [(s.value, say("workbench", "claim", c), n, limit, bool(n < limit)) for s, c, n, limit in asked]
        lines.append((Status.INCONCLUSIVE.value, say("workbench", "claim", "none"), math.nan, math.nan, True))
        first = next(i for i, line in enumerate(lines) if line[-1])
        return pd.DataFrame(lines[: first + 1], columns=["status", "claim", "number", "limit", "holds"])

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the change in percent that holds with a probability of `level`; NaN where none is known."""
        row = self.row
        if not isinstance(row, MetricResult) or row.se_log is None:
            return math.nan, math.nan
        return self._effect(row).interval(level)

    def further_runs(self, most: int = 6) -> pd.DataFrame:
        """What further runs of each build would show, each in four of five cases.

        Columns: further, found_percent (the smallest rise that would be called), no_worse_than_percent (what would be
        excluded for the worse if nothing changed); `most` is the largest number of further runs.
        """
        row = self.row
        if not isinstance(row, MetricResult) or row.run_sd_percent is None:
            return pd.DataFrame(columns=["further", "found_percent", "no_worse_than_percent"])
        effect = self._effect(row)
        family = sum(each.family == row.family and each.p_value is not None for each in self.rows)
        settings: dict[str, Any] = {"margin_percent": row.margin_percent, "better": row.better, "family": family}
        looks = Looks.of(self.view.result.looks).runs
        return pd.DataFrame(map(vars, plan_runs(effect.run_sd, effect.df, looks=looks, most=most, **settings)))

    # ---- The server, and the params file -----------------------------------------------------------------------------

    @cached_property
    def query(self) -> str | None:
        """What the server was, or would be, asked for it: PromQL; None where the catalogue has no query."""
        source = self.analysis.params.source
        step_s = source.label_step_s
        wanted = ("label", *self.label[::2]) if self.label else ("graph", self._slug, "")
        asked = self.analysis.catalogue.questions(label_step_s=step_s, rate_s=source.rate_s)
        return next((each.query for each in asked if (each.role, each.metric, each.stat) == wanted), None)

    def ask(self, query: str | None = None) -> pd.DataFrame:
        """Ask the server of the params file now, over the runs' times.

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
        return ask_server(self.analysis.params, self.test, self.views, query or self.query or "")

    def keep(self, comment: str) -> int:
        """Write a comment into the params file, whose own comments, order and quotes stay as they are.

        Parameters
        ----------
        comment
            Markdown without HTML; the report shows it below the verdict.

        Returns
        -------
        int
            Which of the file's comments it now is, counted from 1.

        Raises
        ------
        InputError
            Where the comparison was read from no file, or the file would no longer be a params file.
        """
        return keep_comment(self.file, comment)

    # ---- In words ---------------------------------------------------------------------------------------------------

    @property
    def measured(self) -> str:
        """What the numbers are over, in words."""
        spans = Pair.of(lambda side: [run.steady.window for run in self.views[side] if run.steady.window])
        return say("workbench", "measured", self.moved, self.labels, spans, self.follows)

    @property
    def comment(self) -> str:
        """A note of these numbers, to be edited and kept."""
        about = (self.name, self.unit, self.row, title(self.view.result), self.measured)
        return say("workbench", "comment", *about, self.better, self.margin_percent)

    # ---- Inside -----------------------------------------------------------------------------------------------------

    @cached_property
    def _reported(self) -> Any:
        """Its row in the report."""
        if self.label is not None:
            rows = self.view.result.labels
            return next(row for row in rows if (row.group, row.label, row.stat) == self.label)
        return next(row for row in self.view.result.metrics if _key(row) == self.metric)

    @property
    def as_metric(self) -> MetricResult:
        """What a chart needs to know of it: of a label, too."""
        known: dict[str, Any] = {"name": self.name, "slug": self._slug, "unit": self.unit, "labels": {}}
        return MetricResult.model_construct(**known) if self.label else self._reported

    @property
    def _is_load(self) -> bool:
        load = self.analysis.catalogue.load
        return load is not None and self.metric == load.slug

    @property
    def _slug(self) -> str:
        return self.label[0] if self.label else str(self._reported.slug)

    @cached_property
    def _evidence(self) -> Evidence:
        """What the test is judged by, its runs over the chosen windows."""
        if self.view.estimates is None:
            raise ValueError(f"{self.test}: a test without its estimates has no other windows")
        known = self.view.estimates.evidence

        def over(side: Side) -> list[RunView]:
            window = self.windows[side]
            if window is None:
                return known.views[side]
            return [replace(run, steady=SteadyState(window, run.steady.method)) for run in known.views[side]]

        views: Views = Pair.of(over)
        return replace(known, views=views)

    def _runs(self) -> Iterator[tuple[Side, int, RunView, Series | None]]:
        """Build, number and view of each run, and its series of the metric or label."""
        for side in SIDES:
            for number, run in enumerate(self.views[side], start=1):
                yield side, number, run, self.series(run.recording)

    def series(self, recording: Recording) -> Series | None:
        """Its samples in one run, as they were recorded; None where there are none over time."""
        if self.label is not None:
            return _label_series(recording, self.label)
        return recording.find(self._reported.slug, self._reported.labels)

    @cached_property
    def _all_events(self) -> pd.DataFrame:
        """Events of every metric in the windows and on the ramps before them, with the metric's slug and the group."""
        found = self.view.result.events
        if self.moved and self.view.result.type != "benchmark":
            every = tuple(self.analysis.catalogue.find(slug) for slug in self._names)
            catalogue = self.analysis.catalogue.model_copy(update={"metrics": every})
            test, views = self._evidence.test, self.views
            found = compare_events(search_events(test, views, catalogue, self._evidence.groups), test, views, catalogue)
        columns = [*EVENT_COLUMNS, "metric", "group"]
        return pd.DataFrame([event.model_dump(include={*columns}) for event in found], columns=columns)

    @cached_property
    def _names(self) -> dict[str, str]:
        return {row.slug: row.name for row in self.view.result.metrics}

    @cached_property
    def _label_rows(self) -> list[LabelResult]:
        """The labels over these windows; those of whole runs stay as the report has them."""
        rows = self.view.result.labels
        if not self.moved or all(row.window != "steady" for row in rows):
            return rows
        return [row for row, _ in self._judged_labels]

    @cached_property
    def _judged_labels(self) -> list[tuple[LabelResult, Any]]:
        tables = label_tables(self.views, self._evidence.label_noise)
        return judge_label_tables(tables, self.analysis.catalogue)

    @cached_property
    def _judged_label(self) -> tuple[LabelResult, float | None]:
        """The label's row, and the smallest change of it that would have been marked."""
        row, tested = next((r, t) for r, t in self._judged_labels if (r.group, r.label, r.stat) == self.label)
        return row, tested.effect.min_detectable_percent(level=LABEL_ALPHA) if tested else None

    @property
    def _label_detectable(self) -> float | None:
        return self._judged_label[1]

    def _effect(self, row: MetricResult) -> Effect:
        """The change of `row`, as it was judged."""
        df = math.inf if row.noise_df is None else row.noise_df
        run_sd = math.log1p((row.run_sd_percent or 0.0) / 100.0)
        return Effect(math.log1p((row.delta_percent or 0.0) / 100.0), row.se_log or 0.0, df, run_sd, row.noise_source)

    @cached_property
    def _own_minutes(self) -> list[tuple[Side, RunView, FloatArray]]:
        runs = self._runs()
        return [(side, run, _by_minute(run, series)) for side, _, run, series in runs if series is not None]

    def _alike(self, find: Any) -> tuple[float, float]:
        """By build, the correlation of the changes from minute to minute with those of another series."""
        found: dict[Side, list[float]] = {"base": [], "new": []}
        for side, run, own in self._own_minutes:
            series = find(run.recording)
            if series is not None:
                found[side].append(_correlation(own, _by_minute(run, series)))
        base, new = (math.nan if not each else float(np.mean(each)) for each in (found["base"], found["new"]))
        return base, new


def look_into(
    analysis: Analysis,
    test: str | None = None,
    metric: str | None = None,
    label: str | None = None,
    windows: Any = None,
) -> Investigation:
    """The investigation of a metric or label of a comparison; `windows` as :func:`buildcompare.investigate` has it."""
    tests = [each.name for each in analysis.results.tests]
    first = Investigation(analysis, _one_of("test", test or tests[0], tests))
    chosen = first.choose(metric=metric, label=label)
    if not windows:
        return chosen
    if isinstance(windows, Mapping):
        unknown = [key for key in windows if key not in SIDES]
        if unknown:
            raise InputError(file=None, key="windows", expected="base and new", found=repr(unknown[0]))
        return chosen.over(**windows)
    return chosen.over(windows)


def _one_of(key: str, name: str, known: Sequence[str], found: str | None = None) -> str:
    """`name`, which must be one of those that there are."""
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else f"a test with a {key}"
        raise InputError(file=None, key=key, expected=expected, found=f"{(found or name)!r}{meant(name, known)}")
    return name


def _window(view: TestView, side: Side, given: Sequence[float] | None) -> Window | None:
    """A window of all runs of a build, checked."""
    if not given:
        return None
    longest = max(run.duration_s for run in view.result.runs[side])
    expected = f"start and end in elapsed seconds, between 0 and {longest:.0f} ({side})"
    try:
        start, end = (float(each) for each in given)
    except (TypeError, ValueError):
        raise InputError(file=None, key="windows", expected=expected, found=repr(given)) from None
    if not 0.0 <= start < end <= longest + 1.0:
        raise InputError(file=None, key="windows", expected=expected, found=f"{start:g} to {end:g}")
    return start, end


def _key(row: MetricResult) -> str:
    return series_key(row.slug, row.labels)


def _label_name(row: LabelResult) -> str:
    return f"{row.group} {row.label} {row.stat}"


def _label_series(recording: Recording, label: tuple[str, str, str]) -> Series | None:
    """A label's samples over time, where its source has them."""
    of_labels = (each for each in recording.series if each.role == "label")
    return next((each for each in of_labels if (each.metric, each.name, each.stat) == label), None)


def _by_minute(run: RunView, series: Series) -> FloatArray:
    """Means over the minutes of a run's window; NaN where there is no number."""
    if run.steady.window is None:
        return np.empty(0)
    start, end = run.steady.window
    elapsed = series.times - run.recording.window[0]
    inside = (elapsed > start) & (elapsed <= end) & np.isfinite(series.values)
    minute = np.ceil((elapsed[inside] - start) / MINUTE_S).astype(np.int64) - 1
    size = math.ceil((end - start) / MINUTE_S)
    counts = np.bincount(minute, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(minute, series.values[inside], minlength=size) / counts, dtype=np.float64)


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Correlation of the changes from minute to minute; NaN with fewer than `FEWEST_MINUTES` of both."""
    if one.size != other.size or one.size < 2:
        return math.nan
    a, b = np.diff(one), np.diff(other)
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < FEWEST_MINUTES:
        return math.nan
    a, b = a[known] - a[known].mean(), b[known] - b[known].mean()
    power = float(a @ a) * float(b @ b)
    return float(a @ b) / math.sqrt(power) if power > 0 else math.nan
