"""The warm engine gives what a kernel gives, and a process that dies is told by its cell."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from buildcompare.config.errors import ExecutionError
from buildcompare.report import publish as run_report
from buildcompare.report.batch import Order, publish_one
from support import small_params, write_params

CELLS = (
    "who = 'nobody'",
    "import os, sys\nprint('out'); print('again'); print('err', file=sys.stderr)\nos.path.basename(os.getcwd())",
    "from IPython.display import HTML, display, update_display",
    "display(HTML('1'), display_id='x')\ndisplay({'a': who})\nupdate_display(HTML('2'), display_id='x')\nHTML('3')",
    "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);",
    "await __import__('asyncio').sleep(0)\n_ + _ if isinstance(_, int) else 7", "   ", "_", "1 / 0", "print('never')",
)  # fmt: skip


def run(engine: run_report.Engine, cells: tuple[str, ...], folder: Path) -> Any:
    (folder / "in.ipynb").write_text(nbformat.writes(notebook_of(cells)))
    asked = {"parameters": {"who": "me"}, "cwd": str(folder)}
    with run_report._settings(engine) as settings, pytest.raises(papermill.PapermillExecutionError) as error:
        papermill.execute_notebook(folder / "in.ipynb", folder / "out.ipynb", **asked, **settings)
    made = json.loads((folder / "out.ipynb").read_text())
    for cell in made["cells"]:
        cell.pop("id")
        cell["metadata"].pop("execution", None)
        if cell.get("execution_count") is None:  # nothing to run
            cell["metadata"].pop("papermill", None)
        for about in (made["metadata"]["papermill"], cell["metadata"].get("papermill", {})):
            for name in ("start_time", "end_time", "duration", "input_path", "output_path"):
                about.pop(name, None)
        for output in cell.get("outputs", []):
            output.pop("traceback", None)  # of other files
            output.get("data", {}).pop("image/png", None)
    return made, str(error.value.ename), error.value.exec_count


def notebook_of(cells: tuple[str, ...]) -> Any:
    made = new_notebook(cells=[new_markdown_cell("# Text"), *(new_code_cell(source) for source in cells)])
    made.cells[1].metadata["tags"] = ["parameters"]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


@pytest.mark.slow
def test_cells_give_what_they_give_in_a_kernel(tmp_path: Path) -> None:
    made = {}
    for engine in ("warm", "kernel"):
        (tmp_path / engine / "work").mkdir(parents=True)
        made[engine] = run(engine, CELLS, tmp_path / engine / "work")
    assert made["warm"] == made["kernel"]
    cells = made["warm"][0]["cells"]
    assert [output["output_type"] for cell in cells for output in cell.get("outputs", [])].count("display_data") == 3
    assert made["warm"][1:] == ("ZeroDivisionError", 9)


@pytest.mark.slow
def test_both_engines_publish_the_same_report(tmp_path: Path) -> None:
    params = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    published: dict[str, dict[str, Any]] = {}
    for engine in ("warm", "kernel"):
        folder = tmp_path / engine
        outcome = publish_one(Order(params, folder, engine=engine))
        assert outcome.code == 0, outcome.printed
        files = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        results = json.loads(files.pop(Path("results.json")))
        created = results["provenance"].pop("run")["created"]
        notebook = files.pop(Path("comparison.ipynb"))
        files = {name: text.replace(created.encode(), b"WHEN") for name, text in files.items()}
        counts = {name: notebook.count(f'"{name}"'.encode()) for name in ("cell_type", "image/png")}
        published[engine] = {"results": json.dumps(results), **files, **counts}
    assert published["warm"] == published["kernel"]
    assert counts["image/png"] == 1


@pytest.mark.slow
def test_a_process_that_dies_is_named(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, said = "import os\nos.kill(os.getpid(), 9)", "cell 3: its process was ended by SIGKILL"
    root = tmp_path / "project"
    (root / "notebooks").mkdir(parents=True)
    (root / run_report.NOTEBOOK).write_text(nbformat.writes(notebook_of(("name = None", cell))))
    (root / "params").symlink_to(project / "params")
    params = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(root))
    outcome = publish_one(Order(params, tmp_path / "out"))
    assert outcome.code == 4
    assert said in outcome.printed
    with pytest.raises(ExecutionError, match=said):  # where only the cells are in a process of their own
        run_report.publish(params, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_the_fork_server_has_no_threads_that_a_fork_would_break() -> None:
    """A fork can hang where a thread holds a lock; jemalloc, which pyarrow allocates with, restarts its own thread."""
    ask = (
        "import os, sys, buildcompare.report.preload, buildcompare.api; "
        "print([open(f'/proc/self/task/{each}/comm').read().strip() for each in os.listdir('/proc/self/task')][1:])"
    )
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['jemalloc_bg_thd']")
