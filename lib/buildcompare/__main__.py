"""Compare the load tests of two builds.

Exit codes: 0 done, 3 bad input or data, 4 execution failure; with --fail-on regression also 1, with
--fail-on inconclusive also 2 for inconclusive or invalid.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from buildcompare.config.errors import BuildcompareError, InputError
from buildcompare.report.batch import BAD_INPUT, FAILED, Order, Outcome, publish_many, publish_one
from buildcompare.results.codes import Verdict

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
REGRESSION, UNDECIDED = 1, 2
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""click's, of which typer has a copy of its own."""
_WORST_FIRST = (FAILED, BAD_INPUT, REGRESSION, UNDECIDED, 0)


FailOn = Literal["regression", "inconclusive"]


def _option(name: str, text: str) -> Any:
    return typer.Option(name, *(["-o"] if name == "--output" else []), help=text)


def _file(name: str, text: str) -> Any:
    return typer.Argument(metavar=name, help=text)


ParamsFile = Annotated[Path, _file("PARAMS", "A params file, such as params/v10.4.0-rc1.yaml.")]
FailedBy = Annotated[FailOn | None, _option("--fail-on", "Exit with 1 or 2 by the verdict.")]
Refresh = Annotated[bool, _option("--refresh", "Pull again what was pulled from a server before.")]
Reports = Annotated[Path | None, _option("--output", "The folder of the reports' folders (default: reports).")]
ReportFolder = Annotated[Path | None, _option("--output", "The report's folder (default: reports/<stem of PARAMS>).")]
Record = Annotated[bool, _option("--record", "Keep the results in the ledger that `history` of PARAMS names.")]
Metrics = Annotated[str, _option("--metrics", "The catalogue that says how far runs scatter.")]
_LEDGERS = "A ledger's folder; may be repeated (default: those of the reports, and data/history/*)."
Ledgers = Annotated[list[Path] | None, _option("--history", _LEDGERS)]
LedgerFolder = Annotated[Path, _file("FOLDER", "A ledger, such as data/history/NAME.")]
LedgerAs = Literal["monthly", "study"] | None
_ENGINE = "What runs the notebook: a forked process (warm) or a Jupyter kernel (default: warm, on macOS kernel)."
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
) -> None:
    """Compare two builds and publish the report."""
    if study and not record:
        raise _refused("--study: expected --record beside it, found none")
    ledger_as: LedgerAs = ("study" if study else "monthly") if record else None
    asked = {"output": output, "refresh": refresh, "ledger_as": ledger_as, "progress": sys.stderr.isatty()}
    raise typer.Exit(_said(publish_one(Order(params, {**asked, "engine": engine})), fail_on))


@app.command()
def pull(params: ParamsFile, refresh: Refresh = False) -> None:
    """Pull the recordings of a comparison from their server, and keep them for reports."""
    from buildcompare.comparison import analysis as workbench
    from buildcompare.config.params import read_params

    with _said_faults():
        recordings = workbench.read_recordings(read_params(params), refresh=refresh)
        found = sum(len(runs) for test in recordings.values() for runs in test.values())
        print(f"{params}: {found} recordings at hand")


@app.command()
def calibrate(
    file: Annotated[Path, _file("FILE", "A file that names groups of repeated runs.")],
    output: Annotated[Path, _option("--output", "Where the calibration is written.")],
    refresh: Refresh = False,
) -> None:
    """Learn from repeated runs how far two runs of one build lie apart."""
    from buildcompare.calibration.learn import calibrate as learn  # late: it takes seconds to import

    with _said_faults():
        made = learn(file, output, refresh=refresh)
        print(f"{output}: {sum(len(group.runs) for group in made.groups)} runs in {len(made.groups)} groups")
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
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many at a time.")] = os.cpu_count() or 1,
) -> None:
    """Publish many reports; one that fails does not stop the others."""
    stems = [file.stem for file in params]
    if twice := sorted({stem for stem in stems if stems.count(stem) > 1}):
        raise _refused(f"PARAMS: expected files of different names, found {twice[0]} twice")
    asked = {file: {"output": output / file.stem if output else None, "engine": engine} for file in params}
    orders = [Order(file, settings) for file, settings in asked.items()]
    codes = {_said(outcome, fail_on) for _, outcome in publish_many(orders, jobs=jobs)}
    raise typer.Exit(next(code for code in _WORST_FIRST if code in codes))


