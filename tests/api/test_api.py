"""The public interface: what `import buildcompare as bc` offers, on frames, files and whole releases."""

import doctest
import importlib
import inspect
import io
import json
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
import investigation
import loadsim
from buildcompare.config.assumed import assumed_metric, with_times
from buildcompare.config.catalogue import read_catalogue
from buildcompare.results import ProfilesResult
from buildcompare.results.tables import tables

SECTIONS = ("Parameters", "Returns", "Examples")


@cache
def bundled() -> bc.Result:
    return bc.compare(bc.read_params(Path(__file__).parents[2] / "params/v10.4.0-rc1.yaml"))


def test_only_public_names_are_listed() -> None:
    assert dir(bc) == sorted(bc.__all__)
    for name in bc.__all__:
        assert getattr(bc, name) is not None
    with pytest.raises(AttributeError, match="No buildcompare attribute nothing"):
        _ = bc.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(bc.__all__))
def test_public_functions_have_parameters_returns_and_examples(name: str) -> None:
    public = getattr(bc, name)
    text = inspect.getdoc(public) or ""
    assert text.splitlines()[0].endswith("."), f"{name}: the first line is a sentence"
    if not inspect.isfunction(public):
        return
    for section in SECTIONS:
        assert f"\n{section}\n{'-' * len(section)}\n" in text, f"{name} lacks {section}"
    described = text.split("Parameters\n----------\n")[1].split("\n\n")[0]
    for parameter in inspect.signature(public).parameters:
        assert parameter in described, f"{name} does not describe {parameter}"


def modules() -> list[str]:
    return [
        each.name
        for package in (bc, investigation, loadsim)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not each.name.endswith("__main__")
    ]


