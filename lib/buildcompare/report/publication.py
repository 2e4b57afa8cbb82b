"""Put the files of a report in place, all or none, by renaming a temporary folder."""

import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from buildcompare.comparison.artefacts import FOLDER as ARTEFACTS
from buildcompare.config.errors import InputError
from buildcompare.config.kinds import kind_of_results, kinds
from buildcompare.config.project import locked, own_folder, root, write_files, writing
from buildcompare.results import Results, dumps

RESULTS, HTML, README, NOTEBOOK, JUNIT = "results.json", "report.html", "README.md", "comparison.ipynb", "junit.xml"
FOLDERS = {
    "graphs": re.compile(r"(?:.+_0_.+|(?:contrasts|interaction|heat_map).*)\.(?:svg|png)"),
    "images": re.compile(r"[0-9a-f]{8}\.(png|jpeg|gif|webp)"),
    "tables": re.compile(r"[a-z_]+\.csv"),
}
"""Patterns of the files that a report makes, by folder."""
MADE = frozenset({RESULTS, HTML, README, NOTEBOOK, JUNIT, "graphs", "tables"})
"""Names of the files and folders in the report of a comparison."""
OLD, NEW = "old", "new"
"""Folder names of the old and the new report while the new one replaces the old."""


def reports() -> Path:
    """Return the folder of all reports."""
    return root() / "reports"


def notebook_name(results: Results) -> str:
    """Return the name of the executed notebook in the report's folder."""
    kind = kind_of_results(results)
    return kind.notebook if kind else NOTEBOOK


def save_results(results: Results) -> str:
    """Save results.json of an interactive notebook, unless its folder holds a published report; return a message."""
    folder = reports() / results.comparison
    if (folder / HTML).exists():
        return f"{folder} holds a published report and was left as it is; `make report` publishes anew"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent):
        write_files({folder / RESULTS: dumps(results)})
    return f"saved {folder / RESULTS}"


def whole(folder: Path, made_from: str) -> Results | None:
    """Read the results of the report in `folder`; None if it is incomplete or its input hash is not `made_from`."""
    try:
        results = Results.model_validate_json((folder / RESULTS).read_bytes())
    except (OSError, ValueError):
        return None
    notebook = notebook_name(results)
    there = all((folder / name).exists() for name in (MADE - {"graphs", NOTEBOOK}) | {notebook})
    there = there and ("](graphs/" not in (folder / README).read_text("utf-8") or (folder / "graphs").is_dir())
    return results if there and results.provenance.run.get("inputs_sha256") == made_from else None


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Make a new folder, and replace `folder` by it when the block ends without an error.

    The user's files in `folder` are kept. An :class:`InputError` is raised if `folder` cannot be made, is no folder,
    or has files but no report.
    """
    with contextlib.ExitStack() as stack:
        with writing(folder, "output", "a folder that can be written"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.parent):
                _tidy_up(folder)
                _refuse_others(folder)
                # The new report is made in a subfolder, so that no listing takes it for a report.
                place = stack.enter_context(own_folder(folder.parent, f".{folder.name}.", ".making"))
        Path(place, NEW).mkdir()
        yield place / NEW
        with locked(folder.parent):
            _put_in_place(place, folder)


def _refuse_others(folder: Path) -> None:
    """Raise an :class:`InputError` if `folder` is no folder, or has files but no report."""
    fault = functools.partial(InputError, file=folder, key="output")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise fault(expected="a folder", found="something else")
    names = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    results: object = None
    with contextlib.suppress(OSError, ValueError):
        results = json.loads((folder / RESULTS).read_text("utf-8"))
    is_report = isinstance(results, dict) and {"schema_version", "comparison", "complete"} <= results.keys()
    if names and not is_report:
        expected = "a new or empty folder, or one that holds a report"
        raise fault(expected=expected, found=f"other files, such as {names[0]}")


def _put_in_place(place: Path, folder: Path) -> None:
    """Put the new report in place by two renames; if the process is killed in between, `_tidy_up` undoes the first."""
    old, new = place / OLD, place / NEW
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise
    _take_over(old, folder)


def _take_over(old: Path, folder: Path) -> None:
    """Move the user's files from an old report into the new one, and remove the old one."""
    for _ in range(3):  # three attempts, because programs may save files in `old` meanwhile
        for entry in _others(old):  # a rename keeps links, pipes and large files intact
            if not os.path.lexists(target := folder / entry.relative_to(old)):
                target.parent.mkdir(exist_ok=True)
                entry.rename(target)
        for name in _ours():
            shutil.rmtree(old / name, ignore_errors=True)  # for folders; `unlink` removes files
            with contextlib.suppress(OSError):
                (old / name).unlink()
        with contextlib.suppress(OSError):
            old.rmdir()


def _others(folder: Path) -> list[Path]:
    """List the user's files in a report's folder."""
    if not folder.is_dir():
        return []
    ours = _ours()
    others = [each for each in folder.iterdir() if each.name not in ours]
    for name, made in FOLDERS.items():
        if not (folder / name).is_symlink():
            others += [each for each in (folder / name).glob("*") if not made.fullmatch(each.name)]
    return others


def _ours() -> set[str]:
    """Return the names that reports of any kind use in their folder."""
    return {*MADE, *(kind.notebook for kind in kinds()), *FOLDERS, ARTEFACTS}


def _tidy_up(folder: Path) -> None:
    """Remove leftovers of a killed process beside `folder`, and put the old report back if there is no new one."""
    left = re.compile(re.escape(f".{folder.name}.") + r"[^.]+\.making")
    for place in folder.parent.iterdir():
        if left.fullmatch(place.name):
            with contextlib.suppress(FileNotFoundError), locked(place, wait=False) as free:
                if free:
                    if (place / OLD).is_dir():
                        _take_over(place / OLD, folder) if folder.exists() else (place / OLD).rename(folder)
                    shutil.rmtree(place, ignore_errors=True)
