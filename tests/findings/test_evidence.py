"""Does every number of every finding come from its evidence? Published, bundled and troubled comparisons."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from buildcompare.recordings.table import write_recording
from buildcompare.results import Finding, Results
from evidence import without_evidence
from loadsim import RunSettings, simulate_run
from support import analysed, small_params, yaml_data


def unfounded(results: Results) -> list[str]:
    assert all(finding.evidence for finding in results.findings), "no sentence without evidence"
    return [
        f"{results.comparison}, {finding.id}: {missing} of {finding.text!r}"
        for finding in results.findings
        if (missing := without_evidence(finding, results))
    ]


def test_published_comparisons(real: Path, compared: Callable[[str], Results]) -> None:
    kinds: Counter[str] = Counter()
    found = []
    for folder in sorted(path for path in (real / "comparisons").iterdir() if path.is_dir()):
        results = compared(folder.name)
        kinds.update(finding.kind for finding in results.findings)
        found += unfounded(results)
    assert found == []
    assert kinds.total() > 200, "not all were read"
    assert {"supported_users", "metric", "beginning", "time_to_users", "event", "validity", "blind_spots"} <= set(kinds)


def test_troubled_recordings(tmp_path: Path) -> None:
    """Gaps and a missing metric."""
    params = small_params(tmp_path / "data")
    for test in params["tests"]:
        file = Path(test["new"]["recording"])
        table = pd.read_csv(file)
        table = table[table["metric"] != "rps"]
        gone = (table["metric"] == "avg-api-times") & (table.index % 5 == 0)
        table.assign(value=table["value"].mask(gone)).to_csv(file, index=False)
    results = analysed(params).results
    assert {"gaps", "missing_metrics", "validity"} <= {finding.kind for finding in results.findings}
    assert unfounded(results) == []


@pytest.fixture(scope="module")
def misreported(project: Path) -> Results:
    """A bundled comparison whose tool is said to have reported other figures than the curves give."""
    params = yaml_data((project / "params/v11.1.0-rc2.yaml").read_text("utf-8"))
    params["tests"][1]["base"]["supported_users"] = 17_400
    params["tests"][1]["new"]["supported_users"] = 18_400
    return analysed(params).results


def test_another_figure_than_the_curve(misreported: Results) -> None:
    kinds = {finding.kind for finding in misreported.findings}
    assert {"reported_against_estimated", "supported_users"} <= kinds
    assert unfounded(misreported) == []


def test_a_number_without_evidence_is_found(misreported: Results) -> None:
    users = next(finding for finding in misreported.findings if finding.kind == "supported_users")

    def changed(**more: Any) -> list[str]:
        return without_evidence(Finding.model_validate({**users.model_dump(), **more}), misreported)

    assert changed() == []
    assert changed(text=users.text + " It is 12.5 % of 77 ms, and 977 more.") == ["12.5 %", "77 ms", "977"]
    assert len(changed(evidence={**users.evidence, "ci_low": None, "ruled_out_percent": None})) == 1
    assert len(changed(evidence={**users.evidence, "base": 1.02 * users.evidence["base"]})) == 1
    assert len(changed(evidence={})) >= 4


@pytest.mark.slow
def test_what_limited_a_build(tmp_path: Path) -> None:
    """Two simulated unbounded runs whose coordinator's alerts were recorded."""
    runs = {}
    for seed, side in ((1001, "base"), (1002, "new")):
        file = tmp_path / f"{side}.parquet"
        write_recording(simulate_run(RunSettings(), seed, alerts=True).recording, file)
        runs[side] = {"recording": str(file)}
    test = {"name": "unbounded", "type": "unbounded", "users": 20000, **runs}
    builds = {side: {"label": f"v1.{i}.0"} for i, side in enumerate(("base", "new"))}
    limited = analysed({"name": "limited", "source": {"kind": "recorded"}, "tests": [test], **builds}).results
    assert "limited_by" in {finding.kind for finding in limited.findings}
    assert unfounded(limited) == []
