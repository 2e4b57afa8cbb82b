"""Read and write files at addresses that fsspec knows: ``file://``, ``memory://``, ``s3://`` (with s3fs), ``gs://``.

Inputs are first copied into a local folder. A report is made in a local folder, then copied. The file system's library
reads credentials from the environment or its own files; an address never contains credentials.
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from multiprocessing import util
from pathlib import Path
from typing import Any

from buildcompare.config.errors import ADDRESSES, BuildcompareError, InputError

_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]+://")
_CREDENTIALS = re.compile(r"://[^/]*(?:@|:(?!\d+(?:/|$)|:|[a-z0-9+.-]*://))|\?")
"""Pattern of a user, a password (also with a slash) or a query in an address; a query may contain tokens."""
_COMPLETES = "junit.xml"
"""Report file that is copied last; a report without this file is incomplete."""
_READ = ("README.md", "results.json", _COMPLETES)
"""Files of an earlier report that a new report reads."""


def is_remote(path: str | Path) -> bool:
    """Test whether `path` is an address, such as ``s3://bucket/run.parquet``, and not the path of a local file."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def fetched(address: str) -> Path:
    """Return the path of an up-to-date copy of a remote file; the path does not exist if the file is missing."""
    system, path = _system(address)
    copy = _copy_of(address)
    with _one_line(address, "a file that can be read"):
        if not system.isfile(path):
            copy.unlink(missing_ok=True)
            return copy
        import fsspec

        settings = {"cache_storage": str(copy.parent), "check_files": True, "same_names": True}
        fsspec.filesystem("filecache", fs=system, **settings).open(path).close()
    return copy


def fetched_folder(address: str) -> Path:
    """Copy the files of the folder at an address, without subfolders and hidden files; return the local folder."""
    system, path = _system(address)
    copy = _copy_of(address)
    ADDRESSES[copy] = address.rstrip("/")
    shutil.rmtree(copy, ignore_errors=True)
    with _one_line(address, "a folder that can be read"), contextlib.suppress(FileNotFoundError):
        files = [row["name"] for row in system.ls(path, detail=True) if row["type"] == "file"]
        names = {name: file for file in files if (name := file.rpartition("/")[2]) and name[0] != "."}
        copy.mkdir(parents=True)
        system.get([*names.values()], [str(copy / name) for name in names])
    return copy


@contextlib.contextmanager
def copied_back(address: str, depth: int = 100) -> Iterator[Path]:
    """Yield a local copy of a report or a folder of reports; copy changes back if the block ends without an error.

    Only the files in `_READ` are copied; other files are placeholders in the copy. With `depth` 1, files of subfolders
    are left out.
    """
    system, path = _system(address)
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place, path.rpartition("/")[2])
        ADDRESSES[here] = address.rstrip("/")
        with _one_line(address, "a folder that can be read"):
            there = {file.removeprefix(path).strip("/"): file for file in system.find(path, maxdepth=depth)}
            for name in there:
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                (here / name).write_text(address)  # placeholder text; if it is overwritten, the file is copied back
            wanted = [name for name in there if name.rpartition("/")[2] in _READ]
            system.get([there[name] for name in wanted], [str(here / name) for name in wanted])
        before = _contents(here)
        yield here
        after = _contents(here)
        changed, gone = {name for name in after if after[name] != before.get(name)}, before.keys() - after.keys()
        last = {_COMPLETES} & after.keys() if changed or gone else set()
        with _one_line(address, "a folder that can be written"):
            for name in {_COMPLETES} & before.keys() if changed or gone else ():
                system.rm_file(there[name])
            for names in (sorted(changed - last), last):
                _put(system, {f"{path}/{name}": here / name for name in names})
            for name in gone - {_COMPLETES}:
                system.rm_file(there[name])


@contextlib.contextmanager
def written(file: str) -> Iterator[Path]:
    """Yield a path to write to. For an address, the path is local; the file is copied if the block ends normally."""
    if not is_remote(file):
        yield Path(file)
        return
    system, path = _system(file)
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        yield (here := Path(place, path.rpartition("/")[2]))
        with _one_line(file, "a file that can be written"):
            _put(system, {path: here})


def _put(system: Any, files: dict[str, Path]) -> None:
    """Copy files to their paths. Make missing folders, but no missing bucket, because its name may be mistyped."""
    for folder in {path.rpartition("/")[0] for path in files}:
        top = folder.partition("/")[0]
        if top and not system.exists(top):
            raise FileNotFoundError(top)
        with contextlib.suppress(Exception):  # libraries raise different errors if the folder exists
            system.makedirs(folder, exist_ok=True)
    system.invalidate_cache()
    system.put([str(file) for file in files.values()], [*files])


def _contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def _system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path on this file system."""
    if _CREDENTIALS.search(address):
        expected = "an address without credentials or a query (set credentials in the environment)"
        shown = re.sub(r"://(?:.*(@)|[^/]*:.*)", r"://***\1", address.partition("?")[0])
        raise InputError(file=shown, key=None, expected=expected, found="one of them")
    with _one_line(address, "an address that fsspec knows"):
        try:
            import fsspec  # imported late: few inputs need it

            system, path = fsspec.core.url_to_fs(address)
        except ImportError as error:
            found = f"none: {error}" if error.name != "fsspec" else "none: install buildcompare[remote]"
            raise InputError(file=address, key=None, expected="the package of this file system", found=found) from None
        system.invalidate_cache()
        return system, str(path).rstrip("/")


@contextlib.contextmanager
def _one_line(address: str, expected: str) -> Iterator[None]:
    """Turn any error of a file system into an InputError."""
    try:
        yield
    except BuildcompareError:
        raise
    except Exception as error:  # file systems raise different errors
        found = f"{type(error).__name__}: {error}"
        raise InputError(file=address, key=None, expected=expected, found=found) from None


def _copy_of(address: str) -> Path:
    address = address.rstrip("/")
    return _copies() / sha256(address.encode()).hexdigest()[:16] / address.rpartition("/")[2]


@cache
def _copies() -> Path:
    """Make the folder for this process's copies of remote files."""
    folder = Path(tempfile.mkdtemp(prefix="buildcompare-"))
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=1)  # `atexit` would not run in a forked process
    return folder
