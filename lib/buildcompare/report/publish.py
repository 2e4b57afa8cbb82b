"""Make the report of a params file by running the comparison notebook, and publish it."""

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from nbformat import NotebookNode
from pydantic_core import to_json

from buildcompare.comparison import analysis, artefacts
from buildcompare.comparison.inputs import NOTEBOOK as NOTEBOOK
from buildcompare.comparison.inputs import files_of, inputs_sha256
from buildcompare.config.errors import ExecutionError, InputError
from buildcompare.config.params import Comparison, params_of
from buildcompare.config.project import resolve, root, socket_folder, write_files
from buildcompare.config.variants import Variants, holds_variants, read_variants
from buildcompare.config.yaml import read_yaml
from buildcompare.history.entry import entry_of, place_in_words
from buildcompare.history.ledger import Ledger, locked, read_ledger, record
from buildcompare.report import engine as warm
from buildcompare.report import junit, markdown, publication
from buildcompare.report.commonmark import images
from buildcompare.report.html import page_of_notebook
from buildcompare.report.sections import keep_beside_results
from buildcompare.results import Results, dumps
from buildcompare.results.tables import tables
from buildcompare.text.sentences import say
from buildcompare.variants.compare import catalogue_of, read_runs

Engine = Literal["warm", "kernel"]
LedgerAs = Literal["monthly", "study"] | None


