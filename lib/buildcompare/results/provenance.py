"""Where does a report come from?"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from buildcompare.results.base import Model, Side


class GrafanaLink(Model):
    """A link to a dashboard."""

    title: str
    url: str


class InputProvenance(Model):
    """One file that a run was read from."""

    test: str
    build: Side
    run: int
    kind: str
    path: str
    sha256: str
    bytes: int


class Provenance(Model):
    """Where all of it comes from. Only `run` differs between two runs of the same inputs."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    run: dict[str, Any] = Field(default_factory=dict)
