"""The public interface: compare two builds, look into the result, publish it."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import pandas as pd

from buildcompare.comparison.analysis import Analysis, analyse, parameters, read_recordings, with_margins
from buildcompare.comparison.matrix import Matrix, analyse_matrix
from buildcompare.config.catalogue import Catalogue, Operation, read_catalogue
from buildcompare.config.params import Build, Comparison, Run, Source, Test
from buildcompare.config.project import write_files, writing
from buildcompare.config.variants import Variants
from buildcompare.config.yaml import checked
from buildcompare.findings.verdict import opening
from buildcompare.recordings.recording import Recording
from buildcompare.results import Results, dumps
from buildcompare.results.codes import SIDES, Severity, Side, TestType, Verdict
from buildcompare.results.tables import frame

if TYPE_CHECKING:
    from buildcompare.figures import Figure
    from buildcompare.workbench.investigation import Investigation

Values: TypeAlias = Mapping[str, float | Sequence[float]]
Input: TypeAlias = Union[pd.DataFrame, str, "os.PathLike[str]", Recording, Values]
"""One run: a frame of samples, a file, a recording, or the numbers of a benchmark by their names."""


def compare(
    base: Comparison | Input | Sequence[Input],
    new: Input | Sequence[Input] | None = None,
    *,
    catalogue: str = "mattermost",
    type: TestType | None = None,  # noqa: A002 - the word of params files
    users: int | None = None,
    labels: tuple[str, str] = ("base", "new"),
    operations: Mapping[str, Mapping[str, Any]] | None = None,
    margins: Mapping[str, float] | None = None,
    calibration: str | None = None,
    refresh: bool = False,
    command: str | None = None,
) -> Result:
    """Compare two builds by the runs of one test, or all tests of a params file.

    Parameters
    ----------
    base
        The runs of the base build: a DataFrame, the path of a recording or of a folder of them (repeated runs, or the
        parts of one), a :class:`Recording`, the numbers of a benchmark by their names (one each, or a list of requests
        or iterations), or a list of these (repeated runs). Or a whole comparison from :func:`read_params`; then `new`
        and the settings below are left out.
    new
        The runs of the new build, in the same forms.
    catalogue
        A catalogue in ``params/metrics/`` by its name, or the path of one: units, margins and better directions.
    type
        ``"bounded"`` (a fixed number of users), ``"unbounded"`` (users are added until the server degrades), or
        ``"benchmark"`` (numbers without times); by default benchmark where no run has a time series, else bounded.
    users
        The target of a bounded test, the ceiling of an unbounded one.
    labels
        What the two builds are called.
    operations
        What a benchmark measures, where the catalogue does not hold it: by name ``unit``, ``better``,
        ``margin_percent``, ``gate`` and ``run_sd_percent``.
    margins
        The smallest change that matters, in percent by metric, instead of the catalogue's.
    calibration
        A file that ``buildcompare calibrate`` made. Without it the noise of runs is the catalogue's.
    refresh
        Pull from the server again what was pulled before (a comparison from :func:`read_params` only).
    command
        What makes the report again, for its provenance.

    Returns
    -------
    Result
        The verdict, and every number and finding that it rests on.

    Raises
    ------
    InputError
        Where a frame, file or key is not as expected, or a run holds no number.

    Notes
    -----
    A frame is tidy (columns ``timestamp``, ``metric``, ``value``; every other column is a label that tells several
    series of one metric apart) or wide (index: times in seconds or dates; one column for each metric), in the
    catalogue's units. See :meth:`Recording.from_frame`.

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

    Seconds of a benchmark, three runs of each build:

    >>> old, new = [{"import": 62.1}, {"import": 61.5}, {"import": 61.9}], [{"import": 55.2}, {"import": 54.9}]
    >>> compare(old, new, operations={"import": {"unit": "seconds"}}).verdict
    <Verdict.PASS: 'pass'>
    """
    if isinstance(base, Comparison):
        if new is not None:
            raise TypeError("compare(comparison) takes no second build: the comparison names both")
        return Result(**vars(analyse(base, read_recordings(base, refresh=refresh), command=command)))
    if new is None:
        raise TypeError("compare(base, new) needs the runs of the new build")
    asked = {name: checked(Operation, dict(each)) for name, each in (operations or {}).items()}
    known = read_catalogue(catalogue).with_operations(asked)
    runs: dict[Side, list[Recording]] = {}
    for side, given in zip(SIDES, (base, new), strict=True):
        listed: Any = given if isinstance(given, (list, tuple)) else [given]
        runs[side] = [run for each in listed for run in _recordings(each, known)]
    timed = any(recording.series for side in SIDES for recording in runs[side])
    type = type or ("bounded" if timed else "benchmark")  # noqa: A001 - the same word
    sides: dict[str, Any] = {side: [Run.model_construct() for _ in runs[side]] for side in SIDES}
    test = Test.model_construct(name=type, type=type, users=users, **sides)
    builds: dict[str, Any] = {side: Build(label=label) for side, label in zip(SIDES, labels, strict=True)}
    settings: dict[str, Any] = {
        "metrics": catalogue,
        "margins": dict(margins or {}),
        "calibration": calibration,
        "operations": asked,
    }
    comparison = Comparison.model_construct(source=Source(kind="recorded"), tests=[test], **builds, **settings)
    return Result(**vars(analyse(comparison, {test.name: runs}, command=command)))


def investigate(
    comparison: Result | Comparison | str | os.PathLike[str] | None = None,
    test: str | None = None,
    metric: str | None = None,
    label: str | None = None,
    windows: Sequence[float] | Mapping[Side, Sequence[float]] | None = None,
) -> Investigation:
    """Look into one metric or label of one test: over any window, with all that its status rests on.

    Parameters
    ----------
    comparison
        What :func:`compare` returned, the parameters of a comparison, or the path of a params file; by default the
        file that ``make lab PARAMS=...`` named, or else the bundled one.
    test
        The test's name; by default that of ``make lab TEST=...`` with its METRIC or LABEL, or else the first.
    metric
        The metric by slug or name, such as ``"p99-api-times"``; by default the first.
    label
        Instead of a metric, a label, such as ``"api getPost p99"``.
    windows
        Start and end in elapsed seconds, of both builds or by build; by default each run's steady window.

    Returns
    -------
    Investigation
        Numbers and frames of this metric or label; ``Workbench(it)`` shows them in JupyterLab.

    Raises
    ------
    InputError
        Where there is no such test, metric or label, or a window lies outside of its runs; it names those that there
        are.

    Examples
    --------
    >>> seen = investigate("params/v10.4.0-rc1.yaml", "postgresql_bounded", "cpu-utilization")
    >>> row = seen.answer.loc["windows"]
    >>> print(f"{row.change_percent:+.1f} % ({row.ci_low:+.1f} to {row.ci_high:+.1f}): {row.status}")
    +0.0 % (-7.1 to +7.7): not_worse
    >>> later = seen.over([3600, 5400])
    >>> print(f"{later.row.delta_percent:+.1f} %")
    +0.2 %
    """
    from buildcompare.workbench.investigation import look_into

    result = comparison if isinstance(comparison, Result) else _opened(comparison)
    if comparison is None and test is None:  # JupyterLab tells its kernels nothing in another way
        test = os.environ.get("BUILDCOMPARE_TEST") or None
        if metric is None and label is None:
            metric = os.environ.get("BUILDCOMPARE_METRIC") or None
            label = os.environ.get("BUILDCOMPARE_LABEL") or None
    return look_into(result, test, metric, label, windows)


def _opened(comparison: Comparison | str | os.PathLike[str] | None) -> Result:
    """The result of a whole comparison."""
    if not isinstance(comparison, Comparison):
        comparison = parameters(None if comparison is None else os.fspath(comparison))
    return compare(comparison)


def _recordings(given: Input, catalogue: Catalogue) -> list[Recording]:
    from buildcompare.recordings.sources import read_runs, recording_of_values, with_samples

    if isinstance(given, Recording):
        return [given]
    if isinstance(given, Mapping):
        return [recording_of_values(given, catalogue)]
    if isinstance(given, pd.DataFrame):
        return [with_samples(Recording.from_frame(given, catalogue=catalogue), None)]
    return read_runs(os.fspath(given), catalogue)


class _Report:
    """What every report can: it is text for programs, and a page for people."""

    results: Results

    def to_json(self) -> str:
        """The text of results.json (``docs/results.schema.json`` describes it)."""
        return dumps(self.results)

    def to_html(self, file: str | os.PathLike[str]) -> Path:
        """Write the report as one page that opens offline, and return its path."""
        from buildcompare.report.html import page_of

        path = Path(file)
        with writing(path, "output", "a file that can be written"):
            write_files({path: page_of(self)})
        return path


@dataclass(frozen=True, repr=False)
class Result(_Report, Analysis):
    """What a comparison found: tables as DataFrames, figures, and the report.

    As the last line of a notebook's cell it shows the verdict, the findings and the table of metrics.

    Attributes
    ----------
    results
        The typed model of results.json, with everything that the tables hold.
    recordings
        The recordings by test and build.
    catalogue
        The metrics with their units and margins.
    """

    @property
    def verdict(self) -> Verdict:
        """May the new build ship? The worst verdict of all tests."""
        return self.results.verdict

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row for each metric of each test: levels, change in percent with its 95 % interval, status."""
        return frame((test.name, row) for test in self.results.tests for row in test.metrics)

    @functools.cached_property
    def labels(self) -> pd.DataFrame:
        """One row for each label and statistic of each test, such as the 99th percentile of an API handler."""
        return frame((test.name, row) for test in self.results.tests for row in test.labels)

    @functools.cached_property
    def events(self) -> pd.DataFrame:
        """One row for each level shift, spike and drop inside the steady windows; times in elapsed seconds."""
        return frame((test.name, row) for test in self.results.tests for row in test.events)

    @functools.cached_property
    def findings(self) -> pd.DataFrame:
        """The findings, the most severe first, each with its evidence."""
        return frame((row.test, row) for row in self.results.findings)

    @functools.cached_property
    def supported_users(self) -> pd.DataFrame:
        """One row for each unbounded test: supported users of both builds and their change with its interval."""
        return frame((test.name, test.supported_users) for test in self.results.tests if test.supported_users)

    def with_margins(self, margins: Mapping[str, float]) -> Result:
        """Judge the same measurements by other margins; nothing is read or measured again.

        Parameters
        ----------
        margins
            The smallest change that matters, in percent by metric; of the others it stays.

        Returns
        -------
        Result
            What :func:`compare` returns with these margins.

        Raises
        ------
        InputError
            Where the catalogue has no such metric, or a margin is not above 0.

        Examples
        --------
        >>> old, new = [{"import": 62.1}, {"import": 61.5}, {"import": 61.9}], [{"import": 55.2}, {"import": 54.9}]
        >>> result = compare(old, new, operations={"import": {"unit": "seconds"}})
        >>> print(*(each.metrics.loc[0, "status"] for each in (result, result.with_margins({"import": 20.0}))))
        improvement equivalent
        """
        return with_margins(self, margins)

    def plot(self, metric: str, test: str | None = None) -> Figure:
        """Draw one metric of both builds over elapsed time.

        Parameters
        ----------
        metric
            The metric's slug, such as ``"p99-api-times"`` (column ``metric`` of :attr:`metrics`).
        test
            The test's name; by default the first test that has the metric.

        Returns
        -------
        Figure
            Shown by a notebook; ``figure.svg`` and ``figure.png`` hold the pictures, ``figure.alt`` the description.

        Raises
        ------
        KeyError
            Where no test has the metric; the message lists those that there are.
        """
        from buildcompare.figures.curves import graph

        for view in self.tests():
            for row in view.result.metrics:
                if row.slug == metric and test in (None, view.result.name):
                    return graph(view, row, row.slug)
        known = ", ".join(dict.fromkeys(row.slug for t in self.results.tests for row in t.metrics))
        raise KeyError(f"no metric {metric!r} in {test or 'any test'}; there are: {known}")

    def __repr__(self) -> str:
        found = opening(self.results)
        lines = [f"<buildcompare.Result: {self.results.base.label} against {self.results.new.label}>", found.title]
        told = [each for each in self.results.findings if each.severity != Severity.INFO][:5]
        lines += [f"  {each.severity}: {_cut(each.text)}" for each in told]
        for test in self.results.tests[:_MOST_TESTS]:
            changed = ", ".join(row.name for row in test.metrics if row.effective.status.changed)
            what = f", changed: {changed}" if changed else ""
            lines.append(_cut(f"  {test.name}: {test.verdict}, {len(test.metrics)} metrics{what}"))
        left_out = len(self.results.tests) - _MOST_TESTS
        lines += [f"  and {left_out} more tests"] if left_out > 0 else []
        return "\n".join([*lines, "Look into .metrics .labels .events .findings; .plot(metric); .to_html(file)"])

    def _repr_html_(self) -> str:
        from buildcompare.report.sections import summary

        return summary(self).styled()


