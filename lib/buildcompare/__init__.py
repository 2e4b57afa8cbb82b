"""Compare the load tests of two builds of a server, and report the differences with their evidence.

Examples
--------
>>> import buildcompare as bc
>>> comparison = bc.read_params("params/v10.4.0-rc1.yaml")
>>> bc.compare(comparison).verdict
<Verdict.PASS: 'pass'>
"""

from importlib.metadata import entry_points, version

import lazy_loader

# __init__.pyi lists the public names. The module of a name is imported when the name is first used: imports are slow.
_public, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_REGISTERED = {entry.name: entry for entry in entry_points(group="buildcompare.names")}
"""Public name -> its entry point, registered by a package that builds on this one, such as labmatrix."""
__all__ += _REGISTERED  # noqa: PLE0605 - `__all__` is a list


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("buildcompare")
    return _REGISTERED[name].load() if name in _REGISTERED else _public(name)
