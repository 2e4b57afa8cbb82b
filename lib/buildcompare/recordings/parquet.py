"""Parquet files: ours are sealed by a checksum of every byte, those of others are read where they can do no harm."""

import hashlib
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from buildcompare.config.errors import InputError
from buildcompare.recordings.files import InputFile

FOREIGN_S = 60
"""How long a Parquet file of others may take to read; 20 million values take 2 s."""
THREADS = False
"""Whether pyarrow's threads may read memory of Python's. One that lets go of it while Python ends, as after bad input,
ends the process with SIGABRT and another exit code, in one of thirty."""
_SEAL = "buildcompare.sha256"
_EMPTY = "0" * 64
_SEALED = re.compile(re.escape(_SEAL.encode()) + rb".{1,3}([0-9a-f]{64})", re.DOTALL)
"""The seal in the footer's bytes, so that nothing parses a file before it is known to be whole."""


def sealed(table: pa.Table, *, rows: int | None = None, **options: Any) -> bytes:
    """`table` as a Parquet file, in groups of `rows`, with the SHA-256 of its bytes (as they are with zeros for it)."""
    from pyarrow.parquet import ParquetWriter

    made = io.BytesIO()
    with ParquetWriter(made, table.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({_SEAL: _EMPTY})
    contents = made.getvalue()
    start, end = _place(contents) or (0, 0)
    return contents[:start] + hashlib.sha256(contents).hexdigest().encode() + contents[end:]


def is_whole(contents: bytes | memoryview) -> bool | None:
    """Whether a sealed file is, to the last bit, what was written; None of a file without a seal."""
    place = _place(contents)
    if place is None:
        return None
    start, end = place
    with memoryview(contents) as view:
        made = hashlib.sha256(view[:start])
        made.update(_EMPTY.encode())
        made.update(view[end:])
        return made.hexdigest().encode() == bytes(view[start:end])


def _place(contents: bytes | memoryview) -> tuple[int, int] | None:
    found = [*_SEALED.finditer(contents)]  # the last: it stands at the file's end, whatever its values spell
    return found[-1].span(1) if contents[:4] == b"PAR1" and found else None


def open_table(file: InputFile, *, only_schema: bool = False) -> pa.Table:
    """The table of a Parquet file; an :class:`InputError` where it is damaged or beyond the limits.

    With `only_schema` the rows of a sealed file are not read.
    """
    whole = is_whole(file.contents)
    if whole is None:
        return _foreign(file)
    if not whole:
        raise damaged(file)
    from pyarrow.parquet import ParquetFile

    opened = ParquetFile(io.BytesIO(file.contents))
    return opened.schema_arrow.empty_table() if only_schema else opened.read(use_threads=THREADS)


def damaged(file: InputFile) -> InputError:
    """The fault of a sealed file whose bytes are others than were written."""
    expected = "the bytes that were written (copy it again, or pull with --refresh)"
    return file.fault("checksum", expected, "others: it is damaged")


def _foreign(file: InputFile) -> pa.Table:
    """Read a file that we did not write, or not of late, in a process that may abort, hang or run out of memory."""
    program = [sys.executable, "-P", str(Path(__file__).with_name("foreign.py"))]
    try:
        for _ in range(2):  # under load the reader's threads may fail to start: a file that ends it does so twice
            done = subprocess.run(program, input=file.contents, capture_output=True, timeout=FOREIGN_S, check=False)
            if done.returncode >= 0:
                break
    except subprocess.TimeoutExpired:
        expected = f"a Parquet file that is read within {FOREIGN_S} s"
        raise file.fault(None, expected, "one that takes longer") from None
    said, _, stream = done.stdout.partition(b"\n")
    if done.returncode != 0:
        ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        raise file.fault(None, "a whole Parquet file", f"one that its reader cannot stand ({ended})")
    if fault := json.loads(said):
        raise file.fault(*fault)
    return pa.ipc.open_stream(stream).read_all()
