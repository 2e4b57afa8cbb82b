"""The command `init`."""

from pathlib import Path
from typing import Annotated

import typer

from buildcompare.commandline import as_typed, option, show
from buildcompare.config.errors import InputError

Window = Annotated[tuple[str, str] | None, typer.Option(metavar="START END", help="When the run began and ended.")]


def init(
    files: Annotated[list[str] | None, typer.Argument(metavar="BASE NEW", help="Files, or folders of runs.")] = None,
    prometheus: Annotated[str | None, option("--prometheus", "Address of a Prometheus, instead of files.")] = None,
    base: Window = None,
    new: Window = None,
    output: Annotated[Path | None, option("--output", "The params file (default: params/<new build>.yaml).")] = None,
    force: Annotated[bool, option("--force", "Overwrite files that exist.")] = False,
) -> None:
    """Say what two builds' files or windows of a server hold, and write a params file and a catalogue for them."""
    from loadinit.files import draft_of_files, write_draft
    from loadinit.server import draft_of_server

    if prometheus is not None and base and new and not files:
        draft = draft_of_server(prometheus, {"base": base, "new": new})
    elif prometheus is None and not (base or new) and len(files or ()) == 2:
        draft = draft_of_files(*files or ())
    else:
        expected = "BASE and NEW, or --prometheus URL --base START END --new START END"
        raise InputError(file=None, key="init", expected=expected, found="other arguments")
    show(*write_draft(draft, output, command=as_typed(), force=force))
