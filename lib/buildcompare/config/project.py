"""Where the project's folders are, and how files get there: relative paths mean the same from any working directory."""

import contextlib
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from buildcompare.config.errors import InputError
from buildcompare.config.remote import fetched, fetched_folder, is_remote

if sys.platform != "win32":
    import fcntl


def root() -> Path:
    """The project's root: ``BUILDCOMPARE_ROOT``, else the checkout that this package is installed from."""
    configured = os.environ.get("BUILDCOMPARE_ROOT")
    return Path(configured).resolve() if configured else Path(__file__).resolve().parents[3]


def resolve(path: str | Path, *, is_folder: bool = False) -> Path:
    """Make `path` absolute: relative paths count from the project's root; of an address, its local copy.

    Of a folder elsewhere the files right in it are copied.

    On a worker elsewhere (``batch --dask``) absolute paths count from the folder that ``BUILDCOMPARE_COPIES`` names.
    """
    copies = os.environ.get("BUILDCOMPARE_COPIES")
    if is_remote(path):
        fetch = fetched_folder if is_folder else fetched
        return fetch(str(path)) if copies is None else Path(copies, *str(path).split("://", 1))
    if copies and Path(path).is_absolute():
        return Path(copies, *Path(path).parts[1:])
    return root() / Path(path)


def read_text(file: Path, expected: str, *, key: str | None = None, max_bytes: int) -> str:
    """The text of a file in UTF-8; an InputError that names `file` and `key` where there is none, or more."""
    try:
        if file.exists() and not file.is_file():
            found = "a folder" if file.is_dir() else "no regular file"
        elif (size := file.stat().st_size) > max_bytes:
            expected, found = f"{expected}, at most {max_bytes:,} bytes", f"{size:,} bytes"
        else:
            return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        found = "no such file"
    except UnicodeDecodeError as error:
        expected, found = "text in UTF-8", f"bytes that are no UTF-8 (byte {error.start})"
    except (OSError, ValueError) as error:  # also a path that no file can have
        found = getattr(error, "strerror", None) or str(error)
    raise InputError(file=file, key=key, expected=expected, found=found)


@contextlib.contextmanager
def writing(file: Path, key: str, expected: str) -> Iterator[None]:
    """Say what the system has against writing there as an InputError that names `file` and `key`."""
    try:
        yield
    except OSError as error:
        raise InputError(file=file, key=key, expected=expected, found=error.strerror or str(error)) from None


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write files, all whole or none: each beside its place first, so that a full disk leaves all as they were."""
    halves = {}
    with contextlib.ExitStack() as stack:
        for file, whole in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            _remove_left(file.parent, f".{glob.escape(file.name)}.*.part")
            halves[file] = stack.enter_context(own_folder(file.parent, f".{file.name}.", ".part")) / file.name
            try:
                halves[file].write_bytes(whole.encode() if isinstance(whole, str) else whole)  # every byte as it is
            except OSError as error:
                error.filename = error.filename or str(file)  # a full disk names no file
                raise
        for file, half in halves.items():
            half.replace(file)


def _remove_left(parent: Path, pattern: str) -> None:
    """Remove folders of our own that killed processes left, of this machine or of another."""
    for left in parent.glob(pattern):
        with contextlib.suppress(OSError):  # somebody else's, or gone
            if time.time() - left.stat().st_mtime > 60.0:  # seconds: else it may not be locked yet
                with locked(left, wait=False) as free:
                    if free:
                        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep others from `folder` who ask for it likewise; without `wait`, whether nobody else has it.

    The system gives it back when a process ends, however that happens. Where folders cannot be locked, all who wait
    may have it, and nobody knows that it is free.
    """
    if sys.platform == "win32":
        yield True
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        free = True
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            free = False
        except OSError:  # a file system without locks
            free = wait
        yield free
    finally:
        os.close(opened)


@contextlib.contextmanager
def own_folder(parent: Path, prefix: str, suffix: str = "") -> Iterator[Path]:
    """A new folder in `parent`, locked while its maker lives and removed at the end."""
    with tempfile.TemporaryDirectory(suffix, prefix, parent, ignore_cleanup_errors=True) as name, locked(Path(name)):
        yield Path(name)


SOCKET_PATH = 60
"""Longer folders leave no room for the name of a socket in them: systems cut paths at 104 to 108 characters."""


def short_parent() -> Path:
    """Where temporary files may stand whose sockets need a short path: TMPDIR, or ``/tmp`` where that is too long."""
    parent = Path(tempfile.gettempdir())
    return parent if len(str(parent)) <= SOCKET_PATH or not os.access("/tmp", os.W_OK) else Path("/tmp")  # noqa: S108 - a parent


@contextlib.contextmanager
def socket_folder(prefix: str = "bc-") -> Iterator[Path]:
    """A new folder for sockets and connection files; those that killed processes left are removed."""
    parent = short_parent()
    _remove_left(parent, f"{prefix}????????")
    with own_folder(parent, prefix) as folder:
        yield folder


def commit(project: Path) -> str | None:
    """The git commit of `project`, ``with changes`` where tracked files differ; None without a checkout or git."""
    if not (project / ".git").exists():
        return None
    said = []
    try:
        for ask in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
            command = ["git", "--no-optional-locks", "-C", str(project), *ask]
            made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, errors="replace")
            said.append(made.stdout.strip())
        return f"{said[0]} with changes" if said[1] else said[0]
    except (OSError, subprocess.SubprocessError):
        return None
