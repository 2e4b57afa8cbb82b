"""Files on any file system that fsspec knows: ``file://``, ``memory://``, ``s3://`` (with s3fs), ``gs://`` and others.

What is read is copied into a folder of this process first; a report is made here and copied as a whole. Who changes a
ledger keeps others from it by an object with a name of its own: an object store has no locks and cannot rename, and
the number of a process means nothing to another machine. Credentials are those of the file system's own library, from
the environment or its files; an address never holds them.
"""

import atexit
import contextlib
import json
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from multiprocessing import util
from pathlib import Path
from typing import Any
from uuid import uuid4

from buildcompare.config.errors import ADDRESSES, BuildcompareError, InputError, SourceError

_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]+://")
_CREDENTIALS = re.compile(r"://[^/]*(?:@|:(?!\d+(?:/|$)|:|[a-z0-9+.-]*://))|\?")
"""A user, a password (also one with a slash in it), or a query, in which tokens stand."""
LAST = ("README.md", "results.json", "junit.xml")
"""Files of a report that are read before it is made again, and are put last. The very last is removed first: a report
without it is not whole."""
TICKET = ".ticket"
LEASE = 300.0
"""Seconds after which a ticket counts as left behind, by the clock of who waits. Its holder changes nothing once half
of them are over."""


