"""Shared code of all file readers: bounded reading, units, and making series of samples."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np
from pydantic_core import from_json

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve, root
from buildcompare.config.remote import is_remote
from buildcompare.recordings.series import LATEST, FloatArray, Series

if TYPE_CHECKING:
    from buildcompare.recordings.recording import Recording

MAX_BYTES = 32_000_000
"""Bound on an unpacked file: 20 hours of 40 graphs take 26 MB as JSON, and reading takes 25 times that memory."""
MAX_TABLE_BYTES = 500_000_000  # bound on an unpacked table of text, whose reading takes up to five times that memory
MAX_COLUMNS = 250  # bound on the columns of a table: a report draws at most 200 series
MAX_GRAPHS = 200  # bound on the series that a report draws of one run
HEAD_BYTES = 64_000
LONGEST_NAME = 200  # bound on the characters of a metric's name that are searched
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class InputFile:
    """A file's unpacked contents, and what identifies the file."""

    path: str | None  # as the user wrote it, for messages and provenance; None for data that is in no file
    contents: bytes
    stored: bytes  # bytes on disk, possibly packed
    time_unit: str | None = None  # unit of times that are numbers, as the params state it

    @property
    def provenance(self) -> dict[str, object]:
        """Path, hash and size, for reports."""
        return {"path": self.path, "sha256": hashlib.sha256(self.stored).hexdigest(), "bytes": len(self.stored)}

    def fault(self, key: str | None, expected: str, found: str) -> InputError:
        """Make the error of a fault in this file."""
        return InputError(file=self.path, key=key, expected=expected, found=found)

    def json(self) -> Any:
        """Parse the file's JSON; :class:`InputError` with the place of a fault."""
        try:
            return from_json(self.contents.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise self.fault(f"byte {error.start}", "text in UTF-8", "other bytes") from None
        except ValueError as error:  # also too long numbers and broken characters
            found, _, place = str(error).partition(" at ")
            expected = "valid JSON, nested at most 200 levels deep"
            raise self.fault(place.replace(" column", ", column"), expected, found) from None


@dataclass(frozen=True)
class FileSource:
    """One kind of file: its description in errors, its reader, and the test that recognises its contents."""

    expected: str
    read: Callable[[InputFile, Catalogue], Recording]
    recognise: Callable[[bytes], bool]
    join: Callable[[Sequence[InputFile], Catalogue], Recording] | None = None
    """Reads several files as one run; None if a file is a run."""


def read_input(path: str, *, expected: str, is_table: Callable[[bytes], bool] | None = None) -> InputFile:
    """Read `path` (relative to the project's root) and unpack gzip.

    Parameters
    ----------
    path
        The file; messages name it as it is written here.
    expected
        What the file should be, for messages.
    is_table
        Recognises a table of text by its first bytes: such a file may have `MAX_TABLE_BYTES`, others `MAX_BYTES`.
    """
    fault = partial(InputError, file=path, key=None, expected=expected)
    try:
        file = resolve(path)
        if file.exists() and not file.is_file():
            raise fault(found="a folder" if file.is_dir() else "no regular file")
        with file.open("rb") as raw:
            zipped = raw.peek(2)[:2] == _GZIP
            stored = _bounded(raw, path, None if zipped else is_table)
        contents = _bounded(gzip.GzipFile(fileobj=io.BytesIO(stored)), path, is_table) if zipped else stored
    except FileNotFoundError:
        raise fault(found="no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found = "a file that ends early" if isinstance(error, EOFError) else str(error)
        raise fault(key="gzip", expected="a whole gzip file", found=found) from None
    except OSError as error:
        raise fault(found=error.strerror or str(error)) from None
    except ValueError as error:  # an impossible path
        raise fault(file=repr(path), found=str(error)) from None
    if not contents[:100].strip() and not contents.strip():
        raise fault(found="an empty file")
    return InputFile(path, contents, stored)


@contextlib.contextmanager
def unpacked(path: str) -> Iterator[BinaryIO]:
    """Open a file that may be gzipped, or in UTF-16, to be read in pieces."""
    with resolve(path).open("rb") as raw:
        if (first := raw.peek(2)[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            yield cast(BinaryIO, codecs.EncodedFile(raw, "utf-8", "utf-16"))
        else:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if first == _GZIP else raw


def head_of(path: str) -> bytes:
    """Read the first bytes of a file, unpacked; empty if it cannot be read, which its reader then reports."""
    try:
        with unpacked(path) as stream:
            return stream.read(HEAD_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


class Format(NamedTuple):
    """Formats of another package, which registers them as an entry point `buildcompare.formats`."""

    recognise: Callable[[bytes], bool]  # whether a file is of these formats, by its first `HEAD_BYTES` bytes, unpacked
    read: Callable[[str, Catalogue], Recording]  # reads the file of this path
    parts: Callable[[Iterable[str]], set[str]] = lambda _: set()
    """Select, from the names in a folder, files that are read together with another file."""


@cache
def formats() -> tuple[Format, ...]:
    """Formats of all packages that are installed."""
    return tuple(entry.load() for entry in entry_points(group="buildcompare.formats"))


def matching(paths: Iterable[str]) -> list[str]:
    """Expand patterns such as ``run/log.4711.*``, and folders, to files in the order of their names.

    A pattern without a match stays, so that reading it names it.
    """
    expanded: list[str] = []
    for path in paths:
        if not is_remote(path) and "\0" not in path and resolve(path).is_dir():
            path = f"{glob.escape(path)}/*.*"  # noqa: PLW2901
        is_plain = is_remote(path) or "\0" in path or not glob.has_magic(path) or resolve(path).exists()
        fit = [] if is_plain else sorted(glob.glob(str(resolve(path))), key=lambda each: (len(each), each))
        named = [each if Path(path).is_absolute() else str(Path(each).relative_to(root())) for each in fit]
        expanded += named or [path]
    return expanded


def _bounded(stream: io.BufferedReader | gzip.GzipFile, path: str, is_table: Callable[[bytes], bool] | None) -> bytes:
    """Read all of `stream`; one that is longer than the limit of its kind is refused."""
    limit = MAX_TABLE_BYTES if is_table and is_table(stream.peek(HEAD_BYTES)) else MAX_BYTES
    contents = stream.read(limit + 1)
    if len(contents) > limit:
        expected = f"at most {limit // 1_000_000} MB unpacked" + (" (a table)" if limit > MAX_BYTES else "")
        raise InputError(file=path, key="size", expected=expected, found="more")
    return contents


class Curve(NamedTuple):
    """Samples of one name as a file holds them, in any order."""

    name: str
    times: FloatArray
    values: FloatArray
    labels: Mapping[str, str]
    place: Callable[[int], str]  # names the place of a sample by its index


def series_of(
    file: InputFile, curves: Iterable[Curve], catalogue: Catalogue, *, apart: str = "series"
) -> tuple[Series, ...]:
    """Make a series of each curve, in the order of its times, under its metric.

    The label `apart` distinguishes curves of one metric with equal labels.
    """
    series: list[Series] = []
    names: dict[tuple[str, frozenset[tuple[str, str]]], list[str]] = {}
    for name, times, values, labels, place in curves:
        if len(series) == MAX_GRAPHS:
            raise file.fault("metrics", f"at most {MAX_GRAPHS} series to draw", f"{MAX_GRAPHS + 1} or more")
        odd = np.flatnonzero(~((times >= 0.0) & (times < LATEST)))
        if odd.size:
            seen = f"{times[odd[0]]:.12g} of {name}" + (" (milliseconds or finer?)" if times[odd[0]] >= LATEST else "")
            raise file.fault(place(odd[0]), "times in seconds since 1970, before 2200", seen)
        order = np.argsort(times, kind="stable")
        twice = np.flatnonzero(np.diff(times[order]) == 0)
        if twice.size:
            raise file.fault(place(order[twice[0] + 1]), f"one value of {name} at each time", "a second one")
        metric = catalogue.find(name)
        alike = names.setdefault((metric.slug, frozenset(labels.items())), [])
        label = {apart: str(len(alike) + 1) if name in alike else name} if alike else {}
        alike.append(name)
        series.append(Series(metric.slug, name, metric.unit, times[order], values[order], labels={**labels, **label}))
    return tuple(series)


# ---- Units of Grafana, stated by a panel or behind each value -------------------------------------------------------

_SIZES = ("", "k", "m", "g", "t", "p")
_PER_SECOND = ("cps", "eps", "mps", "ops", "reqps", "rps", "wps", "iops", "recps", "rowsps")
_PER_MINUTE = ("cpm", "epm", "mpm", "opm", "reqpm", "rpm", "wpm", "recpm", "rowspm")
UNITS: dict[str, tuple[str, float]] = {
    "ns": ("seconds", 1e-9),
    **dict.fromkeys(("µs", "us"), ("seconds", 1e-6)),
    **dict.fromkeys(("ms", "dtdurationms", "clockms"), ("seconds", 1e-3)),
    "timeticks": ("seconds", 1e-2),
    **dict.fromkeys(("s", "dtdurations", "dthms", "dtdhms", "clocks"), ("seconds", 1.0)),
    "m": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "d": ("seconds", 86400.0),
    "percent": ("percent", 1.0),
    "percentunit": ("percent", 100.0),
    **{f"{size}bytes": ("bytes", 1024.0**i) for i, size in enumerate(_SIZES)},
    **{f"dec{size}bytes": ("bytes", 1e3**i) for i, size in enumerate(_SIZES)},
    **dict.fromkeys(("bits", "decbits"), ("bytes", 0.125)),
    **dict.fromkeys(("Bps", "binBps"), ("bytes/s", 1.0)),
    **{f"{size.upper()}Bs": ("bytes/s", 1e3**i) for i, size in enumerate(_SIZES) if size},
    **{f"{size.upper()}iBs": ("bytes/s", 1024.0**i) for i, size in enumerate(_SIZES) if size},
    **dict.fromkeys(_PER_SECOND, ("events/s", 1.0)),
    **dict.fromkeys(_PER_MINUTE, ("events/s", 1.0 / 60.0)),
}
"""Grafana's unit (its `valueFormats/categories.ts`) -> the quantity it measures, and its size in our unit."""
_PARTS = {"n": 1e-9, "µ": 1e-6, "u": 1e-6, "m": 1e-3, "": 1.0, "μ": 1e-6, "nano": 1e-9, "micro": 1e-6, "milli": 1e-3}
SUFFIXES: dict[str, tuple[str, float]] = {
    **{
        f"{part}{name}": ("seconds", seconds)
        for name in ("s", "sec", "secs", "second", "seconds")
        for part, seconds in _PARTS.items()
    },
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("seconds", 60.0)),
    **dict.fromkeys(("hour", "hours"), ("seconds", 3600.0)),
    **dict.fromkeys(("day", "days"), ("seconds", 86400.0)),
    **dict.fromkeys(("%", "percent", "percentage", "pct"), ("percent", 1.0)),
    **dict.fromkeys(("ratio", "fraction"), ("percent", 100.0)),
    **{f"{size}B{per}": (f"bytes{per}", 1e3**i) for per in ("", "/s") for i, size in enumerate(("", *"kMGT"))},
    **{f"{size}iB{per}": (f"bytes{per}", 1024.0**i) for per in ("", "/s") for i, size in enumerate("KMGT", 1)},
    **dict.fromkeys(("byte", "bytes"), ("bytes", 1.0)),
    **{size: ("", 1e3**i) for i, size in enumerate(("K", "Mil", "Bil", "Tri"), 1)},
    **{
        f"{size} {what}/{per}".strip(): ("events/s", 1e3**i / seconds)
        for i, size in enumerate(("", "K", "M", "B", "T"))
        for what in ("req", "requests", "c", "ops", "rd", "wr", "io", "evt", "mpx", "rec", "rows", "hits", "1", "")
        for per, seconds in (("s", 1.0), ("sec", 1.0), ("second", 1.0), ("min", 60.0), ("m", 60.0), ("minute", 60.0))
    },
    **{name: UNITS[name] for name in (*_PER_SECOND, *_PER_MINUTE)},
}
"""Suffix of a value as Grafana shows and exports it -> its quantity and size; K, Mil, Bil and Tri fit any quantity."""
NO_UNIT = ("", "none", "short", "locale", "sishort", "string", "sci")


def unit_factor(file: InputFile, key: str, stated: str, unit: str, *, is_suffix: bool = False) -> float:
    """Factor from the unit of a panel, or behind a value as in ``12.5 ms``, to the catalogue's `unit`."""
    if stated == unit or (not is_suffix and (stated in NO_UNIT or not unit)):
        return 1.0
    units, (wanted, size) = SUFFIXES if is_suffix else UNITS, SUFFIXES.get(unit) or (_quantity(unit), 1.0)
    quantity, factor = (_suffix(stated) or (None, 1.0)) if is_suffix else UNITS.get(stated, ("", 1.0))
    if quantity == wanted or (is_suffix and quantity is not None and (not quantity or not unit)):
        return factor / size
    fits = ", ".join([name for name, (each, _) in units.items() if each and each == wanted][:10]) or "none"
    of_value, of_panel = f"a number, or one in {unit or 'a known unit'} ({fits})", f"a unit of {unit} ({fits}), or none"
    raise file.fault(key, of_value if is_suffix else of_panel, repr(stated))


def is_unit(text: str, unit: str) -> bool:
    """Whether `text` is the suffix of a value, in a unit that converts to the catalogue's `unit` (if any)."""
    found, wanted = _suffix(text), SUFFIXES.get(unit, (_quantity(unit),))[0]
    return found is not None and (not unit or found[0] == wanted != "")


def _suffix(text: str) -> tuple[str, float] | None:
    return SUFFIXES.get(text) or SUFFIXES.get(text.casefold())  # Seconds, MS; not mb, which are bits


def split_unit(text: str) -> tuple[str, str]:
    """Split a text such as ``P99 API times (ms)`` into name and unit, which is empty if none stands behind."""
    for gap in re.finditer(r"(?:[^\w%/]|_)+|(?=[%/])", text if len(text) < LONGEST_NAME else ""):
        rest = re.sub(r"^(?:in|unit)(?:[^\w%]|_)+|[^\w%]+$", "", text[gap.end() :])
        for unit in (rest, rest.removeprefix("/")):
            if gap.start() and is_unit(unit, ""):
                return text[: gap.start()], unit
    return text, ""


def _quantity(unit: str) -> str:
    """Quantity of a unit of the catalogue, among those that Grafana's units measure; empty for counts."""
    usual = {"percent of one core": "percent"}.get(unit, unit)
    counted = "events/s" if unit.endswith("/s") else ""
    return usual if usual in {quantity for quantity, _ in UNITS.values()} else counted
