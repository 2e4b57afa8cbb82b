"""Comparisons to test with: params for the real data, and small recordings whose truth is in the call."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from buildcompare.__main__ import app
from buildcompare.comparison import analysis, reading
from buildcompare.config.params import check_params
from buildcompare.config.yaml import yaml_text
from buildcompare.history.ledger import read_ledger

T = TypeVar("T")
REPORTED = {
    ("v10.4", "mysql_unbounded"): (7097, 7126),
    ("v10.4", "postgresql_unbounded"): (6537, 6934),
    ("v11.1", "postgresql_unbounded"): (16997, 16378),
    ("v9.6", "mysql_unbounded"): (9230, 9219),
    ("v9.6", "postgresql_unbounded"): (11330, 11292),
}
"""Supported users that the seeds report, base and new."""


def sure(found: T | None) -> T:
    assert found is not None
    return found


def test_folders(real: Path) -> list[Path]:
    return sorted(path for path in (real / "comparisons").glob("*/*_*bounded") if path.is_dir())


test_folders.__test__ = False  # type: ignore[attr-defined]  # not a test


def real_params(real: Path, release: str, base: str, new: str, **more: Any) -> dict[str, Any]:
    tests = []
    for folder in sorted((real / "comparisons" / release).iterdir()):
        db, kind = folder.name.split("_")
        runs: dict[str, dict[str, Any]] = {}
        for i, side in enumerate(("base", "new")):
            runs[side] = {"recording": str(folder / f"{side}.csv.gz"), "labels": str(folder / f"{side}.labels.csv.gz")}
            if (release, folder.name) in REPORTED:
                runs[side]["supported_users"] = REPORTED[release, folder.name][i]
        tests.append({"name": folder.name, "type": kind, "db_engine": db, **runs})
    return {"base": {"label": base}, "new": {"label": new}, "source": {"kind": "recorded"}, "tests": tests, **more}


def published_params(real: Path, release: str, ledger: Path) -> dict[str, Any]:
    """Params of one published comparison with all that the table of releases knows of it, held against `ledger`."""
    table = pd.read_csv(real / "comparisons/history.csv")
    rows = {f"{row.db}_{row.test_type}": row for row in table[table["release"] == release].itertuples()}
    first = next(iter(rows.values()))
    setup = next(entry.setup for entry in read_ledger(ledger).entries if entry.name == release)
    params = real_params(real, release, str(first.readme_base), str(first.readme_new), name=release, setup=setup)
    for test in params["tests"]:
        row = rows[test["name"]]
        if test["type"] == "bounded":
            test["users"] = int(row.users)  # type: ignore[arg-type]
        for side in ("base", "new"):
            test[side]["errors"] = int(getattr(row, f"errors_{side}"))
            if test["type"] == "unbounded":
                test[side]["supported_users"] = int(getattr(row, f"su_{side}"))
    return {**params, "history": str(ledger)}


CHANGES = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}


def killed_at(step: int, work: Callable[[], None]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads: this one only works on files
        child = os.fork()
    if not child:
        left = step

        def count(event: str, _: object) -> None:
            nonlocal left
            left -= event in CHANGES
            if event in CHANGES and not left:
                os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            sys.addaudithook(count)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), "the work failed"
    return os.WIFSIGNALED(status)


def command(*arguments: object, **environment: str | None) -> Result:
    return CliRunner(env=environment).invoke(app, [str(each) for each in arguments])


def refused(*arguments: object, **environment: str | None) -> str:
    done = command(*arguments, **environment)
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.output
    return done.stderr


def analysed(params: Mapping[str, Any]) -> analysis.Analysis:
    checked = check_params(params)
    return analysis.analyse(checked, reading.read_recordings(checked))


def write_params(file: Path, params: Mapping[str, Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml_text(dict(params)), "utf-8")
    return file


def users_curve(plateau: float, *, ramp_s: float, hold_s: float, step_s: float = 5.0, shutdown: int = 0) -> np.ndarray:
    elapsed = np.arange(0.0, ramp_s + hold_s + step_s / 2, step_s)
    values = plateau * np.minimum(elapsed / ramp_s, 1.0)
    fall = plateau * np.linspace(0.8, 0.1, shutdown) if shutdown else np.empty(0)
    return np.concatenate([values, fall])


def csv_text(metrics: Mapping[str, np.ndarray], *, step_s: float = 5.0) -> str:
    frames = []
    for name, values in metrics.items():
        elapsed = pd.to_timedelta(np.arange(len(values)) * step_s, unit="s")
        times = (pd.Timestamp("2024-01-01") + elapsed).strftime("%Y-%m-%dT%H:%M:%SZ")
        frames.append(pd.DataFrame({"timestamp": times, "metric": name, "value": values}))
    return pd.concat(frames).to_csv(index=False)


def write_csv(file: Path, metrics: Mapping[str, np.ndarray], *, step_s: float = 5.0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(csv_text(metrics, step_s=step_s), "utf-8")
    return file


@cache
def small_tables() -> dict[str, str]:
    rng = np.random.default_rng(7)
    tables = {}
    for kind, ramp_s in (("bounded", 600.0), ("unbounded", 1500.0)):
        for side, level, length in (("base", 0.010, 2400.0), ("new", 0.011, 2700.0)):
            users = users_curve(1000.0, ramp_s=ramp_s, hold_s=length, shutdown=6)
            noise = partial(rng.normal, 0.0, size=users.size)
            tables[f"{kind}-{side}"] = csv_text(
                {
                    "number-of-connected-devices": users,
                    "avg-api-times": level + noise(1e-4),
                    "rps": users / 10 + noise(0.5),
                }
            )
    return tables


def small_params(folder: Path, **more: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    tests = []
    for kind in ("bounded", "unbounded"):
        runs = {}
        for side, level in (("base", 0.010), ("new", 0.011)):
            file = folder / f"{kind}-{side}.csv"
            file.write_text(small_tables()[f"{kind}-{side}"], "utf-8")
            labels = folder / f"{kind}-{side}.labels.csv"
            labels.write_text(f"group,label,stat,value\napi,getPost,avg,{level}\napi,getPost,p99,{level * 10}\n")
            runs[side] = {"recording": str(file), "labels": str(labels)}
        target = 1000 if kind == "bounded" else 20_000  # of an unbounded test a ceiling that is out of reach
        tests.append({"name": f"postgresql_{kind}", "type": kind, "db_engine": "postgresql", "users": target, **runs})
    return {
        "name": "small", "base": {"label": "v1.0.0"}, "new": {"label": "v1.1.0"}, "source": {"kind": "recorded"},
        "tests": tests, **more,
    }  # fmt: skip


def in_a_terminal(*arguments: object) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    command = [sys.executable, "-m", "buildcompare", *map(str, arguments)]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment = {**kept, "TERM": "xterm-256color"}
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while more := os.read(ours, 4096):
                seen += more
    os.close(ours)
    return int(process.returncode), seen.decode("utf-8", "replace")


def yaml_data(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)
