"""What can go wrong in a run, or be changed in it by exactly as much as asked for.

Times are seconds since the run's start. `LostAgent` and `Restart` happen to the load test itself, so the
coordinator answers to them; the others change the finished recording and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class LostAgent:
    """One of `agents` agents dies: its users disconnect, and the coordinator goes on counting them."""

    at_s: float
    agents: int = 11


@dataclass(frozen=True)
class Restart:
    """The server restarts: everyone is disconnected for `down_s`, reconnects over `reconnect_s`, caches are cold."""

    at_s: float
    down_s: float = 20.0
    reconnect_s: float = 60.0


@dataclass(frozen=True)
class Gap:
    """Samples from `start_s` to before `end_s` are missing, of one metric or of all."""

    start_s: float
    end_s: float
    metric: str | None = None


@dataclass(frozen=True)
class NanStretch:
    """Samples from `start_s` to before `end_s` are NaN, of one metric or of all."""

    start_s: float
    end_s: float
    metric: str | None = None


@dataclass(frozen=True)
class MetricEffect:
    """Values of one metric are multiplied by `factor`, from `at_s` on (0: the whole run)."""

    metric: str
    factor: float
    at_s: float = 0.0


@dataclass(frozen=True)
class LabelEffect:
    """The summaries of one label are multiplied by `factor`; a p99 stays within its histogram."""

    group: str
    label: str
    factor: float


@dataclass(frozen=True)
class Truncation:
    """The recording ends at `at_s`, before the run did, and does not know of the stop."""

    at_s: float


Injection: TypeAlias = LostAgent | Restart | Gap | NanStretch | MetricEffect | LabelEffect | Truncation
