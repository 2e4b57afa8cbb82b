"""The command `watch`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from buildcompare.commandline import argument, option
from buildcompare.commandline import show as say
from buildcompare.config.errors import InputError
from buildcompare.config.project import write_files

if TYPE_CHECKING:
    from buildcompare.comparison.measure import TestView
    from loadwatch.decide import Decision

EXIT = {"finished": 0, "stop_enough": 10, "stop_regression": 11, "stop_invalid": 12}
"""Exit code of each decision; those of other commands (1 to 4) keep their meaning."""


def watch(
    params: Annotated[Path | None, argument("PARAMS", "A params file; the last run of `new` is watched.")] = None,
    test: Annotated[str | None, option("--test", "The test's name (default: the first).")] = None,
    replay: Annotated[Path | None, option("--replay", "Show a params file's run or a recording as if live.")] = None,
    speed: Annotated[float, option("--speed", "How many times faster a replay runs than the test did.")] = 600.0,
    every: Annotated[float, option("--every", "Seconds between two looks.")] = 60.0,
    page: Annotated[Path | None, option("--page", "Write a page here that loads itself again.")] = None,
    on_stop: Annotated[str, option("--on-stop", "Run this once if the test should stop.")] = "",
    webhook: Annotated[str | None, option("--webhook", "Send the decision here as JSON.")] = None,
) -> None:
    """Watch a test while it runs: exits with 10 if the rest cannot matter, 11 for a regression, 12 for a fault."""
    from rich.console import Console
    from rich.live import Live

    from loadwatch import show
    from loadwatch.watch import watch as watching

    if (file := params or replay) is None or (params is None and file.suffix not in (".yaml", ".yml")):
        expected = "a params file that names the base"
        raise InputError(file=None, key="PARAMS", expected=expected, found=f"--replay {replay}" if replay else "none")
    with Live(console=console) if (console := Console()).is_terminal else contextlib.nullcontext() as live:

        def shown(decision: Decision, compared: TestView | None) -> None:
            write_files({page: show.page(decision, compared, every)} if page else {})
            if live:
                live.update(show.screen(decision), refresh=True)
            else:
                say(decision.text, *decision.notes)

        ended = watching(
            file, test, replay=replay is not None and (replay == file or replay), speed=speed, every_s=every,
            show=shown, on_stop=on_stop, webhook=webhook,
        )  # fmt: skip
    say(*ended.outcomes, f"{ended.report}/report.html")
    raise typer.Exit(EXIT[ended.decision.code])
