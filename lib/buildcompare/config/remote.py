"""Files on any file system that fsspec knows: ``file://``, ``memory://``, ``s3://`` (with s3fs), ``gs://`` and others.

What is read is copied into a folder of this process first; a report is made here and copied as a whole. Credentials are
those of the file system's own library, from the environment or its files; an address never holds them.
"""

import atexit
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

from buildcompare.config.errors import InputError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")


def is_remote(path: str | Path) -> bool:
    """Whether it is an address such as ``s3://bucket/run.parquet``, not the path of a local file."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def fetched(address: str) -> Path:
    """A local copy of a file, as it is now; a path where nothing is when there is no such file."""
    system, path = _system(address)
    copy = _copies() / sha256(address.encode()).hexdigest()[:16] / path.rpartition("/")[2]
    copy.parent.mkdir(exist_ok=True)
    with _said(address, "a file that can be read"):
        if not system.isfile(path):
            copy.unlink(missing_ok=True)
        elif not copy.exists() or system.ukey(path) != (copy.parent / ".key").read_text("utf-8"):
            key = system.ukey(path)
            system.get_file(path, str(copy))
            (copy.parent / ".key").write_text(key, "utf-8")
    return copy


@contextlib.contextmanager
def copied_back(address: str) -> Iterator[Path]:
    """A local copy of a folder, which takes the folder's place when the block ends without an error.

    Unlike a folder here it is not replaced at once: its files are, one after the other, results.json the last.
    """
    system, path = _system(address)
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place, path.rstrip("/").rpartition("/")[2])
        with _said(address, "a folder that can be read"):
            there = {each.removeprefix(path).strip("/"): each for each in system.find(path)}
            for name, each in there.items():
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                system.get_file(each, str(here / name))
        yield here
        with _said(address, "a folder that can be written"):
            made = [str(file.relative_to(here)) for file in here.rglob("*") if file.is_file()]
            for name in sorted(made, key=lambda name: name == "results.json"):
                target = f"{path.rstrip('/')}/{name}"
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
                system.put_file(str(here / name), target)
            for name in there.keys() - {*made}:
                system.rm_file(there[name])


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    if re.match(r"[^/]*//[^/]*@", address):
        expected = "an address without credentials: they come from the environment"
        raise InputError(file=re.sub(r"//[^/]*@", "//***@", address), key=None, expected=expected, found="some")
    with _said(address, "an address that fsspec knows"):
        import fsspec  # late: hardly anybody needs it

        system, path = fsspec.core.url_to_fs(address)
        return system, str(path)


@contextlib.contextmanager
def _said(address: str, expected: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each file system has faults of its own
        found = f"{type(error).__name__}: {error}"
        raise InputError(file=address, key=None, expected=expected, found=found) from None


@cache
def _copies() -> Path:
    """The folder of this process for what it fetched."""
    folder = Path(tempfile.mkdtemp(prefix="buildcompare-"))
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=1)  # a forked process does not run `atexit`
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
