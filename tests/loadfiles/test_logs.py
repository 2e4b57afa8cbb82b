"""Logs of JSON lines: messages are labels, counted by minute, with numbers masked and secrets hidden."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.findings.verdict import opening
from loadfiles.logs import masked


def log(file: Path, rates: dict[str, float], seed: int, seconds: int = 900, users: int = 0) -> Path:
    rng, lines = np.random.default_rng(seed), list[tuple[float, str]]()
    for message, rate in rates.items():
        times = 1.76e9 + rng.uniform(0, seconds, rng.poisson(rate * seconds))
        lines += [(float(at), message.format(rng.integers(1e6))) for at in times]
    of = [{"user_id": f"u{i % users}"} if users else {} for i in range(len(lines))]
    every = zip(sorted(lines), of, strict=True)
    text = "".join(json.dumps({"ts": at, "msg": message, **user}) + "\n" for (at, message), user in every)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text + "Traceback: no JSON\n", "utf-8")
    return file


def test_messages_that_changed_came_and_went_are_named(tmp_path: Path) -> None:
    base = {"request {} done": 2.0, "Invalid submitPerformanceReport": 1.0, "retry {}": 0.5, "old": 0.2}
    new = {**base, "Invalid submitPerformanceReport": 2.0, "slow query took {} ms": 0.3, "old": 0.0}
    for run in range(3):
        log(tmp_path / f"base/{run}.log", base, run)
        log(tmp_path / f"new/{run}.log", new, 10 + run)
    result = bc.compare(tmp_path / "base", tmp_path / "new")
    rows = result.labels.set_index("label")
    counted = sum(
        "Invalid" in line for run in range(3) for line in (tmp_path / f"base/{run}.log").read_text().splitlines()
    )
    assert rows.loc["Invalid submitPerformanceReport", "base"] == pytest.approx(counted / 45.0, rel=0.1)
    assert rows.loc["Invalid submitPerformanceReport", "status"] == "regression"
    assert rows.loc["request # done", "status"] != "regression"
    assert (rows.loc["slow query took # ms", "only_in"], rows.loc["old", "only_in"]) == ("new", "base")
    texts = "\n".join(result.findings["text"])
    assert re.search(
        r"Invalid submitPerformanceReport\W+of new is logged 1[\d.]+ per minute instead of [\d.]+ per minute", texts
    )
    assert re.search(r"(?i)only new has 1 label: \W?slow query took # ms\W+logs, [\d.]+ per minute", texts)


def test_messages_of_twice_the_users_are_compared_by_user_and_minute(tmp_path: Path) -> None:
    rates = {"Invalid submitPerformanceReport": 2.0, "retry {}": 1.0, "saved": 4.0}
    for run in range(3):
        log(tmp_path / f"base/{run}.log", rates, run, users=20)
        more = {message: 2 * rate for message, rate in rates.items()} | {"saved": 16.0}
        log(tmp_path / f"new/{run}.log", more, 10 + run, users=40)
    result = bc.compare(tmp_path / "base", tmp_path / "new")
    assert "saved is logged more (+1" in opening(result.results).sentence
    rows = result.labels.set_index("label")
    assert set(rows["group"]) == {"logs by user"}
    assert rows.loc["Invalid submitPerformanceReport", ["base", "new"]].tolist() == pytest.approx([6.0, 6.0], rel=0.05)
    assert rows["status"].to_dict()["retry #"] != "regression"
    assert rows.loc["saved", "status"] == "regression"


def test_what_differs_is_masked_and_secrets_are_hidden() -> None:
    shown = {
        "user 42 took 1.5 s": "user # took # s",
        "post 0b5c7a2e-11ee-4c3d-9f3e-2b1d5a6c7d8e of kx7gq5tdbbyf9mo1w4zq8nuyhr": "post {id} of {id}",
        'login {"password": "hunter2", "a": 1}': 'login {"password": {secret}, "a": #}',
        "Authorization: Bearer eyJhbGciOi.x.y ok": "Authorization: {secret} ok",
        "sent bearer abc and api_key=abc": "sent bearer {secret} and api_key={secret}",
        "postgres://me:hunter2@db/x for a.b@c.org": "postgres://{address}@db/x for {address}",
    }
    assert {message: masked(message) for message in shown} == shown


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00.5Z", 1.76e9, 1_760_000_000_500, 1_760_000_000_500_000_000])
def test_times_are_read_in_every_unit(time: float | str, tmp_path: Path) -> None:
    later = time[:17] + "40.5Z" if isinstance(time, str) else time * (1 + 40 / 1.76e9)
    lines = ({"time": at, "message": "x"} for at in (time, later))
    (tmp_path / "a.log").write_text("".join(json.dumps(each) + "\n" for each in lines))
    read = bc.read(tmp_path / "a.log")
    assert read.duration_s == pytest.approx(40.0, abs=0.01)
    assert read.series[0].values[0] == 6.0
