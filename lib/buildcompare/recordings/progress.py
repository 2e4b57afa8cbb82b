"""Shows how far a pull has come, on a terminal and in a notebook; says nothing where nothing is pulled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from buildcompare.config.params import Comparison
from buildcompare.config.project import OUTPUT_VARIABLE


@contextlib.contextmanager
def pull_progress(params: Comparison) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """A context to read each run in, made with words for it: they are seen while it lasts."""
    runs = [run for test in params.tests for side in ("base", "new") for run in test.runs(side)]
    if OUTPUT_VARIABLE in os.environ or not any(run.is_pulled for run in runs):
        yield lambda words: contextlib.nullcontext()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    watched = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, disable=not watched) as progress:
        task = progress.add_task("recordings", total=len(runs))

        @contextlib.contextmanager
        def step(words: str) -> Iterator[None]:
            progress.update(task, description=words)
            yield
            progress.advance(task)

        yield step
        progress.update(task, description="recordings")
        progress.refresh()  # in a notebook rich leaves the last but one state standing
