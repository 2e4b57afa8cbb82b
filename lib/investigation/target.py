"""Choose what an investigation looks at: a test, a metric or label, and windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from buildcompare.comparison.analysis import Analysis, with_margins
from buildcompare.comparison.measure import Estimates, TestView
from buildcompare.config.errors import InputError, meant
from buildcompare.load.curve import SteadyState
from buildcompare.load.view import RunView, Views
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import LabelResult, MetricResult
from buildcompare.results.codes import SIDES, Pair, Side, Window
from buildcompare.stats.effects import LABEL_MARGIN_PERCENT
from buildcompare.stats.noise import series_key

STEADY: Pair[Window | None] = Pair(None, None)
"""No chosen windows: each run is measured over its steady window."""


@dataclass(frozen=True, repr=False, eq=False)
class Target:
    """One metric or label of one test of a comparison, over chosen windows.

    Attributes
    ----------
    analysis
        The whole comparison.
    test
        Name of the test.
    metric
        Slug of the metric (with its labels, where it has several series); None for a label.
    label
        Group, label and statistic, such as ``("api", "getPost", "p99")``; None for a metric.
    windows
        Start and end in elapsed seconds by build; None means the steady window of each run.
    """

    analysis: Analysis
    test: str
    metric: str | None = None
    label: tuple[str, str, str] | None = None
    windows: Pair[Window | None] = STEADY

    def __repr__(self) -> str:
        labels = self.labels
        return f"<{type(self).__name__} of {self.name} in {self.test}: {labels.base} against {labels.new}>"

    @cached_property
    def view(self) -> TestView:
        """The test with its recordings and its results."""
        return next(view for view in self.analysis.tests() if view.result.name == self.test)

    @property
    def labels(self) -> Pair[str]:
        """Return the names of the builds."""
        return self.view.labels

    @cached_property
    def reported(self) -> Any:
        """Return the target's row in the report."""
        if self.label is not None:
            rows = self.view.result.labels
            return next(row for row in rows if (row.group, row.label, row.stat) == self.label)
        return next(row for row in self.view.result.metrics if metric_key(row) == self.metric)

    @property
    def name(self) -> str:
        """Return the name of the metric or label."""
        return " ".join(self.label) if self.label else self.reported.full_name

    @property
    def slug(self) -> str:
        """Return the slug of the metric without labels, or the group of the label."""
        return self.label[0] if self.label else str(self.reported.slug)

    @property
    def unit(self) -> str:
        """Return the unit of levels and samples."""
        return self.analysis.catalogue.label_table(self.label[0]).unit if self.label else self.reported.unit

    @property
    def better(self) -> str:
        """Return the better direction: ``lower``, ``higher`` or ``neutral``."""
        return "lower" if self.label else str(self.reported.better)

    @property
    def margin_percent(self) -> float:
        """Return the smallest change that matters, in percent."""
        return LABEL_MARGIN_PERCENT if self.label else self.reported.margin_percent

    @property
    def has_margin(self) -> bool:
        """Test whether the catalogue has a margin for the metric; all labels share a fixed one."""
        return self.label is None and any(metric.slug == self.slug for metric in self.analysis.catalogue.metrics)

    @property
    def is_load(self) -> bool:
        """Test whether the metric is the number of connected users."""
        load = self.analysis.catalogue.load
        return load is not None and self.metric == load.slug

    @property
    def metrics(self) -> dict[str, str]:
        """Map slugs of the test's metrics, as :meth:`choose` takes them, to names."""
        return {metric_key(row): row.full_name for row in self.view.result.metrics}

    @property
    def label_names(self) -> list[str]:
        """List the test's labels as :meth:`choose` takes them: ``api getPost p99``."""
        return [label_name(row) for row in self.view.result.labels]

    @property
    def moved(self) -> bool:
        """Test whether windows were chosen."""
        return any(self.windows)

    @property
    def follows(self) -> bool:
        """Test whether the numbers depend on the windows; values of whole runs and of benchmarks do not."""
        if self.label is not None:
            return bool(self.reported.window == "steady")
        return self.view.result.type != "benchmark"

    @property
    def estimates(self) -> Estimates:
        """Return the measurements of the test over its steady windows, and their noise."""
        if self.view.estimates is None:
            raise ValueError(f"{self.test}: a test without estimates has no other windows")
        return self.view.estimates

    @cached_property
    def views(self) -> Views:
        """Return the runs of both builds over the chosen windows."""

        def over(side: Side) -> list[RunView]:
            runs, window = self.estimates.views[side], self.windows[side]
            return runs if window is None else [replace(r, steady=SteadyState(window, r.steady.method)) for r in runs]

        return Pair.of(over)

    def series(self, recording: Recording) -> Series | None:
        """Return the recorded samples of one run; None without samples over time."""
        if self.label is not None:
            return label_series(recording, self.label)
        return recording.find(self.reported.slug, self.reported.labels)

    def runs(self) -> Iterator[tuple[Side, int, RunView, Series | None]]:
        """Yield build, number, view and series of each run."""
        for side in SIDES:
            for number, run in enumerate(self.views[side], start=1):
                yield side, number, run, self.series(run.recording)

    @cached_property
    def query(self) -> str | None:
        """Return the catalogue's PromQL query of the metric or label, if any."""
        source = self.analysis.params.source
        wanted = ("label", *self.label[::2]) if self.label else ("graph", self.slug, "")
        questions = self.analysis.catalogue.questions(label_step_s=source.label_step_s, rate_s=source.rate_s)
        return next((each.query for each in questions if (each.role, each.metric, each.stat) == wanted), None)

    def choose(self, test: str | None = None, metric: str | None = None, label: str | None = None) -> Self:
        """Look at another test, metric or label of the same comparison.

        Parameters
        ----------
        test
            Name of the test; by default the same.
        metric
            Slug or name of the metric; by default the same, where the test has it.
        label
            The label as ``api getPost p99``, or its name alone.

        Returns
        -------
        Investigation
            Over the same windows; in another test over the steady windows.

        Raises
        ------
        InputError
            Where there is no such test, metric or label; the message lists those that there are.
        """
        tests = [each.name for each in self.analysis.results.tests]
        name = _one_of("test", test or self.test or tests[0], tests)
        moved = replace(self, test=name, windows=self.windows if name == self.test else STEADY)
        if label:
            if metric:
                raise InputError(file=None, key="label", expected="a metric or a label", found="both")
            keys = {label_name(row): (row.group, row.label, row.stat) for row in moved.view.result.labels}
            full = next((full for full, each in keys.items() if each[1] == label), label)
            return replace(moved, metric=None, label=keys[_one_of("label", full, [*keys])])
        slugs = [*moved.metrics]
        wanted = metric or (self.metric if self.metric in slugs else next(iter(slugs), "")) or ""
        slug = wanted if wanted in slugs else self.analysis.catalogue.find(wanted).slug
        return replace(moved, label=None, metric=_one_of("metric", slug, slugs, wanted))

    def over(
        self, window: Sequence[float] | None = None, *, base: Sequence[float] | None = None,
        new: Sequence[float] | None = None,
    ) -> Self:  # fmt: skip
        """Measure over other windows.

        Parameters
        ----------
        window
            Start and end in elapsed seconds, for both builds; without any window, the steady windows.
        base, new
            The same for one build.

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

    def with_margin(self, percent: float) -> Self:
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
            Where the margin is not above 0, or the catalogue has none for it.
        """
        return replace(self, analysis=with_margins(self.analysis, {self.slug: percent}))


