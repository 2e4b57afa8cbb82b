"""Walks the table of docs/input-faults.md: every fault happens, and the user sees what the table says."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buildcompare.calibration.learn import calibrate
from buildcompare.comparison import analysis as workbench
from buildcompare.config.errors import InputError
from buildcompare.config.yaml import yaml_text
from buildcompare.recordings.recording import LabelSummary, Recording, Series
from buildcompare.recordings.table import write_recording
from buildcompare.report import processes
from buildcompare.report import publish as run_report
from support import kernel_in_process, refused, small_params, write_params

TABLE = Path(__file__).parents[2] / "docs/input-faults.md"


@dataclass
class Given:
    """What the user gives: params, and the bytes of a data file that the last test's new run names."""

    folder: Path
    params: dict[str, Any]
    data: bytes | None = None
    text: str | bytes | None = None
    """The params file as written, where it is not just `params`."""
    output: Path = field(init=False)

    def __post_init__(self) -> None:
        self.output = self.folder / "out"

    @property
    def run(self) -> dict[str, Any]:
        return dict(self.params["tests"][1])["new"]  # type: ignore[no-any-return]

    def edit(self, there: str, instead: str) -> None:
        text = yaml_text(self.params)
        assert there in text
        self.text = text.replace(there, instead, 1)


Fault = Callable[[Given], object]
FAULTS: dict[tuple[str, str], Fault] = {}


def fault(kind: str, words: str) -> Callable[[Fault], Fault]:
    def register(make: Fault) -> Fault:
        assert (kind, words) not in FAULTS
        FAULTS[kind, words] = make
        return make

    return register


def params_text(words: str, text: str | bytes) -> None:
    fault("params", words)(lambda given: setattr(given, "text", text))


def params_edit(words: str, there: str, instead: str) -> None:
    fault("params", words)(lambda given: given.edit(there, instead))


def params_keys(words: str, kind: str = "params", **keys: Any) -> None:
    fault(kind, words)(lambda given: given.params.update(keys))


def last_test(words: str, **keys: Any) -> None:
    fault("params", words)(lambda given: given.params["tests"][1].update(keys))


def new_run(kind: str, words: str, **keys: Any) -> None:
    """Keys of a run; `{}` in a path is the folder of the test."""
    fault(kind, words)(lambda given: given.run.update(json.loads(json.dumps(keys).replace("{}", str(given.folder)))))


def pulled(words: str, url: str = "http://127.0.0.1:9", **source: Any) -> None:
    params_keys(words, source={"kind": "prometheus", "url": url, **source})


def named_file(key: str, words: str, text: str | None) -> None:
    """A key of the params that names a file of this text; None: no such file."""

    def make(given: Given) -> None:
        given.params[key] = str(given.folder / "named")
        if text is not None:
            (given.folder / "named").write_text(text)

    fault(key, words)(make)


def ledger(words: str, **entries: str) -> None:
    def make(given: Given) -> None:
        given.params["history"] = str(given.folder / "ledger")
        (given.folder / "ledger").mkdir()
        for name, text in entries.items():
            (given.folder / "ledger" / f"{name}.json").write_text(text)

    fault("history", words)(make)


def data(kind: str, words: str, contents: bytes) -> None:
    fault(kind, words)(lambda given: setattr(given, "data", contents))


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


params_text("an empty file", "")
params_text("not YAML", "a: [b")
params_text("not UTF-8", b"\xff\xfe\xfa")
params_text("a control character", "name: a\x01")
params_text("larger than 1 MB", "# " + "x" * 1_000_000)
ALIASES = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
params_text("more than 20,000 values once aliases are followed", "\n".join(["a0: &a0 [x, x]", *ALIASES]))
params_text("nested too deeply", "[" * 100_000)
params_edit("a tag that would construct an object", "name: small", "name: !!python/object/apply:os.getcwd []")
params_text("a value that its tag cannot hold", "a: !!int abc")
MERGES = "{x: 1}"
for level in range(8):
    MERGES = f"{{<<: [&m{level} {MERGES}, {', '.join([f'*m{level}'] * 9)}]}}"
params_text("merges of merges", MERGES)
params_text("an escape sequence, spelled out", 'name: "\\e[31m"')
params_text("letters that turn the direction of writing", 'name: "\\u202e"')
params_text("a key of aliases of aliases", "? [&a [x, x, x], &b [*a, *a, *a], &c [*b, *b, *b]]\n: 1")
params_edit("a number in octal or base 60", "users: 1000", "users: 0777")
params_edit("a password in a link", "name: small", "name: small\ngrafana: {a: 'http://user:pass@host/'}")
params_edit("a key twice", "name: small", "name: small\nname: small")
params_edit("an unknown key", "name: small", "nmae: small")
params_edit("a missing key", "new:\n  label: v1.1.0\n", "")
params_edit("a wrong type", "users: 1000", "users: many")
params_edit("an unquoted version", "label: v1.1.0", "label: 10.10")


