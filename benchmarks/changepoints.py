"""How well do change points agree with those that people mark, and how often does noise show one?

``python benchmarks/changepoints.py`` prints F1 and covering (van den Burg & Williams 2020, arXiv:2003.06222; a margin
of 5 samples) of annotated series, and false alarms of AR(1) noise, for the default of `buildcompare.changepoints`, an
exact search with penalty 3 ln n on standardised values, and no change at all. Series are of the kinds of that paper's
collection: steps, trends that bend, growth with seasons, prices, outliers and series without any change. Simulated
readers miss small changes and mark others some samples off. Settings are chosen on the first half of the seeds, figures
come from the second; the series of statsmodels, whose changes are documented, chose nothing.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import statsmodels.api as sm
from scipy.signal import lfilter

from buildcompare.stats.changepoints import best_segmentation, changepoints

SEEDS = {"choose": range(20), "report": range(20, 60)}
MARGIN = 5
READERS = 5
REPETITIONS = 400
Array = npt.NDArray[np.float64]
Detector = Callable[[Array], tuple[int, ...]]
Series = tuple[Array, list[set[int]]]


def ar1(rng: np.random.Generator, size: int, phi: float) -> Array:
    """A stationary AR(1) series of variance 1."""
    shocks = rng.standard_normal(size + 300) * math.sqrt(1.0 - phi**2)
    return np.asarray(lfilter([1.0], [1.0, -phi], shocks)[300:])


# ---- Annotated series -----------------------------------------------------------------------------------------------


def simulated(kind: str, seed: int) -> Series:
    """A series of one kind, and the changes that each reader marks."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    size = int(np.exp(rng.uniform(np.log(20 if kind in ("steps", "bends") else 100), np.log(700))))
    count = 0 if kind.endswith("none") else int(rng.integers(1, 2 + min(size // 60, 4)))
    ends = np.sort(rng.choice(np.arange(1, 10), count, replace=False)) / 10 + rng.uniform(-0.03, 0.03, count)
    changes = [int(each) for each in ends * size]
    time, noise = np.arange(size) / size, ar1(rng, size, rng.uniform(0.0, 0.6))
    signs = rng.choice([-1.0, 1.0], count)
    sizes = signs * rng.uniform(1.5, 6.0, count)
    steps = sum((size_ * (np.arange(size) >= at) for size_, at in zip(sizes, changes, strict=True)), np.zeros(size))
    bends = sum((size_ * np.maximum(time - at / size, 0) for size_, at in zip(sizes, changes, strict=True)), 0.0 * time)
    season = rng.uniform(0.5, 2.0) * np.sin(2 * np.pi * np.arange(size) / 12 + rng.uniform(0, 6))
    match kind:
        case "steps" | "steps none":
            values = steps + noise
        case "outliers":
            values = steps + noise + 12.0 * rng.choice([-1, 1], size) * (rng.random(size) < 0.02)
        case "bends" | "bends none":
            values = 6.0 * bends + rng.uniform(-8, 8) * time + 0.3 * noise
        case "growth" | "growth none":
            values = np.exp(0.3 * (steps + season) / 2 + rng.uniform(0.5, 2.0) * time + 0.08 * noise)
        case _:
            walk = np.cumsum(rng.standard_normal(size)) / math.sqrt(size)
            values = np.exp(0.4 * walk + 0.25 * steps)
    readers = [
        {int(np.clip(at + rng.integers(-3, 4), 1, size - 1)) for at, each in zip(changes, sizes, strict=True)
         if rng.random() < 0.5 + abs(each) / 12}
        for _ in range(READERS)
    ]  # fmt: skip
    if kind in ("bends none", "growth none"):  # some readers mark where a trend or growth is halfway
        readers[0] = {size // 2}
    return np.asarray(values, dtype=np.float64), readers


KINDS = ("steps", "steps none", "outliers", "bends", "bends none", "growth", "growth none", "price", "price none")
COLLECTION = ("steps", "outliers", "bends", "growth", "growth none", "price")
"""Kinds in a mix for which no change at all scores about as on the paper's univariate series: .65 and .56."""


def documented() -> Iterator[tuple[str, Series]]:
    """Series of statsmodels with changes of the literature."""
    data = sm.datasets
    yield "nile", (data.nile.load_pandas().data["volume"].to_numpy(), [{27}])  # Cobb 1978, Biometrika 65: 1898
    macro = data.macrodata.load_pandas().data  # quarters from 1959
    yield "real rate", (macro["realint"].to_numpy(), [{54, 86}])  # Bai & Perron 2003, J. Appl. Econometrics 18
    yield "inflation", (macro["infl"].to_numpy(), [{56, 91}, {57, 95}])  # oil 1973, Volcker 1981
    yield "gdp growth", (np.diff(np.log(macro["realgdp"].to_numpy())), [set()])  # its variance fell in 1984
    nino = data.elnino.load_pandas().data.iloc[:, 1:].mean(axis=1).to_numpy()
    yield "el nino", (nino, [{26}, {27}])  # the Pacific's shift of 1976 (Trenberth 1990)
    yield "sunspots", (data.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(), [set()])


# ---- Agreement ------------------------------------------------------------------------------------------------------


def matched(marked: set[int], found: set[int]) -> int:
    """How many marked changes are found, each found one counted once."""
    left, count = set(found), 0
    for mark in sorted(marked):
        near = [each for each in left if abs(each - mark) <= MARGIN]
        if near:
            left.remove(min(near, key=lambda each: abs(each - mark)))
            count += 1
    return count


def scores(series: Series, changes: Sequence[int]) -> tuple[float, float, float, float]:
    """F1, covering, precision and recall; the beginning counts as a change of everybody, as in the paper."""
    values, readers = series
    found, marks = {0, *changes}, [{0, *marked} for marked in readers]
    precision = matched(set().union(*marks), found) / len(found)
    recall = float(np.mean([matched(marked, found) / len(marked) for marked in marks]))
    covers = [_covering(values.size, sorted(marked), sorted(found)) for marked in marks]
    return 2 * precision * recall / (precision + recall), float(np.mean(covers)), precision, recall


def _covering(size: int, marked: Sequence[int], found: Sequence[int]) -> float:
    def parts(starts: Sequence[int]) -> list[tuple[int, int]]:
        return list(itertools.pairwise([*starts, size]))

    def alike(a: tuple[int, int], b: tuple[int, int]) -> float:
        return max(min(a[1], b[1]) - max(a[0], b[0]), 0) / (max(a[1], b[1]) - min(a[0], b[0]))

    return sum((a[1] - a[0]) * max(alike(a, b) for b in parts(found)) for a in parts(marked)) / size


def exact(values: Array) -> tuple[int, ...]:
    """The exact search with penalty 3 ln n."""
    return best_segmentation(values, 3.0 * math.log(values.size) * max(float(values.var()), 1e-300))


DETECTORS: dict[str, Detector] = {
    "default": lambda values: changepoints(values).changes,
    "default on logs": lambda values: changepoints(np.log(values) if (values > 0).all() else values).changes,
    "3 ln n": exact,
    "nothing": lambda values: (),
}


def main(half: str = "report") -> None:
    """Print agreement on annotated series, then false alarms."""
    print(
        f"{'':16}" + "".join(f"{name:>24}" for name in DETECTORS) + "\n" + " " * 16 + "      F1 cover prec. rec. " * 4
    )
    rows = {kind: [simulated(kind, seed) for seed in SEEDS[half]] for kind in KINDS}
    rows |= {"collection": [each for kind in COLLECTION for each in rows[kind]]}
    rows |= {name: [series] for name, series in documented()} if half == "report" else {}
    for name, every in rows.items():
        cells = [np.mean([scores(each, find(each[0])) for each in every], axis=0) for find in DETECTORS.values()]
        print(f"{name:16}" + "".join("   " + "".join(f"{value:6.3f}" for value in cell) for cell in cells))
    print("\nFalse alarms of the default on AR(1) noise, and a step of 2 sd found")
    for size, phi in itertools.product((75, 300, 1080), (0.0, 0.5, 0.9)):
        rng = np.random.default_rng([half == "report", size, int(10 * phi)])
        step = 2.0 * (np.arange(size) >= size // 2)
        noise = [ar1(rng, size, phi) for _ in range(REPETITIONS)]
        false, found = ([bool(changepoints(each + add).changes) for each in noise] for add in (0.0 * step, step))
        print(f"n {size:5}, phi {phi}: {np.mean(false):6.1%} {np.mean(found):6.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
