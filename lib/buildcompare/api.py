"""The public interface: compare two builds, inspect the result, publish it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, StrictStr

from buildcompare.comparison.analysis import Analysis, analyse, with_margins
from buildcompare.comparison.reading import build_names, read_recordings, with_catalogue
from buildcompare.config.catalogue import Catalogue, Operation, slugify
from buildcompare.config.errors import InputError, meant, plural
from buildcompare.config.params import Build, Comparison, Run, Source, Test
from buildcompare.config.project import write_files, writing
from buildcompare.config.yaml import checked
from buildcompare.findings.verdict import opening
from buildcompare.recordings.frames import clock_of
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import read_runs, recording_of_values, with_samples
from buildcompare.report import publication
from buildcompare.report.notebook import notebook_of
from buildcompare.report.sections import EmbeddedResults, parts_of, sections_of, summary
from buildcompare.results import Event, Finding, LabelResult, MetricResult, Results, SupportedUsersResult, dumps
from buildcompare.results.codes import SIDES, Pair, Severity, Side, TestType, Verdict, numbered
from buildcompare.results.tables import frame
from buildcompare.stats.noise import series_key
from buildcompare.text.sentences import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TESTS = 8

Values: TypeAlias = Mapping[str, float | Sequence[float]]
Input: TypeAlias = Union[pd.DataFrame, str, "os.PathLike[str]", Recording, Values]
"""One input: a table of samples, a recording, a mapping from metric to numbers, or the path of a file or folder."""


class _Settings(BaseModel):
    labels: Annotated[list[StrictStr | None], Field(min_length=2, max_length=2)]
    users: Annotated[int, Field(ge=1)] | None
    rate_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    sessions: Annotated[list[Any], Field(min_length=2, max_length=2)] | None
    margins: dict[str, float] | None


def compare(
    base: Comparison | Input | Sequence[Input],
    new: Input | Sequence[Input] | None = None,
    *,
    catalogue: str | None = None,
    type: TestType | None = None,  # noqa: A002 - params files use this word
    users: int | None = None,
    labels: tuple[str | None, str | None] = (None, None),
    sessions: tuple[Sequence[str], Sequence[str]] | None = None,
    metrics: Mapping[str, Mapping[str, Any]] | None = None,
    margins: Mapping[str, float] | None = None,
    calibration: str | None = None,
    rate_s: float | None = None,
    refresh: bool = False,
    command: str | None = None,
) -> Result:
    """Compare two builds in one test, or in all tests of a params file.

    Parameters
    ----------
    base
        The runs of the base build: a DataFrame, a :class:`Recording`, a benchmark's numbers by name (one number, or a
        list with one per request or iteration), the path of a recording, or the path of a folder (repeated runs, or
        parts of one run). A list of these holds repeated runs. A whole comparison from :func:`read_params` is given
        without `new` and allows only the settings `refresh` and `command`.
    new
        The runs of the new build, in the same forms.
    catalogue
        Name of a catalogue in ``params/metrics/``, or its path; it states units, margins and better directions. By
        default, the catalogue (``http``, ``mattermost``, ``pgbench``, ``postgresql`` or the project's own) that lists
        the largest number of the runs' metrics is used, if it lists at least half. Units and directions of unlisted
        metrics are then assumed from names such as ``checkout_duration_ms``, and a finding names these metrics.
    type
        ``"bounded"`` (a fixed number of users), ``"unbounded"`` (users are added until the server degrades), or
        ``"benchmark"`` (numbers without timestamps). The default is benchmark if no run has time series, else bounded.
    users
        Number of users: the target of a bounded test, or the ceiling of an unbounded test.
    labels
        Names of the base and new build; by default taken from the recordings, else from the files, else base and new.
    sessions
        For benchmarks only: the session of each run of the base and of the new build, such as a night or a start of
        the machine. The runs of one session count as one observation. Sessions are paired if both builds have the
        same three or more session names, and pairing narrows most intervals. Each pyperf result is a session.
    metrics
        Settings of metrics by name, in place of the catalogue's: ``unit``, ``better``, ``margin_percent``, ``gate``
        (whether a regression fails the comparison) and ``run_sd_percent`` (standard deviation between runs).
    margins
        The smallest change that matters, in percent by metric, in place of the catalogue's margin.
    calibration
        Path of a file that ``buildcompare calibrate`` made. Without one, noise is from the catalogue and repeated runs.
    rate_s
        Seconds over which rates in the files were averaged. The default is the value in the files, else 60, or less in
        short repeated runs. A bounded run's steady window begins `rate_s` after the load is reached. Windows last at
        least 5 times `rate_s`; with several bounded runs per build, the shorter of 30 s and 30 samples is enough.
    refresh
        Whether to pull cached recordings again from the server (only for a comparison from :func:`read_params`).
    command
        The command line that reproduces the report; the report's provenance states it.

    Returns
    -------
    Result
        The verdict, with all numbers and findings behind it.

    Raises
    ------
    InputError
        If a frame, file or key is not as expected, or a run holds no number.

    Notes
    -----
    A frame is tidy (columns ``timestamp``, ``metric``, ``value``; every other column is a label that distinguishes
    series of one metric) or wide (index: seconds or dates; one column for each metric), with values in the
    catalogue's units. See :meth:`Recording.from_frame`. A frame with a column ``session`` and no timestamps holds a
    benchmark's numbers, either in the columns ``metric`` and ``value`` or in one column for each metric.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> def run(seconds_per_call):
    ...     elapsed = np.arange(0.0, 5400.0, 5.0)
    ...     return pd.DataFrame({
    ...         "Number of Connected Devices": np.minimum(elapsed * 4, 2000),
    ...         "Avg API times": seconds_per_call * rng.lognormal(0, 0.05, elapsed.size),
    ...     }, index=elapsed)
    >>> result = compare(run(0.010), run(0.020), type="bounded", users=2000)
    >>> result.verdict
    <Verdict.REGRESSION: 'regression'>
    >>> result.metrics.loc[0, ["metric", "status"]].tolist()
    ['avg-api-times', 'regression']

    A benchmark in seconds, with three runs of the base build and two of the new build:

    >>> old, new = [{"import": 62.1}, {"import": 61.5}, {"import": 61.9}], [{"import": 55.2}, {"import": 54.9}]
    >>> compare(old, new, metrics={"import": {"unit": "s", "better": "lower"}}).verdict
    <Verdict.PASS: 'pass'>
    """
    if isinstance(base, Comparison):
        stated = (new, *labels, type, users, catalogue, metrics, rate_s, sessions, margins, calibration)
        if any(each is not None for each in stated):
            raise TypeError("compare(comparison) takes no second build and no settings: the comparison states them")
        made = analyse(base, read_recordings(base, refresh=refresh), command=command)
        return _result(made, published=command is not None)
    if new is None:
        raise TypeError("compare(base, new) needs the runs of the new build")
    counted = {"users": users, "rate_s": rate_s, "sessions": sessions, "margins": margins}
    given = checked(_Settings, {"labels": labels, **counted})
    inputs: list[list[Any]] = [list(each) if isinstance(each, (list, tuple)) else [each] for each in (base, new)]
    if not all(inputs):
        raise InputError(file=None, key="base" if inputs[1] else "new", expected="runs", found="an empty list")
    runs, listed, name = _read_builds(inputs, catalogue, _inline(metrics or {}))
    _check_recorded(metrics or {}, [run for side in SIDES for run in runs[side]])
    if given.rate_s is not None:
        runs = {side: [run.with_rate(given.rate_s) for run in runs[side]] for side in SIDES}
    timed = any(run.series for side in SIDES for run in runs[side])
    if sessions is not None:
        runs = {side: _in_sessions(runs[side], names) for side, names in zip(SIDES, sessions, strict=True)}
    if timed and any(run.session is not None for side in SIDES for run in runs[side]):
        raise InputError(file=None, key="sessions", expected="runs without times", found="runs with times")
    test = _test_of(runs, type, given.users)
    base_label, new_label = build_names(labels, inputs, runs)
    comparison = Comparison.model_construct(
        source=Source(kind="recorded"),
        tests=[test],
        base=Build(label=base_label),
        new=Build(label=new_label),
        metrics=name,
        margins=given.margins or {},
        calibration=calibration,
    )
    return _result(analyse(comparison, {test.name: runs}, catalogue=listed, command=command))


def _result(made: Analysis, *, published: bool = False) -> Result:
    return Result(made.params, made.catalogue, made.recordings, made.results, made.compared, published=published)


def _inline(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Operation]:
    """Check the settings that the caller of `compare` gives for metrics, and return the settings by metric."""
    if not isinstance(metrics, Mapping):
        raise InputError(file=None, key="metrics", expected="settings by metric's name", found=repr(metrics)[:60])
    settings = {}
    for name, each in metrics.items():
        try:
            settings[name] = checked(Operation, dict(each) if isinstance(each, Mapping) else each)
        except InputError as error:
            raise error.within(f"metrics.{name}") from None
    return settings


def _test_of(runs: Mapping[Side, Sequence[Recording]], stated: TestType | None, users: int | None) -> Test:
    """Return the test of the runs; its type is `stated`, else one that fits. Refuse a stated type that does not fit."""
    every = [run for side in SIDES for run in runs[side]]
    timed, numbers = any(run.series for run in every), any(run.measurements for run in every)
    benchmark: list[TestType] = ["benchmark"] if numbers or not timed else []
    allowed: list[TestType] = ["bounded", "unbounded", *benchmark]
    made: TestType = stated or ("bounded" if timed else "benchmark")
    if made not in allowed:
        raise InputError(file=None, key="type", expected=" or ".join(allowed), found=repr(made))
    no_files = {side: [Run.model_construct() for _ in runs[side]] for side in SIDES}
    return Test.model_construct(name=made, type=made, users=users, base=no_files["base"], new=no_files["new"])


def _check_recorded(metrics: Iterable[str], runs: Sequence[Recording]) -> None:
    """Raise an InputError for a name in `metrics` that no run recorded."""
    names = [(each.name, each.metric) for run in runs for each in run.series]
    names += [(each.name, each.metric) for run in runs for each in run.measurements]
    recorded = {slugify(name) for both in names for name in both}
    for each in metrics:
        if slugify(each) not in recorded:
            expected = f"a metric of the runs{meant(slugify(each), recorded)}"
            raise InputError(file=None, key=f"metrics.{each}", expected=expected, found="a name that no run recorded")


def _read_builds(
    inputs: Sequence[Sequence[Input]], catalogue: str | None, inline: Mapping[str, Operation]
) -> tuple[dict[Side, list[Recording]], Catalogue, str]:
    """Return the runs of both builds by side, their catalogue, and its name (empty if no catalogue is recognised)."""

    def read(by: Catalogue) -> dict[Side, list[Recording]]:
        return {
            side: [run for each in build for run in _recordings(each, by)]
            for side, build in zip(SIDES, inputs, strict=True)
        }

    return with_catalogue(read, catalogue, inline)


def _in_sessions(runs: Sequence[Recording], names: Sequence[str]) -> list[Recording]:
    """Give each run its session from `names`, in order; refuse lists of different lengths."""
    if len(names) != len(runs):
        expected = f"a session for each of {plural(len(runs), 'run')}"
        raise InputError(file=None, key="sessions", expected=expected, found=str(len(names)))
    return [replace(run, session=name) for run, name in zip(runs, names, strict=True)]


def _sessions_in(frame: pd.DataFrame, catalogue: Catalogue) -> list[Recording]:
    """Make a recording of each session in a frame of values without timestamps."""
    if (unnamed := frame["session"].isna().to_numpy()).any():
        row = f"none in row {int(unnamed.argmax())}"
        raise InputError(file=None, key="session", expected="a name in every row", found=row)
    tidy = frame if {"metric", "value"} <= {*frame.columns} else frame.melt("session", var_name="metric")
    if others := [str(name) for name in tidy if name not in ("session", "metric", "value")]:
        expected = "the columns session, metric and value (a metric's name may hold more, such as a case)"
        raise InputError(file=None, key="session", expected=expected, found=f"also {', '.join(others)}")
    return [
        replace(
            recording_of_values({str(name): each for name, each in values.items()}, catalogue), session=str(session)
        )
        for session, rows in tidy.dropna(subset=["value"]).groupby("session", sort=False)
        for values in [rows.groupby("metric", sort=False)["value"].apply(list)]
    ]


def _recordings(run: Input, catalogue: Catalogue) -> list[Recording]:
    """Read the runs of one input: a folder or a frame with sessions may hold several, any other input holds one."""
    if isinstance(run, Recording):
        return [run]
    if isinstance(run, Mapping):
        return [recording_of_values(run, catalogue)]
    if isinstance(run, pd.DataFrame):
        timed = clock_of([*run.columns, *run.index.names]) is not None or not pd.api.types.is_integer_dtype(run.index)
        if "session" in run and not timed:
            return _sessions_in(run, catalogue)
        return [with_samples(Recording.from_frame(run, catalogue=catalogue), None)]
    if not isinstance(run, (str, os.PathLike)):
        expected = "a DataFrame, a Recording, numbers by name, or a path"
        raise InputError(file=None, key="base or new", expected=expected, found=run.__class__.__name__)
    return read_runs(os.fspath(run), catalogue)


WIDTH = 100


def cut(line: str) -> str:
    """Cut a line of a printed summary at `WIDTH` characters."""
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


class Shown:
    """Base class of results, which can be written as JSON for programs and as an HTML page for people."""

    results: Results
    published: bool

    def to_json(self) -> str:
        """Return the text of results.json, which ``docs/results.schema.json`` describes."""
        return dumps(self.results)

    def to_html(self, file: str | os.PathLike[str]) -> Path:
        """Write the report as one page that opens offline, and return its path."""
        from buildcompare.report.exporters import HtmlReportExporter, convert  # late: nbconvert takes long to import

        path = Path(file)
        with writing(path, "output", "a file that can be written"):
            write_files({path: convert(HtmlReportExporter, notebook_of(self))[0]})
        return path

    def show(self, section: str) -> None:
        """Display one section of the report in a notebook: ``"verdict"``, ``"metrics"`` and so on.

        Raises
        ------
        KeyError
            If the report has no such section; the message lists the sections.
        """
        from IPython.display import display

        if section not in sections_of(self.results):
            raise KeyError(f"no section {section!r}; there are: {', '.join(sections_of(self.results))}")
        shown = (part._repr_mimebundle_() for part in parts_of(self, section))
        display(*shown, raw=True)  # type: ignore[no-untyped-call]  # IPython's function is untyped

    def save(self) -> None:
        """Embed results.json in the notebook. In a user's run, also save the file, unless its folder holds a report."""
        from IPython.display import display

        if not self.published:
            print(publication.save_results(self.results))
        display(EmbeddedResults(self.results))  # type: ignore[no-untyped-call]  # IPython's function is untyped


@dataclass(frozen=True, repr=False)
class Result(Shown, Analysis):
    """The result of a comparison: tables as DataFrames, figures, and the report.

    As the last expression of a notebook cell, a result shows the verdict, the findings and the table of metrics.

    Attributes
    ----------
    results
        The typed model of results.json, with everything that the tables hold.
    recordings
        The recordings of each test, by build.
    catalogue
        The metrics with their units and margins.
    published
        True if a command such as ``report`` runs the notebook and publishes the report; False otherwise.
    """

    published: bool = False

    @property
    def verdict(self) -> Verdict:
        """Whether the new build may ship: the worst verdict of all tests."""
        return self.results.verdict

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row for each metric of each test: both means, change in percent with its 95 % interval, status."""
        return frame(MetricResult, ((test.name, row) for test in self.results.tests for row in test.metrics))

    @functools.cached_property
    def samples(self) -> pd.DataFrame:
        """Samples of all graphs of each run: columns test, build, run, metric, unit, elapsed_s, value.

        If a metric has several series, the column metric holds its slug followed by the labels of the series.
        """
        series = [
            ((view.result.name, side, number, series_key(each.metric, each.labels), each.unit), run.samples(each))
            for view in self.tests() for side, number, run in numbered(view.recordings) for each in run.graphs()
        ]  # fmt: skip
        made = pd.DataFrame([row for row, _ in series], columns=["test", "build", "run", "metric", "unit"])
        elapsed, values = np.hstack([np.empty((2, 0)), *(samples for _, samples in series)])
        repeated = made.index.repeat([times.size for _, (times, _) in series])
        return made.loc[repeated].reset_index(drop=True).assign(elapsed_s=elapsed, value=values)

    @functools.cached_property
    def labels(self) -> pd.DataFrame:
        """One row for each label and statistic of each test, such as the 99th percentile of an API handler."""
        return frame(LabelResult, ((test.name, row) for test in self.results.tests for row in test.labels))

    @functools.cached_property
    def events(self) -> pd.DataFrame:
        """One row for each level shift, spike and drop inside the steady windows, with elapsed times in seconds."""
        return frame(Event, ((test.name, row) for test in self.results.tests for row in test.events))

    @functools.cached_property
    def findings(self) -> pd.DataFrame:
        """The findings, the most severe first, each with its evidence."""
        return frame(Finding, ((row.test, row) for row in self.results.findings))

    @functools.cached_property
    def supported_users(self) -> pd.DataFrame:
        """One row for each unbounded test: supported users of both builds and their change with its interval."""
        rows = ((test.name, test.supported_users) for test in self.results.tests if test.supported_users)
        return frame(SupportedUsersResult, rows)

    def with_margins(self, margins: Mapping[str, float]) -> Result:
        """Judge the same measurements by other margins; nothing is read or measured again.

        Parameters
        ----------
        margins
            The smallest change that matters, in percent by metric; other metrics keep their margins.

        Returns
        -------
        Result
            The comparison with these margins.

        Raises
        ------
        InputError
            If the catalogue lacks a metric in `margins`, or a margin is not above 0.

        Examples
        --------
        >>> old, new = [{"import": 62.1}, {"import": 61.5}, {"import": 61.9}], [{"import": 55.2}, {"import": 54.9}]
        >>> result = compare(old, new, metrics={"import": {"unit": "seconds"}})
        >>> print(*(each.metrics.loc[0, "status"] for each in (result, result.with_margins({"import": 20.0}))))
        improvement equivalent
        """
        return with_margins(self, margins)

    def plot(self, metric: str, test: str | None = None) -> Axes:
        """Draw one metric of both builds over elapsed time with seaborn.

        Parameters
        ----------
        metric
            Name or slug of the metric, as in :attr:`metrics`, such as ``"p99-api-times"``, or one of its series, as in
            :attr:`samples`. Of several series, the first that changed is drawn, or the first if none did.
        test
            The test's name; by default the first test that has the metric.

        Returns
        -------
        Axes
            Matplotlib axes with the steady windows shaded; the title states the mean of each build and the change.

        Raises
        ------
        KeyError
            If no test has the metric; the message lists the metrics.
        """
        from buildcompare.figures import axes

        for view in self.tests():
            for row in sorted(view.result.metrics, key=lambda row: not row.judged.status.changed):
                key = series_key(row.slug, row.labels)
                if (row.slug == slugify(metric) or key == metric) and test in (None, view.result.name):
                    of_test, runs = self.samples[self.samples["test"] == view.result.name], view.result.runs
                    drawn = of_test[of_test["metric"] == key]
                    windows = Pair(*([run.window for run in of_build if run.window] for of_build in runs))
                    title = say("figures", "metric_title", row)
                    return axes.metric(drawn, windows, view.labels, title=title, unit=row.unit)
        keys = dict.fromkeys(series_key(row.slug, row.labels) for t in self.results.tests for row in t.metrics)
        raise KeyError(f"no metric {metric!r} in {test or 'any test'}; there are: {', '.join(keys)}")

    def __repr__(self) -> str:
        headline = opening(self.results)
        lines = [f"<buildcompare.Result: {self.results.base.label} against {self.results.new.label}>", headline.title]
        assumed = [each for each in self.results.findings if each.kind == "assumed"]
        notable = [each for each in self.results.findings if each.severity != Severity.INFO or each in assumed]
        lines += [f"  {each.severity}: {each.text if each in assumed else cut(each.text)}" for each in notable[:5]]
        for test in self.results.tests[:_MOST_TESTS]:
            changed = ", ".join(row.name for row in test.metrics if row.judged.status.changed)
            what = f", changed: {changed}" if changed else ""
            lines.append(cut(f"  {test.name}: {test.verdict}, {len(test.metrics)} metrics{what}"))
        left_out = len(self.results.tests) - _MOST_TESTS
        lines += [f"  and {left_out} more tests"] if left_out > 0 else []
        return "\n".join([*lines, "Look into .metrics .labels .events .findings; .plot(metric); .to_html(file)"])

    def _repr_html_(self) -> str:
        return summary(self).styled()