@pytest.mark.slow
def test_examples_run_and_give_what_they_say(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    tried = 0
    for name in ["buildcompare", *modules()]:
        found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
        assert found.failed == 0, name
        tried += found.attempted
    assert tried > 20


def own_names(latency: float, seed: int, **columns: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    elapsed = np.arange(0.0, 1800.0, 5.0)
    noise = rng.lognormal(0, 0.05, elapsed.size)
    return pd.DataFrame({"latency": latency * noise, **columns}, index=elapsed)


def test_metrics_that_no_catalogue_lists_are_judged_by_their_names() -> None:
    result = bc.compare([own_names(0.1, i) for i in (1, 2)], [own_names(0.2, i, blue=1.0) for i in (3, 4)])
    assert (result.verdict, result.results.provenance.catalogue) == (bc.Verdict.REGRESSION, "")
    row = result.metrics.set_index("metric").loc["latency"]
    assert (row["unit"], row["better"], row["status"]) == ("seconds", "lower", "regression")
    texts = " ".join(result.findings["text"])
    known = "Assumed from names: latency in seconds, lower is better."
    assert f"{known} It is not known which direction is better for blue" in texts
    assert "API times" not in texts
    single = bc.compare(own_names(0.1, 1), own_names(0.2, 2))
    assert single.verdict == bc.Verdict.INCONCLUSIVE
    assert single.results.suggestions[0].text.startswith("Run each build at least three times")
    assert single.findings["text"].str.contains(r"latency of new .* \+\d+ %, which is unproven").any()


def test_params_without_a_catalogue_take_the_one_that_compare_takes(tmp_path: Path) -> None:
    files = [[str(tmp_path / f"{level}-{run}.csv") for run in range(2)] for level in (1, 2)]
    for level, build in enumerate(files, start=1):
        for run, file in enumerate(build):
            own_names(100.0 * level, 2 * level + run).rename_axis("elapsed_s").to_csv(file)
    base, new = ([{"recording": file} for file in build] for build in files)
    about = {"base": {"label": "v1"}, "new": {"label": "v2"}, "source": {"kind": "recorded"}}
    comparison = bc.parameters(name="own", tests=[{"name": "t", "type": "bounded", "base": base, "new": new}], **about)
    result = bc.compare(comparison)
    assert result.metrics["status"].tolist() == bc.compare(*files).metrics["status"].tolist() == ["regression"]
    assert result.verdict == bc.Verdict.REGRESSION


def test_settings_in_code_replace_what_is_assumed() -> None:
    runs = [own_names(100.0, i) for i in (1, 2)], [own_names(200.0, i) for i in (3, 4)]
    result = bc.compare(*runs, metrics={"latency": {"unit": "ms", "better": "higher"}})
    assert result.metrics.loc[0, ["unit", "status"]].tolist() == ["ms", "improvement"]
    assert not result.findings["text"].str.contains("Assumed").any()
    higher = ([each.rename(columns={"latency": "throughput"}) for each in build] for build in runs)
    result = bc.compare(*higher, metrics={"throughput": {"margin_percent": 5.0}})
    assert result.metrics.loc[0, ["margin_percent", "status"]].tolist() == [5.0, "improvement"]
    unknown = ([each.rename(columns={"latency": "goodness"}) for each in build] for build in runs)
    result = bc.compare(*unknown, metrics={"goodness": {"unit": "points", "margin_percent": 3.0}})
    assert "↑</span> higher" in result._repr_html_()
    row = result.metrics.loc[0]
    assert row[["unit", "better", "gate", "margin_percent"]].tolist() == ["points", "neutral", False, 3.0]
    unknown = ([each.rename(columns={"latency": "checkout errors"}) for each in build] for build in runs)
    row = bc.compare(*unknown, catalogue="http", metrics={"checkout errors": {"margin_percent": 3.0}}).metrics.loc[0]
    assert row[["better", "margin_percent", "status"]].tolist() == ["lower", 3.0, "regression"]
    with pytest.raises(bc.InputError, match=r"^metrics: expected settings by metric"):
        bc.compare(*runs, metrics="http")  # type: ignore[arg-type]  # the fault
    for name, key, at, right in (("latency", "bettr", "bettr: ", "better"), ("latncy", "better", "", "latency")):
        with pytest.raises(bc.InputError, match=rf"^metrics\.{name}: {at}.*did you mean `{right}`"):
            bc.compare(*runs, metrics={name: {key: "lower"}})


def test_counters_are_compared_by_their_rates_in_any_order_of_columns() -> None:
    def runs(level: float, seconds: float) -> list[pd.DataFrame]:
        frames = (own_names(level, i).loc[:seconds] for i in (1, 2))
        return [each.assign(orders_total=4.0 * each.index, bad_total=level).iloc[:, ::-1] for each in frames]

    rows = bc.compare(runs(0.1, 1800.0), runs(0.2, 900.0)).metrics.set_index("metric")
    assert rows.loc[["orders-total", "latency"], "status"].tolist() == ["equivalent", "regression"]
    assert rows.loc["orders-total", ["unit", "base", "new"]].tolist() == ["1/s", 4.0, 4.0]
    assert rows.loc["bad-total", ["base", "new"]].tolist() == [0.0, 0.0]
    short = [own_names(0.1, i).iloc[:50].assign(x_seconds_sum=lambda f: 4.0 * f.index % 600) for i in (1, 2)]
    row = bc.compare(short, short[::-1]).metrics.set_index("name").loc["x_seconds_sum"]
    assert row[["unit", "base"]].tolist() == ["1/s", pytest.approx(4.0, abs=0.4)]
    dips = [own_names(0.1, i).iloc[:50].assign(x_total=lambda f: 20 - 15 * (f.index % 100 == 5)) for i in (1, 2)]
    assert bc.compare(dips, dips[::-1]).metrics.set_index("name").loc["x_total", "base"] == pytest.approx(19.1, abs=0.1)


def test_columns_that_are_clocks_minima_or_have_a_unit_are_what_they_are(tmp_path: Path) -> None:
    for side, level in (("base", 40.0), ("new", 60.0)):
        for i in (1, 2):
            latency = own_names(level, i)["latency"].iloc[: 360 - i]
            about = {"elapsed": latency.index, "checkout": latency.map("{:.3f} ms".format), "response_time_min": 0.004}
            frame = pd.DataFrame({"timestamp": 1.7e9 + latency.index, **about, "response_time": 0.04})
            (tmp_path / side).mkdir(exist_ok=True)
            frame.to_csv(tmp_path / side / f"{i}.csv", index=False)
    rows = bc.compare(tmp_path / "base", tmp_path / "new").metrics.set_index("metric").sort_index()
    assert rows["base"].round(3).to_dict() == {"checkout": 0.04, "response-time": 0.04, "response-time-min": 0.004}
    assert rows.loc["checkout", ["unit", "status"]].tolist() == ["seconds", "regression"]


def test_an_error_rate_of_the_catalogue_is_one_in_a_table_too() -> None:
    def build(percent: float) -> list[pd.DataFrame]:
        more = {"Number of Connected Devices": 5000.0, "Server errors (5xx)": percent}
        return [own_names(0.1, i, **more).rename(columns={"latency": "Avg API times"}) for i in (1, 2, 3)]

    found = bc.compare(build(0.001), build(20.0), catalogue="mattermost", type="bounded", users=5000)
    assert [each.status for each in found.results.tests[0].errors if each.new] == ["regression"]


def test_units_and_directions_are_read_from_names() -> None:
    expected = {
        "http_request_duration_seconds": ("seconds", "lower", True), "checkoutP99": ("seconds", "lower", True),
        "iteration_ms": ("ms", "lower", True), "requests_per_second": ("requests/s", "higher", True),
        "errors_per_second": ("1/s", "lower", True), "http_req_failed_ratio": ("ratio", "lower", True),
        "http_requests_total": ("", "neutral", False), "heap MiB": ("MiB", "lower", False),
        "process_resident_memory_bytes": ("bytes", "lower", False), "cache_hit_ratio": ("ratio", "higher", False),
        "process_cpu_seconds_total": ("seconds", "lower", False), "uptime_seconds": ("seconds", "neutral", False),
        "req/s": ("requests/s", "higher", True), "commits/s": ("1/s", "higher", True),
        "errors/s": ("1/s", "lower", True), "p99 (s)": ("seconds", "lower", True), "MB/s": ("MB/s", "neutral", False),
        "vmstat us": ("", "neutral", False), "GC ms/s": ("", "neutral", False), "lock waits/s": ("1/s", "lower", False),
        "Response time 95%": ("seconds", "lower", True), "disk bytes/s": ("bytes/s", "neutral", False),
        "% Processor Time": ("percent", "neutral", False), "latency_seconds_count": ("", "neutral", False),
        "rows_sec": ("1/s", "higher", True), "disk_write_mb_s": ("MB/s", "neutral", False), "errs": ("", "lower", True),
        "tls_s": ("seconds", "lower", True), "latency_msec": ("ms", "lower", True), "fails": ("", "lower", True),
        "bad_per_s": ("1/s", "lower", False), "ns_per_op": ("ns", "lower", True), "w_per_ms": ("1/ms", "higher", True),
        "tpmC": ("", "higher", True), "abort_rate": ("", "lower", False), "allThreads": ("", "neutral", False),
    }  # fmt: skip
    found = {name: assumed_metric(name) for name in expected}
    assert {name: (each.unit, each.better, each.gate) for name, each in found.items()} == expected
    names = ("import", "import time", "uptime seconds")
    timed = with_times(read_catalogue("http"), [(name, "seconds") for name in names])
    assert [timed.find(name).gate for name in names] == [True, True, False]


def test_catalogues_are_recognised_by_the_names_of_their_gates_or_load() -> None:
    for names, catalogue in (
        (["Avg API times", "RPS", "queue"], "mattermost"), (["Latency average", "tps"], "pgbench"),
        (["rps", "latency", "cpu_utilization"], ""),  # words of every product
        (["Avg API times", "a", "b"], ""),
    ):  # fmt: skip
        frame = pd.DataFrame(1.0, index=np.arange(0.0, 60.0, 5.0), columns=names)
        assert bc.compare(frame, frame).results.provenance.catalogue == catalogue


def test_a_default_index_is_no_time() -> None:
    numbers = pd.DataFrame({"latency": [0.1, 0.2, 0.1]})
    with pytest.raises(bc.InputError, match=r"index: expected times: a column `timestamp`.*frame\.to_dict"):
        bc.compare(numbers, numbers)
    assert [*bc.Recording.from_frame(numbers.rename_axis("time")).series[0].times] == [0.0, 1.0, 2.0]
    missing = pd.DataFrame({"value": [0.1, None, pd.NA]}, index=[0.0, 5.0, 10.0], dtype=object)
    assert np.isnan(bc.Recording.from_frame(missing).series[0].values).tolist() == [False, True, True]
    assert bc.compare(*[numbers.assign(time=[0, 5, 10])] * 2).metrics["metric"].tolist() == ["latency"]
    assert bc.compare(numbers.to_dict("list"), numbers.to_dict("list")).results.tests[0].type == "benchmark"


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(TypeError, match="needs the runs of the new build"):
        bc.compare(own_names(0.1, 1))
    for key, value, said in (
        ("users", -5, "greater than or equal to 1, found the number -5"), ("sessions", [["a"]], "at least 2 of them"),
        ("labels", (10.4, "v2"), r"text \(put it in quotes\), found the number 10.4"), ("rate_s", -1, "greater than 0"),
    ):  # fmt: skip
        with pytest.raises(bc.InputError, match=rf"^{key}(\[0\])?: expected {said}"):
            bc.compare(own_names(0.1, 1), own_names(0.1, 1), **{key: value})
    for wrong in ("fast", [[1.0], [1.0, 2.0]], None):
        with pytest.raises(bc.InputError, match=r"^tps: expected a number of 0 or more, or a list of them, found "):
            bc.compare([{"tps": wrong}], [{"tps": 3.0}], catalogue="pgbench")
    unnamed = pd.DataFrame({"tps": [1.0, 2.0], "session": ["a", None]})
    typed = [(own_names(0.1, 1), kind, "^type: expected bounded or unbounded, found") for kind in ("foo", "benchmark")]
    typed += [(unnamed, "", "^session: expected a name in every row, found none in row 1")]
    typed += [(own_names(np.nan, 1), "", "^values: expected at least one number in the run's window")]
    typed += [(pd.Series([1.0]), "", "^base or new: expected a DataFrame, .* or a path, found Series")]
    for frame, kind, said in (*typed, ([], "", "^new: expected runs, found an empty list")):
        with pytest.raises(bc.InputError, match=said):
            bc.compare(frame, frame, type=kind or None)


def test_distributions_and_frames_are_csv_too() -> None:
    result = bc.compare([{"tps": [500.0, 510.0, 520.0]}], [{"tps": [505.0, 515.0, 530.0]}], catalogue="pgbench")
    unknown = dict.fromkeys(("noise_points", "noise_share", "p_adjusted"))
    frame_ = {"frame": "main;sort", "base_percent": 10.0, "new_percent": 30.0, "points": 20.0, **unknown}
    both = {"runs": {"base": 1, "new": 1}, "samples": {"base": 100.0, "new": 100.0}}
    profiles = ProfilesResult.model_validate({**both, "own": [frame_], "total": [frame_, frame_]})
    (test,) = result.results.tests
    found = tables(result.results.model_copy(update={"tests": [test.model_copy(update={"profiles": profiles})]}))
    base, new = pd.read_csv(io.StringIO(found["distributions"])).to_dict("records")
    assert (base["metric"], base["build"], base["q0.5"], new["q0.5"]) == ("tps", "base", 510.0, 515.0)
    assert base["mean_low"] < base["mean"] == 510.0 < base["mean_high"]
    frames = pd.read_csv(io.StringIO(found["frames"]))
    assert (frames["samples"].tolist(), frames["points"].tolist()) == (["own", "total", "total"], [20.0] * 3)


def test_tables_hold_every_row_of_the_results() -> None:
    result, tests = bundled(), bundled().results.tests
    for frame_, rows in (
        (result.metrics, [row for test in tests for row in test.metrics]),
        (result.labels, [row for test in tests for row in test.labels]),
        (result.events, [row for test in tests for row in test.events]),
        (result.findings, result.results.findings),
    ):
        assert len(frame_) == len(rows) > 0
    assert result.metrics["delta_percent"].tolist() == [row.delta_percent for test in tests for row in test.metrics]
    assert result.metrics["mean_base"].tolist() == [row.mean.base for test in tests for row in test.metrics]
    assert {"metric", "status", "reason", "ci_low", "ci_high"} <= {*result.metrics.columns}
    assert [*bc.compare([{"tps": 3.0}], [{"tps": 3.0}]).events] == [*result.events]
    assert json.loads(result.to_json())["verdict"] == result.verdict


def test_a_result_prints_short_and_shows_styled() -> None:
    lines = repr(result := bundled()).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 120
    assert "v10.4.0-rc1" in lines[0]
    assert "<style>" in (html := result._repr_html_())
    assert html.count("<table") >= len(result.results.tests)


def test_a_metric_is_drawn_on_axes_by_its_name() -> None:
    axes = bundled().plot("P99 API times", test="mysql_unbounded")
    row = bundled().metrics.query("test == 'mysql_unbounded' and metric == 'p99-api-times'").iloc[0]
    assert f"{row['delta_percent']:+.1f} %".replace("-", "−") in axes.get_title(loc="left")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("elapsed time, minutes", "ms")
    samples = bundled().samples.query("test == 'mysql_unbounded' and metric == 'p99-api-times'")
    (recording,) = bundled().recordings["mysql_unbounded"]["new"]
    elapsed, values = recording.samples(recording.find("p99-api-times"))
    of_run = samples.query("build == 'new'")
    assert (of_run["elapsed_s"].tolist(), {*of_run["unit"]}) == (elapsed.tolist(), {"seconds"})
    assert of_run["value"].tolist() == pytest.approx(values.tolist(), nan_ok=True)
    drawn = np.concatenate([line.get_ydata() for line in axes.lines])
    assert sorted(drawn) == pytest.approx(sorted(1e3 * samples["value"].dropna().astype(float)))
    each = own_names(0.1, 1).rename_axis("timestamp").reset_index().melt("timestamp", var_name="metric")
    labelled = [pd.concat([each.assign(path="/a"), each.assign(path="/b", value=each["value"] * k)]) for k in (1, 9)]
    assert "(/b)" in bc.compare(*labelled).plot("latency{path=/b}").get_title(loc="left")
    plt.close("all")
    with pytest.raises(KeyError, match=r"there are: .*p99-api-times"):
        bundled().plot("p99-api-time")


@pytest.mark.slow
def test_importing_the_package_imports_no_heavy_module() -> None:
    code = (
        "import sys, buildcompare as bc; print('pandas' in sys.modules); bc.compare; "
        "heavy = ('matplotlib', 'seaborn', 'scipy.stats', 'statsmodels', 'nbconvert', 'papermill'); "
        "print([each for each in heavy if each in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "[]"]


def test_a_section_that_does_not_exist_is_answered_with_those_that_do() -> None:
    result = bc.compare([{"import": 62.1}], [{"import": 55.2}])
    assert result.samples.empty
    with pytest.raises(KeyError, match="there are: title, verdict"):
        result.show("verdikt")
