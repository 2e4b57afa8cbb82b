"""Read YAML strictly, and check data against a model so that errors name file, key, line, expected and found.

Dates stay text, because papermill reads the same files and also leaves dates as text.
"""

import io
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString
from ruamel.yaml.tag import Tag

from buildcompare.config.errors import InputError, meant
from buildcompare.config.outside import CONTROLS_IN_LINES, everywhere
from buildcompare.config.project import read_text

MAX_BYTES = 1_000_000
"""Maximum size of a file, in bytes."""
MAX_VALUES = 20_000
"""Maximum number of values in a file with all aliases and merges expanded. Nested aliases can grow exponentially."""
_SECRET_KEYS = ("auth", "headers", "headers_env")
"""Errors never show the values of these keys."""
_A_TIME = 'a time with its zone, such as "2024-12-11T10:00:00Z"'
_EXPECTED = {
    "string_type": "text (put it in quotes)",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "keys with values"),
    **dict.fromkeys(("timezone_aware", "datetime_from_date_parsing", "datetime_parsing", "datetime_type"), _A_TIME),
}
"""Pydantic's type of error -> expected value in plain words."""

Location = tuple[Hashable, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """Plain data with its file, if any, and the YAML node of each location in the data."""

    data: Any = field(default=None, compare=False)  # models are compared without their documents
    file: str | Path | None = field(default=None, compare=False)
    nodes: dict[Location, Node] = field(default_factory=dict, compare=False)

    def key(self, location: Location) -> str:
        """Name a location in the data for errors: dotted keys, and the line in the file."""
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
        named, node = dotted.removeprefix(".") or "top level", self.nodes.get(location)
        return named if node is None else f"{named} (line {node.start_mark.line + 1})"


_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_DECIMAL = r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
# Decimal numbers only: YAML 1.1 reads 0777 as 511, 1:1:1 as 3661 and 1_0 as 10.
_SCALARS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "null": (r"~?|(?i:null)", lambda _: None),
    "bool": (r"(?i:yes|true|on|no|false|off)", lambda text: text.lower() in ("yes", "true", "on")),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", int),
    "float": (rf"{_DECIMAL}|[-+]?\.(?i:inf)|\.(?i:nan)", lambda text: float(re.sub(r"\.(?=[inIN])", "", text))),
}
"""Tag -> pattern and conversion of plain scalars other than text."""


class _Resolver(VersionedResolver):
    """Resolver that tags plain scalars by `_SCALARS` in every version of YAML."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Choose the tag of a node that states no tag."""
        if kind is not ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        names = (name for name, (pattern, _) in _SCALARS.items() if re.fullmatch(pattern, value))
        return Tag(suffix=_TAG + ("merge" if value == "<<" else next(names, "str")))


