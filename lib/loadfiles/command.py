"""The command `history-import`."""

from pathlib import Path
from typing import Annotated

from buildcompare.commandline import argument, ledger_folder, option, show


def history_import(
    past: Annotated[Path, argument("PAST", "A table of comparisons (docs/history.md), or a folder of params files.")],
    output: Annotated[str, option("--output", "The ledger's folder, such as data/history/NAME, or its address.")],
) -> None:
    """Record earlier comparisons from a table or a folder of params files in a ledger; all of them or none."""
    from loadfiles.comparisons import import_comparisons, import_table

    made = (import_comparisons if past.is_dir() else import_table)(past, ledger_folder(output))
    studies = sum(entry.kind == "study" for entry in made)
    show(f"{output}: {len(made) - studies} comparisons and {studies} studies recorded")
