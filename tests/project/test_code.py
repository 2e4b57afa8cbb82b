"""Rules of the library's code that its syntax trees show: private names, long functions and classes, constants."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

MOST_LINES, MOST_METHODS = 50, 25


@cache
def trees(project: Path) -> dict[str, ast.Module]:
    files = {str(file.relative_to(project / "lib")): file for file in (project / "lib").rglob("*.py")}
    return {name.removeprefix("buildcompare/"): ast.parse(file.read_text("utf-8")) for name, file in files.items()}


def test_no_private_name_of_another_package_is_used(project: Path) -> None:
    nodes = [(file, node) for file, tree in trees(project).items() for node in ast.walk(tree)]
    imports = ((file, node) for file, node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    names = ((file, f"{getattr(node, 'module', '')}.{each.name}") for file, node in imports for each in node.names)
    assert [(file, name) for file, name in names if re.search(r"(^|\.)_[^_]", name)] == []
    made = (n for _, n in nodes if isinstance(n, ast.FunctionDef) or isinstance(getattr(n, "ctx", None), ast.Store))
    ours = {getattr(node, "name", getattr(node, "attr", getattr(node, "id", ""))) for node in made}
    used = {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)}
    assert used - ours == {"_exit"}  # `os._exit` is documented


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
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
    assert (long, large) == (set(), set())


ROOMS = ("load", "metrics", "labels", "stats", "validity", "findings", "history")


def numbers_of(node: ast.expr | None) -> bool:
    parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)] if node else []
    numbers = [each for each in parts if isinstance(each, ast.Constant) and type(each.value) in (int, float)]
    made_of_them = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List)
    return bool(numbers) and all(isinstance(each, made_of_them) for each in parts)


def without_a_word(source: str) -> list[str]:
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
