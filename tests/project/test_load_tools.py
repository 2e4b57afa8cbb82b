"""The functions of docs/load-tools.md read what k6, JMeter and Locust write, and builds are compared by them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

START, RAMP_S, LENGTH_S, USERS = 1_733_911_200, 120, 1500, 40


def requests(seed: int, slower: float, failed: float) -> pd.DataFrame:
    """Requests of a run whose users come during the ramp: when, how many milliseconds, and whether it went well."""
    rng = np.random.default_rng(seed)
    second = np.repeat(np.arange(LENGTH_S), rng.poisson(np.minimum(np.arange(LENGTH_S) / RAMP_S, 1.0) * 20))
    run = np.exp(rng.normal(0.0, 0.01))
    ms = run * slower * rng.lognormal(np.log(80.0), 0.4, second.size)
    return pd.DataFrame({"second": second, "ms": ms, "success": rng.random(second.size) >= failed})


def users() -> pd.Series:
    return pd.Series(np.ceil(np.minimum(np.arange(LENGTH_S) / RAMP_S, 1.0) * USERS))


def of_k6(file: Path, run: pd.DataFrame) -> None:
    """Rows of metrics, of which a request has several."""
    at = START + run["second"]
    parts = [
        pd.DataFrame({"metric_name": "http_req_duration", "timestamp": at, "metric_value": run["ms"]}),
        pd.DataFrame({"metric_name": "http_req_failed", "timestamp": at, "metric_value": 1.0 * ~run["success"]}),
        pd.DataFrame({"metric_name": "http_reqs", "timestamp": at, "metric_value": 1.0}),
        pd.DataFrame({"metric_name": "vus", "timestamp": START + np.arange(LENGTH_S), "metric_value": users()}),
    ]
    pd.concat(parts).assign(method="GET", status="", url="http://x/", extra_tags="").to_csv(file, index=False)


def of_jmeter(file: Path, run: pd.DataFrame) -> None:
    """A row for each request."""
    rows = {
        "timeStamp": 1000 * (START + run["second"]),
        "elapsed": run["ms"].round().astype(int),
        "label": "GET /",
        "responseCode": np.where(run["success"], "200", "500"),
        "success": np.where(run["success"], "true", "false"),
        "allThreads": users()[run["second"]].astype(int).to_numpy(),
    }
    pd.DataFrame(rows).to_csv(file, index=False)


def of_locust(file: Path, run: pd.DataFrame) -> None:
    """Statistics of the last ten seconds, each second, of a page and of all; N/A before the first request."""
    rows = []
    for second in range(1, LENGTH_S):
        last = run[(run["second"] > second - 10) & (run["second"] <= second)]
        some: dict[str, Any] = {"Timestamp": START + second, "User Count": int(users()[second])}
        some |= {"Requests/s": len(last) / 10, "Failures/s": int((~last["success"]).sum()) / 10}
        some |= {f"{p}%": round(last["ms"].quantile(p / 100)) if len(last) else "N/A" for p in (50, 99)}
        rows += [{**some, "Type": kind, "Name": name} for kind, name in (("GET", "/"), ("", "Aggregated"))]
    pd.DataFrame(rows).to_csv(file, index=False)


@pytest.fixture(scope="module")
def functions(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (project / "docs/load-tools.md").read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, found)
    return found


@pytest.mark.parametrize("write", [of_k6, of_jmeter, of_locust])
def test_builds_are_compared_by_the_files_of_a_load_generator(
    write: Callable[[Path, pd.DataFrame], None], functions: dict[str, Any], tmp_path: Path
) -> None:
    read = functions[write.__name__.removeprefix("of_")]
    builds = {"base": (1.0, 0.0), "same": (1.0, 0.0), "slower": (1.6, 0.0), "failing": (1.0, 0.05)}
    files: dict[str, list[Path]] = {}
    for i, (name, about) in enumerate(builds.items()):
        files[name] = [tmp_path / f"{name}-{run}.csv" for run in range(3)]
        for run, file in enumerate(files[name]):
            write(file, requests(10 * i + run, *about))
    found = {
        name: functions["compare"](read, files["base"], files[name], USERS) for name in (*builds,) if name != "base"
    }
    levels = found["slower"].metrics.set_index("name")
    assert levels.loc["Response time", "delta_percent"] == pytest.approx(60.0, abs=5.0)
    assert levels.loc["Requests", "base"] == pytest.approx(20.0, rel=0.02)
    assert {name: result.verdict for name, result in found.items()} == {
        "same": "pass",
        "slower": "regression",
        "failing": "regression",
    }
