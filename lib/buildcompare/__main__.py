"""Compare the load tests of two builds.

Exit codes: 0 done, 3 bad input or data, 4 execution failure; with --fail-on regression also 1, with
--fail-on inconclusive also 2 for inconclusive or invalid.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from buildcompare.config.errors import InputError, named
from buildcompare.config.remote import copied_back, fetched_folder, is_remote, written
from buildcompare.report import engine as warm
from buildcompare.report.batch import BAD_INPUT, FAILED, Order, Outcome, publish_many, publish_one, what_ended
from buildcompare.results.codes import SIDES, TestType, Verdict
from buildcompare.text.numbers import printable

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
REGRESSION, UNDECIDED = 1, 2
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""click's, of which typer has a copy of its own."""
_WORST_FIRST = (FAILED, BAD_INPUT, REGRESSION, UNDECIDED, 0)


FailOn = Literal["regression", "inconclusive"]
WIDTH = 120
"""Columns of what is printed where no window is, such as in the log of a build."""


def _option(name: str, text: str) -> Any:
    return typer.Option(name, *(["-o"] if name == "--output" else []), help=text)


def _file(name: str, text: str) -> Any:
    return typer.Argument(metavar=name, help=text)


ParamsFile = Annotated[Path, _file("PARAMS", "A params file, such as params/v10.4.0-rc1.yaml.")]
FailedBy = Annotated[FailOn | None, _option("--fail-on", "Exit with 1 or 2 by the verdict.")]
Refresh = Annotated[bool, _option("--refresh", "Pull again what was pulled from a server before.")]
_REPORTS = "The folder of the reports' folders, or an address that fsspec knows (default: reports)."
Reports = Annotated[str | None, _option("--output", _REPORTS)]
_FOLDER = "The report's folder, or an address of it that fsspec knows (default: reports/<stem of PARAMS>)."
ReportFolder = Annotated[str | None, _option("--output", _FOLDER)]
Record = Annotated[bool, _option("--record", "Keep the results in the ledger that `history` of PARAMS names.")]
Metrics = Annotated[str, _option("--metrics", "The catalogue that says how far runs scatter.")]
Every = Annotated[bool, _option("--all", "Print every row and finding, not only what changed or matters most.")]
Quiet = Annotated[bool, _option("--quiet", "Print errors only.")]
_LEDGERS = "A ledger's folder or address; may be repeated (default: those of the reports, and data/history/*)."
Ledgers = Annotated[list[str] | None, _option("--history", _LEDGERS)]
LedgerFolder = Annotated[str, _file("FOLDER", "A ledger, such as data/history/NAME or s3://bucket/NAME.")]
LedgerAs = Literal["monthly", "study"] | None
_ENGINE = "What runs the notebook: a forked process (warm) or a Jupyter kernel (default: warm, on macOS kernel)."
Graphs = Annotated[bool, typer.Option("--graphs/--no-graphs", help="Graphs (PNG) for README.md.")]
Engine = Annotated[Literal["warm", "kernel"] | None, _option("--engine", _ENGINE)]


@app.command()
def report(
    params: ParamsFile,
    output: ReportFolder = None,
    fail_on: FailedBy = None,
    refresh: Refresh = False,
    record: Record = False,
    study: Annotated[bool, _option("--study", "With --record: a study, outside the chain.")] = False,
    engine: Engine = None,
    every: Every = False,
    quiet: Quiet = False,
    graphs: Graphs = True,
) -> None:
    """Compare two builds, publish the report, and print what is decided and what changed."""
    if study and not record:
        raise _refused("--study: expected --record beside it, found none")
    ledger_as: LedgerAs = ("study" if study else "monthly") if record else None
    asked: dict[str, Any] = {"output": output, "refresh": refresh, "ledger_as": ledger_as, "progress": not quiet}
    asked |= {"engine": engine, "graphs": graphs}
    with _progress(not quiet) as hear:
        outcome = publish_one(Order(params, asked, None if quiet else _table(every=every)), hear)
    raise typer.Exit(_said(outcome, fail_on, quiet=quiet))


