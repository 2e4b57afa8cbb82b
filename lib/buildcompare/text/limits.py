"""How it is said what limited a build."""

from __future__ import annotations

from buildcompare.load.limits import AlertUse, Limits
from buildcompare.text.numbers import quantity


def limited_words(limits: Limits) -> str:
    """A phrase for one build: what limited it, how often that alerted, what alerted first, and what was near."""
    by, first = limits.limited_by, limits.first
    if by is None:
        words = "no alert in the steady window"
    else:
        words = (
            f"{by.alert.name} (at or above {quantity(by.threshold, by.alert.unit)} in {by.share_steady:.0%} of the "
            f"steady window; {by.times} times in all)"
        )
    if first is not None and first.first_s is not None and (by is None or first.alert.slug != by.alert.slug):
        words += f"; first to alert: {first.alert.name}, at {first.first_s / 60:.0f} min"
    elif first is not None and first.first_s is not None:
        words += f", first at {first.first_s / 60:.0f} min"
    near = [use for use in limits.near if by is None or use.alert.slug != by.alert.slug]
    return words + (f"; near its limit: {', '.join(map(_near, near))}" if near else "")


def _near(use: AlertUse) -> str:
    return f"{use.alert.name} ({use.nearness:.0%})"
