"""What is pulled from a server is kept, pulled again only when something changed, and whole or absent."""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import buildcompare as bc
import prometheus_server as world
from buildcompare.comparison import analysis as workbench
from buildcompare.comparison import reading
from buildcompare.report import sections
from prometheus_server import LENGTH_S, NEW_START, Exchange, Fault, Prometheus, Proxy, Servers
from pulling import at, params, raw
from support import command, sure, write_params


@pytest.fixture
def prometheus(servers: Servers) -> Prometheus:
    return servers("prometheus")


def comparison(folder: Path, contents: dict[str, Any]) -> bc.Comparison:
    return bc.read_params(write_params(folder / "pulled.yaml", contents))


def answers(status: int, body: str = "", where: str = "") -> Fault:
    def fault(exchange: Exchange) -> None:
        if where in exchange.handler.path:
            exchange.status, exchange.body = status, body.encode()

    return fault


def queries(proxy: Proxy) -> int:
    return sum(path.startswith("/api/v1/query") for _, path, _, _ in proxy.seen)


def test_a_run_that_still_went_on_is_pulled_again(elsewhere: Path, proxy: Proxy) -> None:
    asked, counts = comparison(elsewhere, params(proxy.url)), [queries(proxy)]
    for _ in range(3):
        reading.read_recordings(asked)
        counts.append(queries(proxy))
        if len(counts) == 2:
            early = NEW_START + LENGTH_S - 60
            os.utime(elsewhere / "data/recordings/pulled/postgresql_bounded/new.parquet", (early, early))
    both, again, kept = np.diff(counts)
    assert (again, kept) == (both / 2, 0)
    now = time.time()
    with pytest.raises(bc.InputError, match="end: expected a time that is past"):
        bc.pull(proxy.url, at(now - 600), at(now + 600))


def test_what_was_pulled_is_not_pulled_again(elsewhere: Path, proxy: Proxy) -> None:
    asked = comparison(elsewhere, params(proxy.url))
    first = reading.read_recordings(asked)["postgresql_bounded"]
    once = queries(proxy)
    assert once > 10
    files = sorted(path.name for path in (elsewhere / "data/recordings/pulled/postgresql_bounded").iterdir())
    assert files == ["base.parquet", "new.parquet"]
    again = reading.read_recordings(asked)["postgresql_bounded"]
    assert queries(proxy) == once
    for side in ("base", "new"):
        pairs = zip(first[side][0].series, again[side][0].series, strict=True)
        assert all(a.values.tobytes() == b.values.tobytes() and a.labels == b.labels for a, b in pairs)
    reading.read_recordings(asked, refresh=True)
    assert queries(proxy) == 2 * once


