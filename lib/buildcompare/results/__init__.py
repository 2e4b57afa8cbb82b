"""The schema of results.json: its models are imported when one of them is first used, its codes need none of them."""

from importlib import import_module


def __getattr__(name: str) -> object:
    return getattr(import_module("buildcompare.results.models"), name)
