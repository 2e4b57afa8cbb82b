"""Files of load testers equal an independent reading of each file; runs of a minute or less show what they need."""

import csv
import datetime as dt
import gzip
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
import fuzzing
from buildcompare.findings.verdict import opening
from buildcompare.recordings.sources import read_runs
from loadfiles.request_log import endpoint_of

FILES = Path(__file__).parents[1] / "load_tools"
Request = tuple[str, float, bool]  # endpoint, seconds, whether it failed


def text_of(name: str) -> str:
    return gzip.decompress((FILES / name).read_bytes()).decode("utf-8")


def path_of(url: str) -> str:
    return re.sub(r"/\d+(?=/|$)", "/{id}", "/" + url.partition("?")[0].split("/", 3)[-1])


def k6(points: Iterable[tuple[str, str, str, str]]) -> Iterator[Request]:
    times, failures = [], []
    for metric, value, method, name in points:
        label = f"{method} {path_of(name) if '://' in name else name}"
        if metric == "http_req_duration":
            times.append((label, float(value) / 1e3))
        elif metric == "http_req_failed":
            failures.append(float(value) > 0)
    return ((*time, bad) for time, bad in zip_longest(times, failures, fillvalue=False))  # type: ignore[misc]


def k6_csv(text: str) -> Iterator[Request]:
    rows = csv.DictReader(text.splitlines())
    return k6((row["metric_name"], row["metric_value"], row["method"], row["name"]) for row in rows)


def k6_json(text: str) -> Iterator[Request]:
    of = ((each["metric"], each["data"]) for each in map(json.loads, text.splitlines()) if each["type"] == "Point")
    return k6((m, data["value"], data["tags"].get("method", ""), data["tags"].get("name", "")) for m, data in of)


def jmeter(text: str) -> Iterator[Request]:
    for row in csv.DictReader(text.splitlines()):
        if not row.get("responseMessage", "").startswith("Number of samples"):
            yield row["label"], int(row["elapsed"]) / 1e3, row["success"] != "true"


def jmeter_xml(text: str) -> Iterator[Request]:
    root = ElementTree.fromstring(text)
    for each in (*root.iterfind("httpSample"), *root.iterfind("sample/httpSample")):
        yield each.attrib["lb"], int(each.attrib["t"]) / 1e3, each.attrib["s"] != "true"


def gatling(text: str) -> Iterator[Request]:
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "REQUEST":
            group, name, start, end, status = fields[:5]
            label = " / ".join([*filter(None, group.split(",")), name])
            yield label, (int(end) - int(start)) / 1e3, status == "KO"


def vegeta(text: str) -> Iterator[Request]:
    for row in csv.reader(text.splitlines()):
        yield f"{row[9]} {path_of(row[10])}", int(row[2]) / 1e9, not 200 <= int(row[1]) < 400


def vegeta_json(text: str) -> Iterator[Request]:
    for row in map(json.loads, text.splitlines()):
        yield f"{row['method']} {path_of(row['url'])}", row["latency"] / 1e9, not 200 <= row["code"] < 400


