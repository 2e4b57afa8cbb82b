"""Recordings pulled from a server that speaks Prometheus's query API: all that the catalogue asks about a run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue, Question
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Run, Source
from buildcompare.recordings.prometheus_answer import Answer
from buildcompare.recordings.prometheus_client import PrometheusClient, Server
from buildcompare.recordings.prometheus_ranges import Grid, grid
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

_AT_THE_END = ("summary", "resets")
"""Roles of questions with one answer about the whole run."""
_OF_LABELS = ("label", "bucket")
"""Roles of questions with series per label, at the coarser step."""
LabelKey = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PrometheusSource:
    """Pulls ``run.start`` to ``run.end`` from ``run.url``, or else from ``source.url``."""

    source: Source
    catalogue: Catalogue

    def record(self, run: Run) -> Recording:
        """Every series of every query, NaN and gaps included; a query without an answer is absent.

        Raises
        ------
        InputError
            Where the server refuses a query or us, or has no sample of any metric in the window.
        SourceError
            Where the server cannot be reached or fails.
        """
        url = run.url or self.source.url
        if url is None or run.window is None:
            raise InputError(file=None, key="source", expected="`url`, and `start` and `end` in the run", found="none")
        run_s = (run.window[1] - run.window[0]).total_seconds()
        questions = self.catalogue.questions(label_step_s=self.source.label_step_s, run_s=run_s)
        if not questions:
            raise InputError(file=None, key="metrics", expected="a catalogue with queries", found="none")
        grids = [self._grid(question, run.window) for question in questions]
        with PrometheusClient(self.source, url) as client:
            server, pieces = self._ask(client, questions, grids)
        answers = [_joined(parts, url) for parts in pieces]
        if not any(answer.series for answer, q in zip(answers, questions, strict=True) if q.role in ("graph", "label")):
            found = f"none for any of {len(questions)} queries between {run.window[0].isoformat()} and "
            raise InputError(
                file=None, key="start, end", expected=f"samples at {url}", found=found + run.window[1].isoformat()
            )
        named = list(zip(questions, answers, strict=True))
        return Recording(
            series=tuple(series for question, answer in named for series in _series(question, answer)),
            label_summaries=tuple(each for question, answer in named for each in _summaries(question, answer)),
            window=(run.window[0].timestamp(), run.window[1].timestamp()),
            stop_known=True,
            notes=self._notes(url),
            provenance=self._provenance(url, server, named, grids),
        )

    def _grid(self, question: Question, window: tuple[dt.datetime, dt.datetime]) -> Grid:
        step_s = self.source.label_step_s if question.role in _OF_LABELS else self.source.step_s
        start, end = window
        return grid(end if question.role in _AT_THE_END else start, end, step_s)

    def _ask(
        self, client: PrometheusClient, questions: Sequence[Question], grids: Sequence[Grid]
    ) -> tuple[Server, list[list[Answer]]]:
        """Who answers, and every piece of every question, several at a time; the first lasting fault ends it."""
        with ThreadPoolExecutor(self.source.threads, thread_name_prefix="pull") as pool:
            server = pool.submit(client.server)
            asked = [
                [pool.submit(_named, client, question, piece) for piece in grid.pieces()]
                for question, grid in zip(questions, grids, strict=True)
            ]
            futures: list[Future[Any]] = [server, *(future for pieces in asked for future in pieces)]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future in done and not future.cancelled():
                        future.result()
            except BaseException:
                client.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return server.result(), [[future.result() for future in pieces] for pieces in asked]

    def _notes(self, url: str) -> tuple[Note, ...]:
        if self.source.tls is None or self.source.tls.verify:
            return ()
        return (Note("source", f"The certificate of {url} was not checked (source.tls.verify is false)."),)

    def _provenance(
        self, url: str, server: Server, named: Sequence[tuple[Question, Answer]], grids: Sequence[Grid]
    ) -> dict[str, object]:
        asked = [
            {
                "role": question.role,
                "metric": question.metric,
                "stat": question.stat,
                "query": question.query,
                "series": len(answer.series),
                "points": sum(times.size for _, times, _ in answer.series),
                "missing_points": sum(grid.points - times.size for _, times, _ in answer.series),
                "not_finite": int(sum((~np.isfinite(values)).sum() for _, _, values in answer.series)),
                "common_labels": dict(_common(answer)),
                "warnings": list(answer.warnings),
            }
            for (question, answer), grid in zip(named, grids, strict=True)
        ]
        return {
            "kind": "prometheus",
            "url": url,
            "server": {"kind": server.kind, "version": server.version},
            "step_s": self.source.step_s,
            "label_step_s": self.source.label_step_s,
            "queries": asked,
            "counter_resets": {q.metric: int(a.series[0][2][-1]) for q, a in named if q.role == "resets" and a.series},
            "thresholds": {alert.slug: alert.threshold for alert in self.catalogue.alerts},
            "warnings": list(dict.fromkeys(warning for _, answer in named for warning in answer.warnings)),
        }


def _named(client: PrometheusClient, question: Question, piece: Grid) -> Answer:
    """One answer; where the query is at fault, or fails, say which of the catalogue's it is."""
    name = " ".join(part for part in ("query of", question.role, question.metric, question.stat) if part)
    try:
        return client.query_range(question.query, piece)
    except InputError as error:
        if error.key != "query":
            raise
        raise InputError(file=None, key=name, expected=error.expected, found=error.found) from None
    except SourceError as error:
        raise error.within(name) from None


def _joined(pieces: Sequence[Answer], url: str) -> Answer:
    """The pieces of one window as one answer, its series in the order of their labels."""
    parts: dict[LabelKey, list[tuple[FloatArray, FloatArray]]] = {}
    for piece in pieces:
        for labels, times, values in piece.series:
            parts.setdefault(tuple(sorted(labels.items())), []).append((times, values))
    series = []
    checked: FloatArray | None = None
    for key in sorted(parts):
        times, values = parts[key][0]
        if len(parts[key]) > 1:
            times, values = (np.concatenate(arrays) for arrays in zip(*parts[key], strict=True))
        if times is not checked and times.size > 1 and not np.all(np.diff(times) > 0):
            raise SourceError(url=url, expected="times that increase", found=f"others in a series {dict(key)}")
        checked = times
        series.append((dict(key), times, values))
    return Answer(tuple(series), tuple(dict.fromkeys(w for piece in pieces for w in piece.warnings)))


def _series(question: Question, answer: Answer) -> list[Series]:
    """The answer's series; labels that are the same in all of them tell nothing apart (provenance keeps them)."""
    if question.role == "summary" or question.role == "resets":
        return []
    common = _common(answer) if question.role not in _OF_LABELS else {}
    return [
        Series(
            metric=question.metric,
            name=labels.get(question.label, "") if question.role in _OF_LABELS else question.name,
            unit=question.unit,
            times=times,
            values=values,
            role=question.role,
            labels={key: value for key, value in labels.items() if key not in common},
            stat=question.stat,
        )
        for labels, times, values in answer.series
    ]


def _summaries(question: Question, answer: Answer) -> list[LabelSummary]:
    """One value per label over the whole run."""
    if question.role != "summary":
        return []
    return [
        LabelSummary(question.metric, labels.get(question.label, ""), question.stat, float(values[-1]))
        for labels, _, values in answer.series
    ]


def _common(answer: Answer) -> Mapping[str, str]:
    if not answer.series:
        return {}
    shared = set(answer.series[0][0].items()).intersection(*(labels.items() for labels, _, _ in answer.series))
    return dict(sorted(shared))
