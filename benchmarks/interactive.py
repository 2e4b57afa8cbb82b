"""How soon a notebook answers: python benchmarks/interactive.py [params/X.yaml]

Prints processor time of this process (median of nine), and each as a part of comparing the whole release in the same
run: a window, a metric, a label and a test that are chosen in the widgets of `investigate.ipynb`, with everything that
they show. A window is to answer within 200 ms, a metric within 500 ms.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import buildcompare as bc


def main(params: str) -> None:
    """Move the widgets of one comparison."""
    comparison = bc.read_params(params)
    bc.compare(comparison)  # so that imports do not count
    whole = seconds(lambda: bc.compare(comparison), tries=3)
    bench = bc.Workbench(bc.investigate(bc.compare(comparison)))
    print(f"{params}: {len(comparison.tests)} tests; the whole comparison takes {1e3 * whole:,.0f} ms")
    steps: dict[str, Iterator[Callable[[], None]]] = {
        "a window": windows(bench),
        "a metric": choices(bench, "metric", [slug for _, slug in bench.metric.options if slug]),
        "a label": choices(bench, "label", [name for _, name in bench.label.options if name]),
        "a test": choices(bench, "test", [each.name for each in comparison.tests]),
    }
    for name, each in steps.items():
        took = seconds(lambda each=each: next(each)())  # type: ignore[misc]
        print(f"{name:10} {1e3 * took:6.0f} ms, {took / whole:6.3f} of the whole comparison")


def windows(bench: bc.Workbench) -> Iterator[Callable[[], None]]:
    """Windows that are each another one."""
    minute = 10.0
    while True:
        minute += 1.0
        yield lambda minute=minute: setattr(bench.window, "value", (minute, minute + 25.0))  # type: ignore[misc]


def choices(bench: bc.Workbench, widget: str, options: list[str]) -> Iterator[Callable[[], None]]:
    """Each of the options in turn."""
    while True:
        for option in reversed(options):
            yield lambda option=option: setattr(getattr(bench, widget), "value", option)  # type: ignore[misc]


def seconds(task: Callable[[], object], tries: int = 9) -> float:
    """Median of the processor seconds that `task` takes."""
    took = []
    for _ in range(tries):
        start = time.process_time()
        task()
        took.append(time.process_time() - start)
    return statistics.median(took)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["params/v10.4.0-rc1.yaml"]))
