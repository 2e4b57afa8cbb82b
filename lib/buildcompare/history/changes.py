"""Changes between the builds of earlier comparisons, in every metric of every test: noise is learned from them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.history.ledger import Ledger, LedgerTest, entry_of
from buildcompare.history.setup import SETUP_COLUMNS, changed_settings, setup_differences
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import PAST_CHANGE, PastChanges, slug_of

NOT_OF_NOISE = {SETUP_COLUMNS["load_test_version"], "Metrics server"}
"""Settings whose change leaves the noise between runs as it is."""
NEWEST = 200
"""Monthly comparisons that noise is learned from, the latest. With two databases their 400 changes tell a standard
deviation within 6 %."""


def past_changes(
    ledger: Ledger, params: Comparison, samples: Collection[str], catalogue: Catalogue, *, simulated: bool
) -> PastChanges:
    """Changes between the builds of the `NEWEST` other comparisons of `ledger`.

    Left out are the comparison of `params` itself and tests that share a run with it, by its `samples`.
    """
    now = entry_of(params, position=1)
    types, same, samples = {test.type for test in now.tests}, {*ledger.alike(now)}, {*samples}
    load, last = catalogue.load.slug if catalogue.load else "", ledger.next_position - 1
    rows = defaultdict(list)
    for number, listed in enumerate(ledger.listed):
        if listed.simulated != simulated or listed.name in same or (listed.position or last) <= last - NEWEST:
            continue
        entry = ledger.entry(listed.name)
        same_setup = not {*changed_settings(setup_differences(entry, now))} - NOT_OF_NOISE
        for test in entry.tests:
            if test.type in types and samples.isdisjoint(test.samples):
                for key, change in _changes(test, load):
                    rows[key].append((number, *change, same_setup))
    return {key: pd.DataFrame(np.array(each, dtype=np.float64), columns=PAST_CHANGE) for key, each in rows.items()}


def _changes(test: LedgerTest, load: str) -> Iterator[tuple[tuple[str, str], tuple[object, ...]]]:
    """Type and metric with columns of :data:`PAST_CHANGE`; `load` is the metric of the supported users."""
    base, new = test.levels
    if load and base and new:
        yield (test.type, load), (math.log(new / base), *test.runs, 0.0, math.nan, math.nan, False)
    lengths = [*test.windows_s.base, *test.windows_s.new]
    seconds = sum(lengths) / len(lengths) if lengths else math.nan
    for key, levels in test.levels_of_runs.items():
        slug, base, new = slug_of(key), mean_of_runs(levels.base), mean_of_runs(levels.new)
        if base and new and slug != load:
            runs = len(levels.base), len(levels.new)
            within = test.within_se_log.get(key, math.nan) / math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
            change = (math.log(new / base), *runs, 0.0, seconds, within, slug in test.misread)
            yield (test.type, slug), change
    for slug, at in test.at_load.items():
        error = (at.within_se_log, math.nan, math.nan)
        yield ("equal_load", slug), (math.log(at.new / at.base), *test.runs, *error, slug in test.misread)