READERS: dict[str, Callable[[str], Iterator[Request]]] = {
    "k6.csv.gz": k6_csv, "k6.json.gz": k6_json, "jmeter.jtl.gz": jmeter, "jmeter.xml.gz": jmeter_xml,
    "gatling.log.gz": gatling, "vegeta.csv.gz": vegeta, "vegeta.json.gz": vegeta_json,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_counts_and_means_are_exact_and_percentiles_within_two_percent(name: str) -> None:
    times, requests = defaultdict[str, list[float]](list), [*READERS[name](text_of(name))]
    for label, seconds, _ in requests:
        times[label].append(seconds)
    read = bc.read(FILES / name, catalogue="http")
    values = {(each.label, each.stat): each.value for each in read.label_summaries}
    assert {label for label, _ in values} == {*times}
    for label, of in times.items():
        assert (values[label, "calls"], values[label, "avg"]) == (len(of), pytest.approx(np.mean(of), rel=1e-9))
        for stat, share in (("p50", 50), ("p95", 95), ("p99", 99)):
            exact = np.percentile(of, share, method="inverted_cdf")
            assert values[label, stat] == pytest.approx(exact, rel=0.02)
    counted, bad = np.nan_to_num(read.total("requests").values), sum(bad for *_, bad in requests)
    failed = next(each for each in read.series if each.role == "error")
    assert (counted.sum(), failed.values.sum()) == pytest.approx((len(requests), bad))
    part = np.nansum(counted * read.total("successful-requests").values) / counted.sum()
    assert part == pytest.approx(100 - 100 * bad / len(requests))


def test_a_percentile_does_not_depend_on_the_rate_of_requests(tmp_path: Path) -> None:
    rng, head = np.random.default_rng(1), "timeStamp,elapsed,label,success\n"
    for rate in (20, 92, 110):
        at, times = np.repeat(np.arange(120), rate), np.exp(rng.normal(5.0, 0.8, 120 * rate))
        rows = [f"{1_760_000_000_000 + 1000 * second},{ms:.0f},a,true\n" for second, ms in zip(at, times, strict=True)]
        (tmp_path / "run.jtl").write_text(head + "".join(rows))
        read = bc.read(tmp_path / "run.jtl", catalogue="http")
        for share in (95, 99):
            level = np.exp(np.log(read.total(f"p{share}-response-time").values).mean())
            assert level == pytest.approx(np.percentile(times, share) / 1e3, rel=0.08)


@pytest.mark.parametrize("users", [False, True], ids=["pauses", "users"])
def test_pauses_and_users_who_leave_at_the_end_make_no_test_invalid(tmp_path: Path, users: bool) -> None:
    rng, head = np.random.default_rng(2), f"timeStamp,elapsed,label,success{',allThreads' * users}\n"
    for name, pause_s in (("base", 0.0), ("new", 5.0)):
        for run in range(3):
            at = np.sort(rng.uniform(0, 600, 1800))
            waited = np.where((at > 99) & (at < 99 + pause_s), 99 + pause_s - at, 0) + 0.1 * rng.lognormal(0, 0.2, 1800)
            each = zip(at + waited, waited, np.minimum(np.ceil((600 - at) / 1.5), 20), strict=True)
            rows = [f"{1.76e12 + 1e3 * t:.0f},{1e3 * s:.0f},a,true{f',{n:.0f}' * users}" for t, s, n in each]
            (tmp_path / f"{name}{run}.jtl").write_text(head + "\n".join(rows))
    runs = ([tmp_path / f"{name}{run}.jtl" for run in range(3)] for name in ("base", "new"))
    (test,) = bc.compare(*runs).results.tests
    assert test.validity.reasons == []


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_ends_early_loses_nothing_or_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, file, whole, said = text_of(name), tmp_path / "run", 0, list[str]()
    for share in range(1, 21):
        cut = text[: len(text) * share // 21]
        for part in (cut, cut[: cut.rindex("\n") + 1]):
            file.write_text(part, "utf-8")
            try:
                read = bc.read(file, catalogue="http")
            except bc.InputError as error:
                said.append(str(error))
                continue
            calls = sum(each.value for each in read.label_summaries if each.stat == "calls")
            assert calls == len([*READERS[name](part if not read.notes else part[: part.rindex("\n")])])
            whole += 1
    assert all(re.fullmatch(r"\S+/run: .*expected .+, found .+", each) for each in said)
    assert (whole >= 20, whole + len(said)) == (name != "jmeter.xml.gz", 40)  # no XML without its end


def test_locust_is_read_as_its_files_say(tmp_path: Path) -> None:
    stats = csv.DictReader((FILES / "locust/base/run1_stats.csv").read_text().splitlines())
    whole = [row for row in stats if row["Name"] != "Aggregated"]
    history = csv.DictReader((FILES / "locust/base/run1_stats_history.csv").read_text().splitlines())
    sums = [(int(row["Total Request Count"]), float(row["Total Average Response Time"])) for row in history]
    read = bc.read(FILES / "locust/base/run1_stats_history.csv", catalogue="http")
    rates, times = (read.total(slug).values for slug in ("requests", "response-time"))
    assert rates.sum() == pytest.approx(sums[-1][0] - sums[0][0])
    table = pd.read_csv(FILES / "locust/base/run1_stats_history.csv")
    table.loc[table["Timestamp"] > table["Timestamp"].median(), "Total Request Count"] = 0  # --reset-stats
    last = table["Timestamp"].max()  # a second that is left out takes no work
    table["Timestamp"] = table["Timestamp"].replace(last, last + 10**8)
    table.to_csv(tmp_path / "run_stats_history.csv", index=False)
    assert np.nanmin(bc.read(tmp_path / "run_stats_history.csv", catalogue="http").total("requests").values) == 0
    so_far = pd.DataFrame([(count, count * ms) for count, ms in sums])
    near = so_far.diff().dropna().rolling(10, center=True).sum().bfill().ffill()  # ten seconds
    assert times == pytest.approx((near[1] / near[0]).to_numpy() / 1e3)
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
    assert (rows.idxmax(), result.results.tests[0].errors[0].most.label) == ("GET /search", "GET /cart")
    assert rows["GET /search"] == pytest.approx(24.2, abs=0.1)  # of the means in the files: the network costs too
    assert rows.drop("GET /search").abs().max() < 1.0
    assert set(result.labels["noise_source"]) == {"repeats"}
    assert set(result.labels.query("status != 'equivalent'")["label"]) == {"GET /search"}
    first, *others = result.results.findings
    assert (first.kind, first.severity) == ("label_changed", "critical")
    assert re.search(r"GET /search.*\+24\.2 %.*1,818 calls", first.text)
    assert not {"label_changed", "gaps"} & {each.kind for each in others}  # the first second has no rate


def test_a_summary_of_k6_is_read_as_numbers_without_times(tmp_path: Path) -> None:
    metrics = json.loads((FILES / "k6-summary.json").read_text())["metrics"]
    requests, new = metrics["http_reqs"], json.dumps([{"name": k, "values": of} for k, of in metrics.items()])
    new = re.sub(r"[()]", "", new.replace('"rate"', '"-"').replace('"value"', '"rate"'))  # the machine-readable form
    about = f'"duration": {requests["count"] / requests["rate"]}, "script": "{"x" * 99_999}"'
    (tmp_path / "new.json").write_text(f'{{"config": {{{about}}}, "results": {{"metrics": {new}}}}}')
    for file in (FILES / "k6-summary.json", tmp_path / "new.json"):
        read = {each.metric: 1e3 * float(each.values[0]) for each in bc.read(file).measurements}
        good, times = 100 - 100 * metrics["http_req_failed"]["value"], metrics["http_req_duration"]
        stated = [1e3 * good, times["avg"], times["p(95)"], 1e3 * requests["rate"]]
        names = ("successful-requests", "response-time", "p95-response-time", "requests")
        assert [read[name] for name in names] == pytest.approx(stated)


def test_checks_of_k6_are_a_share_that_users_feel(tmp_path: Path) -> None:
    rows = "".join(f"http_req_duration,{at},9,GET,/\nchecks,{at},{at % 2},,\n" for at in range(1760000000, 1760000060))
    (tmp_path / "a.csv").write_text(f"metric_name,timestamp,metric_value,method,name\n{rows}")
    checks = [each for each in bc.read(tmp_path / "a.csv").graphs() if each.metric == "check-success-rate"]
    assert [(each.unit, each.values[10:50].tolist()) for each in checks] == [("percent", [50.0] * 40)]


@pytest.mark.parametrize("tool", ["vegeta", "vegeta.txt", "oha", "wrk", "hey"])
def test_summaries_of_all_tools_give_the_same_numbers(tool: str, tmp_path: Path) -> None:
    read = bc.read(fuzzing.SEEDS / f"{tool}-report", catalogue="http")
    assert read.provenance["kind"] == tool.removesuffix(".txt")
    values = {"requests": 50.0, "response-time": 0.02, "p50-response-time": 0.018, "p95-response-time": 0.04}
    values |= {"p99-response-time": 0.05, "successful-requests": 99.0}
    (tmp_path / "run.txt").write_text(fuzzing.seed(f"{tool}-report").decode(), "utf-16")  # `>` of PowerShell
    assert bc.read(tmp_path / "run.txt", catalogue="http").measurements == read.measurements
    assert {each.metric: float(each.values[0]) for each in read.measurements} == pytest.approx(values)


def test_an_endpoint_is_a_path_without_ids() -> None:
    endpoints = {
        "https://shop.example/users/42/orders?page=3": "GET /users/{id}/orders",
        "http://a/b/0b5c7a2e-11ee-4c3d-9f3e-2b1d5a6c7d8e": "GET /b/{id}",
        "http://a": "GET /",
        "/search?q=1": "GET /search",
        "login page": "GET login page",
        "${}/items/${}": "GET /items/{id}",
    }
    assert {address: endpoint_of("GET", address) for address in endpoints} == endpoints


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ("metric_name,timestamp,metric_value,method,name\nvus,1760000000,1,,\n", "requests: expected at least one"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,1760000000,-1,GET,/\n", "0 or more"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,1760000000\n", "contents: .*found CSV"),
        ("timeStamp,elapsed,label,success\n11.12.2024 10:00,5,a,true\n", "timeStamp: expected milliseconds"),
        ("timeStamp,elapsed,label\n1760000000000,5,a\n", "columns: expected the column success once"),
        ("timeStamp,elapsed,label,success\n1760000000000,5,a,\n", "success: expected true or false"),
        ("1760000000000;5;a;200;true;1\n", "columns: expected a header, or 17 columns, found 6 columns"),
        ('<testResults version="1.2"><httpSample t="5" ts="17', "contents: expected a file of jmeter, found Parse"),
        ('<testResults><sample t="5" ts="1760000000000" s="TRUE" lb="a"/></testResults>', "`s` of true or false"),
        ('{"ts":1760000000,"msg":"a"}\n{"ts":1760000900000,"msg":"a"}\n', "times: expected times from 2000"),
        ('{"ts":1000000000,"msg":"a"}\n{"ts":2100000000,"msg":"a"}\n', "times: expected a run of at most 8 days"),
        ("RUN\ta\tb\t1\t \t3.9\nREQUEST\t\ta\t5\tOK\n", "line 2: expected a REQUEST or USER of Gatling"),
        ("metric_name,timestamp,metric_value,method,name\nhttp_req_duration,7760000000,1,GET,/\n", "2000 to 2037"),
        ("Running 30s test @ http://a\n  Latency  10xs  1us\nRequests/sec: 10\n", "contents: .*'xs'"),
        ("\0\0\0\0\x063.13.1\0shop", "format: .*found the binary log of a newer Gatling"),
        ("\x0f\x7f\x03\x01\x01\x06Result\x01", "format: expected the output of `vegeta encode`"),
        ("request-start,DNS,DNS+dialup\n0.1,0,0\n", "format: expected `--output-format json`"),
        ("\nSummary:\n  Success rate:\t100.00%\n", "format: expected `--output-format json`"),
        (3 * fuzzing.seed("wrk-report").decode(), "contents: expected one run per file, found 3 runs"),
        (2 * (fuzzing.seed("oha-report").decode() + "\n"), "contents: expected one run per file, found 2 runs"),
        ("\n     http_req_duration..............: avg=29.9ms min=1ms\n", "format: .*found k6's printed summary"),
        ("Type,Name,Request Count,Failure Count\nGET,/,1,0\n", "format: expected the history of `--csv`"),
        ('{"metrics":{"http_req_duration":{"avg":"x"}}}', "contents: expected a file of k6, found KeyError"),
    ],
)
def test_a_faulty_file_is_refused_in_one_line(contents: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(contents)
    with pytest.raises(bc.InputError, match=rf"run\.txt: .*{expected}"):
        bc.read(tmp_path / "run.txt", catalogue="http")


VARIANTS = {
    "k6 unix_milli": ("k6.csv.gz", lambda text: re.sub(r"(?m)^(\w+,\d{10}),", r"\g<1>000,", text)),
    "k6 rfc3339": ("k6.csv.gz", lambda text: re.sub(r"(?<=,)\d{10}(?=,)", lambda at: f"{dated(at[0])}Z", text)),
    "k6 lent users": ("k6.csv.gz", lambda text: re.sub(r"(?m)^vus,(\d+),(.*)$", r"\g<0>\nvus_max,\1,9\2", text)),
    "k6 dropped": ("k6.csv.gz", lambda text: re.sub(r"(?m)^vus,(.*)$", r"\g<0>\ndropped_iterations,\1", text)),
    "k6 dropped at its end": ("k6.csv.gz", lambda text: re.sub(
        r"(?s)(.*)\nvus,(.*?)\n", r"\g<0>dropped_iterations,\2\n", text)),
    "jmeter dates": ("jmeter.jtl.gz", lambda text: re.sub(
        r"(?m)^(\d{10})(\d{3}),", lambda at: f"{dated(at[1], '/', ' ')}.{at[2]},", text)),
    "jmeter tabs": ("jmeter.jtl.gz", lambda text: text.replace(",", "\t")),
    "gatling 2.1": ("gatling.log.gz", lambda text: re.sub(
        r"\t(\d{13})\t(\d{13})\t([OK]{2})", r"\t\1\t\1\t\2\t\2\t\3", text)),
    "gatling 3.0": ("gatling.log.gz", lambda text: text.replace("REQUEST\t", "REQUEST\t17\t")),
}  # fmt: skip


def dated(seconds: str, day: str = "-", time: str = "T") -> str:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime(f"%Y{day}%m{day}%d{time}%H:%M:%S")


@pytest.mark.parametrize("variant", VARIANTS)
def test_other_settings_of_a_tool_give_the_same_requests(variant: str, tmp_path: Path) -> None:
    name, change = VARIANTS[variant]
    (tmp_path / "run").write_text(text := change(text_of(name)), "utf-8")
    assert text != text_of(name)
    read, same = bc.read(tmp_path / "run", catalogue="http"), bc.read(FILES / name, catalogue="http")
    assert read.label_summaries == same.label_summaries
    assert read.total("requests").values.tolist() == same.total("requests").values.tolist()
    held = variant not in ("k6 lent users", "k6 dropped") and "gatling" not in variant  # its users arrive by themselves
    assert any(each.metric == "users" for each in read.series) == held


def test_jmeter_without_header_or_samples_in_transactions(tmp_path: Path) -> None:
    """Transactions count where their samples are missing, and redirects never; one endpoint comes after all seconds."""
    row = "17600000{:05d};{};{};200;{};u 1-1;text;true;;66;121;2;3;null;{};0;0"
    parts = [row.format(1000 * i, 20, "cart", "OK", 20) for i in range(8)]
    sums = [row.format(1000 * i, 50, "Buy", "Number of samples in transaction : 1, x", 50) for i in range(8)]
    alone = [each.replace("000;50;Buy", "100;5;In") for each in sums] + [row.format(63_000, 9, "late", "OK", 9)]
    more = [each.replace("000;20;cart", f"00{i};{10 + i};cart-{i}") for each in parts for i in (2, 7)]
    read = {}
    for name, rows in {"both": [*sums, *parts, *more, *alone], "sums": [*sums, *alone]}.items():
        (tmp_path / f"{name}.xml").write_text("\n".join(rows) + "\n", "utf-8")
        (recording,) = read_runs(tmp_path / f"{name}.xml")
        assert recording.total("users").values[0] == 3
        read[name] = {each.label: each.value for each in recording.label_summaries if each.stat == "calls"}
    assert read == {"both": {"cart": 8, "In": 8, "late": 1, "cart-7": 8}, "sums": {"Buy": 8, "In": 8, "late": 1}}


def test_locust_skips_seconds_and_names_ids(tmp_path: Path) -> None:
    lines = (FILES / "locust/base/run1_stats_history.csv").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "run_stats_history.csv").write_text("".join(lines[:20] + lines[21:30] + lines[31:]), "utf-8")
    stats = (FILES / "locust/base/run1_stats.csv").read_text("utf-8").replace("/cart", "/items/1")
    (tmp_path / "run_stats.csv").write_text(stats.replace("/items/[id]", "/items/22"), "utf-8")
    whole, read = bc.read(FILES / "locust/base/run1_stats_history.csv"), bc.read(tmp_path / "run_stats_history.csv")
    for each in (whole, read):
        assert set(np.diff(each.total("requests").times)) == {1.0}
    assert read.total("requests").values.sum() == pytest.approx(whole.total("requests").values.sum())
    calls, means = ({e.label: e.value for e in read.label_summaries if e.stat == stat} for stat in ("calls", "avg"))
    before = {e.label: e.value for e in whole.label_summaries if e.stat == "calls"}
    assert calls["GET /items/{id}"] == before["GET /cart"] + before["GET /items/[id]"]
    assert 0.02 < means["GET /items/{id}"] < 0.04


