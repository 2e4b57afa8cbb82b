"""Pull a recording from a server with Prometheus's query API."""

from __future__ import annotations

import datetime as dt
import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from prometheus_api_client import PrometheusConnect

from buildcompare.config.catalogue import Catalogue, Question
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Run, Source
from buildcompare.recordings.prometheus_answer import Answer
from buildcompare.recordings.prometheus_client import Client
from buildcompare.recordings.prometheus_session import open_session, timeouts
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

WINDOW_KEYS = "start, end"  # keys that an error names if the window is wrong, such as one without samples
MAX_POINTS = 10_999  # maximum points per series in a query; a server refuses more than 11,000
MAX_PIECES = 500  # maximum queries for one window: 5.5 million points per series, or a year at 6 s
_OF_WINDOW = re.compile(r"\b(start|end|range)\s*\(\s*\)", re.IGNORECASE)
"""Functions whose values depend on the window of the query. A query that calls them cannot be split into pieces."""
_TEXTS = re.compile(r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` """, re.VERBOSE | re.DOTALL)
"""Strings in a query, such as values of labels."""
_NO_METRICS = re.compile(
    _TEXTS.pattern + r"|\{.*?\}|\[.*?\]|\b(?:by|without|on|ignoring|group_\w+)\s*\(.*?\)", re.VERBOSE | re.DOTALL
)
"""Parts of a query that name no metric."""
_METRIC = re.compile(r"(?<![\w:.])(?!group_)[a-zA-Z:]\w*[_:][\w:]*+(?!\s*\()")
_OF_LABELS = ("label", "bucket")  # roles of queries with a series per label, pulled at `label_step_s`


def prometheus_client(source: Source | str) -> PrometheusConnect:
    """Return a PrometheusConnect for discovery, metadata and ad-hoc queries in notebooks.

    Our session replaces the default one, which waits forever, retries too often, and puts long queries in URLs.
    """
    source = Source(kind="prometheus", url=source) if isinstance(source, str) else source
    session, _ = open_session(source, str(source.url))
    client = PrometheusConnect(url=str(source.url), session=session, timeout=timeouts(source))
    session.mount(client.url, session.get_adapter("http://"))  # replaces the client's adapter, which retries too often
    return client


def pull_run(run: Run, source: Source, catalogue: Catalogue) -> Recording:
    """Pull every series of every query, with NaN and gaps as they are; a query without an answer adds no series."""
    url = run.url or source.url
    if url is None or run.window is None:
        raise InputError(file=None, key="source", expected="`url`, and `start` and `end` in the run", found="none")
    start, end = run.window
    run_s = (end - start).total_seconds()
    questions = catalogue.questions(label_step_s=source.label_step_s, run_s=run_s, rate_s=source.rate_s)
    if not questions:
        raise InputError(file=None, key="metrics", expected="a catalogue with queries", found="none")
    coarse = dict.fromkeys(_OF_LABELS, source.label_step_s)
    grids = [  # a query of the role `summary` or `resets` gives one value for the whole run, at its end
        grid(end if q.role in ("summary", "resets") else start, end, coarse.get(q.role, source.step_s))
        for q in questions
    ]
    with closing(Client(source, url)) as client:
        server, answers = _ask(client, source.threads, questions, grids)
        named = list(zip(questions, answers, strict=True))
        silent = [q.query for q, answer in named if q.role in ("graph", "label") and not answer.series]
        unknown = _unknown(client, silent, run.window)
    if not any(answer.series for question, answer in named if question.role in ("graph", "label")):
        found = f"none for any of {len(questions)} queries between {start.isoformat()} and {end.isoformat()}"
        key, found = ("metrics", unknown) if unknown else (WINDOW_KEYS, found)
        raise InputError(file=None, key=key, expected=f"samples at {url}", found=found)
    return Recording(
        series=tuple(series for question, answer in named for series in _series(question, answer)),
        label_summaries=tuple(
            LabelSummary(q.metric, labels.get(q.label, ""), q.stat, float(values[-1]))
            for q, answer in named
            for labels, _, values in answer.series
            if q.role == "summary" and values.size
        ),
        window=(start.timestamp(), end.timestamp()),
        stop_known=True,
        notes=tuple(_notes(url, source, named, grids, unknown)),
        provenance={
            "kind": "prometheus",
            "url": url,
            "server": server,
            "step_s": source.step_s,
            "label_step_s": source.label_step_s,
            **({"rate_s": source.rate_s} if catalogue.leaves_rates_open else {}),
            "queries": [_described(*each, len(times)) for each, times in zip(named, grids, strict=True)],
            "counter_resets": {q.metric: int(a.last) for q, a in named if q.role == "resets" and np.isfinite(a.last)},
            "thresholds": {alert.slug: alert.threshold for alert in catalogue.alerts},
            "warnings": list(dict.fromkeys(warning for _, answer in named for warning in answer.warnings)),
        },
    )


def _unknown(client: Client, queries: Sequence[str], window: tuple[dt.datetime, dt.datetime]) -> str:
    """Name the metrics in `queries` that the server lacks, each with the most similar name there, if any is close."""
    within = {key: f"{instant.timestamp():.3f}" for key, instant in zip(("start", "end"), window, strict=True)}
    try:
        names = {str(each) for each in client.listing("/api/v1/label/__name__/values", within)} if queries else set()
    except (InputError, SourceError):  # some servers do not list metrics
        return ""
    asked = dict.fromkeys(name for query in queries for name in _METRIC.findall(_NO_METRICS.sub(" ", query)))
    near = {name: difflib.get_close_matches(name, names, 1, 0.8) for name in asked if names and name not in names}
    return ", ".join(f"no series `{name}`" + "".join(f"; near: `{each}`" for each in near[name]) for name in near)


def _notes(
    url: str, source: Source, named: Sequence[tuple[Question, Answer]], grids: Sequence[range], unknown: str
) -> Iterator[Note]:
    """Yield notes on misspelt metrics, an unchecked certificate, and answers with a coarser step than requested."""
    if "near:" in unknown:
        yield Note("source", f"{url} has {unknown}.")
    if source.tls is not None and not source.tls.verify:
        yield Note("source", f"The certificate of {url} was not checked (source.tls.verify is false).")
    steps = [(q.metric, _step_ms(a, times), times.step) for (q, a), times in zip(named, grids, strict=True)]
    if sparse := [f"{metric} every {step / 1000:g} s" for metric, step, asked in steps if step > asked]:
        found = f"{len(sparse)} of {len(named)} queries, such as {sparse[0]}"
        yield Note("source", f"{url} has fewer points than were asked for in {found}.")


def grid(start: dt.datetime, end: dt.datetime, step_s: float) -> range:
    """Return the times ``start + k * step`` up to the end, in whole milliseconds since 1970, as servers use them."""
    epoch, millisecond = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(milliseconds=1)
    first, last = ((instant - epoch + millisecond / 2) // millisecond for instant in (start, end))
    times = range(first, last + 1, round(step_s * 1000))
    if len(times) > MAX_POINTS * MAX_PIECES:
        expected = f"a window of at most {MAX_POINTS * MAX_PIECES:,} points at this step"
        raise InputError(file=None, key=WINDOW_KEYS, expected=expected, found=f"{len(times):,}")
    return times


def _ask(
    client: Client, threads: int, questions: Sequence[Question], grids: Sequence[range]
) -> tuple[dict[str, str], list[Answer]]:
    """Return the server's kind and version, and the answer to each question; the first lasting fault ends the pull."""

    def unless_stopped(task: Callable[..., Any], *arguments: object) -> Any:
        try:
            return None if client.stopped.is_set() else task(*arguments)
        except BaseException:
            if not client.stopped.is_set():  # raise only the first fault; it stops the pull, so other queries fail
                client.stopped.set()
                raise

    def ask(question: Question, piece: range) -> Answer:
        with _about(question):
            return client.query_range(question.query, piece[0] / 1000, piece[-1] / 1000, piece.step / 1000)

    with ThreadPoolExecutor(threads, thread_name_prefix="pull") as pool:
        parts = [
            [pool.submit(unless_stopped, ask, question, piece) for piece in _pieces(question, times)]
            for question, times in zip(questions, grids, strict=True)
        ]
        server = pool.submit(unless_stopped, client.server)
        try:
            for done in wait([server, *itertools.chain.from_iterable(parts)], return_when=FIRST_EXCEPTION).done:
                done.result()
        except BaseException:
            client.stopped.set()
            raise
    answers = [[future.result() for future in each] for each in parts]
    return server.result(), [_joined(*each, client.url) for each in zip(questions, grids, answers, strict=True)]


def _pieces(question: Question, times: range) -> list[range]:
    """Split the times into ranges that a server accepts; refuse to split a query whose values depend on its window."""
    of_window = _OF_WINDOW.search(_TEXTS.sub("", question.query))
    if of_window and len(times) > MAX_POINTS:
        expected = f"a window of at most {MAX_POINTS:,} points at this step, as the query has {of_window[1]}()"
        with _about(question):
            raise InputError(file=None, key=None, expected=expected, found=f"{len(times):,}")
    return [times[i : i + MAX_POINTS] for i in range(0, len(times), MAX_POINTS)]


@contextmanager
def _about(question: Question) -> Iterator[None]:
    """Add the name of the query to an error that does not yet name the faulty setting or query."""
    try:
        yield
    except (InputError, SourceError) as error:
        name = " ".join(part for part in ("query of", question.role, question.metric, question.stat) if part)
        raise (error if error.key else error.within(name)) from None


def _joined(question: Question, asked: range, parts: Sequence[Answer], url: str) -> Answer:
    """Join the answers to the pieces of one window, sort series by labels, and check that all times were requested."""
    pieces: dict[tuple[tuple[str, str], ...], list[tuple[FloatArray, FloatArray]]] = {}
    for part, piece in zip(parts, _pieces(question, asked), strict=True):
        for times in {id(times): times for _, times, _ in part.series}.values():  # check each array of times once
            places = np.rint(steps := (times * 1000.0 - piece[0]) / piece.step)
            near = (np.abs(steps - places) * piece.step < 1.0) & (places >= 0) & (places < len(piece))
            if not (near.all() and (np.diff(places) > 0).all()):
                with _about(question):
                    raise SourceError(url=url, expected="values at the requested times", found="other times")
        for labels, times, values in part.series:
            pieces.setdefault(tuple(sorted(labels.items())), []).append((times, values))
    series = []
    for key, arrays in sorted(pieces.items()):
        times, values = arrays[0] if len(arrays) == 1 else map(np.concatenate, zip(*arrays, strict=True))
        if len(arrays) > 1 and not (times[1:] > times[:-1]).all():
            raise SourceError(url=url, expected="times that increase", found=f"other times in {dict(key)}")
        series.append((dict(key), times, values))
    return Answer(tuple(series), tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)))


def _step_ms(answer: Answer, asked: range) -> int:
    """Return the greatest common divisor (ms) of all sample steps; the requested step if no series has three points."""
    distinct = {id(times): times for _, times, _ in answer.series if times.size > 2}.values()
    steps = [np.rint(np.diff(times) * 1000 / asked.step).astype(int) for times in distinct]
    return asked.step * int(np.gcd.reduce(np.concatenate(steps))) if steps else asked.step


def _series(question: Question, answer: Answer) -> list[Series]:
    """Make an answer's series (none for single values); omit labels that all series share, except in label tables."""
    if question.role == "summary" or question.role == "resets":
        return []
    of_labels = question.role in _OF_LABELS
    common = {} if of_labels else _common(answer)
    made = []
    for labels, times, values in answer.series:
        name = labels.get(question.label, "") if of_labels else question.name
        varying = {key: value for key, value in labels.items() if key not in common}
        made.append(Series(question.metric, name, question.unit, times, values, question.role, varying, question.stat))
    return made


def _common(answer: Answer) -> Mapping[str, str]:
    """Return the labels that all series of an answer share."""
    return dict(sorted(set.intersection(*sets))) if (sets := [{*each[0].items()} for each in answer.series]) else {}


def _described(question: Question, answer: Answer, points: int) -> dict[str, object]:
    """Describe a query and its answer for the provenance; `points` is the requested number of points per series."""
    return {
        **{name: getattr(question, name) for name in ("role", "metric", "stat", "query")},
        "series": len(answer.series),
        "points": sum(times.size for _, times, _ in answer.series),
        "missing_points": sum(points - times.size for _, times, _ in answer.series),
        "not_finite": sum(int(np.count_nonzero(~np.isfinite(values))) for _, _, values in answer.series),
        "common_labels": _common(answer),
        "warnings": list(answer.warnings),
    }
