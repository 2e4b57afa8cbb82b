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

LOOK = """body{font:16px/1.5 system-ui;max-width:72rem;margin:1rem auto;padding:0 1rem}
.watch b{font-size:1.5rem} .watch table{border-collapse:collapse;margin:1rem 0}
.watch th,.watch td{text-align:left;padding:.2rem 1.5rem .2rem 0} .watch progress{width:100%;height:1rem}"""
COLOURS = {"stop_invalid": "red", "stop_regression": "red", "stop_enough": "green", "finished": "blue"}


def rows_of(decision: Decision) -> list[list[str]]:
    """Headings, and of each number that decides its name, change, interval and range at the end."""
    ends = [(row.end_low, row.end_high) for row in decision.rows]
    known = [say("watch", "end", low, high) for low, high in ends]
    cells = [[row.name, change(row.change_percent), interval(row.ci_low, row.ci_high)] for row in decision.rows]
    return [say("watch", "columns").split("|"), *([*of, end] for of, end in zip(cells, known, strict=True))]


def screen(decision: Decision) -> Any:
    """Render a decision for a terminal, with rich."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    head, *rows = rows_of(decision)
    table = Table(*head, box=None, pad_edge=False)
    for cells in rows:
        table.add_row(*cells)
    bar = ProgressBar(total=max(decision.length_s, 1.0), completed=decision.at_s)
    shown: list[Any] = [decision.text, "", bar, *(["", table] if rows else []), *decision.notes]
    colour = COLOURS.get(decision.code, "none")
    return Panel(Group(*shown), title=say("watch", "headline", decision), title_align="left", border_style=colour)


def figures_of(compared: TestView | None) -> list[Figure]:
    """Draw the load and what users feel; nothing before both builds are under load."""
    if compared is None:
        return []
    felt = [curves.graph(compared, row, row.slug) for row in compared.result.metrics if row.gate]
    return [each for each in (curves.users(compared), *felt) if each]


def fragment(decision: Decision) -> str:
    """The decision as HTML."""
    head, *rows = rows_of(decision)
    lines = [f"<tr>{''.join(f'<th scope=col>{html.escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows]
    table = f"<table>{''.join(lines)}</table>" if rows else ""
    bar = f'<progress aria-label="time" max="{decision.length_s:.0f}" value="{decision.at_s:.0f}"></progress>'
    headline, *said = (
        html.escape(each) for each in (say("watch", "headline", decision), decision.text, *decision.notes)
    )
    return f'<div class="watch"><b>{headline}</b>{bar}{"".join(f"<p>{each}</p>" for each in said)}{table}</div>'


def page(decision: Decision, compared: TestView | None, every_s: float) -> str:
    """The decision and its charts as a page that loads itself again until the watch ends."""
    again = f'<meta http-equiv="refresh" content="{every_s:g}">' if decision.code == "running" else ""
    charts = "".join(element(each.chart) for each in figures_of(compared) if each.chart)
    title = html.escape(f"{say('watch', 'headline', decision)}: {decision.test}")
    head = f'<meta charset="utf-8">{again}<title>{title}</title><style>{themes()}{LOOK}</style>'
    shown = f'<main class="buildcompare">{fragment(decision)}{charts}</main><script>{component()}</script>'
    return f'<!doctype html><html lang="en">{head}{shown}</html>'


def widget() -> tuple[Any, Callable[[Decision, TestView | None], None]]:
    """Make a widget for JupyterLab, and the function that shows a look in it."""
    from ipywidgets import HTML, VBox

    from investigation.widgets import Chart

    text, chart = HTML(), Chart()

    def shown(decision: Decision, compared: TestView | None) -> None:
        text.value = f"<style>{LOOK[LOOK.index('.watch') :]}</style>{fragment(decision)}"
        chart.chart = next((each.chart for each in figures_of(compared) if each.chart), {})

    return VBox([text, chart]), shown
