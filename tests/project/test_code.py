"""Rules of the library's code that its syntax trees show: private names, long functions and classes, constants."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

MOST_LINES, MOST_METHODS = 50, 25
DOCUMENTED = {"_asdict", "_fields", "_make", "_replace", "_exit"}
"""Names of named tuples and of `os` that their documentation calls public."""

# This list may only shrink.
LONG = {"loadsim/server.py: play"}


@cache
def trees(project: Path) -> dict[str, ast.Module]:
    """Syntax tree by file, for all files of lib."""
    files = [
        file
        for package in ("buildcompare", "labmatrix", "loadfiles", "loadsim")
        for file in (project / "lib" / package).rglob("*.py")
    ]
    return {
        str(file.relative_to(project / "lib")).removeprefix("buildcompare/"): ast.parse(file.read_text("utf-8"))
        for file in files
    }


def is_private(name: str) -> bool:
    is_display = name.startswith("_repr_") and name.endswith("_")  # IPython's protocol
    return name.startswith("_") and not name.startswith("__") and not is_display and name not in DOCUMENTED | {"_"}


def defined_in(tree: ast.Module) -> set[str]:
    """Names that a file defines: functions, classes, variables, and attributes that it sets on itself."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def private_names_of_others(tree: ast.Module) -> Iterator[str]:
    """Private names that a file uses and does not define: imported, by attribute, or as text to `getattr`."""
    defined = defined_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names if is_private(each.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in defined:
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            texts = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str) and is_private(text) and text not in defined)


def test_the_rule_sees_private_names_of_others() -> None:
    code = """
import forkserver, multiprocessing
from package import _private
class Ours:
    def __init__(self): self._ours = 1
    def _also_ours(self): return self._ours
multiprocessing.current_process()._config["tempdir"] = forkserver._forkserver
shell._showtraceback = getattr(pool, "_new_conn")
Ours()._also_ours(), tuple._asdict()
"""
    expected = ["_config", "_forkserver", "_new_conn", "_private", "_showtraceback"]
    assert sorted(private_names_of_others(ast.parse(code))) == expected


def test_no_private_name_of_another_package_or_file_is_used(project: Path) -> None:
    used = {f"{file}: {name}" for file, tree in trees(project).items() for name in private_names_of_others(tree)}
    assert used == set()


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end without the docstring."""
    first, last = function.body[0], function.end_lineno or 0
    is_docstring = ast.get_docstring(function) is not None
    return last - function.lineno + 1 - ((first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0)


def test_no_function_and_no_class_is_long(project: Path) -> None:
    long, large = set(), set()
    for file, tree in trees(project).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > MOST_LINES:
                long.add(f"{file}: {node.name}")
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                large |= {f"{file}: {node.name}"} if len(methods) > MOST_METHODS else set()
    assert (long - LONG, large) == (set(), set())


# ---- Every number that decides something says what it is, where it stands -----------------------------------------

ROOMS = ("load", "metrics", "labels", "stats", "validity", "findings", "history")


def numbers_of(node: ast.expr | None) -> bool:
    """Whether an expression is made of numbers alone, such as ``0.5``, ``-3``, ``(1, 2.5)`` or ``1.0 / 480.0``."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)] if node else []
    numbers = [each for each in parts if isinstance(each, ast.Constant) and type(each.value) in (int, float)]
    made_of_them = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List)
    return bool(numbers) and all(isinstance(each, made_of_them) for each in parts)


def without_a_word(source: str) -> list[str]:
    """Names of the numeric constants at the top of a module that have neither a comment nor a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    said = {token.start[0] for token in tokens if token.type == tokenize.COMMENT and len(token.string.split()) > 2}
    body = ast.parse(source).body
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not numbers_of(node.value):
            continue
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        commented = said & {*range(node.lineno - 1, (node.end_lineno or node.lineno) + 1)}
        if not documented and not commented:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [ast.unparse(target) for target in targets]
    return found


def test_a_number_without_a_word_is_found() -> None:
    source = "A = 0.5\nB = 2  # of two builds\nC, D = 1.0, 2.0\n'''Both.'''\nE = 'x'\nF = -1 / 480.0\nG = A * 2\n"
    assert without_a_word(source) == ["A", "F"]


def test_every_constant_says_what_it_is(project: Path) -> None:
    rooms = [project / "lib/buildcompare" / room for room in ROOMS]
    assert all(room.is_dir() for room in rooms)
    found = {
        str(file.relative_to(project)): names
        for room in rooms
        for file in sorted(room.glob("*.py"))
        if (names := without_a_word(file.read_text("utf-8")))
    }
    assert found == {}
