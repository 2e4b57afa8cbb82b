"""Open an investigation of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from buildcompare.api import Result, compare
from buildcompare.comparison.analysis import Analysis
from buildcompare.comparison.reading import parameters
from buildcompare.config.errors import InputError
from buildcompare.config.params import Comparison
from buildcompare.results.codes import SIDES, Side
from investigation.measure import Investigation


def investigate(
    comparison: Result | Comparison | str | os.PathLike[str] | None = None,
    test: str | None = None,
    metric: str | None = None,
    label: str | None = None,
    windows: Sequence[float] | Mapping[Side, Sequence[float]] | None = None,
) -> Investigation:
    """Inspect one metric or label of one test over any window, with all evidence of its status.

    Parameters
    ----------
    comparison
        A :class:`Result`, the parameters of a comparison, or the path of a params file; by default the
        file that ``make lab PARAMS=...`` named, or else the bundled one.
    test
        The test's name; by default that of ``make lab TEST=...`` with its METRIC or LABEL, or else the first.
    metric
        The metric by slug or name, such as ``"p99-api-times"``; by default the first.
    label
        Instead of a metric, a label, such as ``"api getPost p99"``.
    windows
        Start and end in elapsed seconds, of both builds or by build; by default that of ``make lab WINDOW=...``, or
        else each run's steady window.

    Returns
    -------
    Investigation
        Numbers and frames of this metric or label; ``Workbench(it)`` shows them in JupyterLab.

    Raises
    ------
    InputError
        If the test, metric or label does not exist (the message lists the choices), or a window lies outside of its
        runs.

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
    if comparison is None or isinstance(comparison, (str, os.PathLike)):
        result = compare(parameters(None if comparison is None else os.fspath(comparison)))
    else:
        result = compare(comparison) if isinstance(comparison, Comparison) else comparison
    over: Any = windows
    if comparison is None and test is None:  # settings reach JupyterLab's kernels only by the environment
        test = os.environ.get("BUILDCOMPARE_TEST") or None
        if metric is None and label is None:
            metric = os.environ.get("BUILDCOMPARE_METRIC") or None
            label = os.environ.get("BUILDCOMPARE_LABEL") or None
        if windows is None and (spans := os.environ.get("BUILDCOMPARE_WINDOW")):
            base, slash, new = spans.partition("/")
            chosen = ("base", base), ("new", new if slash else base)
            over = {side: span.split("-") for side, span in chosen if span}
    return look_into(result, test, metric, label, over)


def look_into(
    analysis: Analysis, test: str | None = None, metric: str | None = None, label: str | None = None,
    windows: Any = None,
) -> Investigation:  # fmt: skip
    """Investigate a metric or label of a comparison; parameters as of :func:`buildcompare.investigate`."""
    first = Investigation(analysis, test or analysis.results.tests[0].name)
    chosen = first.choose(test=test, metric=metric, label=label)
    if not windows:
        return chosen
    if isinstance(windows, Mapping):
        unknown = [key for key in windows if key not in SIDES]
        if unknown:
            raise InputError(file=None, key="windows", expected="base and new", found=repr(unknown[0]))
        return chosen.over(**windows)
    return chosen.over(windows)