def is_remote(path: str | Path) -> bool:
    """Whether it is an address such as ``s3://bucket/run.parquet``, not the path of a local file."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def fetched(address: str) -> Path:
    """A local copy of a file, as it is now; a path where nothing is when there is no such file."""
    folder, _, name = address.rpartition("/")
    if (in_folder := _copy_of(folder)) in ADDRESSES and (in_folder / name).is_file():
        return in_folder / name
    system, path = _system(address)
    copy = _copy_of(address)
    copy.parent.mkdir(exist_ok=True)
    with _said(address, "a file that can be read"):
        if not system.isfile(path):
            copy.unlink(missing_ok=True)
        elif not copy.exists() or system.ukey(path) != (copy.parent / ".key").read_text("utf-8"):
            key = system.ukey(path)
            system.get_file(path, str(copy))
            (copy.parent / ".key").write_text(key, "utf-8")
    return copy


def fetched_folder(address: str) -> Path:
    """A local copy of the files right in a folder, as they stood together at one moment."""
    system, path = _system(address)
    copy = _copy_of(address)
    ADDRESSES[copy] = address.rstrip("/")
    copy.parent.mkdir(exist_ok=True)
    keys = copy.parent / ".keys"
    known: dict[str, str] = {}
    if keys.exists():
        known = json.loads(keys.read_text("utf-8"))
    else:  # it is of this process alone, or half of one
        shutil.rmtree(copy, ignore_errors=True)
    with _said(address, "a folder that can be read"):
        while (listed := _listed(system, path)) != known:  # until nothing changed while it was copied
            keys.unlink(missing_ok=True)
            copy.mkdir(exist_ok=True)
            for name in known.keys() - listed.keys():
                (copy / name).unlink(missing_ok=True)
            new = [name for name in listed if listed[name] != known.get(name)]
            known = listed
            try:
                system.get([f"{path}/{name}" for name in new], [str(copy / name) for name in new])
            except Exception:
                if _listed(system, path) == listed:
                    raise
                known = {}  # a file went, or changed, meanwhile
        keys.write_text(json.dumps(known), "utf-8")
    return copy


@contextlib.contextmanager
def held(address: str) -> Iterator[Path]:
    """A local copy of the files right in a folder, which others who ask for it likewise cannot change meanwhile.

    What the block changes is changed there when it ends without an error: each file as a whole, removals last.
    """
    system, path = _system(address)
    with _said(address, "a folder that can be written"):
        _make(system, path)
        ticket, until = _ticket(system, path)
    try:
        copy = fetched_folder(address)
        before = _digests(copy)
        (copy.parent / ".keys").unlink()  # from now on it may differ from what is there
        yield copy
        now = _digests(copy)
        with _said(address, "a folder that can be written"):
            for change in ("put", "remove"):
                if time.monotonic() > until or ticket not in _listed(system, path, TICKET):
                    seen = f"more than {LEASE / 2:.0f} s; others may write now"
                    raise SourceError(url=address, expected="a change that takes less time", found=seen)
                if change == "put":
                    _put(system, path, {name: copy / name for name in now if now[name] != before.get(name)})
                elif gone := [f"{path}/{name}" for name in before.keys() - now.keys()]:
                    system.rm(gone)
    finally:
        with contextlib.suppress(Exception):
            system.rm_file(f"{path}/{ticket}")


@contextlib.contextmanager
def copied_back(address: str, depth: int = 100) -> Iterator[Path]:
    """A local copy of a folder of reports, or of one, which takes its place when the block ends without an error.

    Unlike a folder here it is not replaced at once: the files that changed are, one after the other. Of most files the
    copy has the names only. `depth` is that of the files: 1 for those right in the folder.
    """
    system, path = _system(address)
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place, path.rpartition("/")[2])
        ADDRESSES[here] = address.rstrip("/")
        with _said(address, "a folder that can be read"):
            there = {each.removeprefix(path).strip("/"): each for each in system.find(path)}
            there = {name: each for name, each in there.items() if name.count("/") < depth}
            for name in there:
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                (here / name).write_text(address)  # no file of a report is that
            wanted = [name for name in there if name.rpartition("/")[2] in LAST]
            system.get([there[name] for name in wanted], [str(here / name) for name in wanted])
        before = _digests(here, "**/*")
        yield here
        with _said(address, "a folder that can be written"):
            now = _digests(here, "**/*")
            if now != before and before.pop(LAST[-1], ""):
                system.rm_file(there[LAST[-1]])
            changed = {name: here / name for name in now if now[name] != before.get(name)}
            last = [{name: changed.pop(name)} for name in LAST if name in changed]
            for files in (changed, *last):
                _put(system, path, files)
            for name in there.keys() - now.keys():
                system.rm_file(there[name])


@contextlib.contextmanager
def written(file: str) -> Iterator[Path]:
    """The path of a file; for an address, of one that is put there when the block ends without an error."""
    if not is_remote(file):
        yield Path(file)
        return
    folder, _, name = file.rpartition("/")
    system, path = _system(folder)
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        yield Path(place, name)
        with _said(file, "a file that can be written"):
            _put(system, path, {name: Path(place, name)})


def _listed(system: Any, path: str, ending: str = "") -> dict[str, str]:
    """What each file right in a folder is known by until it changes: tickets, or else all that are not hidden."""
    system.invalidate_cache()
    try:
        rows = {row["name"].rpartition("/")[2]: row for row in system.ls(path, detail=True) if row["type"] == "file"}
    except FileNotFoundError:
        return {}
    names = [name for name in rows if name and name[0] != "." and name.endswith(TICKET) is (ending == TICKET)]
    # Of an object store its own hash; else all that is told, but for when it was last read ("time" of sftp).
    return {name: str(rows[name].get("ETag") or {**rows[name], "time": None}) for name in sorted(names)}


def _ticket(system: Any, path: str) -> tuple[str, float]:
    """The name of a ticket of ours, the only one in a folder, and until when it holds by the clock of this process.

    Who sees another's beside the own one withdraws it: of two that come at once at least one sees both.
    """
    seen: dict[str, float] = {}
    while True:
        now = time.monotonic()
        if not (others := _listed(system, path, TICKET)):
            own = f"{uuid4().hex}{TICKET}"
            system.pipe_file(f"{path}/{own}", b"a change is under way\n")
            if [*_listed(system, path, TICKET)] == [own]:
                return own, now + LEASE / 2
            system.rm_file(f"{path}/{own}")
        for other in others:
            if now - seen.setdefault(other, now) > LEASE:
                with contextlib.suppress(FileNotFoundError):
                    system.rm_file(f"{path}/{other}")
        time.sleep(random.uniform(0.1, 1.0))  # no secret


def _put(system: Any, path: str, files: Mapping[str, Path]) -> None:
    targets = {f"{path}/{name}": str(file) for name, file in files.items()}
    for folder in {target.rpartition("/")[0] for target in targets}:
        _make(system, folder)
    system.put([*targets.values()], [*targets])


def _make(system: Any, folder: str) -> None:
    """Make a folder where there are folders; never a bucket, which a slip of the pen would leave behind."""
    top = folder.partition("/")[0]
    if top and not system.exists(top):
        raise FileNotFoundError(top)
    system.makedirs(folder, exist_ok=True)


def _digests(folder: Path, pattern: str = "[!.]*") -> dict[str, str]:
    files = (file for file in folder.glob(pattern) if file.is_file())
    return {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    if _CREDENTIALS.search(address):
        expected = "an address without credentials or a query: credentials come from the environment"
        shown = re.sub(r"://(?:.*(@)|[^/]*:.*)", r"://***\1", address.partition("?")[0])
        raise InputError(file=shown, key=None, expected=expected, found="some")
    with _said(address, "an address that fsspec knows"):
        try:
            import fsspec  # late: hardly anybody needs it

            system, path = fsspec.core.url_to_fs(address)
        except ImportError as error:
            found = f"none: {error}" if error.name != "fsspec" else "none: install buildcompare[remote]"
            raise InputError(file=address, key=None, expected="the package of this file system", found=found) from None
        system.invalidate_cache()
        return system, str(path).rstrip("/")


@contextlib.contextmanager
def _said(address: str, expected: str) -> Iterator[None]:
    try:
        yield
    except BuildcompareError:
        raise
    except Exception as error:  # each file system has faults of its own
        found = f"{type(error).__name__}: {error}"
        raise InputError(file=address, key=None, expected=expected, found=found) from None


def _copy_of(address: str) -> Path:
    address = address.rstrip("/")
    return _copies() / sha256(address.encode()).hexdigest()[:16] / address.rpartition("/")[2]


@cache
def _copies() -> Path:
    """The folder of this process for what it fetched."""
    folder = Path(tempfile.mkdtemp(prefix="buildcompare-"))
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=1)  # a forked process does not run `atexit`
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
