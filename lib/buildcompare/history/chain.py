"""Analyse a chain of comparisons: drift, databases, setup and error counts of each, and what is usual in all."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from buildcompare.history import drift as measure
from buildcompare.history.ledger import Entry, tidy
from buildcompare.history.setup import setup_differences
from buildcompare.results import BetweenComparisons, DatabaseOrder, Drift, RepeatedMeasurements, SetupDifference
from buildcompare.results.codes import DriftKind, SetupChange
from buildcompare.stats.noise import Noise


@dataclass(frozen=True)
class Step:
    """One comparison of the chain, compared with the one before it and with those that measured its versions.

    Attributes
    ----------
    before
        Name of the comparison before it; None for the first.
    """

    entry: Entry
    before: str | None
    setup_differences: Sequence[SetupDifference]
    drift: Sequence[Drift]

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
    """A whole chain, analysed.

    Attributes
    ----------
    chain
        The comparisons in their order.
    tests
        The frame of :func:`buildcompare.history.ledger.tidy`, of the chain and then of the studies.
    within
        One row for each test with supported users: the columns of
        :func:`buildcompare.history.drift.beside`, and those of its `measure_change` (new build against base).
    drift
        Rows of :func:`buildcompare.history.drift.measure_drift` and `compare_databases`.
    errors
        Rows of :func:`buildcompare.history.drift.find_error_changes`.
    """

    chain: Sequence[Entry]
    noise: Noise
    tests: pd.DataFrame
    within: pd.DataFrame
    drift: pd.DataFrame
    errors: pd.DataFrame
    between: Sequence[BetweenComparisons]
    repeats: RepeatedMeasurements | None

    @functools.cached_property
    def steps(self) -> list[Step]:
        """What is known of each comparison, in the order of the chain."""
        rows: list[list[Mapping[Any, Any]]] = [[] for _ in self.chain]
        for row in self.drift.to_dict("records"):
            rows[row["order"]].append(row)
        return [self._step(order, own) for order, own in enumerate(rows)]

    def last(self) -> Step:
        """What is known of the last comparison, without making the rows of all others."""
        order = len(self.chain) - 1
        return self._step(order, self.drift[self.drift["order"] == order].to_dict("records"))

    def _step(self, order: int, rows: Sequence[Mapping[Any, Any]]) -> Step:
        now = self.chain[order]
        before = self.chain[order - 1].name if order else None
        names = {before, *(row["against"] for row in rows if row["kind"] != DriftKind.BETWEEN_DATABASES)} - {None}
        since = {name: setup_differences(self._by_name[name], now) for name in names}
        drift = [self._row(row, since.get(row["against"], [])) for row in rows]
        return Step(now, before, since[before] if before is not None else [], drift)

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
        return {entry.name: entry for entry in self.chain}

    @functools.cached_property
    def _orders(self) -> dict[tuple[str, bool], tuple[list[int], list[DatabaseOrder]]]:
        """By pair of databases and whether the later is below: the comparisons in which they stood so."""
        found: dict[tuple[str, bool], tuple[list[int], list[DatabaseOrder]]] = {}
        rows = self.drift[self.drift["kind"] == DriftKind.BETWEEN_DATABASES].assign(
            below=lambda each: each["delta_percent"] < 0
        )
        wide = rows.pivot_table("delta_percent", ["pair", "below", "order", "comparison"], "side")
        for (pair, below, order, comparison), percents in zip(wide.index, wide.to_dict("records"), strict=True):
            orders, seen = found.setdefault((pair, below), ([], []))
            orders.append(order)
            seen.append(DatabaseOrder.model_validate({"comparison": comparison, **percents}))
        return found


def analyse_chain(chain: Sequence[Entry], noise: Noise, studies: Sequence[Entry] = ()) -> ChainAnalysis:
    """Analyse each comparison of `chain`; what is usual is learned from all of it.

    Parameters
    ----------
    chain
        Entries in their order.
    noise
        Of the supported users of one run.
    studies
        Only for their own changes and repeated measurements.
    """
    tests = tidy([*chain, *studies])
    both = measure.beside(tests)
    in_chain = both[both["kind"] == "monthly"]
    drift, between = measure.measure_drift(in_chain, noise)
    databases = measure.compare_databases(tests[tests["kind"] == "monthly"], noise)
    within = both[both["users_base"].notna() | both["users_new"].notna()]
    runs = (within["runs_base"], within["runs_new"])
    single = tests[tests["version"].ne("") & tests["setup"].ne("") & tests["users"].notna() & tests["runs"].eq(1)]
    return ChainAnalysis(
        chain,
        noise,
        tests,
        within.join(measure.measure_change(within["users_base"], within["users_new"], noise, runs)),
        pd.concat([drift.assign(flipped=False), databases], ignore_index=True),
        measure.find_error_changes(in_chain),
        between,
        measure.measure_repeats(single["users"], single["key"] + "\n" + single["version"] + "\n" + single["setup"]),
    )
