"""Read a profile: folded stacks (perf's stackcollapse, async-profiler, ``py-spy record -f raw``) or pprof."""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import intern
from typing import Any

from buildcompare.config.errors import InputError
from buildcompare.config.outside import shown
from buildcompare.recordings.files import InputFile, read_input

EXPECTED = "a profile: folded stacks, or pprof"
MAX_DEPTH, MAX_STACKS, MAX_FRAMES, MAX_FIELDS = 1_000, 200_000, 2_000_000, 1_000_000
"""Maximum numbers of frames in a stack, of different stacks, of frames in all stacks, and of fields in a pprof file."""
_LINE = re.compile(r":\d+(?=\)(?:;|$))")
"""Line number in py-spy's ``name (file.py:12)``; it is removed because every edit above the line changes it."""

Stack = tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """Weights of the stacks of one run."""

    stacks: Mapping[Stack, float]
    """Weight of each stack, which starts with the outermost frame. There is at least one stack; weights are above 0."""
    samples: float
    """Number of samples; it differs from the sum of weights if weights are durations."""
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """Sum of the weights of all stacks."""
        return sum(self.stacks.values())


def read_profile(path: str) -> Profile:
    """Read one profile, possibly gzipped; other contents raise :class:`~buildcompare.config.errors.InputError`.

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
    """Whether contents are text: a protobuf has bytes below 9 (control characters) near its start."""
    return not any(byte < 9 for byte in contents[:200])


def _folded(file: InputFile) -> tuple[dict[Stack, float], float]:
    def fault(line: bytes, expected: str, found: str) -> InputError:
        number = file.contents[: file.contents.find(line)].count(b"\n") + 1
        return file.fault(f"line {number}", expected, found)

    lines, stream = Counter[bytes](), io.BytesIO(file.contents.removeprefix(b"\xef\xbb\xbf"))
    while chunk := stream.readlines(1_000_000):
        lines.update(chunk)
        if len(lines) > MAX_STACKS:
            raise file.fault("stacks", f"at most {MAX_STACKS:,} different ones", "more")
    weights: dict[bytes, int] = defaultdict(int)
    frames = 0
    for line, times in lines.items():
        stack, _, weight = line.strip().rpartition(b" ")
        if stack[:1] == b"#" or not weight:
            continue
        two = b";" in stack and stack.rpartition(b" ")[2].isdigit()  # a diff of two profiles has two counts
        if two or not (stack and weight.isdigit() and len(weight) <= 18):
            expected = "frames joined by ';', a space and a whole number"
            raise fault(line, expected, repr(line[:60].decode("utf-8", "replace").strip()))
        depth = stack.count(b";") + 1
        frames += depth
        if depth > MAX_DEPTH or frames > MAX_FRAMES:
            most, found = (MAX_DEPTH, depth) if depth > MAX_DEPTH else (MAX_FRAMES, frames)
            expected = f"at most {most:,} frames in {'a stack' if depth > MAX_DEPTH else 'all stacks'}"
            raise fault(line, expected, f"{found:,}")
        weights[stack] += int(weight) * times

    stacks: dict[Stack, float] = defaultdict(float)
    for text, count in weights.items():
        names = _LINE.sub("", shown(text.decode("utf-8", "replace"))).split(";")
        if count and (stack_of_names := tuple(intern(name) for name in names if name)):
            stacks[stack_of_names] += count
    return dict(stacks), sum(stacks.values())


# ---- pprof: https://github.com/google/pprof/blob/main/proto/profile.proto -------------------------------------------


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Parse the number that starts at `place`; return the number and the place after its last byte."""
    value = shift = 0
    while shift < 64:
        byte = data[place]
        place, value, shift = place + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise ValueError("a number of more than 64 bits")


def _numbers(values: Sequence[Any]) -> list[int]:
    """Decode the signed integers of a repeated protobuf field, given as numbers or packed into bytes."""
    numbers: list[int] = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            numbers.append(number)
            if len(numbers) > MAX_DEPTH:
                raise ValueError(f"more than {MAX_DEPTH:,} numbers of a sample")
    return [value - (1 << 64) if value >> 63 else value for value in numbers]


def _message(data: bytes, budget: Iterator[int]) -> dict[int, list[Any]]:
    """Parse a message: map each field number to values (integers or bytes); `budget` limits the number of fields."""
    fields: dict[int, list[Any]] = defaultdict(list)
    place, end = 0, len(data)
    for _ in budget:
        if place == end:
            return fields
        key, place = _varint(data, place)
        value: Any
        if key & 7 == 0:
            value, place = _varint(data, place)
        else:
            size, place = _varint(data, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            value = data[place : place + size]
            place += size
            if place > end:
                raise ValueError("a field beyond the end")
        fields[key >> 3].append(value)
    raise ValueError(f"more than {MAX_FIELDS:,} fields")


def _pprof(file: InputFile) -> tuple[dict[Stack, float], float]:
    try:
        return _stacks(file.contents, partial(_message, budget=iter(range(MAX_FIELDS))))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        found = str(error) if type(error) is ValueError else "bytes that are neither"
        raise file.fault(None, EXPECTED, found) from None


def _stacks(data: bytes, parse: Callable[[bytes], dict[int, list[Any]]]) -> tuple[dict[Stack, float], float]:
    """Return the stacks, weighted by pprof's default sample type, and the number of samples."""
    profile = parse(data)
    texts = [shown(text.decode("utf-8", "replace")) for text in profile[6]]

    def one(message: dict[int, list[Any]], number: int) -> int:
        return int(message[number][-1]) if message[number] else 0

    kinds = [(texts[one(kind, 1)], texts[one(kind, 2)]) for kind in map(parse, profile[1])]
    default = texts[one(profile, 14)]
    chosen = next((i for i, (name, _) in enumerate(kinds) if name == default and default), len(kinds) - 1)
    counted = next((i for i, (_, unit) in enumerate(kinds) if unit == "count"), chosen)
    names = {one(function, 1): texts[one(function, 2)] for function in map(parse, profile[5])}
    frames: dict[int, list[str]] = {}
    for location in map(parse, profile[4]):  # a location lists its innermost inlined function first
        lines = [names[one(line, 1)] for line in map(parse, location[4])]
        frames[one(location, 1)] = [name or "?" for name in lines] or [f"{one(location, 3):#x}"]
    weights: dict[tuple[Any, ...], int] = defaultdict(int)
    samples = 0
    for sample in map(parse, profile[2]):
        values = _numbers(sample[2])
        if min(values) < 0:
            raise ValueError("values below 0, as the difference of two profiles has")
        if sample[1] and values[chosen]:
            weights[tuple(sample[1])] += values[chosen]
            samples += values[counted]
    stacks: dict[Stack, float] = defaultdict(float)
    written = 0
    for packed, weight in weights.items():  # look up the names of each different stack
        locations = [frames[each] for each in _numbers(packed)]
        depth = sum(map(len, locations))
        written += depth
        if depth > MAX_DEPTH or len(stacks) == MAX_STACKS or written > MAX_FRAMES:
            raise ValueError(
                f"more than {MAX_DEPTH:,} frames in a stack, {MAX_STACKS:,} stacks or {MAX_FRAMES:,} frames"
            )
        stacks[tuple(reversed([name for names in locations for name in names]))] += weight
    return dict(stacks), float(samples)
