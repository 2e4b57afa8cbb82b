"""Are benchmarks of one commit called, and is a slower one found, where sessions differ more than processes?

    python benchmarks/sessions.py

Results of pyperf of CPython in BUILDCOMPARE_REAL. Table 1: one commit, measured in two sessions of twenty processes
each. Two pairs set `BETWEEN_SESSIONS`: a t distribution fitted to the changes of all benchmarks. The others judge it.
Table 2: consecutive nights, each a session, in turn base and new: every window of nights, of which some hold real
changes. `called` is the share of rows that change, `covered` that of 95 % intervals that hold zero, and `found` the
share of benchmarks that are a regression if they alone are 10 % slower. `named`: neighbours share a name, and are
paired if that makes most intervals narrower. Ways to share out the error were chosen on nights 0 to 9 and judged on
nights 10 to 19, and the reverse: the last columns are `called` and `found` on each. `REPEATED_DF` was chosen on the
first of them; 3 finds 81.3 and 90.0 %, 2 (the degrees of freedom of one session) 76.5 and 86.8 %.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

import buildcompare as bc
from buildcompare.config.assumed import open_catalogue, with_assumed, with_times
from buildcompare.metrics.measurements import measure_measurements
from buildcompare.recordings.recording import Recording
from buildcompare.stats.effects import judge_metrics

FOLDER = Path(os.environ.get("BUILDCOMPARE_REAL", "../shared/real"), "benchmarks")
SETTING, OTHERS = (0, 1), (3, 6)
NIGHTS, SLOWER = 20, math.log(1.1)


def read(name: str) -> Recording:
    """One session."""
    return bc.read(FOLDER / f"{name}.json.gz")


def changes(pair: int) -> list[float]:
    """Log changes of all benchmarks between two sessions of one commit."""
    levels = [
        {each.metric: float(np.log(each.values).mean()) for each in read(f"same-commit-{pair}-{when}").measurements}
        for when in ("first", "again")
    ]
    return [level - levels[0][name] for name, level in levels[1].items() if name in levels[0]]


def one_commit() -> None:
    """Print table 1."""
    df, _, scale = stats.t.fit([change for pair in SETTING for change in changes(pair)], floc=0.0)
    print(f"pairs {SETTING}: one session scatters by {100 * scale / math.sqrt(2):.2f} % (t, {df:.1f} df)\n")
    print("pair   rows  verdict       called  covered")
    for pair in (*SETTING, *OTHERS):
        found = bc.compare(*(read(f"same-commit-{pair}-{when}") for when in ("first", "again")))
        rows = found.metrics
        called = rows["status"].isin(["regression", "improvement"])
        covered = (rows["ci_low"] < 0) & (rows["ci_high"] > 0)
        part = "" if pair in OTHERS else "  (sets)"
        print(f"{pair:4}{len(rows):7}  {found.verdict:12}{called.sum():8}{100 * covered.mean():8.0f} %{part}")


def window(nights: Sequence[Recording], *, named: bool) -> tuple[float, float, float]:
    """Percentages called, covered and found in nights that are base and new in turn."""
    alike = [replace(night, session=f"pair {i // 2}") if named else night for i, night in enumerate(nights)]
    units = {each.name: each.unit for night in alike for each in night.measurements}
    catalogue = with_times(with_assumed(open_catalogue([]), units), units.items())
    measured = measure_measurements({"base": alike[::2], "new": alike[1::2]}, catalogue)
    effects = [(catalogue.find(each.metric_name), each.effect) for each in measured if each.effect]
    called = [each.status.changed for each in judge_metrics(effects) if each]
    covered = [low < 0 < high for low, high in (effect.interval() for _, effect in effects if effect)]
    found = []
    for i, (metric, effect) in enumerate(effects):
        assert effect is not None
        slower = replace(effect, log_ratio=effect.log_ratio + SLOWER)
        judged = judge_metrics([*effects[:i], (metric, slower), *effects[i + 1 :]])[i]
        found.append(judged is not None and judged.status == "regression")
    return tuple(100.0 * float(np.mean(each)) for each in (called, covered, found))  # type: ignore[return-value]


def interleaved() -> None:
    """Print table 2."""
    nights = [read(f"night-{i:02}") for i in range(NIGHTS)]
    print("\nnights a side  named   windows  called  covered  found   (nights 0 to 9)  (10 to 19)")
    for side in (2, 3, 5):
        for named in (False, True):
            if named and side < 3:
                continue
            starts = range(NIGHTS - 2 * side + 1)
            rates = np.array([window(nights[at : at + 2 * side], named=named) for at in starts])
            parts = rates, rates[: NIGHTS // 2 - 2 * side + 1], rates[NIGHTS // 2 :]
            whole, *halves = (part.mean(axis=0) for part in parts)
            numbers = f"{whole[0]:6.1f} %{whole[1]:7.0f} %{whole[2]:5.1f} %"
            of_halves = "".join(f"{called:9.2f} %{found:5.1f} %" for called, _, found in halves)
            print(f"{side:13}  {'yes' if named else 'no':6}{len(starts):9}{numbers}{of_halves}")


if __name__ == "__main__":
    one_commit()
    interleaved()
