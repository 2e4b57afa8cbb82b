"""Publish reports in separate processes, here or on a Dask cluster; a report that fails does not stop the others."""

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from buildcompare.config.errors import BuildcompareError, ExecutionError, InputError, named
from buildcompare.config.remote import copied_back, is_remote
from buildcompare.report import processes
from buildcompare.results.codes import FailOn
from buildcompare.text.numbers import printable

if TYPE_CHECKING:
    from buildcompare.results import Results

T = TypeVar("T")
BAD_INPUT, FAILED = 3, 4
"""Exit codes of faulty input or data, and of a failed execution."""


STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable of GitHub's runners: a file of Markdown that the page of the run shows."""


@dataclass(frozen=True)
class BuildFiles:
    """Files for a build server and the people who read it, beside those of a report."""

    markdown: Path | None = None
    """The comment for a pull request; it is appended to the file that `STEP_SUMMARY` names too."""
    junit: Path | None = None
    link: str | None = None
    """Address of the report, for the comment."""

    def write(self, results: "Results") -> None:
        """Write the files, and append the comment to the step summary."""
        from buildcompare.config.project import write_files, writing  # late: rendering takes long to import
        from buildcompare.report import junit, markdown

        summary = os.environ.get(STEP_SUMMARY)
        comment = markdown.comment(results, self.link) if self.markdown or summary else ""
        texts = {self.markdown: comment} if self.markdown else {}
        texts |= {self.junit: junit.render(results)} if self.junit else {}
        for path, text in texts.items():
            with writing(path, "output", "a file that can be written"):
                write_files({path: text})
        if summary:
            steps = Path(summary)
            with writing(steps, STEP_SUMMARY, "a file that can be written"), steps.open("a", encoding="utf-8") as file:
                file.write(f"{comment}\n")


@dataclass(frozen=True)
class Order:
    """Order of a report: the params file, settings of `publish`, and settings of the printed table, if any.

    The setting `output` may be a URL of another file system.
    """

    params: Path
    settings: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] | None = None
    files: "BuildFiles | None" = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of an order: exit code, line to print, words of ``--fail-on`` that apply, whether a report was kept."""

    code: int
    said: str
    shortcomings: frozenset[FailOn] = frozenset()
    kept: bool = False


def publish_one(order: Order, hear: Callable[[int], object] | None = None) -> Outcome:
    """Publish a report in a forked process if possible, else in this one; `hear` gets the number of each cell."""
    if not processes.is_safe():
        return publish_here(order)
    now = 0

    def note(cell: int) -> None:
        nonlocal now
        now = cell
        if hear is not None:
            hear(cell)

    try:
        return processes.in_child(publish_here, order, hear=note)
    except ExecutionError as error:
        return Outcome(FAILED, f"buildcompare: {order.params}: {f'cell {now}: ' if now else ''}{error}")


def publish_many(
    orders: Iterable[Order], *, jobs: int = 1, elsewhere: Executor | None = None
) -> Iterator[tuple[Order, Outcome]]:
    """Publish reports, `jobs` at a time, on the executor `elsewhere` or here; yield each when it is done."""
    make = publish_one if elsewhere is None else partial(publish_elsewhere, elsewhere)
    with ThreadPoolExecutor(jobs) as threads:
        asked = {threads.submit(make, order): order for order in orders}
        try:
            for done in as_completed(asked):
                yield asked.pop(done), done.result()
        finally:
            threads.shutdown(cancel_futures=True)


# ---- On the workers of a cluster -------------------------------------------------------------------------------------

PARAMS, OUTPUT = "params", "output"
"""Names of a worker's folders for the params file and the report."""


@dataclass(frozen=True)
class Bundle:
    """All inputs of a report for a worker; files by their paths in the params."""

    order: Order
    folder: str
    """Folder of the report on the local machine."""
    shown: str
    """Path of the params file in the project."""
    code: str
    files: dict[str, bytes]
    standing: dict[str, bytes]
    """README.md (for its hand-written blocks) and results.json of the current report, if any."""


def publish_elsewhere(executor: Executor, order: Order) -> Outcome:
    """Publish a report that a worker of `executor` makes in a temporary folder from the sent bytes."""
    try:
        packed = processes.in_child(_pack, order)
        if isinstance(packed, Outcome):
            return packed
        outcome, files = executor.submit(_work, packed).result()
        return processes.in_child(_put, order, files, outcome) if outcome.code == 0 else outcome
    except ExecutionError as error:
        return Outcome(FAILED, f"buildcompare: {order.params}: {error}")
    except Exception as error:  # a cluster that ends raises its library's errors
        return Outcome(FAILED, f"buildcompare: {order.params}: {type(error).__name__}: {error}")


