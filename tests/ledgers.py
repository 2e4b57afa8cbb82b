"""Entries of ledgers to test with."""

from collections.abc import Mapping
from typing import Any

from buildcompare.history.ledger import Entry
from buildcompare.results.codes import Pair

Users = Mapping[str, tuple[float | None, float | None]]
"""Supported users of base and new, by database."""


def entry(
    name: str,
    position: int | None = 1,
    builds: tuple[str | None, str | None] = ("1.0.0", "1.1.0"),
    users: Users | None = None,
    **more: Any,
) -> Entry:
    base, new = ({"label": f"v{version}", "version": version} for version in builds)
    tests = [
        {"name": f"{db}_unbounded", "type": "unbounded", "db_engine": db, "supported_users": Pair(*levels)}
        for db, levels in (users or {"mysql": (None, None)}).items()
    ]
    given = {"name": name, "position": position, "kind": "monthly" if position else "study", "source": "report"}
    return Entry.model_validate({**given, "base": base, "new": new, "tests": tests, **more})
