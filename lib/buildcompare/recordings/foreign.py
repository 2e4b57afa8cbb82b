"""Reads a Parquet file of others in a process of its own, which a damaged or hostile file may end: a program.

It is started by its path, so that it imports pyarrow and nothing else of ours: 0.2 s. From standard input it takes the
file; to standard output goes one line of JSON, the fault or null, and then the table as an Arrow stream.
"""

import io
import json
import os
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MAX_COLUMNS = 250
MAX_VALUES = 20_000_000
"""Bound on a Parquet file's values, which its own size does not bound: 20 hours of 1,000 series take 14 million."""
MAX_TEXT, MAX_TEXT_IN_ALL = 10_000, 100_000_000
"""Bounds on the characters of names in a Parquet file, where a few bytes may stand for many copies."""
MAX_MEMORY = 6_000_000_000
"""Bytes of addresses, of which libraries reserve many that they never use."""


class Refused(Exception):  # not an error of this program
    """What is wrong with a table: key, expected, found."""


def read(contents: bytes) -> pa.Table:
    """The table in a Parquet file, once its values fit; texts as the dictionary in the file."""
    table = pq.ParquetFile(io.BytesIO(contents), page_checksum_verification=True)
    names = table.schema_arrow.names
    if len(names) > MAX_COLUMNS or len({*names}) < len(names):
        found = str(len(names)) if len(names) > MAX_COLUMNS else "one twice"
        raise Refused("columns", f"at most {MAX_COLUMNS}, each once", found)
    groups = [table.metadata.row_group(i) for i in range(table.metadata.num_row_groups)]
    cells = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    values = max(cells, table.metadata.num_rows)
    if values > MAX_VALUES:
        raise Refused("values", f"at most {MAX_VALUES:,}", f"{values:,}")
    texts = [column.name for column in table.schema_arrow if _is_text(column.type)]
    table = pq.ParquetFile(io.BytesIO(contents), read_dictionary=texts, page_checksum_verification=True)
    for name in texts:
        for chunk in table.read(columns=[name]).column(name).chunks:
            words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            longest = pc.max(pc.utf8_length(words)).as_py() or 0
            if longest > MAX_TEXT:
                raise Refused(name, f"texts of at most {MAX_TEXT:,} characters", f"one of {longest:,}")
            if longest * len(chunk) > MAX_TEXT_IN_ALL:
                raise Refused(name, f"texts of at most {MAX_TEXT_IN_ALL:,} characters in all", "more")
    whole = table.read()
    whole.validate(full=True)
    ours = {key: text for key, text in (whole.schema.metadata or {}).items() if key == b"buildcompare"}
    columns = whole.columns if ours else [_plain(name, whole.column(name)) for name in names]
    return pa.table(dict(zip(names, columns, strict=True))).replace_schema_metadata(ours)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as a number, a truth or a text, which is all that a table of samples holds."""
    kind = column.type
    if pa.types.is_nested(kind):
        raise Refused(name, "a column of numbers, texts or times", str(kind)[:60])
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):  # an instant has no zone; in microseconds every year fits
        return pc.cast(column, pa.timestamp("us"), safe=False)
    if pa.types.is_duration(kind):
        return pc.cast(column, pa.duration("us"), safe=False)
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.float64())
    if any(is_it(kind) for is_it in (pa.types.is_primitive, pa.types.is_null)) and not pa.types.is_temporal(kind):
        return column
    return column if _is_text(kind) else pc.cast(column, pa.string())


def main() -> None:
    """Read what standard input holds."""
    if sys.platform != "win32":
        import resource

        for limit, most in ((resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
    fault: list[Any] | None = None
    table = pa.table({})
    try:
        table = read(sys.stdin.buffer.read())
    except Refused as error:
        fault = [*error.args]
    except MemoryError:
        fault = [None, "a Parquet file that takes less memory", "one that takes more"]
    except Exception as error:  # whatever pyarrow makes of bytes that nobody foresaw
        fault = [None, "a whole Parquet file", (str(error) or type(error).__name__).splitlines()[0][:120]]
    sys.stdout.buffer.write(json.dumps(fault).encode() + b"\n")
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
        stream.write_table(table)
    sys.stdout.buffer.flush()
    os._exit(0)  # all is written: what threads do while Python ends them may abort


if __name__ == "__main__":
    main()
