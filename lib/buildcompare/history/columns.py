"""Every test of a ledger in columns: which test another continues, and what is usual, in chains of any length."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildcompare.history import dataset
from buildcompare.history.dataset import Integers
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""


class Order(NamedTuple):
    """How two databases stood in the comparisons of a chain that have both."""

    entries: Integers
    logs: FloatArray  # log ratios of the levels, shape (n, 2), NaN for none
    signs: npt.NDArray[np.int8]  # theirs, 0 for none
    known: Integers  # where there is one of the new builds


class Tests:
    """Every test of a ledger in columns, the chain in its order and then the studies; no object for each."""

    __test__ = False  # not a test class of pytest's

    def __init__(self, table: pa.Table) -> None:
        self.orders: dict[tuple[int, int], Order] = {}
        names, known = dataset.codes(table["name"])
        positions = dataset.numbers(table["position"])
        _, by_name = np.unique(known, return_inverse=True)
        order = np.lexsort((by_name[names], np.nan_to_num(positions, nan=np.inf)))
        self.table = table if np.array_equal(order, np.arange(order.size)) else table.take(pa.array(order))
        self.entry, first = pd.factorize(names[order])
        self.names: list[str] = [known[each] for each in first]
        self.starts = np.searchsorted(self.entry, np.arange(len(self.names) + 1))
        self.chain = np.unique(names[~np.isnan(positions)]).size  # entries before this one are of the chain
        self.users = self._positive("supported_users")
        self.runs = dataset.of_sides(self.table["runs"])
        self.any = ~np.isnan(dataset.of_sides(self.table["supported_users"])).all(axis=1)
        databases, spelled = dataset.codes(self.table["db_engine"])
        spellings, _ = pd.factorize(np.array([*(each.casefold() for each in spelled), ""], dtype=object))
        places = {name: dataset.codes(self.table[name])[0] for name in ("type", "test")}
        tests = pd.DataFrame({"entry": self.entry, "db_engine": spellings[databases], **places})
        several = tests.duplicated(["entry", "type", "db_engine"], keep=False)  # each of them is known by its name
        by_key = tests.assign(test=tests["test"].where(several, -1)).groupby(["type", "db_engine", "test"], sort=False)
        self.key = by_key.ngroup().to_numpy(dtype=np.int64)
        self.keys = [self._key_of(row, several[row]) for row in by_key.head(1).index]

    def _key_of(self, row: int, several: bool) -> tuple[str, str, str]:
        kind, db_engine, name = (self.table[name][row].as_py() for name in ("type", "db_engine", "test"))
        return kind, (db_engine or "").casefold(), name if several else ""

    def _positive(self, column: str) -> FloatArray:
        values = dataset.of_sides(self.table[column])
        return np.where(values > 0, values, np.nan)

    def _versions(self, part: str = ".*") -> Integers:
        """Versions of both builds as numbers, -1 for none, alike where the `part` (an expression) is; shape (n, 2)."""
        texts = (pc.struct_field(self.table[side].combine_chunks(), "version").cast(pa.string()) for side in SIDES)
        places, known = dataset.codes(pa.chunked_array(list(texts)))
        parts = [found[0] if (found := re.match(part, version)) else version for version in known]
        return pd.factorize(np.array([*parts, None], dtype=object))[0][places].reshape(2, -1).T

    @functools.cached_property
    def minor(self) -> Integers:
        """Major and minor version of both builds as numbers, -1 for none; shape (n, 2)."""
        return self._versions(r"\d+\.\d+")

    @functools.cached_property
    def then(self) -> Integers:
        """For each test of the chain, where its base was measured before as the new build, -1 for nowhere.

        That is the last of its key whose new build is of its base's version, so that one that was recorded late, or
        belongs to an older line of releases, does not break the chain of the others; without any, the one before. A
        test without levels is skipped.
        """
        rows = np.flatnonzero(self.any & (self.entry < self.chain))
        bases = pd.DataFrame({"row": rows, "key": self.key[rows], "minor": self.minor[rows, 0]})
        news = bases.assign(minor=self.minor[rows, 1], then=rows)[self.users[rows, 1] > 0]
        bases, news = (builds[builds["minor"] >= 0] for builds in (bases, news))
        same = pd.merge_asof(bases, news, on="row", by=["key", "minor"], allow_exact_matches=False).dropna()
        found = np.full(self.key.size, -1)
        found[rows] = pd.Series(rows).groupby(self.key[rows]).shift(fill_value=-1)
        found[same["row"]] = same["then"]
        return found

    @functools.cached_property
    def usual(self) -> dict[int, list[float]]:
        """By key with links, how far the same version lies apart: absolute log ratios, in the chain's order."""
        linked = np.flatnonzero(self.then >= 0)
        then = self.then[linked]
        before, value = self.users[then, 1], self.users[linked, 0]
        minor = self.minor[linked, 0]
        known = (minor >= 0) & (minor == self.minor[then, 1]) & ~np.isnan(before) & ~np.isnan(value)
        found: dict[int, list[float]] = {key: [] for key in np.unique(self.key[linked]).tolist()}
        ratios = map(abs, map(math.log, (value[known] / before[known]).tolist()))
        for key, ratio in zip(self.key[linked][known].tolist(), ratios, strict=True):
            found[key].append(ratio)
        return found

    def rows(self, entry: int) -> range:
        """The tests of an entry."""
        return range(self.starts[entry], self.starts[entry + 1])

    @functools.cached_property
    def by_key(self) -> dict[int, Integers]:
        """By key, its tests in the chain."""
        rows = np.argsort(self.key[: self.starts[self.chain]], kind="stable")
        keys, starts = np.unique(self.key[rows], return_index=True)
        return dict(zip(keys.tolist(), np.split(rows, starts[1:]), strict=True))

    def between_databases(self, one: int, two: int) -> Order:
        """How the key `two` stood to `one`; kept, as each comparison asks."""
        if (one, two) not in self.orders:
            first, second = self.by_key[one], self.by_key[two]
            both, a, b = np.intersect1d(self.entry[first], self.entry[second], True, return_indices=True)
            ratios = (self.users[second[b]] / self.users[first[a]]).ravel().tolist()
            logs = np.array([math.log(each) if each > 0 else math.nan for each in ratios]).reshape(-1, 2)
            signs = np.sign(np.nan_to_num(logs)).astype(np.int8)
            self.orders[one, two] = Order(both, logs, signs, np.flatnonzero(~np.isnan(logs[:, 1])))
        return self.orders[one, two]

    @functools.cached_property
    def errors(self) -> tuple[FloatArray, FloatArray, dict[int, tuple[float, int]]]:
        """Log ratio of error counts and its variance by chance (NaN for none), and by key the usual one of so many."""
        counts = self._positive("errors")
        unbounded = np.array([key[0] == "unbounded" for key in self.keys])[self.key]
        users = np.where(unbounded[:, None], self.users, 1.0)
        ratios = np.where(self.entry < self.chain, counts[:, 1] / counts[:, 0] * users[:, 0] / users[:, 1], np.nan)
        logs = np.array([math.log(each) if each > 0 else math.nan for each in ratios.tolist()])
        usual = {}
        for key, rows in self.by_key.items():
            sizes = np.abs(logs[rows][~np.isnan(logs[rows])])
            usual[key] = (MAD_TO_SD * float(np.median(sizes)) if sizes.size else math.nan, sizes.size)
        return logs, (1.0 / counts).sum(axis=1), usual

    def repeats(self) -> tuple[FloatArray, Integers]:
        """Levels of builds measured more than once in single runs on one recorded setup, and how many of each."""
        setups, texts = dataset.codes(self.table["setup"])
        said = [json.loads(text) for text in texts]
        on = [json.dumps([e["setup"], e["coordinator"]], sort_keys=True) if e["setup"] else None for e in said]
        setup = pd.factorize(np.array(on, dtype=object))[0][setups]
        known = {"key": self.key.repeat(2), "setup": setup.repeat(2), "version": self._versions().ravel()}
        levels = pd.DataFrame({**known, "users": self.users.ravel()})
        single = levels[(self.runs.ravel() == 1) & (levels > -1).all(axis=1)]
        build = single.groupby([*known], sort=False).ngroup().to_numpy()
        sizes = np.bincount(build)
        several = np.flatnonzero(sizes[build] > 1)
        order = several[np.argsort(build[several], kind="stable")]
        return single["users"].to_numpy()[order], sizes[sizes > 1]
