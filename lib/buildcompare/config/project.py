"""Where the project's folders are, and how files get there: relative paths mean the same from any working directory."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from buildcompare.config.errors import InputError


def root() -> Path:
    """The project's root: ``BUILDCOMPARE_ROOT``, else the checkout that this package is installed from."""
    configured = os.environ.get("BUILDCOMPARE_ROOT")
    return Path(configured).resolve() if configured else Path(__file__).resolve().parents[3]


def resolve(path: str | Path) -> Path:
    """Make `path` absolute: relative paths count from the project's root.

    On a worker elsewhere (``batch --dask``) absolute paths count from the folder that ``BUILDCOMPARE_COPIES`` names.
    """
    copies = os.environ.get("BUILDCOMPARE_COPIES")
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
    halves = {file: file.with_name(f".{file.name}.{os.getpid()}.part") for file in contents}
    try:
        for file, half in halves.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            whole = contents[file]
            half.write_bytes(whole.encode() if isinstance(whole, str) else whole)  # every byte as it is
        for file, half in halves.items():
            half.replace(file)
    finally:
        for half in halves.values():
            half.unlink(missing_ok=True)


def commit() -> str | None:
    """The project's git commit, ``with changes`` where tracked files differ; None without a checkout or git."""
    if not (root() / ".git").exists():
        return None
    said = []
    try:
        for ask in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
            command = ["git", "--no-optional-locks", "-C", str(root()), *ask]
            made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, errors="replace")
            said.append(made.stdout.strip())
        return f"{said[0]} with changes" if said[1] else said[0]
    except (OSError, subprocess.SubprocessError):
        return None
