"""Compare the load tests of two builds of a server, with evidence.

Examples
--------
>>> import buildcompare as bc
>>> comparison = bc.read_params("params/v10.4.0-rc1.yaml")
>>> bc.compare(comparison).verdict
<Verdict.PASS: 'pass'>
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buildcompare.api import Result as Result
    from buildcompare.api import compare as compare
    from buildcompare.config.errors import BuildcompareError as BuildcompareError
    from buildcompare.config.errors import InputError as InputError
    from buildcompare.config.errors import SourceError as SourceError
    from buildcompare.config.params import read_params as read_params
    from buildcompare.labels.tables import label_table as label_table
    from buildcompare.labels.traffic_mix import traffic_mix as traffic_mix
    from buildcompare.load.curve import steady_window as steady_window
    from buildcompare.load.phases import bumps as bumps
    from buildcompare.load.phases import ramp as ramp
    from buildcompare.load.phases import waves as waves
    from buildcompare.load.users import supported_users as supported_users
    from buildcompare.load.view import shift as shift
    from buildcompare.metrics.equal_load import LoadedRun as LoadedRun
    from buildcompare.metrics.equal_load import equal_load as equal_load
    from buildcompare.metrics.events import find_events as find_events
    from buildcompare.recordings.recording import Recording as Recording
    from buildcompare.recordings.sources import pull as pull
    from buildcompare.recordings.sources import read as read
    from buildcompare.results.codes import Status as Status
    from buildcompare.results.codes import Verdict as Verdict
    from buildcompare.stats.changepoints import changepoints as changepoints
    from buildcompare.stats.effects import judge_levels as judge_levels
    from buildcompare.stats.levels import measure_level as measure_level
    from buildcompare.stats.noise import run_noise as run_noise

_PUBLIC = {
    "BuildcompareError": "config.errors",
    "InputError": "config.errors",
    "LoadedRun": "metrics.equal_load",
    "Recording": "recordings.recording",
    "Result": "api",
    "SourceError": "config.errors",
    "Status": "results.codes",
    "Verdict": "results.codes",
    "bumps": "load.phases",
    "changepoints": "stats.changepoints",
    "compare": "api",
    "equal_load": "metrics.equal_load",
    "find_events": "metrics.events",
    "judge_levels": "stats.effects",
    "label_table": "labels.tables",
    "measure_level": "stats.levels",
    "pull": "recordings.sources",
    "ramp": "load.phases",
    "read": "recordings.sources",
    "read_params": "config.params",
    "run_noise": "stats.noise",
    "shift": "load.view",
    "steady_window": "load.curve",
    "supported_users": "load.users",
    "traffic_mix": "labels.traffic_mix",
    "waves": "load.phases",
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
