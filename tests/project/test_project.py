"""The plumbing: one set of packages in three files, a house in order, nothing of one machine in git."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import golden
from buildcompare.config.project import commit
from buildcompare.recordings import cache

pytest_plugins = ["pytester"]


# ---- Which checkout a report was made from --------------------------------------------------------------------------


def test_the_commit_is_that_of_the_project_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    assert commit() is None, "no checkout"
    git("init", "--quiet")
    assert commit() is None, "no commit yet"
    (tmp_path / "kept").write_text("one")
    git("add", "kept")
    git("commit", "--quiet", "-m", "one")
    (tmp_path / "new").write_text("not tracked")
    assert commit() == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "kept").write_text("two")
    assert commit() == git("rev-parse", "--short=12", "HEAD") + " with changes"
    (tmp_path / "inside").mkdir()
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path / "inside"))
    assert commit() is None, "a folder in somebody else's checkout"
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None, "no git"


# ---- The same packages everywhere -----------------------------------------------------------------------------------


def named(requirements: list[str]) -> dict[str, str]:
    parsed = [Requirement(line) for line in requirements]
    return {canonicalize_name(each.name): str(each.specifier) for each in parsed}


@pytest.fixture(scope="module")
def declared(project: Path) -> dict[str, str]:
    """What pyproject.toml asks for to run and to test."""
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return named(table["dependencies"] + table["optional-dependencies"]["dev"])


@pytest.fixture(scope="module")
def locked(project: Path) -> dict[str, str]:
    """Package -> version in requirements.lock."""
    text = (project / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ \\]+)", text, flags=re.MULTILINE)
    assert len(dict(pins)) == len(pins), "one version of a package for every Python"
    return {canonicalize_name(name): version for name, version in pins}


def test_environment_yml_asks_for_what_pyproject_asks_for(project: Path, declared: dict[str, str]) -> None:
    environment = yaml.safe_load((project / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == "buildcompare"
    assert environment["channels"][0] == "conda-forge"
    conda = [line for line in environment["dependencies"] if isinstance(line, str)]
    [from_pip] = [line["pip"] for line in environment["dependencies"] if isinstance(line, dict)]
    assert "python=3.12" in conda
    assert "pip" in conda
    packages = [line for line in conda if line not in ("python=3.12", "pip")]
    assert {"prometheus-api-client", "playwright", "axe-playwright-python"} == set(named(from_pip))
    assert named(packages + from_pip) == declared


def test_lock_holds_everything_that_pyproject_asks_for(declared: dict[str, str], locked: dict[str, str]) -> None:
    for name, specifier in declared.items():
        assert name in locked, f"{name} is missing: run `make lock`"
        assert Requirement(f"{name}{specifier}").specifier.contains(locked[name]), f"{name}: run `make lock`"


NOT_IMPORTED = {
    "ipykernel": "the kernel of the notebooks",
    "ipywidgets": "rich's progress in a notebook",
    "jupyterlab": "make lab",
    "mypy": "make lint",
    "nbstripout": "make format",
    "pandas-stubs": "types for mypy",
    "pytest-cov": "--cov",
    "pytest-xdist": "-n",
    "ruff": "make lint",
    "setuptools": "the build",
    "types-pyyaml": "types for mypy",
}
"""Packages that are used without an import, and what for."""


def test_every_package_that_pyproject_asks_for_is_used(project: Path, declared: dict[str, str]) -> None:
    imported = {
        name.split(".")[0]
        for folder in ("lib", "tests", "benchmarks", "docs")
        for file in (project / folder).rglob("*.py")
        for name in re.findall(r"^ *(?:import|from) ([\w.]+)", file.read_text("utf-8"), flags=re.MULTILINE)
    }
    modules: dict[str, set[str]] = {}
    for module, packages in importlib.metadata.packages_distributions().items():
        for package in packages:
            modules.setdefault(canonicalize_name(package), set()).add(module)
    unused = {name for name in declared if not modules.get(name, set()) & imported}
    assert unused == NOT_IMPORTED.keys()


def test_nothing_optional_is_offered_that_is_not_there(project: Path) -> None:
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(table["optional-dependencies"]) == {"dev"}


def test_lock_is_pinned_by_hashes_and_names_no_place(project: Path, locked: dict[str, str]) -> None:
    text = (project / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) == len(locked)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert not re.search(r"://|--(extra-)?index-url|--find-links|-e |\bfile:|(^|\s)/", text)


def test_lock_is_for_every_python_that_pyproject_allows(project: Path) -> None:
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert table["project"]["requires-python"] == ">=3.11"
    assert table["tool"]["mypy"]["python_version"] == "3.11"
    assert table["tool"]["ruff"]["target-version"] == "py311"
    assert "--python-version 3.11" in (project / "Makefile").read_text(encoding="utf-8")


# ---- The house ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rooms(project: Path) -> dict[str, int]:
    """Each module and package of the library -> its row in CONTRIBUTING.md's table."""
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("| room |") : text.index("Notebooks are the face of it")]
    there = [path for path in (project / "lib/buildcompare").iterdir() if path.name != "__init__.py"]
    found: dict[str, int] = {}
    for row, line in enumerate(table.strip().splitlines()[2:]):
        for pattern in re.findall(r"`([^`]+)`", line.split("|")[1]):
            named = {path.stem for path in there if path.match(pattern.rstrip("/"))} - {*found}
            assert named, f"{pattern} of CONTRIBUTING.md is not there"
            found |= dict.fromkeys(named, row)
    return found


