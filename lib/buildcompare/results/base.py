"""What do the parts of results.json have in common: numbers, builds, statuses?"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

Status = Literal["regression", "improvement", "equivalent", "inconclusive", "not_comparable"]
Verdict = Literal["pass", "regression", "inconclusive", "invalid"]
Side = Literal["base", "new"]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
Window = tuple[float, float]


class Model(BaseModel):
    """A part of results.json: no key beyond its own, and never changed once made."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Label(Model):
    """A build by its name."""

    label: str


class BothNumbers(Model):
    """A number for each build; null where there is none."""

    base: Number = None
    new: Number = None


class BothTexts(Model):
    """A text for each build; null where there is none."""

    base: str | None = None
    new: str | None = None


class BothFlags(Model):
    """Yes or no for each build."""

    base: bool = False
    new: bool = False


class BothWindows(Model):
    """A window in elapsed seconds for each build (of its first run that has one)."""

    base: Window | None = None
    new: Window | None = None
