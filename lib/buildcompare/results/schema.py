"""The JSON Schema of results.json, with what the classes say of their fields."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any

from buildcompare.results.base import Model
from buildcompare.results.models import Results


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of results.json."""
    schema = Results.model_json_schema(mode="serialization")
    # pydantic itself would read every class's source at each start, for words that only this schema holds.
    for model in _models_below(Model):
        stated = schema if model is Results else schema["$defs"].get(model.__name__, {})
        for name, words in _said_of_fields(model).items():
            if name in stated.get("properties", {}):
                stated["properties"][name] = dict(sorted([*stated["properties"][name].items(), ("description", words)]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _models_below(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for each in model.__subclasses__():
        yield from _models_below(each)


def _said_of_fields(model: type[Model]) -> dict[str, str]:
    """What stands below each field of a class and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed([each for each in model.__mro__ if issubclass(each, Model)]):
        (stated,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for field, below in itertools.pairwise(getattr(stated, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = inspect.cleandoc(words)
    return found