def compare_variants(variants: Variants, *, command: str | None = None) -> VariantsReport:
    """Compare the variants of a matrix with their baseline.

    Parameters
    ----------
    variants
        The matrix, from :func:`read_variants` or :func:`variants_parameters`.
    command
        What makes the report again, for its provenance.

    Returns
    -------
    VariantsReport
        Contrasts, effects of factors, ranks and findings.

    Raises
    ------
    InputError
        Where a run cannot be read, or nothing can be compared.

    Examples
    --------
    >>> from buildcompare.config.variants import read_variants
    >>> found = compare_variants(read_variants("params/ceilometer-schemas.yaml"))
    >>> rows = found.contrasts.query("operation == 'resource-list' and variant == 'Normalise + index'")
    >>> rows[["against", "times_better"]].round(2).values.tolist()[0]
    ['Master', 4.5]
    """
    return VariantsReport(**vars(analyse_matrix(variants, command=command)))


@dataclass(frozen=True, repr=False)
class VariantsReport(_Report, Matrix):
    """What a matrix of variants showed: tables as DataFrames, figures, and the report."""

    @property
    def verdict(self) -> Verdict:
        """Regression where a variant is surely worse than the baseline."""
        return self.results.verdict

    @functools.cached_property
    def contrasts(self) -> pd.DataFrame:
        """One row for each variant beside another, in each operation."""
        return pd.DataFrame([row.model_dump() for row in self.result.contrasts])

    @functools.cached_property
    def effects(self) -> pd.DataFrame:
        """One row for each level of a factor, and for each pair of levels of two factors."""
        return pd.DataFrame([row.model_dump() for row in self.result.effects])

    @functools.cached_property
    def ranking(self) -> pd.DataFrame:
        """One row for each variant in each operation: its level and the places that it may have."""
        return pd.DataFrame([row.model_dump() for row in self.result.ranking])

    @functools.cached_property
    def findings(self) -> pd.DataFrame:
        """The findings, the most severe first, each with its evidence."""
        return pd.DataFrame([row.model_dump() for row in self.results.findings])

    def show(self, section: str) -> None:
        """Display one section of the report in a notebook: ``"verdict"``, ``"variants"``, ``"factors"`` and so on."""
        from IPython.display import display

        from buildcompare.report.sections import MATRIX_SECTIONS

        display(*MATRIX_SECTIONS[section][1](self))  # type: ignore[no-untyped-call]  # IPython's has no types

    def save(self) -> None:
        """Keep results.json in the notebook; run by hand, save it too, unless a report was published there."""
        from IPython.display import display

        from buildcompare.report import publication
        from buildcompare.report.sections import EmbeddedResults

        if not self.published:
            print(publication.save_results(self.results))
        display(EmbeddedResults(self.results))  # type: ignore[no-untyped-call]  # IPython's has no types

    def __repr__(self) -> str:
        lines = [f"<buildcompare.VariantsReport: {len(self.result.variants)} variants>", opening(self.results).title]
        return "\n".join([*lines, *(f"  {each.severity}: {_cut(each.text)}" for each in self.results.findings[:5])])


_MOST_TESTS, _WIDTH = 8, 100


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
