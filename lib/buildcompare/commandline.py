"""Shared code of all commands, also of other packages: options, printing, and exit codes of errors.

A package registers its commands as `buildcompare.commands`; their modules import heavy packages late.
"""

import io
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from buildcompare.config.remote import fetched_folder, is_remote
from buildcompare.report.batch import BAD_INPUT, FAILED, what_ended
from buildcompare.text.numbers import printable

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The usage error of the copy of click inside typer."""


class Commands(TyperGroup):
    """The commands, with one place for their errors."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run a command; an error prints its message, a usage error exits with 3."""
        try:
            code: int = super().main(*arguments, **settings | {"standalone_mode": False}) or 0
        except _USAGE_ERROR as error:
            text = io.StringIO()
            error.show(file=text)
            print_text("\n".join(map(printable, text.getvalue().splitlines())), error=True)
            code = BAD_INPUT
        except (typer.Abort, SystemExit):  # after a closed pipe click exits with 1, which would mean a regression
            code = FAILED
        except Exception as error:
            code, message = what_ended(error)
            print_text(message, error=True)
        sys.exit(code)


def option(name: str, text: str) -> Any:
    """Make an option of a command."""
    return typer.Option(name, *(["-o"] if name == "--output" else []), help=text)


def argument(name: str, text: str) -> Any:
    """Make an argument of a command."""
    return typer.Argument(metavar=name, help=text)


def as_typed() -> str:
    """Return the present command as a reader types it."""
    return shlex.join(["python", "-m", "buildcompare", *sys.argv[1:]])


def ledger_folder(folder: str) -> Path:
    """Return the folder of a ledger; a remote ledger is copied first."""
    return fetched_folder(folder) if is_remote(folder) else Path(folder)


def show(*lines: str) -> None:
    """Print lines without characters that would steer a terminal."""
    print_text("\n".join(map(printable, lines)))


def print_text(text: str, *, error: bool = False) -> None:
    """Print `text`; a reader that closes the pipe changes no exit code, a full device does."""
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError as fault:  # discard further output, or Python's last flush fails too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if error else 1)
        if not error and not isinstance(fault, BrokenPipeError):
            raise
