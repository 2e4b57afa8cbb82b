"""What the models of results.json are made of."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from buildcompare.results.codes import ReasonCode, Side


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]


class Model(BaseModel):
    """A part of results.json: no key beyond its own, and never changed once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Label(Model):
    """A build by its name."""

    label: str


class Reason(Model):
    """Why a row was not judged, or why a run has no steady window."""

    code: ReasonCode
    build: Side | None = None
    """The build that it is about; None: both, or neither in particular."""
    minutes: Number = None
    """How long the load was steady, where that was too short."""
    because: ReasonCode | None = None
    """Of ``no_steady_window``: why there is none."""
