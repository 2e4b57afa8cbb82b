"""The command `run`."""

import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer

from buildcompare.commandline import argument, option, show
from buildcompare.config.project import root
from buildcompare.report.batch import FAILED


def run(
    matrix: Annotated[Path, argument("MATRIX", "The file of an experiment (docs/experiments.md).")],
    output: Annotated[
        Path | None, option("--output", "The experiment's folder (default: data/experiments/NAME).")
    ] = None,
    retry: Annotated[bool, option("--retry", "Run the cells that failed once more.")] = False,
) -> None:
    """Run an experiment, or go on with it: every combination of its factors, in a random order."""
    from buildcompare.text.sentences import say
    from labmatrix.experiment.matrix import read_matrix
    from labmatrix.experiment.run import run as run_all

    read = read_matrix(matrix)
    # A signal must end the cell's programs too, even in the background of a script, where SIGINT is ignored.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)
    ended = run_all(read, output or root() / "data/experiments" / str(read.name), report=show, retry=retry)
    lines = [say("experiment", "ended", len(ended.state.cells), ended.failed, [ended.params, *ended.scraped])]
    if ended.failed:
        command = ["run", str(matrix), *(["--output", str(output)] if output else []), "--retry"]
        lines.append(say("experiment", "again", shlex.join(command)))
    show(*lines)
    if ended.failed:
        raise typer.Exit(FAILED)
