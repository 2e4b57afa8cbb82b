"""Ask the server of a params file by hand, over the times of a test's runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing

import pandas as pd

from buildcompare.config.errors import InputError
from buildcompare.config.outside import shown
from buildcompare.config.params import Comparison, Source
from buildcompare.load.view import Views
from buildcompare.recordings.prometheus import MAX_POINTS
from buildcompare.recordings.prometheus_client import Answer, Client
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import SIDES

COLUMNS = ["build", "run", "series", "elapsed_s", "value"]


def ask_server(params: Comparison, test: str, views: Views, query: str) -> pd.DataFrame:
    """Every series of `query` over the times of the runs of a test; see :meth:`Investigation.ask`."""
    source = params.source
    if source.kind != "prometheus" or source.url is None:
        expected = "`kind: prometheus` with the `url` of a server"
        raise InputError(file=params.file, key="source", expected=expected, found=f"kind {source.kind}")
    if not query.strip():
        raise InputError(file=None, key="query", expected="PromQL", found="nothing")
    frames = []
    for side in SIDES:
        for number, view in enumerate(views[side], start=1):
            url = view.run.url or source.url
            start, end = view.recording.window
            answer = _answer(source, url, query, start, end)
            frames += [_frame(*each, start).assign(build=side, run=number) for each in answer.series]
    return pd.concat(frames, ignore_index=True)[COLUMNS] if frames else pd.DataFrame(columns=COLUMNS)


def _answer(source: Source, url: str, query: str, start: float, end: float) -> Answer:
    """One run's answer, at the source's step, or as fine as one answer may be."""
    step_s = source.step_s * max(1.0, math.ceil((end - start) / source.step_s / MAX_POINTS))
    with closing(Client(source, url)) as client:
        try:
            return client.query_range(query, {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:g}"})
        except InputError as error:
            raise (error if error.key else error.within("query")) from None


def _frame(labels: Mapping[str, str], times: FloatArray, values: FloatArray, start: float) -> pd.DataFrame:
    name = shown(", ".join(f"{key}={value}" for key, value in sorted(labels.items())))
    return pd.DataFrame({"series": name, "elapsed_s": times - start, "value": values})
