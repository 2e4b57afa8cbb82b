"""Compare the load tests of two builds of a server, with evidence.

Examples
--------
>>> import buildcompare as bc
>>> comparison = bc.read_params("params/v10.4.0-rc1.yaml")
>>> bc.compare(comparison).verdict
<Verdict.PASS: 'pass'>
"""

import lazy_loader

# The public names stand in __init__.pyi. A module is imported when a name of it is first used: most take a second.
_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("buildcompare")
    return _public(name)
