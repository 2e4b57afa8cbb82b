"""Make the report of a params file by running the comparison notebook, and publish it."""

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from nbformat import NotebookNode
from pydantic_core import to_json
from traitlets.config import Config

from buildcompare.comparison import artefacts, reading
from buildcompare.comparison.inputs import NOTEBOOK as NOTEBOOK
from buildcompare.comparison.inputs import inputs_sha256, notebook_of
from buildcompare.config.errors import ExecutionError, InputError
from buildcompare.config.kinds import kind_of
from buildcompare.config.params import Comparison, Reported, params_of
from buildcompare.config.project import resolve, root, socket_folder, write_files
from buildcompare.config.yaml import read_yaml
from buildcompare.figures import rasteriser
from buildcompare.history.ledger import Ledger, entry_of, ledger_of, place_in_words, record
from buildcompare.report import markdown, processes, publication
from buildcompare.report.commonmark import images
from buildcompare.report.notebook import keep_beside_results, without_scripts
from buildcompare.results import Results, dumps
from buildcompare.results.tables import tables

Engine = Literal["warm", "kernel"]
LedgerAs = Literal["monthly", "study"] | None
Graphs = Literal["svg", "png"] | None
POSITIONS: dict[LedgerAs, int | None] = {"monthly": 1, "study": None}


class KernelInputError(InputError):
    """An :class:`InputError` that was raised in the kernel; only its message reaches this process."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def execute(params: Reported, *, command: str, engine: Engine | None = None) -> NotebookNode:
    """Run the notebook of `params` with `engine`; the report shows `command`, with which users can repeat the report.

    Faulty input (a missing, empty or damaged file) raises :class:`InputError`, lack of memory MemoryError, any other
    error :class:`ExecutionError`.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    source = notebook_of(params)
    given = {**params.model_dump(mode="json"), "command": command}
    notebook: NotebookNode
    with _settings(engine) as settings:
        try:
            notebook = papermill.execute_notebook(str(resolve(source)), None, given, cwd=str(root()), **settings)
        except PapermillExecutionError as error:
            if error.ename == InputError.__name__:
                raise KernelInputError(error.evalue) from None
            if error.ename == MemoryError.__name__:
                raise MemoryError from None
            where = f"cell {error.exec_count} of {source}"
            raise ExecutionError(f"{where}: {error.ename}: {error.evalue}") from None
        except ExecutionError as error:  # the process was killed
            raise ExecutionError(f"{source}, {error}") from None
        except Exception as error:  # libraries raise errors of any type if a kernel dies or does not start
            raise ExecutionError(f"the notebook could not be run: {type(error).__name__}: {error}") from error
    for cell in notebook.cells:  # remove warnings (stderr): they may name paths of this machine
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if not (o.output_type == "stream" and o.name == "stderr")]
    notebook.metadata.get("papermill", {}).update(input_path=str(source), output_path=source.name)
    return notebook


@contextlib.contextmanager
def _settings(engine: Engine | None) -> Iterator[dict[str, object]]:
    """Yield papermill's settings for a forked process or a kernel; the default is a forked process if that is safe."""
    quiet: dict[str, object] = {"progress_bar": False, "log_output": False}
    if engine == "warm" or (engine is None and processes.is_safe()):
        from papermill.engines import papermill_engines

        from buildcompare.report.engine import NAME, WarmEngine

        papermill_engines.register(NAME, WarmEngine)  # replaces an installed engine of this name
        yield {**quiet, "engine_name": NAME}
        return
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class OwnKernel(AsyncKernelManager):
        """Starts kernels with the running Python instead of the kernels that the user installed."""

        kernel_spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    with socket_folder() as sockets:
        # Each kernel has its own folder of sockets: kernels with a common folder or TCP port connect to each other.
        manager = {"connection_file": f"{sockets}/kernel.json", "transport": "ipc", "ip": f"{sockets}/k"}
        transport = {"KernelManager": manager} if os.name == "posix" else {}
        settings = {"start_timeout": 120, "config": Config(transport), "kernel_manager_class": OwnKernel}  # 120 s
        yield {**quiet, **settings, "on_cell_start": lambda cell, cell_index: processes.tell(cell_index)}


@dataclass(frozen=True)
class Published:
    """A published report."""

    folder: Path
    results: Results
    recorded: str | None = None
    """Place of the report in the ledger, in words; None if it was not recorded."""
    kept: bool = False
    """True if an earlier report of the same inputs was kept instead of making a new one."""


def folder_of(params_file: Path, output: Path | None) -> Path:
    """Return the absolute folder of a params file's report: `output`, or else a folder with the params file's name."""
    return (output or publication.reports() / params_file.stem).absolute()


def shown_as(params_file: Path) -> str:
    """Return a params file's path in the project, or only its name if it is elsewhere: reports hide local folders."""
    path = params_file.resolve()
    return str(path.relative_to(root()) if path.is_relative_to(root()) else params_file.name)


def _folder_for(params_file: Path, output: Path | None) -> tuple[Path, str]:
    """Return the report's folder and an id of its params file; refuse a default folder with another file's report."""
    path, folder = params_file.resolve(), folder_of(params_file, output)
    identity = shown_as(path) if path.is_relative_to(root()) else sha256(str(path).encode()).hexdigest()
    try:
        run = json.loads((folder / publication.RESULTS).read_bytes())["provenance"]["run"]
        other = run.get("params", identity) != identity
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return folder, identity
    if other and output is None:
        expected = f"another folder (--output) for the report of {params_file}"
        raise InputError(file=folder, key="output", expected=expected, found=f"a report of another {params_file.name}")
    return folder, identity


