"""Rules of the repository: one set of packages, locked by hashes, one-way imports, nothing of one machine in git."""

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import yaml_data

pytest_plugins = ["pytester"]


def named(requirements: list[str]) -> dict[str, str]:
    parsed = [Requirement(line) for line in requirements]
    return {canonicalize_name(each.name): str(each.specifier) for each in parsed}


@pytest.fixture(scope="module")
def declared(project: Path) -> dict[str, str]:
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = table["optional-dependencies"]
    return named(table["dependencies"] + extras["lab"] + extras["dev"])


def pins_of(lock: Path) -> dict[str, str]:
    text = lock.read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[a-z0-9,-]+\])?==([^ \\]+)", text, flags=re.MULTILINE)
    assert len(dict(pins)) == len(pins), "one version of a package for every Python"
    return {canonicalize_name(name): version for name, version in pins}


def test_conda_installs_the_locked_packages_by_their_hashes(project: Path) -> None:
    environment = yaml_data((project / "environment.yml").read_text(encoding="utf-8"))
    assert (environment["name"], environment["channels"]) == ("buildcompare", ["conda-forge", "nodefaults"])
    from_pip = {"pip": ["--require-hashes", "-r requirements-dev.lock"]}
    assert environment["dependencies"] == ["python=3.12", "pip", from_pip]


def test_locks_pin_everything_that_pyproject_asks_for(project: Path, declared: dict[str, str]) -> None:
    to_report, to_develop = pins_of(project / "requirements.lock"), pins_of(project / "requirements-dev.lock")
    assert to_report.items() <= to_develop.items(), "one version of a package in both: run `make lock`"
    for name, specifier in declared.items():
        assert name in to_develop, f"{name} is missing: run `make lock`"
        assert Requirement(f"{name}{specifier}").specifier.contains(to_develop[name]), f"{name}: run `make lock`"


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "requirements-uv.lock"])
def test_lock_is_pinned_by_hashes_and_names_no_index(project: Path, name: str) -> None:
    text = (project / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) == len(pins_of(project / name)) > 100 * ("uv" not in name)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert not re.search(r"://|--(extra-)?index-url|--find-links|-e |\bfile:|(^|\s)/", text)


def test_entry_points_lead_to_what_is_there(project: Path) -> None:
    stated = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    for group in stated.values():
        for name, value in group.items():
            assert EntryPoint(name, value, "").load() is not None


def test_actions_of_the_workflow_are_pinned_by_commit(project: Path) -> None:
    used = re.findall(r"uses: (\S+)", (project / ".github/workflows/ci.yml").read_text("utf-8"))
    assert len(used) > 1
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), used


