"""Every reader takes any bytes: what is in them or one line of an error, never a traceback, an abort or a hang.

`make fuzz` does it for hours and adds each input that breaks a reader to tests/corpus, which is read again here.
"""

import random
from pathlib import Path

import pytest

import fuzzing


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    return fuzzing.right(tmp_path_factory.mktemp("right"))


@pytest.mark.parametrize("kind", fuzzing.READERS)
def test_what_is_right_is_read(kind: str, whole: dict[str, list[bytes]], tmp_path: Path) -> None:
    """Else the fuzzer would only ever see an error's first line."""
    refused = fuzzing.seed("answer-refused")
    for i, contents in enumerate(each for each in whole[kind] if each != refused):
        path = tmp_path / (f"x{i}.yaml" if kind in fuzzing.YAML else f"x{i}")
        path.write_bytes(contents)
        fuzzing.READERS[kind](path, contents)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzzing.READERS)
def test_whatever_stands_in_a_file(kind: str, whole: dict[str, list[bytes]], tmp_path: Path) -> None:
    rng = random.Random(kind)
    for _ in range(20):
        fuzzing.swallow(kind, fuzzing.changed(rng.choice(whole[kind]), rng), tmp_path)


@pytest.mark.parametrize("file", sorted(fuzzing.CORPUS.iterdir()), ids=lambda file: file.name)
def test_what_once_broke_a_reader(file: Path, tmp_path: Path) -> None:
    fuzzing.swallow(file.name.partition("-")[0], file.read_bytes(), tmp_path)
