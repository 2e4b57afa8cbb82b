"""Put the files of a report in place, whole or not at all: made beside, then moved."""

import contextlib
import ctypes
import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from buildcompare.comparison.artefacts import FOLDER as ARTEFACTS
from buildcompare.config.errors import InputError
from buildcompare.config.project import locked, own_folder, root, write_files, writing
from buildcompare.results import Results, dumps

RESULTS, HTML, README, NOTEBOOK, JUNIT = "results.json", "report.html", "README.md", "comparison.ipynb", "junit.xml"
VARIANTS = "variants.ipynb"
FOLDERS = {
    "graphs": re.compile(r".+_0_.+\.png|(?:contrasts|interaction|heat_map).*\.png"),
    "images": re.compile(r"[0-9a-f]{8}\.(png|jpeg|gif|webp)"),
    "tables": re.compile(r"[a-z_]+\.csv"),
}
"""By folder, the names of the files that a report makes there."""
MADE = frozenset({RESULTS, HTML, README, NOTEBOOK, JUNIT, "graphs", "tables"})
"""The files of every report; anything else in its folder but its artefacts is somebody's and is kept."""
OLD, NEW = "old", "new"
"""Names of both reports while one takes the other's place."""


def reports() -> Path:
    """The folder of all reports."""
    return root() / "reports"


def save_results(results: Results) -> str:
    """Save results.json of a notebook that is run by hand, unless a report was published there, and say where."""
    folder = reports() / results.comparison
    if (folder / HTML).exists():
        return f"{folder} holds a published report and was left as it is; `make report` publishes anew"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent):
        write_files({folder / RESULTS: dumps(results)})
    return f"saved {folder / RESULTS}"


def whole(folder: Path, made_from: str) -> Results | None:
    """The results of the report in `folder`, where all of it is there and was made from these inputs."""
    try:
        results = Results.model_validate_json((folder / RESULTS).read_bytes())
    except (OSError, ValueError):
        return None
    notebook = VARIANTS if results.variants else NOTEBOOK
    there = all((folder / name).exists() for name in (MADE - {"graphs", NOTEBOOK}) | {notebook})
    there = there and ("](graphs/" not in (folder / README).read_text("utf-8") or (folder / "graphs").is_dir())
    return results if there and results.provenance.run.get("inputs_sha256") == made_from else None


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place when the block ends without an error.

    What `folder` held and no report makes is carried over. An :class:`InputError` where `folder` cannot be made, is no
    folder, or holds files but no report.
    """
    with contextlib.ExitStack() as stack:
        with writing(folder, "output", "a folder that can be written"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.parent):
                _tidy_up(folder)
                _refuse_others(folder)
                # A level down, where nobody takes it for a report among the reports.
                place = stack.enter_context(own_folder(folder.parent, f".{folder.name}.", ".making"))
        Path(place, NEW).mkdir()
        yield place / NEW
        with locked(folder.parent):
            _put_in_place(place, folder)


def _refuse_others(folder: Path) -> None:
    """Refuse a place that is no folder, or one that holds files but no report."""
    fault = functools.partial(InputError, file=folder, key="output")
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


def _put_in_place(place: Path, folder: Path) -> None:
    """Let the new report take the place of what stood in `folder`, of which all that no report makes is kept."""
    old, new = place / OLD, place / NEW
    if folder.exists() and new.exists():
        new.rename(old)  # what a killed run leaves under this name is removed, but for what no report makes
        if _exchanged(old, folder):
            _empty(old, folder)
            return
        old.rename(new)
    moved: list[tuple[Path, Path]] = []
    try:
        if folder.exists():
            folder.rename(old)
        for entry in _others(old):  # by renaming: links, pipes and large files stay what they are
            target = new / entry.relative_to(old)
            if not os.path.lexists(target):
                target.parent.mkdir(exist_ok=True)
                entry.rename(target)
                moved.append((target, entry))
        new.rename(folder)
    except BaseException:
        for target, entry in reversed(moved):
            target.rename(entry)
        if old.exists():
            old.rename(folder)
        raise
    _empty(old, folder)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change places in one step, so that one always stands there; False where the system cannot."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return exchange is not None and exchange(here, os.fsencode(one), here, os.fsencode(other), both) == 0


def _empty(old: Path, folder: Path) -> None:
    """Remove a report that was replaced; what somebody saves in it until its folder is gone comes into `folder`."""
    for _ in range(3):  # a folder that is not empty cannot be removed: then something came in between
        for entry in _others(old):
            if not os.path.lexists(target := folder / entry.relative_to(old)):
                target.parent.mkdir(exist_ok=True)
                entry.rename(target)
        made = (each for name in FOLDERS for each in _inside(old / name) if FOLDERS[name].fullmatch(each.name))
        for entry in [*made, *(old / name for name in (*MADE, VARIANTS))]:
            with contextlib.suppress(OSError):  # a folder too
                entry.unlink()
        shutil.rmtree(old / ARTEFACTS, ignore_errors=True)
        for emptied in (*(old / name for name in FOLDERS), old):
            with contextlib.suppress(OSError):
                emptied.rmdir()


def _others(folder: Path) -> list[Path]:
    """What somebody put into a report's folder, or among its graphs, images and tables."""
    if not folder.is_dir():
        return []
    own = {*MADE, VARIANTS, *FOLDERS, ARTEFACTS}
    return [
        *(each for each in folder.iterdir() if each.name not in own),
        *(each for name, made in FOLDERS.items() for each in _inside(folder / name) if not made.fullmatch(each.name)),
    ]


def _inside(folder: Path) -> list[Path]:
    return [] if folder.is_symlink() else [*folder.glob("*")]


def _tidy_up(folder: Path) -> None:
    """Remove what a killed process left beside `folder`, and finish what it had begun to put in place."""
    left = re.compile(re.escape(f".{folder.name}.") + r"[^.]+\.making")
    for place in folder.parent.iterdir():
        if left.fullmatch(place.name):
            with contextlib.suppress(FileNotFoundError), locked(place, wait=False) as free:  # its maker may be done now
                if free:
                    if (place / OLD).is_dir():
                        _empty(place / OLD, folder) if folder.exists() else _put_in_place(place, folder)
                    shutil.rmtree(place, ignore_errors=True)