@pytest.mark.parametrize("change", ["window", "step"])
def test_a_changed_question_is_asked_again(elsewhere: Path, proxy: Proxy, change: str) -> None:
    reading.read_recordings(comparison(elsewhere, params(proxy.url)))
    once = queries(proxy)
    changed = params(proxy.url, **({"step_s": 10} if change == "step" else {}))
    if change == "window":
        changed["tests"][0]["new"]["end"] = at(NEW_START + LENGTH_S - 60).isoformat()
    reading.read_recordings(comparison(elsewhere, changed))
    assert queries(proxy) == (2 * once if change == "step" else once + once // 2)


def test_an_interrupted_pull_goes_on_where_it_stopped(elsewhere: Path, proxy: Proxy) -> None:
    asked = comparison(elsewhere, params(proxy.url, threads=1))  # so that none is on its way when it ends
    whole = reading.read_recordings(asked)["postgresql_bounded"]["base"][0]
    one_run = queries(proxy) // 2
    folder = elsewhere / "data/recordings/pulled/postgresql_bounded"
    for file in folder.iterdir():
        file.unlink()
    proxy.seen.clear()
    proxy.faults = [*[None] * (one_run + 2), answers(401, "Unauthorized")]
    with pytest.raises(bc.InputError, match="401"):
        reading.read_recordings(asked)
    assert [path.name for path in folder.iterdir()] == ["base.parquet"]
    proxy.faults = []
    proxy.seen.clear()
    found = reading.read_recordings(asked)["postgresql_bounded"]
    assert queries(proxy) == one_run
    assert [s.values.tobytes() for s in found["base"][0].series] == [s.values.tobytes() for s in whole.series]


@pytest.mark.parametrize(
    ("status", "words"), [(400, "a query that the server accepts at"), (500, "expected an answer, found HTTP 500")]
)
def test_a_fault_names_the_test_the_build_the_run_and_the_query(
    elsewhere: Path, proxy: Proxy, status: int, words: str
) -> None:
    two = params(proxy.url)
    two["tests"].insert(0, {**two["tests"][0], "name": "earlier"})
    new = two["tests"][1]["new"]
    two["tests"][1]["new"] = [new, {**new, "end": at(NEW_START + LENGTH_S - 60).isoformat()}]
    pulled = queries(proxy)
    reading.read_recordings(comparison(elsewhere, {**two, "tests": two["tests"][:1]}))
    one_run = (queries(proxy) - pulled) // 2
    fails = answers(status, where="go_goroutines")
    proxy.faults = [*[None] * (2 * one_run), fails]  # the second run of the second test's new build
    with pytest.raises(bc.InputError if status == 400 else bc.SourceError) as caught:
        reading.read_recordings(comparison(elsewhere, two))
    said = str(caught.value)
    assert said.startswith("tests[1].new[1] (postgresql_bounded, new, run 2): query of graph goroutines-in-use: ")
    assert words in said
    assert proxy.url in said


def test_what_was_not_pulled_is_not_replaced(elsewhere: Path, prometheus: Prometheus, project: Path) -> None:
    bundled = project / "data/recordings/v10.4.0-rc1/mysql_bounded/base.parquet"
    place = elsewhere / "data/recordings/pulled/postgresql_bounded/base.parquet"
    place.parent.mkdir(parents=True)
    place.write_bytes(bundled.read_bytes())
    with pytest.raises(bc.InputError, match="pulled recording: expected a recording that was pulled before"):
        reading.read_recordings(comparison(elsewhere, params(prometheus.url)))
    assert place.read_bytes() == bundled.read_bytes()


def test_a_pull_ends_with_an_exit_code_and_is_whole_or_absent(elsewhere: Path, proxy: Proxy) -> None:
    file = write_params(elsewhere / "params/pulled.yaml", params(proxy.url))
    for status, kind, code, words in (
        (401, "", 3, "source.auth"), (422, "execution", 3, "(execution): so"),
        (500, "internal", 4, "HTTP 500 (internal): so"), (503, "timeout", 4, "HTTP 503 (timeout): so"),
    ):  # fmt: skip
        body = json.dumps({"status": "error", "errorType": kind, "error": "so"})
        proxy.faults = [*[None] * 5, answers(status, body if kind else "")]  # some answers came before
        done = command("pull", file)
        assert (done.exit_code, words in done.output) == (code, True), done.output
        assert not [path for path in (elsewhere / "data").rglob("*") if path.is_file()]
    proxy.faults = []
    assert command("pull", file).exit_code == 0
    assert len([*(elsewhere / "data").rglob("*.parquet")]) == 2


def test_results_name_the_servers_and_what_they_said(elsewhere: Path, proxy: Proxy) -> None:
    def warned(exchange: Any) -> None:
        exchange.body = exchange.body[:-1] + b',"warnings":["<b>a store did not answer</b>"]}'

    proxy.faults = [*[warned] * 5, None]  # of the first run
    asked = comparison(elsewhere, params(proxy.url))
    bench = bc.compare(asked)
    base, new = (sure(runs[0].server) for runs in bench.results.tests[0].runs)
    assert (base.url, base.version) == (proxy.url, new.version)
    assert (base.warnings, new.warnings) == (["<b>a store did not answer</b>"], [])
    assert set(base.counter_resets.values()) == {0}
    assert new.counter_resets == {
        "mattermost_process_cpu_seconds_total": 0,
        "mattermost_http_requests_total": 1,
        "mattermost_db_store_time_count": 0,
        "mattermost_api_time_count": 0,
    }
    kinds = {finding.kind: finding.evidence for finding in bench.results.findings}
    assert "server_versions" not in kinds
    resets = {"mattermost_http_requests_total": 1}
    assert kinds["counter_resets"] == {"side": "new", "run": 1, "runs": 1, "resets": resets}
    shown = str(sections.provenance(bench).html)
    assert f"{base.kind} {base.version} at {proxy.url}" in shown
    assert "&lt;b&gt;a store did not answer&lt;/b&gt;" in shown
    assert "mattermost_http_requests_total: 1" in shown
    jsonschema.Draft202012Validator(json.loads(command("schema").stdout)).validate(json.loads(bench.to_json()))


def test_an_alert_and_an_error_rate_may_share_a_slug(elsewhere: Path, prometheus: Prometheus) -> None:
    catalogue = {"metrics": [{"name": "Goroutines", "slug": "twice", "query": "sum(go_goroutines)"}],
                 "alerts": [{"name": "A", "slug": "twice", "threshold": 1, "query": "vector(1)"}],
                 "error_rates": [{"name": "E", "slug": "twice", "query": "vector(2)"}]}  # fmt: skip
    (elsewhere / "c.yaml").write_text(json.dumps(catalogue))
    asked = comparison(elsewhere, {**params(prometheus.url), "metrics": "c.yaml"})
    reading.read_recordings(asked)
    bench = bc.compare(asked)
    [kept] = bench.recordings["postgresql_bounded"]["base"]
    assert {s.role: (s.metric, s.name) for s in kept.series} == {
        "graph": ("twice", "Goroutines"), "alert": ("twice", "A"), "error": ("twice", "E")
    }  # fmt: skip
    assert {s.role: float(s.values[0]) for s in kept.series if s.role != "graph"} == {"alert": 1, "error": 2}
    assert [metric.slug for metric in bench.results.tests[0].metrics] == ["twice"]


def test_builds_on_different_servers_are_a_warning_and_an_odd_provenance_breaks_nothing(
    elsewhere: Path, servers: Servers
) -> None:
    contents = params(servers("prometheus").url)
    contents["tests"][0]["new"]["url"] = servers("victoriametrics").url
    asked = comparison(elsewhere, contents)
    pulled = reading.read_recordings(asked)
    bench = workbench.analyse(asked, pulled)
    [finding] = [finding for finding in bench.results.findings if finding.kind == "server_versions"]
    assert finding.severity == "warning"
    assert re.fullmatch(r"prometheus 2\S+", *finding.evidence["base"])
    assert finding.evidence["new"] == ["victoriametrics v1.130.0"]
    (base,) = pulled["postgresql_bounded"]["base"]
    for odd in ({}, {"server": 5}, {"server": {"kind": "x"}}, {"queries": "abc"}, {"warnings": [1]}):
        pulled["postgresql_bounded"]["base"] = [replace(base, provenance=odd and {**base.provenance, **odd})]
        runs = workbench.analyse(asked, pulled).results.tests[0].runs
        assert (runs.base[0].server, runs.new[0].server is None) == (None, False)


@pytest.mark.slow
def test_an_archived_folder_is_served_as_a_copy(project: Path, tmp_path: Path) -> None:
    world.needed("make", "make")
    archive = tmp_path / "data"
    with world.run_prometheus(tmp_path, ["# TYPE up gauge\nup 1 1577836800\nup 2 1577836805\n# EOF\n"]):
        pass  # it leaves its folder
    before = {str(path): path.read_bytes() for path in sorted(archive.rglob("*")) if path.is_file()}
    port = world.free_port()
    make, url = ["make", "prometheus", f"DATA={archive}", f"PORT={port}"], f"http://127.0.0.1:{port}"
    with world.running(make, tmp_path / "log", f"{url}/-/ready", project):
        assert [row["values"] for row in raw(url, "up", 1577836805, 1577836805, 5)] == [[[1577836805, "2"]]]
    assert {str(path): path.read_bytes() for path in sorted(archive.rglob("*")) if path.is_file()} == before