def pictures_of(params: Reported, folder: Path) -> dict[str, bytes]:
    """Return the contents of the pictures in the params' texts and in README.md's hand-written blocks, by path."""
    texts = [*params.comments, *params.action_items, *params.setup.values()]
    texts += markdown.read_written(folder / publication.README).values()
    return {path: contents for text in texts for path, _, contents in images(text)}


def made_from(params: Reported, ledger: Ledger | None, file: Path, folder: Path, *, graphs: Graphs) -> str | None:
    """Hash all inputs of the report in `folder`; return None if an input file is missing."""
    written = markdown.read_written(folder / publication.README)
    return inputs_sha256(
        params,
        ledger=ledger and ledger.sha256,
        written={name: text for name, text in written.items() if text.strip()},
        graphs=graphs,
        shown_as=shown_as(file),
        pictures={path: sha256(each).hexdigest() for path, each in pictures_of(params, folder).items()},
    )


def publish(
    params_file: Path,
    *,
    output: Path | None = None,
    refresh: bool = False,
    progress: bool = False,
    ledger_as: LedgerAs = None,
    engine: Engine | None = None,
    graphs: Graphs = "svg",
    resume: bool = False,
) -> Published:
    """Check the params, run the notebook, and publish the report in `output`: all its files, or none after an error.

    Parameters
    ----------
    refresh
        Pull again from the server, even if a recording was pulled before.
    progress
        Show the progress of pulls.
    ledger_as
        Kind of the new entry in the ledger that the params name (``history``); None records nothing.
    engine
        What runs the notebook's cells: a forked process (``warm``; the default where it is safe) or a ``kernel``.
    graphs
        Format of the graphs of README.md; None for no graphs.
    resume
        Keep an existing report if it is complete and from the same inputs and code (``provenance.run.inputs_sha256``).
    """
    if graphs == "png":
        rasteriser()
    params, ledger = _checked(params_file, ledger_as)
    folder, identity = _folder_for(params_file, output)
    files_of_runs = artefacts.of_runs(params)
    markdown.read_written(folder / publication.README)  # check the markers of hand-written text before any work
    if isinstance(params, Comparison):
        reading.pull_recordings(params, refresh=refresh, quiet=not progress)
    command, recorded = f"python -m buildcompare report {shlex.quote(shown_as(params_file))}", None
    inputs = made_from(params, ledger, params_file, folder, graphs=graphs)
    if resume and inputs is not None and (kept := publication.whole(folder, inputs)) is not None:
        return Published(folder, kept, kept=True)
    with publication.staged(folder) as staging:
        try:
            notebook = execute(params, command=command, engine=engine)
        except KernelInputError:
            if isinstance(params, Comparison):
                reading.read_profiles(params)  # read here too, to raise the error with file and line
                reading.read_recordings(params)
            raise
        results = keep_beside_results(notebook, {"inputs_sha256": inputs, "params": identity})
        _write(notebook, results, staging, folder, graphs=graphs)
        for _, files in files_of_runs:
            artefacts.copy(files, staging)
        if isinstance(params, Comparison) and ledger_as is not None and ledger is not None:
            position, verdict = POSITIONS[ledger_as], results.verdict
            entry = entry_of(params, results.tests, position=position, simulated=results.simulated, verdict=verdict)
            place = record(ledger.folder, [entry], at_end=True)  # an error here keeps the old report
            recorded = place_in_words(place, entry.name)
    return Published(folder, results, recorded)


def _checked(params_file: Path, ledger_as: LedgerAs) -> tuple[Reported, Ledger | None]:
    """Read the params and their ledger, and make all checks that need no notebook."""
    document = read_yaml(params_file)
    if kind := kind_of(document):
        if ledger_as is not None:
            expected = f"a comparison of two builds (a ledger holds no {kind.name})"
            raise InputError(file=params_file, key=None, expected=expected, found=kind.name)
        params = kind.read(params_file)
        kind.check(params)  # errors of this check name file and line, unlike the kernel's
        return params, None
    params = params_of(document, params_file)
    ledger = ledger_of(params)
    if ledger_as is not None:
        if ledger is None:
            expected = "the folder of a ledger for --record, such as data/history/mattermost"
            raise InputError(file=params_file, key="history", expected=expected, found="none")
        ledger.namesake(entry_of(params, position=POSITIONS[ledger_as]))
    reading.catalogue_of(params)
    if params.calibration is not None:
        reading.calibration_of(params, params.calibration)
    return params, ledger


def _write(notebook: NotebookNode, results: Results, staging: Path, folder: Path, *, graphs: Graphs) -> None:
    """Write every format of a report into `staging`; hand-written blocks come from the old README.md in `folder`."""
    # late import: nbconvert takes long to import
    from buildcompare.report.exporters import HtmlReportExporter, JUnitExporter, MarkdownReportExporter, convert

    name = publication.notebook_name(results)
    csv = {f"tables/{table}.csv": text for table, text in tables(results).items()}
    beside = [publication.README, publication.RESULTS, name, *csv]
    given = {"beside": beside, "written": markdown.read_written(folder / publication.README), "graphs": graphs}
    texts = {publication.RESULTS: dumps(results), **csv}
    texts[publication.HTML], _ = convert(HtmlReportExporter, notebook, **given)
    texts[publication.JUNIT], _ = convert(JUnitExporter, notebook)
    texts[publication.README], pictures = convert(MarkdownReportExporter, notebook, **given)
    texts[name] = to_json(without_scripts(notebook), indent=1).decode() + "\n"  # nbformat takes five times as long
    (staging / "tables").mkdir()
    write_files({staging / file: text for file, text in texts.items()})
    for file, contents in pictures.items():
        (staging / file).parent.mkdir(exist_ok=True)
        (staging / file).write_bytes(contents)
