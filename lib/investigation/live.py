"""Query the server of a params file by hand, over the times of a test's runs.

prometheus-api-client sends these queries: speed does not matter here, and its errors hold the server's words.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import RequestException

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.outside import hiding, one_line, shown
from buildcompare.config.params import Comparison, Source
from buildcompare.load.view import Views
from buildcompare.recordings.prometheus import MAX_POINTS, prometheus_client
from buildcompare.recordings.prometheus_session import credentials
from buildcompare.results.codes import SIDES

COLUMNS = ["build", "run", "series", "elapsed_s", "value"]


def ask_server(params: Comparison, views: Views, query: str) -> pd.DataFrame:
    """Return every series of `query` over the times of the runs; see :meth:`Investigation.ask`."""
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
            of_run = source.model_copy(update={"url": url})
            frames += [each.assign(build=side, run=number) for each in _answer(of_run, query, start, end)]
    return pd.concat(frames, ignore_index=True)[COLUMNS] if frames else pd.DataFrame(columns=COLUMNS)


def _answer(source: Source, query: str, start: float, end: float) -> list[pd.DataFrame]:
    """Query one run at the source's step, or at the finest step of a single answer."""
    step_s = source.step_s * max(1.0, math.ceil((end - start) / source.step_s / MAX_POINTS))
    times = [dt.datetime.fromtimestamp(each, dt.UTC) for each in (start, end)]
    hide = hiding(credentials(source)[1])
    exact = {"start": f"{start:.3f}", "end": f"{end:.3f}"}  # the client rounds to seconds
    try:
        answer = prometheus_client(source).custom_query_range(query, *times, step=f"{step_s:g}", params=exact)
        return [_frame(series, start, hide) for series in answer if series.get("values")]
    except PrometheusApiClientException as error:
        expected = f"a query that the server can answer at {source.url}"
        raise InputError(file=None, key="query", expected=expected, found=one_line(hide(str(error)))) from None
    except (RequestException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(url=str(source.url), expected="an answer", found=type(error).__name__) from None


def _frame(series: Mapping[str, Any], start: float, hide: Callable[[str], str]) -> pd.DataFrame:
    times, values = np.array([[float(each) for each in pair] for pair in series["values"]]).T
    name = shown(hide(", ".join(f"{key}={value}" for key, value in sorted(series["metric"].items()))))
    return pd.DataFrame({"series": name, "elapsed_s": times - start, "value": values})
