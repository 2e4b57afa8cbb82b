"""Publish reports, each in a process of its own; one that fails does not stop the others."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buildcompare.config.errors import BuildcompareError, ExecutionError, InputError
from buildcompare.report import warm
from buildcompare.results.codes import Verdict
from buildcompare.text.numbers import printable

BAD_INPUT, FAILED = 3, 4
"""Exit codes of what went wrong: through the user's input or data, and in the execution."""


@dataclass(frozen=True)
class Order:
    """A report that is asked for: the params file, how `publish` is called, and how its table is printed, if it is."""

    params: Path
    settings: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it: an exit code, and a line for the person; of a report its verdict, and whether it stood there."""

    code: int
    said: str
    verdict: Verdict | None = None
    kept: bool = False


def publish_one(order: Order, hear: Callable[[int], object] | None = None) -> Outcome:
    """Publish a report from a process of its own, where one can be forked; `hear` gets the number of each cell."""
    if not warm.is_safe():
        return publish_here(order)
    now = 0

    def told(cell: int) -> None:
        nonlocal now
        now = cell
        if hear is not None:
            hear(cell)

    try:
        return warm.in_child(publish_here, order, hear=told)
    except ExecutionError as error:
        return Outcome(FAILED, f"buildcompare: {order.params}: {f'cell {now}: ' if now else ''}{error}")


def publish_many(orders: Iterable[Order], *, jobs: int = 1) -> Iterator[tuple[Order, Outcome]]:
    """Publish reports, `jobs` at a time; they come as they are done."""
    with ThreadPoolExecutor(jobs) as threads:
        asked = {threads.submit(publish_one, order): order for order in orders}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            threads.shutdown(cancel_futures=True)


def publish_here(order: Order) -> Outcome:
    """Publish a report in this process."""
    from buildcompare.findings.verdict import opening  # late: these take seconds to import
    from buildcompare.report.publish import publish
    from buildcompare.report.terminal import lines
    from buildcompare.text.sentences import say

    try:
        made = publish(order.params, **order.settings)
        table = "" if order.table is None else lines(made.results, **order.table) + "\n"
    except BuildcompareError as error:
        return Outcome(BAD_INPUT if isinstance(error, InputError) else FAILED, printable(f"buildcompare: {error}"))
    except Exception:  # a fault of ours: with --fail-on, Python's own exit code would mean a regression
        return Outcome(FAILED, traceback.format_exc().rstrip())
    said = [f"{order.params}: {opening(made.results).title}. {say('terminal', 'where', made.folder / 'report.html')}"]
    said += [made.recorded] if made.recorded else []
    return Outcome(0, table + "\n".join(map(printable, said)), made.results.verdict)
