"""The widgets without a browser: what is moved, and the numbers that they show then."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.text.numbers import change, interval, quantity

PARAMS = Path(__file__).parents[2] / "params/v11.1.0-rc2.yaml"


@pytest.fixture(scope="module")
def result() -> bc.Result:
    return bc.compare(bc.read_params(PARAMS))


@pytest.fixture
def bench(result: bc.Result) -> bc.Workbench:
    return bc.Workbench(bc.investigate(result, "postgresql_bounded", "cpu-utilization"))


def shown(bench: bc.Workbench, name: str, row: int = 0) -> str:
    return re.findall(f'<td class="{name}">(.*?)</td>', bench.answer.value)[row]


def told(seen: bc.Investigation) -> list[str]:
    row = seen.row
    return [quantity(row.base, seen.unit), quantity(row.new, seen.unit), change(row.delta_percent),
            interval(row.ci_low, row.ci_high)]  # fmt: skip


def numbers(bench: bc.Workbench) -> list[str]:
    return [shown(bench, name) for name in ("base", "new", "change", "interval")]


def charted(bench: bc.Workbench) -> dict[str, Any]:
    """The header of the chart that is shown."""
    packed = zlib.decompress(base64.b64decode(bench.chart.chart["data"]))
    header: dict[str, Any] = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    return header


def test_it_begins_with_the_numbers_of_the_report(bench: bc.Workbench, result: bc.Result) -> None:
    rows = result.results.tests[0].metrics
    row = next(row for row in rows if row.slug == "cpu-utilization")
    assert bench.seen.row == row
    assert numbers(bench) == told(bench.seen)
    assert [bench.test.value, bench.metric.value, bench.label.value] == ["postgresql_bounded", "cpu-utilization", ""]
    assert charted(bench)["name"] == "CPU Utilization"
    assert bench.chart.chosen == {"axis": "elapsed", "range": None}


def test_a_moved_slider_measures_and_zooms(bench: bc.Workbench) -> None:
    before = numbers(bench)
    bench.window.value = (40.0, 60.0)
    assert bench.seen.windows == bc.investigate(bench.seen.analysis).over([2400, 3600]).windows
    assert numbers(bench) == told(bench.seen)
    assert numbers(bench) != before
    assert bench.chart.chosen == {"axis": "elapsed", "range": [40.0, 60.0]}
    assert "from 40.0 to 60.0 min" in bench.measured.value
    assert "from 40.0 to 60.0 min" in bench.comment.value
    bench.steady.click()
    assert numbers(bench) == before
    assert bench.chart.chosen["range"] is None


def test_another_margin_judges_at_once_and_stays(bench: bc.Workbench, result: bc.Result) -> None:
    opened = bench.comparison.value
    before, measured = shown(bench, "status"), numbers(bench)
    assert (bench.margin.value, bench.margin.disabled) == (bench.seen.margin_percent, False)
    bench.window.value = (40.0, 60.0)
    bench.margin.value = 0.5
    assert (bench.seen.margin_percent, bench.window.value) == (0.5, (40.0, 60.0))
    bench.steady.click()
    assert (numbers(bench), shown(bench, "status") == before) == (measured, False), "only the judgement is another one"
    assert (
        bench.seen.row
        == result.with_margins({"cpu-utilization": 0.5})
        .results.tests[0]
        .metrics[[row.slug for row in result.results.tests[0].metrics].index("cpu-utilization")]
    )
    bench.comparison.value = next(file for file in bench.comparison.options if file != opened and "-rc" in file)
    assert bench.margin.value != 0.5
    bench.comparison.value = opened
    bench.metric.value = "cpu-utilization"
    assert bench.margin.value == 0.5
    bench.label.value = bench.label.options[1][1]
    assert bench.margin.disabled, "labels have one margin for all"


def test_what_is_dragged_in_the_chart_is_measured(bench: bc.Workbench) -> None:
    drawn = bench.chart.chart
    bench.chart.chosen = {"axis": "elapsed", "range": [30.0, 50.0]}
    assert bench.window.value == pytest.approx((30.0, 50.0))
    assert bench.seen.levels["from_s"].tolist() == [1800.0, 1800.0]
    assert numbers(bench) == told(bench.seen)
    assert bench.chart.chart is drawn, "a window does not draw the chart again"
    bench.metric.value = "rps"
    assert bench.seen.levels["from_s"].tolist() == [1800.0, 1800.0], "another metric is measured over the same window"
    bench.chart.chosen = {"axis": "elapsed", "range": None}
    assert not bench.seen.moved


def test_from_the_ramps_start_each_build_has_its_own_window() -> None:
    def run(onset: float) -> pd.DataFrame:
        elapsed = np.arange(0.0, 7200.0, 5.0)
        users = np.clip(2.0 * (elapsed - onset), 0.0, 5000.0)
        noise = np.random.default_rng(int(onset)).normal(1.0, 0.01, elapsed.size)
        return pd.DataFrame({"Number of Connected Devices": users, "RPS": (10 + users / 10) * noise}, index=elapsed)

    bench = bc.Workbench(bc.investigate(bc.compare(run(60.0), run(600.0), type="unbounded"), metric="rps"))
    onsets = [runs[0].ramp_up.onset_s for runs in bench.seen.view.result.runs]
    assert onsets == [60.0, 600.0]
    bench.chart.chosen = {"axis": "ramp", "range": [60.0, 80.0]}
    assert bench.seen.levels["from_s"].tolist() == [3660.0, 4200.0]
    before = bench.seen
    bench.chart.chosen = {"axis": "users", "range": [2000.0, 3000.0]}
    assert bench.seen is before, "loads are no window"
    assert shown(bench, "over", 1) == "at equal load"


def test_labels_and_metrics_are_chosen_one_or_the_other(bench: bc.Workbench) -> None:
    name = bench.label.options[2][1]
    bench.label.value = name
    assert (bench.metric.value, " ".join(bench.seen.label or ())) == ("", name)
    assert numbers(bench) == told(bench.seen)
    assert bench.chart.chart == {}, "this label has no samples over time"
    assert bench.at_load.chart == {}
    assert bench.window.disabled
    bench.metric.value = "number-of-connected-devices"
    assert "Not judged: fixed by the test" in bench.why.value
    bench.metric.value = "rps"
    assert (bench.label.value, bench.seen.metric) == ("", "rps")
    assert charted(bench)["name"] == "RPS"


@pytest.mark.slow
def test_another_comparison_is_read_once(bench: bc.Workbench, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from buildcompare.workbench import widgets

    read: list[str | None] = []
    analyse = vars(widgets)["analyse"]

    def counted(params: Any, recordings: Any) -> Any:
        read.append(params.name)
        return analyse(params, recordings)

    monkeypatch.setattr(widgets, "analyse", counted)
    own = bench.comparison.value
    assert own == "params/v11.1.0-rc2.yaml"
    for file in ("params/v9.6.0-rc1.yaml", own, "params/v9.6.0-rc1.yaml"):
        bench.comparison.value = file
    assert read == ["v9.6.0-rc1"]
    assert (bench.seen.test, bench.seen.metric) == ("postgresql_bounded", "cpu-utilization")
    assert bench.seen.analysis.results.comparison == "v9.6.0-rc1"
    assert numbers(bench) == told(bench.seen)


@pytest.mark.slow
def test_a_note_is_kept_and_a_fault_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    shutil.copy(PARAMS, file)
    bench = bc.Workbench(bc.investigate(file, "postgresql_bounded", "rps"))
    bench.comment.value = "Seen <b>twice</b> & kept"
    bench.metric.value = "cpu-utilization"
    assert bench.comment.value == "Seen <b>twice</b> & kept", "what is being written is not written over"
    bench.keep.click()
    assert bc.read_params(file).comments[-1] == "Seen <b>twice</b> & kept"
    assert 'role="status">Written into' in bench.message.value
    bench.chart.chosen = {"axis": "ramp", "range": None}
    assert 'role="status">Written into' in bench.message.value, "nothing else was chosen"
    bench.comment.value = " "
    bench.keep.click()
    assert 'role="alert"' in bench.message.value
    assert "expected a comment, found none" in bench.message.value
    bench.ask.click()
    assert "kind: prometheus" in bench.message.value


def test_names_are_shown_as_text(result: bc.Result) -> None:
    from buildcompare.workbench.widgets import _table

    assert "<script>" not in _table(["<script>"], [["<script>"]], caption="<script>")
