"""Compare the setups of two comparisons: every setting that changed, or that only one of them states."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from buildcompare.history.ledger import Entry, TestKey
from buildcompare.history.table import COORDINATOR_COLUMNS, SETUP_COLUMNS
from buildcompare.results.codes import SetupChange
from buildcompare.results.history import SetupDifference
from buildcompare.text.numbers import db_name

_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *COORDINATOR_COLUMNS.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""


def setup_differences(before: Entry, now: Entry) -> list[SetupDifference]:
    """Every setting that changed from `before` to `now`, and every one that only one of them states.

    Settings are paired by name without regard to case and marks. One that only one comparison states is listed where
    both came from one source, or where any comparison should state it.
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = settings(before, common), settings(now, common)
    found = []
    for key in dict.fromkeys((*new, *old)):
        (old_name, was), (name, is_now) = (side.get(key, ("", None)) for side in (old, new))
        if was is None or is_now is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if differ(was, is_now) else None
        if kind:
            known = {"setting": name or old_name, "against": before.name, "before": was, "now": is_now}
            found.append(SetupDifference.model_validate({**known, "kind": kind}))
    return sorted(found, key=lambda each: each.kind)


def changed_settings(differences: Iterable[SetupDifference]) -> list[str]:
    """The settings that changed, without those that one comparison does not state."""
    return [each.setting for each in differences if each.kind == SetupChange.CHANGED]


def settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the normal form of the name; of tests, only those that both comparisons have (`common`)."""
    tests = [(*test.key, test.users) for test in entry.tests if test.key in common]
    return stated(entry.setup, entry.coordinator, entry.servers, tests)


def stated(
    setup: Mapping[str, str],
    coordinator: Mapping[str, float],
    servers: Sequence[str],
    tests: Iterable[tuple[str, str, int | None]],
) -> Mapping[str, tuple[str, str]]:
    """The same of an entry's fields; `tests` by type, database (in small letters) and users."""
    rows = {plain_text(name): plain_text(value) for name, value in setup.items()}
    for name, value in coordinator.items():
        rows[COORDINATOR_COLUMNS.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"] = f"{value:g}"
    for test_type, db_engine, users in tests:
        if users is not None:
            db = f" ({db_name(db_engine)})" if db_engine else ""
            name = f"Bounded - number of users{db}" if test_type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(name, str(users))
    if servers:
        rows["Metrics server"] = ", ".join(servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


@functools.lru_cache(maxsize=4096)
def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[`*_~\[\]\\]", "", without_links).split())


def differ(was: str, now: str) -> bool:
    """Whether two settings are more than two spellings."""
    return _normal(was) != _normal(now)


@functools.lru_cache(maxsize=4096)
def _normal(text: str) -> str:
    """What different spellings of one thing share."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))
