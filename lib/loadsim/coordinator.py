"""The coordinator's feedback rule: add or remove users by its alerts, and stop when their trend is level."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from loadsim.settings import Coordinator


@dataclass
class FeedbackLoop:
    """State of the coordinator during a test; :meth:`evaluate` is one pass of its loop.

    Order within a pass, as in the load-test tool: record the alert, check the stop rule, act.
    """

    rule: Coordinator
    active: int = 0
    first_alert_s: float | None = None
    supported_users: float | None = None
    actions: list[tuple[float, int]] = field(default_factory=list)
    _last_alert_s: float = 0.0
    _last_action_s: float | None = None
    _trend: Trend = field(init=False)

    def __post_init__(self) -> None:
        self._trend = Trend(self.rule.window_s)

    def evaluate(self, at_s: float, alert: bool) -> bool:
        """Run one pass at `at_s` seconds with or without an alert; True when the test is over."""
        rule = self.rule
        if alert:
            self._last_alert_s = at_s
            if self.first_alert_s is None:
                self.first_alert_s = at_s
        if self.first_alert_s is not None:
            self._trend.add(at_s, self.active)
            if self._trend.whole and abs(self._trend.slope) < rule.slope_limit:
                self.supported_users = self._trend.mean
                return True
        resting = self._last_action_s is not None and at_s - self._last_action_s <= rule.rest_s
        if self.first_alert_s is not None and resting:
            return False
        if alert:
            self._act(at_s, -min(rule.users_dec, self.active))
        elif self.first_alert_s is None or at_s - self._last_alert_s > rule.rest_s:
            self._act(at_s, min(rule.users_inc, rule.max_users - self.active))
        return False

    def _act(self, at_s: float, change: int) -> None:
        if change:
            self.active += change
            self._last_action_s = at_s
            self.actions.append((at_s, change))


class Trend:
    """Mean and least-squares slope of the samples of the last `window_s` seconds, updated in constant time."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.whole = False
        self._points: deque[tuple[float, float]] = deque()
        self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        """Add a sample and drop those older than the window; `whole` is True once any was dropped."""
        self._points.append((x, y))
        self._count(x, y, 1.0)
        while self._points[0][0] < x - self.window_s:
            self._count(*self._points.popleft(), -1.0)
            self.whole = True

    @property
    def mean(self) -> float:
        """Mean of the samples in the window."""
        return self._y / len(self._points)

    @property
    def slope(self) -> float:
        """Least-squares slope in units of y per unit of x."""
        n = len(self._points)
        spread = n * self._xx - self._x**2
        return (n * self._xy - self._x * self._y) / spread if spread > 0 else 0.0

    def _count(self, x: float, y: float, sign: float) -> None:
        self._x += sign * x
        self._y += sign * y
        self._xx += sign * x * x
        self._xy += sign * x * y
