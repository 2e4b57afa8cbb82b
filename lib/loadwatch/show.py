"""Show a watch: one screen of a terminal, a page that loads itself again, and a widget in JupyterLab."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from buildcompare.comparison.measure import TestView
from buildcompare.figures import Figure, component, curves, element, themes
from buildcompare.text.numbers import change, interval
from buildcompare.text.sentences import macros, say
from loadwatch.decide import Decision

LOOK = """body{font:16px/1.5 system-ui;max-width:72rem;margin:1rem auto;padding:0 1rem}
.watch{line-height:1.5} .watch b{font-size:1.5rem} .watch table{border-collapse:collapse;margin:1rem 0}
.watch th,.watch td{text-align:left;padding:.2rem 1.5rem .2rem 0} .watch progress{width:100%;height:1rem}"""
COLOURS = {"stop_invalid": "red", "stop_regression": "red", "stop_enough": "green", "finished": "blue"}


def rows_of(decision: Decision) -> list[list[str]]:
    """Headings, then name, change, interval and final range of each deciding number; empty without any."""
    cells = [[row.name, change(row.change_percent), interval(row.ci_low, row.ci_high),
              say("watch", "end", row.end_low, row.end_high)] for row in decision.rows]  # fmt: skip
    return [macros("watch").COLUMNS, *cells] if cells else []


def screen(decision: Decision) -> Any:
    """Render a decision for a terminal, with rich."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for cells in rows_of(decision):
        table.add_row(*cells)
    bar = ProgressBar(total=max(decision.length_s, 1.0), completed=decision.at_s)
    shown = Group(say("watch", decision.code, decision, True), "", bar, "", table, *decision.notes)
    title, colour = say("watch", "headline", decision), COLOURS.get(decision.code, "none")
    return Panel(shown, title=title, title_align="left", border_style=colour)


def figures_of(compared: TestView | None) -> list[Figure]:
    """Draw the load and what users feel; nothing before both builds are under load."""
    felt = [curves.graph(compared, row, row.slug) for row in compared.result.metrics if row.gate] if compared else []
    return [each for each in (compared and curves.users(compared), *felt) if each]


def fragment(decision: Decision) -> str:
    """The decision as HTML."""

    def line(tag: str, cells: list[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    bar = f'<progress aria-label="time" max="{decision.length_s:.0f}" value="{decision.at_s:.0f}"></progress>'
    sentences = [say("watch", decision.code, decision, True), *decision.notes]
    table = "".join(line("td" if i else "th", cells) for i, cells in enumerate(rows_of(decision)))
    texts = "".join(f"<p>{html.escape(each)}</p>" for each in sentences)
    headline = html.escape(say("watch", "headline", decision))
    return f'<div class="watch"><b>{headline}</b>{bar}{texts}<table>{table}</table></div>'


def page(decision: Decision, compared: TestView | None, every_s: float) -> str:
    """The decision and its charts as a page that loads itself again until the watch ends."""
    again = f'<meta http-equiv="refresh" content="{every_s:g}">' if decision.code == "running" else ""
    charts = "".join(element(each.chart) for each in figures_of(compared) if each.chart)
    title = html.escape(f"{say('watch', 'headline', decision)}: {decision.test}")
    head = f'<meta charset="utf-8">{again}<title>{title}</title><style>{themes()}{LOOK}</style>'
    shown = f'<main class="buildcompare">{fragment(decision)}{charts}</main><script>{component()}</script>'
    return f'<!doctype html><html lang="en">{head}{shown}</html>'


def widget() -> Callable[[Decision, TestView | None], None]:
    """Display a widget in JupyterLab; return the function that shows a look in it."""
    from IPython.display import display
    from ipywidgets import HTML, VBox

    from investigation.widgets import Chart

    text, chart = HTML(), Chart()

    def shown(decision: Decision, compared: TestView | None) -> None:
        text.value = f"<style>{LOOK[LOOK.index('.watch') :]}</style>{fragment(decision)}"
        chart.chart = next((each.chart for each in figures_of(compared) if each.chart), {})

    display(VBox([text, chart]))  # type: ignore[no-untyped-call]
    return shown
