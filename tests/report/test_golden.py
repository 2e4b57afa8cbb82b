"""Does a bundled comparison still publish the report somebody last looked at? `make golden` accepts what changed."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import golden


@pytest.mark.parametrize("name", golden.BUNDLED)
def test_the_report_is_the_golden_one(bundled: Callable[[str], Path], name: str) -> None:
    kept, made = golden.kept(name), golden.made(bundled(name))
    assert set(kept) == set(made)
    for text in kept.keys() - {"results.json"}:
        assert made[text].splitlines() == kept[text].splitlines()
    found = list(golden.differences(json.loads(kept["results.json"]), json.loads(made["results.json"])))
    assert found == [], "make golden, where this is meant"


def test_a_changed_number_word_or_row_is_a_difference() -> None:
    kept = json.loads(golden.kept(golden.BUNDLED[0])["results.json"])
    assert list(golden.differences(kept, copy.deepcopy(kept))) == []
    changed = copy.deepcopy(kept)
    metric = changed["tests"][0]["metrics"][0]
    metric["new"] *= 1.0001
    changed["verdict"] = "regression"
    changed["complete"] = 1
    del changed["tests"][1]["labels"]["rows"][-1]
    del changed["findings"][0]["evidence"]
    found = " | ".join(golden.differences(kept, changed))
    for where in ("metrics[0].new is", "results.verdict", "results.complete", "labels.rows has", "evidence is gone"):
        assert where in found
    metric["new"] = kept["tests"][0]["metrics"][0]["new"] * (1 + 1e-7)
    assert "metrics[0].new" not in " | ".join(golden.differences(kept, changed))
