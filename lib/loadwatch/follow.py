"""Follow runs as they go on: replay a recording, or ask a server for new samples."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Run, Source
from buildcompare.recordings.prometheus import WINDOW_KEYS, pull_run
from buildcompare.recordings.prometheus_session import open_session, timeouts
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import read
from buildcompare.recordings.table import write_recording
from buildcompare.text.sentences import say
from loadwatch.look import cut

Seen = tuple[float, list[Recording], tuple[str, ...]]
"""Seconds since the start of the run, what is recorded of it and of runs beside it, and notes on the pull."""
OVERLAP = 2.0  # rate windows to pull again, as samples may arrive late
SKEW_S = 5.0  # clock difference worth a note; servers state their time in whole seconds


def replayed(recording: Recording, *, every_s: float, speed: float) -> Iterator[Seen]:
    """Yield a look each `every_s` seconds of a recording, `speed` times as fast as it was recorded."""
    for at_s in (*np.arange(every_s, recording.duration_s, every_s).tolist(), recording.duration_s):
        time.sleep(every_s / speed)
        yield at_s, [recording], ()


def followed(
    runs: Sequence[Followed], every_s: float, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Seen]:
    """Yield a look each `every_s` seconds at the first run until all have ended.

    A server that fails is asked again; until it answers, looks stay at the time of its last answer.
    """
    (start, end), last = runs[0].span, max(run.span[1] for run in runs)
    held, skew, now, seen = [run.kept() for run in runs], 0.0, start, start
    while now < last:
        notes, answered = tuple[str, ...](), True
        try:
            skew = runs[0].skew()
            held = [run.with_new(each, time.time() + skew) for run, each in zip(runs, held, strict=True)]
        except (InputError, SourceError, OSError) as error:
            if isinstance(error, InputError) and error.key != "metrics":
                raise
            answered = isinstance(error, InputError)  # the server answered; its exporters have not started
            notes = (say("watch", "not_answered", str(error)),)
        now = time.time() + skew
        seen = now if answered or now >= last else seen
        if now < start:
            notes = (*notes, say("watch", "not_begun", start - now))
        if abs(skew) > SKEW_S:
            notes = (*notes, say("watch", "clock", skew))
        if now < end or now >= last:
            until = [(run.span[0], max(min(seen, run.span[1]), run.span[0])) for run in runs]
            shown = [replace(_named_apart(each), window=window) for each, window in zip(held, until, strict=True)]
            yield max(min(seen, end) - start, 0.0), shown, notes
        sleep(max(min(every_s, last - now), 0.0))


@dataclass(frozen=True)
class Followed:
    """A run that goes on, of which the samples so far are kept in a file."""

    run: Run
    source: Source
    catalogue: Catalogue
    file: Path

    @property
    def span(self) -> tuple[float, float]:
        """Start and planned end, in seconds since 1970."""
        start, end = (instant.timestamp() for instant in self.run.window or ())
        return start, end

    def kept(self) -> Recording:
        """Return what an earlier watch of this run saved with the same queries, or an empty recording."""
        questions = self.catalogue.questions(label_step_s=60.0, rate_s=self.source.rate_s)
        asked = [self.run.url or self.source.url, self.run.window, self.source.step_s, [q.query for q in questions]]
        provenance = {"watched": repr([*asked, "all labels"])}
        try:
            earlier = read(self.file, catalogue=self.catalogue) if self.file.exists() else None
        except InputError:  # a damaged file: pull everything again
            earlier = None
        if earlier and earlier.provenance.get("watched") == provenance["watched"]:
            return earlier
        return Recording((), (0.0, 0.0), stop_known=False, provenance=provenance)

    def skew(self) -> float:
        """Seconds that the server's clock is ahead."""
        url = str(self.run.url or self.source.url)
        with open_session(self.source, url)[0] as session:
            stated = session.get(f"{url}/-/ready", timeout=timeouts(self.source)).headers.get("Date")
        return parsedate_to_datetime(stated).timestamp() + 0.5 - time.time() if stated else 0.0

    def with_new(self, held: Recording, now: float) -> Recording:
        """Add to the `held` recording the samples that are new on the server at its time `now`."""
        (start, end), step_s = self.span, self.source.step_s
        last = max((float(each.times[-1]) for each in held.series if each.times.size), default=start)
        begin = start + max(math.floor((last - OVERLAP * self.source.rate_s - start) / step_s), 0) * step_s
        if (now := min(now, end)) - begin < step_s:
            return held
        window = {name: dt.datetime.fromtimestamp(at, dt.UTC) for name, at in (("start", begin), ("end", now))}
        try:
            new = pull_run(self.run.model_copy(update=window), self.source, self.catalogue)
        except InputError as error:
            if error.key == WINDOW_KEYS:  # no sample in this window
                return held
            raise
        series: dict[tuple[object, ...], Series] = {}
        for each in (*cut(held, begin - start - 1e-3).series, *_with_all_labels(new)):
            key = each.metric, each.role, each.stat, tuple(sorted(each.labels.items()))
            parts = [each] if key not in series else [series[key], each]
            times, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("times", "values"))
            series[key] = replace(each, times=times, values=values)
        provenance = {**new.provenance, **held.provenance}
        held = replace(held, series=tuple(series.values()), window=(start, now), provenance=provenance)
        write_recording(held, self.file)
        return held


def _with_all_labels(recording: Recording) -> list[Series]:
    """Return the series of one pull, also with the labels that all series of a query share in this pull."""
    queries: Any = recording.provenance.get("queries", [])
    common = {(each["metric"], each["role"]): each["common_labels"] for each in queries if not each["stat"]}
    return [
        each if each.stat else replace(each, labels={**common.get((each.metric, each.role), {}), **each.labels})
        for each in recording.series
    ]


def _named_apart(recording: Recording) -> Recording:
    """Return a recording whose series keep the labels that differ, as those of one pull of the whole run do."""
    common: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for each in recording.series:
        common.setdefault((each.metric, each.role), {*each.labels.items()}).intersection_update(each.labels.items())

    def named(each: Series) -> Series:
        labels = sorted({*each.labels.items()} - common[each.metric, each.role])
        return each if each.stat else replace(each, labels=dict(labels))

    return replace(recording, series=tuple(map(named, recording.series)))
