"""One metric or label over any window: the report's numbers, the same functions over other windows, and widgets."""

import base64
import dataclasses
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
from buildcompare.recordings.recording import Series
from buildcompare.text.numbers import change, interval, quantity
from investigation import api, widgets
from investigation.comments import keep_comment
from support import small_params, write_params

PARAMS = Path(__file__).parents[2] / "params/v11.1.0-rc2.yaml"


@pytest.fixture(scope="module")
def result() -> bc.Result:
    return bc.compare(bc.read_params(PARAMS))


@pytest.fixture(scope="module")
def seen(result: bc.Result) -> bc.Investigation:
    return bc.investigate(result)


def wide(seed: int = 1, *, calls_ms: float = 10.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    elapsed = np.arange(0.0, 3600.0, 5.0)
    shocks, noise = rng.normal(size=elapsed.size), np.zeros(elapsed.size)
    for i in range(1, elapsed.size):
        noise[i] = 0.8 * noise[i - 1] + shocks[i]
    columns = {
        "Number of Connected Devices": np.minimum(elapsed * 4, 1000),
        "Avg API times": calls_ms / 1e3 * np.exp(0.02 * noise),
        "b": 5.0 + noise + 0.1 * rng.normal(size=elapsed.size),
        "c": 50.0 + rng.normal(size=elapsed.size),
    }
    return pd.DataFrame(columns, index=elapsed)


def with_label(run: pd.DataFrame, slope: float) -> bc.Recording:
    plain = bc.Recording.from_frame(run)
    times = plain.window[0] + np.arange(60.0, 3600.0, 60.0)
    elapsed = times - plain.window[0]
    known: dict[str, Any] = {"role": "label", "labels": {}}
    series = (
        Series("api", "getPost", "seconds", times, 0.01 + slope * elapsed / 3600.0, stat="avg", **known),
        Series("api", "getPost", "calls/s", times, 1.0 + elapsed / 3600.0, stat="calls", **known),
    )
    return dataclasses.replace(plain, series=(*plain.series, *series))


def test_over_the_runs_own_windows_it_gives_the_numbers_of_the_report(seen: bc.Investigation) -> None:
    for test in seen.analysis.results.tests:
        own = seen.choose(test=test.name)
        assert own.rows is own.view.result.metrics
        steady = [runs[0].window for runs in test.runs]
        assert all(steady)
        again = own.over(base=steady[0], new=steady[1])
        assert again.rows is not own.rows
        assert again.rows == test.metrics


def test_over_another_window_levels_are_those_of_its_samples(seen: bc.Investigation) -> None:
    whole = seen.choose("postgresql_bounded", "cpu-utilization")
    cpu = whole.over([3000, 4000])
    means = {}
    for side, recordings in cpu.view.recordings.items():
        curve = recordings[0].curve(recordings[0].find("cpu-utilization"))
        means[side] = curve[(curve.index > 3000) & (curve.index <= 4000)].mean()
    assert (cpu.row.base, cpu.row.new) == (pytest.approx(means["base"]), pytest.approx(means["new"]))
    assert cpu.row.delta_percent == pytest.approx(100 * (means["new"] / means["base"] - 1))
    assert cpu.row != whole.row
    assert cpu.levels["level"].tolist() == pytest.approx([means["base"], means["new"]])
    assert cpu.samples.groupby("build")["inside"].sum().tolist() == [200, 200]
    shown = cpu.answer.loc["windows"]
    assert (shown["base"], shown["ci_low"], shown["status"]) == (cpu.row.base, cpu.row.ci_low, cpu.row.status)
    assert shown["n_effective"] == cpu.row.n_effective
    one = whole.over(new=[3000, 4000])
    assert one.row.base == pytest.approx(whole.row.base), "a window of one build leaves the other alone"
    assert one.levels["from_s"].tolist()[1] == 3000
    assert one.over().row == whole.row


def test_the_claims_lead_to_the_status_of_every_metric(seen: bc.Investigation) -> None:
    found = set()
    for test in seen.analysis.results.tests:
        for metric in seen.choose(test=test.name).metrics:
            own = seen.choose(test.name, metric)
            for each in (own, own.over([2000, 3500])):
                if len(each.why):
                    assert each.why["status"].iloc[-1] == each.row.status
                    assert each.why["holds"].tolist() == [False] * (len(each.why) - 1) + [True]
                    found.add(each.row.status)
    assert len(found) >= 3


def test_further_runs_are_those_of_the_plan(seen: bc.Investigation) -> None:
    plan = next(plan for plan in seen.analysis.results.plan if plan.test == "postgresql_bounded")
    rows = [row for row in plan.rows if row.decided_by == "level" and row.slug]
    assert rows
    for row in rows:
        steps = seen.choose("postgresql_bounded", row.slug).further_runs()
        assert steps.loc[0, "found_percent"] == pytest.approx(row.steps[0].found_percent)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"test": "nothing"}, r"^test: expected one of postgresql_bounded, postgresql_unbounded, found 'nothing'$"),
        ({"metric": "nothing"}, r"^metric: expected one of avg-api-times, .*, found 'nothing'$"),
        ({"label": "nothing"}, r"^label: expected one of api .*, found 'nothing'$"),
        ({"metric": "rps", "label": "getPost"}, r"^label: expected a metric or a label, found both$"),
        ({"windows": [100, 1e6]}, r"^windows: expected start and end in elapsed seconds, between 0 and \d+ \(base\)"),
        ({"windows": [100]}, r"^windows: expected start and end.*found \[100\]$"),
        ({"windows": {"newer": [0, 100]}}, r"^windows: expected base and new, found 'newer'$"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(
    seen: bc.Investigation, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(bc.InputError, match=said):
        bc.investigate(seen.analysis, **asked)


def test_without_arguments_it_begins_where_make_lab_said(
    seen: bc.Investigation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "compare", lambda _: seen.analysis)
    assert (bc.investigate().test, bc.investigate().metric) == ("postgresql_bounded", "avg-api-times")
    monkeypatch.setenv("BUILDCOMPARE_TEST", "postgresql_unbounded")
    monkeypatch.setenv("BUILDCOMPARE_LABEL", seen.label_names[3])
    assert bc.investigate().test == "postgresql_unbounded"
    assert " ".join(bc.investigate().label or ()) == seen.label_names[3]
    assert bc.investigate(metric="rps").metric == "rps"
    monkeypatch.setenv("BUILDCOMPARE_LABEL", "")
    monkeypatch.setenv("BUILDCOMPARE_METRIC", "rps")
    assert bc.investigate().metric == "rps"
    monkeypatch.setenv("BUILDCOMPARE_WINDOW", "600-1200/900-1500")
    shown = bc.investigate()
    assert tuple(shown.windows) == ((600.0, 1200.0), (900.0, 1500.0))
    assert bc.Workbench(shown).link.value.endswith(" METRIC=rps WINDOW=600-1200/900-1500</code></p>")
    monkeypatch.setenv("BUILDCOMPARE_WINDOW", "abc")
    with pytest.raises(bc.InputError, match="expected start and end in elapsed seconds, between 0 and"):
        bc.investigate()
    assert bc.investigate(seen.analysis).test == "postgresql_bounded", "what was named counts alone"


def test_metrics_and_labels_are_found_by_their_names(seen: bc.Investigation) -> None:
    assert seen.choose(metric="P99 API times").metric == "p99-api-times"
    name = seen.label_names[0]
    assert seen.choose(label=name).label == seen.choose(label=name.split()[1]).label
    assert seen.choose(label=name).choose(metric="rps").label is None
    assert seen.choose("postgresql_bounded", "rps").choose("postgresql_unbounded").metric == "rps"


def test_what_follows_a_metric_is_found_first() -> None:
    own = bc.investigate(bc.compare(wide(1), wide(2), users=1000), metric="avg-api-times")
    moves = own.moves_with.set_index("name")
    assert moves.index[0] == "b"
    assert moves.loc["b", ["base", "new"]].astype(float).min() > 0.9
    assert moves.loc["c", ["base", "new"]].astype(float).abs().max() < 0.5
    near = own.autocorrelation[own.autocorrelation["lag_s"] == 5.0]
    assert near["correlation"].astype(float).tolist() == pytest.approx([0.8, 0.8], abs=0.1)


def test_a_label_with_samples_over_time_follows_the_window() -> None:
    result = bc.compare(with_label(wide(1), 0.0), with_label(wide(2), 0.01), users=1000)
    label = bc.investigate(result, label="getPost").over([1200, 2400])
    assert label.follows
    times = np.arange(1260.0, 2401.0, 60.0)
    expected = np.average(0.01 + 0.01 * times / 3600, weights=1 + times / 3600)
    assert (label.row.base, label.row.new) == (pytest.approx(0.01), pytest.approx(expected))
    assert label.answer.loc["windows", "detectable_percent"] > 0
    assert label.samples["inside"].sum() == 2 * times.size
    assert label.query is not None
    assert "handler" in label.query


def test_a_label_of_whole_runs_says_that_no_window_changes_it(seen: bc.Investigation) -> None:
    label = seen.choose("postgresql_bounded", label=seen.label_names[0])
    assert not label.follows
    assert label.over([2000, 3000]).row == label.row
    assert label.measured.startswith("The source has one value for a whole run")


def test_a_note_says_what_an_analyst_would(seen: bc.Investigation) -> None:
    rps = seen.choose("postgresql_bounded", "rps")
    assert rps.comment.startswith("Bounded Postgres: RPS ")
    assert " (95 % interval " in rps.comment
    assert "min of" not in rps.over([1800, 3600]).comment
    with pytest.raises(bc.InputError, match="expected a comparison that was read from a params file"):
        bc.investigate(bc.compare(wide(1), wide(2), users=1000)).keep("words")
    assert "v11.0.4 from 30.0 to 60.0 min" in rps.over([1800, 3600]).comment


def test_events_of_a_chosen_window_are_searched_in_it() -> None:
    run = wide(2)
    run.loc[2000.0:, "c"] += 10.0
    own = bc.investigate(bc.compare(wide(1), run, users=1000), metric="c")
    found = own.over([1000, 3000]).events
    assert [(row.build, row.kind, row.matched) for row in found.itertuples()] == [("new", "level", False)]
    assert found["at_s"].iloc[0] == pytest.approx(2000, abs=60)
    beside = own.choose(metric="b").over([1000, 3000]).events_beside
    assert beside[["name", "build", "kind", "together"]].to_numpy().tolist() == [["c", "new", "level", False]]
    run.loc[2000.0:, "b"] += 10.0
    both = bc.investigate(bc.compare(wide(1), run, users=1000), metric="c").over([1000, 3000]).events_beside
    assert both[["name", "together"]].to_numpy().tolist()[0] == ["b", True]
    assert own.over([2200, 3500]).events.empty
    assert own.over([1000, 3000]).searched == {"base": (1120, 3000), "new": (1120, 3000)}


COMMENT = 'P99 is *slower*: yes, by "10 %" # not a comment'


@pytest.mark.parametrize(
    ("written", "then"),
    [
        ("", [COMMENT]),
        ("comments:\n", [COMMENT]),
        ("comments: []\n", [COMMENT]),
        ("comments: ['a # x', 'no']  # kept\n", ["a # x", "no", COMMENT]),
        ("comments:\n    - a: 'quoted'\n", None),
        ("comments:\n    # first\n    - 'a'   # why\n", ["a", COMMENT]),
    ],
    ids=["none", "empty", "an empty list", "on one line", "no text", "indented"],
)
def test_a_comment_is_kept_however_the_file_is_written(tmp_path: Path, written: str, then: list[str] | None) -> None:
    head = write_params(tmp_path / "x.yaml", small_params(tmp_path)).read_text("utf-8")
    before = f"# mine\n{head}\n{written}\n# the end\n"
    (tmp_path / "x.yaml").write_text(before, "utf-8")
    if then is None:
        with pytest.raises(bc.InputError, match="expected text"):
            keep_comment(tmp_path / "x.yaml", "b")
        assert (tmp_path / "x.yaml").read_text("utf-8") == before
        return
    assert keep_comment(tmp_path / "x.yaml", COMMENT.replace(": ", ":\n  ")) == len(then)
    after = (tmp_path / "x.yaml").read_text("utf-8")
    assert bc.read_params(tmp_path / "x.yaml").comments == then
    assert {*before.splitlines()} - {*after.splitlines()} <= {*written.splitlines()}, "other lines stay"
    for note in ("# mine", "# the end", *(["# first", "# why"] if "# first" in written else [])):
        assert note in after


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
    judged = result.with_margins({"cpu-utilization": 0.5}).results.tests[0].metrics
    assert bench.seen.row == next(row for row in judged if row.slug == "cpu-utilization")
    bench.comparison.value = next(file for file in bench.comparison.options if file != opened and "-rc" in file)
    assert bench.margin.value != 0.5
    bench.comparison.value = opened
    bench.metric.value = "cpu-utilization"
    assert bench.margin.value == 0.5
    bench.label.value = bench.label.options[1][1]
    assert bench.margin.disabled, "labels have one margin for all"


def test_from_the_ramps_start_each_build_has_its_own_window() -> None:
    def run(onset: float) -> pd.DataFrame:
        elapsed = np.arange(0.0, 7200.0, 5.0)
        users = np.clip(2.0 * (elapsed - onset), 0.0, 5000.0)
        noise = np.random.default_rng(int(onset)).normal(1.0, 0.01, elapsed.size)
        return pd.DataFrame({"Number of Connected Devices": users, "RPS": (10 + users / 10) * noise}, index=elapsed)

    bench = bc.Workbench(bc.investigate(bc.compare(run(60.0), run(600.0), type="unbounded"), metric="rps"))
    assert [runs[0].ramp_up.onset_s for runs in bench.seen.view.result.runs] == [60.0, 600.0]
    bench.chart.chosen = {"axis": "ramp", "range": [60.0, 80.0]}
    assert bench.seen.levels["from_s"].tolist() == [3660.0, 4200.0]
    before = bench.seen
    bench.chart.chosen = {"axis": "users", "range": [2000.0, 3000.0]}
    assert bench.seen is before, "loads are no window"
    assert shown(bench, "over", 1) == "at equal load"


def test_labels_and_metrics_are_chosen_one_or_the_other(bench: bc.Workbench) -> None:
    name = bench.label.options[2][1]
    bench.label.value = name
    assert (bench.metric.value, " ".join(bench.seen.label or ()), numbers(bench)) == ("", name, told(bench.seen))
    assert bench.chart.chart == {}, "this label has no samples over time"
    assert bench.at_load.chart == {}
    assert bench.window.disabled
    bench.metric.value = "number-of-connected-devices"
    assert "Not judged: fixed by the test" in bench.why.value
    bench.metric.value = "rps"
    packed = zlib.decompress(base64.b64decode(bench.chart.chart["data"]))
    header = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    assert (bench.label.value, bench.seen.metric, header["name"]) == ("", "rps", "RPS")


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
    assert 'role="status">Written into' in bench.kept.value
    bench.chart.chosen = {"axis": "ramp", "range": None}
    assert 'role="status">Written into' in bench.kept.value, "nothing else was chosen"
    bench.comment.value = " "
    bench.keep.click()
    assert 'role="alert"' in bench.message.value
    assert "expected a comment, found none" in bench.message.value
    bench.ask.click()
    assert "kind: prometheus" in bench.message.value


def test_names_are_shown_as_text() -> None:
    assert "<script>" not in widgets._table(["<script>"], [["<script>"]], caption="<script>")
