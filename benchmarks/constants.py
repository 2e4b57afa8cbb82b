"""Which named numbers decide anything, and is the result flat around their values?

    python benchmarks/constants.py [ROOM ...] [ROOM/FILE:NAME ...] [--list]

Every number with a name in capitals in `load/`, `metrics/`, `stats/`, `validity/` and `labels/` is found in the syntax
trees. Pairs of identical runs (BUILDCOMPARE_REAL, `ceiling/`) are compared at half and at twice each number, but one
below 1 at most halfway to 1; in the new run every second metric is 30 % larger and every tenth label four times as
large. Printed are the rates, of metrics and of labels: rows without a planted change that are called worse or better
(false), rows with one that are called worse (found); the width of the 95 % intervals as a ratio to that of today; and
the events of one run only. "Cannot be computed": the method rejects such a value, as a spline does two knots. A number
without any effect on results.json "decides nothing here": it may still serve inputs that these pairs lack, such as
gaps, ledgers, repeated runs or benchmarks. A number that only other constants or default values use takes effect at
import and is listed apart. `--list` measures nothing.
"""

from __future__ import annotations

import ast
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
from identical import CATALOGUE, read

import buildcompare
from buildcompare import findings
from buildcompare.comparison.measure import compare_test
from buildcompare.config.params import Run, Test
from buildcompare.recordings.recording import Recording
from buildcompare.results.codes import Status

ROOMS = ("load", "metrics", "stats", "validity", "labels")
LIBRARY = Path(buildcompare.__file__).parent
PAIRS = {"v1-0.1": 3, "v1-0.3": 3, "v2-2XL222": 1, "v2-XL220": 1, "v1-1.3": 1}
"""Configurations and how many pairs of their runs are compared; only the last has all metrics of an unbounded test."""
PLANTED, PLANTED_LABELS = 1.3, 4.0
Value = float | tuple[float, ...]


@dataclass(frozen=True)
class Constant:
    """A number with a name; `used` in the body of a function, not only at import."""

    room: str
    module: str
    name: str
    value: Value
    used: bool

    @property
    def place(self) -> str:
        return f"{self.room}/{self.module.rpartition('.')[2]}.py:{self.name}"


def constants() -> Iterator[Constant]:
    """Find the named numbers of all rooms."""
    for room in ROOMS:
        for file in sorted((LIBRARY / room).glob("*.py")):
            module = f"buildcompare.{room}.{file.stem}"
            for node in ast.parse(file.read_text("utf-8")).body:
                if not isinstance(node, ast.Assign):
                    continue
                for target in ast.walk(node.targets[0]):
                    if isinstance(target, ast.Name) and target.id.isupper():
                        value = getattr(import_module(module), target.id)
                        if is_number(value) or (isinstance(value, tuple) and value and all(map(is_number, value))):
                            yield Constant(room, module, target.id, value, target.id in names_in_functions())


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value != 0


@cache
def names_in_functions() -> frozenset[str]:
    """Names that the bodies of the library's functions read, also as attributes of modules."""
    names: set[str] = set()
    for file in LIBRARY.rglob("*.py"):
        functions = (n for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef))
        inside = (node for function in functions for line in function.body for node in ast.walk(line))
        names |= {str(getattr(node, "id", getattr(node, "attr", ""))) for node in inside}
    return frozenset(names)


# ---- Changed numbers ------------------------------------------------------------------------------------------------


def scaled(value: Value, factor: float) -> Value:
    """`value` times `factor`; whole numbers stay whole and at least 1, and parts stay below 1."""
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)  # type: ignore[misc]
    if isinstance(value, int):
        return max(round(value * factor), 1)
    return min(value * factor, (1.0 + value) / 2.0) if 0.0 < value < 1.0 else value * factor


def bind(constant: Constant, value: Value) -> None:
    """Give a constant another value in its module and wherever it was imported; results kept by functions go."""
    original = vars(sys.modules[constant.module])[constant.name]
    for name, module in list(sys.modules.items()):
        if name.startswith("buildcompare.") and vars(module).get(constant.name) is original:
            setattr(module, constant.name, value)
    for kept in CACHED:
        kept.cache_clear()  # type: ignore[attr-defined]


CACHED: list[Callable[..., object]] = []


# ---- Comparisons ----------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What all pairs say: shares of false and found rows, mean log width of intervals, events, and all results."""

    rates: str
    width: float
    events: int
    results: str


