"""Damage and foreign files never become other values: refused, or read to the last bit as they were written.

Every reader takes any bytes, without a traceback, an abort or a hang. `make fuzz` does it for hours and adds each input
that breaks a reader to tests/corpus, which is read again here.
"""

import io
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import buildcompare as bc
import fuzzing
from buildcompare import figures
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.project import resolve
from buildcompare.recordings import sources, table
from buildcompare.recordings.recording import LabelSummary, Note, Series
from pulling import run, source

CATALOGUE = read_catalogue("mattermost")
FLIPS = 2_000
Form = tuple[bytes, Callable[[bytes], Any]]
"""A whole file, and what is read of such bytes."""


def example() -> bc.Recording:
    times = 1721665291.108 + 5 * np.arange(1_000)
    series = (
        Series("rps", "RPS", "requests/s", times, np.sqrt(times), labels={"instance": "a"}),
        Series("heap", "Heap", "bytes", times + times % 7, np.where(times % 3, times, np.nan)),
        Series("odd", "Odd", "", np.array([1.0, 2.5, 9.0]), np.array([np.nan, np.inf, -0.0])),
        Series("one", "One", "", np.array([3.0]), np.array([4.0]), role="label", stat="avg"),
        Series("none", "None", "", np.empty(0), np.empty(0)),
    )
    summaries = (LabelSummary("api", "a|b", "avg", 0.1), LabelSummary("api", "a|b", "p99", float("nan")))
    return bc.Recording(series, (times[0], times[-1]), True, summaries, (Note("simulated", "made up"),), {"seed": 7})


def content(recording: bc.Recording) -> list[Any]:
    series = [{**vars(s), "times": s.times.tobytes(), "values": s.values.tobytes()} for s in recording.series]
    told = [recording.window, recording.stop_known, recording.notes, dict(recording.provenance)]
    parts = [[{k: v for k, v in each.items() if k != "step_s"} for each in series], recording.label_summaries]
    return [*map(repr, parts), told]  # NaN is no equal of itself


def written(tmp_path: Path) -> bytes:
    table.write_recording(example(), tmp_path / "x.parquet")
    return (tmp_path / "x.parquet").read_bytes()


def pulled(folder: Path, patch: pytest.MonkeyPatch) -> Form:
    patch.setenv("BUILDCOMPARE_ROOT", str(folder))
    slot, asked = sources.Slot("pulled", "t", "base", 1), source("http://127.0.0.1:9")
    request = sources._request(run(), asked, CATALOGUE)
    place = resolve(slot.path)
    table.write_recording(replace(example(), provenance={sources.REQUEST: request}), place)

    def read_kept(contents: bytes) -> Any:
        place.write_bytes(contents)
        return content(sources.read_run(run(), asked, CATALOGUE, slot))[:2]

    return place.read_bytes(), read_kept


def in_notebook(folder: Path, patch: pytest.MonkeyPatch) -> Form:
    whole = figures.packed(json.dumps(fuzzing.ENTRY)).encode()
    return whole, lambda contents: figures.unpacked(contents.decode("latin-1"))


def recording(folder: Path, patch: pytest.MonkeyPatch) -> Form:
    return written(folder), lambda contents: content(read_bytes(folder, contents))[:2]


