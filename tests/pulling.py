"""What the tests of pulls ask for, and how they hold the answer against the server."""

import datetime as dt
import json
import struct
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.params import Run, Source
from buildcompare.recordings.recording import Series
from prometheus_server import BASE_START, LENGTH_S, NEW_START, Prometheus

TOKEN = "t0ken-of-nobody"


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def run(start: float = BASE_START, end: float = BASE_START + LENGTH_S, **more: Any) -> Run:
    return Run(start=at(start), end=at(end), **more)


def source(url: str, **more: Any) -> Source:
    return Source.model_validate({"kind": "prometheus", "url": url, **more})


def catalogue(*queries: str) -> Catalogue:
    return Catalogue.model_validate(
        {"metrics": [{"name": q[:200], "slug": f"m{i}", "query": q} for i, q in enumerate(queries)]}
    )


def raw(url: str, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
    parameters = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": step, "nocache": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{parameters}", timeout=30) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def bits(values: np.ndarray) -> list[bytes]:
    return [b"nan" if np.isnan(value) else struct.pack("<d", value) for value in values]


def same(series: Series, row: Mapping[str, Any]) -> bool:
    times, values = (np.array([float(pair[i]) for pair in row["values"]]) for i in (0, 1))
    return bits(series.times) == bits(times) and bits(series.values) == bits(values)


@pytest.fixture(scope="session")
def mattermost() -> Catalogue:
    return read_catalogue("mattermost")


@pytest.fixture(scope="session")
def pulled(prometheus: Prometheus, mattermost: Catalogue) -> dict[str, bc.Recording]:
    starts = {"base": BASE_START, "new": NEW_START}
    return {
        side: bc.pull(prometheus.url, at(start), at(start + LENGTH_S), catalogue=mattermost)
        for side, start in starts.items()
    }


def params(url: str, **source: Any) -> dict[str, Any]:
    starts = {"base": BASE_START, "new": NEW_START}
    runs = {s: {"start": at(t).isoformat(), "end": at(t + LENGTH_S).isoformat()} for s, t in starts.items()}
    test = {"name": "postgresql_bounded", "type": "bounded", "db_engine": "postgresql", **runs}
    source = {"kind": "prometheus", "url": url, **source}
    return {"name": "pulled", "base": {"label": "a"}, "new": {"label": "b"}, "source": source, "tests": [test]}
