"""The two builds of a test, and the views of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from buildcompare.load.view import RunView
from buildcompare.results import Side

SIDES: tuple[Side, Side] = ("base", "new")
Views = Mapping[Side, Sequence[RunView]]
