"""Every reader takes any bytes: a recording or one line of an error, never a traceback, an abort or a hang.

`make fuzz` does it for hours and adds each input that breaks a reader to tests/corpus, which is read again here.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzzing

KINDS = ("answer", "csv", "grafana", "ltctl", "ours", "params", "parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fuzzing.right(tmp_path_factory.mktemp("right"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_whatever_stands_in_a_file(kind: str, whole: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    tries = 2 if kind == "parquet" else 8  # each of the others' Parquet files takes a process
    for _ in range(tries // 2):
        seed = data.draw(st.integers(0, 2**32 - 1))
        fuzzing.swallow(kind, fuzzing.changed(whole[kind], random.Random(seed)), tmp_path)


@pytest.mark.parametrize("file", sorted(fuzzing.CORPUS.iterdir()), ids=lambda file: file.name)
def test_what_once_broke_a_reader(file: Path, tmp_path: Path) -> None:
    fuzzing.swallow(file.name.partition("-")[0], file.read_bytes(), tmp_path)
