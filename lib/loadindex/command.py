"""The command `index`."""

import contextlib
from pathlib import Path
from typing import Annotated

from buildcompare.commandline import Metrics, Reports, ledger_folder, option, show
from buildcompare.config.errors import named
from buildcompare.config.remote import copied_back, is_remote
from buildcompare.report.publication import reports

Ledgers = Annotated[list[str] | None, option("--history", "A ledger (default: the reports' and data/history/*).")]


def index(output: Reports = None, ledger: Ledgers = None, metrics: Metrics = "mattermost") -> None:
    """Put every release on one page: index.html in the folder of the reports."""
    from loadindex.page import write_index

    local = contextlib.nullcontext(Path(output) if output else reports())
    with copied_back(output, depth=2) if output and is_remote(output) else local as folder:
        file, rows = write_index(folder, [ledger_folder(each) for each in ledger or ()], metrics)
    show(f"{named(file)}: {rows} comparisons")