def requests_of(file: Path, seconds: dict[str, float], seed: int, failing: str = "") -> None:
    rng, names = np.random.default_rng(seed), [*seconds]
    took = rng.lognormal(0.0, 0.1, 6_000)
    at = rng.integers(len(names), size=took.size)
    rows = [
        f"{1_760_000_000_000_000_000 + i * 6_666_667},200,{int(1e9 * seconds[name] * took[i])},1,1,,,,{i},GET,{name},"
        for i, name in enumerate(names[k] for k in at)
    ]
    for i in range(0, len(rows), 10) if failing else ():
        rows[i] = rows[i].replace(",200,", ",500,", 1) if names[at[i]] == failing else rows[i]
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(rows) + "\n", "utf-8")


def test_whole_milliseconds_of_jmeter_make_no_steps(tmp_path: Path) -> None:
    took = np.random.default_rng(1).lognormal(np.log(3.4), 0.3, 6_000)
    medians = []
    for times in (took, 1.03 * took):
        rows = [f"{1_760_000_000_000 + 7 * i},{round(each)},/fast,true" for i, each in enumerate(times)]
        (tmp_path / "run.jtl").write_text("\n".join(["timeStamp,elapsed,label,success", *rows]))
        read = bc.read(tmp_path / "run.jtl", catalogue="http")
        medians += [each.value for each in read.label_summaries if each.stat == "p50"]
    assert medians[1] / medians[0] == pytest.approx(1.03, abs=0.02)