@app.command()
def compare(
    base: Annotated[str, _file("BASE", "A recording of the base build, or a folder of its runs.")],
    new: Annotated[str, _file("NEW", "The same of the new build.")],
    type_: Annotated[
        TestType | None, _option("--type", "What was run (default: bounded, without times a benchmark).")
    ] = None,
    users: Annotated[int | None, typer.Option(min=1, help="The target (bounded) or the ceiling (unbounded).")] = None,
    base_name: Annotated[str | None, _option("--base-name", "What the base is called (default: as its file).")] = None,
    new_name: Annotated[str | None, _option("--new-name", "What the new build is called.")] = None,
    metrics: Annotated[str, _option("--metrics", "A catalogue of metrics, or the path of one.")] = "mattermost",
    calibration: Annotated[str | None, _option("--calibration", "A file that `calibrate` made.")] = None,
    html: Annotated[Path | None, _option("--html", "Write the page here.")] = None,
    json_: Annotated[Path | None, _option("--json", "Write results.json here.")] = None,
    fail_on: FailedBy = None,
    every: Every = False,
    quiet: Quiet = False,
) -> None:
    """Compare two files or folders of recordings without a params file."""
    from buildcompare import api  # late: these take seconds to import
    from buildcompare.config.project import write_files, writing
    from buildcompare.recordings.sources import read_runs
    from buildcompare.report.terminal import lines
    from buildcompare.text.sentences import say

    with _said_faults():
        runs = [read_runs(given, metrics) for given in (base, new)]
        names = _names((base, new), [{run.provenance.get("label") for run in each} for each in runs])
        known: dict[str, Any] = {"catalogue": metrics, "type": type_, "users": users, "calibration": calibration}
        known["labels"] = (base_name or names[0], new_name or names[1])
        command = shlex.join(["python", "-m", "buildcompare", *sys.argv[1:]])
        result = api.compare(runs[0], runs[1], command=command, **known)
        if html is not None:
            result.to_html(html)
        if json_ is not None:
            with writing(json_, "output", "a file that can be written"):
                write_files({json_: result.to_json()})
    if not quiet:
        read = (say("terminal", "read", given, len(each)) for given, each in zip((base, new), runs, strict=True))
        print(printable("; ".join(read)), lines(result.results, **_table(every=every)), sep="\n", end="")
        for file in (each for each in (html, json_) if each is not None):
            print(printable(say("terminal", "where", file)))
    raise typer.Exit(_exit_code(result.verdict, fail_on))


@app.command()
def pull(params: ParamsFile, refresh: Refresh = False) -> None:
    """Pull the recordings of a comparison from their server, and keep them for reports."""
    from buildcompare.comparison import analysis as workbench
    from buildcompare.config.params import read_params

    with _said_faults():
        recordings = workbench.read_recordings(read_params(params), refresh=refresh)
        found = sum(len(runs) for test in recordings.values() for runs in test.values())
        _say(f"{params}: {found} recordings at hand")


@app.command()
def calibrate(
    file: Annotated[Path, _file("FILE", "A file that names groups of repeated runs.")],
    output: Annotated[str, _option("--output", "Where the calibration is written: a file, or an address of one.")],
    refresh: Refresh = False,
) -> None:
    """Learn from repeated runs how far two runs of one build lie apart."""
    from buildcompare.calibration.learn import calibrate as learn  # late: it takes seconds to import

    with _said_faults():
        with written(output) as here:
            made = learn(file, here, refresh=refresh)
        _say(f"{output}: {sum(len(group.runs) for group in made.groups)} runs in {len(made.groups)} groups")
        said = "none, as a single group leaves nothing to be judged by."
        if check := made.self_check:
            called = (f"{check[each]['called']} of {check[each]['rows']} {each}" for each in ("metrics", "labels"))
            said = f"{' and '.join(called)} of identical pairs called changed."
        print(f"Self-check: {said}")


@app.command()
def batch(
    params: Annotated[list[Path], _file("PARAMS...", "Params files.")],
    output: Reports = None,
    fail_on: FailedBy = None,
    engine: Engine = None,
    graphs: Graphs = True,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many at a time.")] = os.cpu_count() or 1,
    dask: Annotated[str | None, _option("--dask", "Make them on the cluster of the Dask scheduler here.")] = None,
    again: Annotated[bool, _option("--again", "Make reports again that stand there unchanged.")] = False,
    quiet: Quiet = False,
) -> None:
    """Publish many reports; one that fails does not stop the others, and one that stands there unchanged is kept."""
    stems = [file.stem for file in params]
    if twice := sorted({stem for stem in stems if stems.count(stem) > 1}):
        raise _refused(f"PARAMS: expected files of different names, found {twice[0]} twice")
    settings = {"engine": engine, "graphs": graphs, "resume": not again}
    orders = [Order(file, {**settings, "output": output and f"{output.rstrip('/')}/{file.stem}"}) for file in params]
    codes: dict[int, list[Path]] = {}
    kept = 0
    with _said_faults(), _cluster(dask) as (elsewhere, cores), _batch_progress(len(orders), quiet) as advance:
        for order, outcome in publish_many(orders, jobs=max(jobs, 2 * cores), elsewhere=elsewhere):
            codes.setdefault(_said(outcome, fail_on, quiet=quiet), []).append(order.params)
            kept += outcome.kept
            advance()
    if not quiet and len(orders) > 1:
        print(*map(printable, _summary(codes, kept).split("\n")), sep="\n")
    raise typer.Exit(next(code for code in _WORST_FIRST if code in codes))