fault("params", "no such file")(lambda given: given.params.clear())
HOUR = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}
new_run("params", "a window that ends before it starts", start=HOUR["end"], end=HOUR["start"])
new_run("params", "a time without its zone", start="2024-01-01T00:00:00", end=HOUR["end"])
last_test("two tests of one name", name="postgresql_bounded")
last_test("a name that would leave the output folder", name="../../x")
last_test("a device of Windows", name="nul.txt")
params_keys("a token in a link", grafana={"x": "https://example.org/d/1?orgId=1&token=abc"})
params_keys("a link that is not http(s)", grafana={"x": "javascript:alert(1)"})
params_keys("a metric catalogue that is not there", metrics="missing")
params_keys("a margin of a metric that the catalogue does not have", margins={"cpu": 8})
params_keys("a margin of a metric that is nearly one", margins={"cpu-utilisation": 8})
params_keys("a margin that is no size", margins={"cpu-utilization": 0})
params_keys("planned runs that are no number of runs", planned_runs=0)
pulled("a secret in a server's address", "http://me:secret@127.0.0.1:9")
pulled("a secret where the name of a variable belongs", auth={"bearer_token_env": "my-secret"})
pulled("a header that decides where a request goes", headers={"Host": "other"})
last_test("more than 100 runs of a build", base=[HOUR] * 101)


def times_alone(words: str, **source: Any) -> None:
    fault("params", words)(
        lambda given: (given.params.update(source=source), given.params["tests"][1].update(new=HOUR))
    )


times_alone("times alone where the source has files", kind="grafana")
NOT_SET = {"bearer_token_env": "BUILDCOMPARE_TEST_NOT_SET"}
times_alone("a token's variable that is not set", kind="prometheus", url="http://127.0.0.1:9", auth=NOT_SET)


