"""How a fault in a user's YAML is said: file, key and line, what was expected, what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from buildcompare.config.errors import InputError
from buildcompare.config.yaml import Document

_SECRET_KEYS = ("auth", "headers", "headers_env")
"""Keys below which an error never repeats what it found."""
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class _Origin:
    """The file that a model was read from; two models that say the same are equal, wherever they stood."""

    file: str | Path | None = field(default=None, compare=False)
    document: Document | None = field(default=None, compare=False)


class Traced(BaseModel):
    """A model that knows which file and which of its lines it was read from."""

    _origin: _Origin = PrivateAttr(default_factory=_Origin)

    def fault_at(self, location: tuple[str | int, ...], error: InputError) -> InputError:
        """A fault of what the value at `location` names, such as a file that is not there: it stands in both places."""
        document = self._origin.document
        written = _existing(location, document.data, missing=False)[0] if document else ()
        location = written or location  # a default stands in no line
        line = document.lines.get(written) if document and written else None
        key = f"{_dotted(location)} (line {line})" if line else _dotted(location)
        own = None if error.key == location[-1] else error.key
        inner = ": ".join(part for part in (key, error.file, own) if part)
        return InputError(file=self._origin.file, key=inner, expected=error.expected, found=error.found)


def checked(
    model: type[Model], data: Any, *, file: str | Path | None = None, document: Document | None = None
) -> Model:
    """Check plain data against `model`.

    Raises
    ------
    InputError
        With the first fault; `document` gives its line.
    """
    if not isinstance(data, dict):
        raise InputError(file=file, key=None, expected="a mapping of keys to values", found=_kind(data))
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        raise _first_error(model, error.errors(), data, file, document) from None
    if isinstance(made, Traced):
        made._origin = _Origin(file, document)
    return made


def _first_error(
    model: type[BaseModel],
    errors: list[ErrorDetails],
    data: dict[str, Any],
    file: str | Path | None,
    document: Document | None,
) -> InputError:
    # An unknown key explains a missing one beside it, so it is said first.
    error = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    location = tuple(part for part in error["loc"] if not (isinstance(part, str) and part.startswith("function-")))
    location, value = _existing(location, data, missing=error["type"] == "missing")
    line = document.lines.get(location) if document else None
    written = document.texts.get(location) if document else None
    key = _dotted(tuple(p for p in error["loc"] if p in location or error["type"] == "missing"))
    if error["type"] == "missing":
        expected, found = f"the key `{error['loc'][-1]}`", "no such key"
        key = _dotted(location) or "top level"
    elif error["type"] == "extra_forbidden":
        expected, found = _known_keys(model, location), f"the unknown key `{location[-1]}`"
        key = _dotted(location)
    else:
        expected = _expectation(error)
        secret = any(part in _SECRET_KEYS for part in location)
        found = error.get("ctx", {}).get("found") or (_kind(value) if secret else _found(value, written))
        key = _dotted(location) or "top level"
    return InputError(file=file, key=f"{key} (line {line})" if line else key, expected=expected, found=found)


def _existing(location: tuple[Any, ...], data: Any, *, missing: bool) -> tuple[tuple[Any, ...], Any]:
    """The longest part of `location` that exists in `data` (a single run stands where a list may)."""
    path: list[Any] = []
    value = data
    for part in location[:-1] if missing else location:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path), value


def _dotted(location: tuple[Any, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _known_keys(model: type[BaseModel], location: tuple[Any, ...]) -> str:
    """The keys that the model at `location` has."""
    for part in location[:-1]:
        if isinstance(part, str):
            inner = _models_in(model.model_fields[part].annotation) if part in model.model_fields else []
            if not inner:
                return "a known key"
            model = inner[0]
    return "one of " + ", ".join(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a field's type names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _expectation(error: ErrorDetails) -> str:
    kind, message = error["type"], error["msg"]
    words = {
        "string_type": "text (put it in quotes)",
        "int_type": "a whole number",
        "float_type": "a number",
        "list_type": "a list",
        "dict_type": "keys with values",
        "model_type": "keys with values",
        "model_attributes_type": "keys with values",
        "timezone_aware": 'a time with its zone, such as "2024-12-11T10:00:00Z"',
        "datetime_from_date_parsing": 'a time with its zone, such as "2024-12-11T10:00:00Z"',
        "datetime_parsing": 'a time with its zone, such as "2024-12-11T10:00:00Z"',
        "datetime_type": 'a time with its zone, such as "2024-12-11T10:00:00Z"',
    }
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "literal_error":
        return "one of " + str(error.get("ctx", {}).get("expected", message))
    return words.get(kind, message.removeprefix("Input should be ").removeprefix("Input should have "))


def _found(value: Any, written: str | None) -> str:
    if isinstance(value, bool) or value is None:
        return f"{written!r}, which YAML reads as {value}" if written else f"{value}"
    if isinstance(value, float) and written is not None and str(value) != written:
        return f"the number {written}, which YAML reads as {value}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:77] + "...")
    return _kind(value)


def _kind(value: Any) -> str:
    names = {dict: "keys with values", list: "a list", str: "text", type(None): "nothing"}
    return names.get(type(value), f"{type(value).__name__}")