def _pack(order: Order) -> Bundle | Outcome:
    """Pull and check the inputs of a report; return an outcome instead if it is current or faulty."""
    from buildcompare.comparison import analysis
    from buildcompare.comparison.inputs import code_sha256, files_of
    from buildcompare.config.kinds import kind_of
    from buildcompare.config.params import Comparison, params_of
    from buildcompare.config.project import resolve
    from buildcompare.config.yaml import read_yaml
    from buildcompare.report import publication, publish

    def pack(output: Path | None) -> Bundle | Outcome:
        settings, document = order.settings, read_yaml(order.params)
        kind = kind_of(document)
        params = kind.read(order.params) if kind else params_of(document, order.params)
        if isinstance(params, Comparison):
            analysis.pull_recordings(params, quiet=True)
        folder = publish.folder_of(order.params, output)
        if settings.get("resume"):
            made_from = publish.made_from(params, order.params, folder, graphs=settings.get("graphs", "svg"))
            if made_from and (kept := publication.whole(folder, made_from)):
                return _published(order, publish.Published(folder, kept, kept=True))
        files = {path: resolve(path).read_bytes() for path in files_of(params) if resolve(path).is_file()}
        files |= {**publish.pictures_of(params, folder), PARAMS: order.params.read_bytes()}
        stands = (folder / name for name in (publication.README, publication.RESULTS))
        standing = {file.name: file.read_bytes() for file in stands if file.is_file()}
        return Bundle(order, named(folder), publish.shown_as(order.params), code_sha256(), files, standing)

    return _guarded(order, pack)


def _work(bundle: Bundle) -> tuple[Outcome, dict[str, bytes]]:
    """Make a report on a worker; return its files by name."""
    if not processes.is_safe():
        return Outcome(FAILED, f"buildcompare: {bundle.order.params}: the worker cannot fork processes"), {}
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place)
        environment = {"BUILDCOMPARE_ROOT": str(here / "root"), "BUILDCOMPARE_COPIES": str(here / "copies")}
        for path, contents in bundle.files.items():
            name = bundle.shown if path == PARAMS else path
            own = here / "root" / name
            if is_remote(name) or Path(name).is_absolute():
                own = here.joinpath("copies", *name.lstrip("/").split("://", 1))
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(contents)
        params, output = here / "root" / bundle.shown, here / OUTPUT / bundle.order.params.stem
        for name, contents in bundle.standing.items():
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_bytes(contents)
        settings = {**bundle.order.settings, "output": output, "resume": False, "refresh": False}
        order = replace(bundle.order, params=params, settings=settings)
        try:
            outcome = processes.in_child(_made_there, order, environment, bundle.code)
        except ExecutionError as error:
            outcome = Outcome(FAILED, f"buildcompare: {params}: {error}")
        said = outcome.said.replace(str(params), str(bundle.order.params)).replace(str(output), bundle.folder)
        outcome = replace(outcome, said=said)
        made = {str(file.relative_to(output)): file.read_bytes() for file in output.rglob("*") if file.is_file()}
        return outcome, made if outcome.code == 0 else {}


def _made_there(order: Order, environment: dict[str, str], code: str) -> Outcome:
    from buildcompare.comparison.inputs import code_sha256

    if code_sha256() != code:
        return Outcome(FAILED, f"buildcompare: {order.params}: the worker has other code or other versions of packages")
    os.environ.update(environment)
    return publish_here(order)


def _put(order: Order, files: dict[str, bytes], outcome: Outcome) -> Outcome:
    """Put the files of a worker in place, all or none."""
    from buildcompare.report import publication, publish

    def put(output: Path | None) -> Outcome:
        with publication.staged(publish.folder_of(order.params, output)) as staging:
            for name, contents in files.items():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).write_bytes(contents)
        return outcome

    return _guarded(order, put)


def publish_here(order: Order) -> Outcome:
    """Publish a report in this process."""
    from buildcompare.report.publish import publish  # imported late, as it takes seconds

    return _guarded(
        order, lambda output: _published(order, publish(order.params, **order.settings | {"output": output}))
    )


def _published(order: Order, made: Any) -> Outcome:
    from buildcompare.findings.verdict import opening, shortcomings  # late: they take long to import
    from buildcompare.text.sentences import say

    table = ""
    if order.table is not None:
        from buildcompare.report.terminal import lines  # imported late: only printed tables need rich

        table = lines(made.results, **order.table) + "\n"
    if order.files is not None:
        order.files.write(made.results)
    where = say("terminal", "where", named(made.folder / "report.html"))
    said = [f"{order.params}: {opening(made.results).title}. {where}"]
    said += [made.recorded] if made.recorded else []
    return Outcome(0, table + "\n".join(map(printable, said)), shortcomings(made.results), made.kept)


def _guarded(order: Order, task: Callable[[Path | None], T]) -> T | Outcome:
    """Call `task` with the report's folder (a local copy of a remote one); turn its error into an outcome."""
    output: Any = order.settings.get("output")
    try:
        with copied_back(output) if is_remote(output) else contextlib.nullcontext(output and Path(output)) as here:
            return task(here)
    except Exception as error:
        return Outcome(*what_ended(error))


def what_ended(error: Exception) -> tuple[int, str]:
    """Return the exit code and message of an error: one line, or the traceback of a bug."""
    if isinstance(error, BuildcompareError):
        return BAD_INPUT if isinstance(error, InputError) else FAILED, printable(f"buildcompare: {error}")
    if isinstance(error, (OSError, MemoryError)):  # faults of the machine, such as a full disk
        where = f"{named(error.filename)}: " if isinstance(error, OSError) and error.filename else ""
        found = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return FAILED, printable(f"buildcompare: {where}expected a machine that can do this, found {found}")
    # Python's exit code 1 means a regression with --fail-on.
    return FAILED, "\n".join(map(printable, "".join(traceback.format_exception(error)).splitlines()))
