"""List the files that a report is made from, and hash everything that can change the report."""

import hashlib
import json
import re
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from buildcompare.comparison import artefacts
from buildcompare.comparison.reading import runs_of
from buildcompare.config.catalogue import catalogue_names
from buildcompare.config.errors import InputError
from buildcompare.config.kinds import kind_of_params, kinds
from buildcompare.config.params import Comparison, Reported
from buildcompare.config.project import resolve
from buildcompare.recordings.files import matching

NOTEBOOK = Path("notebooks/comparison.ipynb")
NOT_IN_REPORTS = ("anywidget", "ipywidgets", "jupyterlab")
"""Optional packages that only notebooks in JupyterLab need. The hash `code_sha256` ignores these packages."""


def notebook_of(params: Reported) -> Path:
    """Return the notebook that makes the report."""
    kind = kind_of_params(params)
    return NOTEBOOK.with_name(kind.notebook) if kind else NOTEBOOK


def files_of(params: Reported, *, ledger: bool = True) -> list[str]:
    """List the files from which the report of `params` is made, including cached runs and, by default, the ledger."""
    kind = kind_of_params(params)
    named: list[str | None] = [str(notebook_of(params))]
    metrics = getattr(params, "metrics", None)
    catalogues = [metrics] if metrics else catalogue_names()
    named += [each if each.endswith((".yaml", ".yml")) else f"params/metrics/{each}.yaml" for each in catalogues]
    with suppress(InputError):  # a faulty artefact is reported when the report is made
        named += [each.named for _, files in artefacts.of_runs(params) for each in files]
    if kind:
        named += kind.files(params)
    elif isinstance(params, Comparison):
        named += _files_of_builds(params)
        if ledger and params.history is not None:
            entries = sorted(resolve(params.history, is_folder=True).glob("[!.]*"))
            named += [f"{params.history.rstrip('/')}/{entry.name}" for entry in entries if entry.is_file()]
    return list(dict.fromkeys(path for path in named if path))


def _files_of_builds(params: Comparison) -> list[str | None]:
    named = [params.calibration]
    for slot, run in runs_of(params):
        named += [slot.path] if run.is_pulled else [*matching(run.files), run.labels]
    for profiles in (test.profiles for test in params.tests if test.profiles is not None):
        named += [*profiles.base, *profiles.new]
    return named


def inputs_sha256(params: Reported, **settings: Any) -> str | None:
    """Return a hash of params, `settings`, code and all input files but the ledger; None if a file is missing."""
    asked = {"params": params.model_dump(mode="json"), "settings": settings, "code": code_sha256()}
    made = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    for path in files_of(params, ledger=False):
        if "\0" in path or not (file := resolve(path)).is_file():
            return None
        made.update(f"\n{path} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return made.hexdigest()


@cache
def code_sha256() -> str:
    """Return a hash of the library, of registered kinds and file readers, and of versions of required packages."""
    made, groups = hashlib.sha256(), ("buildcompare.formats", "buildcompare.sources")
    readers = {entry.module.partition(".")[0] for group in groups for entry in metadata.entry_points(group=group)}
    specs = [find_spec(name) for name in sorted(readers)]
    places = [Path(spec.origin) for spec in specs if spec and spec.origin]
    read_by = [place.parent if place.name == "__init__.py" else place for place in places]
    for library in (Path(__file__).parents[1], *(kind.folder for kind in kinds()), *read_by):
        files = library.rglob("*") if library.is_dir() else [library]
        for file in sorted(file for file in files if file.is_file() and file.parent.name != "__pycache__"):
            made.update(f"{file.relative_to(library).as_posix()}\n".encode() + file.read_bytes())
    for asked in metadata.requires("buildcompare") or ():
        name, marker = re.split(r"[^\w.-]", asked, maxsplit=1)[0], asked.partition(";")[2]
        if name not in NOT_IN_REPORTS and not re.search(r"\bextra\b", marker):
            made.update(f"{name} {metadata.version(name)}\n".encode())
    return made.hexdigest()
