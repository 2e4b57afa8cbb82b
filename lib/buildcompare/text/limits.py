"""What limited a build, in words."""

from __future__ import annotations

from collections.abc import Sequence

from buildcompare.config.catalogue import Alert
from buildcompare.results.codes import Side
from buildcompare.results.load import LimitedBy
from buildcompare.text.numbers import quantity


def limited_words(limits: LimitedBy, build: Side, alerts: Sequence[Alert]) -> str:
    """A phrase for one build: what limited it, how often that alerted, what alerted first, and what was near.

    Parameters
    ----------
    alerts
        The catalogue's, for their names and units.
    """
    known = {alert.slug: alert for alert in alerts}
    by, first = limits.limiting(build), limits.first(build)
    words = "no alert in the steady window"
    if by is not None:
        words = (
            f"{known[by.alert].name} (at or above {quantity(by.threshold, known[by.alert].unit)} in "
            f"{by.share_steady:.0%} of the steady window; {by.times} times in all)"
        )
    if first is not None and first.first_s is not None and by is not None and first.alert == by.alert:
        words += f", first at {first.first_s / 60:.0f} min"
    elif first is not None and first.first_s is not None:
        words += f"; first to alert: {known[first.alert].name}, at {first.first_s / 60:.0f} min"
    near = [
        f"{known[use.alert].name} ({use.nearness:.0%})"
        for use in limits.near(build)
        if by is None or use.alert != by.alert
    ]
    return words + (f"; near its limit: {', '.join(near)}" if near else "")