def _summary(codes: dict[int, list[Path]], kept: int) -> str:
    """How many reports ended with which exit code, the worst first, and which did not end well."""
    rows = []
    for code in (code for code in _WORST_FIRST if code in codes):
        which = ", ".join(file.stem for file in sorted(codes[code])) if code else f"{kept} of them unchanged"
        rows.append(f"{len(codes[code]):6d}  {_ENDS[code]:<24}  {which}")
    return "\n".join(rows)


_ENDS = {
    FAILED: "failed (4)", BAD_INPUT: "bad input or data (3)", REGRESSION: "regression (1)",
    UNDECIDED: "cannot be decided (2)", 0: "published",
}  # fmt: skip


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[tuple[Any, int]]:
    """The executor of a Dask cluster and its number of cores; none where no address is given."""
    if address is None:
        yield None, 0
        return
    try:
        import distributed
    except ImportError:
        expected = "the package distributed (pip install buildcompare[dask])"
        raise InputError(file=None, key="--dask", expected=expected, found="none") from None
    connect: Any = distributed.Client  # it has no types
    try:
        client = connect(address, timeout=10)
    except (OSError, ValueError) as error:
        expected = "the address of a Dask scheduler, such as tcp://host:8786"
        found = f"{address!r} ({str(error)[:100] or type(error).__name__})"
        raise InputError(file=None, key="--dask", expected=expected, found=found) from None
    with client:
        yield client.get_executor(pure=False), sum(client.ncores().values())


