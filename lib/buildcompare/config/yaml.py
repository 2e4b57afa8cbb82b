"""Reads a YAML file into plain data and remembers where each value stands and how it was written.

papermill reads the same files with dates left as text, so dates stay text here too. Tags that would
construct objects, duplicate keys and files beyond the limits are errors, never surprises.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from buildcompare.config.errors import InputError

MAX_BYTES = 4_000_000
"""No parameter file that a person writes comes near this size."""
MAX_VALUES = 200_000
"""Bound on the values after aliases are followed, so that nested aliases cannot explode."""

Path_ = tuple[Hashable, ...]


@dataclass(frozen=True)
class Document:
    """Plain data, and for each path in it the line and the text as written."""

    data: Any
    lines: dict[Path_, int] = field(default_factory=dict)
    texts: dict[Path_, str] = field(default_factory=dict)
    count: list[int] = field(default_factory=lambda: [0])
    """How many values were constructed so far, those behind aliases and merges each time again."""


class _Loader(yaml.SafeLoader):
    """The safe loader with dates left as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(file: Path) -> Document:
    """Read `file`, or raise :class:`InputError` naming the file and the line."""
    text = _read_text(file)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise InputError(file=file, key=None, expected="a YAML mapping", found="an empty file")
        document = Document(data=None)
        data = _construct(file, loader, node, (), document)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(
            file=file, key=None, expected="values that their tags can hold", found=str(error)[:80]
        ) from None
    except yaml.YAMLError as error:
        raise InputError(file=file, key=_mark(error), expected="valid YAML", found=_problem(error)) from None
    except RecursionError:
        raise InputError(
            file=file, key=None, expected="values nested a few levels deep", found="too many nested levels"
        ) from None
    finally:
        loader.dispose()
    return Document(data, document.lines, document.texts)


def _read_text(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():
            raise InputError(file=file, key=None, expected="a YAML file", found="no regular file")
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise InputError(file=file, key=None, expected=f"at most {MAX_BYTES:,} bytes", found=f"{size:,} bytes")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(file=file, key=None, expected="a YAML file", found="no such file") from None
    except OSError as error:
        raise InputError(
            file=file, key=None, expected="a readable YAML file", found=error.strerror or str(error)
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            file=file, key=f"byte {error.start}", expected="text in UTF-8", found="bytes that are not"
        ) from None


def _construct(file: Path, loader: _Loader, node: yaml.Node, path: Path_, document: Document) -> Any:
    document.count[0] += 1
    if document.count[0] > MAX_VALUES:
        raise InputError(file=file, key=None, expected=f"at most {MAX_VALUES:,} values", found="more")
    document.lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(file, loader, node, path, document)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_construct(file, loader, child, (*path, i), document) for i, child in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        document.texts[path] = node.value
        return loader.construct_object(node)
    raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} is not allowed", node.start_mark)


def _construct_mapping(
    file: Path, loader: _Loader, node: yaml.MappingNode, path: Path_, document: Document
) -> dict[Hashable, Any]:
    if node.tag != "tag:yaml.org,2002:map":
        raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} is not allowed", node.start_mark)
    merged: dict[Hashable, Any] = {}
    mapping: dict[Hashable, Any] = {}
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            parts = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for part in reversed(parts):  # the first of several wins
                constructed = _construct(file, loader, part, path, document)
                merged.update(constructed if isinstance(constructed, dict) else {})
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise InputError(
                file=file,
                key=f"line {key_node.start_mark.line + 1}",
                expected="a key that is text (put it in quotes)",
                found=f"{getattr(key_node, 'value', key)!r}",
            )
        if key in mapping:
            raise InputError(
                file=file,
                key=f"line {key_node.start_mark.line + 1}",
                expected="each key once",
                found=f"{key!r} a second time",
            )
        mapping[key] = _construct(file, loader, value_node, (*path, key), document)
    return {**merged, **mapping}


def _mark(error: yaml.YAMLError) -> str | None:
    mark = getattr(error, "problem_mark", None)
    return None if mark is None else f"line {mark.line + 1}"


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error)
    return str(problem).splitlines()[0]