@app.command()
def simulate(
    output: Annotated[Path | None, _option("--output", "Folder of the recordings (default: data/recordings).")] = None,
) -> None:
    """Make the bundled simulated recordings again."""
    from buildcompare.config.project import root
    from loadsim.bundled import write_bundled

    for file in write_bundled(output or root() / "data/recordings"):
        print(file)


@app.command()
def history_import(
    past: Annotated[Path, _file("PAST", "A table of comparisons (docs/history.md), or a folder of params files.")],
    output: Annotated[Path, _option("--output", "The ledger's folder, such as data/history/NAME.")],
) -> None:
    """Record earlier comparisons in a ledger, of a table or of a folder of params files; all of them or none."""
    from buildcompare.comparison.analysis import import_comparisons
    from buildcompare.history.table import import_table

    with _said_faults():
        made = (import_comparisons if past.is_dir() else import_table)(past, output)
        studies = sum(entry.kind == "study" for entry in made)
        print(f"{output}: {len(made) - studies} comparisons and {studies} studies recorded")


@app.command()
def index(output: Reports = None, ledger: Ledgers = None, metrics: Metrics = "mattermost") -> None:
    """Put every release on one page: index.html in the folder of the reports."""
    from buildcompare.report.index import write_index
    from buildcompare.report.publication import reports

    with _said_faults():
        file, rows = write_index(output or reports(), ledger or [], metrics)
        print(f"{file}: {rows} comparisons")


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
        print(ledger_text(ledger, metrics, last=last, only=only), end="")


@app.command()
def history_pack(
    ledger: LedgerFolder, undo: Annotated[bool, _option("--undo", "Make them JSON files again.")] = False
) -> None:
    """Move the JSON files of a ledger into one Parquet file, which is read by columns: for hundreds of comparisons."""
    from buildcompare.history.ledger import repack

    with _said_faults():
        moved = repack(ledger, undo=undo)
        print(f"{ledger}: {moved} entries moved {'out of' if undo else 'into'} entries.parquet")


@app.command()
def plan(params: ParamsFile) -> None:
    """Print what further runs would show: how many, in which order, how many hours."""
    from buildcompare.comparison import analysis as workbench
    from buildcompare.comparison.plan import plan_text
    from buildcompare.config.params import read_params

    with _said_faults():
        comparison = read_params(params)
        print(plan_text(workbench.analyse(comparison, workbench.read_recordings(comparison)).results), end="")


@app.command()
def schema() -> None:
    """Print the JSON Schema of results.json."""
    from buildcompare.results import json_schema

    print(json.dumps(json_schema(), indent=1))


def _said(outcome: Outcome, fail_on: FailOn | None) -> int:
    """Say how a report went; its exit code."""
    print(outcome.said, file=sys.stderr if outcome.code else sys.stdout)
    if outcome.code == 0 and fail_on is not None and outcome.verdict == Verdict.REGRESSION:
        return REGRESSION
    if outcome.code == 0 and fail_on == "inconclusive" and outcome.verdict in (Verdict.INCONCLUSIVE, Verdict.INVALID):
        return UNDECIDED
    return outcome.code


def _refused(why: object, code: int = BAD_INPUT) -> typer.Exit:
    print(f"buildcompare: {why}", file=sys.stderr)
    return typer.Exit(code)


@contextlib.contextmanager
def _said_faults() -> Iterator[None]:
    """Say an error of ours in one line, and end the command with the exit code that it means."""
    try:
        yield
    except BuildcompareError as error:
        raise _refused(error, BAD_INPUT if isinstance(error, InputError) else FAILED) from None
    except Exception:  # a fault of ours: with --fail-on, Python's own exit code would mean a regression
        traceback.print_exc()
        raise typer.Exit(FAILED) from None


def main() -> None:
    """Run the command line; a wrong use of it is bad input, not what click makes of it."""
    # Threads spin on matrices as small as ours: twice the CPU, and not a second less. Kernels inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jsonschema looks for a grammar of internet addresses, which takes over a second to import: no notebook needs it.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # which makes its import fail
    try:
        sys.exit(app(standalone_mode=False))
    except _USAGE_ERROR as error:
        error.show()
        sys.exit(BAD_INPUT)
    except typer.Abort:
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
