"""The command `simulate`."""

from pathlib import Path
from typing import Annotated

from buildcompare.commandline import option, show
from buildcompare.config.project import root


def simulate(
    output: Annotated[Path | None, option("--output", "Folder of the recordings (default: data/recordings).")] = None,
) -> None:
    """Make the bundled simulated recordings again."""
    from loadsim.bundled import write_bundled

    for file in write_bundled(output or root() / "data/recordings"):
        show(str(file))
