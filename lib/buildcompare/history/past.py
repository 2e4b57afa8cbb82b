"""What earlier comparisons teach about noise: how far the builds of each lay apart, in every metric of every test."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.history import dataset
from buildcompare.history.dataset import Integers
from buildcompare.history.entry import entry_of
from buildcompare.history.ledger import Entry, Ledger
from buildcompare.history.setup import differ, settings, stated
from buildcompare.history.table import SETUP_COLUMNS
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES
from buildcompare.stats.noise import PastChanges, PastColumns, slug_of

NOT_OF_NOISE = {SETUP_COLUMNS["load_test_version"], "Metrics server"}
"""Settings that a new version of changes nothing about how far two runs lie apart."""
_CHANGES = (
    "name", "base", "new", "setup", "type", "db_engine", "users", "supported_users", "runs", "levels_of_runs",
    "within_se_log", "at_load", "misread", "windows_s", "samples",
)  # fmt: skip
"""What noise is learned from."""
MOST = 2_000
"""Monthly comparisons that noise is learned from, the latest: more tell it no better, and 100,000 take ten seconds."""
_AT_LOAD = ("base", "new", "within_se_log")
_UNKNOWN = {"se_log": 0.0, "seconds": math.nan, "within": math.nan, "misread": False}
"""What a change says of these where nothing is known."""


def past_changes(
    ledger: Ledger, params: Comparison, samples: Collection[str], catalogue: Catalogue, *, simulated: bool
) -> PastChanges:
    """How far the builds of the other comparisons of `ledger` lay apart, each in every metric of every test.

    Left out are the comparison of `params` itself, tests that share a run with it (by `samples`), and of a long chain
    all but the latest `MOST` comparisons.
    """
    now, load = entry_of(params, position=1), catalogue.load
    kinds = pa.array({test.type for test in now.tests}, pa.string())
    position = ds.field("position")
    last = pc.max(ledger.table(["position"])["position"]).as_py() or 0
    of = (ds.field("simulated") == simulated) & ds.field("type").isin(kinds)
    table = ledger.table(_CHANGES, of & (position.is_null() | (position > last - MOST)))
    entries, names = dataset.codes(table["name"])
    alike = ledger.alike(now)
    own = np.array([name in alike for name in names], dtype=bool)[entries]
    usable = ~(own | _has_any(table["samples"], samples))
    about: dict[str, Any] = {"same_setup": ~_setup_changed(table, now), "comparison": entries}
    runs, users = dataset.of_sides(table["runs"]), dataset.of_sides(table["supported_users"])
    types, type_names = dataset.codes(table["type"])
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)

    def add(rows: Integers, slugs: tuple[Integers, list[str]], base: FloatArray, new: FloatArray, **known: Any) -> None:
        """Changes of the tests in `rows`, by their type (or ``of``) and slug."""
        if not rows.size:
            return
        of = np.full(rows.size, 0) if "of" in known else types[rows]
        of_names = [known.pop("of")] if "of" in known else type_names
        numbers: dict[str, Any] = {"runs": runs[rows], **{name: each[rows] for name, each in about.items()}, **known}
        numbers["log_ratio"] = np.array([*map(math.log, (new / base).tolist())])
        keys = of * (len(slugs[1]) + 1) + slugs[0]
        order = np.argsort(keys, kind="stable")
        different, starts = np.unique(keys[order], return_index=True)
        for key, chosen in zip(different.tolist(), np.split(order, starts[1:]), strict=True):
            place = of_names[key // (len(slugs[1]) + 1)], slugs[1][key % (len(slugs[1]) + 1)]
            found[place].append({name: each[chosen] for name, each in numbers.items()})

    if load:
        rows = np.flatnonzero(usable & (users > 0).all(axis=1))
        add(rows, (np.zeros(rows.size, dtype=np.int64), [load.slug]), users[rows, 0], users[rows, 1])
    tests, keys, levels = _of_map(table["levels_of_runs"])
    slugs = _slugs(keys)
    base, new = (_means(pc.struct_field(levels, side)) for side in SIDES)
    chosen = usable[tests] & (base[0] > 0) & (new[0] > 0)
    if load:
        chosen &= np.array([slug != load.slug for slug in slugs[1]], dtype=bool)[slugs[0]]
    counts = np.stack([base[1], new[1]], axis=1)
    within = _beside(table, "within_se_log", tests, keys) / np.sqrt(1.0 / counts[:, 0] + 1.0 / counts[:, 1])
    known: dict[str, Any] = {"runs": counts, "seconds": _window_lengths(table["windows_s"])[tests], "within": within}
    known["misread"] = _misread(table, tests, slugs)
    cut = {name: each[chosen] for name, each in known.items()}
    add(tests[chosen], (slugs[0][chosen], slugs[1]), base[0][chosen], new[0][chosen], **cut)
    tests, keys, seen = _of_map(table["at_load"])
    slugs, chosen = dataset.codes(pa.chunked_array([keys])), usable[tests]
    base_at, new_at, error = (dataset.numbers(pc.struct_field(seen, name))[chosen] for name in _AT_LOAD)
    at = {"se_log": error, "misread": _misread(table, tests, slugs)[chosen], "of": "equal_load"}
    add(tests[chosen], (slugs[0][chosen], slugs[1]), base_at, new_at, **at)
    return {place: _joined(parts, names) for place, parts in found.items()}


def _joined(parts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> PastColumns:
    """Changes of one test type and metric, from several sources."""

    def column(name: str) -> Any:
        return np.concatenate(
            [each.get(name, np.full(each["log_ratio"].size, _UNKNOWN.get(name, math.nan))) for each in parts]
        )

    fields = ("comparison", "log_ratio", "runs", "se_log", "seconds", "within")
    flags = {name: column(name).astype(bool) for name in ("same_setup", "misread")}
    return PastColumns(**{name: column(name) for name in fields}, **flags, names=names)


def _setup_changed(table: pa.Table, now: Entry) -> npt.NDArray[np.bool_]:
    """Which tests are of entries on another setup than `now`, as :func:`setup_differences` tells."""
    own = {test.key for test in now.tests}
    table = table.select(["name", "setup", "type", "db_engine", "users"])
    alike = np.zeros(table.num_rows, dtype=np.int64)  # a number for each different row
    for places, different in map(dataset.codes, table.columns[1:]):
        alike = alike * (len(different) + 1) + places + 1
    rows = alike.tolist()
    known: dict[tuple[int, ...], bool] = {}
    changed = np.zeros(alike.size, dtype=bool)
    starts = np.flatnonzero(dataset.begins(table["name"])).tolist()
    for start, end in itertools.pairwise([*starts, alike.size]):
        case = tuple(rows[start:end])
        if case not in known:
            entry = table.slice(start, end - start).to_pylist()
            said = json.loads(entry[0]["setup"])
            every = [(test["type"], (test["db_engine"] or "").casefold(), test["users"]) for test in entry]
            tests = [test for test in every if test[:2] in own]
            was = stated(said["setup"], said["coordinator"], said["servers"], tests)
            is_now = settings(now, {(kind, engine) for kind, engine, _ in tests})
            names = {is_now[name][0] for name in is_now if name in was and differ(was[name][1], is_now[name][1])}
            known[case] = bool(names - NOT_OF_NOISE)
        changed[start:end] = known[case]
    return changed


def _of_map(column: pa.ChunkedArray) -> tuple[Integers, pa.Array, pa.Array]:
    """The keys and items of a column of maps, and the row of each."""
    flat = column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = flat.chunk(0) if flat.num_chunks else pa.array([], flat.type)
    counts = np.diff(flat.offsets.to_numpy())
    low, high = flat.offsets[0].as_py(), flat.offsets[-1].as_py()
    return np.repeat(np.arange(counts.size), counts), flat.keys[low:high], flat.items[low:high]


def _lists(column: pa.Array) -> tuple[FloatArray, Integers]:
    """The numbers of a column of lists, and how many each has."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    return dataset.numbers(column.flatten()), counts