def metric_key(row: MetricResult) -> str:
    """Return the slug of a metric with its labels."""
    return series_key(row.slug, row.labels)


def label_name(row: LabelResult) -> str:
    """Join group, label and statistic."""
    return f"{row.group} {row.label} {row.stat}"


def label_series(recording: Recording, label: tuple[str, str, str]) -> Series | None:
    """Return the samples of a label over time; None if its source has none."""
    of_labels = (each for each in recording.series if each.role == "label")
    return next((each for each in of_labels if (each.metric, each.name, each.stat) == label), None)


def _one_of(key: str, name: str, choices: Sequence[str], written: str | None = None) -> str:
    """Return `name` if it is one of `choices`; else raise an InputError that lists them."""
    if name not in choices:
        expected = f"one of {', '.join(choices)}" if choices else f"a test with a {key}"
        raise InputError(file=None, key=key, expected=expected, found=f"{(written or name)!r}{meant(name, choices)}")
    return name


def _window(view: TestView, side: Side, ends: Sequence[float] | None) -> Window | None:
    """Check a window of all runs of a build."""
    if not ends:
        return None
    longest = max(run.duration_s for run in view.result.runs[side])
    expected = f"start and end in elapsed seconds, between 0 and {longest:.0f} ({side})"
    try:
        start, end = (float(each) for each in ends)
    except (TypeError, ValueError):
        raise InputError(file=None, key="windows", expected=expected, found=repr(ends)) from None
    if not 0.0 <= start < end <= longest + 1.0:
        raise InputError(file=None, key="windows", expected=expected, found=f"{start:g} to {end:g}")
    return start, end