@contextlib.contextmanager
def _batch_progress(count: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """What shows on a terminal how many reports are done, and how much time is left."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    look = TextColumn("reports"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*look, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=count)
        yield lambda: progress.advance(task)


@app.command()
def simulate(
    output: Annotated[Path | None, _option("--output", "Folder of the recordings (default: data/recordings).")] = None,
) -> None:
    """Make the bundled simulated recordings again."""
    from buildcompare.config.project import root
    from loadsim.bundled import write_bundled

    for file in write_bundled(output or root() / "data/recordings"):
        _say(str(file))


@app.command()
def history_import(
    past: Annotated[Path, _file("PAST", "A table of comparisons (docs/history.md), or a folder of params files.")],
    output: Annotated[str, _option("--output", "The ledger's folder, such as data/history/NAME, or its address.")],
) -> None:
    """Record earlier comparisons in a ledger, of a table or of a folder of params files; all of them or none."""
    from buildcompare.comparison.analysis import import_comparisons
    from buildcompare.history.table import import_table

    with _said_faults():
        made = (import_comparisons if past.is_dir() else import_table)(past, _ledger(output))
        studies = sum(entry.kind == "study" for entry in made)
        _say(f"{output}: {len(made) - studies} comparisons and {studies} studies recorded")


@app.command()
def index(output: Reports = None, ledger: Ledgers = None, metrics: Metrics = "mattermost") -> None:
    """Put every release on one page: index.html in the folder of the reports."""
    from buildcompare.report.index import write_index
    from buildcompare.report.publication import reports

    with _said_faults():
        ledgers = [_ledger(each) for each in ledger or ()]
        with contextlib.ExitStack() as stack:
            folder = Path(output) if output else reports()
            if output and is_remote(output):
                folder = stack.enter_context(copied_back(output, depth=2))
            file, rows = write_index(folder, ledgers, metrics)
        _say(f"{named(file)}: {rows} comparisons")


@app.command()
def history(
    ledger: LedgerFolder,
    metrics: Metrics = "mattermost",
    last: Annotated[int, typer.Option(min=0, help="So many of the newest comparisons; 0: all.")] = 100,
    only: Annotated[str | None, _option("--only", "The comparison of this name alone.")] = None,
) -> None:
    """Print what a ledger states: setup, drift, databases and changes, comparison by comparison."""
    from buildcompare.history.view import ledger_text

    with _said_faults():
        print(*map(printable, ledger_text(_ledger(ledger), metrics, last=last, only=only).splitlines()), sep="\n")


@app.command()
def history_pack(
    ledger: LedgerFolder, undo: Annotated[bool, _option("--undo", "Make them JSON files again.")] = False
) -> None:
    """Move the JSON files of a ledger into one Parquet file, which is read by columns: for hundreds of comparisons."""
    from buildcompare.history.ledger import repack

    with _said_faults():
        moved = repack(_ledger(ledger), undo=undo)
        _say(f"{ledger}: {moved} entries moved {'out of' if undo else 'into'} entries.parquet")


@app.command()
def plan(params: ParamsFile) -> None:
    """Print what further runs would show: how many, in which order, how many hours."""
    from buildcompare.comparison import analysis as workbench
    from buildcompare.comparison.plan import plan_text
    from buildcompare.config.params import read_params

    with _said_faults():
        comparison = read_params(params)
        results = workbench.analyse(comparison, workbench.read_recordings(comparison)).results
        print(*map(printable, plan_text(results).splitlines()), sep="\n")


@app.command()
def export(
    results: Annotated[Path, _file("RESULTS", "The results.json of a report.")],
    openmetrics: Annotated[Path | None, _option("--openmetrics", "A file for OpenMetrics text.")] = None,
    statsd: Annotated[str | None, _option("--statsd", "HOST:PORT of a statsd, by UDP.")] = None,
) -> None:
    """Hand results to a Prometheus (as a file) or to a statsd."""
    from buildcompare.comparison import export as exporting
    from buildcompare.config.project import write_files

    if openmetrics is None and statsd is None:
        raise _refused("export: expected --openmetrics or --statsd, found neither")
    with _said_faults():
        address = None if statsd is None else exporting.statsd_address(statsd)  # both targets before any work
        if openmetrics is not None:
            exporting.check_file(openmetrics)
        found = exporting.read_results(results)
        if openmetrics is not None:
            text = exporting.openmetrics(found)
            write_files({openmetrics: text})
            _say(f"{openmetrics}: {sum(not line.startswith(b'#') for line in text.splitlines())} samples")
        if address is not None:
            _say(f"{statsd}: {exporting.send_statsd(found, address)} gauges sent")


@app.command()
def run(
    matrix: Annotated[Path, _file("MATRIX", "The file of an experiment (docs/experiments.md).")],
    output: Annotated[
        Path | None, _option("--output", "The experiment's folder (default: data/experiments/NAME).")
    ] = None,
    retry: Annotated[bool, _option("--retry", "Run the cells that failed once more.")] = False,
) -> None:
    """Run an experiment, or go on with it: every combination of its factors, in a random order."""
    from buildcompare.config.project import root
    from buildcompare.experiment.matrix import read_matrix
    from buildcompare.experiment.run import run as run_all
    from buildcompare.text.sentences import say

    with _said_faults():
        read = read_matrix(matrix)
        with _ended_like_an_interrupt():
            ended = run_all(read, output or root() / "data/experiments" / str(read.name), report=_say, retry=retry)
        said = [say("experiment", "ended", len(ended.state.cells), ended.failed, [ended.params, *ended.scraped])]
        if ended.failed:
            command = ["run", str(matrix), *(["--output", str(output)] if output else []), "--retry"]
            said.append(say("experiment", "again", shlex.join(command)))
        print(*map(printable, said), sep="\n")
    if ended.failed:
        raise typer.Exit(FAILED)


@app.command()
def schema() -> None:
    """Print the JSON Schema of results.json."""
    from buildcompare.results.schema import json_schema

    print(json.dumps(json_schema(), indent=1))


def _ledger(folder: str) -> Path:
    """The folder of a ledger, or the copy of one that is elsewhere."""
    return fetched_folder(folder) if is_remote(folder) else Path(folder)


def _said(outcome: Outcome, fail_on: FailOn | None, *, quiet: bool = False) -> int:
    """Say how a report went; its exit code."""
    if outcome.code or not quiet:
        print(outcome.said, file=sys.stderr if outcome.code else sys.stdout)
    return outcome.code or _exit_code(outcome.verdict, fail_on)


def _exit_code(verdict: Verdict | None, fail_on: FailOn | None) -> int:
    if fail_on is not None and verdict == Verdict.REGRESSION:
        return REGRESSION
    if fail_on == "inconclusive" and verdict in (Verdict.INCONCLUSIVE, Verdict.INVALID):
        return UNDECIDED
    return 0


def _names(given: tuple[str, str], stated: list[set[Any]]) -> tuple[str, str]:
    """What two builds are called: as their recordings say, or else as their files; base and new where that is alike."""
    files = (Path(each).resolve().name for each in given)
    named = [re.sub(r"(\.(csv|tsv|txt|parquet|json|out|log))?(\.gz)?$", "", file) for file in files]
    base, new = (str(*own) if len(own) == 1 and all(own) else name for own, name in zip(stated, named, strict=True))
    return SIDES if base == new else (base, new)


def _table(*, every: bool) -> dict[str, Any]:
    """How a table is printed: as wide as the window, in colours there; elsewhere plain."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    return {"width": width, "coloured": sys.stdout.isatty(), "every": every}


@contextlib.contextmanager
def _progress(is_shown: bool) -> Iterator[Callable[[int], None]]:
    """What shows on a terminal, from its first call on, which cell of the notebook runs, and since when."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    look = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with contextlib.ExitStack() as shown:
        bar = Progress(*look, console=Console(stderr=True), transient=True)
        task = bar.add_task("")

        def hear(cell: int) -> None:
            if not bar.live.is_started:  # a pull before it shows its own
                shown.enter_context(bar)
            bar.update(task, description=f"comparison.ipynb, cell {cell}")

        yield hear


def _say(line: str) -> None:
    print(printable(line), flush=True)


@contextlib.contextmanager
def _ended_like_an_interrupt() -> Iterator[None]:
    """Let a request to end (SIGTERM) clear away what runs, as Ctrl-C does.

    In the background of a script SIGINT is ignored, by all that is started here too: it asks programs to end.
    """
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _refused(why: object, code: int = BAD_INPUT) -> typer.Exit:
    print(printable(f"buildcompare: {why}"), file=sys.stderr)
    return typer.Exit(code)


@contextlib.contextmanager
def _said_faults() -> Iterator[None]:
    """Say an error of ours in one line, and end the command with the exit code that it means."""
    try:
        yield
    except (typer.Exit, typer.Abort, _USAGE_ERROR):
        raise
    except Exception as error:
        code, said = what_ended(error)
        print(said, file=sys.stderr)
        raise typer.Exit(code) from None


class _Output(io.TextIOWrapper):
    """Standard output or error, which may be closed or full: that changes no exit code of what was done."""

    fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write, or remember why not."""
        try:
            return super().write(text)
        except OSError as error:
            self.fault = error
            return len(text)

    def flush(self) -> None:
        """Write what waits, or remember why not."""
        try:
            super().flush()
        except OSError as error:
            self.fault = error


def _open_outputs() -> None:
    """Put outputs that cannot fail in the place of the standard ones; one that was closed writes to nowhere."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        given = getattr(sys, name)
        encoding = getattr(given, "encoding", None) or "utf-8"
        raw = given.detach() if isinstance(given, io.TextIOWrapper) else os.fdopen(os.dup(number), "wb")
        # A terminal of few characters shows what it can.
        made = _Output(raw, encoding, errors="replace", line_buffering=name == "stderr" or raw.isatty())
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


_PRINTING = {"schema", "history", "plan", "compare"}
"""Commands whose work is what they print."""


def main() -> None:
    """Run the command line; a wrong use of it is bad input, not what click makes of it."""
    # Threads spin on matrices as small as ours: twice the CPU, and not a second less. Kernels inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jsonschema looks for a grammar of internet addresses, which takes over a second to import: no notebook needs it.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # which makes its import fail
    _open_outputs()
    if sys.argv[1:2] in (["report"], ["batch"]):
        warm.begin()
    code = FAILED
    try:
        with _said_faults():
            code = app(standalone_mode=False) or 0
    except typer.Exit as ended:
        code = ended.exit_code
    except _USAGE_ERROR as error:
        text = io.StringIO()
        error.show(file=text)
        print(*map(printable, text.getvalue().splitlines()), sep="\n", file=sys.stderr)
        code = BAD_INPUT
    except typer.Abort:
        code = FAILED
    sys.stdout.flush()
    fault = getattr(sys.stdout, "fault", None)
    if fault is not None and not isinstance(fault, BrokenPipeError):  # whoever closed a pipe had read enough
        print(f"buildcompare: standard output: expected one that can be written, found {fault}", file=sys.stderr)
        code = code or (FAILED if _PRINTING & {*sys.argv[1:2]} else 0)
    sys.exit(code)


if __name__ == "__main__":
    main()
