"""Profiles whose size says little of what they hold are read, or refused, within 200 MB and 2 CPU seconds."""

import contextlib
import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from buildcompare.config.errors import InputError
from buildcompare.profiles.stacks import read_profile

MOST_MB, MOST_S, LARGEST = 200.0, 2.0, 32_000_000
HEAD = b"\x0a\x04\x08\x01\x10\x02" + b"\x32\x00\x32\x03cpu\x32\x02ns\x32\x04main" + b"\x2a\x04\x08\x01\x10\x03"


def varint(value: int) -> bytes:
    low = bytes([value & 0x7F | 0x80 * (value > 0x7F)])
    return low + varint(value >> 7) if value > 0x7F else low


def message(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def location(number: int, lines: int) -> bytes:
    return message(4, b"\x08" + varint(number) + message(4, b"\x08\x01") * lines)


def sample(*locations: int, times: int = 1) -> bytes:
    """A sample of these locations, so many times over."""
    return message(2, message(1, b"".join(map(varint, locations)) * times) + message(2, b"\x01"))


def repeated(part: Callable[[int], bytes], most: int, start: bytes = b"") -> bytes:
    """As many parts as a file may hold, at most `most`."""
    parts, size = [start], len(start)
    for i in range(most):
        parts.append(part(i + 1))
        size += len(parts[-1])
        if size > LARGEST:
            return b"".join(parts[:-1])
    return b"".join(parts)


SHAPES: dict[str, Callable[[random.Random], bytes]] = {
    "one location of many lines, many times": lambda rng: (
        HEAD + location(1, rng.randint(500, 20_000)) + sample(1, times=rng.randint(500, 20_000))
    ),
    "one deep location in many samples": lambda rng: (
        HEAD + location(1, rng.randint(100, 1000)) + sample(1) * rng.choice((1000, 1_000_000))
    ),
    "one deep location in many different stacks": lambda rng: repeated(
        lambda i: location(i, 1) + sample(10**6, i), rng.choice((3000, 60_000)), HEAD + location(10**6, 900)
    ),
    "long samples": lambda rng: HEAD + location(1, 1) + sample(1, times=rng.randint(10**6, 3 * 10**7)),
    "long samples, not packed": lambda rng: HEAD + location(1, 1) + (
        message(2, b"\x08\x01" * rng.randint(10**5, 10**7) + message(2, b"\x01"))
    ),
    "many samples": lambda rng: HEAD + location(1, 1) + sample(1) * rng.randint(10**5, 3 * 10**6),
    "many texts": lambda rng: HEAD + b"\x32\x02aa" * rng.randint(10**5, 8 * 10**6) + location(1, 1) + sample(1),
    "many empty fields": lambda rng: HEAD + b"\x1a\x00" * rng.randint(10**6, 15 * 10**6) + location(1, 1) + sample(1),
    "many fields of a location": lambda rng: HEAD + message(4, b"\x08\x01" * rng.randint(10**6, 15 * 10**6)),
    "different stacks": lambda rng: repeated(lambda i: b"main;f%d;g 1\n" % i, rng.choice((150_000, 2_000_000))),
    "one stack": lambda rng: b"main;f (a.py:1);g 1\n" * rng.randint(10**5, 16 * 10**5),
    "deep stacks": lambda rng: repeated(lambda i: b"f;" * rng.randint(500, 1000) + b"%d 1\n" % i, 50_000),
    "one line": lambda rng: b";" * rng.randint(10**6, 31 * 10**6) + b" 1\n",
    "names of one letter": lambda rng: repeated(lambda i: b"%d;%d (a:%d) 1\n" % (i, -i, i), 190_000),
}  # fmt: skip


def taken(file: Path, pipe: object) -> None:
    """Send the CPU seconds and MB that reading takes on top of what the process has."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with contextlib.suppress(InputError):
        read_profile(str(file))
    mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    pipe.send((time.process_time() - started, mb))  # type: ignore[attr-defined]


def cost(contents: bytes, folder: Path) -> tuple[float, float]:
    """CPU seconds and MB of reading, in a process of its own."""
    file = folder / "x.profile"
    file.write_bytes(contents)
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(target=taken, args=(file, there))
    process.start()
    found: tuple[float, float] = here.recv()
    process.join()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_small_file_takes_little(shape: str, tmp_path: Path) -> None:
    cpu_s, mb = cost(SHAPES[shape](random.Random(shape)), tmp_path)
    assert cpu_s < MOST_S
    assert mb < MOST_MB
