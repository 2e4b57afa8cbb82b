"""Base classes of the models of results.json."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from buildcompare.results.codes import ReasonCode, Side


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]


class Model(BaseModel):
    """A part of results.json: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Label(Model):
    """A build by its name."""

    label: str


class Reason(Model):
    """The reason why a row was not judged, or a run has no steady window."""

    code: ReasonCode
    build: Side | None = None
    """The build concerned; None for both or neither."""
    minutes: Number = None
    """Duration of the steady load, if too short."""
    because: ReasonCode | None = None
    """For ``no_steady_window``: the cause."""