class _Builder:
    """Convert YAML nodes to plain data, and keep the node of each location in the data."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.nodes: dict[Location, Node] = {}
        self.values = 0

    def value(self, node: Node, place: Location = ()) -> Any:
        """Return the plain data of `node`; aliases are expanded at each use."""
        self._count()
        self.nodes[place] = node
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        expected = "seq" if isinstance(node, SequenceNode) else "map"
        if node.tag != _TAG + expected:
            raise self._fault(node, "valid YAML", f"the tag {node.tag} is not allowed")
        if isinstance(node, SequenceNode):
            return [self.value(child, (*place, i)) for i, child in enumerate(node.value)]
        return self._mapping(node, place)

    def _count(self) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise InputError(file=self.file, key=None, expected=f"at most {MAX_VALUES:,} values", found="more")

    def _mapping(self, node: Node, place: Location) -> dict[str, object]:
        merged: dict[str, object] = {}
        local: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                parts = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                for part in reversed(parts):
                    self._count()
                    if not isinstance(part, MappingNode):
                        raise self._fault(part, "keys with values to merge", "none")
                    merged |= self._mapping(part, place)
                continue
            is_scalar = isinstance(key_node, ScalarNode)
            key = self._scalar(key_node) if is_scalar else None
            if not isinstance(key, str):
                found = repr(key_node.value) if is_scalar else "a list or keys with values"
                raise self._fault(key_node, "a key that is text (put it in quotes)", found)
            if key in local:
                raise self._fault(key_node, "each key once", f"{key!r} a second time")
            local[key] = self.value(value_node, (*place, key))
        return merged | local

    def _scalar(self, node: Node) -> Any:
        text, kind = node.value, str(node.tag).removeprefix(_TAG)
        if CONTROLS_IN_LINES.search(text):
            raise self._fault(node, "text without control characters", repr(text)[:80])
        if kind in ("str", "timestamp"):
            return text
        if kind not in _SCALARS:
            raise self._fault(node, "valid YAML", f"the tag {node.tag} is not allowed")
        pattern, read = _SCALARS[kind]
        if not re.fullmatch(pattern, text):
            raise self._fault(node, "values that their tags can hold", repr(text)[:80])
        return read(text)

    def _fault(self, node: Node, expected: str, found: str) -> InputError:
        return InputError(file=self.file, key=f"line {node.start_mark.line + 1}", expected=expected, found=found)


def read_yaml(file: Path) -> Document:
    """Read `file`, or raise :class:`InputError` naming the file and, if known, the line."""
    key, text = None, read_text(file, "a YAML file", max_bytes=MAX_BYTES)
    builder = _Builder(file)
    try:
        if re.search(r"(?:[\[{]\s*){200}", text):  # checked first: parsing time grows with the square of depth
            raise RecursionError
        reader = YAML(typ="safe", pure=True)
        reader.Resolver = _Resolver
        node = reader.compose(text)
        if node is not None:
            return Document(builder.value(node), file, builder.nodes)
        expected, found = "a YAML mapping", "an empty file"
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        expected, found = "values that their tags can hold", str(error)[:80]
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        key = None if mark is None else f"line {mark.line + 1}"
        expected, found = "valid YAML", str(getattr(error, "problem", None) or error).splitlines()[0]
    except RecursionError:
        expected, found = "values nested a few levels deep", "too many nested levels"
    raise InputError(file=file, key=key, expected=expected, found=found)


def yaml_text(data: Any, *, flow: bool = False) -> str:
    """Write plain data as YAML (in one line with `flow`); text that a reader may take for another type is quoted."""

    def quoted(text: str) -> str:
        is_word = re.fullmatch("(?i:y|n|yes|no|on|off|true|false|null|nan|inf)", text)
        if re.fullmatch(r"[A-Za-z][\w./ -]*(?<! )", text) and not is_word:
            return text
        needs_no_escapes = '"' in text and "'" not in text and text.isprintable()
        quotes: type[str] = SingleQuotedScalarString if needs_no_escapes else DoubleQuotedScalarString
        return quotes(text)

    sink, writer = io.StringIO(), YAML()
    writer.width, writer.default_flow_style = MAX_BYTES, flow
    writer.dump(everywhere(data, quoted), sink)
    return sink.getvalue().removesuffix("...\n")


class Strict(BaseModel, extra="forbid", strict=True, frozen=True):
    """Base model of a part of a file: immutable, with exact types and no unknown keys."""


class Traced(Strict):
    """Base model of a whole file, which knows the file's path and the lines of its values."""

    _document: Document = PrivateAttr(default_factory=Document)

    @property
    def file(self) -> Path | None:
        """Path of the file; None for data without one."""
        return None if self._document.file is None else Path(self._document.file)

    def fault_at(self, location: tuple[str | int, ...], error: InputError) -> InputError:
        """Return `error` with the key and line in this file that caused it, such as the key of a missing file."""
        document = self._document
        written = _existing(location, document.data)[0] if document.nodes else ()
        key = document.key(written or location)  # a default value is not in the file: use its `location`
        inner_key = None if error.key == location[-1] else error.key
        inner = ": ".join(part for part in (key, error.file, inner_key) if part)
        return InputError(file=document.file, key=inner, expected=error.expected, found=error.found)