def test_a_new_endpoint_that_takes_the_time_is_named_as_the_cause(tmp_path: Path) -> None:
    for run in range(3):
        requests_of(tmp_path / f"base/{run}.csv", {"/a": 0.02, "/b": 0.03, "/old": 0.02}, run)
        requests_of(tmp_path / f"new/{run}.csv", {"/a": 0.02, "/b": 0.03, "/beta": 0.3}, 10 + run)
    result = bc.compare(tmp_path / "base", tmp_path / "new")
    (only,) = (each for each in result.results.findings if "GET /beta" in each.text)
    assert only.severity == "warning"
    assert re.search(r"Only new has 1 endpoint: GET /beta \(30. ms, 8[567] % of all time\)", only.text)
    assert result.results.suggestions[0].text.endswith("look at GET /beta (new) first.")
    assert result.results.tests[0].metrics[0].judged.status == "equivalent"  # at unchanged mix


def test_the_endpoint_that_fails_most_is_named(tmp_path: Path) -> None:
    for run in range(3):
        requests_of(tmp_path / f"base/{run}.csv", {"/a": 0.02, "/b": 0.03}, run)
        requests_of(tmp_path / f"new/{run}.csv", {"/a": 0.02, "/b": 0.03}, 10 + run, failing="/b")
    results = bc.compare(tmp_path / "base", tmp_path / "new").results
    (errors,) = results.tests[0].errors
    assert errors.most is not None
    assert (errors.most.label, errors.most.base, errors.most.new) == ("GET /b", 0.0, pytest.approx(errors.new))
    assert re.search(r"All failures are at GET /b \(7\.\d+ requests/s against 0", opening(results).sentence)
    assert results.suggestions[0].text == "Find out why GET /b fails."


