"""Files of load testers, recorded from a small HTTP server: what is read equals an independent reading of each file."""

import csv
import gzip
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.recordings.sources import read_runs
from loadfiles.request_log import endpoint_of

FILES = Path(__file__).parents[1] / "load_tools"
Request = tuple[str, float, bool]  # endpoint, seconds, whether it failed


def text_of(name: str) -> Iterable[str]:
    with gzip.open(FILES / name, "rt", encoding="utf-8", newline="") as file:
        yield from file


def path_of(url: str) -> str:
    return "/items/{id}" if "/items/" in url and ":id" not in url else "/" + url.partition("?")[0].rpartition("/")[2]


def k6(points: Iterable[tuple[str, float, str, str]]) -> Iterator[Request]:
    """Requests of points (metric, value, method, name): times and failures stand in separate points, in one order."""
    times, failures = [], []
    for metric, value, method, name in points:
        label = f"{method} {name if name.startswith('/') else path_of(name)}"
        if metric == "http_req_duration":
            times.append((label, value / 1e3))
        elif metric == "http_req_failed":
            failures.append(value > 0)
    return ((label, seconds, bad) for (label, seconds), bad in zip(times, failures, strict=True))


def k6_csv() -> Iterator[Request]:
    rows = csv.DictReader(text_of("k6.csv.gz"))
    return k6((row["metric_name"], float(row["metric_value"]), row["method"], row["name"]) for row in rows)


def k6_json() -> Iterator[Request]:
    points = (json.loads(line) for line in text_of("k6.json.gz"))
    of = ((each["metric"], each["data"]) for each in points if each["type"] == "Point")
    return k6((m, data["value"], data["tags"].get("method", ""), data["tags"].get("name", "")) for m, data in of)


def jmeter() -> Iterator[Request]:
    for row in csv.DictReader(text_of("jmeter.jtl.gz")):
        yield row["label"], int(row["elapsed"]) / 1e3, row["success"] != "true"


def vegeta() -> Iterator[Request]:
    for row in csv.reader(text_of("vegeta.csv.gz")):
        yield f"{row[9]} {path_of(row[10])}", int(row[2]) / 1e9, not 200 <= int(row[1]) < 400


READERS = {"k6.csv.gz": k6_csv, "k6.json.gz": k6_json, "jmeter.jtl.gz": jmeter, "vegeta.csv.gz": vegeta}


@pytest.mark.parametrize("name", READERS)
def test_counts_and_means_are_exact_and_percentiles_within_two_percent(name: str) -> None:
    times = defaultdict[str, list[float]](list)
    for label, seconds, _ in READERS[name]():
        times[label].append(seconds)
    read = bc.read(FILES / name, catalogue="http")
    values = {(each.label, each.stat): each.value for each in read.label_summaries}
    assert {label for label, _ in values} == {*times}
    for label, of in times.items():
        assert (values[label, "calls"], values[label, "avg"]) == (len(of), pytest.approx(np.mean(of), rel=1e-9))
        for stat, share in (("p50", 50), ("p95", 95), ("p99", 99)):
            exact = np.percentile(of, share, method="inverted_cdf")
            assert values[label, stat] == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("name", READERS)
def test_rates_and_failures_of_all_intervals_add_up(name: str) -> None:
    requests = [*READERS[name]()]
    read = bc.read(FILES / name, catalogue="http")
    totals = {slug: read.total(slug) for slug in ("requests", "successful-requests")}
    failed = next(each for each in read.series if each.role == "error")
    counted = np.nan_to_num(totals["requests"].values)
    assert counted.sum() == pytest.approx(len(requests))
    assert failed.values.sum() == pytest.approx(sum(bad for *_, bad in requests))
    part = np.nansum(counted * totals["successful-requests"].values) / counted.sum()
    assert part == pytest.approx(100 - 100 * sum(bad for *_, bad in requests) / len(requests))


def test_locust_is_read_as_its_files_say() -> None:
    whole = [
        row
        for row in csv.DictReader((FILES / "locust/base/run1_stats.csv").read_text().splitlines())
        if row["Name"] != "Aggregated"
    ]
    history = csv.DictReader((FILES / "locust/base/run1_stats_history.csv").read_text().splitlines())
    sums = [(int(row["Total Request Count"]), float(row["Total Average Response Time"])) for row in history]
    read = bc.read(FILES / "locust/base/run1_stats_history.csv", catalogue="http")
    rates, times = (read.total(slug).values for slug in ("requests", "response-time"))
    assert rates.sum() == pytest.approx(sums[-1][0] - sums[0][0])
    assert np.nansum(rates * times) == pytest.approx((np.prod(sums[-1]) - np.prod(sums[0])) / 1e3)
    columns = {"calls": "Request Count", "avg": "Average Response Time", "p50": "50%", "p95": "95%", "p99": "99%"}
    assert {(each.label, each.stat): each.value for each in read.label_summaries} == pytest.approx({
        (f"{row['Type']} {row['Name']}", stat): float(row[column]) / (1.0 if stat == "calls" else 1e3)
        for row in whole for stat, column in columns.items()
    })  # fmt: skip


