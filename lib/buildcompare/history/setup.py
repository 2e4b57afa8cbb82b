"""Compare the setups of two comparisons: settings that changed, and settings that only one of them states."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from buildcompare.history.ledger import ChainEntry, TestKey
from buildcompare.results.codes import SetupChange
from buildcompare.results.history import SetupDifference
from buildcompare.text.numbers import db_name

SETUP_COLUMNS = {
    "load_test_version": "Load-test version",
    "dataset": "Dataset",
    "duration": "Bounded - duration",
    "max_active_users": "Unbounded - MaxActiveUsers",
    "app_instances": "App instances",
    "agent_instances": "Agent instances",
    "proxy_instance": "Proxy Instance",
    "db_instances": "DB instances",
}
"""Columns of an imported table -> rows of the setup, named as in published reports."""
COORDINATOR_COLUMNS = {
    "users_inc": "Coordinator - users added per step",
    "users_dec": "Coordinator - users removed per step",
    "rest_s": "Coordinator - rest between steps (s)",
}
_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *COORDINATOR_COLUMNS.values())}
"""Settings that every comparison should state: a missing one may hide the cause of a drift."""


def setup_differences(before: ChainEntry, now: ChainEntry) -> list[SetupDifference]:
    """List the settings that changed from `before` to `now`, then settings that only one comparison states.

    Case, extra spaces and Markdown marks are ignored. A setting that only one comparison states is listed if
    both comparisons have the same `source`, or if every comparison should state it (`_EXPECTED`).
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = settings(before, common), settings(now, common)
    differences = []
    for key in dict.fromkeys((*new, *old)):
        (old_name, was), (name, value) = (side.get(key, ("", None)) for side in (old, new))
        if was is None or value is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if _normal(was) != _normal(value) else None
        if kind:
            row = SetupDifference(setting=name or old_name, against=before.name, before=was, now=value, kind=kind)
            differences.append(row)
    return sorted(differences, key=lambda row: row.kind)


def changed_settings(differences: Iterable[SetupDifference]) -> list[str]:
    """Names of the settings whose value changed; settings that only one comparison states are left out."""
    return [row.setting for row in differences if row.kind == SetupChange.CHANGED]


def settings(entry: ChainEntry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Map each setting's normalised name to (name, value); numbers of users are included only for tests in `common`."""
    rows = {plain_text(name): plain_text(value) for name, value in entry.setup.items()}
    for name, number in entry.coordinator.items():
        title = COORDINATOR_COLUMNS.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"
        rows[title] = f"{number:g}"
    for test in entry.tests:
        if test.users is not None and test.key in common:
            db = f" ({db_name(test.key[1])})" if test.key[1] else ""
            title = f"Bounded - number of users{db}" if test.type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(title, str(test.users))
    if entry.servers:
        rows["Metrics server"] = ", ".join(entry.servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


def plain_text(markdown: str) -> str:
    """Return the words of one line of Markdown, without addresses of links and without marks."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[`*_~\[\]\\]", "", without_links).split())


def _normal(text: str) -> str:
    """Normalise case, spaces and thousands separators, so that different spellings give the same text."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))
