"""Every release on one page: rows in, one HTML file out that loads nothing, searches and sorts."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from buildcompare.results.codes import Verdict
from buildcompare.text import numbers as wording


@dataclass(frozen=True)
class UsersLine:
    """Supported users of both builds in one test, or of one version in two comparisons.

    Attributes
    ----------
    test
        As people call it: the database, or the test's name.
    against, value
        None where there is no figure.
    """

    test: str
    against: float | None
    value: float | None
    percent: float | None
    low: float | None
    high: float | None
    jump: bool = False


@dataclass(frozen=True)
class IndexRow:
    """One comparison.

    Attributes
    ----------
    verdict
        None where the ledger does not say: it was never a report of ours.
    before
        The comparison that `drift` and `setup` look back to; None where nothing is said of them.
    fault
        Why its results cannot be shown.
    """

    name: str
    base: str = ""
    new: str = ""
    verdict: Verdict | None = None
    simulated: bool = False
    study: bool = False
    users: Sequence[UsersLine] = ()
    drift: Sequence[UsersLine] = ()
    before: str | None = None
    setup: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()
    fault: str | None = None
    position: int = field(default=0, compare=False)

    @property
    def words(self) -> str:
        """What a search looks through beside the shown text."""
        marks = ("simulated" if self.simulated else "", "study" if self.study else "")
        return " ".join(part for part in marks if part)

    @property
    def largest_change(self) -> float:
        """For sorting: the change of the supported users that is furthest down."""
        return min((line.percent for line in self.users if line.percent is not None), default=1e9)

    @property
    def largest_drift(self) -> float:
        """For sorting: the largest drift, whichever way."""
        return -max((abs(line.percent) for line in self.drift if line.percent is not None), default=-1.0)

    @property
    def verdict_rank(self) -> int:
        """For sorting: the gravest first."""
        order = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.PASS)
        return order.index(self.verdict) if self.verdict else len(order)


def render(rows: Sequence[IndexRow]) -> str:
    """The page, rows in the given order."""
    templates = files("buildcompare.report") / "templates"
    script = (templates / "index/index.js").read_text("utf-8")
    css = [(templates / name).read_text("utf-8") for name in ("buildcompare/report.css", "index/index.css")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        _environment()
        .get_template("index.html.j2")
        .render(
            rows=rows,
            css=Markup("\n".join(css)),  # noqa: S704  # our own file
            script=Markup(script),  # noqa: S704  # our own file, the one that the page's policy lets run
            script_hash=f"'sha256-{digest}'",
        )
    )


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("buildcompare.report", "templates/index"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["change"] = wording.change
    environment.globals.update(
        interval=wording.interval,
        VERDICT_WORDS=wording.VERDICT_WORDS,
        VERDICT_SYMBOLS=wording.VERDICT_SYMBOLS,
    )
    return environment
