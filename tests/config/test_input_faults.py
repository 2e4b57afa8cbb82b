"""A params file is right, or one message says what is not, as docs/input-faults.md has it for each input."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fuzzing
from buildcompare.comparison import reading
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.errors import InputError
from buildcompare.config.params import FILE_KEYS, Comparison, Run, Test, read_params
from buildcompare.config.yaml import yaml_text
from buildcompare.recordings.recording import LabelSummary, Recording, Series
from buildcompare.recordings.table import write_recording
from buildcompare.report import processes
from buildcompare.report import publish as run_report
from loadcalibrate.learn import calibrate
from support import refused, small_params, write_csv, write_params

TABLE = Path(__file__).parents[2] / "docs/input-faults.md"


@dataclass(frozen=True)
class Fault:
    text: str | bytes | None = None
    """The params file as written, where it is not just its keys."""
    edit: tuple[str, str] = ("", "")
    keys: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)
    """Keys of the last test, as `run` those of its new run."""
    run: dict[str, Any] = field(default_factory=dict)
    data: bytes | None = None
    """The contents of the data file that this run names."""
    files: dict[str, str] = field(default_factory=dict)
    output: str = "out"
    make: Callable[[Path, dict[str, Any]], object] = lambda folder, params: None
    """What else is done in the folder or with the params."""


FAULTS: dict[tuple[str, str], Fault] = {}


def fault(kind: str, words: str, **how: Any) -> None:
    assert (kind, words) not in FAULTS
    FAULTS[kind, words] = Fault(**how)


params = partial(fault, "params")
recording = partial(fault, "recording")
report = partial(fault, "report")


def named_file(key: str, words: str, text: str | None) -> None:
    fault(key, words, keys={key: "FOLDER/named"}, files={} if text is None else {"named": text})


def ledger(words: str, **entries: str) -> None:
    files = {f"ledger/{name}.json": text for name, text in entries.items()}
    fault("history", words, keys={"history": "FOLDER/ledger"}, files=files)


def table(rows: str) -> bytes:
    return f"timestamp,metric,value\n{rows}".encode()


def parquet(frame: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(frame, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def ltctl(**change: Any) -> bytes:
    report: dict[str, Any] = {"StartTime": "2024-01-01T00:00:00Z", "EndTime": "2024-01-01T01:00:00Z", "Graphs": []}
    report |= {key: {} for key in ("AvgStoreTimes", "P99StoreTimes", "AvgAPITimes", "P99APITimes")}
    return json.dumps(report | change).encode()


params("an empty file", text="")
params("not YAML", text="a: [b")
params("not UTF-8", text=b"\xff\xfe\xfa")
params("a control character", text="name: a\x01")
params("larger than 1 MB", text="# " + "x" * 1_000_000)
ALIASES = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
params("more than 20,000 values once aliases are followed", text="\n".join(["a0: &a0 [x, x]", *ALIASES]))
params("nested too deeply", text="[" * 100_000)
params("a tag that would construct an object", edit=("name: small", "name: !!python/object/apply:os.getcwd []"))
params("a value that its tag cannot hold", text="a: !!int abc")
MERGES = "{x: 1}"
for level in range(8):
    MERGES = f"{{<<: [&m{level} {MERGES}, {', '.join([f'*m{level}'] * 9)}]}}"
params("merges of merges", text=MERGES)
params("an escape sequence, spelled out", text='name: "\\e[31m"')
params("letters that turn the direction of writing", text='name: "\\u202e"')
params("a key of aliases of aliases", text="? [&a [x, x, x], &b [*a, *a, *a], &c [*b, *b, *b]]\n: 1")
params("a number in octal or base 60", edit=("users: 1000", "users: 0777"))
params("a password in a link", edit=("name: small", "name: small\ngrafana: {a: 'http://user:pass@host/'}"))
params("a key twice", edit=("name: small", "name: small\nname: small"))
params("an unknown key", edit=("name: small", "nmae: small"))
params("a missing key", edit=("new:\n  label: v1.1.0\n", ""))
params("a wrong type", edit=("users: 1000", "users: many"))
params("an unquoted version", edit=("label: v1.1.0", "label: 10.10"))


params("no such file", make=lambda folder, params: params.clear())
HOUR = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}
params("a window that ends before it starts", run={"start": HOUR["end"], "end": HOUR["start"]})
params("a time without its zone", run={"start": "2024-01-01T00:00:00", "end": HOUR["end"]})
params("two tests of one name", test={"name": "postgresql_bounded"})
params("a name that would leave the output folder", test={"name": "../../x"})
params("a device of Windows", test={"name": "nul.txt"})
params("a token in a link", keys={"grafana": {"x": "https://example.org/d/1?orgId=1&access%5Ftoken=abc"}})
params("a link that is not http(s)", keys={"grafana": {"x": "javascript:alert(1)"}})
params("a metric catalogue that is not there", keys={"metrics": "missing"})
params("a margin of a metric that the catalogue does not have", keys={"margins": {"cpu": 8}})
params("a margin of a metric that is nearly one", keys={"margins": {"cpu-utilisation": 8}})
params("a margin that is no size", keys={"margins": {"cpu-utilization": 0}})
params("planned runs that are no number of runs", keys={"planned_runs": 0})
SERVER = {"kind": "prometheus", "url": "http://127.0.0.1:9"}
params("a secret in a server's address", keys={"source": SERVER | {"url": "http://me:secret@127.0.0.1:9"}})
SECRET = {"auth": {"bearer_token_env": "my-secret"}}
params("a secret where the name of a variable belongs", keys={"source": SERVER | SECRET})
params("a header that decides where a request goes", keys={"source": SERVER | {"headers": {"Host": "other"}}})
params("more than 100 runs of a build", test={"base": [HOUR] * 101})
TIMES_ALONE = {"new": HOUR}
params("times alone where the source has files", keys={"source": {"kind": "grafana"}}, test=TIMES_ALONE)
NOT_SET = {"auth": {"bearer_token_env": "BUILDCOMPARE_TEST_NOT_SET"}}
params("a token's variable that is not set", keys={"source": SERVER | NOT_SET}, test=TIMES_ALONE)


recording("an empty file", data=b"")
report("larger than 32 MB, unpacked", data=b"{" * 32_000_001)
fault("pgbench", "a log over more than a week", data=b"0 199 2241 0 1175850568 95\n0 200 2465 0 1558176058 98\n")
recording("a truncated gzip", data=gzip.compress(table("1,rps,1\n2,rps,2\n"))[:-12])
recording("a CSV without the columns", data=b"a,b\n1,2\n")
recording("a CSV with more than 250 columns", data=b"timestamp,metric,value" + b",x" * 250 + b"\n")
LABELS = "".join(f",l{i}" for i in range(48))
MANY_LABELS = f"timestamp,metric,value{LABELS}\n1,rps,1{LABELS}\n".encode()
recording("a CSV with more than 47 columns of labels", data=MANY_LABELS)
recording("a name of two columns", data=b"time,rps,rps\n1,1,1\n")
recording("two columns of times", data=b"time,timestamp,rps\n1,1,1\n")
recording("a panel of Grafana's under another name", data=b"Time,Value\n1,1\n")
recording("a workbook", data=b"PK\x03\x04")
recording("a CSV in an old encoding", data="time,größe\n1,1\n".encode("latin-1"))
recording("a CSV without rows", data=table(""))
recording("a time that is none", data=table("noon,rps,1\n"))
recording("a value that is no number", data=table("1,rps,fast\n"))
recording("a day that may be a month", data=table("03/04/2024 10:00,rps,1\n"))
ZONES = "2024-01-01T00:00:00Z,rps,1\n2024-01-01T00:00:05,rps,1\n"
recording("a time without its zone beside one with it", data=table(ZONES))
recording("elapsed times in seconds or milliseconds", data=b"time,rps\n0,1\n5000,1\n10000,1\n")
recording("times that may be a spreadsheet's days", data=b"time,rps\n45637.00006,1\n45637.00012,1\n")
recording("a first column that may be an index", data=b",rps\n7,1\n8,1\n10,1\n11,1\n")
recording("a 12-hour clock", data=b"time,rps\n2024-12-11 12:59,1\n2024-12-11 01:00,1\n")
ZONED = b"time,metric,value,timezone\n2024-12-11 10:00,rps,1,EST\n"
recording("times in another zone, beside them", data=ZONED)
recording("two units of one value", data=b"time,Avg API times (ms)\n0,5 s\n")
recording("numbers that can be read in two ways", data=b"time;rps\n0;1,234\n5;2\n")
recording("decimal points beside decimal commas", data=b"time;rps\n0;0,5\n5;1.5\n")
recording("a value without a unit beside one with it", data=b"time,Avg API times\n0,5 ms\n5,6\n")
recording("a unit that its metric cannot have", data=b"time,Avg API times\n0,5 %\n")
recording("two values of one metric at one time", data=table("1,rps,1\n1,rps,2\n"))
recording("a row with more fields than the header", data=table("1,rps,1,\n"))
recording("a row with fewer fields", data=table("1,rps,1\n2,rps\n"))
recording("times in no unit since 1970", data=table("99999999999,rps,1\n"))
recording("more than 200 series to draw", data=table("".join(f"1,m{i},1\n" for i in range(201))))
recording("every value NaN", data=table("1,rps,NaN\n2,rps,\n"))
recording("a name longer than 1,000 characters", data=table(f"1,{'x' * 1_001},1\n2,rps,1\n"))
recording("a year that no test was in", data=table("9999-12-31T00:00:00Z,rps,1\n"))
recording("digits that other programs do not read", data=table("1,rps,１２\n"))
recording("a damaged Parquet", data=b"PAR1 and no more")
CORPUS = Path(__file__).parents[1] / "corpus"
recording("a Parquet with broken statistics", data=(CORPUS / "parquet-aborts-pyarrow").read_bytes())
LISTS = pa.table({"timestamp": [1.0], "metric": ["rps"], "value": [[1.0]]})
recording("a Parquet with lists for values", data=parquet(LISTS))
MANY = pa.table({"timestamp": pa.array(np.zeros(20_000_001))})
recording("a Parquet with more than 20 million values", data=parquet(MANY))
LONG = pd.DataFrame({"timestamp": [1.0], "metric": ["x" * 10_001], "value": [1.0]})
recording("a Parquet with names longer than 10,000 characters", data=parquet(pa.Table.from_pandas(LONG)))
NAMES = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 9_000]))
COPIES = pa.table({"timestamp": np.arange(20_000.0), "metric": NAMES, "value": np.ones(20_000)})
recording("a Parquet whose names take more than 100 MB written out", data=parquet(COPIES))
fault("labels", "a CSV without the columns", data=b"a,b\n1,2\n")
fault("labels", "one label twice", data=b"group,label,stat,value\napi,a,avg,1\napi,a,avg,2\n")
NOW_MS = 1_733_911_200_000
IN_PERCENT = {
    "title": "Avg API times",
    "yaxes": [{"format": "percent"}],
    "snapshotData": [{"datapoints": [[1, NOW_MS]]}],
}
fault("snapshot", "a panel in a unit that its metric cannot have", data=json.dumps({"panels": [IN_PERCENT]}).encode())
FIELDS = [{"type": "time", "values": [NOW_MS, NOW_MS + 1]}, {"type": "number", "values": [1, 2, 3]}]
MORE = {"title": "RPS", "snapshotData": [{"fields": FIELDS}]}
fault("snapshot", "more values than times", data=json.dumps({"panels": [MORE]}).encode())
LATE = {"title": "RPS", "snapshotData": [{"datapoints": [[1, 10**400]]}]}
fault("snapshot", "a time of hundreds of digits", data=json.dumps({"panels": [LATE]}).encode())
report("not JSON", data=b"<html>")
report("other JSON", data=b"{}")
report("a number of thousands of digits", data=b'{"a": ' + b"1" * 5_000 + b"}")
report("a label that is half a character", data=ltctl(AvgAPITimes={"\ud800": "1"}))
IN_2020 = [{"Name": "RPS", "Values": [[1577836800, "1"]]}]
report("a window beside its graphs", data=ltctl(Graphs=IN_2020, AvgAPITimes={"a": "1"}))
report("nested too deeply", data=b"[" * 100_000)
report("a metric without data, and no other", data=ltctl(Graphs=[{"Name": "RPS", "Values": []}]))
BACK = [{"Name": "RPS", "Values": [[2, "1"], [1, "1"]]}]
report("times that go back", data=ltctl(Graphs=BACK))
report("an end before its start", data=ltctl(EndTime="2023-01-01T00:00:00Z"))


recording("no such file", run={"recording": "FOLDER/missing.csv"})
recording("a folder", run={"recording": "FOLDER"})
recording("a path that no file can have", run={"recording": "a\0b"})
IN_2025 = {"start": "2025-01-01T00:00:00Z", "end": "2025-01-01T01:00:00Z"}
recording("a window that misses the data", run=IN_2025)
fault("artefacts", "no such file", run={"artefacts": ["FOLDER/nowhere"]})


def linked(folder: Path, params: dict[str, Any]) -> None:
    (folder / "left").mkdir()
    (folder / "left/link").symlink_to("/etc")


fault("artefacts", "a folder with a symbolic link", run={"artefacts": ["FOLDER/left"]}, make=linked)


def ours(kind: str, words: str, *, series: int = 1, summaries: int = 0, turned: int = 0) -> None:
    def make(folder: Path, params: dict[str, Any]) -> None:
        file = folder / "own.parquet"
        one = Series("rps", "RPS", "", np.array([1.0]), np.array([1.0]), role="label")
        labels = tuple(LabelSummary("api", "a", "avg", 1.0) for _ in range(summaries))
        write_recording(Recording((one,) * series, (0.0, 1.0), stop_known=True, label_summaries=labels), file)
        contents = bytearray(file.read_bytes())
        contents[len(contents) // 2] ^= turned
        file.write_bytes(contents)
        if kind == "recording":
            params["tests"][1]["new"].pop("labels")

    fault(kind, words, run={"recording": "FOLDER/own.parquet"}, make=make)


ours("recording", "a recording of ours with one bit turned", turned=1)
ours("recording", "a recording of more than 100,000 series", series=100_001)
ours("labels", "a second table beside a recording that holds one", summaries=1)


output = partial(fault, "output")
output("a folder with a results.json of somebody else's", files={"out/results.json": '{"mine": 1}'})
output("a folder that cannot be written", files={"file": "x"}, output="file/out")
output("a folder that holds other files", files={"home/letter.txt": "dear"}, output="home")
output("a file where the folder should be", files={"file": "x"}, output="file")
named_file("calibration", "no such file", None)
named_file("calibration", "a file that `calibrate` did not make", '{"groups": []}')
OTHERS = {"schema_version": 1, "method": 2, "metrics": "postgresql", "groups": []}
named_file("calibration", "one that was made with another catalogue", json.dumps(OTHERS))


def entry(name: str, **more: Any) -> str:
    test = {"name": "mysql_unbounded", "type": "unbounded"}
    known = {"name": name, "position": 1, "base": {"label": "a"}, "new": {"label": "b"}, "tests": [test], "source": "x"}
    return json.dumps({**known, **more})


NEGATIVE = {"name": "t", "type": "unbounded", "supported_users": {"base": -7, "new": 1}}
named_file("history", "a file where the folder should be", "x")
ledger("a file that is no entry", x="{")
ledger("an entry nested too deeply", x="[" * 100_000)
ledger("an unknown key in an entry", x=entry("x", dates=[]))
ledger("supported users that are no number of people", x=entry("x", tests=[NEGATIVE]))
ledger("a text that is half a character", x=entry("x", setup={"a": "\ud800"}))
ledger("an entry under another's name", x=entry("y"))
ledger("two entries at one place", x=entry("x"), y=entry("y"))
fault("history", "an address with a password", keys={"history": "s3://me:hidden@bucket/ledger"})
fault("history", "an address whose package is missing", keys={"history": "abfs://bucket/ledger"})


PACKED = {"ledger/entries.parquet": "PAR1 and nothing else"}
fault("history", "entries that version 0.2 packed", keys={"history": "FOLDER/ledger"}, files=PACKED)


def rows() -> list[tuple[str, str, str]]:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [(kind, words, seen) for kind, words, seen in cells if kind not in ("input", "---")]


def contents(folder: Path) -> dict[str, bytes]:
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def kernel_in_process(params: Comparison, **_: object) -> None:
    try:
        reading.read_recordings(reading.parameters(**params.model_dump(mode="json")))
    except InputError as error:
        raise run_report.KernelInputError(str(error)) from None
    raise AssertionError("every recording was read")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "is_safe", lambda: False)
    monkeypatch.setattr(run_report, "execute", kernel_in_process)


def test_the_table_and_the_faults_are_the_same() -> None:
    assert {(kind, words) for kind, words, _ in rows()} == set(FAULTS)
    assert len(rows()) >= 40


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "words", "seen"), rows(), ids=lambda text: text[:40])
def test_the_user_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: str, seen: str) -> None:
    if words == "a Parquet with broken statistics":  # pyarrow may abort on it
        monkeypatch.undo()
    how, params, file = FAULTS[kind, words], small_params(tmp_path / "data"), tmp_path / "params.yaml"

    def of_folder(keys: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(json.dumps(keys).replace("FOLDER", str(tmp_path))))

    for name, text in how.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    last = params["tests"][1]
    run = last["new"]
    run.update(of_folder(how.run))
    last.update(of_folder(how.test))
    params.update(of_folder(how.keys))
    if how.data is not None:
        (tmp_path / "fault.bin").write_bytes(how.data)
        if kind in ("report", "snapshot", "pgbench"):
            run.clear()
        run[kind] = str(tmp_path / "fault.bin")
        if kind == "recording":
            run.pop("labels")
    how.make(tmp_path, params)
    if params:
        assert how.edit[0] in yaml_text(params)
        written = how.text if how.text is not None else yaml_text(params).replace(*how.edit, 1)
        file.write_bytes(written if isinstance(written, bytes) else written.encode())
    output = tmp_path / how.output
    if not output.exists() and kind != "output":
        output.mkdir()
        (output / "results.json").write_text('{"schema_version": 1, "comparison": "x", "complete": true}')
    before = contents(output)
    said = refused("report", file, "--output", output)
    assert re.fullmatch("buildcompare: .*expected.*found.*\n", said)
    assert seen in said
    assert contents(output) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "key", ["tests[1].new.recording", "tests[1].new.labels", "tests[0].base[1].recording", "metrics", "calibration"]
)
def test_a_wrong_path_names_the_line_that_holds_it(tmp_path: Path, key: str) -> None:
    contents = small_params(tmp_path / "data", metrics="mattermost")
    bounded, unbounded = contents["tests"]
    bounded["base"] = [bounded["base"], dict(bounded["base"])]
    holders = {"tests[1].new": unbounded["new"], "tests[0].base[1]": bounded["base"][1], "": contents}
    parent, _, name = key.rpartition(".")
    holders[parent][name] = "not/there.yaml"
    file = write_params(tmp_path / "params.yaml", contents)
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "not/there.yaml" in text)
    said = refused("report", file, "--output", tmp_path / "out")
    place = re.escape(f"{file}: {key} (line {line})")
    assert re.fullmatch(rf"buildcompare: {place}: .*not/there.yaml: expected .*found no such file\n", said)


def test_without_a_file_a_wrong_path_names_its_key(tmp_path: Path) -> None:
    contents = small_params(tmp_path / "data")
    contents["tests"][1]["base"]["recording"] = "not/there.csv"
    with pytest.raises(InputError, match=r"^tests\[1\]\.base\[0\]\.recording: not/there\.csv: expected a recording"):
        reading.read_recordings(reading.parameters(**contents))


def test_a_wrong_path_of_a_repeated_run_names_the_line_of_the_groups(tmp_path: Path) -> None:
    runs = [{"recording": "not/there.csv"}, {"recording": "nor/there.csv"}]
    groups = [{"name": "a", "type": "bounded", "runs": runs}]
    file = write_params(tmp_path / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups})
    with pytest.raises(InputError, match=r"groups\.yaml: groups\[0\]\.runs\[0\]\.recording \(line 7\): not/there\.csv"):
        calibrate(file, tmp_path / "made.json")


EXAMPLE = fuzzing.seed("params-design").decode()

BAD = [
    # what stands in the file, what to put there, key, expected, found; docs/input-faults.md has more
    ("users: 20000", "users: -1", "tests[0].users", "greater than 0", "-1"),
    ("type: bounded", "type: bound", "tests[1].type", "'bounded', 'unbounded' or 'benchmark'", "'bound'"),
    ("[{report: runs/base-1.out.gz}", "[{reprt: x}", "tests[1].base[0].reprt", "report, recording", "reprt"),
    ("name: mysql_bounded", "name: POSTGRESQL_unbounded", "tests", "a different `name`", "twice"),
    ("Users: 7500", "Users: 7.50", "setup.Users", "text", "7.50, which YAML reads as 7.5"),
    ("comments: []", "comments: hello", "comments", "a list", "'hello'"),
    ("comments: []", "comments: [yes]", "comments[0]", "text", "'yes', which YAML reads as True"),
    ('kind: prometheus, url: "http://localhost:9090"', "kind: prometheus", "source", "`url`", "no `url`"),
    ("rest_s: 2", 'rest_s: "2"', "coordinator.rest_s", "a number", "'2'"),
    ("rest_s: 2", "rest: 2", "coordinator.rest", "users_inc, users_dec, rest_s", "unknown key"),
    ("{report: runs/new-1.out.gz}", "{}", "tests[1].new[0]", "`report`, `recording`", "none of them"),
    ("8, rest_s", "true, rest_s", "coordinator.users_dec", "a whole number", "True"),
]


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXAMPLE)
    params = read_params(file)
    assert params.name == "v10.4.0-rc1"
    assert [test.name for test in params.tests] == ["postgresql_unbounded", "mysql_bounded"]
    window = params.tests[0].base[0].window
    assert (window[1] - window[0]).total_seconds() == 113 * 60
    assert [run.report for run in params.tests[1].base] == ["runs/base-1.out.gz", "runs/base-2.out.gz"]
    assert list(params.setup.items())[1] == ("Users", "7500")
    assert params.coordinator.fastest_fall == 4.0
    file.write_text(EXAMPLE.replace("name: v10.4.0-rc1\n", "", 1))
    assert read_params(file).name == "x", "without a name the file names the comparison"


def test_empty_optional_keys_mean_none(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(re.sub(r"(?m)^(comments|action_items|coordinator):.*$", r"\1:", EXAMPLE))
    params = read_params(file)
    assert (params.comments, params.action_items, params.coordinator.users_inc) == ([], [], 8)
    file.write_text("- a\n- b\n")
    with pytest.raises(InputError, match="expected a mapping of keys to values, found a list"):
        read_params(file)


@pytest.mark.parametrize(("there", "instead", "key", "expected", "found"), BAD, ids=[bad[1][:40] for bad in BAD])
def test_a_fault_is_named(tmp_path: Path, there: str, instead: str, key: str, expected: str, found: str) -> None:
    assert there in EXAMPLE
    (tmp_path / "x.yaml").write_text(EXAMPLE.replace(there, instead, 1))
    said = rf"x\.yaml: .*{re.escape(key)}.*: expected .*{re.escape(expected)}.*, found .*{re.escape(found)}"
    with pytest.raises(InputError, match=said):
        read_params(tmp_path / "x.yaml")


def test_the_template_is_right_once_its_two_paths_are(project: Path, tmp_path: Path) -> None:
    template = (project / "docs/template.yaml").read_text("utf-8")
    file = tmp_path / "v1.1.0.yaml"
    for side in ("base", "new"):
        template = template.replace(f"runs/{side}.csv", str(tmp_path / f"{side}.csv"))
        write_csv(tmp_path / f"{side}.csv", {"rps": np.linspace(9.0, 10.0, 99)})
    file.write_text(template, "utf-8")
    params = read_params(file)
    assert (params.name, params.comments, params.setup, params.history) == ("v1.1.0", [], {}, None)
    assert [len(runs) for runs in read_recordings(params)["postgresql_bounded"].values()] == [1, 1]


def test_the_template_shows_every_key(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    template = (project / "docs/template.yaml").read_text("utf-8")
    file.write_text(re.sub(r"(?m)^( *)# (?=[a-z_]+: )", r"\1", template), "utf-8")
    params = read_params(file)
    assert params.model_fields_set == set(Comparison.model_fields)
    assert params.tests[0].model_fields_set == set(Test.model_fields)
    elsewhere = {*FILE_KEYS.values(), "values", "session", "url"}  # other files, benchmarks; a server of its own
    assert params.tests[0].base[0].model_fields_set == set(Run.model_fields) - (elsewhere - {"recording"})
    assert len(template.splitlines()) < 40