def test_folders_of_locust_runs_are_compared_without_any_configuration() -> None:
    """The new build's /search was made 30 % slower, and 4 % of its /cart fail."""
    result = bc.compare(FILES / "locust/base", FILES / "locust/new")
    assert result.metrics.set_index("metric").loc["response-time", "status"] == "regression"
    rows = result.labels.query("stat == 'avg'").set_index("label")["delta_percent"]
    assert rows.idxmax() == "GET /search"
    assert rows["GET /search"] == pytest.approx(24.2, abs=0.1)  # of the means in the files: the network costs too
    assert rows.drop("GET /search").abs().max() < 1.0
    assert set(result.labels["noise_source"]) == {"repeats"}
    assert set(result.labels.query("status != 'equivalent'")["label"]) == {"GET /search"}
    first, *others = result.results.findings
    assert (first.kind, first.severity) == ("label_changed", "critical")
    assert re.search(r"GET /search.*\+24\.2 %.*1,818 calls", first.text)
    assert not {"label_changed", "gaps"} & {each.kind for each in others}  # the first second has no rate


def test_a_single_run_of_each_build_judges_no_endpoint() -> None:
    result = bc.compare(*(FILES / f"locust/{side}/run1_stats_history.csv" for side in ("base", "new")))
    assert result.labels["p_value"].isna().all()
    assert set(result.labels["noise_source"]) == {"none"}


def test_a_summary_of_k6_is_read_as_numbers_without_times() -> None:
    metrics = json.loads((FILES / "k6-summary.json").read_text())["metrics"]
    read = {each.metric: float(each.values[0]) for each in bc.read(FILES / "k6-summary.json").measurements}
    assert read["response-time"] == pytest.approx(metrics["http_req_duration"]["avg"] / 1e3)
    assert read["successful-requests"] == pytest.approx(100 - 100 * metrics["http_req_failed"]["value"])


SUMMARIES = {
    "vegeta": (
        '{"latencies":{"total":1,"mean":20000000,"50th":18000000,"95th":40000000,"99th":50000000},'
        '"requests":300,"rate":50.0,"throughput":49.5,"success":0.99}'
    ),
    "oha": (
        '{"summary":{"successRate":0.99,"average":0.02,"requestsPerSec":50.0},'
        '"latencyPercentiles":{"p50":0.018,"p95":0.04,"p99":0.05}}'
    ),
    "wrk": (
        "Running 6s test @ http://127.0.0.1:80/\n  2 threads and 10 connections\n"
        "    Latency    20.00ms    2.00ms  50.00ms   80.00%\n  Latency Distribution\n"
        "     50%   18.00ms\n     95%   40.00ms\n     99%   50.00ms\n"
        "  300 requests in 6.00s, 1MB read\n  Non-2xx or 3xx responses: 3\nRequests/sec:     50.00\n"
    ),
    "hey": (
        "\nSummary:\n  Total:\t6.0 secs\n  Average:\t0.0200 secs\n  Requests/sec:\t50.0\n\n"
        "Latency distribution:\n  50% in 0.0180 secs\n  95% in 0.0400 secs\n  99% in 0.0500 secs\n\n"
        "Status code distribution:\n  [200]\t297 responses\n  [500]\t3 responses\n"
    ),
}


