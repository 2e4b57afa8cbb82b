"""Compare the load tests of two builds.

Exit codes: 0 done, 3 bad input or data, 4 execution failure.
With --fail-on also 1 for a regression or errors, and 2 for an invalid or inconclusive test.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from buildcompare.commandline import (
    Commands,
    Metrics,
    Reports,
    argument,
    as_typed,
    ledger_folder,
    option,
    print_text,
    show,
)
from buildcompare.config.errors import InputError
from buildcompare.config.project import write_files, writing
from buildcompare.report import processes
from buildcompare.report.batch import BAD_INPUT, FAILED, BuildFiles, Order, Outcome, Printed, publish_many, publish_one
from buildcompare.results.codes import FailOn, Side, TestType, Verdict

REGRESSION, UNDECIDED = 1, 2

app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)

WIDTH = 120
"""Width in characters of tables printed outside a terminal, such as in a build log."""


ParamsFile = Annotated[Path, argument("PARAMS", "A params file, such as params/v10.4.0-rc1.yaml.")]


def _words(text: str) -> frozenset[FailOn]:
    """Parse the words of --fail-on. `invalid` is always added; the word `inconclusive` also adds `regression`."""
    every: tuple[FailOn, ...] = get_args(FailOn)
    given = [word.strip() for word in text.split(",")]
    if wrong := [word for word in given if word not in every]:
        raise typer.BadParameter(f"expected words of {', '.join(every)}, separated by commas, found {wrong[0]!r}")
    more = {"regression", "invalid"} if "inconclusive" in given else {"invalid"}
    return frozenset(word for word in every if word in {*given, *more})


_FAIL_ON = "Exit with 1 for a regression or errors, 2 for an invalid or inconclusive test. All include invalid tests."
FailedBy = Annotated[
    Any, typer.Option("--fail-on", metavar=f"[{'|'.join(get_args(FailOn))}],...", help=_FAIL_ON, parser=_words)
]
Markdown = Annotated[Path | None, option("--markdown", "A pull-request comment; also in $GITHUB_STEP_SUMMARY.")]
JUnit = Annotated[Path | None, option("--junit", "Write JUnit XML here.")]
Link = Annotated[str | None, option("--link", "The address of the report, for --markdown.")]
Refresh = Annotated[bool, option("--refresh", "Pull again, even if the samples were pulled before.")]
_FOLDER = "The report's folder, or an address of it that fsspec knows (default: reports/<stem of PARAMS>)."
Record = Annotated[bool, option("--record", "Keep the results in the ledger that `history` of PARAMS names.")]
_SESSIONS = "The session of each run of a benchmark, by file name, such as mon,tue,wed/mon,tue,wed."


def _sessions(text: str) -> tuple[list[str], list[str]]:
    """Parse the value of --sessions: the session names of the base build, and those of the new build."""
    builds = [[name.strip() for name in build.split(",")] for build in text.split("/")]
    if len(builds) != 2:
        raise typer.BadParameter(f"expected the sessions of base and new, such as mon,tue/mon,tue, found {text!r}")
    return builds[0], builds[1]


Sessions = Annotated[Any, typer.Option("--sessions", metavar="BASE/NEW", help=_SESSIONS, parser=_sessions)]
Listed = Annotated[str | None, option("--metrics", "A catalogue, or its path (default: recognised by names).")]
Type = Annotated[TestType | None, option("--type", "Type of the test (default: bounded; without times: benchmark).")]
Every = Annotated[bool, option("--all", "Print every row and finding, not only what changed or matters most.")]
Quiet = Annotated[bool, option("--quiet", "Print errors only.")]
_ENGINE = "What runs the notebook: a forked process (warm) or a Jupyter kernel (default: warm, on macOS kernel)."
Graphs = Annotated[bool, typer.Option("--graphs/--no-graphs", help="Graphs for README.md.")]
Png = Annotated[bool, option("--png", "Graphs as PNG instead of SVG (needs the extra png).")]
Engine = Annotated[Literal["warm", "kernel"] | None, option("--engine", _ENGINE)]


@app.command()
def report(
    params: ParamsFile,
    output: Annotated[str | None, option("--output", _FOLDER)] = None,
    fail_on: FailedBy = None,
    refresh: Refresh = False,
    record: Record = False,
    study: Annotated[bool, option("--study", "With --record: a study, outside the chain.")] = False,
    engine: Engine = None,
    every: Every = False,
    quiet: Quiet = False,
    graphs: Graphs = True,
    png: Png = False,
    markdown: Markdown = None,
    junit: JUnit = None,
    link: Link = None,
) -> None:
    """Compare two builds, publish the report, and print the verdict and what changed."""
    if study and not record:
        raise InputError(file=None, key="--study", expected="--record as well", found="--study alone")
    order = Order(
        params, output, refresh=refresh, engine=engine, progress=not quiet, graphs=_format(graphs, png),
        ledger_as=("study" if study else "monthly") if record else None,
        table=None if quiet else _table(every=every), files=BuildFiles(markdown, junit, link),
    )  # fmt: skip
    with _progress(not quiet) as step:
        outcome = publish_one(order, lambda cell: step(f"comparison.ipynb, cell {cell}"))
    raise typer.Exit(_report_outcome(outcome, fail_on, quiet=quiet))


@app.command()
def compare(
    base: Annotated[str, argument("BASE", "A recording of the base build, or a folder of its runs.")],
    new: Annotated[str | None, argument("NEW", "The same for the new build. With --baseline, give one only.")] = None,
    type_: Type = None,
    users: Annotated[int | None, typer.Option(min=1, help="Target (bounded) or maximum (unbounded) of users.")] = None,
    base_name: Annotated[str | None, option("--base-name", "Name of the base (default: its file's name).")] = None,
    new_name: Annotated[str | None, option("--new-name", "Name of the new build.")] = None,
    sessions: Sessions = None,
    metrics: Listed = None,
    calibration: Annotated[str | None, option("--calibration", "A file that `calibrate` made.")] = None,
    rate_s: Annotated[float | None, option("--rate-s", "Seconds over which rates were taken.")] = None,
    baseline: Annotated[Path | None, option("--baseline", "Compare with runs that were kept in this folder.")] = None,
    keep: Annotated[bool, option("--keep", "Keep the new runs in --baseline, unless they are invalid.")] = False,
    test: Annotated[str | None, option("--test", "Name of the test, if --baseline holds several.")] = None,
    machine: Annotated[str | None, option("--machine", "Kind of machine, if --baseline holds several.")] = None,
    html: Annotated[Path | None, option("--html", "Write the page here.")] = None,
    json_: Annotated[Path | None, option("--json", "Write results.json here.")] = None,
    markdown: Markdown = None,
    junit: JUnit = None,
    link: Link = None,
    fail_on: FailedBy = None,
    every: Every = False,
    quiet: Quiet = False,
) -> None:
    """Compare two files or folders of recordings without a params file."""
    from buildcompare import api  # imported late: these modules take seconds to import
    from buildcompare.findings.verdict import shortcomings

    made = partial(
        api.compare, type=type_, users=users, calibration=calibration, catalogue=metrics, rate_s=rate_s,
        command=as_typed(),
    )  # fmt: skip
    names = base_name, new_name
    if (baseline is None) == (new is None) or (keep and baseline is None):
        expected = "BASE and NEW, or NEW with --baseline FOLDER"
        raise InputError(file=None, key="compare", expected=expected, found="other arguments")
    if baseline is None:
        result = made(base, new, labels=names, sessions=sessions)
    else:
        stated: dict[str, str | int | None] = {"test": test, "machine": machine, "type": type_, "users": users}
        result = _compared_to_kept(made, base, baseline, stated, names, sessions, keep=keep, quiet=quiet)
    if result is None:
        return
    _write_compared(result, html, json_, BuildFiles(markdown, junit, link))
    if not quiet:
        read: dict[Side, str] = {"base": base, "new": new} if new else {"base": str(baseline), "new": base}
        _show_compared(result, read, [each for each in (html, json_) if each], every=every)
    raise typer.Exit(_exit_code(shortcomings(result.results), fail_on))


def _write_compared(result: Any, html: Path | None, results: Path | None, others: BuildFiles) -> None:
    if html is not None:
        result.to_html(html)
    if results is not None:
        with writing(results, "output", "a file that can be written"):
            write_files({results: result.to_json()})
    others.write(result.results)


def _compared_to_kept(
    compare: Callable[..., Any],
    new: str,
    folder: Path,
    stated: dict[str, str | int | None],
    labels: tuple[str | None, str | None],
    sessions: Any,
    *,
    keep: bool,
    quiet: bool,
) -> Any:
    """Compare new runs with kept runs; return None if none is comparable. With `keep`, keep new runs unless invalid."""
    from buildcompare.comparison import baselines
    from buildcompare.config.assumed import open_catalogue
    from buildcompare.recordings.sources import ENDING, read_runs
    from buildcompare.text.sentences import say

    name = labels[1] or ENDING.sub("", Path(new).resolve().name)
    result, kept = baselines.compare_to_kept(compare, new, folder, stated, (labels[0], name), sessions)
    lines = [say("terminal", "baseline", folder, [each.folder.name for each in kept])]
    if keep and (result is None or result.verdict != Verdict.INVALID):
        runs = read_runs(new, open_catalogue()) if result is None else next(iter(result.recordings.values()))["new"]
        lines += [say("terminal", "kept", baselines.keep(folder, Path(new), name, stated, runs))]
    if not quiet:
        show(*lines)
    return result


def _show_compared(result: Any, read: dict[Side, str], written: list[Path], *, every: bool) -> None:
    """Print each build's input and number of runs, the table of results, and the paths of the written files."""
    from buildcompare.report.terminal import lines
    from buildcompare.text.sentences import say

    (runs,) = result.recordings.values()
    show("; ".join(say("terminal", "read", name, len(runs[side])) for side, name in read.items()))
    print_text(lines(result.results, **vars(_table(every=every))).removesuffix("\n"))
    for file in written:
        show(say("terminal", "where", file))


