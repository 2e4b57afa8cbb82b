"""The schema of results.json. The models are imported on first use, because they load pydantic, which takes long."""

from importlib import import_module


def __getattr__(name: str) -> object:
    rows, models = (import_module(f"buildcompare.results.{each}") for each in ("rows", "models"))
    return getattr(rows if hasattr(rows, name) else models, name)