def test_contributing_names_every_room(project: Path, rooms: dict[str, int]) -> None:
    library = project / "lib/buildcompare"
    assert {path.stem for path in library.iterdir() if path.stem not in ("__init__", "__pycache__")} == {*rooms}


def test_a_room_imports_only_from_rooms_before_it(project: Path, rooms: dict[str, int]) -> None:
    library = project / "lib/buildcompare"
    backwards, seen = [], 0
    for file in sorted(library.rglob("*.py")):
        room = file.relative_to(library).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("buildcompare"):
                continue
            inner = str(node.module).split(".")[1:2] or [name.name for name in node.names]
            seen += len(inner)
            backwards += [f"{file.name} imports {other}" for other in inner if rooms[other] > rooms[room]]
    assert backwards == []
    assert seen > 300


# ---- What git sees --------------------------------------------------------------------------------------------------


def git(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-c", f"core.excludesFile={os.devnull}", *arguments],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tracked(project: Path) -> list[Path]:
    """The files that are in git, or would be after `git add`."""
    listed = git(project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [file for name in listed.stdout.split("\0") if name and (file := project / name).is_file()]


@pytest.mark.parametrize(
    "path",
    [
        "lib/buildcompare/new_module.py",
        "lib/buildcompare/report/templates/page.j2",
        *[f"data/recordings/{name}/mysql_bounded/base.parquet" for name in golden.BUNDLED],
        "data/history/mattermost/v10.4.0-rc1.json",
        "data/calibration/mattermost.json",
        "params/metrics/new.yaml",
        "notebooks/new.ipynb",
        "requirements.lock",
    ],
)
def test_git_sees_the_projects_own_files(project: Path, path: str) -> None:
    ignored = git(project, "check-ignore", "--no-index", "--verbose", path)
    assert ignored.returncode == 1, f"hidden by {ignored.stdout or ignored.stderr}"


@pytest.mark.parametrize(
    "path",
    [
        "reports/v10.4.0-rc1/report.html",
        "runs/base.csv",
        "out.ipynb",
        cache.Slot("mine", "postgresql_bounded", "base", 1).path,
        "data/calibration/.mattermost.json.12.part",
        "data/history/mattermost/.lock",
        ".venv/bin/python",
        ".coverage",
        ".coverage.host.1234.abcdef",
        "lib/buildcompare/__pycache__/x.cpython-312.pyc",
        "lib/buildcompare.egg-info/PKG-INFO",
        "notebooks/.ipynb_checkpoints/comparison-checkpoint.ipynb",
        ".mypy_cache/x",
    ],
)
def test_git_does_not_see_what_is_made(project: Path, path: str) -> None:
    assert git(project, "check-ignore", "--no-index", "--quiet", path).returncode == 0


def test_nothing_tracked_names_a_registry_or_this_machine(project: Path, tracked: list[Path]) -> None:
    # Put together here, so that this file does not hold what it looks for.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "crates" + ".io/api", "registry.npm" + "js.org"]
    folders = [r"(?<![\w.:/-])/" + folder + "/" for folder in ("work", "root")]
    place = [re.escape(str(project))] if len(project.parts) > 2 else []
    forbidden = re.compile("|".join([*map(re.escape, hosts), *folders, *place]))
    found = [
        f"{file.relative_to(project)}: {match.group()}"
        for file in tracked
        if (match := forbidden.search(file.read_bytes().decode("utf-8", errors="replace")))
    ]
    assert found == []


def test_no_registry_lock_of_uv_is_tracked(tracked: list[Path]) -> None:
    assert "uv.lock" not in {file.name for file in tracked}


# ---- The tests' own rules -------------------------------------------------------------------------------------------

SKIPS = """
import pytest

def test_skips():
    pytest.skip("no such tool here")

@pytest.mark.skipif(True, reason="marked so")
def test_marked():
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    assert False

def test_passes():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite under this project's conftest."""
    monkeypatch.delenv("BUILDCOMPARE_REQUIRE_ALL", raising=False)
    pytester.makeconftest((project / "tests" / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_skips=SKIPS, test_module="import pytest\npytest.importorskip('no_such_module')\n")
    return pytester


def test_a_skip_is_a_skip_by_default(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess().assert_outcomes(passed=1, skipped=3, xfailed=1)


def test_a_skip_is_a_failure_where_every_test_is_required(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDCOMPARE_REQUIRE_ALL", "1")
    result = suite.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, failed=1, errors=2, xfailed=1)  # a mark skips in set-up: an error there
    assert result.ret != 0
    text = result.stdout.str()
    assert "no such tool here" in text
    assert "marked so" in text
    assert "no_such_module" in text


def test_missing_real_data_is_named(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDCOMPARE_REAL", "/no/such/folder")
    suite.makepyfile(test_skips="def test_real(real):\n    pass\n")
    result = suite.runpytest_subprocess("-rs", "test_skips.py")
    result.assert_outcomes(skipped=1)
    assert "/no/such/folder is not a folder" in result.stdout.str()


def test_the_browsers_log_shows_every_request(tmp_path: Path, requests_of: Callable[..., list[str]]) -> None:
    quiet = tmp_path / "quiet.html"
    quiet.write_text("<!doctype html><title>x</title><img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>")
    assert requests_of(quiet) == []
    loud = tmp_path / "loud page.html"
    loud.write_text("<!doctype html><link rel=stylesheet href=x.css><script>fetch('http://127.0.0.1:9/y')</script>")
    assert sorted(requests_of(loud)) == [(tmp_path / "x.css").as_uri(), "http://127.0.0.1:9/y"]
    assert requests_of(loud, javascript=False) == [(tmp_path / "x.css").as_uri()]