class KernelInputError(InputError):
    """An :class:`InputError` from inside the kernel: only its message crosses over."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def execute(params: Comparison | Variants, *, command: str, engine: Engine | None = None) -> NotebookNode:
    """Run the notebook of builds or of variants, by a warm `engine` or by a kernel; `command` makes the report again.

    Raises :class:`InputError` at a fault of the user's (a file that is missing, empty or damaged), at any other
    :class:`ExecutionError`.
    """
    import papermill
    from papermill.engines import papermill_engines
    from papermill.exceptions import PapermillExecutionError
    from papermill.execute import raise_for_execution_errors
    from papermill.utils import chdir

    source = NOTEBOOK if isinstance(params, Comparison) else NOTEBOOK.with_name(publication.VARIANTS)
    notebook: NotebookNode
    with _kernel() if (engine or best_engine()) == "kernel" else _forked() as settings:
        try:
            # In two steps: in one, papermill would make a text of the executed notebook, which is not whole yet.
            parameters = {**params.model_dump(mode="json"), "command": command}
            notebook = papermill.execute_notebook(str(root() / source), None, parameters, prepare_only=True, **settings)
            name, quiet = notebook.metadata.kernelspec.name, {"progress_bar": False, "log_output": False}
            with chdir(str(root())):
                papermill_engines.execute_notebook_with_engine(nb=notebook, kernel_name=name, **quiet, **settings)
            raise_for_execution_errors(notebook, None)
        except PapermillExecutionError as error:
            if error.ename == InputError.__name__:
                raise KernelInputError(error.evalue) from None
            where = f"cell {error.exec_count} of {source}"
            raise ExecutionError(f"{where}: {error.ename}: {error.evalue}") from None
        except ExecutionError as error:  # a process that was killed
            raise ExecutionError(f"{source}, {error}") from None
        except Exception as error:  # a kernel that dies or does not start raises whatever its libraries raise
            raise ExecutionError(f"the notebook could not be run: {type(error).__name__}: {error}") from error
    for cell in notebook.cells:  # it is published: warnings and papermill name files of this machine
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if not (o.output_type == "stream" and o.name == "stderr")]
    notebook.metadata.get("papermill", {}).update(input_path=str(source), output_path=source.name)
    return notebook


def best_engine() -> Engine:
    """What runs the notebook where nobody said: the warm engine where processes can be forked."""
    return "warm" if warm.is_safe() else "kernel"


@contextlib.contextmanager
def _forked() -> Iterator[dict[str, Any]]:
    """Settings by which papermill runs a notebook in a forked process, whatever engines are installed."""
    from papermill.engines import papermill_engines

    papermill_engines.register(warm.NAME, warm.WarmEngine)
    yield {"engine_name": warm.NAME}


@contextlib.contextmanager
def _kernel() -> Iterator[dict[str, Any]]:
    """Settings by which papermill runs a notebook in a kernel."""
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from traitlets.config import Config

    class OwnKernel(AsyncKernelManager):
        """Kernels of the Python that runs this, whatever kernels the user has installed."""

        kernel_spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    with socket_folder() as sockets:
        # Sockets in a folder of this kernel's own: TCP ports race, and a shared folder cross-connects.
        own = {"connection_file": f"{sockets}/kernel.json"}
        transport = {"KernelManager": {**own, "transport": "ipc", "ip": f"{sockets}/k"}} if os.name == "posix" else {}
        settings = {"start_timeout": 120, "config": Config(transport), "kernel_manager_class": OwnKernel}  # seconds
        settings["engine_name"] = None  # papermill's own
        yield {**settings, "on_cell_start": lambda cell, cell_index: warm.tell(cell_index)}


@dataclass(frozen=True)
class Published:
    """A report that was published."""

    folder: Path
    results: Results
    recorded: str | None = None  # where in the ledger it was recorded, in words
    kept: bool = False  # it stood there already


def folder_of(params_file: Path, output: Path | None) -> Path:
    """The folder that a report of this file is published in."""
    return (output or publication.reports() / params_file.stem).absolute()


def shown_as(params_file: Path) -> str:
    """The path of a params file in the project, without folders of this machine."""
    path = params_file.resolve()
    return str(path.relative_to(root()) if path.is_relative_to(root()) else params_file.name)


def _own_folder(params_file: Path, output: Path | None) -> tuple[Path, str]:
    """The folder that a report goes to, and what tells its params file from others; not over that of another one."""
    path, folder = params_file.resolve(), folder_of(params_file, output)
    own = shown_as(path) if path.is_relative_to(root()) else sha256(str(path).encode()).hexdigest()
    try:
        run = json.loads((folder / publication.RESULTS).read_bytes())["provenance"]["run"]
        other = run.get("params", own) != own
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return folder, own
    if other and output is None:
        expected = f"a folder of its own (--output) for the report of {params_file}"
        raise InputError(file=folder, key="output", expected=expected, found=f"that of another {params_file.name}")
    return folder, own


def pictures_of(params: Comparison | Variants, folder: Path) -> dict[str, bytes]:
    """The pictures in what people wrote, in the params and into README.md in `folder`, by paths as they wrote them."""
    texts = [*params.comments, *params.action_items, *params.setup.values()]
    texts += markdown.read_written(folder / publication.README).values()
    return {path: contents for text in texts for path, _, contents in images(text)}


def made_from(params: Comparison | Variants, params_file: Path, folder: Path, *, graphs: bool) -> str | None:
    """The hash of all that the report in `folder` is made from; None where a file is missing: the notebook says it."""
    if not all("\0" not in path and resolve(path).is_file() for path in files_of(params)):
        return None
    written = markdown.read_written(folder / publication.README)
    settings: dict[str, Any] = {"graphs": graphs, "shown_as": shown_as(params_file)}
    settings["pictures"] = {path: sha256(each).hexdigest() for path, each in pictures_of(params, folder).items()}
    return inputs_sha256(params, written={name: text for name, text in written.items() if text.strip()}, **settings)


def publish(
    params_file: Path,
    *,
    output: Path | None = None,
    refresh: bool = False,
    progress: bool = False,
    ledger_as: LedgerAs = None,
    engine: Engine | None = None,
    graphs: bool = True,
    resume: bool = False,
) -> Published:
    """Check the params, run the notebook, and publish everything made from it (into `output`), or nothing.

    With `refresh`, what was pulled from a server before is pulled again. With `ledger_as`, the results are recorded in
    the ledger that the params name (``history``), as what it says. The `engine` runs the notebook's cells.
    With `progress`, pulls show how far they are.
    Without `graphs`, README.md has none: they are what takes longest. With `resume`, a whole report that stands there
    is kept where it was made from the same inputs by the same code (``provenance.run.inputs_sha256``).
    """
    document = read_yaml(params_file)
    params: Comparison | Variants
    if holds_variants(document):
        params, ledger, name = read_variants(params_file), None, publication.VARIANTS
        if ledger_as is not None:
            expected = "two builds to record (a matrix of variants has no place in a ledger)"
            raise InputError(file=params_file, key="factors", expected=expected, found="variants")
    else:
        params, name = params_of(document, params_file), publication.NOTEBOOK
        ledger = _ledger_of(params, params_file, ledger_as)
        analysis.catalogue_of(params)
        if params.calibration is not None:
            analysis.calibration_of(params, params.calibration)
    folder, own = _own_folder(params_file, output)
    left = artefacts.found_of(params)
    markdown.read_written(folder / publication.README)  # a broken marker is said before anything is written
    if isinstance(params, Comparison):
        analysis.pull_recordings(params, refresh=refresh, quiet=not progress)
    else:
        read_runs(params, catalogue_of(params))  # a fault is said with its line, which the kernel is not told
    command, recorded = f"python -m buildcompare report {shlex.quote(shown_as(params_file))}", None
    inputs = made_from(params, params_file, folder, graphs=graphs)
    if resume and inputs is not None and (kept := publication.whole(folder, inputs)) is not None:
        return Published(folder, kept, kept=True)
    with publication.staged(folder) as staging:
        try:
            notebook = execute(params, command=command, engine=engine)
        except KernelInputError:
            if isinstance(params, Comparison):
                analysis.read_profiles(params)
                analysis.read_recordings(params)  # raises the same with file and line, which the kernel was not told
            raise
        results = keep_beside_results(notebook, {"inputs_sha256": inputs, "params": own})
        _write(notebook, results, name, staging, folder, graphs=graphs)
        for _, files in left:
            artefacts.copy(files, staging)
        if isinstance(params, Comparison) and ledger_as is not None and ledger is not None:
            recorded = _recorded(params, results, ledger, ledger_as)  # a refusal leaves the published report as it was
    return Published(folder, results, recorded)


def _ledger_of(params: Comparison, params_file: Path, ledger_as: LedgerAs) -> Ledger | None:
    """The ledger that the params name; refused where the results cannot be recorded in it as they shall be."""
    ledger = None if params.history is None else read_ledger(resolve(params.history, is_folder=True))
    if ledger_as is not None:
        if ledger is None:
            expected = "the folder of a ledger, such as data/history/mattermost, to record in"
            raise InputError(file=params_file, key="history", expected=expected, found="none")
        ledger.book.namesake(entry_of(params, position=None if ledger_as == "study" else 1))
    return ledger


def _recorded(params: Comparison, results: Results, ledger: Ledger, ledger_as: LedgerAs) -> str:
    """Record results in a ledger: where they stand there, in words."""
    with locked(ledger.folder):
        position = None if ledger_as == "study" else read_ledger(ledger.folder).next_position
        known = {"simulated": results.simulated, "verdict": results.verdict}
        entry = entry_of(params, results.tests, position=position, **known)
        packed = record(ledger.folder, [entry])
        place = place_in_words(read_ledger(ledger.folder), entry.name)
    return f"{place} {say('history', 'packed', packed)}" if packed else place


def _write(notebook: NotebookNode, results: Results, name: str, staging: Path, folder: Path, *, graphs: bool) -> None:
    """Write every format of a report; what people wrote into the README in `folder` is kept."""
    drawn = markdown.graphs_of(notebook, results) if graphs else []
    written = markdown.read_written(folder / publication.README)
    csv = {f"tables/{table}.csv": text for table, text in tables(results).items()}
    beside = [publication.README, publication.RESULTS, name, *csv]
    texts = {publication.RESULTS: dumps(results), publication.JUNIT: junit.render(results)}
    texts[publication.HTML] = page_of_notebook(notebook, results, beside=beside, written=written)
    texts[name] = to_json(notebook, indent=1).decode() + "\n"  # as nbformat writes it, which takes five times as long
    texts[publication.README] = markdown.put_written(markdown.render(results, drawn), written)
    (staging / "tables").mkdir()
    write_files({staging / file: text for file, text in (texts | csv).items()})
    for file, contents in markdown.files_of(drawn, results).items():
        (staging / file).parent.mkdir(exist_ok=True)
        (staging / file).write_bytes(contents)
