"""Reads a user's file into memory, unpacked, within a limit, with its hash for the provenance."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import zlib
from dataclasses import dataclass
from typing import Any

from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve
from buildcompare.recordings.recording import FloatArray

MAX_BYTES = 32_000_000
"""Bound on an unpacked file: a run of 20 hours with 40 graphs takes about 26 MB as CSV or JSON; reading takes up to
25 times the size of a hostile file."""
LATEST = 7_258_118_400.0
"""The year 2200, in seconds since 1970: larger numbers are milliseconds or finer."""
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class InputFile:
    """A file's unpacked contents, and what identifies it."""

    path: str
    """As the user wrote it: this is what messages and provenance name."""
    contents: bytes
    sha256: str
    size: int

    @property
    def provenance(self) -> dict[str, object]:
        """What a report says about this file."""
        return {"path": self.path, "sha256": self.sha256, "bytes": self.size}


def read_input(path: str, *, expected: str) -> InputFile:
    """Read `path` (relative to the project's root), unpacking gzip.

    Raises
    ------
    InputError
        Where the file is missing, unreadable, empty, damaged or beyond `MAX_BYTES`; `expected` says
        what should have been there.
    """
    digest = hashlib.sha256()
    try:
        file = resolve(path)
        if not file.is_dir() and file.exists() and not file.is_file():
            raise InputError(file=path, key=None, expected=expected, found="no regular file")
        with file.open("rb") as raw:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InputError(file=path, key=None, expected=expected, found="no regular file")
            _check_size(path, status.st_size)
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            while block := raw.read(_CHUNK):
                digest.update(block)
            size = raw.tell()
            raw.seek(0)
            contents = _bounded(gzip.GzipFile(fileobj=raw) if packed else raw, path)
    except FileNotFoundError:
        raise InputError(file=path, key=None, expected=expected, found="no such file") from None
    except IsADirectoryError:
        raise InputError(file=path, key=None, expected=expected, found="a folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(file=path, key="gzip", expected="a whole gzip file", found=_words(error)) from None
    except OSError as error:
        raise InputError(file=path, key=None, expected=expected, found=error.strerror or str(error)) from None
    except ValueError as error:  # a path that no file can have
        raise InputError(file=repr(path), key=None, expected=expected, found=str(error)) from None
    if not contents.strip():
        raise InputError(file=path, key=None, expected=expected, found="an empty file")
    return InputFile(path=path, contents=contents, sha256=digest.hexdigest(), size=size)


def parse_json(file: InputFile) -> Any:
    """The file's JSON, or :class:`InputError` naming where it goes wrong."""
    try:
        return json.loads(file.contents)
    except UnicodeDecodeError as error:
        key, expected, found = f"byte {error.start}", "text in UTF-8", "bytes that are not"
    except json.JSONDecodeError as error:
        key, expected, found = f"line {error.lineno}, column {error.colno}", "valid JSON", error.msg
    except ValueError as error:  # a number of thousands of digits
        key, expected, found = "numbers", "valid JSON", str(error)[:80]
    except RecursionError:
        key, expected, found = "levels", "values nested a few levels deep", "too many nested levels"
    raise InputError(file=file.path, key=key, expected=expected, found=found)


def check_times(path: str, key: str, times: FloatArray) -> None:
    """Refuse times that are no seconds since 1970."""
    bad = times[~((times >= 0.0) & (times < LATEST))]
    if bad.size:
        found = f"{bad[0]:.0f}" + (" (milliseconds or finer?)" if bad[0] >= LATEST else "")
        raise InputError(file=path, key=key, expected="times in seconds since 1970, before 2200", found=found)


def _bounded(stream: io.BufferedIOBase | gzip.GzipFile, path: str) -> bytes:
    blocks: list[bytes] = []
    total = 0
    while block := stream.read(_CHUNK):
        total += len(block)
        _check_size(path, total)
        blocks.append(block)
    return b"".join(blocks)


def _check_size(path: str, size: int) -> None:
    if size > MAX_BYTES:
        raise InputError(file=path, key="size", expected=f"at most {MAX_BYTES // 1_000_000} MB unpacked", found="more")


def _words(error: Exception) -> str:
    return "a file that ends early" if isinstance(error, EOFError) else str(error)