data("recording", "an empty file", b"")
data("report", "larger than 32 MB, unpacked", b"{" * 32_000_001)
data("pgbench", "a log over more than a week", b"0 199 2241 0 1175850568 95\n0 200 2465 0 1558176058 98\n")
data("recording", "a truncated gzip", gzip.compress(table("1,rps,1\n2,rps,2\n"))[:-12])
data("recording", "a CSV without the columns", b"a,b\n1,2\n")
data("recording", "a CSV with more than 250 columns", b"timestamp,metric,value" + b",x" * 250 + b"\n")
LABELS = "".join(f",l{i}" for i in range(48))
data(
    "recording",
    "a CSV with more than 47 columns of labels",
    f"timestamp,metric,value{LABELS}\n1,rps,1{LABELS}\n".encode(),
)
data("recording", "a name of two columns", b"time,rps,rps\n1,1,1\n")
data("recording", "two columns of times", b"time,timestamp,rps\n1,1,1\n")
data("recording", "a panel of Grafana's under another name", b"Time,Value\n1,1\n")
data("recording", "a workbook", b"PK\x03\x04")
data("recording", "a CSV in an old encoding", "time,größe\n1,1\n".encode("latin-1"))
data("recording", "a CSV without rows", table(""))
data("recording", "a time that is none", table("noon,rps,1\n"))
data("recording", "a value that is no number", table("1,rps,fast\n"))
data("recording", "a day that may be a month", table("03/04/2024 10:00,rps,1\n"))
ZONES = "2024-01-01T00:00:00Z,rps,1\n2024-01-01T00:00:05,rps,1\n"
data("recording", "a time without its zone beside one with it", table(ZONES))
data("recording", "elapsed times in seconds or milliseconds", b"time,rps\n0,1\n5000,1\n10000,1\n")
data("recording", "times that may be a spreadsheet's days", b"time,rps\n45637.00006,1\n45637.00012,1\n")
data("recording", "a first column that may be an index", b",rps\n0,1\n1,1\n")
data("recording", "a 12-hour clock", b"time,rps\n2024-12-11 12:59,1\n2024-12-11 01:00,1\n")
ZONED = b"time,metric,value,timezone\n2024-12-11 10:00,rps,1,EST\n"
data("recording", "times in another zone, beside them", ZONED)
data("recording", "two units of one value", b"time,Avg API times (ms)\n0,5 s\n")
data("recording", "numbers that can be read in two ways", b"time;rps\n0;1,234\n5;2\n")
data("recording", "decimal points beside decimal commas", b"time;rps\n0;0,5\n5;1.5\n")
data("recording", "a value without a unit beside one with it", b"time,Avg API times\n0,5 ms\n5,6\n")
data("recording", "a unit that its metric cannot have", b"time,Avg API times\n0,5 %\n")
data("recording", "two values of one metric at one time", table("1,rps,1\n1,rps,2\n"))
data("recording", "a row with more fields than the header", table("1,rps,1,\n"))
data("recording", "a row with fewer fields", table("1,rps,1\n2,rps\n"))
data("recording", "times in no unit since 1970", table("99999999999,rps,1\n"))
data("recording", "more than 200 series to draw", table("".join(f"1,m{i},1\n" for i in range(201))))
data("recording", "every value NaN", table("1,rps,NaN\n2,rps,\n"))
data("recording", "a name longer than 1,000 characters", table(f"1,{'x' * 1_001},1\n2,rps,1\n"))
data("recording", "a year that no test was in", table("9999-12-31T00:00:00Z,rps,1\n"))
data("recording", "digits that other programs do not read", table("1,rps,１２\n"))
data("recording", "a damaged Parquet", b"PAR1 and no more")
CORPUS = Path(__file__).parents[1] / "corpus"
data("recording", "a Parquet with broken statistics", (CORPUS / "parquet-aborts-pyarrow").read_bytes())
LISTS = pa.table({"timestamp": [1.0], "metric": ["rps"], "value": [[1.0]]})
data("recording", "a Parquet with lists for values", parquet(LISTS))
MANY = pa.table({"timestamp": pa.array(np.zeros(20_000_001))})
data("recording", "a Parquet with more than 20 million values", parquet(MANY))
LONG = pd.DataFrame({"timestamp": [1.0], "metric": ["x" * 10_001], "value": [1.0]})
data("recording", "a Parquet with names longer than 10,000 characters", parquet(pa.Table.from_pandas(LONG)))
NAMES = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 9_000]))
COPIES = pa.table({"timestamp": np.arange(20_000.0), "metric": NAMES, "value": np.ones(20_000)})
data("recording", "a Parquet whose names take more than 100 MB written out", parquet(COPIES))
data("labels", "a CSV without the columns", b"a,b\n1,2\n")
data("labels", "one label twice", b"group,label,stat,value\napi,a,avg,1\napi,a,avg,2\n")
NOW_MS = 1_733_911_200_000
IN_PERCENT = {
    "title": "Avg API times",
    "yaxes": [{"format": "percent"}],
    "snapshotData": [{"datapoints": [[1, NOW_MS]]}],
}
data("snapshot", "a panel in a unit that its metric cannot have", json.dumps({"panels": [IN_PERCENT]}).encode())
FIELDS = [{"type": "time", "values": [NOW_MS, NOW_MS + 1]}, {"type": "number", "values": [1, 2, 3]}]
MORE = {"title": "RPS", "snapshotData": [{"fields": FIELDS}]}
data("snapshot", "more values than times", json.dumps({"panels": [MORE]}).encode())
LATE = {"title": "RPS", "snapshotData": [{"datapoints": [[1, 10**400]]}]}
data("snapshot", "a time of hundreds of digits", json.dumps({"panels": [LATE]}).encode())
data("report", "not JSON", b"<html>")
data("report", "other JSON", b"{}")
data("report", "a number of thousands of digits", b'{"a": ' + b"1" * 5_000 + b"}")
data("report", "a label that is half a character", ltctl(AvgAPITimes={"\ud800": "1"}))
IN_2020 = [{"Name": "RPS", "Values": [[1577836800, "1"]]}]
data("report", "a window beside its graphs", ltctl(Graphs=IN_2020, AvgAPITimes={"a": "1"}))
data("report", "nested too deeply", b"[" * 100_000)
data("report", "a metric without data, and no other", ltctl(Graphs=[{"Name": "RPS", "Values": []}]))
BACK = [{"Name": "RPS", "Values": [[2, "1"], [1, "1"]]}]
data("report", "times that go back", ltctl(Graphs=BACK))
data("report", "an end before its start", ltctl(EndTime="2023-01-01T00:00:00Z"))


new_run("recording", "no such file", recording="{}/missing.csv")
new_run("recording", "a folder", recording="{}")
new_run("recording", "a path that no file can have", recording="a\0b")
IN_2025 = {"start": "2025-01-01T00:00:00Z", "end": "2025-01-01T01:00:00Z"}
new_run("recording", "a window that misses the data", **IN_2025)
new_run("artefacts", "no such file", artefacts=["{}/nowhere"])


