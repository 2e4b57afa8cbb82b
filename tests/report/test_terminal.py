"""What the terminal shows: what changed first, within its width, and nothing that would steer it."""

import re

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.report.terminal import lines
from buildcompare.text.numbers import printable

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run(seconds_per_call: float, **more: np.ndarray) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    elapsed = np.arange(0.0, 3600.0, 5.0)
    noise = rng.lognormal(0, 0.05, elapsed.size)
    known = {"Number of Connected Devices": np.minimum(elapsed * 4, 2000), "RPS": noise * 900}
    return pd.DataFrame(
        {**known, "P99 API times": 0.1 * noise, "Avg API times": seconds_per_call * noise, **more}, elapsed
    )


@pytest.fixture(scope="module")
def slower() -> bc.Result:
    hostile = {"\x1b]0;title\x07 [red]mine[/]\u202e": np.ones(720)}
    labels = ("v1\x1b[31m\r", "v2\n\x9b2J")
    return bc.compare(run(0.010, **hostile), run(0.020, **hostile), users=2000, labels=labels)


def test_what_changed_stands_first(slower: bc.Result) -> None:
    shown = lines(slower.results, width=100).splitlines()
    assert shown[1] == "✗ Regression: Avg API times +100 %."
    first = next(i for i, line in enumerate(shown) if line.startswith("metric "))
    assert re.fullmatch(r"Avg API times +9\.97 ms +19\.9 ms +\+100 % .* ✗ regression", shown[first + 1])
    assert shown[first + 2].startswith("P99 API times ")
    assert shown[first + 3] == "3 more metrics: 1 set by the test, 2 cannot tell."
    assert any(line.startswith("critical: Avg API times") for line in shown)


def test_every_row_and_finding_on_demand(slower: bc.Result) -> None:
    shown = lines(slower.results, width=200, every=True)
    assert "--all" not in shown
    assert " more:" not in shown
    for metric in slower.results.tests[0].metrics:
        assert f"\n{printable(metric.full_name)} " in shown
    for finding in slower.results.findings:
        assert " ".join(printable(finding.text).split()) in " ".join(shown.split())


def test_a_change_that_no_verdict_counts_is_shown_with_its_load(slower: bc.Result) -> None:
    (test,) = slower.results.tests
    changed = {"rps": {"decided_by": "none", "status": bc.Status.REGRESSION}, "p99-api-times": {"decided_by": "none"}}
    metrics = [row.model_copy(update=changed.get(row.slug, {})) for row in test.metrics]
    results = slower.results.model_copy(update={"tests": [test.model_copy(update={"metrics": metrics})]})
    shown = lines(results, width=120)
    assert re.search(r"\nRPS +89\d/s +89\d/s .* lower, at own load\n", shown)
    assert re.search(r"\nP99 API times +– +– +– +– +∅ not known at equal load\n", shown)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_width_is_kept_and_nothing_steers_the_terminal(slower: bc.Result, width: int, every: bool) -> None:
    shown = lines(slower.results, width=width, every=every)
    assert max(map(len, shown.splitlines())) <= width
    assert all(each.isprintable() for each in shown.replace("\n", ""))
    assert shown.isascii() is False
    assert r"Base v1\x1b[31m , new v2 \x9b2J." in shown
    assert (r"\x1b]0" in shown) is every


def test_colours_change_no_letter(slower: bc.Result) -> None:
    coloured = lines(slower.results, width=80, coloured=True)
    assert "\x1b[1;31m✗ Regression" in coloured
    plain = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
    assert plain == lines(slower.results, width=80).splitlines()
