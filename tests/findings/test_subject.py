"""From a finding to its numbers: its command opens a metric or label whose frames hold them."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.comparison import analysis as workbench
from buildcompare.config.params import Comparison, check_params, read_params
from buildcompare.findings.finding import Found, finding
from buildcompare.findings.subject import subject
from buildcompare.report.sections import places
from buildcompare.results import Finding
from buildcompare.results.codes import FindingKind, Severity
from buildcompare.text.sentences import Names
from evidence import without_evidence
from golden import BUNDLED
from investigation.api import look_into
from support import real_params, small_params


def analysed(params: Comparison, file: str) -> workbench.Analysis:
    """A comparison as a report of this params file has it."""
    recordings = workbench.read_recordings(params)
    return workbench.analyse(params, recordings, command=f"python -m buildcompare report {shlex.quote(file)}")


def opened(made: workbench.Analysis, command: str) -> bc.Investigation:
    """What `make lab` with these words opens."""
    words = shlex.split(command)
    assert words[:3] == ["make", "lab", "NOTEBOOK=investigate"]
    said = dict(word.replace("$$", "$").split("=", 1) for word in words[2:])
    return look_into(made, *(said.get(key) for key in ("TEST", "METRIC", "LABEL")))


def held(told: Finding, seen: bc.Investigation) -> Iterator[tuple[Any, Any]]:
    """Numbers of a finding beside those that the notebook shows, for the kinds that are about one of its frames."""
    evidence, answer = told.evidence, seen.answer
    kind = FindingKind(told.kind)
    if kind in (FindingKind.METRIC, FindingKind.SINGLE_RUNS, FindingKind.TRAFFIC_MIX):
        over = "equal_load" if evidence.get("decided_by") == "equal_load" else "windows"
        yield evidence["delta_percent"], answer.loc[over, "change_percent"]
    elif kind == FindingKind.SUPPORTED_USERS:
        row = answer.loc["supported_users"]
        yield [evidence[key] for key in ("base", "new", "delta_percent")], [row.base, row.new, row.change_percent]
    elif kind in (FindingKind.EVENT, FindingKind.MORE_EVENTS):
        at = evidence["events"][0]["at_s"] if kind == FindingKind.EVENT else seen.events["at_s"].iloc[0]
        yield at, seen.events.loc[seen.events["at_s"] == at, "at_s"].iloc[0]
    elif kind == FindingKind.BEGINNING:
        for name in ("early_bumps", "onset_s", "slope_users_per_s"):
            yield evidence[name], seen.beginning.loc[name, ["base", "new"]].tolist()
        yield evidence["shift_users"], seen.beginning.loc["shift_users", "difference"]
    elif kind == FindingKind.TIME_TO_USERS:
        row = seen.beginning.loc[f"seconds to {evidence['users']} users"]
        yield [evidence["base"], evidence["new"]], [row.base, row.new]
    elif kind == FindingKind.BUMPS_IN_BOTH:
        yield [evidence["early_bumps"]] * 2, seen.beginning.loc["early_bumps", ["base", "new"]].tolist()
    elif kind in (FindingKind.LABELS, FindingKind.LABELS_BEYOND_NOISE, FindingKind.LABELS_IN_SEVERAL_TESTS):
        row = evidence["moved_most" if kind == FindingKind.LABELS else "labels"][0]
        row = next(iter(row["tests"].values())) if kind == FindingKind.LABELS_IN_SEVERAL_TESTS else row
        yield row["delta_percent"], answer.loc["windows", "change_percent"]
    elif kind == FindingKind.METHODS_WITH_HANDLERS:
        yield next(iter(evidence["handlers"].values())), answer.loc["windows", "change_percent"]


def followed(made: workbench.Analysis) -> set[str]:
    """Follow every finding of a comparison; the kinds whose numbers were compared."""
    compared = set()
    for told in made.results.findings:
        place = places(made.results)[told.id]
        assert place.command is not None, told.id
        seen = opened(made, place.command)
        about = subject(told, made.results.tests)
        if about.test is not None:
            assert told.id in seen.findings["id"].tolist(), told.id
        for said, shown in held(told, seen):
            expected = [math.nan if each is None else each for each in (said if isinstance(said, list) else [said])]
            assert np.atleast_1d(shown).astype(float).tolist() == pytest.approx(expected, nan_ok=True), told.id
            compared.add(str(told.kind))
    return compared


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_every_finding_of_a_bundled_comparison_leads_to_its_numbers(project: Path, name: str) -> None:
    file = f"params/{name}.yaml"
    made = analysed(read_params(project / file), file)
    assert followed(made) >= {"labels", "supported_users"}
    assert not [each.id for each in made.results.findings if without_evidence(each, made.results)]


def test_every_finding_of_published_comparisons_leads_to_its_numbers(real: Path) -> None:
    found: set[str] = set()
    for release in ("v9.1", "v9.2", "v10.4"):
        params = check_params(real_params(real, release, "v1.2.3", "v1.3.0-rc1", name=release))
        found |= followed(analysed(params, "params/v10.4.0-rc1.yaml"))
    assert found >= {"metric", "supported_users", "event", "beginning", "time_to_users", "labels_in_several_tests"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> workbench.Analysis:
    folder = tmp_path_factory.mktemp("small")
    params = small_params(folder)
    for test in params["tests"]:
        for side, label in (("base", "only in $(base)"), ("new", "it's new")):
            with Path(test[side]["labels"]).open("a", encoding="utf-8") as file:
                file.write(f"store,Post.Get,avg,0.002\napi,{label},avg,0.02\n")
    return analysed(check_params(params), "params/v10.4.0-rc1.yaml")


def test_a_label_of_any_name_is_opened_by_its_command(small: workbench.Analysis) -> None:
    """Quotes are the shell's, and a dollar sign is make's."""
    assert followed(small) >= {"labels"}
    names = Names.of(("v1.0.0", "v1.1.0"), small.results.tests)
    for label in ("it's new", "only in $(base)"):
        test, rows = "postgresql_bounded", [{"group": "api", "label": label}]
        evidence = {"side": "new", "labels": [label], "rows": rows, "tests": [test]}
        rare = Found(FindingKind.LABELS_IN_ONE_BUILD, Severity.INFO, evidence, test)
        results = small.results.model_copy(update={"findings": [finding(rare, names)]})
        (place,) = places(results).values()
        assert "$(" not in place.command.replace("$$(", "")
        seen = opened(small, place.command)
        assert seen.label == ("api", label, "avg")
        assert seen.row.only_in is not None  # type: ignore[union-attr]
