"""`init` says what files or a server hold, and writes files that give the verdict of `compare`."""

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.recordings.frames import BAD
from buildcompare.recordings.prometheus_client import Client
from buildcompare.results import Results
from loadinit.files import draft_of_files, write_draft
from prometheus_server import Truth, run_prometheus, run_victoriametrics
from support import command, refused

TOOLS = Path(__file__).parents[1] / "load_tools"
BUNDLED = "data/recordings/v10.4.0-rc1/mysql_bounded"


def table(file: Path, level: float, seed: int, **columns: object) -> None:
    rng, elapsed = np.random.default_rng(seed), np.arange(0.0, 900.0, 5.0)
    values = {
        "time": 1.7e9 + elapsed,
        "vus": np.minimum(elapsed, 200.0),
        "checkout_ms": level * rng.lognormal(0, 0.02, elapsed.size),
        'odd: "x" # {%y%}': rng.normal(5, 0.1, elapsed.size),
        "yes": 1.0 + elapsed,
        "größe": 2.0 + elapsed,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({**values, **columns}).to_csv(file, index=False)


@pytest.fixture
def builds(tmp_path: Path) -> tuple[Path, Path]:
    for side, level in (("v1", 40.0), ("v2", 52.0)):
        for i in (1, 2, 3):
            table(tmp_path / side / f"run{i}.csv", level, i if side == "v1" else i + 3)
    return tmp_path / "v1", tmp_path / "v2"


def described(results: Results) -> Iterator[tuple[object, ...]]:
    yield results.verdict, results.base.label, results.new.label
    for test in results.tests:
        yield from ((row.slug, row.unit, row.delta_percent, row.status) for row in test.metrics)
        yield from ((row.label, row.stat, row.delta_percent, row.status) for row in test.labels)
    yield from ((each.kind, each.text) for each in results.findings if each.kind != "assumed")


INPUTS = {
    "k6": (TOOLS / "k6.csv.gz", TOOLS / "k6.json.gz"),
    "jmeter": (TOOLS / "jmeter.jtl.gz", TOOLS / "jmeter.jtl.gz"),
    "vegeta": (TOOLS / "vegeta.csv.gz", TOOLS / "vegeta.csv.gz"),
    "summary": (TOOLS / "k6-summary.json", TOOLS / "k6-summary.json"),
    "locust": (TOOLS / "locust/base", TOOLS / "locust/new"),
    "mattermost": (f"{BUNDLED}/base.parquet", f"{BUNDLED}/new.parquet"),
}


@pytest.mark.parametrize("name", [*INPUTS, "tables"])
def test_the_written_files_give_what_compare_gives(name: str, tmp_path: Path, builds: tuple[Path, Path]) -> None:
    base, new = map(str, INPUTS.get(name, builds))
    params = tmp_path / "params/x.yaml"
    write_draft(draft_of_files(base, new), params, command="init", force=False)
    written = bc.read_params(params)
    assert written.metrics == str(tmp_path / "params/metrics/x.yaml")
    assert read_catalogue(written.metrics).metrics
    assert [*described(bc.compare(written).results)] == [*described(bc.compare(base, new).results)]


def test_it_prints_what_it_recognised_and_what_it_did_not(builds: tuple[Path, Path], tmp_path: Path) -> None:
    base, new = builds
    table(new / "run3.csv", 52.0, 6, empty=np.nan)
    for other in ("run1.csv", "run2.csv"):
        table(new / other, 52.0, 7, empty=np.nan)
    (base / "notes.md").write_text("of no interest")
    (base / "sub").mkdir()
    done = command("init", base, new, "--output", tmp_path / "x.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{base} (base): 3 runs (tables of samples), 15 min each.\n" in done.stdout
    assert "  checkout_ms: ms, lower is better, fails the comparison (assumed from its name)\n" in done.stdout
    assert "Load: vus, up to 200 users.\n  base: steady from 260 s to 895 s.\n" in done.stdout
    unused = [f"{base}/notes.md: no ending of a recording", f"{base}/sub: a folder", "empty: a column without a number"]
    comments = (tmp_path / "x.yaml").read_text("utf-8")
    for each in unused:
        assert f"  {each}" in done.stdout
        assert f"#   {each}" in comments
    assert f"Next: python -m buildcompare report {tmp_path}/x.yaml\n" in done.stdout


def test_endpoints_and_the_catalogue_of_load_testers_are_said(tmp_path: Path) -> None:
    shutil.copytree(TOOLS / "locust/base", tmp_path / "base")
    (tmp_path / "base/run1_failures.csv").touch()  # Locust always writes it
    said = command("init", tmp_path / "base", TOOLS / "locust/new", "--output", tmp_path / "x.yaml").stdout
    assert "Not used" not in said
    assert "(base): 3 runs (locust), 59 s each.\n" in said
    assert "Metrics, by the catalogue http:\n" in said
    assert "Rows by endpoint (4): GET /cart, GET /items/[id], GET /search, POST /login.\n" in said


def test_files_that_exist_are_said_and_kept_without_force(builds: tuple[Path, Path], tmp_path: Path) -> None:
    params, catalogue = tmp_path / "x.yaml", tmp_path / "metrics/x.yaml"
    arguments = ("init", *builds, "--output", params)
    assert command(*arguments).exit_code == 0
    kept = params.read_bytes()
    expected = "expected no file, or --force to overwrite it, found one of"
    assert refused(*arguments) == f"buildcompare: {params}: {expected} {len(kept):,} bytes\n"
    params.unlink()
    catalogue.write_text("somebody's")
    assert f"{catalogue}: {expected} 10" in refused(*arguments)
    assert not params.exists()
    assert (command(*arguments, "--force").exit_code, params.read_bytes()) == (0, kept)


def test_the_default_name_is_the_new_build(
    builds: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "params/metrics", project / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(project))
    done = command("init", *builds)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"Next: python -m buildcompare report {project / 'params/v2.yaml'}\n")
    monkeypatch.chdir(project)
    assert command("init", *builds, "--force").stdout.endswith("Next: python -m buildcompare report params/v2.yaml\n")
    written = bc.read_params(project / "params/v2.yaml")
    assert (written.metrics, bc.compare(written).verdict) == ("v2", "regression")
    for file in (*builds[0].iterdir(), *builds[1].iterdir()):
        pd.read_csv(file).drop(columns="vus").to_csv(file, index=False)
    assert "\nLoad: no metric counts users, so the whole " in command("init", *builds, "--force").stdout


@pytest.mark.parametrize("contents", [
    None, b"", b"hello\nworld\n", b"a,b\n1,2\n", b'{"a": 1}', b"\x1f\x8b\x08\x00abc", b"PAR1" + bytes(40),
    b'{"benchmarks": [{"runs": [{"values": ["x"]}]}]}',
])  # fmt: skip
def test_a_file_of_nobody_gives_one_line_and_writes_nothing(contents: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "x"
    if contents is not None:
        file.write_bytes(contents)
    said = refused("init", file, file, "--output", tmp_path / "params/x.yaml")
    assert re.fullmatch(rf"buildcompare: {file}: .*expected .+, found .+\n", said)
    assert not (tmp_path / "params").exists()


def test_parts_of_one_run_and_foreign_names_of_files_are_refused(builds: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        table(tmp_path / f"parts/{name}.csv", 1.0, 1)
        frame = pd.read_csv(tmp_path / f"parts/{name}.csv")[["time", "vus"]]
        frame.rename(columns={"vus": name}).to_csv(tmp_path / f"parts/{name}.csv", index=False)
    said = refused("init", tmp_path / "parts", tmp_path / "parts", "--output", tmp_path / "x.yaml")
    assert re.search("expected one file for each run.*, found 2 files that are parts of one run", said)
    assert "--output: expected a file such as params/NAME.yaml" in refused("init", *builds, "--output", "x.txt")


START, LENGTH_S, STEP_S = {"base": 1_733_911_200, "new": 1_733_925_600}, 900, 5
BOUNDS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.2)
HANDLERS = {"/cart": 0.02, "/items": 0.03, "/search": 0.04}
FAULTY = 0.02
"""Share of requests that fail in the new build."""


def window(side: str) -> tuple[str, str]:
    times = (dt.datetime.fromtimestamp(START[side] + at, dt.UTC) for at in (0, LENGTH_S))
    start, end = (each.isoformat().replace("+00:00", "Z") for each in times)
    return start, end


def samples() -> str:
    rng, truth = np.random.default_rng(7), Truth()
    for side, start in START.items():
        times = start + np.arange(0.0, LENGTH_S + 1, STEP_S)
        app, n = {"instance": "app-0:80", "job": "shop"}, times.size
        for handler, seconds in HANDLERS.items():
            level = seconds * (1.3 if (side, handler) == ("new", "/search") else 1.0)
            drawn = level * rng.lognormal(0, 0.1, (n, 100))
            of, counts = {"handler": handler, **app}, np.arange(n) * 100.0 + 100
            for bound in (*BOUNDS, np.inf):
                le = "+Inf" if np.isinf(bound) else str(bound)
                shares = np.cumsum((drawn <= bound).sum(axis=1)).astype(float)
                truth.add("http_request_duration_seconds_bucket", times, shares, le=le, **of)
            truth.add("http_request_duration_seconds_count", times, counts, **of)
            truth.add("http_request_duration_seconds_sum", times, np.cumsum(drawn.sum(axis=1)), **of)
            bad = np.cumsum(rng.binomial(100, FAULTY if side == "new" else 0.0001, n)).astype(float)
            truth.add("http_requests_total", times, counts - bad, code="200", **of)
            truth.add("http_requests_total", times, bad, code="500", **of)
            truth.add("rpc_calls_total", times, counts - bad, status="OK", **of)
            truth.add("rpc_calls_total", times, bad, status="ERROR", **of)
            truth.add("pay_calls_total", times, counts, code="200" if side == "base" else "500", **of)
            for quantile in ("0.5", "0.99"):
                truth.add("db_query_seconds", times, np.full(n, seconds * float(quantile)), quantile=quantile, **of)
        truth.add("process_cpu_seconds_total", times, np.cumsum(rng.normal(2.5, 0.05, n)), **app)
        truth.add("process_cpu_seconds_total", times, np.arange(n) * 0.1, instance="p:9090", job="prometheus")
        truth.add("process_resident_memory_bytes", times, rng.normal(2e8, 1e6, n), **app)
        truth.add("node_cpu_seconds_total", times, np.arange(n) * 4.0, instance="n", job="node", mode="idle")
        truth.add("active_users", times, np.minimum(np.arange(n) * 5.0, 100.0), instance="k6", job="load")
        truth.add("active_connections_max", times, np.full(n, 50.0), **app)
        truth.add("queue_backlog", times, rng.normal(10, 0.2, n), **app)
        truth.add("moon_phase", times, np.full(n, 0.5), **app)
        truth.add("prometheus_ready", times, np.ones(n), **app)
        if side == "new":
            truth.add("new_feature", times, np.ones(n), **app)
            truth.add("orders_errors_total", times, np.arange(n) * 1.0, **app)
    return truth.text()


@pytest.fixture(scope="module", params=[run_prometheus, run_victoriametrics])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("discovery"), [samples()]) as url:
        yield url


def init(server: str, output: Path, **times: tuple[str, str]) -> Result:
    windows = {side: times.get(side, window(side)) for side in START}
    options = [text for side in START for text in (f"--{side}", *windows[side])]
    return command("init", "--prometheus", server, *options, "--output", output)


@pytest.mark.slow
def test_names_and_labels_become_queries(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, native = Client.listing, {"active_connections_max": [{"type": "histogram"}]}  # promtool cannot make one
    monkeypatch.setattr(Client, "listing", lambda *asked: native if "metadata" in asked[1] else ask(*asked))
    done = init(server, tmp_path / "x.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    catalogue = read_catalogue(str(tmp_path / "metrics/x.yaml"))
    queries = {each.slug: each.query for each in catalogue.metrics}
    time, every = "http_request_duration_seconds", "http_requests_total"
    good, asked = f'{every}{{code!~"{BAD}"}}', f"sum(rate({every}[{{rate}}]))"
    written = {
        "http-request-duration-seconds-mean": f"sum(rate({time}_sum[{{rate}}])) / sum(rate({time}_count[{{rate}}]))",
        "http-request-duration-seconds-p99": f"histogram_quantile(0.99, sum(rate({time}_bucket[{{rate}}])) by (le))",
        "active-connections-max-p99": "histogram_quantile(0.99, sum(rate(active_connections_max[{rate}])))",
        "successful-http-requests-total": f"100 * (sum(rate({good}[{{rate}}])) or 0 * {asked}) / {asked}",
        "cpu": "sum(rate(process_cpu_seconds_total{{app}}[{rate}])) * 100",
    }
    assert {slug: queries[slug] for slug in written} == written
    assert catalogue.variables == {"app": 'job=~"shop"'}
    assert {"host-cpu", "process-resident-memory-bytes", "queue-backlog"} <= {*queries}
    assert catalogue.load.slug == "active-users"
    (table,) = catalogue.label_tables
    assert table.top_bucket == BOUNDS[-1]
    assert (table.label, table.unit, table.average) == ("handler", "seconds", "http-request-duration-seconds-mean")
    comments = (tmp_path / "x.yaml").read_text("utf-8")
    for text in ("moon_phase: neither", "prometheus_ready: of the server", "new_feature: "):  # VictoriaMetrics: by day
        assert f"#   {text}" in comments
    assert "Load: active_users.\n" in done.stdout
    assert "Rows by handler (3): /cart, /items, /search.\n" in done.stdout
    source = bc.read_params(tmp_path / "x.yaml").source
    assert (source.step_s, source.rate_s) == (5.0, 45.0)


@pytest.mark.slow
def test_the_report_finds_what_was_planted(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").symlink_to(Path(__file__).parents[2] / "notebooks")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))  # where pulled recordings are kept
    assert init(server, tmp_path / "params/x.yaml").exit_code == 0
    done = command("report", tmp_path / "params/x.yaml", "--output", tmp_path / "report", "--no-graphs")
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "report/results.json").read_text("utf-8"))
    (test,) = results["tests"]
    rows = {row["label"]: row["delta_percent"] for row in test["labels"] if row["stat"] == "avg"}
    assert rows == pytest.approx({"/cart": 0, "/items": 0, "/search": 30}, abs=1)
    metrics = {row["slug"]: row["delta_percent"] for row in test["metrics"]}
    for name in ("successful-http-requests-total", "successful-rpc-calls-total"):
        assert metrics[name] == pytest.approx(-100 * FAULTY, abs=0.2)
    assert metrics["successful-pay-calls-total"] == -100
    levels = {row["slug"]: (row["base"], row["new"]) for row in test["metrics"]}
    assert levels["active-users"] == (100, 100)
    assert levels["db-query-seconds-p99"] == pytest.approx((0.0396, 0.0396))
    assert levels["orders-errors-total-per-second"] == pytest.approx((0, 0.2), abs=0.01)
    texts = [each["text"] for each in results["findings"] if not re.match("orders|Successful (rpc|pay)", each["text"])]
    assert any("/search" in each for each in texts[:5])


@pytest.mark.slow
def test_times_without_a_zone_and_windows_without_metrics_are_refused(server: str, tmp_path: Path) -> None:
    naive = init(server, tmp_path / "x.yaml", base=("2024-12-11T10:00:00", "2024-12-11T10:15:00"))
    expected = 'buildcompare: --base: start: expected a time with its zone, such as "2024-12-11T10:00:00Z", found'
    assert (naive.exit_code, naive.stderr.startswith(expected)) == (3, True)
    empty = init(server, tmp_path / "x.yaml", new=("2023-12-11T10:00:00Z", "2023-12-11T10:15:00Z"))
    assert empty.stderr == (
        f"buildcompare: --new: expected a window with metrics at {server}, found none from start to end\n"
    )
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "BASE and NEW, or --prometheus URL --base START END --new START END"),
        (["a", "b", "--base", "1", "2"], "BASE and NEW, or --prometheus"),
        (["--prometheus", "ftp://x", "--base", "a", "b", "--new", "a", "b"], "an http or https address"),
        (["--prometheus", "http://127.0.0.1:9", "--base", "a", "b", "--new", "a", "b"], "a time with its zone"),
    ],
)
def test_what_is_asked_wrongly_gives_one_line(arguments: list[str], told: str) -> None:
    assert told in refused("init", *arguments)
