"""Print a comparison in the terminal at the window's width: verdict, tables of the tests, findings."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from buildcompare.findings.metrics import USERS
from buildcompare.findings.verdict import GRAVEST_FIRST, opening
from buildcompare.results import Change, ErrorRateResult, Results, TestResult
from buildcompare.results.codes import Better, Pair, Severity, Status, Verdict
from buildcompare.text import numbers
from buildcompare.text.sentences import macros, say

_STYLES: dict[str, str] = {
    Verdict.REGRESSION: "bold red", Verdict.INVALID: "bold red", Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.PASS: "bold green", Status.IMPROVEMENT: "green", Severity.CRITICAL: "red", Severity.WARNING: "yellow",
}  # fmt: skip
"""Styles of text, by the code of a verdict, status or severity."""
_NUMBERS, _FOLDS = range(1, 5), ((0, 14), (5, 8), (0, 8))
"""Indices of columns with numbers; (index, minimum width) of columns that shrink one by one in a narrow window."""
Row = tuple[tuple[str, ...], Status]


def lines(results: Results, *, width: int, coloured: bool = False, every: bool = False) -> str:
    """Render the verdict of `results`, a table for each test, and findings, in lines of at most `width` columns.

    Tables show supported users, gate metrics and changed metrics. Critical findings and warnings are listed. Without a
    catalogue, assumptions about metrics are listed too. Other metrics and findings are counted; `every` lists them.
    """
    verdict, tests = opening(results), sorted(results.tests, key=lambda test: GRAVEST_FIRST.index(test.verdict))
    head = say("terminal", "builds", results.base.label, results.new.label, results.simulated)
    shown: list[Text | Table] = [_text(head)] if head else []
    shown.append(_text(f"{numbers.VERDICT_SYMBOLS[results.verdict]} {verdict.title}.", results.verdict))
    shown.append(_text(verdict.sentence))
    tables = [table_rows(test, every=every) for test in tests]
    header = (tuple(macros("terminal").COLUMNS), Status.INCONCLUSIVE)
    widths, gap = _widths([cells for cells, _ in (header, *(row for rows, _ in tables for row in rows))], width)
    for test, (rows, rest) in zip(tests, tables, strict=True):
        shown += [Text(), _text(say("terminal", "test", test), test.verdict)]
        shown.append(_table([header, *rows] if test is tests[0] else rows, widths, gap))
        shown += [_text(say("terminal", "rest", rest))] if rest else []
    assumed = [each for each in results.findings if each.kind == "assumed" and not results.provenance.catalogue]
    listed = [each for each in results.findings if every or each.severity != Severity.INFO or each in assumed]
    grid = Table.grid(padding=(0, 1))
    for each in listed:
        grid.add_row(_text(f"{each.severity}:", each.severity), _text(each.text))
    for next_step in results.suggestions:
        grid.add_row(_text(say("terminal", "next_step")), _text(next_step.text))
    shown += [Text(), grid] if grid.row_count else [Text()]
    if left_out := len(results.findings) - len(listed):
        shown.append(_text(say("terminal", "more", left_out)))
    nowhere = io.StringIO()  # written to memory: the caller prints, and handles a closed or full output
    Console(file=nowhere, width=width, force_terminal=coloured, highlight=False).print(*shown, sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in nowhere.getvalue().splitlines())


def _text(text: str, style: str = "") -> Text:
    return Text(numbers.printable(text), _STYLES.get(style, ""))


def table_rows(test: TestResult, *, every: bool = False) -> tuple[list[Row], Counter[str]]:
    """Return the rows to show, changes first, and the number of other metrics by status."""
    rows, rest = [], Counter[str]()
    for name, row, unit, better, shown, margin in _judged(test):
        status = row.status if row else Status.NOT_COMPARABLE
        if not (shown or every or status.changed):
            if not isinstance(row, ErrorRateResult):  # unchanged error rates are not counted
                rest[say("terminal", "counted", row, status)] += 1
            continue
        decides = shown or isinstance(row, ErrorRateResult)
        words = say("terminal", "status", row, better, None if decides else unit, margin)
        words = f"{numbers.status_symbol(status, better)} {words}"
        levels = _levels(row, unit) if row else (numbers.MISSING, numbers.MISSING)
        rows.append(((name, *levels, *numbers.moved(row), words), status))
    return sorted(rows, key=lambda each: (not each[1].changed, each[1] != Status.REGRESSION)), rest


def _levels(row: Change, unit: str) -> Pair[str]:
    """Format the values of both builds. If a number of supported users is unknown, its lower bound is shown."""
    values = Pair(row.base, row.new)
    if unit != "users":
        return values.map(lambda value: numbers.short_quantity(value, unit))
    least: Pair[float | None] = getattr(row, "at_least", Pair(None, None))
    signed = (("", value) if value is not None else ("≥ ", bound) for value, bound in zip(values, least, strict=True))
    return Pair(*(numbers.MISSING if value is None else f"{sign}{numbers.whole(value)}" for sign, value in signed))


def _judged(test: TestResult) -> Iterator[tuple[str, Change | None, str, Better, bool, float | None]]:
    """Yield for each row: name, change or None, unit, better direction, whether always shown, margin in percent."""
    if test.supported_users:
        yield USERS, test.supported_users, "users", Better.HIGHER, True, test.supported_users.band_percent
    judged_as_users = {run.load_curve for run in test.runs.base} if test.supported_users else set()
    for metric in (each for each in test.metrics if each.slug not in judged_as_users):
        at_own_load = metric if metric.status.changed and not metric.gate else None  # shown if `deciding` is None
        row = metric.deciding or at_own_load
        yield metric.full_name, row, metric.unit, metric.better, metric.gate, metric.margin_percent
    for rate in test.errors:
        yield rate.name, rate, rate.unit, rate.better, False, None


def _widths(rows: list[tuple[str, ...]], width: int) -> tuple[list[int], int]:
    """Choose the widths of the columns and of the gap between columns; columns of `_FOLDS` shrink to fit `width`."""
    widths = [max(cell_len(numbers.printable(cells[i])) for cells in rows) for i in range(len(rows[0]))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    over = sum(widths) + gap * (len(widths) - 1) - width
    for column, narrowest in _FOLDS:
        cut = max(0, min(over, widths[column] - narrowest))
        widths[column], over = widths[column] - cut, over - cut
    return widths, gap


def _table(rows: list[Row], widths: list[int], gap: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, gap, 0, 0))
    for column, width in enumerate(widths):
        table.add_column(width=width, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for cells, status in rows:
        table.add_row(*(_text(cell, status if status.changed else "") for cell in cells))
    return table
