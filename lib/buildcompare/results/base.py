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

# JSON has no NaN and no infinity; both become null.
_or_null = BeforeValidator(lambda each: None if isinstance(each, float) and not math.isfinite(each) else each)
Number = Annotated[float | None, _or_null]


class Model(BaseModel):
    """Base class of every part of results.json: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KindResult(Model):
    """The results of a kind of comparison that another package registers (:class:`buildcompare.config.kinds.Kind`)."""

    model_config = ConfigDict(defer_build=True)  # pydantic builds the schema at first use, to avoid circular imports

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        if cls is not KindResult:
            return handler(source)
        kinds = [entry.load() for entry in entry_points(group="buildcompare.kinds")]
        return handler.generate_schema(functools.reduce(operator.or_, [kind.result for kind in kinds]))

    def tables(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """Return the rows of each table that is published as CSV, by the name of the table."""
        raise NotImplementedError


class Label(Model):
    """Name of a build, as reports show it."""

    label: str


class Length(Model):
    """Length of a run that is too short, and the length that it would need, in seconds."""

    run_s: float
    needed_s: float
    rate_s: Number
    """Maximum `rate_s` (seconds over which rates are taken) for which the run is long enough; null if there is none."""


class Reason(Model):
    """The reason why a row was not judged, or why a run has no steady window."""

    code: ReasonCode
    build: Side | None = None
    """Build that the reason concerns; null if it concerns both builds or neither."""
    minutes: Number = None
    """Duration of the steady load, in minutes, if it is too short; else null."""
    length: Length | None = None
    """For the code ``short``: actual and needed length of the run."""
    because: ReasonCode | None = None
    """For the code ``no_steady_window``: the code of the reason why the run has no steady window."""
