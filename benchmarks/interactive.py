"""How soon a notebook answers: python benchmarks/interactive.py [params/X.yaml]

Prints processor time of this process (median of nine), and each as a part of comparing the whole release in the same
run: a window, a margin, a metric, a label and a test that are chosen in the widgets of `investigate.ipynb`, with
everything that they show. A window is to answer within 200 ms, a margin within 300 ms, a metric within 500 ms. Before
these: the processor time of a kernel from its start to the verdict of `comparison.ipynb`, which is to come within
2.5 s, and what the verdict by another margin takes there, where all tests are judged again.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbclient
import nbformat

import buildcompare as bc

PROJECT = Path(__file__).resolve().parents[1]


def main(params: str) -> None:
    """Open the notebook of one comparison, and move the widgets of another."""
    verdict, margin = opened(params)
    print(f"comparison.ipynb: first verdict {1e3 * verdict:,.0f} ms, with another margin {1e3 * margin:,.0f} ms")
    whole, took = steps(params)
    print(f"{params}: the whole comparison takes {1e3 * whole:,.0f} ms")
    for name, each in took.items():
        print(f"{name:10} {1e3 * each:6.0f} ms, {each / whole:6.3f} of the whole comparison")


def steps(params: str) -> tuple[float, dict[str, float]]:
    """Processor seconds of comparing the whole release, and of each kind of choice in the widgets."""
    comparison = bc.read_params(params)
    bc.compare(comparison)  # so that imports do not count
    whole = seconds(lambda: bc.compare(comparison), tries=3)
    bench = bc.Workbench(bc.investigate(bc.compare(comparison)))
    choose: dict[str, Iterator[Callable[[], None]]] = {
        "a window": windows(bench),
        "a margin": margins(bench),
        "a metric": choices(bench, "metric", [slug for _, slug in bench.metric.options if slug]),
        "a label": choices(bench, "label", [name for _, name in bench.label.options if name]),
        "a test": choices(bench, "test", [each.name for each in comparison.tests]),
    }
    return whole, {name: seconds(lambda each=each: next(each)()) for name, each in choose.items()}  # type: ignore[misc]


def opened(params: str) -> tuple[float, float]:
    """Processor seconds of a kernel to the first verdict, and for another after a margin was changed."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `make lab` does
    notebook = nbformat.read(PROJECT / "notebooks/comparison.ipynb", as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    last = next(i for i, source in enumerate(sources) if source.startswith('result.show("verdict")'))
    chosen, told = f"params_file = {str(Path(params).resolve())!r}", "import time; print(time.process_time())"
    moved = 'result = result.with_margins({"cpu-utilization": 8.0})'
    again = [told, moved, sources[last], told]
    cells = [sources[0], chosen, *sources[1 : last + 1], told, *again]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(PROJECT)}}, kernel_name="python3").execute()
    first, before, after = (float(cell.outputs[0].text) for cell in notebook.cells if cell.source == told)
    return first, after - before


def windows(bench: bc.Workbench) -> Iterator[Callable[[], None]]:
    """Windows that are each another one."""
    minute = 10.0
    while True:
        minute += 1.0
        yield lambda minute=minute: setattr(bench.window, "value", (minute, minute + 25.0))  # type: ignore[misc]


def margins(bench: bc.Workbench) -> Iterator[Callable[[], None]]:
    """Margins that are each another one, over the window that was chosen last."""
    percent = 5.0
    while True:
        percent += 0.5
        yield lambda percent=percent: setattr(bench.margin, "value", percent)  # type: ignore[misc]


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
