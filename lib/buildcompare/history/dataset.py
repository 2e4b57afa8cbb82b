"""Keep many entries of a ledger in one Parquet file: a row for each test, read by columns and filters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from buildcompare.config.errors import InputError
from buildcompare.recordings.parquet import is_whole, sealed

FILE = "entries.parquet"
EXPECTED = "entries that `history-pack` wrote"
ROWS = 4_096  # of a row group: the newest comparisons are found without reading the others
_NUMBER, _TEXT, _LEVELS = pa.float64(), pa.string(), pa.list_(pa.float64())
_TEXTS = pa.list_(_TEXT)
Integers = npt.NDArray[np.int64]


def _pair(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("base", kind), ("new", kind)])


_BUILD = pa.struct([("label", _TEXT), ("version", _TEXT)])
_AT_LOAD = pa.struct([(name, _NUMBER) for name in ("users", "base", "new", "within_se_log")])
_ENTRY = [
    ("name", _TEXT), ("schema_version", pa.int64()), ("kind", _TEXT), ("position", pa.int64()), ("base", _BUILD),
    ("new", _BUILD), ("verdict", _TEXT), ("simulated", pa.bool_()), ("setup", _TEXT), ("source", _TEXT),
    ("sha256", _TEXT),
]  # fmt: skip
_TEST = [
    ("test", _TEXT), ("type", _TEXT), ("db_engine", _TEXT), ("users", pa.int64()), ("supported_users", _pair(_NUMBER)),
    ("runs", _pair(pa.int64())), ("errors", _pair(_NUMBER)), ("looks", pa.list_(pa.list_(pa.int64()))),
    ("levels_of_runs", pa.map_(_TEXT, _pair(_LEVELS))), ("within_se_log", pa.map_(_TEXT, _NUMBER)),
    ("at_load", pa.map_(_TEXT, _AT_LOAD)), ("misread", _TEXTS), ("windows_s", _pair(_LEVELS)), ("samples", _TEXTS),
    ("written", _pair(_NUMBER)),
]  # fmt: skip
SCHEMA = pa.schema([*_ENTRY, *_TEST])
_MAPS = ("levels_of_runs", "within_se_log", "at_load")
_SETUP = ("setup", "coordinator", "servers")  # one text for all that says on what was measured


def to_table(entries: Iterable[tuple[Mapping[str, Any], str]]) -> pa.Table:
    """Rows of entries, each as JSON knows it with what its contents are known by."""
    rows = []
    for entry, digest in entries:
        about = {name: entry[name] for name, _ in _ENTRY if name not in ("setup", "sha256")}
        about["setup"] = json.dumps({name: entry[name] for name in _SETUP}, ensure_ascii=False)
        for test in entry["tests"]:
            maps = {name: list(test[name].items()) for name in _MAPS}
            rows.append({**about, **test, **maps, "sha256": digest, "test": test["name"], "name": entry["name"]})
    return pa.Table.from_pylist(rows, SCHEMA)


def to_entries(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Entries, as JSON knows them, of all columns of a table in which the tests of each stand together."""
    for _, rows in groupby(table.to_pylist(), key=lambda row: row["name"]):
        tests = list(rows)
        entry = {name: tests[0][name] for name, _ in _ENTRY if name != "sha256"}
        entry |= json.loads(entry["setup"])
        entry["tests"] = [
            {name: dict(test[name]) if name in _MAPS else test[name] for name, _ in _TEST if name != "test"}
            | {"name": test["test"]}
            for test in tests
        ]
        yield entry


def opened(folder: Path) -> ds.Dataset | None:
    """The Parquet file of a ledger, of which only the footer is parsed, once its seal is right; None without a file.

    It stays open: what is read later is of the same file, also where another was put into its place.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    contents = pa.memory_map(str(file)).read_buffer()  # no memory of Python's: see `recordings.parquet.THREADS`
    if not is_whole(memoryview(contents)):
        raise ValueError("other bytes: it is damaged")
    kind = ds.ParquetFileFormat()
    fragment = kind.make_fragment(pa.BufferReader(contents))
    if not fragment.physical_schema.equals(SCHEMA):
        raise ValueError("columns of another version")
    return ds.FileSystemDataset([fragment], SCHEMA, kind)


def read(file: Path, found: ds.Dataset, columns: Sequence[str], where: pc.Expression | None) -> pa.Table:
    """Some `columns` of the rows that `where` holds for; a damaged file is an InputError."""
    try:
        return found.to_table(columns=list(columns), filter=where)
    except (OSError, pa.ArrowException) as error:
        raise InputError(file=file, key="history", expected=EXPECTED, found=str(error)[:200]) from None


def read_named(file: Path, found: ds.Dataset, names: Sequence[str]) -> pa.Table:
    """All columns of the comparisons of these names: of other groups of rows only the names are read."""
    wanted = pa.array(names, pa.string())
    try:
        hits = pc.is_in(found.to_table(columns=["name"])["name"], value_set=wanted).to_numpy()
        (fragment,) = found.get_fragments()
        ends = np.cumsum([group.num_rows for group in fragment.row_groups])
        groups = np.unique(np.searchsorted(ends, np.flatnonzero(hits), side="right")).tolist()
        rows: pa.Table = fragment.subset(row_group_ids=groups).to_table(filter=ds.field("name").isin(wanted))
    except (OSError, pa.ArrowException) as error:
        raise InputError(file=file, key="history", expected=EXPECTED, found=str(error)[:200]) from None
    return rows


def contents(table: pa.Table) -> bytes:
    """The bytes of the file that holds `table`: the chain in its order, then the studies by name."""
    keys = [("position", "ascending"), ("name", "ascending")]
    order = pc.sort_indices(table.select(["position", "name"]), sort_keys=keys)  # rows of one entry stay as they are
    return sealed(table.take(order), rows=ROWS, compression="zstd")


# ---- Columns as arrays ----------------------------------------------------------------------------------------------


def codes(column: pa.ChunkedArray) -> tuple[Integers, list[Any]]:
    """A column of texts as places in a list of different ones, -1 for none."""
    encoded = column.combine_chunks().dictionary_encode()
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return places.astype(np.int64), encoded.dictionary.to_pylist()


def begins(names: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where the rows of another comparison begin."""
    places, _ = codes(names)
    return np.asarray(np.diff(places, prepend=-1) != 0, dtype=bool)


def numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.float64]:
    """A column of numbers, NaN for none."""
    return np.asarray(column.cast(_NUMBER).to_numpy(zero_copy_only=False), dtype=np.float64)


def of_sides(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column of pairs of numbers; shape (n, 2), NaN for none."""
    flat = column.combine_chunks()
    return np.stack([numbers(pc.struct_field(flat, side)) for side in ("base", "new")], axis=1)
