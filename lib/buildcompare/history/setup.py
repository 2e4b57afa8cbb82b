"""What else changed? The settings of one comparison beside those of an earlier one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from buildcompare.history.ledger import Entry, TestKey
from buildcompare.history.table import SETUP_COLUMNS
from buildcompare.results import SetupDifference
from buildcompare.text.numbers import db_name

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[`*_~\[\]\\]")
_COORDINATOR = {
    "users_inc": "Coordinator - users added per step",
    "users_dec": "Coordinator - users removed per step",
    "rest_s": "Coordinator - rest between steps (s)",
}
_THRESHOLD = "threshold_"
_ALWAYS_WANTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *_COORDINATOR.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""


def setup_differences(before: Entry, now: Entry) -> list[SetupDifference]:
    """Every setting that changed from `before` to `now`, and every one that only one of them says.

    Settings are paired by name without regard to case and marks. A setting that only one comparison says is listed
    where both came from one source, or where any comparison should say it.
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = _settings(before, common), _settings(now, common)
    found = []
    for key in [*new, *(key for key in old if key not in new)]:
        setting = (new.get(key) or old[key])[0]
        texts = [side[key][1] if key in side else None for side in (old, new)]
        if None in texts:
            if before.source == now.source or key in _ALWAYS_WANTED:
                found.append(_difference(setting, before, texts, "not_recorded"))
        elif _same(str(texts[0])) != _same(str(texts[1])):
            found.append(_difference(setting, before, texts, "changed"))
    return sorted(found, key=lambda each: each.kind)


def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", markdown)).split())


def _difference(setting: str, before: Entry, texts: list[str | None], kind: str) -> SetupDifference:
    return SetupDifference.model_validate(
        {"setting": setting, "against": before.name, "before": texts[0], "now": texts[1], "kind": kind}
    )


def _settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the name as it is compared; of tests, only those that both comparisons have (`common`)."""
    rows = {plain_text(name): plain_text(value) for name, value in entry.setup.items()}
    for name, value in entry.coordinator.items():
        title = _COORDINATOR.get(name) or f"Alert threshold - {name.removeprefix(_THRESHOLD)}"
        rows[title] = f"{value:g}"
    for test in entry.tests:
        if test.users is not None and test.key in common:
            what = "number of users" if test.type == "bounded" else "MaxActiveUsers"
            db = f" ({db_name(test.db_engine)})" if test.db_engine else ""
            rows.setdefault(f"{test.type.capitalize()} - {what}{db if test.type == 'bounded' else ''}", str(test.users))
    if entry.servers:
        rows["Metrics server"] = ", ".join(entry.servers)
    return {_same(name): (name, value) for name, value in rows.items()}


def _same(text: str) -> str:
    """What two people's spellings of one thing share."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))
