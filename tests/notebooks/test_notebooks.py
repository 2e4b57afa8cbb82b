"""Every notebook runs from its parameters and gives what the command line gives."""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import papermill
import pytest
from papermill.engines import papermill_engines

import buildcompare as bc
from buildcompare import figures
from buildcompare.comparison import reading
from buildcompare.report.engine import NAME, WarmEngine
from buildcompare.report.notebook import outputs_of, results_of
from buildcompare.report.publish import Published, publish
from buildcompare.report.sections import RESULTS_MIME
from buildcompare.results.codes import SIDES
from support import small_params, write_params


@pytest.fixture(scope="module")
def params_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    return write_params(folder / "small.yaml", small_params(folder / "data"))


@pytest.fixture(scope="module")
def published(params_file: Path) -> Published:
    return publish(params_file, output=params_file.parent / "out")


def executed(notebook: Path, cwd: str | None = None, **parameters: Any) -> Any:
    papermill_engines.register(NAME, WarmEngine)
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/executed.ipynb"
        papermill.execute_notebook(str(notebook), output, parameters, engine_name=NAME, progress_bar=False, cwd=cwd)
        return nbformat.read(output, as_version=4)


def without_run(results: dict[str, Any]) -> dict[str, Any]:
    results = json.loads(json.dumps(results))
    results["provenance"].pop("run")
    return results


@pytest.mark.slow
def test_plain_papermill_gives_the_results_of_the_command_line(
    project: Path, params_file: Path, published: Published, elsewhere: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "papermill", "notebooks/comparison.ipynb", str(tmp_path / "out.ipynb")]
    command += ["-f", str(params_file), "--no-progress-bar"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    packed = next(o["data"][RESULTS_MIME] for o in outputs_of(notebook) if RESULTS_MIME in o.get("data", {}))["packed"]
    embedded = json.loads(figures.unpacked(packed))
    saved = json.loads((elsewhere / "reports/small/results.json").read_text("utf-8"))
    assert embedded == saved
    assert without_run(saved) == without_run(json.loads((published.folder / "results.json").read_text("utf-8")))


@pytest.mark.filterwarnings("ignore:The set_bad:PendingDeprecationWarning")  # seaborn 0.13's heatmap calls it
@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ({"base": 2.0, "new": 3.0}, [50.0] * 4), ({"base": 2.0}, None), ({"new": 2.0}, None), ({}, None),
        ({"base": 2.0, "new": float("nan")}, None), ({"base": 0.0, "new": 2.0}, None),
    ],
    ids=["both", "no new build", "no base", "no samples", "new has no values", "base is zero"],
)  # fmt: skip
def test_the_figure_needs_both_builds(values: dict[str, float], drawn: list[float] | None, project: Path) -> None:
    cells = nbformat.read(project / "notebooks/comparison.ipynb", as_version=4).cells
    (source,) = [cell.source for cell in cells if "sns.heatmap" in cell.source]
    first = [("a", build, 1, "x", "s", 30.0 * i, 1.0) for build in ("base", "new") for i in range(4)]
    rows = [("b", build, 1, "x", "s", 30.0 * i, value) for build, value in values.items() for i in range(4)]
    samples = pd.DataFrame(first + rows, columns=["test", "build", "run", "metric", "unit", "elapsed_s", "value"])
    metrics = {"test": ["a", "b"], "status": ["equivalent", "regression"]}
    scope: dict[str, Any] = {"result": SimpleNamespace(samples=samples, metrics=pd.DataFrame(metrics))}
    exec(source, scope)  # the cell itself, on frames that no bundled comparison holds
    assert bool(plt.get_fignums()) == (drawn is not None)
    plt.close("all")
    if drawn is not None:
        assert scope["change"].tolist() == drawn


