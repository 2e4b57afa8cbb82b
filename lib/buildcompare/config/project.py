"""Find the project's folders, and read and write files. Relative paths count from the project's root."""

import contextlib
import glob
import os
import shutil
import stat
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


_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "shipped"
"""Folder of the catalogues and notebooks in an installed wheel; a checkout has them at its root."""


def root() -> Path:
    """Return the project's root: ``BUILDCOMPARE_ROOT``, else this package's checkout, else the working folder."""
    if configured := os.environ.get("BUILDCOMPARE_ROOT"):
        return Path(configured).resolve()
    return Path.cwd() if _SHIPPED.is_dir() else _PACKAGE.parents[1]


def places() -> list[Path]:
    """Return the folders searched for catalogues and notebooks: the project's root, then that of the shipped files."""
    return [root(), _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parents[1]]


def resolve(path: str | Path, *, is_folder: bool = False) -> Path:
    """Make `path` absolute; an address becomes the path of a local copy.

    A relative path is looked up in the project's root, then in the shipped files. A remote folder is copied
    without subfolders. On a Dask worker, ``BUILDCOMPARE_COPIES`` is the folder of copies of remote and absolute paths.
    """
    copies = os.environ.get("BUILDCOMPARE_COPIES")
    if is_remote(path):
        fetch = fetched_folder if is_folder else fetched
        return fetch(str(path)) if copies is None else Path(copies, *str(path).split("://", 1))
    if copies and Path(path).is_absolute():
        return Path(copies, *Path(path).parts[1:])
    return next((place / path for place in places() if (place / path).exists()), root() / path)


def read_text(file: str | Path, expected: str, *, key: str | None = None, max_bytes: int) -> str:
    """Read a file in UTF-8; raise an InputError if it is missing, not text, or longer than `max_bytes`."""
    try:
        seen = os.stat(file)
        if not stat.S_ISREG(seen.st_mode):
            found = "a folder" if stat.S_ISDIR(seen.st_mode) else "no regular file"
        elif seen.st_size > max_bytes:
            expected, found = f"{expected}, at most {max_bytes:,} bytes", f"{seen.st_size:,} bytes"
        else:
            with open(file, "rb", buffering=0) as opened:  # faster than Path's methods, for thousands of small files
                return opened.readall().decode().removeprefix("\ufeff")
    except FileNotFoundError:
        found = "no such file"
    except UnicodeDecodeError as error:
        expected, found = "text in UTF-8", f"bytes that are no UTF-8 (byte {error.start})"
    except (OSError, ValueError) as error:  # ValueError: for example, a null byte in the path
        found = getattr(error, "strerror", None) or str(error)
    raise InputError(file=file, key=key, expected=expected, found=found)


@contextlib.contextmanager
def writing(file: Path, key: str, expected: str) -> Iterator[None]:
    """Turn an OSError of writing into an InputError that names `file` and `key`."""
    try:
        yield
    except OSError as error:
        raise InputError(file=file, key=key, expected=expected, found=error.strerror or str(error)) from None


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write all files or none; temporary files are written first, so that a full disk changes nothing."""
    halves = {}
    with contextlib.ExitStack() as stack:
        for file, whole in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            _remove_left(file.parent, f".{glob.escape(file.name)}.*.part")
            halves[file] = stack.enter_context(own_folder(file.parent, f".{file.name}.", ".part")) / file.name
            try:
                halves[file].write_bytes(whole.encode() if isinstance(whole, str) else whole)  # keeps \n on Windows
            except OSError as error:
                error.filename = error.filename or str(file)  # the error of a full disk names no file
                raise
        for file, half in halves.items():
            half.replace(file)


def _remove_left(parent: Path, pattern: str) -> None:
    """Remove temporary folders in `parent` that were left behind by killed processes of this or other machines."""
    for left in parent.glob(pattern):
        with contextlib.suppress(OSError):  # the folder is another user's, or was removed meanwhile
            if time.time() - left.stat().st_mtime > 60.0:  # a newer folder may not be locked yet
                with locked(left, wait=False) as free:
                    if free:
                        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock `folder` and yield True. Without `wait`, yield False if another process holds the lock.

    The lock ends with the block or the process. If locks are unavailable, yield True (Windows) or `wait` (others).
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
    """Make a folder in `parent`; it is locked while this process lives, and removed when the block ends."""
    with tempfile.TemporaryDirectory(suffix, prefix, parent, ignore_cleanup_errors=True) as name, locked(Path(name)):
        yield Path(name)


SOCKET_PATH = 60
"""Maximum characters of TMPDIR as a parent of sockets: systems limit a socket's path to 104 or 108 characters."""


def short_parent() -> Path:
    """Return the parent of folders for sockets: TMPDIR, or ``/tmp`` if TMPDIR is too long."""
    parent = Path(tempfile.gettempdir())
    return parent if len(str(parent)) <= SOCKET_PATH or not os.access("/tmp", os.W_OK) else Path("/tmp")  # noqa: S108 - the parent of private folders


@contextlib.contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a folder for sockets and connection files; first remove such folders of killed processes."""
    parent = short_parent()
    _remove_left(parent, "bc-????????")
    with own_folder(parent, "bc-") as folder:
        yield folder


def commit(project: Path) -> str | None:
    """Return the git commit of `project`, plus ``with changes`` if tracked files differ; None if unknown."""
    if not (project / ".git").exists():
        return None
    ask = ["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty= with changes"]
    command = ["git", "--no-optional-locks", "-C", str(project), *ask]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, errors="replace")
        return made.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
