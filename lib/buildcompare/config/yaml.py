"""Reads YAML strictly, and checks data against a model so that errors name file, key, line, expected and found.

papermill reads the same files with dates left as text, so dates stay text here too. (ruamel.yaml would not shorten it:
the bound on aliases, texts as written and the lines of values would have to be kept beside it too.)
"""

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from buildcompare.config.errors import InputError, meant
from buildcompare.config.outside import CONTROLS_IN_LINES
from buildcompare.config.project import read_text

MAX_BYTES = 1_000_000
"""No parameter file that a person writes comes near this size."""
MAX_VALUES = 20_000
"""Bound on the values after aliases are followed, so that nested aliases cannot explode."""
_SECRET_KEYS = ("auth", "headers", "headers_env")
"""Keys below which an error never repeats what it found."""
_A_TIME = 'a time with its zone, such as "2024-12-11T10:00:00Z"'
_EXPECTED = {
    "string_type": "text (put it in quotes)",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "keys with values"),
    **dict.fromkeys(("timezone_aware", "datetime_from_date_parsing", "datetime_parsing", "datetime_type"), _A_TIME),
}
"""Our words for pydantic's types of errors."""

Location = tuple[Hashable, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """Plain data, the file that it stands in, if any, and for each place in it the node as written there."""

    data: Any = field(default=None, compare=False)  # two models that say the same are equal, wherever they stood
    file: str | Path | None = field(default=None, compare=False)
    nodes: dict[Location, yaml.Node] = field(default_factory=dict, compare=False)

    def key(self, location: Location) -> str:
        """A place in the data, and its line, as errors name it."""
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
        named, node = dotted.removeprefix(".") or "top level", self.nodes.get(location)
        return named if node is None else f"{named} (line {node.start_mark.line + 1})"


class _Reader(yaml.SafeLoader):
    """The safe loader with dates left as text."""

    def values(self, node: yaml.Node, place: Location = ()) -> Iterator[tuple[Location, yaml.Node]]:
        """Each value and its place, those behind aliases each time again; only lists, and mappings with text keys."""
        if isinstance(node, yaml.CollectionNode) and node.tag not in (
            self.DEFAULT_MAPPING_TAG,
            self.DEFAULT_SEQUENCE_TAG,
        ):
            raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} is not allowed", node.start_mark)
        if isinstance(node, yaml.ScalarNode) and CONTROLS_IN_LINES.search(node.value):
            line, expected = f"line {node.start_mark.line + 1}", "text without control characters"
            raise InputError(file=self.name, key=line, expected=expected, found=repr(node.value)[:80])
        yield place, node
        if isinstance(node, yaml.SequenceNode):
            for i, child in enumerate(node.value):
                yield from self.values(child, (*place, i))
        keys: set[str] = set()
        for key_node, value_node in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                for part in reversed(value_node.value) if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    yield from self.values(part, place)
                continue
            scalar, line = isinstance(key_node, yaml.ScalarNode), f"line {key_node.start_mark.line + 1}"
            key = self.construct_object(key_node) if scalar else None  # a mapping of aliases is never written out
            if not isinstance(key, str):
                expected = "a key that is text (put it in quotes)"
                found = repr(key_node.value) if scalar else "a list or keys with values"
                raise InputError(file=self.name, key=line, expected=expected, found=found)
            if key in keys:
                raise InputError(file=self.name, key=line, expected="each key once", found=f"{key!r} a second time")
            keys.add(key)
            yield from self.values(value_node, (*place, key))


_UNLIKE = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_Reader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _UNLIKE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# Decimal numbers only: YAML 1.1 takes 0777 for 511, 1:1:1 for 3661 and 1_0 for 10.
_FLOAT = r"[-+]?(?:(?:0|[1-9]\d*)\.\d*(?:[eE][-+]\d+)?|\.\d+(?:[eE][-+]\d+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
for _tag, _form, _first in (("float", _FLOAT, "-+.0123456789"), ("int", r"[-+]?(?:0|[1-9]\d*)", "-+0123456789")):
    _Reader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_form})$", re.ASCII), [*_first])


def read_yaml(file: Path) -> Document:
    """Read `file`, or raise :class:`InputError` naming the file and the line."""
    key, text = None, read_text(file, "a YAML file", max_bytes=MAX_BYTES)
    try:
        reader, nodes = _Reader(text), {}
        reader.name = str(file)
        node = reader.get_single_node()
        if node is not None:
            for count, (place, value) in enumerate(reader.values(node)):
                if count == MAX_VALUES:
                    raise InputError(file=file, key=None, expected=f"at most {MAX_VALUES:,} values", found="more")
                nodes[place] = value
            return Document(reader.construct_document(node), file, nodes)
        expected, found = "a YAML mapping", "an empty file"
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        expected, found = "values that their tags can hold", str(error)[:80]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        key = None if mark is None else f"line {mark.line + 1}"
        expected, found = "valid YAML", str(getattr(error, "problem", None) or error).splitlines()[0]
    except RecursionError:
        expected, found = "values nested a few levels deep", "too many nested levels"
    raise InputError(file=file, key=key, expected=expected, found=found)


