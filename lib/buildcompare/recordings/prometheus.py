"""Recordings pulled from a server that speaks Prometheus's query API: all that the catalogue asks about a run."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from buildcompare.config.catalogue import Catalogue, Question
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Run, Source
from buildcompare.recordings.prometheus_answer import Answer, PassingError
from buildcompare.recordings.prometheus_client import Client, Query, open_session, timeouts
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

if TYPE_CHECKING:
    from prometheus_api_client import PrometheusConnect

MAX_POINTS = 10_999
"""Points of one piece of a window: a server refuses more than 11,000 steps in a query."""
SIDE_BY_SIDE = 2
"""Pieces of a query that a server answers at the same time; more gained nothing on two cores (benchmarks/pull.py)."""
SHORT_PIECE = 250
"""Points that are not worth a query of their own."""
MAX_PIECES = 500
"""Bound on the pieces of one window: 5.5 million points per series, a year at 6 s."""
_OF_WINDOW = re.compile(r"\b(start|end|range)\s*\(\s*\)", re.IGNORECASE)
"""What makes values depend on where the window of a query begins or ends."""
_TEXTS = re.compile(r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` """, re.VERBOSE | re.DOTALL)
"""Texts in a query, such as values of labels."""
_OF_LABELS = ("label", "bucket")  # roles of questions with series per label, at the coarser step


def prometheus_client(source: Source | str) -> PrometheusConnect:
    """Open prometheus-api-client on our session, for discovery, metadata and ad-hoc queries in notebooks.

    Its own defaults have no time-out, repeat queries that timed out, and put long queries into the address.
    """
    from prometheus_api_client import PrometheusConnect  # late: it imports matplotlib

    source = Source(kind="prometheus", url=source) if isinstance(source, str) else source
    session, _ = open_session(source)
    client = PrometheusConnect(url=str(source.url), session=session, timeout=timeouts(source))
    session.mount(client.url, session.get_adapter("http://"))  # instead of its own, which repeats too much
    return client


def pull_run(run: Run, source: Source, catalogue: Catalogue) -> Recording:
    """Every series of every query, NaN and gaps included; a query without an answer is absent."""
    url = run.url or source.url
    if url is None or run.window is None:
        raise InputError(file=None, key="source", expected="`url`, and `start` and `end` in the run", found="none")
    start, end = run.window
    run_s = (end - start).total_seconds()
    questions = catalogue.questions(label_step_s=source.label_step_s, run_s=run_s, rate_s=source.rate_s)
    if not questions:
        raise InputError(file=None, key="metrics", expected="a catalogue with queries", found="none")
    grids = []
    for question in questions:
        first = end if question.role in ("summary", "resets") else start  # those have one answer, of the whole run
        grids.append(grid(first, end, source.label_step_s if question.role in _OF_LABELS else source.step_s))
    with closing(Client(source, url)) as client:
        server, answers = _ask(client, source.threads, questions, grids)
    named = list(zip(questions, answers, strict=True))
    if not any(answer.series for question, answer in named if question.role in ("graph", "label")):
        found = f"none for any of {len(questions)} queries between {start.isoformat()} and {end.isoformat()}"
        raise InputError(file=None, key="start, end", expected=f"samples at {url}", found=found)
    unchecked = f"The certificate of {url} was not checked (source.tls.verify is false)."
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
        notes=() if source.tls is None or source.tls.verify else (Note("source", unchecked),),
        provenance={
            "kind": "prometheus",
            "url": url,
            "server": server,
            "step_s": source.step_s,
            "label_step_s": source.label_step_s,
            **({"rate_s": source.rate_s} if catalogue.leaves_rates_open else {}),
            "queries": [_asked(*each, len(times)) for each, times in zip(named, grids, strict=True)],
            "counter_resets": {q.metric: int(a.last) for q, a in named if q.role == "resets" and np.isfinite(a.last)},
            "thresholds": {alert.slug: alert.threshold for alert in catalogue.alerts},
            "warnings": list(dict.fromkeys(warning for _, answer in named for warning in answer.warnings)),
        },
    )


