"""When did users disappear in mid-run? Faster than the coordinator takes them away: agent or server failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.recordings.recording import FloatArray


@dataclass(frozen=True)
class Fall:
    """Users who went away at once.

    Attributes
    ----------
    kind
        ``restart``: hardly anyone was left, and they came back; ``lost``: a part, or for good.
    at_s
        Elapsed seconds of the last sample before it.
    before, after
        Users then, and users who were left.
    back_s
        Elapsed seconds at which as many were there again; None where they never were.
    """

    kind: Literal["lost", "restart"]
    at_s: float
    before: float
    after: float
    back_s: float | None


@dataclass(frozen=True)
class FindFalls:
    """Find the falls of a curve of users (or of something that follows them) before the load's stop.

    Parameters
    ----------
    fastest_fall
        Users per second that the coordinator itself may take away: 4 in an unbounded test of
        mattermost-load-test-ng, 0 in a bounded one.
    within_s
        How fast a fall is: connections of a lost agent time out within half a minute.
    part
        The smallest fall beside what the coordinator may do, as a part of the users: one agent of twenty is 5 %,
        and a curve read off a plot is known to 0.4 %.
    hardly_any
        With less than this part left it is a restart.
    busy
        Falls from less than this part of the highest load are a cold start's.
    """

    fastest_fall: float = 4.0
    within_s: float = 30.0
    part: float = 0.03
    rounding: float = 1.5
    """Factor on `fastest_fall` for sampling and rounding of the curve."""
    hardly_any: float = 0.5
    busy: float = 0.1
    lasting_s: float = 60.0
    """What is back sooner than this after `within_s` was no loss, unless hardly anyone was left."""
    low_s: float = 300.0
    """Within this long the users reach what is left of them, and no second fall is looked for."""
    back: float = 0.8
    """After a restart that many of the users are back: not all of them need to return."""

    def __call__(self, load: pd.Series, stop_s: float) -> tuple[Fall, ...]:
        """The falls of `load` (over elapsed seconds) before `stop_s`, in their order."""
        curve = load[np.isfinite(load.to_numpy()) & (load.index <= stop_s)]
        elapsed, users = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64, copy=True)
        if users.size < 3:
            return ()
        users[1:-1] = np.median(np.stack([users[:-2], users[1:-1], users[2:]]), axis=0)  # one missed scrape is no fall
        later = np.searchsorted(elapsed, elapsed + self.within_s, "right") - 1
        later = np.minimum(np.maximum(later, np.arange(users.size) + 1), users.size - 1)
        may = self.rounding * self.fastest_fall * (elapsed[later] - elapsed) + self.part * users
        high = (users > 0.0) & (users >= self.busy * float(np.quantile(users, 0.95)))
        sudden = np.flatnonzero((users - users[later] > may) & high)
        falls: list[Fall] = []
        past = -1.0
        for i in sudden:
            if elapsed[i] < past:
                continue
            fall = self._fall(elapsed, users, int(i), float(may[i]))
            if fall is not None:
                falls.append(fall)
                back = fall.back_s if fall.kind == "restart" and fall.back_s is not None else 0.0
                past = max(fall.at_s + self.low_s, back)
        return tuple(falls)

    def _fall(self, elapsed: FloatArray, users: FloatArray, first: int, may: float) -> Fall | None:
        """The fall that begins at or just before a sample; None where it does not last."""
        end = int(np.searchsorted(elapsed, elapsed[first] + self.within_s, "right"))
        steepest = first + int(np.argmax(-np.diff(users[first : end + 1])))
        start = steepest  # ... and what leads up to it, faster than the coordinator
        while start > 0 and users[start - 1] - users[start] > max(0.02 * may, self._own(elapsed, start)):
            start -= 1
        before, past = float(users[start]), max(elapsed[start] + self.within_s, elapsed[steepest])
        soon = users[(elapsed > past) & (elapsed <= past + self.lasting_s)]
        left = float(np.median(soon)) if soon.size else float(users[-1])
        last = int(np.searchsorted(elapsed, elapsed[start] + self.low_s, "right"))
        lowest = float(users[start + 1 : max(last, start + 2)].min())
        restart = lowest < self.hardly_any * before
        if before - left <= 0.5 * may and not restart:
            return None
        again = np.flatnonzero((elapsed > past) & (users >= (self.back if restart else 1.0 - self.part) * before))
        back = float(elapsed[again[0]]) if again.size else None
        kind: Literal["lost", "restart"] = "restart" if restart and back is not None else "lost"
        return Fall(kind, float(elapsed[start]), before, lowest, back)

    def _own(self, elapsed: FloatArray, at: int) -> float:
        """What the coordinator itself may take away from the sample before to this one."""
        return self.rounding * self.fastest_fall * float(elapsed[at] - elapsed[at - 1])