@pytest.mark.parametrize("tool", SUMMARIES)
def test_summaries_of_four_tools_give_the_same_numbers(tool: str, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(SUMMARIES[tool])
    read = bc.read(tmp_path / "run.txt", catalogue="http")
    assert read.provenance["kind"] == tool
    assert {each.metric: float(each.values[0]) for each in read.measurements} == pytest.approx(
        {
            "requests": 50.0, "response-time": 0.02, "p50-response-time": 0.018, "p95-response-time": 0.04,
            "p99-response-time": 0.05, "successful-requests": 99.0,
        }
    )  # fmt: skip


def jmeter_xml(requests: Iterable[Request]) -> str:
    samples = "".join(
        f'<httpSample t="{round(1e3 * s)}" ts="{1760000000000 + 10 * i}" s="{"false" if bad else "true"}" '
        f'lb="{label}" na="5">'
        f'<httpSample t="1" ts="{1760000000000}" s="true" lb="part"/></httpSample>'
        for i, (label, s, bad) in enumerate(requests)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testResults version="1.2">{samples}</testResults>'


def gatling(requests: Iterable[Request]) -> str:
    lines = ["RUN\tshop.Simulation\tshop\t1760000000000\t \t3.9.5", "USER\tshop\tSTART\t1760000000000"]
    for i, (label, seconds, bad) in enumerate(requests):
        start = 1760000000000 + 10 * i
        lines.append(f"REQUEST\t\t{label}\t{start}\t{start + round(1e3 * seconds)}\t{'KO' if bad else 'OK'}\t ")
    return "\n".join([*lines, "USER\tshop\tEND\t1760000012000"]) + "\n"


@pytest.mark.parametrize("write", [jmeter_xml, gatling])
def test_other_formats_of_the_same_requests_agree(write: Callable[[Iterable[Request]], str], tmp_path: Path) -> None:
    requests = [*jmeter()]
    (tmp_path / "run.log").write_text(write(requests))
    read, same = bc.read(tmp_path / "run.log", catalogue="http"), bc.read(FILES / "jmeter.jtl.gz", catalogue="http")
    values, others = ({(e.label, e.stat): e.value for e in each.label_summaries} for each in (read, same))
    assert values == pytest.approx(others, rel=1e-9)
    assert max(read.total("users").values) == (1 if write is gatling else 5)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("https://shop.example/users/42/orders?page=3", "GET /users/{id}/orders"),
        ("http://a/b/0b5c7a2e-11ee-4c3d-9f3e-2b1d5a6c7d8e", "GET /b/{id}"),
        ("http://a", "GET /"),
        ("/search?q=1", "GET /search"),
        ("login page", "GET login page"),
    ],
)
def test_an_endpoint_is_a_path_without_ids(address: str, endpoint: str) -> None:
    assert endpoint_of("GET", address) == endpoint


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ("metric_name,timestamp,metric_value\nvus,1,1\n", "columns: expected the column method"),
        ("metric_name,timestamp,metric_value,method,name\nvus,1760000000,1,,\n", "requests: expected at least one"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,1760000000,-1,GET,/\n", "0 or more"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,1760000000\n", "rows: expected a whole"),
        ('{"metric":"vus","type":"Point","data":{"time":5}}\n', "lines: expected JSON lines of k6"),
        ("timeStamp,elapsed,label,success\n2024/12/11 10:00,5,a,true\n", "timeStamp: expected milliseconds"),
        ("timeStamp,elapsed,label,success\n1760000000000,5,a,maybe\n", "rows: expected a whole table"),
        ('<testResults version="1.2"><httpSample t="5" ts="17', "XML: expected a whole document"),
        ('<testResults><httpSample t="x" ts="1" s="true" lb="a"/></testResults>', "samples: expected numbers"),
        ("RUN\ta\tb\t1\t \t3.9\nREQUEST\t\ta\t5\tOK\n", "line 2: expected a REQUEST or USER of Gatling"),
        ("Timestamp,User Count,Type,Name\n1,1,,Aggregated\n", "columns: expected the column"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,1760000000000,1,GET,/\n", "2000 to 2100"),
        ("\ufefftimeStamp,elapsed,label,success\n1760000000,5,a,true\n", "times: expected times from 2000 to 2100"),
        ("RUN\ta\tb\t1\t \t3.9\nREQUEST\t\ta\t1760000000\t1760000005\tOK\t \n", "times: expected times from 2000"),
        ("Running 30s test @ http://a\n  Latency  10ns  1us\nRequests/sec: 10\n", "summary: .*'ns'"),
        ('{"metrics":{"http_req_duration":{"avg":"x"}}}', "summary: expected requests and their times"),
    ],
)
def test_a_faulty_file_is_refused_in_one_line(contents: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(contents)
    with pytest.raises(bc.InputError, match=rf"run\.txt: .*{expected}"):
        bc.read(tmp_path / "run.txt", catalogue="http")


def test_the_binary_log_of_a_newer_gatling_is_named(tmp_path: Path) -> None:
    (tmp_path / "simulation.log").write_bytes(b"\x00\x00\x00\x00\x063.13.1\x00shop")
    with pytest.raises(bc.InputError, match="binary log of Gatling"):
        bc.read(tmp_path / "simulation.log", catalogue="http")


def test_a_folder_of_jtl_files_holds_runs(tmp_path: Path) -> None:
    shutil.copy(FILES / "jmeter.jtl.gz", tmp_path / "run1.jtl.gz")
    assert [run.provenance["kind"] for run in read_runs(tmp_path)] == ["jmeter"]
