"""Analyse a chain of comparisons: drift, databases, setup and error counts of each, and what is usual in all."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from buildcompare.history import drift as measure
from buildcompare.history.ledger import Entry, TestKey, tidy
from buildcompare.history.table import SETUP_COLUMNS
from buildcompare.results.codes import DriftKind, SetupChange
from buildcompare.results.history import BetweenComparisons, DatabaseOrder, Drift, RepeatedMeasurements, SetupDifference
from buildcompare.stats.noise import Noise
from buildcompare.text.numbers import db_name

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[`*_~\[\]\\]")
_COORDINATOR = {
    "users_inc": "Coordinator - users added per step",
    "users_dec": "Coordinator - users removed per step",
    "rest_s": "Coordinator - rest between steps (s)",
}
_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *_COORDINATOR.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""


@dataclass(frozen=True)
class Step:
    """One comparison of a ledger, compared with the one `before` it and with those that measured its versions.

    `changes` (by test) and `errors` are its rows of the :class:`ChainAnalysis`; a study has none `before` it.
    """

    entry: Entry
    before: str | None = None
    setup_differences: Sequence[SetupDifference] = ()
    drift: Sequence[Drift] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    errors: Sequence[Any] = ()

    @property
    def same_version(self) -> list[Drift]:
        """The drift of one version since an earlier comparison, without what is compared beside it."""
        return [row for row in self.drift if row.kind == DriftKind.SAME_VERSION and row.same_version]

    @property
    def setup_changed(self) -> list[str]:
        """Settings that changed since the comparison before."""
        return [each.setting for each in self.setup_differences if each.kind == SetupChange.CHANGED]


@dataclass(frozen=True)
class ChainAnalysis:
    """A whole chain, and then its studies, analysed: what :func:`tidy` and the functions of `history.drift` make.

    `changes` has one row for each test with supported users: the columns of `beside` and of `measure_change`.
    """

    entries: Sequence[Entry]
    noise: Noise
    tests: pd.DataFrame
    changes: pd.DataFrame
    drift: pd.DataFrame
    errors: pd.DataFrame
    between: Sequence[BetweenComparisons]
    repeats: RepeatedMeasurements | None

    @functools.cached_property
    def steps(self) -> dict[str, Step]:
        """What is known of each comparison and study, by its name."""
        drift: dict[int, list[Mapping[Any, Any]]] = {}
        for row in self.drift.to_dict("records"):
            drift.setdefault(row["order"], []).append(row)
        changes, errors = _by_comparison(self.changes), _by_comparison(self.errors)
        return {
            name: self._step(order, drift.get(order, ()), changes.get(name, ()), errors.get(name, ()))
            for order, name in enumerate(self._by_name)
        }

    def only(self, order: int) -> Step:
        """The drift and setup of one comparison, without making the rows of all others."""
        return self._step(order, self.drift[self.drift["order"] == order].to_dict("records"))

    def _step(
        self, order: int, rows: Sequence[Mapping[Any, Any]], changes: Sequence[Any] = (), errors: Sequence[Any] = ()
    ) -> Step:
        now = self.entries[order]
        before = self.entries[order - 1].name if order and now.kind == "monthly" else None
        names = {before, *(row["against"] for row in rows if row["kind"] != DriftKind.BETWEEN_DATABASES)} - {None}
        since = {name: setup_differences(self._by_name[name], now) for name in names}
        drift = [self._row(row, since.get(row["against"], [])) for row in rows]
        differences = since[before] if before is not None else []
        return Step(now, before, differences, drift, {row.test: row for row in changes}, errors)

    def _row(self, row: Mapping[Any, Any], differences: Sequence[SetupDifference]) -> Drift:
        given = {name: row[name] for name in Drift.model_fields.keys() & row.keys()}
        changed = [each.setting for each in differences if each.kind == SetupChange.CHANGED]
        earlier: Sequence[DatabaseOrder] = ()
        if row["flipped"]:
            orders, comparisons = self._orders[row["pair"], row["delta_percent"] < 0]
            earlier = comparisons[: bisect.bisect_left(orders, row["order"])]
        more = {"noise_source": self.noise.noise_source, "setup_changed": changed, "earlier": earlier}
        return Drift.model_validate({**given, "db_engine": row["db_engine"] or None, **more})

    @functools.cached_property
    def _by_name(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in self.entries}

    @functools.cached_property
    def _orders(self) -> dict[tuple[str, bool], tuple[list[int], list[DatabaseOrder]]]:
        """By pair of databases and whether the later is below: the comparisons in which they stood so."""
        found: dict[tuple[str, bool], tuple[list[int], list[DatabaseOrder]]] = {}
        rows = self.drift[self.drift["kind"].eq(DriftKind.BETWEEN_DATABASES) & self.drift["delta_percent"].ne(0)]
        rows = rows.assign(below=rows["delta_percent"] < 0)
        wide = rows.pivot_table("delta_percent", ["pair", "below", "order", "comparison"], "side")
        for (pair, below, order, comparison), percents in zip(wide.index, wide.to_dict("records"), strict=True):
            orders, seen = found.setdefault((pair, below), ([], []))
            orders.append(order)
            seen.append(DatabaseOrder.model_validate({"comparison": comparison, **percents}))
        return found


def analyse_chain(chain: Sequence[Entry], noise: Noise, studies: Sequence[Entry] = ()) -> ChainAnalysis:
    """Analyse each comparison of `chain`, monthly entries in their order; what is usual is learned from all of it.

    `noise` is of one run's supported users; `studies` serve for their own changes and repeated measurements only.
    """
    entries = [*chain, *studies]
    tests = tidy(entries)
    both = measure.beside(tests)
    in_chain = both[both["kind"] == "monthly"]
    drift, between = measure.measure_drift(in_chain, noise)
    databases = measure.compare_databases(tests[tests["kind"] == "monthly"], noise)
    known = both[both["users_base"].notna() | both["users_new"].notna()]
    runs = (known["runs_base"], known["runs_new"])
    single = tests[tests["version"].ne("") & tests["setup"].ne("") & tests["users"].notna() & tests["runs"].eq(1)]
    return ChainAnalysis(
        entries,
        noise,
        tests,
        known.assign(**measure.measure_change(known["users_base"], known["users_new"], noise, runs)),
        pd.concat([drift.assign(flipped=False), databases], ignore_index=True),
        measure.find_error_changes(in_chain),
        between,
        measure.measure_repeats(single["users"], single["key"] + "\n" + single["version"] + "\n" + single["setup"]),
    )


def _by_comparison(rows: pd.DataFrame) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows.itertuples():
        found.setdefault(str(row.comparison), []).append(row)
    return found


def setup_differences(before: Entry, now: Entry) -> list[SetupDifference]:
    """Every setting that changed from `before` to `now`, and every one that only one of them states.

    Settings are paired by name without regard to case and marks. One that only one comparison states is listed where
    both came from one source, or where any comparison should state it.
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = _settings(before, common), _settings(now, common)
    found = []
    for key in dict.fromkeys((*new, *old)):
        was, is_now = (side[key][1] if key in side else None for side in (old, new))
        if was is None or is_now is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if _normal(was) != _normal(is_now) else None
        if kind:
            setting = (new.get(key) or old[key])[0]
            found.append(SetupDifference(setting=setting, against=before.name, before=was, now=is_now, kind=kind))
    return sorted(found, key=lambda each: each.kind)


def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", markdown)).split())


def _settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the normal form of the name; of tests, only those that both comparisons have (`common`)."""
    rows = {plain_text(name): plain_text(value) for name, value in entry.setup.items()}
    for name, value in entry.coordinator.items():
        rows[_COORDINATOR.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"] = f"{value:g}"
    for test in entry.tests:
        if test.users is not None and test.key in common:
            db = f" ({db_name(test.db_engine)})" if test.db_engine else ""
            name = f"Bounded - number of users{db}" if test.type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(name, str(test.users))
    if entry.servers:
        rows["Metrics server"] = ", ".join(entry.servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


def _normal(text: str) -> str:
    """What different spellings of one thing share."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))