for _entry in entry_points(group="buildcompare.commands"):
    app.command(_entry.name)(_entry.load())


@app.command()
def pull(params: ParamsFile, refresh: Refresh = False) -> None:
    """Pull the recordings of a comparison from the server, and store them for later reports."""
    from buildcompare.comparison.reading import read_recordings
    from buildcompare.config.params import read_params

    recordings = read_recordings(read_params(params), refresh=refresh)
    count = sum(len(runs) for test in recordings.values() for runs in test.values())
    show(f"{params}: {count} recordings at hand")


@app.command()
def batch(
    params: Annotated[list[Path], argument("PARAMS...", "Params files.")],
    output: Reports = None,
    fail_on: FailedBy = None,
    engine: Engine = None,
    graphs: Graphs = True,
    png: Png = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Reports at a time.")] = os.cpu_count() or 1,
    dask: Annotated[str | None, option("--dask", "Address of a Dask scheduler whose cluster makes them.")] = None,
    again: Annotated[bool, option("--again", "Make unchanged reports again too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Publish many reports; a failed report does not stop the others, and an unchanged report is not made again."""
    stems = [file.stem for file in params]
    if twice := sorted({stem for stem in stems if stems.count(stem) > 1}):
        raise InputError(file=None, key="PARAMS", expected="files of different names", found=f"{twice[0]} twice")
    ordered = partial(Order, engine=engine, graphs=_format(graphs, png), resume=not again)
    orders = [ordered(file, output and f"{output.rstrip('/')}/{file.stem}") for file in params]
    codes: dict[int, list[Path]] = {}
    kept = 0
    (cluster,) = entry_points(group="buildcompare.clusters")
    here = contextlib.nullcontext((None, 0))
    with here if dask is None else cluster.load()(dask) as (make, cores), _progress(not quiet, len(orders)) as step:
        many = publish_many(orders, jobs=max(jobs, 2 * cores), make=make)
        for done, (order, outcome) in enumerate(many, start=1):
            codes.setdefault(_report_outcome(outcome, fail_on, quiet=quiet), []).append(order.params)
            kept += outcome.kept
            step(f"{done} of {len(orders)} reports")
    ended = [code for code in _ENDS if code in codes]
    for code in ended if not quiet and len(orders) > 1 else ():
        which = ", ".join(file.stem for file in sorted(codes[code])) if code else f"{kept} of them unchanged"
        show(f"{len(codes[code]):6d}  {_ENDS[code]:<24}  {which}")
    raise typer.Exit(ended[0])


_ENDS = {
    FAILED: "failed (4)", BAD_INPUT: "bad input or data (3)", REGRESSION: "regression (1)",
    UNDECIDED: "cannot be decided (2)", 0: "published",
}  # fmt: skip
"""Exit code of a report -> words for the code in the summary of a batch; the most severe code comes first."""


@app.command()
def history(
    ledger: Annotated[str, argument("FOLDER", "A ledger, such as data/history/NAME or s3://bucket/NAME.")],
    metrics: Metrics = "mattermost",
    last: Annotated[int, typer.Option(min=0, help="Number of the newest comparisons to print; 0: all.")] = 100,
    only: Annotated[str | None, option("--only", "Name of the only comparison to print.")] = None,
) -> None:
    """Print the comparisons of a ledger, each with its setup, drift, differences between databases, and changes."""
    from buildcompare.history.view import ledger_text

    show(*ledger_text(ledger_folder(ledger), metrics, last=last, only=only).splitlines())


@app.command()
def plan(params: ParamsFile) -> None:
    """Print a plan of further runs: how many, in which order, how many hours they take, and what they would show."""
    from buildcompare.comparison.analysis import analyse
    from buildcompare.comparison.plan import plan_text
    from buildcompare.comparison.reading import read_recordings
    from buildcompare.config.params import read_params

    comparison = read_params(params)
    show(*plan_text(analyse(comparison, read_recordings(comparison)).results).splitlines())


@app.command()
def schema() -> None:
    """Print the JSON Schema of results.json."""
    from buildcompare.results.schema import json_schema

    print_text(json.dumps(json_schema(), indent=1))


def _format(graphs: bool, png: bool) -> Literal["svg", "png"] | None:
    """Return the file format of README.md's graphs: png or svg; None if `graphs` is False."""
    return ("png" if png else "svg") if graphs else None


def _report_outcome(outcome: Outcome, fail_on: Collection[FailOn] | None, *, quiet: bool = False) -> int:
    """Print how a report ended (with `quiet`, only if it failed), and return its exit code."""
    if outcome.code or not quiet:
        print_text(outcome.printed, error=outcome.code != 0)
    return outcome.code or _exit_code(outcome.shortcomings, fail_on)


def _exit_code(shortcomings: Collection[FailOn], fail_on: Collection[FailOn] | None) -> int:
    met = {*shortcomings} & {*(fail_on or ())}
    return REGRESSION if met & {"regression", "errors"} else UNDECIDED if met else 0


def _table(*, every: bool) -> Printed:
    """Return settings of the printed table: terminal width (or `WIDTH`), colours, and whether all rows are printed."""
    return Printed(shutil.get_terminal_size((WIDTH, 0)).columns, os.isatty(1), every)


@contextlib.contextmanager
def _progress(is_shown: bool, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports a step; on a terminal, it shows progress, and the time left if `total` is given."""
    if not is_shown or not os.isatty(2):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    look = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn() if total else TimeElapsedColumn()
    with contextlib.ExitStack() as shown:
        bar = Progress(*look, console=Console(stderr=True), transient=True)
        task = bar.add_task("reports", total=total)
        if total:
            shown.enter_context(bar)

        def step(text: str) -> None:
            if not bar.live.is_started:  # start late, because downloads show their own bar before
                shown.enter_context(bar)
            bar.update(task, description=text, advance=1)

        yield step


_READING = {"calibrate", "compare", "init", "plan"}
"""Commands that read other programs' files in this process; `report` and `batch` read them in child processes."""


def _survive_aborts() -> None:
    """Continue in a forked child. If pyarrow aborts the child on a faulty file, the parent reports the abort."""
    child = os.fork()
    if child == 0:
        return

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        print_text(f"buildcompare: its process was ended by {signal.Signals(-code).name}", error=True)
    os._exit(code if code >= 0 else FAILED)


def main() -> None:
    """Run the command line."""
    # Use one OpenBLAS thread, also in Jupyter kernels: more threads double the CPU time on small matrices for no gain.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Keep jsonschema from importing rfc3987_syntax, which takes over a second; notebooks need no check of addresses.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes the import fail
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # print ? for characters that the terminal cannot show
    if sys.argv[1:2] in (["report"], ["batch"]):
        processes.begin()
    if _READING & {*sys.argv[1:2]} and processes.is_safe():
        _survive_aborts()
    app()


if __name__ == "__main__":
    main()
