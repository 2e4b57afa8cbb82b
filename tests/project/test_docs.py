"""The documentation site builds without a warning, loads nothing from elsewhere, and its worked changes apply."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import buildcompare as bc
from buildcompare.__main__ import app
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.yaml import checked, read_yaml, yaml_text
from labmatrix.experiment.matrix import read_matrix
from loadcalibrate.learn import CalibrationSpec

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text("utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
BLOCKS = [
    pytest.param(block, id=f"{name}-{i}")
    for name, page in PAGES.items() if name != "ci.md"  # workflows of build servers, which test_ci.py plays
    for i, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S))
]  # fmt: skip
_FENCED = r"^```\w*\n(.*?)^```$"
_COMMAND = r"(?:buildcompare|python -m buildcompare|make|papermill) "
COMMANDS = [
    pytest.param(words, id=f"{name}: {words}"[:90])
    for name, page in PAGES.items()
    for text, command in ((re.sub(_FENCED, "", page, flags=re.M | re.S), rf"`({_COMMAND}[^`]+)`"),
                          ("".join(re.findall(_FENCED, page, re.M | re.S)), rf"^[ $]*({_COMMAND}[^#\n]+)"))
    for words in (each.replace("\n", " ").strip() for each in re.findall(command, text, re.M))
]  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_every_file_of_the_docs_is_read(block: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(block, "utf-8")
    document = read_yaml(file)
    if "groups" in document.data:
        assert checked(CalibrationSpec, document).groups
    elif "factors" in document.data:
        assert read_matrix(file) if "repeats" in document.data else bc.read_variants(file)
    elif {"label_tables", "alerts"} & document.data.keys():
        assert read_catalogue(str(file)).metrics
    else:
        (whole,) = re.findall(r"^```yaml\n(.*?)^```$", PAGES["README.md"], re.M | re.S)
        file.write_text(whole, "utf-8")
        file.write_text(yaml_text(read_yaml(file).data | document.data), "utf-8")
        assert bc.read_params(file).tests


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_of_the_docs_is_understood(words: str) -> None:
    program, *arguments = shlex.split(words.partition(" > ")[0].replace("python -m ", ""))
    if program == "buildcompare":
        command: Any = typer.main.get_command(app)
        name, *arguments = arguments
        if name != "--help" and command.commands[name] and arguments:  # a name alone stands for its command
            command.commands[name].make_context(name, arguments)
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        for each in arguments:
            key, equals, _ = each.partition("=")
            assert re.search(rf"^{key} \?=" if equals else rf"^{key}:.* ## ", makefile, re.M), each
    else:
        cells = json.loads((ROOT / arguments[0]).read_text("utf-8"))["cells"]
        given = [arguments[i + 1] for i, each in enumerate(arguments) if each == "-p"]
        (parameters,) = ("".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", []))
        assert all(re.search(rf"^{name} = ", parameters, re.M) for name in given)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(
    project: Path, tmp_path: Path, requests_of: Callable[..., list[str]]
) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "statistics", "api", "gallery"):
        assert all(address.startswith("file://") for address in requests_of(tmp_path / f"{page}.html")), page


def test_worked_changes_apply_and_touch_few_files(project: Path) -> None:
    changes = re.findall(r"^```diff\n(.*?)^```$", (project / "docs/extending.md").read_text("utf-8"), re.M | re.S)
    assert len(changes) == 3
    for change in changes:
        files = re.findall(r"^\+\+\+ b/(.+)$", change, re.M)
        assert len(files) <= 4
        done = subprocess.run(
            ["git", "apply", "--check", "--verbose", "-"],
            cwd=project, input=change, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_what_holds_a_fault_is_there(project: Path) -> None:
    page, rows = ((project / f"docs/{name}.md").read_text("utf-8") for name in ("trust", "input-faults"))
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(tests) > 20
    for file, name in tests:
        assert f"\ndef {name}(" in (project / file).read_text("utf-8"), f"{file}::{name}"
    named = re.findall(r'row "([^"]+)"', page)
    assert len(named) > 15
    for row in named:
        assert f"| {row} |" in rows, row
    for file in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", page):
        assert (project / file).is_file(), file
