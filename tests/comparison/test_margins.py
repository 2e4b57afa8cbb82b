"""Other margins judge what was measured once: the answers are those of a comparison from scratch."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.comparison import analysis, measure

MEASURING = ("read_recordings", "compare_test", "view_run", "measure_metrics", "measure_at_load", "search_events")


def said(result: bc.Result) -> dict[str, Any]:
    """All of results.json but when and by what it was made."""
    results: dict[str, Any] = json.loads(result.to_json())
    results["provenance"].pop("run")
    return results


def from_scratch(result: bc.Result, margins: dict[str, float]) -> bc.Result:
    given = result.params.model_copy(update={"margins": {**result.params.margins, **margins}})
    return bc.compare(given)


def test_the_bundled_comparison_beside_a_ledger(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(project / "params/v9.6.0-rc1.yaml", tmp_path)
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    analysis.import_comparisons(tmp_path, ledger)
    params = bc.read_params(project / "params/v10.4.0-rc1.yaml")
    first = bc.compare(params.model_copy(update={"history": str(ledger)}))
    asked: list[dict[str, float]] = [
        {"cpu-utilization": 1.0},  # then it counts for more, in tests and events
        {"number-of-connected-devices": 1.0, "p99-api-times": 60.0},  # the first is that of the ledger's drift, too
    ]
    wanted = said(first), *(said(from_scratch(first, margins)) for margins in asked)
    for name in MEASURING:
        for module in (analysis, measure):
            monkeypatch.setattr(module, name, None, raising=module is measure and name != "read_recordings")
    other = [first.with_margins(margins) for margins in asked]
    assert (said(first), *map(said, other)) == wanted
    assert wanted[0] != wanted[1] != wanted[2]
    statuses = [tuple(row["status"] for row in each["tests"][0]["metrics"]) for each in wanted]
    assert len({*statuses}) > 1, "the margins matter"
    both = {name: size for margins in asked for name, size in margins.items()}
    assert said(other[0].with_margins(asked[1])) == said(first.with_margins(both)), "the other margins stay"


def test_repeated_runs_with_a_calibration_and_a_benchmark(project: Path) -> None:
    calibrated = bc.compare(bc.read_params(project / "params/missing-index.yaml"))
    margins = {calibrated.catalogue.metrics[1].slug: 70.0}
    assert said(calibrated.with_margins(margins)) == said(from_scratch(calibrated, margins))

    old = [{"import": seconds, "start": 2.0} for seconds in (62.1, 61.5, 61.9)]
    new = [{"import": seconds, "start": 2.1} for seconds in (58.2, 58.9)]
    operations = {"import": {"unit": "seconds"}, "start": {"unit": "seconds"}}
    benchmark = bc.compare(old, new, metrics=operations)
    stricter = bc.compare(old, new, metrics=operations, margins={"import": 1.0})
    assert said(benchmark.with_margins({"import": 1.0})) == said(stricter) != said(benchmark)


@pytest.mark.parametrize(
    ("margins", "expected"),
    [({"cpu": 8.0}, "a metric of the catalogue"), ({"import": 0.0}, "above 0"), ({"import": float("nan")}, "above 0")],
)
def test_a_margin_of_nothing_is_refused(margins: dict[str, float], expected: str) -> None:
    result = bc.compare({"import": 2.0}, {"import": 2.1}, metrics={"import": {"unit": "seconds"}})
    with pytest.raises(bc.InputError, match=expected):
        result.with_margins(margins)
