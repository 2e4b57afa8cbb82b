"""The schema of results.json. Models are imported on first use, so that imports of the codes load no pydantic."""

from importlib import import_module


def __getattr__(name: str) -> object:
    rows, models = (import_module(f"buildcompare.results.{each}") for each in ("rows", "models"))
    return getattr(rows if hasattr(rows, name) else models, name)
