"""Shows how far a pull has come, on a terminal and in a notebook; says nothing where nothing is pulled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from buildcompare.params import Comparison
from buildcompare.project import OUTPUT_VARIABLE


@contextlib.contextmanager
def pull_progress(params: Comparison) -> Iterator[Callable[[str], None]]:
    """A function to call after each run, with words for it."""
    runs = [run for test in params.tests for side in ("base", "new") for run in test.runs(side)]
    if OUTPUT_VARIABLE in os.environ or not any(run.is_pulled for run in runs):
        yield lambda words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    watched = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, disable=not watched) as progress:
        task = progress.add_task("recordings", total=len(runs))

        def step(words: str) -> None:
            progress.update(task, advance=1, description=words)

        yield step
