"""What do the parts of results.json have in common: numbers, builds, statuses?"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from buildcompare.results.codes import Side as Side
from buildcompare.results.codes import Status as Status
from buildcompare.results.codes import Verdict as Verdict


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
