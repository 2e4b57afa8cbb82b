"""Every finding leads to its numbers, each of which is in its evidence; inputs that mean something else are named."""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.comparison import analysis as workbench
from buildcompare.comparison import reading
from buildcompare.config.params import check_params
from buildcompare.findings.finding import Found, finding
from buildcompare.findings.subject import subject
from buildcompare.recordings.table import write_recording
from buildcompare.report.sections import places
from buildcompare.results import Finding, Results
from buildcompare.results.codes import FindingKind, Severity
from buildcompare.text.sentences import Names
from evidence import without_evidence
from golden import BUNDLED
from investigation.api import look_into
from loadsim import RunSettings, simulate_run
from support import analysed, real_params, small_params, yaml_data

KINDS = ("users_in_params", "unrecognised")
Change = Callable[[pd.DataFrame], pd.DataFrame]


def found(params: Mapping[str, Any]) -> list[Finding]:
    results = analysed(params).results
    those = [each for each in results.findings if each.kind in KINDS]
    assert {each.severity for each in those} <= {"warning"}
    assert [missing for each in those if (missing := without_evidence(each, results))] == []
    return those


def change(params: Mapping[str, Any], side: str, to: Change) -> str:
    file = Path(params["tests"][0][side]["recording"])
    to(pd.read_csv(file)).to_csv(file, index=False)
    return str(file)


def scaled(factor: float, metric: str = "avg-api-times") -> Change:
    def scale(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(value=table["value"].where(table["metric"] != metric, table["value"] * factor))

    return scale


def renamed(**names: str) -> Change:
    by_slug = {old.replace("_", "-"): new for old, new in names.items()}
    return lambda table: table.assign(metric=table["metric"].replace(by_slug))


def bounded(folder: Path) -> dict[str, Any]:
    params = small_params(folder)
    return {**params, "tests": params["tests"][:1]}


@pytest.mark.parametrize("changed", [None, scaled(15.0), scaled(1 / 15), scaled(1000.0, "rps")])
def test_usual_inputs_and_large_changes_are_not_remarked_upon(tmp_path: Path, changed: Change | None) -> None:
    params = small_params(tmp_path)
    if changed is not None:
        change(params, "new", changed)
    assert found(params) == []


def test_more_users_than_the_params_say_are_told(tmp_path: Path) -> None:
    params = bounded(tmp_path)
    params["tests"][0]["users"] = 500
    (told,) = found(params)
    assert told.kind == "users_in_params"
    assert (told.evidence["users"], told.evidence["percent"]) == (500, pytest.approx(100.0))
    assert told.evidence["recorded"] == pytest.approx([1000.0, 1000.0])


def test_where_nothing_is_recognised_the_nearest_names_are_told(tmp_path: Path) -> None:
    params = bounded(tmp_path) | {"metrics": "mattermost"}
    names = {"avg_api_times": "api times (average)", "number_of_connected_devices": "connected devices", "rps": "qps"}
    files = [change(params, side, renamed(**names)) for side in ("base", "new")]
    (told,) = found(params)
    assert told.kind == "unrecognised"
    assert told.evidence["wanted"] == ["Avg API times", "P99 API times", "Number of Connected Devices"]
    assert ["connected-devices", "Number of Connected Devices"] in told.evidence["nearest"]
    assert told.evidence["files"] == files, "recordings with the same names are told together"


def test_one_misspelt_name_is_told_and_one_missing_metric_is_not(tmp_path: Path) -> None:
    params = bounded(tmp_path)
    file = change(params, "new", renamed(avg_api_times="avg api time"))
    (told,) = found(params)
    assert (told.evidence["wanted"], told.evidence["files"]) == (["Avg API times", "P99 API times"], [file])
    assert [name for name, _ in told.evidence["nearest"]] == ["avg-api-time"]
    change(params, "new", lambda table: table[table["metric"] != "avg api time"])
    assert found(params) == []


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


def reported(params: bc.Comparison, file: str) -> workbench.Analysis:
    recordings = reading.read_recordings(params)
    return workbench.analyse(params, recordings, command=f"python -m buildcompare report {shlex.quote(file)}")


def opened(made: workbench.Analysis, command: str) -> bc.Investigation:
    words = shlex.split(command)
    assert words[:3] == ["make", "lab", "NOTEBOOK=investigate"]
    said = dict(word.replace("$$", "$").split("=", 1) for word in words[2:])
    return look_into(made, *(said.get(key) for key in ("TEST", "METRIC", "LABEL")))


def held(told: Finding, seen: bc.Investigation) -> Iterator[tuple[Any, Any]]:
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
    made = reported(bc.read_params(project / file), file)
    assert followed(made) >= {"labels", "supported_users"}
    assert not [each.id for each in made.results.findings if without_evidence(each, made.results)]


def test_every_finding_of_published_comparisons_leads_to_its_numbers(real: Path) -> None:
    found: set[str] = set()
    for release in ("v9.1", "v9.2", "v10.4"):
        params = check_params(real_params(real, release, "v1.2.3", "v1.3.0-rc1", name=release))
        found |= followed(reported(params, "params/v10.4.0-rc1.yaml"))
    assert found >= {"metric", "supported_users", "event", "beginning", "time_to_users", "labels_in_several_tests"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> workbench.Analysis:
    params = small_params(tmp_path_factory.mktemp("small"))
    for test in params["tests"]:
        for side, label in (("base", "only in $(base)"), ("new", "it's new")):
            with Path(test[side]["labels"]).open("a", encoding="utf-8") as file:
                file.write(f"store,Post.Get,avg,0.002\napi,{label},avg,0.02\n")
    return reported(check_params(params), "params/v10.4.0-rc1.yaml")


def test_a_label_of_any_name_is_opened_by_its_command(small: workbench.Analysis) -> None:
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
