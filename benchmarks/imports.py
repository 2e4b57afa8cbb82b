"""What does importing cost? The package beside pandas, and one command line beside an empty one, in pairs.

    python benchmarks/imports.py [PAIRS]

Prints the median of the ratios of CPU seconds. `import buildcompare` alone loads nothing heavy; the first use of
`compare` loads the analyses.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

CASES = {
    "import buildcompare": "import buildcompare as bc",
    "bc.compare found": "import buildcompare as bc; bc.compare",
}
REFERENCE = "import pandas"


def cpu_seconds(code: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for name, code in CASES.items():
        ratios = [cpu_seconds(code) / cpu_seconds(REFERENCE) for _ in range(pairs)]
        print(
            f"{name:24} {statistics.median(ratios):5.2f} times `{REFERENCE}` ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
