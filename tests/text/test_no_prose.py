"""No module outside `text` branches on a sentence or cuts one: codes and evidence decide, words are only shown."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import buildcompare

LIBRARY = Path(buildcompare.__file__).parents[1]
CUTS = ("partition", "rpartition", "split", "rsplit", "splitlines")
METHODS = (*CUTS, "startswith", "endswith", "removeprefix", "removesuffix", "index", "find", "count", "replace")
OUTSIDE = ("text/", "config/", "recordings/", "loadfiles/", "report/notebook.py", "report/commonmark.py", "__main__.py")
"""Where sentences are made, and where texts of users, servers and other programs are read."""
PROSE = ("text", "reason", "sentence", "note", "message", "words", "detail", "title")
"""Fields that hold sentences."""
EVIDENCE = ("findings/",)
"""Where evidence is read: it holds values, so no string in it is cut at white space."""
CUT_IN_TEMPLATE = re.compile(r"\.r?(?:partition|split)\(\s*[\"']|\|\s*r?(?:partition|split)\b")


def is_sentence(node: ast.AST) -> bool:
    texts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value.strip() for each in texts
    )


def is_gap(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(r" \W|\W ", node.value))


def is_prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.rstrip("s") in PROSE


def branches_on_prose(tree: ast.AST, *, reads_evidence: bool = False) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = (node.left, *node.comparators)
            searched = any(isinstance(each, (ast.In, ast.NotIn)) for each in node.ops) and is_prose(parts[-1])
            if searched or any(map(is_sentence, parts)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            bare = reads_evidence and node.func.attr in CUTS and not node.args
            cut = node.func.attr in CUTS and any(map(is_gap, node.args))
            if bare or cut or any(map(is_sentence, node.args)) or is_prose(node.func.value):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            if is_prose(node.value):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and is_sentence(node.value):
            yield node.value.lineno


def test_no_branch_reads_a_sentence() -> None:
    found = []
    for file in sorted(LIBRARY.rglob("*.py")):
        place = file.relative_to(LIBRARY).as_posix().removeprefix("buildcompare/")
        if not place.startswith(OUTSIDE):
            tree = ast.parse(file.read_text("utf-8"))
            found += [f"{place}:{line}" for line in branches_on_prose(tree, reads_evidence=place.startswith(EVIDENCE))]
    assert found == []


def test_no_template_cuts_a_sentence() -> None:
    templates = {file: file.read_text("utf-8") for file in LIBRARY.rglob("*.j2")}
    assert templates
    assert [str(file) for file, text in templates.items() if CUT_IN_TEMPLATE.search(text)] == []


PROSE_READ = """\
x == 'not recorded in the base build'
x in ('not known', 'never called')
row.reason.startswith('base')
y.startswith('base: no')
found.text[4:]
each.text not in opening.sentence
each.rpartition(' (')
dict(zip(('test', 'slug'), each.split()))
"""
CODES_READ = "x == 'base'; path.startswith('/'); values[4:]; x.split(','); x in names"


def test_branches_on_prose_are_found_and_codes_may_be_compared() -> None:
    found = branches_on_prose(ast.parse(PROSE_READ), reads_evidence=True)
    assert sorted(found) == [*range(1, len(PROSE_READ.splitlines()) + 1)]
    assert list(branches_on_prose(ast.parse(CODES_READ), reads_evidence=True)) == []
    assert all(map(CUT_IN_TEMPLATE.search, ("""e[side].partition(" (")[0]""", "e | split")))