@pytest.mark.parametrize(("tool", "down"), [("vegeta", 1), ("vegeta", 3), ("vegeta", 6), ("hey", 3)])
def test_a_run_without_success_does_not_pass(tool: str, down: int, tmp_path: Path) -> None:
    for i in range(6):
        requests_of(file := tmp_path / ("new" if i > 2 else "base") / f"{i}.csv", {"/a": 0.02}, i)
        text = fuzzing.seed("hey-report").decode().replace("0.0200", f"0.020{i}") if tool == "hey" else file.read_text()
        file.write_text(text.replace("[200]", "[500]").replace(",200,", ",0,") if i >= 6 - down else text)
    result, is_judged = bc.compare(tmp_path / "base", tmp_path / "new"), (tool, down) == ("vegeta", 3)
    assert str(result.verdict) == ("regression" if is_judged else "invalid")
    assert ("none_succeeded" in result.results.tests[0].validity.codes) == (not is_judged)
    assert "improvement" not in set(result.metrics["status"])


def test_users_of_gatling_who_arrive_by_themselves_are_no_load(tmp_path: Path) -> None:
    lines = ["RUN\tA\ta\t1760000000000\t \t3.9"]
    row = "USER\tu\tSTART\t{0}\nREQUEST\t{2}\tfind\t{0}\t{1}\tOK\nUSER\tu\tEND\t{1}"
    lines += [row.format(at, at + 50, 2024 + at // 100 % 2) for at in range(1_760_000_000_000, 1_760_000_040_000, 100)]
    (tmp_path / "run.log").write_text("\n".join([*lines, "REQUEST\t\tfi"]))
    read = bc.read(tmp_path / "run.log", catalogue="http")
    calls = {each.label: each.value for each in read.label_summaries if each.stat == "calls"}
    assert (calls, read.total("users")) == ({"2024 / find": 200, "2025 / find": 200}, None)
    assert [each.text for each in read.notes] == ["the last line is cut off, and left out"]


def test_hey_rounds_to_four_decimals(tmp_path: Path) -> None:
    rows = "".join(f"0.000{2 + i % 2},0,200,{i / 100:.4f}\n" for i in range(4_000))
    (tmp_path / "run.csv").write_text(f"response-time,DNS+dialup,status-code,offset\n{rows}")
    read = bc.read(tmp_path / "run.csv", catalogue="http")
    values = {each.stat: each.value for each in read.label_summaries}
    assert (read.window, values["calls"], values["avg"]) == ((0.0, 40.0), 4_000, pytest.approx(0.00025, rel=1e-3))
    assert values["p95"] == pytest.approx(0.00034, rel=0.02)  # half of all lie evenly from 0.25 to 0.35 ms
    (tmp_path / "run.txt").write_text(re.sub(r"\b0\.0", "0.000", fuzzing.seed("hey-report").decode()))
    read = bc.read(tmp_path / "run.txt", catalogue="http")
    assert {each.metric for each in read.measurements} == {"requests", "successful-requests"}
    assert "hey -o csv" in read.notes[0].text


def test_rare_endpoints_are_not_said_to_be_gone(tmp_path: Path) -> None:
    seconds = {f"/page/{chr(97 + i // 20)}{chr(97 + i % 20)}": 0.02 for i in range(200)}
    for run in range(2):
        requests_of(tmp_path / f"base/{run}.csv", seconds, run)
        requests_of(tmp_path / f"new/{run}.csv", seconds, 10 + run)
    result = bc.compare(tmp_path / "base", tmp_path / "new")
    assert "among_others" in {row.reason.code for row in result.results.tests[0].labels if row.reason}
    assert result.labels["only_in"].isna().all()
    assert "labels_in_one_build" not in {each.kind for each in result.results.findings}


def test_a_folder_holds_files_of_runs_or_a_folder_for_each(tmp_path: Path) -> None:
    for name in ("flat/run1.xml.gz", "nested/1/run.jtl.gz", "nested/2/run.jtl.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / "jmeter.jtl.gz", tmp_path / name)
    assert [len(read_runs(tmp_path / name)) for name in ("flat", "nested")] == [1, 2]
    shutil.copy(FILES / "k6-summary.json", tmp_path / "flat/run1-summary.json")
    with pytest.raises(bc.InputError, match=r"flat: expected each run in one file .*, found one run in two files"):
        read_runs(tmp_path / "flat")
    for i, tool in enumerate(("wrk", "wrk", "hey")):
        (tmp_path / f"nested/{i}.txt").write_text(fuzzing.seed(f"{tool}-report").decode().replace(":80/", f":80/{i}x"))
    with pytest.raises(bc.InputError, match=r"load tester and endpoint .*, found hey, wrk /0x, wrk /1x$"):
        read_runs(tmp_path / "nested")


SHORT = {"k6.csv.gz": 2, "jmeter.jtl.gz": 2, "vegeta.csv.gz": 1, "locust/base/run1_stats_history.csv": 9}
"""Recorded runs of 13, 15, 12 and 60 s; the longest time of rates that makes each long enough."""


def other(run: bc.Recording, factor: float = 1.0001) -> bc.Recording:
    return replace(run, series=tuple(replace(each, values=each.values * factor) for each in run.series))


@pytest.mark.parametrize("name", SHORT)
def test_a_single_short_run_is_shown_with_what_it_needs(name: str) -> None:
    run = bc.read(FILES / name, catalogue="http").with_rate(60.0)
    result = bc.compare(run, other(run))
    rows = result.metrics.set_index("metric")
    assert rows.loc["response-time", ["base", "new"]].notna().all()
    assert set(rows["status"]) == {"inconclusive"}
    assert (result.labels["p_value"].count(), *set(result.labels["noise_source"])) == (0, "none")
    (reason, _) = result.results.tests[0].validity.reasons
    assert re.search(rf"s long; a steady window needs 6 min.*, or rate_s: {SHORT[name]}$", reason.text)
    (long_enough,) = bc.compare(run, other(run), rate_s=SHORT[name]).results.tests
    assert (long_enough.runs.base[0].window is None, len(long_enough.validity.reasons)) == (False, 0)


@pytest.mark.parametrize("users", ["constant", "ramp", "unknown"])
def test_repeated_runs_of_74_seconds_are_judged(users: str) -> None:
    rng = np.random.default_rng(7)

    def run(seconds_per_call: float) -> pd.DataFrame:
        elapsed, level = np.arange(74.0), rng.lognormal(0.0, 0.01)
        rising = np.minimum(elapsed / 15.0, 1.0) if users == "ramp" else np.ones(74)
        columns = {
            "Users": 20.0 * rising,
            "Requests": 50.0 * rising * rng.lognormal(0.0, 0.02, 74),
            "Response time": seconds_per_call * level * rng.lognormal(0.0, 0.1, 74),
        }
        return pd.DataFrame(columns, elapsed).drop(columns="Users" if users == "unknown" else [])

    base, same, slower = ([run(seconds) for _ in range(3)] for seconds in (0.02, 0.02, 0.026))
    result = bc.compare(base, slower)
    assert result.metrics.set_index("metric").loc["response-time", "status"] == "regression"
    assert result.results.tests[0].validity.status == "valid"
    start, _ = result.results.tests[0].runs.new[0].window or (0.0, 0.0)
    assert (15.0 < start < 30.0) == (users == "ramp")
    assert ("; Requests stands for the load." in "".join(result.findings["text"])) == (users == "unknown")
    assert str(bc.compare(base, same).verdict) in ("pass", "inconclusive")


def test_a_params_file_states_the_time_of_rates_of_its_files(tmp_path: Path) -> None:
    source = FILES / "locust/base/run1_stats_history.csv"
    text = "source: {kind: recorded, rate_s: 60}\nmetrics: http\nbase: {label: a}\nnew: {label: b}\ntests:\n"
    runs = f"base: {{recording: {source}}}, new: {{recording: {FILES / 'locust/new/run1_stats_history.csv'}}}"
    (tmp_path / "a.yaml").write_text(f"{text}  - {{name: t, type: bounded, {runs}}}\n", "utf-8")
    (test,) = bc.compare(bc.read_params(tmp_path / "a.yaml")).results.tests
    assert test.runs.base[0].window is None
