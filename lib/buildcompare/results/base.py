"""Base classes of the models of results.json."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from buildcompare.results.codes import ReasonCode, Side

# JSON lacks NaN and infinity: they are null
_or_null = BeforeValidator(lambda each: None if isinstance(each, float) and not math.isfinite(each) else each)
Number = Annotated[float | None, _or_null]


class Model(BaseModel):
    """A part of results.json: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KindResult(Model):
    """The results of a kind of comparison that another package registers (:class:`buildcompare.config.kinds.Kind`)."""

    model_config = ConfigDict(defer_build=True)  # subclasses cannot be imported yet

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        if cls is not KindResult:
            return handler(source)
        kinds = [entry.load() for entry in entry_points(group="buildcompare.kinds")]
        return handler.generate_schema(functools.reduce(operator.or_, [kind.result for kind in kinds]))

    def tables(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """Rows of its tables as CSV, by name."""
        raise NotImplementedError


class Label(Model):
    """A build by its name."""

    label: str


class Length(Model):
    """Length of a run that is too short."""

    run_s: float
    needed_s: float
    rate_s: Number
    """The run is long enough for rates over this many seconds; null if for none."""


class Reason(Model):
    """The reason why a row was not judged, or a run has no steady window."""

    code: ReasonCode
    build: Side | None = None
    """The build concerned; None for both or neither."""
    minutes: Number = None
    """Duration of the steady load, if too short."""
    length: Length | None = None
    """For ``short``: how long the run is."""
    because: ReasonCode | None = None
    """For ``no_steady_window``: the cause."""
