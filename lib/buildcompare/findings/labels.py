"""What is there to say of the label tables?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.config.errors import plural
from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Finding, LabelResult, Side, TestResult
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.stats.effects import LABEL_ALPHA
from buildcompare.text.numbers import change, listed


def labels_called(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """How many label rows moved more than chance moves them, beside how many chance would mark."""
    judged = [row for row in test.labels if row.p_value is not None]
    slower = sorted((r for r in judged if r.status == Status.REGRESSION), key=lambda r: -(r.delta_percent or 0.0))
    faster = [row for row in judged if row.status == Status.IMPROVEMENT]
    if not slower and not faster:
        return
    expected = LABEL_ALPHA * len(judged)
    worst = listed([f"{row.label} {row.stat} ({change(row.delta_percent)})" for row in slower], most=3)
    text = (
        f"{title(test)}: {len(slower)} of {len(judged)} label rows are slower and {len(faster)} faster by more than "
        f"chance usually moves them; up to {expected:.0f} are marked where nothing changed"
        + (f". Slowest: {worst}." if slower else ".")
    )
    surviving = sum(row.p_adjusted is not None and row.p_adjusted < 0.05 for row in (*slower, *faster))
    text += f" {surviving} of them would be rare in a whole table of unchanged rows too."
    evidence = {
        "slower": len(slower),
        "faster": len(faster),
        "judged": len(judged),
        "expected": expected,
        "surviving": surviving,
        "slower_labels": [row.model_dump(include={"group", "label", "stat", "delta_percent"}) for row in slower],
    }
    yield finding(test, FindingKind.LABELS, Severity.INFO, text, evidence)


def labels_in_one_build(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """One sentence for each build; the tests that agree on its labels are named together."""
    sides: tuple[tuple[Side, str], ...] = (("base", labels[0]), ("new", labels[1]))
    for test in tests:
        for group in sorted({row.group for row in test.labels}):
            alone_in = {row.only_in for row in test.labels if row.group == group}
            if len(alone_in) == 1 and (lacking := {"base": 1, "new": 0}.get(str(alone_in.pop()))) is not None:
                text = f"{title(test)}: {labels[lacking]} recorded no label table {group}."
                yield finding(
                    test,
                    FindingKind.NO_LABEL_TABLE,
                    Severity.WARNING,
                    text,
                    {"group": group, "side": ("base", "new")[lacking]},
                )
    for side, label in sides:
        same: dict[tuple[str, ...], list[TestResult]] = {}
        for test in tests:
            paired = {row.group for row in test.labels if row.only_in is None}
            rows = [row for row in test.labels if row.only_in == side and row.group in paired]
            alone = tuple(sorted({_named(row) for row in rows}))
            if alone:
                same.setdefault(alone, []).append(test)
        for names, having in same.items():
            where = "Every test" if len(having) == len(tests) > 1 else ", ".join(title(test) for test in having)
            text = f"{where}: only {label} has {plural(len(names), 'label')}: {listed(list(names), most=3)}."
            evidence = {"side": side, "labels": list(names), "tests": [test.name for test in having]}
            yield finding(having[0], FindingKind.LABELS_IN_ONE_BUILD, Severity.INFO, text, evidence)


def _named(row: LabelResult) -> str:
    return f"{row.label} ({row.group})"
