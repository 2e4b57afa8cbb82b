"""Read a profile: folded stacks (perf's stackcollapse, async-profiler, ``py-spy record -f raw``) or pprof."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buildcompare.config.outside import shown
from buildcompare.recordings.files import InputFile, read_input

EXPECTED = "a profile: folded stacks, or pprof"
MAX_DEPTH = 1_000
"""Frames of one stack; profilers cut theirs far below."""
_FOLDED = re.compile(r"(.*\S) (\d{1,18})")
_LINE = re.compile(r":\d+(?=\)$)")
"""Line number in py-spy's ``name (file.py:12)``, dropped as it shifts with every edit above it."""

Stack = tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """Weights of the stacks of one run."""

    stacks: Mapping[Stack, float]
    """Weight by stack, the outermost frame first; weights above 0, at least one."""
    samples: float
    """Number of samples; fewer than the sum of weights where weights are times."""
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """Sum over all stacks."""
        return sum(self.stacks.values())


def read_profile(path: str) -> Profile:
    """Read one profile, possibly gzipped; :class:`~buildcompare.config.errors.InputError` for other contents.

    Parameters
    ----------
    path
        A file of folded stacks or of pprof, relative to the project's root.
    """
    file = read_input(path, expected=EXPECTED)
    stacks, samples = _folded(file) if _is_text(file.contents) else _pprof(file)
    if not stacks:
        raise file.fault(None, EXPECTED, "no samples")
    return Profile(stacks, samples, file.provenance)


def _is_text(contents: bytes) -> bool:
    """Whether contents are text: the first fields of a profile's protobuf have bytes below the space."""
    return not any(byte < 9 for byte in contents[:200])


def _folded(file: InputFile) -> tuple[dict[Stack, float], float]:
    stacks: dict[Stack, float] = defaultdict(float)
    for number, line in enumerate(file.contents.decode("utf-8", "replace").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _FOLDED.fullmatch(line.rstrip())
        if found is None:
            expected = "frames joined by ';', a space and a whole number"
            raise file.fault(f"line {number}", expected, repr(line[:60]))
        stack = tuple(shown(_LINE.sub("", frame)) for frame in found[1].split(";") if frame)
        if len(stack) > MAX_DEPTH:
            raise file.fault(f"line {number}", f"at most {MAX_DEPTH:,} frames in a stack", f"{len(stack):,}")
        if stack and int(found[2]):
            stacks[stack] += int(found[2])
    return dict(stacks), sum(stacks.values())


# ---- pprof: https://github.com/google/pprof/blob/main/proto/profile.proto -------------------------------------------


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Parse the number at a place; return it and the place after it."""
    value = shift = 0
    while shift < 64:
        byte = data[place]
        place, value, shift = place + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise ValueError("a number of more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message: an integer, or bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size, place = _varint(data, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
        if place + size > len(data):
            raise ValueError("a field beyond the end")
        yield key >> 3, data[place : place + size]
        place += size


def _numbers(values: Sequence[Any]) -> list[int]:
    """Parse a repeated signed number, packed or not."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            found.append(number)
    return [value - (1 << 64) if value >> 63 else value for value in found]


def _message(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for number, value in _fields(data):
        found[number].append(value)
    return found


def _pprof(file: InputFile) -> tuple[dict[Stack, float], float]:
    try:
        return _stacks(_message(file.contents))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        found = str(error) if type(error) is ValueError else "bytes that are neither"
        raise file.fault(None, EXPECTED, found) from None


def _stacks(profile: dict[int, list[Any]]) -> tuple[dict[Stack, float], float]:
    """Return the stacks, weighted by pprof's default sample type, and the number of samples."""
    texts = [shown(text.decode("utf-8", "replace")) for text in profile[6]]

    def one(message: dict[int, list[Any]], number: int) -> int:
        return int(message[number][-1]) if message[number] else 0

    kinds = [(texts[one(kind, 1)], texts[one(kind, 2)]) for kind in map(_message, profile[1])]
    default = texts[one(profile, 14)]
    chosen = next((i for i, (name, _) in enumerate(kinds) if name == default and default), len(kinds) - 1)
    counted = next((i for i, (_, unit) in enumerate(kinds) if unit == "count"), chosen)
    names = {one(function, 1): texts[one(function, 2)] for function in map(_message, profile[5])}
    frames: dict[int, list[str]] = {}
    for location in map(_message, profile[4]):  # of inlined functions the innermost first
        lines = [names[one(line, 1)] for line in map(_message, location[4])]
        frames[one(location, 1)] = [name or "?" for name in lines] or [f"{one(location, 3):#x}"]
    stacks: dict[Stack, float] = defaultdict(float)
    samples = 0
    for sample in map(_message, profile[2]):
        values = _numbers(sample[2])
        if min(values) < 0:
            raise ValueError("values below 0, as the difference of two profiles has")
        stack = tuple(reversed([name for location in _numbers(sample[1]) for name in frames[location]]))
        if len(stack) > MAX_DEPTH:
            raise ValueError(f"a stack of {len(stack):,} frames")
        if stack and values[chosen]:
            stacks[stack] += values[chosen]
            samples += values[counted]
    return dict(stacks), float(samples)