def _means(column: pa.Array) -> tuple[FloatArray, Integers]:
    """The mean of each of a column of lists (NaN of an empty one), exactly rounded, and how many numbers it has."""
    values, counts = _lists(column)
    starts, means = np.cumsum(counts) - counts, np.full(counts.size, np.nan)
    means[counts == 1] = values[starts[counts == 1]]
    for i in np.flatnonzero(counts > 1).tolist():
        means[i] = mean(values[starts[i] : starts[i] + counts[i]].tolist())
    return means, counts


def _window_lengths(column: pa.ChunkedArray) -> FloatArray:
    """The mean length of the windows of each test, in seconds; NaN for none."""
    flat = column.combine_chunks()
    sums, counts = np.zeros(len(flat)), np.zeros(len(flat))
    for values, sizes in (_lists(pc.struct_field(flat, side)) for side in SIDES):
        np.add.at(sums, np.repeat(np.arange(sizes.size), sizes), values)
        counts += sizes
    return np.asarray(np.divide(sums, counts, out=np.full(counts.size, np.nan), where=counts > 0), dtype=np.float64)


def _slugs(keys: pa.Array) -> tuple[Integers, list[str]]:
    """Series' keys as places in a list of their slugs."""
    places, known = dataset.codes(pa.chunked_array([keys]))
    slugs = list(dict.fromkeys(map(slug_of, known)))
    return np.array([slugs.index(slug_of(key)) for key in known], dtype=np.int64)[places], slugs


def _paired(rows: Integers, keys: pa.Array, own_rows: Integers, own_keys: pa.Array) -> tuple[Integers, Integers]:
    """Numbers by which pairs of row and key are found again: of one column, and of another."""
    places, known = dataset.codes(pa.chunked_array([keys, own_keys]))
    ids = np.concatenate([rows, own_rows]) * (len(known) + 1) + places
    return ids[: rows.size], ids[rows.size :]


def _beside(table: pa.Table, name: str, rows: Integers, keys: pa.Array) -> FloatArray:
    """What the map `name` of each row says of its key, NaN for nothing."""
    own_rows, own_keys, values = _of_map(table[name])
    asked, known = _paired(rows, keys, own_rows, own_keys)
    found = np.full(asked.size, np.nan)
    if known.size:
        order = np.argsort(known)
        at = np.clip(np.searchsorted(known[order], asked), 0, known.size - 1)
        hit = known[order][at] == asked
        found[hit] = dataset.numbers(values)[order][at[hit]]
    return found


def _misread(table: pa.Table, rows: Integers, slugs: tuple[Integers, list[str]]) -> npt.NDArray[np.bool_]:
    """Whether each row's slug is among those that were read off plots."""
    flat = table["misread"].combine_chunks()
    own_rows = pc.list_parent_indices(flat).to_numpy(zero_copy_only=False).astype(np.int64)
    asked = pa.array(slugs[1], pa.string()).take(pa.array(slugs[0]))
    asked_ids, known = _paired(rows, asked, own_rows, flat.flatten())
    return np.isin(asked_ids, known)


def _has_any(column: pa.ChunkedArray, values: Collection[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a column of lists hold one of `values`."""
    flat = column.combine_chunks()
    found = np.zeros(len(flat), dtype=bool)
    hit = pc.is_in(flat.flatten(), value_set=pa.array([*values], pa.string()))
    parents = pc.list_parent_indices(flat).filter(hit).to_numpy(zero_copy_only=False)
    found[parents.astype(np.int64)] = True
    return found
