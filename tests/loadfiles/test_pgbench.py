"""What pgbench prints, of every version since 9.6 and of the one installed, and what is no output of it."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
import fuzzing
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source
from buildcompare.config.yaml import checked
from buildcompare.recordings.sources import record
from support import sure

V96, V15, V17, LIMITED = (fuzzing.seed(f"pgbench-{name}").decode() for name in ("9.6", "15.4", "17.2", "limits"))
V15 = V15.replace(" (including failures)", "")
V14 = re.sub("number of failed.*\n|maximum.*\n", "", V15.replace("15.4", "14.9"))
V13 = V96.replace("query mode: simple", "partition method: hash\npartitions: 4\nquery mode: prepared")
V95 = V96.replace("average =", "average:").replace("stddev =", "stddev:").replace("<builtin: TPC-B (sort of)>", "TPC-B")
RECONNECTING = V14.replace("without initial connection time", "including reconnection times").replace(
    "initial", "average"
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


def recorded(*files: str) -> bc.Recording:
    run, source = checked(Run, {"pgbench": [*files]}), checked(Source, {"kind": "pgbench"})
    return record(run, source, read_catalogue("pgbench"))


def values(file: Path | str) -> dict[str, list[float]]:
    return {series.metric: series.values.tolist() for series in bc.read(file, catalogue="pgbench").series}


@pytest.mark.parametrize(
    ("text", "tps", "latency", "others"),
    [
        (V96, 622.977698, 0.015844, {"tps including connections": 618.764555, "scale": 10, "transactions": 10000}),
        (V13, 622.977698, 0.015844, {"partitions": 4, "query mode": "prepared"}),
        (V14, 40086.123456, 0.0002, {"initial connection time": 0.012345, "clients": 8, "duration": 30}),
        (V15, 40086.123456, 0.0002, {"failed transactions": 12, "most tries": 3}),
        (V17, 40086.123456, 0.0002, {"failed transactions": 12, "threads": 4}),
        (V95, 622.977698, 0.015844, {"script": "TPC-B", "latency stddev": 0.002715}),
        (LIMITED, 40086.123456, 0.0002, {
            "serialization failures": 7, "deadlock failures": 4, "other failures": 1, "retried transactions": 40,
            "retries": 55, "skipped transactions": 9, "late transactions": 31, "schedule lag": 1.1e-5,
        }),
        (RECONNECTING, 40086.123456, 0.0002, {"average connection time": 0.012345}),
    ],
    ids=["9.6", "13", "14", "15", "17", "9.5", "with limits and tries", "with -C"],
)  # fmt: skip
def test_a_summary_of_each_version(out: Path, text: str, tps: float, latency: float, others: dict[str, object]) -> None:
    out.write_text(text)
    (run,) = bc.pgbench_runs(out).to_dict("records")
    assert (run["tps"], run["latency average"]) == pytest.approx((tps, latency), rel=1e-12)
    assert {key: run[key] for key in others} == pytest.approx(others)


def test_several_runs_with_text_around_them_and_without_headers(out: Path) -> None:
    again = "scaling factor: 10\n" + V96.split("\n", 2)[2]  # no header, and the scaling factor pasted twice
    out.write_text(f"#### noop\n\nbench 1\n```\n{V96}```\nSome words: not pgbench's.\n```\n{again}\n\n{V14}```\n")
    runs = bc.pgbench_runs(out)
    assert runs["scale"].tolist() == [10, 10, 50]
    begun = [out.read_text().splitlines()[line - 1] for line in runs["line"]]
    assert [line.split(":")[0] for line in begun] == ["transaction type", "scaling factor", "transaction type"]
    with pytest.raises(
        bc.InputError, match=r"out\.txt: line 23: expected one run of pgbench, found 3 \(lines 6, 23, 40"
    ):
        bc.read(out)


def test_progress_and_logs_of_each_version(out: Path) -> None:
    out.write_text(
        "progress: 1.0 s, 600.0 tps, lat 2.000 ms stddev 1.000\n"  # 9.3 to 14
        "progress: 2.0 s, 0.0 tps, lat -nan ms stddev -nan, lag -nan ms, 12 skipped\n"
        "progress: 3.0 s, 0.0 tps, lat 0.000 ms stddev 0.000, 0 failed\n"  # from 15 on
        "progress: 4.0 s, 300.0 tps, lat 4.000 ms stddev 1.000, 1 failed, lag 0.100 ms, 2 skipped,"
        " 3 retried, 5 retries\n"
    )
    found = values(out)
    assert found["tps"] == [600, 0, 0, 300]
    assert found["latency-average"] == pytest.approx([0.002, np.nan, np.nan, 0.004], nan_ok=True)
    for more in ("", " 0 0 0 0", " 9 9 9 9 3", " 0 0 0 0 0 0 0 0 0", " 0 0 0 0 0 1 2 0 0 0"):  # 9.4, -R, -L, 15, 19
        lines = (f"{1795363970 + 5 * i} {n} {n * 2000} 9 1 9{more}\n" for i, n in enumerate((500, 0, 250)))
        out.write_text("".join(lines))
        found = values(out)
        assert found["tps"] == [100, 0, 50]
        assert found["latency-average"] == pytest.approx([0.002, np.nan, 0.002], nan_ok=True)
    undone = ["1000", "skipped", "failed", "serialization", "deadlock", "other"]
    out.write_text("".join(f"0 {i} {undone[i % 6]} 0 {1795363970 + i // 6} 0 17 1\n" for i in range(36)))
    assert values(out)["tps"] == [1, 1, 1, 1]


@pytest.mark.slow
def test_the_installed_version(database: list[str], out: Path) -> None:
    command = [*database, "-n", "-c", "2", "-T", "3", "-P", "1", "-R", "200", "-L", "50", "-r", "postgres"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=database[-3], timeout=60)
    out.write_text(made.stderr + made.stdout)
    (run,) = bc.pgbench_runs(out).to_dict("records")
    assert (run["clients"], run["duration"], run["scale"]) == (2, 3, 1)
    assert run["tps"] == pytest.approx(run["transactions"] / 3, rel=0.2)
    recording = bc.read(out, catalogue="pgbench")
    tps = sure(recording.find("tps"))
    assert tps.times == pytest.approx([1, 2, 3][: tps.times.size], abs=0.2)  # a busy machine may not print the last
    assert tps.times.size >= 2
    assert tps.values.mean() == pytest.approx(run["tps"], rel=0.2)
    assert {each.metric for each in recording.measurements} >= {"tps", "latency-average", "schedule-lag"}


@pytest.mark.slow
def test_the_installed_versions_logs(database: list[str], tmp_path: Path) -> None:
    logs, running = {}, {}
    several = ("--aggregate-interval=1", "-c", "4", "-j", "2")
    for kind, more in {"transactions": (), "aggregates": several[:1], "threads": several}.items():
        prefix = f"{database[-3]}/{kind}"
        command = [*database, "-n", "-T", "5", "-R", "200", "-l", f"--log-prefix={prefix}", *more, "postgres"]
        with (tmp_path / kind).open("wb") as file:
            running[kind] = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, cwd=database[-3])
    for kind, process in running.items():
        assert process.wait(timeout=60) == 0
        logs[kind] = Path(database[-3]) / f"{kind}.*"
    for kind, log in logs.items():
        (run,) = bc.pgbench_runs(tmp_path / kind).to_dict("records")
        found = bc.read(log, catalogue="pgbench")
        known = {series.metric for series in found.series} - {"clients"}
        assert known == {"tps", "latency-average", "latency-stddev"}
        tps, latency = (sure(found.find(metric)) for metric in ("tps", "latency-average"))
        assert np.median(tps.values) == pytest.approx(run["tps"], rel=0.5)
        files = list(log.parent.glob(log.name))
        assert len(files) == 1 + (kind == "threads")
        if kind != "transactions":  # a busy machine may not come to the last interval: the log itself is the measure
            lines = [[line.split() for line in file.read_text().splitlines()] for file in files]
            length = min(map(len, lines))
            _, counts, sums, *_ = np.array([row for of in lines for row in of[:length]], dtype=np.float64).T
            assert tps.values.sum() == counts.sum()
            assert np.nansum(latency.values * tps.values) == pytest.approx(sums.sum() / 1e6)
    (each,) = bc.read(logs["transactions"], catalogue="pgbench").measurements
    (run,) = bc.pgbench_runs(tmp_path / "transactions").to_dict("records")
    assert each.values.size == run["transactions"]
    assert each.values.mean() == pytest.approx(run["latency average"], rel=0.02)


PROGRESS = "progress: 1.0 s, 618.8 tps, lat 15.844 ms stddev 2.715\n"
LOG = "0 1 1448 0 1795363972 850802\n"


def test_the_log_of_one_thread_of_several_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "log.4711", tmp_path / "log.4711.1"
    for client, each in enumerate((first, second)):
        each.write_text("".join(f"{client} {i} 1448 0 {1795363972 + i} 850802\n" for i in range(1, 30)))
    (tmp_path / "log.47112").write_text(LOG)  # of another run
    for each, other in ((first, second), (second, first)):
        said = rf'log\.4711\.\*"\]` in a params file\), found 1 of 2, without {other.name}'
        with pytest.raises(bc.InputError, match=said):
            bc.read(each)
    text = sorted("".join(each.read_text() for each in (first, second)).splitlines(), key=lambda line: line.split()[4])
    joined = tmp_path / "all.log"
    joined.write_text("\n".join(text) + "\n")
    one = recorded(str(joined))
    for several in ([str(first), str(second)], [f"{tmp_path}/log.4711", f"{tmp_path}/log.4711.*"]):
        run = recorded(*several)
        assert [series.values.tolist() for series in run.series] == [series.values.tolist() for series in one.series]
        assert (np.median(run.series[0].values), len(run.measurements[0].values)) == (2.0, 58)
        assert len(run.provenance["files"]) == 2
    assert run.series[-1].values.tolist() == [2.0] * run.series[-1].times.size, "clients"
    with pytest.raises(
        bc.InputError, match=r"log\.47112: line 1: expected each client in only one log of a run, found"
    ):
        recorded(f"{tmp_path}/log.4711*")
    second.write_text(LOG + "1 2 14\n")
    with pytest.raises(bc.InputError, match=r"log\.4711\.1: line 2: expected a line of a log of pgbench"):
        bc.read(f"{tmp_path}/log.4711?1", kind="pgbench")


def test_aggregates_of_threads_are_added_up(tmp_path: Path) -> None:
    start, step = 1795363970, 2
    counts = {"log.7": [10, 20, 0, 40, 50], "log.7.1": [1, 2, 0, 4]}
    for late, (name, of) in enumerate(counts.items()):
        lines = (
            f"{start + late + step * i} {n} {n * 1000 * (late + 1)} {n * 1000**2 * (late + 1) ** 2} 9 9\n"
            for i, n in enumerate(of)
        )
        (tmp_path / name).write_text("".join(lines))
    series = values(f"{tmp_path}/log.7*")
    assert series["tps"] == [5.5, 11.0, 0.0, 22.0]
    mean = (40 * 0.001 + 4 * 0.002) / 44
    assert series["latency-average"] == pytest.approx([mean, mean, np.nan, mean], nan_ok=True)
    squares = (40 * 0.001**2 + 4 * 0.002**2) / 44
    assert series["latency-stddev"][0] == pytest.approx(np.sqrt(squares - mean**2))
    (tmp_path / "out.txt").write_text(V14)
    run = recorded(f"{tmp_path}/out.txt", f"{tmp_path}/log.7*")
    assert sure(run.find("clients")).values.tolist() == [8.0] * 4
    assert {"tps", "latency-average"} <= {each.metric for each in run.measurements}
    for text, said in (
        ("1795363970 1 9 9 9 9\n1795363972 1 9 slow 9 9\n", "line 2: expected a line of a log"),
        ("1795363990 1 9 9 9 9\n1795363992 1 9 9 9 9\n", "differ by at most 2 intervals"),
        (LOG, "expected the same kind of log as"),
    ):
        (tmp_path / "log.7.1").write_text(text)
        with pytest.raises(bc.InputError, match=said):
            bc.read(f"{tmp_path}/log.7*")


MALFORMED = {
    "a summary that ends before its tps": (V14.partition("tps")[0], 2),
    "no number of clients": (V14.replace("number of clients: 8\n", ""), 2),
    "a tps that is no number": (V14.replace("40086.123456", "１２"), 11),
    "a tps without what it counts": (V14.replace(" (without initial connection time)", ""), 11),
    "a latency in seconds": (V14.replace("0.200 ms", "0.200 s"), 9),
    "two summaries run together": (V14.partition("tps")[0] + V14, 2),
    "a run that was aborted": (V14 + "pgbench: error: Run was aborted; the above results are incomplete.\n", 12),
    "progress that goes back": (PROGRESS + PROGRESS, 2),
    "a duration beyond all numbers": (V14.replace("30 s", "9" * 400 + " s"), 7),
    "a log in milliseconds": (LOG + "0 2 1448 0 1795363972850 802\n", 2),
    "aggregates in milliseconds": ("1795363978 4 2 1 2 1\n1795363979000 4 2 1 2 1\n", 2),
    "a log with a line cut off": (LOG + "0 2 14\n", 2),
    "a log of two kinds": (LOG + "1795363978 409 272729 194139779 293 1784\n", 2),
    "a log of a sample": ("".join(f"0 {i} 1448 0 {1795363972 + i} 850802\n" for i in range(1, 90, 3)), 1),
}  # fmt: skip


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_output_is_one_line_with_its_line_number(fault: str, out: Path) -> None:
    text, line = MALFORMED[fault]
    out.write_text(text)
    with pytest.raises(bc.InputError, match=rf"^{out}: line {line}: expected .+, found .+$"):
        bc.read(out, kind="pgbench")
