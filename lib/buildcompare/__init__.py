"""Compare the load tests of two builds of a server, with evidence."""

__version__ = "0.1.0"
