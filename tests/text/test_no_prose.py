"""No module outside `text` branches on a sentence: codes decide, words are only shown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import buildcompare

LIBRARY = Path(buildcompare.__file__).parent
METHODS = ("startswith", "endswith", "removeprefix", "removesuffix", "index", "find", "partition", "split")
OUTSIDE = ("text/", "config/", "recordings/", "report/html.py", "__main__.py")
"""Where sentences are made, and where what users, servers and other programs wrote is read."""
PROSE = ("text", "reason", "sentence", "note", "message", "words")
"""Fields that hold sentences."""


def is_sentence(node: ast.AST) -> bool:
    """Whether a node is a string of several words."""
    texts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value.strip() for each in texts
    )


def is_prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.rstrip("s") in PROSE


def branches_on_prose(tree: ast.AST) -> Iterator[int]:
    """The lines where a sentence is compared, searched or cut."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if any(is_sentence(each) for each in (node.left, *node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            if any(is_sentence(each) for each in node.args) or is_prose(node.func.value):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            if is_prose(node.value):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and is_sentence(node.value):
            yield node.value.lineno


def test_no_branch_reads_a_sentence() -> None:
    found = []
    for file in sorted(LIBRARY.rglob("*.py")):
        place = file.relative_to(LIBRARY).as_posix()
        if not place.startswith(OUTSIDE):
            found += [f"{place}:{line}" for line in branches_on_prose(ast.parse(file.read_text("utf-8")))]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "x == 'not recorded in the base build'",
        "x in ('not known', 'never called')",
        "row.reason.startswith('base')",
        "y.startswith('base: no')",
        "found.text[4:]",
    ],
)
def test_branches_on_prose_are_found(code: str) -> None:
    assert list(branches_on_prose(ast.parse(code))) == [1]


@pytest.mark.parametrize("code", ["x == 'base'", "path.startswith('/')", "values[4:]", "x.split(',')"])
def test_codes_may_be_compared(code: str) -> None:
    assert list(branches_on_prose(ast.parse(code))) == []
