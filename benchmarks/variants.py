"""Matrices with known effects: how often intervals hold the truth, and how often an absent effect is called.

    python benchmarks/variants.py [matrices [word of the designs]]

Settings were chosen on seeds below 250; figures come from seeds 1000 and up.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pandas as pd

from buildcompare.stats.effects import holm
from labmatrix.model import between_cells, cell_means, interaction, main_effect

DESIGNS = {
    "2 x 3 x 2, three runs of each": ((2, 3, 2), 3, None),
    "2 x 3, a cell missing, two runs": ((2, 3), 2, None),
    "2 x 2, four rounds that drift": ((2, 2), 4, "round"),
    "2 x 3, machines of one level each": ((2, 3), 6, "machine"),
    "2 x 2, two runs": ((2, 2), 2, None),
    "2 x 3, one to four runs": ((2, 3), 4, None),
    "2 x 3 x 2, three rounds, a tenth of the cells failed": ((2, 3, 2), 3, "round"),
    "2 x 2, two machines of one level each": ((2, 2), 6, "machine"),
    "two variants, four machines of one each and one of both": ((2,), 0, "00 00 11 11 01"),
    "two variants, two machines of one each and two of both": ((2,), 0, "01 01 00 11"),
    "two variants on four days, unbalanced": ((2,), 0, "001 001 00 01"),
    "four variants, four machines of three each": ((4,), 0, "012 013 023 123"),
}
"""Levels of the factors, runs of each cell, what runs share; or of one factor the level of each run of each machine."""
SD, BETWEEN = 0.05, 0.05
FACTORS = (0.3, -0.2, 0.1)
"""Of each factor's last level, on the log scale; the last factor but one also acts with the first where `acts`."""


def simulate(design: str, seed: int, *, acts: bool) -> tuple[pd.DataFrame, dict[tuple[str, ...], float]]:
    """The runs of one matrix, and the true log level of each cell."""
    levels, repeats, blocks = DESIGNS[design]
    rng = np.random.default_rng(seed)
    cells = [*itertools.product(*([str(i) for i in range(n)] for n in levels))]
    cells = cells[:-1] if "missing" in design else cells
    truth = {}
    for cell in cells:
        main = sum(size * (level == str(n - 1)) for size, level, n in zip(FACTORS, cell, levels, strict=False))
        joint = 0.25 * (len(cell) > 1 and cell[0] != "0" and cell[1] != "0")
        truth[cell] = (main + joint) if acts else 0.0
    if not repeats:
        machine_runs = [(str(i), (level,)) for i, of in enumerate(str(blocks).split()) for level in of]
        by_machine = rng.normal(0, BETWEEN, 10)
        rows = [(cell, truth[cell] + by_machine[int(i)] + rng.normal(0, SD), i) for i, cell in machine_runs]
        return pd.DataFrame(rows, columns=["cell", "log", "block"]), truth
    rows = []
    effects = {}
    machines = 2 if "two machines" in design else 3
    for (k, cell), i in itertools.product(enumerate(cells), range(repeats)):
        if ("one to four" in design and i > k % 4) or ("failed" in design and rng.random() < 0.1):
            continue
        block = "" if blocks is None else str(i) if blocks == "round" else f"{cell[0]}-{i % machines}"
        level = effects.setdefault(block, rng.normal(0, BETWEEN)) if block else 0.0
        rows.append((cell, truth[cell] + level + rng.normal(0, SD), block))
    return pd.DataFrame(rows, columns=["cell", "log", "block"]), truth


def measure(design: str, seeds: range) -> dict[str, float]:
    """Parts of matrices: of intervals that hold the truth, and of matrices with any absent effect called."""
    held, called = [], {"main": 0, "interaction": 0, "any": 0}
    levels = DESIGNS[design][0]
    pairs = [*itertools.combinations(range(len(levels)), 2)]
    for seed in seeds:
        for acts in (True, False):
            table, truth = simulate(design, seed, acts=acts)
            means = cell_means(table)
            of_cells = np.array([truth[cell] for cell in means.cells])
            terms = {
                **{(i,): [main_effect(means, i, str(k), "0") for k in range(1, n)] for i, n in enumerate(levels)},
                **{(i, j): [interaction(means, (i, j), (str(a), str(b)), ("0", "0"))
                            for a in range(1, levels[i]) for b in range(1, levels[j])] for i, j in pairs},
            }  # fmt: skip
            if acts:
                contrasts = [each for found in terms.values() for each in found if each is not None]
                contrasts += [between_cells(means, cell, means.cells[0]) for cell in means.cells[1:]]
                for contrast in contrasts:
                    effect = means.effect(contrast)
                    if effect is None:  # a cell ran in one block alone
                        continue
                    low, high = effect.interval()
                    held.append(low <= 100 * np.expm1(contrast @ of_cells) <= high)
                continue
            tested = {key: means.test(np.array([e for e in found if e is not None])) for key, found in terms.items()}
            known = {key: each[1] for key, each in tested.items() if each is not None}
            wrong = [key for key, p in zip(known, holm([*known.values()]), strict=True) if p < 0.05]
            called["main"] += any(len(key) == 1 for key in wrong)
            called["interaction"] += any(len(key) == 2 for key in wrong)
            called["any"] += bool(wrong)
    return {"held": float(np.mean(held)), **{key: count / len(seeds) for key, count in called.items()}}


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for name in (each for each in DESIGNS if " ".join(sys.argv[2:]) in each):
        found = measure(name, range(1000, 1000 + count))
        print(f"{name}: " + ", ".join(f"{key} {100 * part:.1f} %" for key, part in found.items()))
