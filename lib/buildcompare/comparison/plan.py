"""Plan how many further runs each test needs to judge its metrics and supported users, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from buildcompare.findings.metrics import USERS
from buildcompare.results import Decided, FurtherRunsResult, PlannedRow, Results, TestPlan, TestResult
from buildcompare.results.codes import SIDES, Better, Side, ValidityStatus
from buildcompare.stats.effects import USERS as USERS_SHARE
from buildcompare.stats.planning import FurtherRuns, Looks, aim, plan_runs
from buildcompare.text.sentences import say, title


def plan_tests(tests: Sequence[TestResult]) -> list[TestPlan]:
    """Plan further runs of each test that is not invalid; omit tests in which nothing can be planned."""
    valid = (test for test in tests if test.validity.status != ValidityStatus.INVALID)
    return [plan for test in valid if (plan := _plan(test)).rows]


def order_of_runs(further: int, runs: int = 1) -> list[Side]:
    """List the builds of the next runs in order: `further` runs of each build, after `runs` existing runs of each.

    All runs follow the order base, new, new, base, ...; a steady drift of the machine then affects both means alike.

    >>> order_of_runs(3)
    ['new', 'base', 'base', 'new', 'new', 'base']
    """
    pairs = (SIDES if pair % 2 == 0 else SIDES[::-1] for pair in range(runs, runs + further))
    return [side for pair in pairs for side in pair]


def plan_text(results: Results) -> str:
    """Write the plan in words: inconclusive results, changes that further runs would show, and the runs' order."""
    titles = {test.name: title(test) for test in results.tests}
    open_ = [plan for plan in results.plan if plan.undecided]
    if not open_:
        return say("plan", "nothing", results.verdict == "invalid") + "\n"
    rows = [f"- {say('plan', 'planned', row, titles[plan.test])}" for plan in open_ for row in plan.undecided]
    orders = [f"- {say('plan', 'order', plan, titles[plan.test])}" for plan in open_]
    end = [say("plan", "why_order"), "", say("plan", "how"), ""]
    return "\n".join([*rows, "", say("plan", "in_order"), *orders, *end])


def _plan(test: TestResult) -> TestPlan:
    hours = math.fsum(sum(run.duration_s for run in runs) / len(runs) for runs in test.runs) / 3600.0
    rows = [*_planned(test, hours)]
    most = max((row.steps[-1].further for row in rows if row.undecided), default=0)
    fewest = min(map(len, test.sessions.names if test.sessions else test.runs))
    return TestPlan(test=test.name, hours=hours, runs=fewest, order=order_of_runs(most, fewest), rows=rows)


def _planned(test: TestResult, hours: float) -> Iterator[PlannedRow]:
    """Yield gate metrics and supported users with plans of further runs. Leave out those with unknown noise."""
    gates, users = [metric for metric in test.metrics if metric.gate], test.supported_users
    judged = sum(each.p_value is not None for each in gates)
    rows: list[tuple[str | None, str, float, Better, str, Decided | None, float]] = [
        (each.slug, each.full_name, each.margin_percent, each.better, each.decided_by, each.deciding, judged)
        for each in gates
    ]
    if users and users.band_percent:
        rows.append((None, USERS, users.band_percent, Better.HIGHER, "level", users, USERS_SHARE))
    for slug, name, margin, better, decided_by, row, family in rows:
        if row is not None and row.run_sd_percent is not None:
            steps = plan_runs(
                math.log1p(row.run_sd_percent / 100.0), math.inf if row.noise_df is None else row.noise_df,
                margin_percent=margin, delta_percent=row.delta_percent or 0.0, better=better,
                looks=Looks.of(test.looks).runs, family=family, gate=True,
            )  # fmt: skip
            yield PlannedRow(
                slug=slug, name=name, margin_percent=margin, better=better, decided_by=decided_by, status=row.status,
                now_percent=row.min_detectable_percent, unit="session" if test.sessions else "run",
                steps=_chosen(steps, margin, hours),
            )  # fmt: skip


def _chosen(steps: list[FurtherRuns], margin: float, hours: float) -> list[FurtherRunsResult]:
    """Return the smallest plan, and the first that detects a change of :func:`aim` percent (if none does, the last)."""
    enough = next((step for step in steps if step.found_percent <= aim(margin, True)), steps[-1])
    chosen = [steps[0]] if enough is steps[0] else [steps[0], enough]
    return [FurtherRunsResult(**vars(step), hours=step.further * hours) for step in chosen]
