"""Give a run as it goes on: a recording that is replayed, or a server that is asked for what is new."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Run, Source
from buildcompare.recordings.prometheus import WINDOW_KEYS, pull_run
from buildcompare.recordings.prometheus_client import open_session, timeouts
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import read
from buildcompare.recordings.table import write_recording
from buildcompare.text.sentences import say

Look = tuple[float, Recording, tuple[str, ...]]
"""Seconds since the start of the run, its recording so far, and notes on the pull."""
OVERLAP = 2.0  # rate windows to pull again, as samples may arrive late
SKEW_S = 5.0  # clock difference worth a note; servers state their time in whole seconds


def replayed(recording: Recording, *, every_s: float, speed: float) -> Iterator[Look]:
    """Yield a look each `every_s` seconds of a recording, `speed` times as fast as it was recorded."""
    for number in itertools.count(1):
        time.sleep(every_s / speed)
        at_s = min(number * every_s, recording.duration_s)
        yield at_s, recording, ()
        if at_s >= recording.duration_s:
            return


@dataclass(frozen=True)
class Follower:
    """A run on a server, and the file of its samples, from which a restarted watch continues."""

    run: Run
    source: Source
    catalogue: Catalogue
    file: Path

    def looks(self, every_s: float, *, sleep: Callable[[float], None] = time.sleep) -> Iterator[Look]:
        """Yield a look each `every_s` seconds until the run's end; a server that fails is asked again."""
        start, end = (instant.timestamp() for instant in self.run.window or ())
        held, skew, now = self._kept(), 0.0, start
        while now < end:
            notes: tuple[str, ...] = ()
            try:
                skew = self._skew()
                held = self._with_new(held, start, min(time.time() + skew, end))
            except (SourceError, OSError) as error:
                notes = (say("watch", "not_reached", str(error)),)
            now = min(time.time() + skew, end)
            if held.series:
                write_recording(held, self.file)
            if abs(skew) > SKEW_S:
                notes = (*notes, say("watch", "clock", skew))
            yield max(now - start, 0.0), replace(held, window=(start, max(now, start))), notes
            sleep(min(every_s, max(end - now, 0.0)))

    def _kept(self) -> Recording:
        """Return what an earlier watch of this run saved with the same queries, or an empty recording."""
        questions = self.catalogue.questions(label_step_s=60.0, rate_s=self.source.rate_s)
        asked = [self.run.url or self.source.url, self.run.window, self.source.step_s, [q.query for q in questions]]
        known = {"watched": hashlib.sha256(repr(asked).encode()).hexdigest()}
        try:
            kept = read(self.file, catalogue=self.catalogue) if self.file.exists() else None
        except InputError:  # a damaged file: pull everything again
            kept = None
        same = kept and kept.provenance.get("watched") == known["watched"]
        return kept if kept and same else Recording((), (0.0, 0.0), stop_known=False, provenance=known)

    def _skew(self) -> float:
        """Seconds that the server's clock is ahead."""
        url = self.run.url or self.source.url
        session, _ = open_session(self.source, str(url))
        with session:
            stated = session.get(f"{url}/-/ready", timeout=timeouts(self.source)).headers.get("Date")
        return parsedate_to_datetime(stated).timestamp() + 0.5 - time.time() if stated else 0.0

    def _with_new(self, held: Recording, start: float, now: float) -> Recording:
        """Return the recording so far with the new samples of the server."""
        last = max((float(each.times[-1]) for each in held.series if each.times.size), default=start)
        steps = math.floor((last - OVERLAP * self.source.rate_s - start) / self.source.step_s)
        begin = start + max(steps, 0) * self.source.step_s
        if now - begin < self.source.step_s:
            return held
        window = {name: dt.datetime.fromtimestamp(at, dt.UTC) for name, at in (("start", begin), ("end", now))}
        try:
            new = pull_run(self.run.model_copy(update=window), self.source, self.catalogue)
        except InputError as error:
            if error.key == WINDOW_KEYS:  # no sample in this window
                return held
            raise
        kept = {_key(each): each for each in held.series}
        kept |= {_key(each): _joined(kept.get(_key(each)), each, begin) for each in new.series}
        return replace(
            held, series=tuple(kept.values()), window=(start, now), provenance={**new.provenance, **held.provenance}
        )


def _key(series: Series) -> tuple[object, ...]:
    return series.metric, series.role, series.stat, tuple(sorted(series.labels.items()))


def _joined(old: Series | None, new: Series, begin: float) -> Series:
    if old is None:
        return new
    before = old.times < begin - 1e-3
    times, values = (np.concatenate([a[before], b]) for a, b in ((old.times, new.times), (old.values, new.values)))
    return replace(new, times=times, values=values)