def moved(recording: Recording) -> set[str]:
    """Every second metric but the load, and every tenth label: labels learn their noise from one another."""
    slugs = sorted({series.metric for series in recording.series} - {CATALOGUE.load.slug if CATALOGUE.load else ""})
    return {*slugs[::2], *sorted({each.label for each in recording.label_summaries})[::10]}


def planted(recording: Recording) -> Recording:
    """The run with larger values of what :func:`moved` names."""
    names = moved(recording)
    series = tuple(replace(s, values=s.values * PLANTED) if s.metric in names else s for s in recording.series)
    times = (each.label in names and each.stat != "calls" for each in recording.label_summaries)
    pairs = zip(recording.label_summaries, times, strict=True)
    labels = tuple(replace(each, value=each.value * PLANTED_LABELS) if moves else each for each, moves in pairs)
    return replace(recording, series=series, label_summaries=labels)


def measure(pairs: Sequence[tuple[str, Recording, Recording]]) -> Measured:
    """Compare all pairs."""
    called: dict[tuple[str, bool], list[bool]] = {
        (what, of): [] for what in ("metrics", "labels") for of in (False, True)
    }
    widths, events, text = [], 0, []
    for kind, base, new in pairs:
        test = Test(name="x", type=kind, base=[Run(report="-")], new=[Run(report="-")])  # type: ignore[arg-type]
        try:
            result = compare_test(test, {"base": [base], "new": [new]}, CATALOGUE).result
        except Exception as error:  # such as a spline with too few knots
            return Measured(f"cannot be computed: {type(error).__name__}", math.nan, 0, repr(error))
        names = moved(new)
        rows = [("metrics", row.slug, row.judged) for row in result.metrics if row.better == "lower"]
        for what, name, row in (*rows, *(("labels", row.label, row) for row in result.labels)):
            if row.p_value is not None:
                worse = row.status == Status.REGRESSION
                called[what, name in names].append(worse if name in names else row.status.changed)
        ends = [(row.judged.ci_low, row.judged.ci_high) for row in result.metrics]
        logs = [(math.log1p(low / 100), math.log1p(high / 100)) for low, high in ends if low is not None and high]
        widths += [high - low for low, high in logs]
        events += sum(not event.matched for event in result.events)
        text += [result.model_dump_json(), repr([each.id for each in findings.find([result], ("a", "b"))])]
    rates = "".join(f"{np.mean(each):7.1%}" for each in called.values())
    return Measured(rates, float(np.mean(widths)), events, "".join(text))


def main(*asked: str) -> None:
    """List the numbers, then measure each at half and twice its value."""
    wanted = [each for each in asked if not each.startswith("--")]
    every = [c for c in constants() if not wanted or c.room in wanted or c.place in wanted]
    print(f"{len(every)} named numbers; at import only: {', '.join(c.place for c in every if not c.used)}\n")
    if "--list" in asked:
        print("\n".join(f"{c.place} = {c.value}" for c in every))
        return
    runs = read(Path(os.environ.get("BUILDCOMPARE_REAL") or "../shared/real"))[0]
    pairs = [(kind, each[i], planted(each[(i + 1) % len(each)])) for (name, kind), each in runs.items()
              for i in range(PAIRS.get(name, 0))]  # fmt: skip
    CACHED.extend(each for each in gc.get_objects() if hasattr(type(each), "cache_clear"))
    now, idle = measure(pairs), []
    print(f"{'':44}    metrics       labels\n{'':44}" + "  false  found  false  found width events | at twice")
    print(f"{'today':44}{now.rates}  1.00 {now.events:4}")
    for constant in (c for c in every if c.used):
        cells = []
        for factor in (0.5, 2.0):
            bind(constant, scaled(constant.value, factor))
            cells.append(measure(pairs))
            bind(constant, constant.value)
        if all(cell.results == now.results for cell in cells):
            idle.append(constant.place)
            continue
        said = (
            f"{cell.rates:39}" if math.isnan(cell.width)
            else f"{cell.rates} {math.exp(cell.width - now.width):5.2f} {cell.events:4}"
            for cell in cells
        )  # fmt: skip
        print(f"{constant.place:44}{' | '.join(said)}", flush=True)
    print(f"\nDecide nothing here: {', '.join(idle)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