@pytest.mark.slow
def test_by_hand_it_leaves_a_report_alone(params_file: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = publish(params_file)
    assert published.folder == elsewhere / "reports/small"
    before = (published.folder / "results.json").read_bytes()
    monkeypatch.setenv("PARAMS", str(params_file))
    made = executed(elsewhere / "notebooks/comparison.ipynb", cwd=str(elsewhere / "notebooks"))  # as JupyterLab does
    assert (results_of(made).comparison, (published.folder / "results.json").read_bytes()) == ("small", before)
    assert "holds a published report" in str(made)


@pytest.mark.slow
def test_papermill_with_half_of_the_params_is_an_error(elsewhere: Path) -> None:
    half = {"name": "mine", "base": {"label": "a"}, "new": {"label": "b"}, "source": {"kind": "ltctl"}}
    with pytest.raises(papermill.PapermillExecutionError, match=r"expected the key `tests`, found no such key"):
        executed(elsewhere / "notebooks/comparison.ipynb", **half)
    assert not (elsewhere / "reports").exists()


def test_the_notebook_has_a_variable_for_each_key_of_a_params_file(project: Path) -> None:
    cells = nbformat.read(project / "notebooks/comparison.ipynb", as_version=4).cells
    parameters, setting_up = [cell.source for cell in cells if cell.cell_type == "code"][:2]
    for key in bc.Comparison.model_fields:
        assert f"\n{key} = None  # type: " in parameters
        assert f"{key}={key}" in setting_up


@pytest.mark.slow
def test_papermill_with_a_file_without_a_name_says_where_the_name_belongs(tmp_path: Path) -> None:
    unnamed = {key: value for key, value in small_params(tmp_path / "data").items() if key != "name"}
    assert bc.read_params(write_params(tmp_path / "unnamed.yaml", unnamed)).name == "unnamed"
    with pytest.raises(bc.InputError, match=r"^name: expected `name: NAME` in the params file.*found none$"):
        reading.parameters(**unnamed)


@pytest.mark.slow
def test_the_bundled_comparison_is_what_a_notebook_opens(elsewhere: Path, project: Path) -> None:
    for name in ("data", "params/v10.4.0-rc1.yaml"):
        (elsewhere / name).symlink_to(project / name)
    assert not os.environ.get("PARAMS")
    results = results_of(executed(elsewhere / "notebooks/comparison.ipynb"))
    assert results.comparison == "v10.4.0-rc1"
    assert results.simulated


ANALYSES = {
    "investigate": {"test": "postgresql_bounded", "metric": "rps", "windows": [1000, 2000]},
    "ramp_up": {"test": "postgresql_unbounded"},
    "significance": {"test": "postgresql_bounded", "metric": "avg-api-times"},
    "changepoints": {"test": "postgresql_bounded", "metric": "avg-api-times"},
}
"""The notebooks of one metric, each with parameters."""
PICTURES = {"investigate": 3, "ramp_up": 2, "significance": 2, "changepoints": 4}


def cells(table: str) -> list[str]:
    return re.findall("<td>(.*?)</td>", table)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANALYSES)
def test_papermill_runs_each_notebook_by_itself(name: str, project: Path, params_file: Path) -> None:
    notebook = executed(project / f"notebooks/{name}.ipynb", params_file=str(params_file), **ANALYSES[name])
    assert 10 <= len(notebook.cells) <= 15
    data = [output.get("data", {}) for output in outputs_of(notebook)]
    tables = [cells(each["text/html"]) for each in data if "text/html" in each]
    seen = bc.investigate(params_file, **ANALYSES[name])  # type: ignore[arg-type]
    users = seen.choose(metric="number-of-connected-devices")
    ramps = {build: vars(bc.ramp(bc.load_curve(users.curve(build)))) for build in SIDES}
    expected = pd.DataFrame(ramps) if name == "ramp_up" else seen.answer.T
    assert tables
    assert cells(expected.to_html()) in tables or name == "changepoints"
    assert sum("image/png" in each for each in data) == PICTURES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ramp_up", "changepoints"])
def test_runs_of_a_minute_leave_a_notebook_empty(name: str, project: Path) -> None:
    params = str(project / "params/missing-index.yaml")
    made = executed(project / f"notebooks/{name}.ipynb", params_file=params)
    assert [o for o in outputs_of(made) if o.get("name") == "stderr"] == []


@pytest.mark.parametrize("name", [*ANALYSES, "start"])
def test_analyses_import_the_public_interface_only_and_explain_each_cell(project: Path, name: str) -> None:
    cells = nbformat.read(project / f"notebooks/{name}.ipynb", as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    imported = re.findall(r"^(?:import|from) (\S+)", code, flags=re.MULTILINE)
    assert {each.split(".")[0] for each in imported} <= {"buildcompare", "numpy", "pandas", "seaborn", "statsmodels"}
    for before, cell in itertools.pairwise(cells):
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", []):
            assert before.cell_type == "markdown"
            assert len(re.findall(r"[.?](?: |$)", before.source)) == 2, before.source


def test_the_start_page_links_every_notebook(project: Path) -> None:
    page = nbformat.read(project / "notebooks/start.ipynb", as_version=4).cells[0].source
    names = {file.name for file in (project / "notebooks").glob("*.ipynb")} - {"start.ipynb"}
    assert set(re.findall(r"\]\((\w+\.ipynb)\)", page)) == names


@pytest.mark.parametrize(
    "notebook", sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem
)
def test_notebooks_in_git_are_clean_and_thin(notebook: Path) -> None:
    contents = nbformat.read(notebook, as_version=4)
    code = [cell for cell in contents.cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count]
    for cell in code:
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 12 or "parameters" in cell.metadata.get("tags", [])
