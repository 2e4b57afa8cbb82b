"""What does it take to read, or refuse, an input as large as its limits allow, and does it grow faster than the input?

    python tests/stress/limits.py

Prints for each thing that may be large the CPU seconds of an eighth, a half and the whole of what is allowed, and the
exponent by which work grows from the eighth to the whole: 1 is in proportion, 2 with the square.
"""

import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import growth  # the tests' own parts


def main(names: list[str]) -> None:
    """Print a row for each."""
    print(f"{'':28} {'most':>12} {'MB':>7} {'1/8 s':>7} {'1/2 s':>7} {'all s':>7} {'grows':>6}")
    with tempfile.TemporaryDirectory() as name:
        for what in names:
            kind, make, most = growth.CASES[what]
            growth.takes_s(kind, make(10), Path(name))
            inputs = [make(most // part) for part in (8, 2, 1)]
            seconds = [growth.takes_s(kind, each, Path(name)) for each in inputs]
            grows = math.log(seconds[2] / seconds[0]) / math.log(8) if seconds[0] > 0.01 else math.nan
            cells = " ".join(f"{each:7.2f}" for each in seconds)
            print(f"{what:28} {most:12,} {len(inputs[2]) / 1e6:7.1f} {cells} {grows:6.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [*growth.CASES])
