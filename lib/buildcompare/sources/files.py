"""Reads a user's file into memory, unpacked, within a limit, with its hash for the provenance."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from dataclasses import dataclass

from buildcompare.errors import InputError
from buildcompare.project import resolve

MAX_BYTES = 32_000_000
"""Bound on an unpacked file: a run of 20 hours with 40 graphs takes about 26 MB as CSV or JSON; reading takes up to
25 times the size of a hostile file."""
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
    file = resolve(path)
    digest = hashlib.sha256()
    try:
        with file.open("rb") as raw:
            _check_size(path, file.stat().st_size)
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            while block := raw.read(_CHUNK):
                digest.update(block)
            size = raw.tell()
            raw.seek(0)
            contents = _bounded(gzip.GzipFile(fileobj=raw) if packed else raw, path)
    except FileNotFoundError:
        raise InputError(file=path, key=None, expected=expected, found=f"no such file ({file.name})") from None
    except IsADirectoryError:
        raise InputError(file=path, key=None, expected=expected, found="a folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(file=path, key="gzip", expected="a whole gzip file", found=_words(error)) from None
    except OSError as error:
        raise InputError(file=path, key=None, expected=expected, found=error.strerror or str(error)) from None
    if not contents.strip():
        raise InputError(file=path, key=None, expected=expected, found="an empty file")
    return InputFile(path=path, contents=contents, sha256=digest.hexdigest(), size=size)


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