def unlike(expected: str, found: str) -> PydanticCustomError:
    """Return an error for validators to raise; if `found` is empty, the error shows the actual value."""
    return PydanticCustomError("unlike", "{expected}", {"expected": expected, "found": found})


def refuse(faulty: object, expected: str, found: str) -> None:
    """Raise an error in a model's validator if `faulty` is true."""
    if faulty:
        raise unlike(expected, found)


def must(fits: str | Callable[[Any], object], expected: str, found: str = "") -> AfterValidator:
    """Return a validator: a value must satisfy `fits`, a function or a pattern that matches the whole value."""
    is_fit = re.compile(fits).fullmatch if isinstance(fits, str) else fits

    def check(value: Any) -> Any:
        if not is_fit(value):
            raise unlike(expected, found)
        return value

    return AfterValidator(check)


def checked(model: type[Model], data: Any, *, file: str | Path | None = None) -> Model:
    """Check a document or plain data against `model`; raise :class:`InputError` for the first fault."""
    document = data if isinstance(data, Document) else Document(data, file)
    if not isinstance(document.data, dict):
        found = _kind(document.data)
        raise InputError(file=document.file, key=None, expected="a mapping of keys to values", found=found)
    try:
        made = model.model_validate(document.data)
    except ValidationError as error:
        raise _first_error(model, error.errors(), document) from None
    if isinstance(made, Traced):
        made._document = document  # noqa: SLF001 - its class is in this file
    return made


def _first_error(model: type[BaseModel], errors: list[ErrorDetails], document: Document) -> InputError:
    # Report an unknown key first, because it often explains a missing key.
    error = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    kind, place = error["type"], error["loc"]
    location, value = _existing(place, document.data)
    if kind == "missing":
        expected, found = f"the key `{place[-1]}`", "no such key"
    elif kind == "extra_forbidden":
        keys = _model_keys(model, location)
        expected = f"one of {', '.join(keys)}" if keys else "a known key"
        found = f"the unknown key `{location[-1]}`{meant(location[-1], keys)}"
    else:
        expected = _EXPECTED.get(kind, re.sub("^(Value error, |(Input|String) should (be|have) )", "", error["msg"]))
        expected = f"one of {expected}" if kind == "literal_error" else expected
        secret = any(part in _SECRET_KEYS for part in location)
        seen = _kind(value) if secret else _found(value, document.nodes.get(location))
        if kind in ("too_long", "too_short") and isinstance(value, (list, tuple, dict)):
            most, least = (error["ctx"].get(f"{end}_length") for end in ("max", "min"))
            seen, expected = str(len(value)), f"at most {most} of them" if most else f"at least {least} of them"
        key_at_fault = place[-1:] == ("[key]",)
        found = error.get("ctx", {}).get("found") or (repr(location[-1]) if key_at_fault else seen)
    return InputError(file=document.file, key=document.key(location), expected=expected, found=found)


def _existing(location: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the keys of `location` that exist in `data`, and the value at these keys; other keys are skipped."""
    path: list[Any] = []
    for part in location:
        index = isinstance(part, int) and isinstance(data, (list, tuple)) and part < len(data)
        if index or (isinstance(data, dict) and part in data):
            data = data[part]
            path.append(part)
    return tuple(path), data


def _model_keys(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the keys of the model that contains `location`; empty if there is no such model."""
    for part in (part for part in location[:-1] if isinstance(part, str)):
        types: list[Any] = [model.model_fields[part].annotation] if part in model.model_fields else []
        for each in types:  # the loop adds all types nested in the field's type
            types += get_args(each)
        inner = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        if not inner:
            return []
        model = inner[0]
    return [*model.model_fields]


def _found(value: Any, node: Node | None) -> str:
    written = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, bool) or value is None:
        return f"{written!r}, which YAML reads as {value}" if written else f"{value}"
    if isinstance(value, (int, float)):
        same = written is None or isinstance(value, int) or str(value) == written
        return f"the number {value}" if same else f"the number {written}, which YAML reads as {value}"
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:77] + "...")
    return _kind(value)


def _kind(value: Any) -> str:
    names = {dict: "keys with values", list: "a list", str: "text", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)
