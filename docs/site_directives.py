"""Two directives of the site: `api`, the reference of the public API, and `gallery`, figures made by scripts."""

from __future__ import annotations

import ast
import html
import inspect
import io
import runpy
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import buildcompare

DOCS = Path(__file__).resolve().parent


class Api(SphinxDirective):
    """Document every name of `buildcompare.__all__`, functions before classes."""

    def run(self) -> list[nodes.Node]:
        """Nodes of the reference."""
        self.env.note_reread()
        lines: list[str] = []
        public = {name: getattr(buildcompare, name) for name in getattr(buildcompare, "__all__", ())}
        for title, wanted in (("Functions", inspect.isroutine), ("Classes", inspect.isclass)):
            names = sorted((name for name, value in public.items() if wanted(value)), key=str.lower)
            if not names:
                continue
            lines += [title, "-" * len(title), ""]
            for name in names:
                kind = "autofunction" if wanted is inspect.isroutine else _class_directive(public[name])
                lines += [f".. {kind}:: buildcompare.{name}", *_options(kind, public[name]), ""]
        return _parsed(self, lines)


def _class_directive(value: type) -> str:
    return "autoexception" if issubclass(value, BaseException) else "autoclass"


def _options(kind: str, value: Any) -> list[str]:
    if kind != "autoclass":
        return []
    ours = all(base.__module__.startswith(("buildcompare", "investigation")) for base in value.__mro__[:-1])
    return ["   :members:", "   :undoc-members:", *(["   :inherited-members:"] if ours else [])]


class Gallery(SphinxDirective):
    """Run every script of docs/gallery and show its docstring, its code and the `figure` that it makes.

    A figure has the attributes `svg` and `alt`, or is matplotlib's; the docstring's first line is the title.
    """

    def run(self) -> list[nodes.Node]:
        """Nodes of the figures."""
        self.env.note_reread()
        lines: list[str] = []
        pictures = Path(self.env.app.outdir) / "gallery"
        pictures.mkdir(parents=True, exist_ok=True)
        for script in sorted((DOCS / "gallery").glob("*.py")):
            code = script.read_text("utf-8")
            tree = ast.parse(code)
            title, _, text = (ast.get_docstring(tree) or script.stem).partition("\n")
            title = title.rstrip(".")
            figure = runpy.run_path(str(script))["figure"]
            picture = f"{script.stem}.svg"
            (pictures / picture).write_text(_svg(figure), "utf-8")
            tag = f'<img src="gallery/{picture}" alt="{html.escape(_alt(figure, title))}">'
            body = code.split('"""', 2)[2].replace("from __future__ import annotations\n", "").strip()
            source = [f"   {line}".rstrip() for line in body.splitlines()]
            lines += [title, "-" * len(title), "", *text.strip().splitlines(), ""]
            lines += [".. raw:: html", "", f"   {tag}", ""]
            lines += [".. code-block:: python", "", *source, ""]
        return _parsed(self, lines)


def _svg(figure: Any) -> str:
    if hasattr(figure, "svg"):
        return str(figure.svg)
    sink = io.StringIO()
    figure.savefig(sink, format="svg")
    return sink.getvalue()


def _alt(figure: Any, title: str) -> str:
    return " ".join(str(getattr(figure, "alt", title)).split())


def _parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    """Nodes of reStructuredText; headings become sections."""
    return directive.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("api", Api)
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
