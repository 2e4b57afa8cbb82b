"""Results handed on: OpenMetrics text that Prometheus takes, packets that a statsd receives."""

import math
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import buildcompare as bc
from buildcompare.results import Results, dumps
from labmatrix.params import check_variants
from labmatrix.results import of_results
from loadexport.export import PACKET_BYTES, openmetrics, packets, read_results, statsd_lines
from programs import statsd_exporter_program
from prometheus_server import free_port, needed, running
from support import command, refused

HOSTILE = 'v1 "quoted" \\ back\nline'


run = partial(command, "export")


@pytest.fixture(scope="module")
def file(bundled: Callable[[str], Path]) -> Path:
    return bundled("v10.4.0-rc1") / "results.json"


@pytest.fixture(scope="module")
def results(file: Path) -> Results:
    return read_results(file)


def test_openmetrics_holds_every_number_that_results_hold(file: Path, results: Results, tmp_path: Path) -> None:
    out = tmp_path / "out.prom"
    done = run(file, "--openmetrics", out)
    assert done.exit_code == 0, done.stderr
    found = {
        (sample.name.removeprefix("buildcompare_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(out.read_text("utf-8"))
        for sample in family.samples
    }
    of = {"comparison": results.comparison}
    assert found["verdict", frozenset({**of, "verdict": results.verdict}.items())] == 1
    assert sum(value for (name, _), value in found.items() if name == "verdict") == 1
    judged = 0
    for test in results.tests:
        of_test = {**of, "test": test.name}
        rows = [row.deciding or row for row in test.metrics]
        for status in bc.Status:
            count = found["test_metrics", frozenset({**of_test, "status": status}.items())]
            assert count == sum(row.status == status for row in rows)
        for metric, row in zip(test.metrics, rows, strict=True):
            labels = {**of_test, "metric": metric.slug, "decided_by": metric.decided_by}
            assert found["metric_status", frozenset({**labels, "status": row.status}.items())] == 1
            change = found.get(("metric_change_ratio", frozenset(labels.items())))
            assert change == (None if row.delta_percent is None else pytest.approx(row.delta_percent / 100))
            if row.ci_low is not None and row.ci_high is not None:
                judged += 1
                for end, percent in (("low", row.ci_low), ("high", row.ci_high)):
                    value = found[f"metric_change_{end}_ratio", frozenset(labels.items())]
                    assert value == pytest.approx(percent / 100)
            if metric.unit == "seconds" and row.base is not None:
                assert found["metric_seconds", frozenset({**labels, "build": "base"}.items())] == row.base
        if users := test.supported_users:
            assert found["supported_users", frozenset({**of_test, "build": "new"}.items())] == users.new
    assert judged > 20


def test_a_matrix_hands_on_levels_and_changes_of_its_variants() -> None:
    azbench = bc.compare_variants(bc.read_variants("params/azbench.yaml")).results
    runs = [(name, turn, n) for name, n in (("old", 2000.0), (HOSTILE, 2600.0)) for turn in (0.99, 1.0, 1.01)]
    given = {
        "name": "x", "factors": {"v": ["old", HOSTILE]}, "baseline": {"v": "old"},
        "operations": {"time": {"unit": "ms", "better": "lower", "margin_percent": 5.0},
                       "size": {"unit": "rows", "better": "higher", "gate": False}},
        "runs": [{"levels": {"v": name}, "values": {"time": n * turn, "size": n}} for name, turn, n in runs],
    }  # fmt: skip
    repeated = bc.compare_variants(check_variants(given)).results
    for results in (azbench, repeated):
        text = openmetrics(results)
        checked = subprocess.run([needed("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")
        found = {
            (sample.name.removeprefix("buildcompare_variant_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }
        rows = of_results(results).beside_baseline
        assert len(rows) == sum(key[0] == "change_ratio" for key in found)
        for row in rows:
            key = (results.comparison, row.operation, row.variant)
            assert found["change_ratio", *key] == pytest.approx(row.delta_percent / 100)
            assert found.get(("change_low_ratio", *key)) == (None if row.ci_low is None else row.ci_low / 100)
    assert found["seconds", "x", "time", "old"] == pytest.approx(2.0, rel=1e-4)
    assert found["value", "x", "size", "rows", HOSTILE] == pytest.approx(2600)
    assert found["change_high_ratio", "x", "time", HOSTILE] > 0.3
    lines = statsd_lines(azbench)
    variant = "ephemeral, none (D4s_v3, scale 120)"
    level = next(row.values["tps"] for row in of_results(azbench).runs if row.variant == variant)
    assert f"buildcompare.azbench.tps.ephemeral_none_D4s_v3_scale_120_.variant_value:{level:.10g}|g" in lines
    names = [line.split("\n")[-1].partition(":")[0] for line in lines]
    assert len({*names}) == len(names)


def test_packets_pass_and_replace_what_statsd_holds(results: Results) -> None:
    sent = [*packets(statsd_lines(results))]
    assert max(map(len, sent)) <= PACKET_BYTES
    assert len(sent) > 3
    lines = b"\n".join(sent).decode().splitlines()
    assert f"buildcompare.v10_4_0-rc1.verdict.{results.verdict}:1|g" in lines
    negative = [line for line in lines if ":-" in line]
    assert negative
    for line in negative:  # "-5" takes five away from what statsd holds
        assert lines[lines.index(line) - 1] == f"{line.partition(':')[0]}:0|g"


def test_a_real_statsd_holds_the_numbers(file: Path, results: Results, tmp_path: Path) -> None:
    program, web, port = statsd_exporter_program(), free_port(), free_port()
    udp = f"--statsd.listen-udp=127.0.0.1:{port}"
    server = [str(program), f"--web.listen-address=127.0.0.1:{web}", udp, "--statsd.listen-tcp="]
    url = f"http://127.0.0.1:{web}"
    with running(server, tmp_path / "log", f"{url}/-/ready"):
        for _ in range(2):  # the second time zero and the number replace what is there
            done = run(file, "--statsd", f"127.0.0.1:{port}")
            assert (done.exit_code, f"{len(statsd_lines(results))} gauges sent" in done.stdout) == (0, True)
        lines = "\n".join(statsd_lines(results)).splitlines()
        received = taken(url, at_least=2 * len(lines))
    assert received["statsd_exporter_samples_total"] == 2 * len(lines)
    test = next(each for each in results.tests if each.supported_users)
    users = test.supported_users
    stem = f"buildcompare_v10_4_0_rc1_{test.name}_supported_users"
    assert received[f"{stem}_base"] == users.base
    judged = [(each.name, row.slug, row.deciding or row) for each in results.tests for row in each.metrics]
    falls = [each for each in judged if (each[2].delta_percent or 0) < 0]
    assert falls
    for test_name, slug, row in falls:
        name = f"buildcompare_v10_4_0_rc1_{test_name}_{slug.replace('-', '_')}_metric_change_ratio"
        assert received[name] == pytest.approx((row.delta_percent or math.nan) / 100)


def taken(url: str, *, at_least: int) -> dict[str, float]:
    found: dict[str, float] = {}
    until = time.monotonic() + 10
    while found.get("statsd_exporter_samples_total", 0) < at_least and time.monotonic() < until:
        time.sleep(0.1)
        found = {}
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    found[name.partition("{")[0]] = found.get(name.partition("{")[0], 0.0) + float(value)
    return found


def test_targets_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "results.json"  # never read where a target is at fault
    wrong = {
        "nowhere": "expected HOST:PORT",
        "host:0": "expected HOST:PORT",
        "host:99999": "expected HOST:PORT",
        "udp://host:8125": "expected HOST:PORT",
        "no-such-host.invalid:8125": "expected a host that can be found, found no-such-host.invalid",
        f"{'x' * 300}:1": "expected a host that can be found",
    }
    for target, said in wrong.items():
        assert re.search(f"--statsd.*{said}", refused("export", missing, "--statsd", target))
    told = refused("export", missing, "--openmetrics", tmp_path / "none/out.prom")
    assert "--openmetrics: expected a file that can be written" in told
    told = refused("export", missing, "--openmetrics", tmp_path / "out.prom")
    assert f"{missing}: expected the results.json of a report" in told
    assert ([*tmp_path.iterdir()], run(missing).exit_code) == ([], 3)


def test_what_is_no_results_file_is_refused(tmp_path: Path, results: Results) -> None:
    other, out = tmp_path / "results.json", tmp_path / "out.prom"
    for text, said in (("{}", "field required"), ("[", "json"), (dumps(results).replace('"pass"', '"maybe"'), "input")):
        other.write_text(text, "utf-8")
        done = run(other, "--openmetrics", out)
        assert (done.exit_code, out.exists()) == (3, False)
        assert re.search(f"{re.escape(str(other))}.*{said}", done.stderr)