class Strict(BaseModel, extra="forbid", strict=True, frozen=True):
    """A part of a file: no key beyond its own, each value of its type, and never changed once made."""


class Traced(Strict):
    """A whole file, which knows which file and which of its lines it was read from."""

    _document: Document = PrivateAttr(default_factory=Document)

    @property
    def file(self) -> Path | None:
        """The file that it was read from, if any."""
        return None if self._document.file is None else Path(self._document.file)

    def fault_at(self, location: tuple[str | int, ...], error: InputError) -> InputError:
        """A fault of what the value at `location` names, such as a file that is not there: it stands in both places."""
        document = self._document
        written = _existing(location, document.data)[0] if document.nodes else ()
        key = document.key(written or location)  # a default stands in no line
        own = None if error.key == location[-1] else error.key
        inner = ": ".join(part for part in (key, error.file, own) if part)
        return InputError(file=document.file, key=inner, expected=error.expected, found=error.found)


def unlike(expected: str, found: str = "") -> PydanticCustomError:
    """A fault for validators to raise; without `found`, the value itself is said."""
    return PydanticCustomError("unlike", "{expected}", {"expected": expected, "found": found})


def refuse(faulty: object, expected: str, found: str) -> None:
    """Refuse several values that do not go together, in a validator of their model."""
    if faulty:
        raise unlike(expected, found)


def must(fits: str | Callable[[Any], object], expected: str, found: str = "") -> AfterValidator:
    """Refuse what does not fit a whole pattern or function; `found` stands in for a value that may be a secret."""
    is_fit = re.compile(fits).fullmatch if isinstance(fits, str) else fits

    def check(value: Any) -> Any:
        if not is_fit(value):
            raise unlike(expected, found)
        return value

    return AfterValidator(check)


def checked(model: type[Model], data: Any, *, file: str | Path | None = None) -> Model:
    """Check a document, or plain data, against `model`: :class:`InputError` with the first fault."""
    document = data if isinstance(data, Document) else Document(data, file)
    if not isinstance(document.data, dict):
        found = _kind(document.data)
        raise InputError(file=document.file, key=None, expected="a mapping of keys to values", found=found)
    try:
        made = model.model_validate(document.data)
    except ValidationError as error:
        raise _first_error(model, error.errors(), document) from None
    if isinstance(made, Traced):
        made._document = document
    return made


def _first_error(model: type[BaseModel], errors: list[ErrorDetails], document: Document) -> InputError:
    # An unknown key explains a missing one beside it, so it is said first.
    error = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    kind, place = error["type"], error["loc"]
    location, value = _existing(place, document.data)
    if kind == "missing":
        expected, found = f"the key `{place[-1]}`", "no such key"
    elif kind == "extra_forbidden":
        keys = _known_keys(model, location)
        expected = f"one of {', '.join(keys)}" if keys else "a known key"
        found = f"the unknown key `{location[-1]}`{meant(location[-1], keys)}"
    else:
        expected = _EXPECTED.get(kind, re.sub("^(Value error, |(Input|String) should (be|have) )", "", error["msg"]))
        expected = f"one of {expected}" if kind == "literal_error" else expected
        secret = any(part in _SECRET_KEYS for part in location)
        seen = _kind(value) if secret else _found(value, document.nodes.get(location))
        if kind in ("too_long", "too_short") and isinstance(value, (list, dict)):
            most, least = (error["ctx"].get(f"{end}_length") for end in ("max", "min"))
            seen, expected = str(len(value)), f"at most {most} of them" if most else f"at least {least} of them"
        key_at_fault = place[-1:] == ("[key]",)
        found = error.get("ctx", {}).get("found") or (repr(location[-1]) if key_at_fault else seen)
    return InputError(file=document.file, key=document.key(location), expected=expected, found=found)


def _existing(location: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], Any]:
    """The longest part of `location` that exists in `data` (a single run stands where a list may), and its value."""
    path: list[Any] = []
    for part in location:
        index = isinstance(part, int) and isinstance(data, list) and part < len(data)
        if index or (isinstance(data, dict) and part in data):
            data = data[part]
            path.append(part)
    return tuple(path), data


def _known_keys(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The keys that the model at `location` has, none where they are not known."""
    for part in (part for part in location[:-1] if isinstance(part, str)):
        types: list[Any] = [model.model_fields[part].annotation] if part in model.model_fields else []
        for each in types:  # it grows: all that a field's type names, however deep
            types += get_args(each)
        inner = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        if not inner:
            return []
        model = inner[0]
    return [*model.model_fields]


def _found(value: Any, node: yaml.Node | None) -> str:
    written = node.value if isinstance(node, yaml.ScalarNode) else None
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