@fault("artefacts", "a folder with a symbolic link")
def _(given: Given) -> None:
    (given.folder / "left").mkdir()
    (given.folder / "left/link").symlink_to("/etc")
    given.run["artefacts"] = [str(given.folder / "left")]


def ours(kind: str, words: str, *, series: int = 1, summaries: int = 0, turned: int = 0) -> None:
    """A recording of ours that holds so much, with so many bits of a byte turned."""

    def make(given: Given) -> None:
        file = given.folder / "own.parquet"
        one = Series("rps", "RPS", "", np.array([1.0]), np.array([1.0]), role="label")
        labels = tuple(LabelSummary("api", "a", "avg", 1.0) for _ in range(summaries))
        write_recording(Recording((one,) * series, (0.0, 1.0), stop_known=True, label_summaries=labels), file)
        contents = bytearray(file.read_bytes())
        contents[len(contents) // 2] ^= turned
        file.write_bytes(contents)
        given.run.update(recording=str(file))
        if kind == "recording":
            given.run.pop("labels")

    fault(kind, words)(make)


ours("recording", "a recording of ours with one bit turned", turned=1)
ours("recording", "a recording of more than 100,000 series", series=100_001)
ours("labels", "a second table beside a recording that holds one", summaries=1)


def output(words: str, file: str, contents: str, at: str = "out") -> None:
    """A file of this name in the folder of the test, and the place where the report is to go."""

    def make(given: Given) -> None:
        (given.folder / file).parent.mkdir(exist_ok=True)
        (given.folder / file).write_text(contents)
        given.output = given.folder / at

    fault("output", words)(make)


output("a folder with a results.json of somebody else's", "out/results.json", '{"mine": 1}')
output("a folder that cannot be written", "file", "x", at="file/out")
output("a folder that holds other files", "home/letter.txt", "dear", at="home")
output("a file where the folder should be", "file", "x", at="file")
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
params_keys("an address with a password", "history", history="s3://me:hidden@bucket/ledger")
params_keys("an address whose package is missing", "history", history="abfs://bucket/ledger")


@fault("history", "entries that version 0.2 packed")
def _(given: Given) -> None:
    (given.folder / "ledger").mkdir()
    given.params["history"] = str(given.folder / "ledger")
    Path(given.params["history"], "entries.parquet").write_bytes(b"PAR1 and nothing else")


def rows() -> list[tuple[str, str, str]]:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [(kind, words, seen) for kind, words, seen in cells if kind not in ("input", "---")]


def contents(folder: Path) -> dict[str, bytes]:
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a child and without a kernel, which cost most of a test's time."""
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
    given = Given(tmp_path, small_params(tmp_path / "data"))
    FAULTS[kind, words](given)
    named = tmp_path / "params.yaml"
    if given.data is not None:
        named_data = tmp_path / "fault.bin"
        named_data.write_bytes(given.data)
        run = given.run
        if kind in ("report", "snapshot", "pgbench"):
            run.clear()
        run[kind] = str(named_data)
        if kind == "recording":
            run.pop("labels")
    if given.params:
        text = given.text if given.text is not None else yaml_text(given.params)
        named.write_bytes(text if isinstance(text, bytes) else text.encode())
    if not given.output.exists() and kind != "output":
        given.output.mkdir()
        (given.output / "results.json").write_text('{"schema_version": 1, "comparison": "x", "complete": true}')
    before = contents(given.output)

    said = refused("report", named, "--output", given.output)

    assert re.fullmatch("buildcompare: .*expected.*found.*\n", said)
    assert seen in said
    assert contents(given.output) == before
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
    """As papermill starts it: the notebook knows no file and no line."""
    contents = small_params(tmp_path / "data")
    contents["tests"][1]["base"]["recording"] = "not/there.csv"
    with pytest.raises(InputError, match=r"^tests\[1\]\.base\[0\]\.recording: not/there\.csv: expected a recording"):
        workbench.read_recordings(workbench.parameters(**contents))


def test_a_wrong_path_of_a_repeated_run_names_the_line_of_the_groups(tmp_path: Path) -> None:
    runs = [{"recording": "not/there.csv"}, {"recording": "nor/there.csv"}]
    groups = [{"name": "a", "type": "bounded", "runs": runs}]
    file = write_params(tmp_path / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups})
    with pytest.raises(InputError, match=r"groups\.yaml: groups\[0\]\.runs\[0\]\.recording \(line 7\): not/there\.csv"):
        calibrate(file, tmp_path / "made.json")
