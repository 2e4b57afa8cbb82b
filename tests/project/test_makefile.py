"""The Makefile keeps its word, whatever environment it finds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def make(project: Path, *arguments: str, **environment: str) -> str:
    mixed_in = re.compile(
        r"MAKE|MFLAGS|CONDA_|PARAMS$|NOTEBOOK$|TEST$|METRIC$|LABEL$|WINDOW$|ARGS$|TESTS$|WORKERS$|PYTHON$|UPGRADE$"
    )
    clean = {name: value for name, value in os.environ.items() if not mixed_in.match(name)}
    done = subprocess.run(
        ["make", *arguments],
        cwd=project, env={**clean, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment_at(folder: Path) -> str:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(os.path.realpath("/bin/sh"))
    return str(folder)


def test_make_alone_lists_every_target(project: Path) -> None:
    text = (project / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[0].split())
    targets = phony - {"FORCE", "conda"}
    assert targets >= {"help", "report", "test", "lab", "batch", "data", "lint", "format", "lock", "clean"}
    listed = {line.split()[1] for line in make(project).splitlines() if line.startswith("make ")}
    assert (listed, make(project, "help")) == (targets, make(project))


def test_make_uses_an_active_conda_environment(project: Path, tmp_path: Path) -> None:
    conda = environment_at(tmp_path / "conda with space")
    plan = make(project, "-n", "report", CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="buildcompare")
    assert f'"{conda}/bin/python" -m buildcompare report "params/missing-index.yaml"' in plan
    assert ".venv" not in plan


def test_make_lab_opens_a_notebook_on_a_finding(project: Path, tmp_path: Path) -> None:
    """What is named reaches the notebook without a shell between: a label may hold quotes and dollar signs."""
    assert '--LabApp.default_url="/lab/tree/notebooks/start.ipynb"' in make(project, "-n", "lab")
    label = 'api it\'s `x` $(x) "y" p99'
    chosen = ["NOTEBOOK=investigate", "PARAMS=params/x.yaml", "TEST=my test", f"LABEL={label.replace('$', '$$')}"]
    assert '--LabApp.default_url="/lab/tree/notebooks/investigate.ipynb"' in make(project, "-n", "lab", *chosen)
    conda = environment_at(tmp_path / "conda")
    shown = "RUN=printenv PARAMS BUILDCOMPARE_TEST BUILDCOMPARE_LABEL;:"
    told = make(project, "lab", *chosen, shown, CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="buildcompare")
    assert told.splitlines()[-3:] == ["params/x.yaml", "my test", label]


@pytest.mark.parametrize("conda", [{}, {"CONDA_DEFAULT_ENV": "base"}, {"CONDA_PREFIX": "/nowhere/at/all"}])
def test_make_uses_its_own_environment_otherwise(project: Path, tmp_path: Path, conda: dict[str, str]) -> None:
    if conda.get("CONDA_DEFAULT_ENV") == "base":
        conda = {**conda, "CONDA_PREFIX": environment_at(tmp_path / "miniconda")}
    plan = make(project, "-n", "report", "PARAMS=params/x.yaml", **conda)
    assert '.venv/bin/python -m buildcompare report "params/x.yaml"' in plan
    assert "miniconda" not in plan


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ([], "found neither in"),
        (["holiday/photo.jpg", "chunks"], "found neither in"),
        (["01JE00000000000000000000ZZ/chunks/000001"], "expected the program prometheus, found none"),
        (["wal/00000000"], "expected the program prometheus, found none"),
    ],
    ids=["an empty folder", "another folder", "blocks", "a log"],
)
def test_make_prometheus_copies_only_prometheus(project: Path, tmp_path: Path, files: list[str], refused: str) -> None:
    data, tools = tmp_path / "some data", tmp_path / "bin"
    for folder in (data, tools, tmp_path / "tmp"):
        folder.mkdir()
    for name in files:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).touch()
    for tool in ("sh", "awk", "cksum", "tr", "cat", "make"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    with pytest.raises(AssertionError, match=f"make prometheus: .*{refused}"):
        make(project, "prometheus", f"DATA={data}", PATH=str(tools), TMPDIR=str(tmp_path / "tmp"))
    assert not any((tmp_path / "tmp").iterdir())


@pytest.fixture
def elsewhere(project: Path, tmp_path: Path) -> Path:
    """A checkout without an environment, in a folder with a space; its lock files name no package."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    shutil.copy(project / "Makefile", folder)
    for name in ("requirements.lock", "requirements-dev.lock"):
        (folder / name).write_text("# nothing to install\n", encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "none"\nbackend-path = ["."]\n', encoding="utf-8"
    )
    (folder / "none.py").write_text(NO_BACKEND, encoding="utf-8")
    return folder


def test_make_names_the_missing_python(elsewhere: Path) -> None:
    with pytest.raises(AssertionError, match=r"needs Python 3\.11 or newer.*as no-such-python"):
        make(elsewhere, "setup", PYTHON="no-such-python")
    assert not (elsewhere / ".venv").exists()


@pytest.mark.slow
def test_an_interrupted_setup_is_made_again_and_a_complete_one_kept(elsewhere: Path) -> None:
    lock = elsewhere / "requirements.lock"
    lock.write_text("no-such-package==1.0 --hash=sha256:0\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        make(elsewhere, "setup", PIP_NO_INDEX="1")
    assert list(elsewhere.glob(".venv/.report-*")) == []
    assert "rm -rf .venv" in make(elsewhere, "-n", "report")
    lock.write_text("# nothing to install\n", encoding="utf-8")
    assert "Making .venv with Python 3" in make(elsewhere, "-j2", "setup", PIP_NO_INDEX="1")
    assert "pip" not in make(elsewhere, "-n", "setup")
    os.utime(elsewhere / "requirements-dev.lock")
    assert "venv" not in make(elsewhere, "-n", "report").replace(".venv/bin/python", "")
    assert "pip" in make(elsewhere, "-n", "test")
    assert "-m venv" in make(elsewhere.rename(elsewhere.with_name("moved")), "-n", "setup")


@pytest.mark.slow
def test_a_report_imports_only_what_its_lock_names(project: Path) -> None:
    lock = (project / "requirements.lock").read_text(encoding="utf-8")
    first = set(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==", lock, flags=re.MULTILINE))
    assert {"papermill", "nbconvert", "statsmodels", "setuptools"} <= first
    assert not {"jupyterlab", "mypy", "pytest", "sphinx", "distributed", "notebook-shim", "playwright"} & first
    ask = (
        "import sys, buildcompare.report.preload, buildcompare.api, importlib.metadata; "
        "packages = importlib.metadata.packages_distributions(); "
        "names = {name.split('.')[0] for name, each in sys.modules.items() if each}; "
        "print(*{package for name in names for package in packages.get(name, [])})"
    )
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    imported = {re.sub(r"[._]", "-", name.lower()) for name in answer.split()}
    by_others = "cloudpickle ipywidgets jsonpointer msgpack pip rfc3339-validator six"
    optional = {"buildcompare", *by_others.split()}
    assert len(imported) > 40
    assert imported - optional <= first


NO_BACKEND = """
import zipfile
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "nothing-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr("nothing-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: nothing\\nVersion: 1\\n")
        wheel.writestr("nothing-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("nothing-1.dist-info/RECORD", "")
    return name
"""
