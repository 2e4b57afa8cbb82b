"""Compare the load tests of two builds of a server, with evidence.

Examples
--------
>>> import buildcompare as bc
>>> comparison = bc.read_params("params/v10.4.0-rc1.yaml")
>>> bc.compare(comparison).verdict
<Verdict.PASS: 'pass'>
"""

from importlib.metadata import entry_points, version

import lazy_loader

# The public names stand in __init__.pyi. A module is imported when a name of it is first used: most take a second.
_public, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_REGISTERED = {entry.name: entry for entry in entry_points(group="buildcompare.names")}
"""Names from packages that build on this one, such as investigation and labmatrix."""
__all__ += _REGISTERED  # noqa: PLE0605 - a list already


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("buildcompare")
    return _REGISTERED[name].load() if name in _REGISTERED else _public(name)