def grid(start: dt.datetime, end: dt.datetime, step_s: float) -> range:
    """The times ``start + k * step`` up to the end, in whole milliseconds, which is what servers count in."""
    epoch, millisecond = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(milliseconds=1)
    first, last = ((instant - epoch + millisecond / 2) // millisecond for instant in (start, end))
    times = range(first, last + 1, round(step_s * 1000))
    if len(times) > MAX_POINTS * MAX_PIECES:
        expected = f"a window of at most {MAX_POINTS * MAX_PIECES:,} points at this step"
        raise InputError(file=None, key="start, end", expected=expected, found=f"{len(times):,}")
    return times


def pieces(times: range, wanted: int = 1) -> list[range]:
    """The same times in pieces that share none: `wanted` ones, fewer if that made them short, more if long."""
    points = min(MAX_POINTS, -(-len(times) // max(1, min(wanted, len(times) // SHORT_PIECE))))
    return [times[i : i + points] for i in range(0, len(times), points)]


def _ask(
    client: Client, threads: int, questions: Sequence[Question], grids: Sequence[range]
) -> tuple[dict[str, str], list[Answer]]:
    """Who answers, and the answer to every question, several at a time; the first lasting fault ends it."""
    # A server answers a query on one core: where there are few of them, each is asked in pieces.
    server = client.server() if len(questions) * SIDE_BY_SIDE <= threads else {}
    cut = [_cut(*each, server.get("kind", "")) for each in zip(questions, grids, strict=True)]
    asked = [(question, piece) for question, parts in zip(questions, cut, strict=True) for piece in parts]
    queries = [_query(*each) for each in asked]
    found: dict[int, Answer] = {}
    damaged: dict[int, PassingError] = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="pull") as pool:
        try:
            for i, read in client.query_ranges(queries, threads, lambda: server or server.update(client.server())):
                try:
                    found[i] = _checked(client, *asked[i], read)
                except PassingError as error:
                    damaged[i] = error
            rest = [i for i in range(len(asked)) if i not in found]
            again: dict[Future[Any], int] = {
                pool.submit(_again, client, *asked[i], queries[i], damaged.get(i)): i for i in rest
            }
            for future in as_completed(again):
                found[again[future]] = future.result()
        except BaseException:
            client.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    in_order = iter([found[i] for i in range(len(asked))])
    answers = [_joined(list(islice(in_order, len(parts))), client.url) for parts in cut]
    return server, answers


def _cut(question: Question, times: range, kind: str) -> list[range]:
    """The pieces in which a question is asked of a server of this kind."""
    of_window = _OF_WINDOW.search(_TEXTS.sub("", question.query))
    # Other kinds of server look at all samples of a window for each value, or cut it themselves.
    parts = pieces(times, SIDE_BY_SIDE if kind == "prometheus" and not of_window else 1)
    if of_window and len(parts) > 1:
        expected = f"a window of at most {MAX_POINTS:,} points at this step, as the query has {of_window[1]}()"
        with _about(question):
            raise InputError(file=None, key=None, expected=expected, found=f"{len(times):,}")
    return parts


def _query(question: Question, piece: range) -> Query:
    seconds = {"start": piece[0], "end": piece[-1], "step": piece.step}
    return {"query": question.query, **{key: f"{ms / 1000:.3f}" for key, ms in seconds.items()}}


def _again(client: Client, question: Question, piece: range, query: Query, failed: PassingError | None) -> Answer:
    """Ask what was not answered at once."""
    return _checked(client, question, piece, partial(client.query_range, query, failed))


def _checked(client: Client, question: Question, piece: range, read: Callable[[], Answer]) -> Answer:
    """One answer, whose times are those that were asked for."""
    with _about(question):
        answer = read()
        checked: FloatArray | None = None
        for _, times, _ in answer.series:
            if times is not checked and not _asked_for(times, piece):
                raise SourceError(url=client.url, expected="values at the times that were asked for", found="others")
            checked = times
        return answer


@contextmanager
def _about(question: Question) -> Iterator[None]:
    """Where the query is at fault, or fails, say which of the catalogue's it is."""
    try:
        yield
    except (InputError, SourceError) as error:
        name = " ".join(part for part in ("query of", question.role, question.metric, question.stat) if part)
        raise (error if error.key else error.within(name)) from None


@lru_cache(8)
def _seconds(piece: range) -> FloatArray:
    return np.array(piece) / 1000.0


def _asked_for(times: FloatArray, piece: range) -> bool:
    """Whether all `times` (seconds) are of `piece` (milliseconds), each at most once."""
    if np.array_equal(times, _seconds(piece)):
        return True
    steps = (times * 1000.0 - piece[0]) / piece.step
    near = np.abs(steps - np.rint(steps)) * piece.step < 1.0
    return bool(times.size <= len(piece) and np.all(near & (steps > -0.5) & (steps < len(piece) - 0.5)))


def _joined(parts: Sequence[Answer], url: str) -> Answer:
    """The pieces of one window as one answer, its series in the order of their labels."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[FloatArray, FloatArray]]] = {}
    for part in parts:
        for labels, times, values in part.series:
            found.setdefault(tuple(sorted(labels.items())), []).append((times, values))
    series = []
    known: dict[tuple[int, ...], FloatArray] = {}  # most series have the same times
    for key, arrays in sorted(found.items()):
        same = tuple(id(times) for times, _ in arrays)
        if same not in known:
            times = known[same] = _one([times for times, _ in arrays])
            times.flags.writeable = False
            if not (times[1:] > times[:-1]).all():
                raise SourceError(url=url, expected="times that increase", found=f"others in a series {dict(key)}")
        series.append((dict(key), known[same], _one([values for _, values in arrays])))
    return Answer(tuple(series), tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)))


def _one(parts: Sequence[FloatArray]) -> FloatArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _series(question: Question, answer: Answer) -> list[Series]:
    """The answer's series; labels that are the same in all of them tell nothing apart (provenance keeps them)."""
    if question.role == "summary" or question.role == "resets":
        return []
    of_labels = question.role in _OF_LABELS
    common = {} if of_labels else _common(answer)
    found = []
    for labels, times, values in answer.series:
        name = labels.get(question.label, "") if of_labels else question.name
        own = {key: value for key, value in labels.items() if key not in common}
        found.append(Series(question.metric, name, question.unit, times, values, question.role, own, question.stat))
    return found


def _common(answer: Answer) -> Mapping[str, str]:
    """The labels that all series have alike."""
    sets = [set(labels.items()) for labels, _, _ in answer.series]
    return dict(sorted(set.intersection(*sets))) if sets else {}


def _asked(question: Question, answer: Answer, points: int) -> dict[str, object]:
    """What the provenance says of a query."""
    return {
        **{name: getattr(question, name) for name in ("role", "metric", "stat", "query")},
        "series": len(answer.series),
        "points": sum(times.size for _, times, _ in answer.series),
        "missing_points": sum(points - times.size for _, times, _ in answer.series),
        "not_finite": sum(int(np.count_nonzero(~np.isfinite(values))) for _, _, values in answer.series),
        "common_labels": _common(answer),
        "warnings": list(answer.warnings),
    }