def test_no_tracked_file_names_a_registry_or_this_machine(project: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    files = [file for name in listed.stdout.split("\0") if name and (file := project / name).is_file()]
    assert "uv.lock" not in {file.name for file in files}, "it holds addresses of registries"
    # Joined here, so that this file does not contain what it looks for.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "crates" + ".io/api", "registry.npm" + "js.org"]
    folders = [r"(?<![\w.:/-])/" + folder + "/" for folder in ("work", "root")]
    place = [re.escape(str(project))] if len(project.parts) > 2 else []
    forbidden = re.compile("|".join([*map(re.escape, hosts), *folders, *place]))
    found = [
        f"{file.relative_to(project)}: {match.group()}"
        for file in files
        if (match := forbidden.search(file.read_bytes().decode("utf-8", errors="replace")))
    ]
    assert found == []


FLOORS = (
    "results", "config", "recordings", "text", "stats", "load", "labels", "metrics", "profiles", "validity",
    "calibration", "findings", "history", "comparison", "figures", "report",
    "api", "__init__", "commandline", "__main__",
)  # fmt: skip
"""Rooms from the ground up; a room imports only from its own floor and the floors below (CONTRIBUTING.md)."""
FLOOR = {room: floor for floor, room in enumerate(FLOORS)}


def room_of(module: str) -> str:
    inner = module.removeprefix("buildcompare").removeprefix(".")
    return (inner or "__init__").split(".")[0]


@cache
def imports(project: Path) -> list[tuple[str, str]]:
    """(importing, imported) modules for every import in lib/, in functions and for the type checker too."""
    between = []
    library = project / "lib"
    modules = {
        ".".join(file.relative_to(library).with_suffix("").parts).removesuffix(".__init__"): file
        for file in library.rglob("*.py")
    }
    for module, file in modules.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: relative import"
                names = [f"{node.module}.{each.name}" for each in node.names]
                found = {name if name in modules else str(node.module) for name in names}
            elif isinstance(node, ast.Import):
                found = {each.name for each in node.names}
            else:
                continue
            between += [(module, name) for name in found & modules.keys()]
    return between


def test_a_room_imports_only_from_floors_below(project: Path) -> None:
    between = [pair for pair in imports(project) if all(name.startswith("buildcompare") for name in pair)]
    upwards = [
        f"{importing} imports {imported}"
        for importing, imported in between
        if FLOOR[room_of(imported)] > FLOOR[room_of(importing)]
    ]
    assert upwards == []
    assert len(between) > 100


def test_the_simulator_imports_only_what_writes_recordings(project: Path) -> None:
    outside = [pair for pair in imports(project) if pair[0].startswith("loadsim") and "buildcompare" in pair[1]]
    assert {room_of(imported) for _, imported in outside} <= {"commandline", "config", "recordings"}


@pytest.mark.parametrize(
    ("package", "users"),
    [
        ("loadsim", set()), ("labmatrix", set()), ("loadfiles", {"labmatrix.compare"}), ("loadcluster", set()),
        ("investigation", {"loadwatch.show"}), ("loadexport", {"labmatrix.export"}), ("loadinit", set()),
        ("loadindex", set()),
        ("loadwatch", set()), ("loadcalibrate", set()),
    ],
)  # fmt: skip
def test_at_most_one_module_imports_another_package(project: Path, package: str, users: set[str]) -> None:
    assert {a for a, b in imports(project) if b.startswith(package) and not a.startswith(package)} == users


def test_modules_do_not_import_each_other_in_a_circle(project: Path) -> None:
    graph: dict[str, set[str]] = {}
    for importing, imported in imports(project):
        if importing != imported:
            graph.setdefault(importing, set()).add(imported)
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_rooms_stay_small(project: Path) -> None:
    library = project / "lib/buildcompare"
    loose = {file.name for file in library.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(loose) <= 3
    sizes = {folder.name: len([*folder.rglob("*.py")]) for folder in library.iterdir() if folder.is_dir()}
    assert {name: size for name, size in sizes.items() if size > 15} == {}


def test_no_test_imports_another_test(project: Path) -> None:
    files = [*(project / "tests").rglob("*.py")]
    tests = {file.stem for file in files if file.stem.startswith("test_")}
    found = [
        f"{file.name} imports {name}"
        for file in files
        for name in re.findall(r"^ *(?:import|from) (\w+)", file.read_text("utf-8"), flags=re.MULTILINE)
        if name in tests
    ]
    assert found == []


SKIPS = """
import pytest

def test_skips():
    pytest.skip("no such tool here")

@pytest.mark.skipif(True, reason="marked so")
def test_marked():
    pass

def test_passes():
    pass
"""


@pytest.mark.slow
def test_a_skip_is_a_failure_where_asked(
    pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDCOMPARE_REQUIRE_ALL", "1")
    monkeypatch.setenv("PYTHONPATH", str(project / "tests"), prepend=os.pathsep)
    pytester.makeconftest((project / "tests/conftest.py").read_text("utf-8"))
    pytester.makepyfile(test_skips=SKIPS, test_module="import pytest\npytest.importorskip('no_such_module')\n")
    pytester.makeini("[pytest]")  # else a folder above may hold settings
    result = pytester.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, failed=1, errors=2)  # a mark skips in set-up: an error there
    assert result.ret != 0
    for reason in ("no such tool here", "marked so", "no_such_module"):
        assert reason in result.stdout.str()


def test_the_browsers_log_shows_every_request(tmp_path: Path, requests_of: Callable[..., list[str]]) -> None:
    quiet = tmp_path / "quiet.html"
    quiet.write_text("<!doctype html><title>x</title><img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>")
    assert requests_of(quiet) == []
    loud = tmp_path / "loud page.html"
    loud.write_text("<!doctype html><link rel=stylesheet href=x.css><script>fetch('http://127.0.0.1:9/y')</script>")
    assert sorted(requests_of(loud)) == [(tmp_path / "x.css").as_uri(), "http://127.0.0.1:9/y"]
    assert requests_of(loud, javascript=False) == [(tmp_path / "x.css").as_uri()]
