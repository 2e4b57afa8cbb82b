"""Compare the load tests of two builds of a server, with evidence."""

from importlib.metadata import version as _version

__version__ = _version("buildcompare")
