"""Show a watch: one screen of a terminal, a page that loads itself again, and a widget in JupyterLab."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from buildcompare.comparison.measure import TestView
from buildcompare.figures import Figure, component, curves, element, themes
from buildcompare.text.numbers import change, interval
from buildcompare.text.sentences import say
from loadwatch.decide import Decision

LOOK = "body{font:16px/1.5 system-ui;max-width:72rem;margin:1rem auto;padding:0 1rem} td{padding-right:1rem}"


def screen(decision: Decision) -> Any:
    """Render a decision for a terminal, with rich."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(*say("watch", "columns").split("|"), box=None, pad_edge=False)
    for cells in cells_of(decision):
        table.add_row(*cells)
    bar = ProgressBar(total=max(decision.length_s, 1.0), completed=decision.at_s, width=60)
    return Group(decision.text, bar, table, *decision.notes)


def cells_of(decision: Decision) -> list[tuple[str, str, str, str]]:
    """Name, change, interval and range at the end of each row."""
    ends = [(row.end_low, row.end_high) for row in decision.rows]
    known = [change(high) if low is None else interval(low, high) for low, high in ends]
    rows = zip(decision.rows, known, strict=True)
    return [(row.name, change(row.change_percent), interval(row.ci_low, row.ci_high), end) for row, end in rows]


def figures_of(compared: TestView | None) -> list[Figure]:
    """Draw the load and what users feel; nothing before both builds are under load."""
    felt = [row for row in compared.result.metrics if row.gate] if compared else []
    graphs = [curves.graph(compared, row, row.slug) for row in felt] if compared else []
    return [each for each in (compared and curves.users(compared), *graphs) if each]


def fragment(decision: Decision) -> str:
    """The decision as HTML."""
    rows = [say("watch", "columns").split("|"), *cells_of(decision)]
    lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in cells) for cells in rows)
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in decision.notes)
    return f"<p><strong>{html.escape(decision.text)}</strong></p>{notes}<table>{table}</table>"


def page(decision: Decision, compared: TestView | None, every_s: float) -> str:
    """The decision and its charts as a page that loads itself again until the watch ends."""
    again = f'<meta http-equiv="refresh" content="{every_s:g}">' if decision.code == "running" else ""
    charts = "".join(element(each.chart) for each in figures_of(compared) if each.chart)
    head = f'<meta charset="utf-8">{again}<title>{html.escape(decision.test)}</title><style>{themes()}{LOOK}</style>'
    shown = f'<main class="buildcompare">{fragment(decision)}{charts}</main><script>{component()}</script>'
    return f'<!doctype html><html lang="en">{head}{shown}</html>'


def widget() -> tuple[Any, Callable[[Decision, TestView | None], None]]:
    """Make a widget for JupyterLab, and the function that shows a look in it."""
    from ipywidgets import HTML, VBox

    from investigation.widgets import Chart

    text, chart = HTML(), Chart()

    def shown(decision: Decision, compared: TestView | None) -> None:
        text.value = fragment(decision)
        chart.chart = next((each.chart for each in figures_of(compared) if each.chart), {})

    return VBox([text, chart]), shown
