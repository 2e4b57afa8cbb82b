"""Publish reports in separate processes; a report that fails does not stop the others."""

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from buildcompare.config.errors import BuildcompareError, ExecutionError, InputError, named
from buildcompare.config.project import write_files, writing
from buildcompare.config.remote import copied_back, is_remote
from buildcompare.report import processes
from buildcompare.results.codes import FailOn
from buildcompare.text.numbers import printable

if TYPE_CHECKING:
    from buildcompare.report.publish import Engine, Graphs, LedgerAs
    from buildcompare.results import Results

T = TypeVar("T")
BAD_INPUT, FAILED = 3, 4
"""Exit codes of faulty input or data, and of a failed execution."""
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable of GitHub's runners: path of a Markdown file that GitHub shows on the page of the run."""


@dataclass(frozen=True)
class BuildFiles:
    """Files that are written in addition to a report, for a build server and its users."""

    markdown: Path | None = None
    """File to which the comment for a pull request is written; None for no file."""
    junit: Path | None = None
    link: str | None = None
    """Address of the report, to which the pull-request comment links; None for no link."""

    def write(self, results: "Results") -> None:
        """Write the files. If GitHub provides a summary of the run, append the pull-request comment to that summary."""
        from buildcompare.report import junit, markdown  # late import: it takes long

        summary = os.environ.get(STEP_SUMMARY)
        comment = markdown.comment(results, self.link) if self.markdown or summary else ""
        texts = {self.markdown: comment, self.junit: junit.render(results) if self.junit else ""}
        for path, text in ((path, text) for path, text in texts.items() if path):
            with writing(path, "output", "a file that can be written"):
                write_files({path: text})
        if summary:
            steps = Path(summary)
            with writing(steps, STEP_SUMMARY, "a file that can be written"), steps.open("a", encoding="utf-8") as file:
                file.write(f"{comment}\n")


@dataclass(frozen=True)
class Printed:
    """Settings of the printed table: arguments of :func:`~buildcompare.report.terminal.lines`."""

    width: int
    coloured: bool
    every: bool


@dataclass(frozen=True)
class Order:
    """A report to make: the arguments of `publish`, and additional outputs (`table`, `files`)."""

    params: Path
    output: Path | str | None = None  # a folder, or its URL on a remote file system
    refresh: bool = False
    progress: bool = False
    ledger_as: "LedgerAs" = None
    engine: "Engine | None" = None
    graphs: "Graphs" = "svg"
    resume: bool = False
    table: Printed | None = None
    files: BuildFiles | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of publishing: exit code, text, ``--fail-on`` conditions that hold, and whether an old report was kept."""

    code: int
    printed: str
    shortcomings: frozenset[FailOn] = frozenset()
    kept: bool = False


def publish_one(order: Order, hear: Callable[[int], object] | None = None, share: float = 1.0) -> Outcome:
    """Publish a report in a forked process if forking is safe, else in this process.

    A forked process passes the number of each notebook cell to `hear`, and may use the fraction `share` of the memory.
    """
    if not processes.is_safe():
        return publish_here(order)
    try:
        return processes.in_child(publish_here, order, hear=hear, share=share)
    except ExecutionError as error:
        return failed(order.params, error)


def failed(params: Path, why: object) -> Outcome:
    """Make the outcome of a report whose execution failed."""
    return Outcome(FAILED, f"buildcompare: {params}: {why}")


def publish_many(
    orders: Iterable[Order], *, jobs: int = 1, make: Callable[[Order], Outcome] | None = None
) -> Iterator[tuple[Order, Outcome]]:
    """Publish reports with `make` (default: `publish_one`), `jobs` at a time; yield each order with its outcome."""
    make = make or partial(publish_one, share=1 / jobs)
    with ThreadPoolExecutor(jobs) as threads:
        order_of = {threads.submit(make, order): order for order in orders}
        try:
            for done in as_completed(order_of):
                yield order_of.pop(done), done.result()
        finally:
            threads.shutdown(cancel_futures=True)


def publish_here(order: Order) -> Outcome:
    """Publish a report in this process."""
    from buildcompare.report.publish import publish  # late import: it takes seconds

    def made(output: Path | None) -> Outcome:
        report = publish(
            order.params, output=output, refresh=order.refresh, progress=order.progress, ledger_as=order.ledger_as,
            engine=order.engine, graphs=order.graphs, resume=order.resume,
        )  # fmt: skip
        return published(order, report)

    return guarded(order, made)


def published(order: Order, made: Any) -> Outcome:
    """Write the files for a build server. Return the exit code and the printed text of the published report `made`."""
    from buildcompare.findings.verdict import opening, shortcomings  # late import: they take long
    from buildcompare.text.sentences import say

    table = ""
    if order.table is not None:
        from buildcompare.report.terminal import lines  # late import: only printed tables need rich

        table = lines(made.results, **vars(order.table)) + "\n"
    if order.files is not None:
        order.files.write(made.results)
    where = say("terminal", "where", named(made.folder / "report.html"))
    texts = [f"{order.params}: {opening(made.results).title}. {where}"]
    texts += [made.recorded] if made.recorded else []
    return Outcome(0, table + "\n".join(map(printable, texts)), shortcomings(made.results), made.kept)


def guarded(order: Order, task: Callable[[Path | None], T]) -> T | Outcome:
    """Call `task` with the report's folder (a local copy if it is remote); turn an error of `task` into an outcome."""
    output = order.output
    remote = isinstance(output, str) and is_remote(output)
    try:
        with copied_back(str(output)) if remote else contextlib.nullcontext(Path(output) if output else None) as here:
            return task(here)
    except MemoryError:
        return failed(order.params, "expected a report that takes less memory, found one that takes more")
    except Exception as error:
        return Outcome(*what_ended(error))


def what_ended(error: Exception) -> tuple[int, str]:
    """Return an error's exit code and printed text: the traceback of an unexpected error, one line for other errors."""
    if isinstance(error, BuildcompareError):
        return BAD_INPUT if isinstance(error, InputError) else FAILED, printable(f"buildcompare: {error}")
    if isinstance(error, (OSError, MemoryError)):  # faults of the machine, such as a full disk
        where = f"{named(error.filename)}: " if isinstance(error, OSError) and error.filename else ""
        found = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return FAILED, printable(f"buildcompare: {where}expected a machine that can do this, found {found}")
    # The exit code of a traceback is not Python's 1, because 1 means a regression with --fail-on.
    return FAILED, "\n".join(map(printable, "".join(traceback.format_exception(error)).splitlines()))
