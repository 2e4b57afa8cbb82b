"""Compare the settings of one comparison with those of an earlier one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from buildcompare.history.ledger import Entry, TestKey
from buildcompare.history.table import SETUP_COLUMNS
from buildcompare.results import SetupDifference
from buildcompare.results.codes import SetupChange
from buildcompare.text.numbers import db_name

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[`*_~\[\]\\]")
_COORDINATOR = {
    "users_inc": "Coordinator - users added per step",
    "users_dec": "Coordinator - users removed per step",
    "rest_s": "Coordinator - rest between steps (s)",
}
_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *_COORDINATOR.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""


def setup_differences(before: Entry, now: Entry) -> list[SetupDifference]:
    """Every setting that changed from `before` to `now`, and every one that only one of them states.

    Settings are paired by name without regard to case and marks. One that only one comparison states is listed where
    both came from one source, or where any comparison should state it.
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = _settings(before, common), _settings(now, common)
    found = []
    for key in dict.fromkeys((*new, *old)):
        was, is_now = (side[key][1] if key in side else None for side in (old, new))
        if was is None or is_now is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if _normal(was) != _normal(is_now) else None
        if kind:
            setting = (new.get(key) or old[key])[0]
            found.append(SetupDifference(setting=setting, against=before.name, before=was, now=is_now, kind=kind))
    return sorted(found, key=lambda each: each.kind)


def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", markdown)).split())


def _settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the normal form of the name; of tests, only those that both comparisons have (`common`)."""
    rows = {plain_text(name): plain_text(value) for name, value in entry.setup.items()}
    for name, value in entry.coordinator.items():
        rows[_COORDINATOR.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"] = f"{value:g}"
    for test in entry.tests:
        if test.users is not None and test.key in common:
            db = f" ({db_name(test.db_engine)})" if test.db_engine else ""
            name = f"Bounded - number of users{db}" if test.type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(name, str(test.users))
    if entry.servers:
        rows["Metrics server"] = ", ".join(entry.servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


def _normal(text: str) -> str:
    """What different spellings of one thing share."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))
