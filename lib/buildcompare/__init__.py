"""Compare the load tests of two builds of a server, with evidence.

Examples
--------
>>> import buildcompare as bc
>>> comparison = bc.read_params("params/v10.4.0-rc1.yaml")
>>> bc.compare(comparison).verdict
<Verdict.PASS: 'pass'>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buildcompare.api import Result as Result
    from buildcompare.api import compare as compare
    from buildcompare.config.errors import BuildcompareError as BuildcompareError
    from buildcompare.config.errors import InputError as InputError
    from buildcompare.config.errors import SourceError as SourceError
    from buildcompare.config.params import read_params as read_params
    from buildcompare.recordings.recording import Recording as Recording
    from buildcompare.recordings.sources import pull as pull
    from buildcompare.recordings.sources import read as read
    from buildcompare.results.codes import Status as Status
    from buildcompare.results.codes import Verdict as Verdict

_PUBLIC = {
    "BuildcompareError": "config.errors",
    "InputError": "config.errors",
    "Recording": "recordings.recording",
    "Result": "api",
    "SourceError": "config.errors",
    "Status": "results.codes",
    "Verdict": "results.codes",
    "compare": "api",
    "pull": "recordings.sources",
    "read": "recordings.sources",
    "read_params": "config.params",
}
"""Public name -> the module that defines it. Modules are imported when a name is first used: most take a second."""

__all__ = sorted(_PUBLIC)  # noqa: PLE0605 - a list of names, made from the table


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("buildcompare")
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