FORMATS = (recording, pulled, in_notebook)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__)
def test_no_flipped_bit_changes_a_value_silently(
    form: Callable[[Path, pytest.MonkeyPatch], Form], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, read_them = form(tmp_path, monkeypatch)
    truth, rng, refused = read_them(whole), random.Random(1), 0
    for bit in rng.sample(range(8 * len(whole)), FLIPS):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert read_them(bytes(damaged)) == truth, f"bit {bit}"
        except (bc.InputError, ValueError, zlib.error):  # the two others of what stands in a notebook
            refused += 1
    assert refused > 0.99 * FLIPS
    assert read_them(whole) == truth


def read_bytes(tmp_path: Path, contents: bytes) -> bc.Recording:
    (tmp_path / "given").write_bytes(contents)
    return bc.read(tmp_path / "given")


def test_a_recording_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    back = read_bytes(tmp_path, written(tmp_path / "folder"))
    assert content(replace(back, provenance={"seed": back.provenance["seed"]})) == content(example())
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["x.parquet"]


def test_a_recording_of_an_earlier_version_is_read_with_a_note(tmp_path: Path) -> None:
    whole = pq.read_table(io.BytesIO(written(tmp_path)))
    head = json.loads(whole.schema.metadata[b"buildcompare"])
    old = {b"buildcompare": json.dumps(head | {"format": "buildcompare-recording-1"}).encode()}
    pq.write_table(whole.replace_schema_metadata(old), tmp_path / "old.parquet")
    found = bc.read(tmp_path / "old.parquet")
    assert [note.text for note in found.notes] == ["made up", table.NO_CHECKSUM.text]
    assert content(found)[:2] == content(example())[:2]
    without = {b"buildcompare": json.dumps(head).encode()}
    pq.write_table(whole.replace_schema_metadata(without), tmp_path / "stripped.parquet")
    with pytest.raises(bc.InputError, match="the file is damaged"):
        bc.read(tmp_path / "stripped.parquet")


HEADS = {
    "nested 100,000 deep": lambda head: b'{"a":' * 100_000,
    "a window of 1e400": lambda head: json.dumps(head | {"window": [0, 77]}).replace("77", "1e400").encode(),
    "a window of NaN": lambda head: json.dumps(head | {"window": [float("nan"), 1]}).encode(),
    "a window that ends first": lambda head: json.dumps(head | {"window": [9, 1]}).encode(),
    "provenance that is a list": lambda head: json.dumps(head | {"provenance": [1]}).encode(),
    "a note of no kind": lambda head: json.dumps(head | {"notes": [["bogus", "x"]]}).encode(),
    "a note that is a number": lambda head: json.dumps(head | {"notes": [["source", 5]]}).encode(),
    "a list": lambda head: b"[1]",
}
COLUMNS = {
    "labels that are a number": ("labels", "5"), "labels that are a list": ("labels", "[1]"),
    "labels of numbers": ("labels", '{"a": 5}'), "no metric": ("metric", None), "no name": ("name", None),
    "no unit": ("unit", None), "a role that is none": ("role", "bogus"), "values that are a text": ("values", "x"),
    "a step that is infinite": ("step", float("inf")),
    "a step whose sum is infinite": ("step", 1e308),
}  # fmt: skip


@pytest.mark.parametrize("name", [*HEADS, *COLUMNS])
def test_a_recording_of_another_shape_is_refused(tmp_path: Path, name: str) -> None:
    made = pq.read_table(io.BytesIO(written(tmp_path)))
    if name in COLUMNS:
        column, value = COLUMNS[name]
        changed = pa.array([value] * made.num_rows, pa.string() if value is None else None)
        made = made.set_column(made.schema.get_field_index(column), column, changed)
    else:
        head = HEADS[name](json.loads(made.schema.metadata[b"buildcompare"]))
        made = made.replace_schema_metadata({b"buildcompare": head})
    with pytest.raises(bc.InputError):
        read_bytes(tmp_path, table.sealed(made))


FOREIGN = {
    "a label that is a list": pa.table({"timestamp": [1.0], "metric": ["a"], "value": [1.0], "l": [[1]]}),
    "a column twice": pa.Table.from_arrays([pa.array([1.0])] * 4, ["timestamp", "metric", "value", "value"]),
    "a metric without a name": pa.table({"timestamp": [1.0], "metric": pa.array([None], pa.string()), "value": [1.0]}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_parquet_of_others_that_is_no_table_of_samples_is_refused(tmp_path: Path, name: str) -> None:
    pq.write_table(FOREIGN[name], tmp_path / "x.parquet")
    with pytest.raises(bc.InputError):
        bc.read(tmp_path / "x.parquet")


def test_what_others_say_of_zones_and_pandas_is_not_believed(tmp_path: Path) -> None:
    times = pa.array([1, 2], pa.timestamp("s", "Mars/Phobos"))
    odd = pa.table({"timestamp": times, "metric": ["rps"] * 2, "value": [1.0, 2.0]})
    pq.write_table(odd.replace_schema_metadata({b"pandas": b"{broken"}), tmp_path / "x.parquet")
    found = bc.read(tmp_path / "x.parquet").series[0]
    assert (found.times.tolist(), found.values.tolist()) == ([1.0, 2.0], [1.0, 2.0])


def test_the_unnamed_time_index_of_a_frame_is_its_time(tmp_path: Path) -> None:
    index = pd.DatetimeIndex([1e9, 6e9])
    pd.DataFrame({"rps": [1.0, 2.0]}, index).to_parquet(tmp_path / "x.parquet")
    assert bc.read(tmp_path / "x.parquet").series[0].times.tolist() == [1.0, 6.0]


def test_control_characters_in_names_are_shown(tmp_path: Path) -> None:
    text = 'timestamp,metric,value,host\n1,"red\x1b[31m",1,"a\u202eb"\n2,"red\x1b[31m",2,"a\u202eb"\n'
    (tmp_path / "x.csv").write_text(text, "utf-8")
    found = bc.read(tmp_path / "x.csv")
    assert (found.series[0].name, dict(found.series[0].labels)) == (r"red\x1b[31m", {"host": r"a\u202eb"})
    assert "\x1b" not in repr(found)
    with pytest.raises(bc.InputError, match=r"\A[^\x1b]*\\x1b\]0;owned\\x07[^\x1b]*\Z"):
        read_bytes(tmp_path, b"timestamp,metric,value\n1,rps,\x1b]0;owned\x07\n")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    return fuzzing.right(tmp_path_factory.mktemp("right"))


@pytest.mark.parametrize("kind", fuzzing.READERS)
def test_what_is_right_is_read(kind: str, whole: dict[str, list[bytes]], tmp_path: Path) -> None:
    refused = fuzzing.seed("answer-refused")
    for i, contents in enumerate(each for each in whole[kind] if each != refused):
        path = tmp_path / (f"x{i}.yaml" if kind in fuzzing.YAML else f"x{i}")
        path.write_bytes(contents)
        fuzzing.READERS[kind](path, contents)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzzing.READERS)
def test_whatever_stands_in_a_file(kind: str, whole: dict[str, list[bytes]], tmp_path: Path) -> None:
    rng = random.Random(kind)
    for _ in range(20):
        fuzzing.swallow(kind, fuzzing.changed(rng.choice(whole[kind]), rng), tmp_path)


@pytest.mark.parametrize("file", sorted(fuzzing.CORPUS.iterdir()), ids=lambda file: file.name)
def test_what_once_broke_a_reader(file: Path, tmp_path: Path) -> None:
    fuzzing.swallow(file.name.partition("-")[0], file.read_bytes(), tmp_path)
