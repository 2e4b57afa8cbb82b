"""What a validity is made of: facts of runs, reasons with their numbers, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from buildcompare.load.stop import Stop
from buildcompare.load.supported_users import Reason as NoEstimate
from buildcompare.load.supported_users import SupportedUsers
from buildcompare.results.codes import ValidityStatus

Side = Literal["base", "new"]
Code = Literal[
    "target_not_reached",
    "target_not_held",
    "loads_differ",
    "users_lost",
    "restarted",
    "counters_restarted",
    "ceiling_reached",
    "still_climbing",
    "still_falling",
    "may_be_cut",
    "too_short",
    "gaps",
    "no_users",
    "silent_end",
    "silent_start",
    "no_steady_window",
    "window_shorter",
    "little_coverage",
    "series_missing",
    "windows_overlap",
    "other_runs",
]


@dataclass(frozen=True)
class Reason:
    """Something that limits what may be said, or forbids to say anything.

    Attributes
    ----------
    numbers
        What was found, and what was expected; times in elapsed seconds.
    text
        A metric's slug, or a text that another analysis gives; empty for most.
    side, run
        Which run, counted from 0; None where it is about several.
    until_s
        The run is fit up to here; None where it is not a matter of time.
    """

    code: Code
    severity: ValidityStatus
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    side: Side | None = None
    run: int | None = None
    until_s: float | None = None

    @property
    def voids_supported_users(self) -> bool:
        """Whether users were lost within the last 30 minutes, or not yet back when these began."""
        return "in_last_minutes" in self.numbers or "still_missing" in self.numbers


@dataclass(frozen=True)
class Covered:
    """Of one metric in the steady window: the part that is there as a number; None where the run has no such series."""

    fraction: float | None


@dataclass(frozen=True)
class RunFacts:
    """What is known of one run.

    Attributes
    ----------
    load
        The curve of users, or of a proxy (`users` False), over elapsed seconds; None without either.
    steady, no_steady
        The steady window, or the reason why there is none.
    target
        Users of a bounded test; the ceiling of an unbounded one.
    fastest_fall
        Users per second that the coordinator takes away by itself.
    coverage
        By slug of the catalogue's metrics.
    window, clock
        Start and end in seconds since 1970, and the name of the server whose time this is; without a name the
        clock is arbitrary, or cannot be held against another run's.
    resets
        How often counters of the server started again inside the window, as the server counts it.
    no_users
        Whether a curve of users was recorded that is zero from beginning to end.
    silent_s
        From the load's last number to the known stop, in seconds; 0 where the stop is not known.
    late_s
        From the window's start to the first number of any metric, in seconds.
    """

    kind: Literal["bounded", "unbounded"]
    load: pd.Series | None
    users: bool
    stop: Stop | None
    steady: tuple[float, float] | None
    no_steady: str | None = None
    target: int | None = None
    fastest_fall: float = 4.0
    estimate: SupportedUsers | None = None
    reported: float | None = None
    coverage: Mapping[str, Covered] = field(default_factory=dict)
    window: tuple[float, float] = (0.0, 0.0)
    clock: str | None = None
    resets: int = 0
    no_users: bool = False
    silent_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """Whether something may be judged: the worst of its reasons.

    Attributes
    ----------
    valid_until_s
        Elapsed seconds up to which what is limited may be judged; None where time does not limit it.
    """

    status: ValidityStatus
    valid_until_s: float | None
    reasons: tuple[Reason, ...]

    @property
    def voids_supported_users(self) -> NoEstimate | None:
        """Why the mean of the last 30 minutes is not what the build supports; None where it is."""
        voiding = {reason.code for reason in self.reasons if reason.voids_supported_users}
        return None if not voiding else "users_lost" if "users_lost" in voiding else "interrupted"


@dataclass(frozen=True)
class TestVerdict:
    """The verdict on a test, and on each of its runs."""

    __test__ = False  # not a test class of pytest's

    test: Verdict
    runs: Mapping[Side, tuple[Verdict, ...]]
