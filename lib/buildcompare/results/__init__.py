"""The schema of results.json. Its models are imported on first use, because the codes alone need no pydantic."""

from importlib import import_module


def __getattr__(name: str) -> object:
    return getattr(import_module("buildcompare.results.models"), name)
