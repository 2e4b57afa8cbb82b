"""Put the files of a report in place, whole or not at all: made beside, then moved."""

import contextlib
import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buildcompare.config.errors import InputError
from buildcompare.config.project import root, write_files, writing
from buildcompare.recordings.artefacts import FOLDER as ARTEFACTS
from buildcompare.results import Results, dumps

RESULTS, HTML, README, NOTEBOOK, JUNIT = "results.json", "report.html", "README.md", "comparison.ipynb", "junit.xml"
FOLDERS = {
    "graphs": re.compile(r".+_0_.+\.png"),
    "images": re.compile(r"[0-9a-f]{8}\.(png|jpeg|gif|webp)"),
    "tables": re.compile(r"[a-z_]+\.csv"),
}
"""By folder, the names of the files that a report makes there."""
MADE = frozenset({RESULTS, HTML, README, NOTEBOOK, JUNIT, "graphs", "tables"})
"""The files of every report; anything else in its folder but its artefacts is somebody's and is kept."""


def reports() -> Path:
    """The folder of all reports."""
    return root() / "reports"


def save_results(results: Results) -> str:
    """Save results.json of a notebook that is run by hand, unless a report was published there, and say where."""
    folder = reports() / results.comparison
    if (folder / HTML).exists():
        return f"{folder} holds a published report and was left as it is; `make report` publishes anew"
    write_files({folder / RESULTS: dumps(results)})
    return f"saved {folder / RESULTS}"


def whole(folder: Path, made_from: str) -> Results | None:
    """The results of the report in `folder`, where all of it is there and was made from these inputs."""
    try:
        results = Results.model_validate_json((folder / RESULTS).read_bytes())
    except (OSError, ValueError):
        return None
    there = all((folder / name).is_file() for name in MADE - {"graphs"})
    return results if there and results.provenance.run.get("inputs_sha256") == made_from else None


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place when the block ends without an error.

    What `folder` held and no report makes is carried over. An :class:`InputError` where `folder` cannot be made, is no
    folder, or holds files but no report.
    """
    fault = functools.partial(InputError, file=folder, key="output")
    with writing(folder, "output", "a folder that can be written"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _tidy_up(folder)
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise fault(expected="a folder", found="something else")
        names = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
        try:
            found = json.loads((folder / RESULTS).read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        ours = isinstance(found, dict) and {"schema_version", "comparison", "complete"} <= found.keys()
        if names and not ours:
            expected = "a new or empty folder, or one that holds a report"
            raise fault(expected=expected, found=f"other files, such as {names[0]}")
        staging = _beside(folder, "making")
    with staging as place:
        making = Path(place, folder.name)  # one level down, where nobody takes it for a report among the reports
        making.mkdir()
        yield making
        _put_in_place(making, folder)


def _put_in_place(making: Path, folder: Path) -> None:
    if not folder.exists():
        making.rename(folder)
        return
    for entry in [*folder.iterdir(), *(each for name in FOLDERS for each in (folder / name).glob("*"))]:
        ours = FOLDERS[entry.parent.name].fullmatch(entry.name) if entry.parent != folder else entry.name in MADE
        if not ours and entry.name not in {*FOLDERS, ARTEFACTS}:
            target = making / entry.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(entry, target, symlinks=True) if entry.is_dir() else shutil.copy2(entry, target)
    with _beside(folder, "old") as place:
        old = folder.rename(Path(place, folder.name))
        try:
            making.rename(folder)
        except OSError:
            old.rename(folder)
            raise


def _beside(folder: Path, what: str) -> tempfile.TemporaryDirectory[str]:
    """A new hidden folder beside `folder`, which names the process that made it."""
    prefix = f".{folder.name}.{os.getpid()}."
    return tempfile.TemporaryDirectory(f".{what}", prefix, folder.parent, ignore_cleanup_errors=True)


def _tidy_up(folder: Path) -> None:
    """Remove what a killed process left beside `folder`, and put back a report that it had moved aside."""
    left = re.compile(re.escape(f".{folder.name}.") + r"(\d+)\.[^.]+\.(making|old)")
    for entry in folder.parent.iterdir():
        name = left.fullmatch(entry.name)
        if name and not _is_alive(int(name[1])):
            if name[2] == "old" and (entry / folder.name).is_dir() and not folder.exists():
                (entry / folder.name).rename(folder)
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # else it is somebody else's
    return True
