"""Shared code of all commands, including those of other packages: options, printing, and exit codes of errors.

Packages register commands as entry points `buildcompare.commands`. A command imports heavy packages when it runs.
"""

import io
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from buildcompare.config.remote import fetched_folder, is_remote
from buildcompare.report.batch import BAD_INPUT, FAILED, what_ended
from buildcompare.text.numbers import printable

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Class `UsageError` of click, taken from typer because typer contains its own copy of click."""


class Commands(TyperGroup):
    """Group of commands that turns every error into a printed message and an exit code."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run a command and exit with its code; print the message of an error, and exit with 3 for a usage error."""
        try:
            code: int = super().main(*arguments, **settings | {"standalone_mode": False}) or 0
        except _USAGE_ERROR as error:
            text = io.StringIO()
            error.show(file=text)
            print_text("\n".join(map(printable, text.getvalue().splitlines())), error=True)
            code = BAD_INPUT
        except (typer.Abort, SystemExit):  # click would exit with 1, the exit code for a regression
            code = FAILED
        except Exception as error:
            code, message = what_ended(error)
            print_text(message, error=True)
        sys.exit(code)


def option(name: str, text: str) -> Any:
    """Make an option of a command; `--output` also gets the short form `-o`."""
    return typer.Option(name, *(["-o"] if name == "--output" else []), help=text)


def argument(name: str, text: str) -> Any:
    """Make an argument of a command."""
    return typer.Argument(metavar=name, help=text)


Reports = Annotated[str | None, option("--output", "Folder of all reports, or its address (default: reports).")]
Metrics = Annotated[str, option("--metrics", "Catalogue that states the noise between runs.")]


def as_typed() -> str:
    """Return the current command line as a user would type it."""
    return shlex.join(["python", "-m", "buildcompare", *sys.argv[1:]])


def ledger_folder(folder: str) -> Path:
    """Return the local folder of a ledger; a remote ledger is copied to a local folder first."""
    return fetched_folder(folder) if is_remote(folder) else Path(folder)


def show(*lines: str) -> None:
    """Print lines, with characters that could control the terminal escaped."""
    print_text("\n".join(map(printable, lines)))


def print_text(text: str, *, error: bool = False) -> None:
    """Print `text` to stdout, or to stderr if `error`. A closed pipe and every OSError of stderr are ignored."""
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError as fault:  # discard further output, else Python's flush at exit fails too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if error else 1)
        if not error and not isinstance(fault, BrokenPipeError):
            raise
