"""The JSON Schema of results.json; the string below a field in its class becomes the field's description."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator

from buildcompare.results.base import Model
from buildcompare.results.models import Results


def json_schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of results.json."""
    schema = Results.model_json_schema(mode="serialization")
    # Descriptions are added here, because pydantic's own option would read the source of every class at each import.
    for model in _models_below(Model):
        stated = schema if model is Results else schema["$defs"].get(model.__name__, {})
        for name, words in _field_notes(model).items():
            if name in stated.get("properties", {}):
                stated["properties"][name] = dict(sorted([*stated["properties"][name].items(), ("description", words)]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _models_below(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for each in model.__subclasses__():
        yield from _models_below(each)


def _field_notes(model: type[Model]) -> dict[str, str]:
    """Read the strings below the fields of a class and its bases, by name of the field."""
    notes: dict[str, str] = {}
    for each in reversed([each for each in model.__mro__ if issubclass(each, Model)]):
        (stated,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for field, below in itertools.pairwise(getattr(stated, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    notes[name] = inspect.cleandoc(words)
    return notes
