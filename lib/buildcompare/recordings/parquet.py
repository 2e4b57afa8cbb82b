"""Write Parquet files sealed by a checksum of every byte; read them, and the files of others within limits."""

import hashlib
import io
import re
from typing import Any

import pyarrow as pa

from buildcompare.config.errors import InputError
from buildcompare.recordings.files import InputFile

MAX_COLUMNS = 250
MAX_VALUES = 20_000_000
"""Bound on the values of another program's file, which its size does not bound: 20 hours of 1,000 series take 14
million."""
MAX_TEXT, MAX_TEXT_IN_ALL = 10_000, 100_000_000
"""Most characters of one text and of a column; a few compressed bytes may expand to many copies."""
THREADS = False
"""pyarrow's threads hold Python's memory; one that releases it at exit aborts one process in thirty (SIGABRT)."""
KEY = b"buildcompare"
"""Key of buildcompare's metadata in a file's schema."""
_SEAL = "buildcompare.sha256"
_EMPTY = "0" * 64
_SEALED = re.compile(re.escape(_SEAL.encode()) + rb".{1,3}([0-9a-f]{64})", re.DOTALL)
"""The seal in the footer's bytes, so that it is checked before anything parses the file."""


def sealed(table: pa.Table, *, rows: int | None = None, **options: Any) -> bytes:
    """Return `table` as Parquet, in groups of `rows`, with the SHA-256 of its bytes (64 zeros in the hash's place)."""
    from pyarrow.parquet import ParquetWriter

    stream = io.BytesIO()
    with ParquetWriter(stream, table.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({_SEAL: _EMPTY})
    contents = stream.getvalue()
    start, end = _place(contents) or (0, 0)
    return contents[:start] + hashlib.sha256(contents).hexdigest().encode() + contents[end:]


def is_whole(contents: bytes | memoryview) -> bool | None:
    """Whether a sealed file equals what was written, to the last bit; None for a file without a seal."""
    place = _place(contents)
    if place is None:
        return None
    start, end = place
    with memoryview(contents) as view:
        digest = hashlib.sha256(view[:start])
        digest.update(_EMPTY.encode())
        digest.update(view[end:])
        return digest.hexdigest().encode() == bytes(view[start:end])


def _place(contents: bytes | memoryview) -> tuple[int, int] | None:
    matches = [*_SEALED.finditer(contents)]  # the last one is in the footer; earlier ones are values
    return matches[-1].span(1) if contents[:4] == b"PAR1" and matches else None


def open_table(file: InputFile, *, only_schema: bool = False) -> pa.Table:
    """Read the table of a Parquet file; :class:`InputError` where it is damaged or beyond the limits.

    With `only_schema` the rows of a sealed file are not read.
    """
    from pyarrow.parquet import ParquetFile

    whole = is_whole(file.contents)
    if whole is False:
        raise damaged(file)
    try:
        if whole is None:
            return _foreign(file)
        opened = ParquetFile(io.BytesIO(file.contents))
        return opened.schema_arrow.empty_table() if only_schema else opened.read(use_threads=THREADS)
    except MemoryError:
        raise file.fault(None, "a Parquet file that takes less memory", "one that takes more") from None
    except InputError:
        raise
    except Exception as error:  # pyarrow raises errors of many kinds on malformed bytes
        found = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise file.fault(None, "a whole Parquet file", found) from None


def damaged(file: InputFile) -> InputError:
    """Return the error for a sealed file that does not match its seal."""
    expected = "the bytes that were written (copy it again, or pull with --refresh)"
    return file.fault("checksum", expected, "others: it is damaged")


def _foreign(file: InputFile) -> pa.Table:
    """Read a file without a seal: page checksums verified, texts as dictionaries, sizes checked before the rows."""
    from pyarrow.parquet import ParquetFile

    opened = ParquetFile(io.BytesIO(file.contents), page_checksum_verification=True)
    schema, metadata = opened.schema_arrow, opened.metadata
    names, is_ours = schema.names, KEY in (schema.metadata or {})
    if len(names) > MAX_COLUMNS or len({*names}) < len(names):
        found = str(len(names)) if len(names) > MAX_COLUMNS else "one twice"
        raise file.fault("columns", f"at most {MAX_COLUMNS}, each once", found)
    # Rows times columns, not the values of each column: pyarrow aborts where it reads a column's broken statistics.
    rows = max(metadata.num_rows, sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
    if rows * len(names) > MAX_VALUES:
        raise file.fault("values", f"at most {MAX_VALUES:,}", f"{rows * len(names):,}")
    if (nested := next((each for each in schema if pa.types.is_nested(each.type)), None)) is not None and not is_ours:
        raise file.fault(nested.name, "a column of numbers, texts or times", str(nested.type)[:60])
    texts = [column.name for column in schema if _is_text(column.type)]
    with ParquetFile(io.BytesIO(file.contents), read_dictionary=texts, page_checksum_verification=True) as again:
        table = again.read(use_threads=THREADS)
    for name in texts:
        _check_lengths(file, name, table.column(name))
    table.validate(full=True)
    if is_ours:
        return table
    return pa.table({name: _plain(table.column(name)) for name in names})


def _check_lengths(file: InputFile, name: str, column: pa.ChunkedArray) -> None:
    import pyarrow.compute as pc

    for chunk in column.chunks:
        longest = pc.max(pc.utf8_length(chunk.dictionary)).as_py() or 0
        if longest > MAX_TEXT:
            raise file.fault(name, f"texts of at most {MAX_TEXT:,} characters", f"one of {longest:,}")
        if longest * len(chunk) > MAX_TEXT_IN_ALL:
            raise file.fault(name, f"texts of at most {MAX_TEXT_IN_ALL:,} characters in all", "more")


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast a column to a number, a truth, a text or an instant, the types that a table of samples holds."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):  # an instant has no zone; microseconds hold every year
        return column.cast(pa.timestamp("us"), safe=False)
    if pa.types.is_duration(kind):
        return column.cast(pa.duration("us"), safe=False)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    is_plain = (pa.types.is_primitive(kind) or pa.types.is_null(kind)) and not pa.types.is_temporal(kind)
    return column if is_plain or _is_text(kind) else column.cast(pa.string())
