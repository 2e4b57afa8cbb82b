"""Publish reports in separate processes, here or on a Dask cluster; a report that fails does not stop the others."""

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
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
        from buildcompare.report import junit, markdown  # late: rendering takes long to import

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
class Order:
    """Order of a report: the params file, settings of `publish`, and settings of the printed table, if any.

    The setting `output` may be a URL of another file system.
    """

    params: Path
    settings: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] | None = None
    files: BuildFiles | None = None


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
    try:
        return processes.in_child(publish_here, order, hear=hear)
    except ExecutionError as error:
        return _failed(order.params, error)


def _failed(params: Path, why: object) -> Outcome:
    return Outcome(FAILED, f"buildcompare: {params}: {why}")


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


@dataclass(frozen=True)
class Bundle:
    """All inputs of a report for a worker."""

    order: Order
    folder: str
    """Folder of the report on the local machine."""
    shown: str
    """Path of the params file in the project."""
    code: str
    files: dict[Path, bytes]
    """Files by their paths in the worker's folder, with README.md and results.json of the current report, if any."""


def publish_elsewhere(executor: Executor, order: Order) -> Outcome:
    """Publish a report that a worker of `executor` makes in a temporary folder from the sent bytes."""
    try:
        packed = processes.in_child(_pack, order)
        if isinstance(packed, Outcome):
            return packed
        outcome, files = executor.submit(_work, packed).result()
        return processes.in_child(_put, order, files, outcome) if outcome.code == 0 else outcome
    except ExecutionError as error:
        return _failed(order.params, error)
    except Exception as error:  # a cluster that ends raises its library's errors
        return _failed(order.params, f"{type(error).__name__}: {error}")


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
        folder, shown = publish.folder_of(order.params, output), publish.shown_as(order.params)
        if settings.get("resume"):
            made_from = publish.made_from(params, order.params, folder, graphs=settings.get("graphs", "svg"))
            if made_from and (kept := publication.whole(folder, made_from)):
                return _published(order, publish.Published(folder, kept, kept=True))
        inputs = {path: resolve(path).read_bytes() for path in files_of(params) if resolve(path).is_file()}
        inputs |= publish.pictures_of(params, folder)
        files = {_place(path): contents for path, contents in inputs.items()}
        files[_place(shown)] = order.params.read_bytes()
        stands = (folder / name for name in (publication.README, publication.RESULTS))
        files |= {Path("output", order.params.stem, each.name): each.read_bytes() for each in stands if each.is_file()}
        return Bundle(order, named(folder), shown, code_sha256(), files)

    return _guarded(order, pack)


def _place(path: str) -> Path:
    """Return the place of an input in a worker's folder, where `resolve` looks for it."""
    if is_remote(path) or Path(path).is_absolute():
        return Path("copies", *path.lstrip("/").split("://", 1))
    return Path("root", path)


def _work(bundle: Bundle) -> tuple[Outcome, dict[Path, bytes]]:
    """Make a report on a worker; return its files by name."""
    if not processes.is_safe():
        return _failed(bundle.order.params, "the worker cannot fork processes"), {}
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place)
        _write(bundle.files, here)
        params, output = here / _place(bundle.shown), here / "output" / bundle.order.params.stem
        settings = {**bundle.order.settings, "output": output, "resume": False, "refresh": False}
        environment = {"BUILDCOMPARE_ROOT": str(here / "root"), "BUILDCOMPARE_COPIES": str(here / "copies")}
        order = replace(bundle.order, params=params, settings=settings)
        try:
            outcome = processes.in_child(_made_there, order, environment, bundle.code)
        except ExecutionError as error:
            outcome = _failed(params, error)
        said = outcome.said.replace(str(params), str(bundle.order.params)).replace(str(output), bundle.folder)
        made = {file.relative_to(output): file.read_bytes() for file in output.rglob("*") if file.is_file()}
        return replace(outcome, said=said), made if outcome.code == 0 else {}


def _write(files: Mapping[Path, bytes], folder: Path) -> None:
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


def _made_there(order: Order, environment: dict[str, str], code: str) -> Outcome:
    from buildcompare.comparison.inputs import code_sha256

    if code_sha256() != code:
        return _failed(order.params, "the worker has other code or other versions of packages")
    os.environ.update(environment)
    return publish_here(order)


def _put(order: Order, files: dict[Path, bytes], outcome: Outcome) -> Outcome:
    """Put the files of a worker in place, all or none."""
    from buildcompare.report import publication, publish

    def put(output: Path | None) -> Outcome:
        with publication.staged(publish.folder_of(order.params, output)) as staging:
            _write(files, staging)
        return outcome

    return _guarded(order, put)


def publish_here(order: Order) -> Outcome:
    """Publish a report in this process."""
    from buildcompare.report.publish import publish  # imported late, as it takes seconds

    def made(output: Path | None) -> Outcome:
        return _published(order, publish(order.params, **order.settings | {"output": output}))

    return _guarded(order, made)


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
