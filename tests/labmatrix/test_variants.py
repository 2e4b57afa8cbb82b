"""Matrices of variants: what is known of simulated ones is found, and the published ones say no more than they hold."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.anova import anova_lm

import buildcompare as bc
from buildcompare.config.errors import InputError
from buildcompare.report import publication
from buildcompare.report.publish import publish
from buildcompare.text.sentences import say
from labmatrix.api import VariantsReport
from labmatrix.findings import opening
from labmatrix.params import check_variants
from labmatrix.ranking import chance_sd, runs_needed
from labmatrix.results import Unjudged
from loadexport.export import samples
from support import command, write_params, yaml_data


def matrix(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    runs = []
    for turn in range(3):
        round_level = rng.normal(0, 0.03)
        for disk in ("managed", "ephemeral"):
            for scheduler in ("none", "mq"):
                tps = 600 * np.exp(0.26 * (disk == "ephemeral") + round_level + rng.normal(0, 0.01))
                levels = {"disk": disk, "scheduler": scheduler}
                runs.append({"levels": levels, "values": {"tps": float(tps)}, "block": f"round {turn}"})
    return {
        "name": "disks", "factors": {"disk": ["managed", "ephemeral"], "scheduler": ["none", "mq"]},
        "baseline": {"disk": "managed", "scheduler": "none"},
        "operations": {"tps": {"unit": "1/s", "better": "higher", "margin_percent": 5.0}}, "runs": runs, **more,
    }  # fmt: skip


def compared(given: dict[str, Any]) -> VariantsReport:
    return bc.compare_variants(check_variants(given))


def test_a_known_effect_is_found_within_drifting_rounds() -> None:
    claims = [
        {"says": "better", "operation": "tps", "of": {"disk": "ephemeral", "scheduler": "none"}},
        {"says": "same", "operation": "tps", "of": {"disk": "managed", "scheduler": "mq"}},
        {"says": "worse", "operation": "tps", "of": {"disk": "ephemeral", "scheduler": "mq"}},
    ]
    found = compared(matrix(claims=claims))
    (operation,) = found.result.operations
    assert (operation.model, operation.noise_source) == ("mixed", "repeats")
    assert operation.run_sd_percent == pytest.approx(1.0, abs=0.6)
    rows = {(row.variant, row.against): row for row in found.result.contrasts}
    disk = rows["ephemeral, none", "managed, none"]
    assert (disk.status, disk.times_better) == ("improvement", pytest.approx(np.exp(0.26), abs=0.04))
    assert disk.ci_low < 100 * np.expm1(0.26) < disk.ci_high
    assert rows["managed, mq", "managed, none"].status == "equivalent"
    proven = {tuple(term.factors): term.proven for term in found.result.terms}
    assert proven == {("disk",): True, ("scheduler",): False, ("disk", "scheduler"): False}
    assert [claim.status for claim in found.result.claims] == ["holds", "holds", "contradicted"]
    places = {row.variant: (row.first, row.last) for row in found.result.ranking}
    assert places["ephemeral, none"] == places["ephemeral, mq"] == (1, 2)
    assert places["managed, none"] == places["managed, mq"] == (3, 4)
    assert found.verdict == bc.Verdict.PASS


def test_without_blocks_a_contrast_is_that_of_the_pooled_t_test() -> None:
    given = matrix()
    for run in given["runs"]:
        del run["block"]
    found = compared(given)
    table = pd.DataFrame([{**run["levels"], "log": np.log(run["values"]["tps"])} for run in given["runs"]])
    logs = table.groupby(["disk", "scheduler"])["log"]
    pooled = np.sqrt(logs.var().mean())
    delta = logs.mean()["ephemeral", "none"] - logs.mean()["managed", "none"]
    half = stats.t.ppf(0.975, 8) * pooled * np.sqrt(2 / 3)
    row = found.result.contrasts[1]
    assert (row.variant, row.against) == ("ephemeral, none", "managed, none")
    assert [row.ci_low, row.ci_high] == pytest.approx((100 * np.expm1([delta - half, delta + half])).tolist())
    anova = anova_lm(smf.ols("log ~ C(disk) * C(scheduler)", table).fit())
    (disk,) = (term for term in found.result.terms if term.factors == ["disk"])
    assert (disk.df, disk.p_value) == (1, pytest.approx(anova.loc["C(disk)", "PR(>F)"], rel=1e-6))
    (both,) = (term for term in found.result.terms if len(term.factors) == 2)
    assert both.p_value == pytest.approx(anova.loc["C(disk):C(scheduler)", "PR(>F)"], rel=1e-6)


@pytest.mark.untraced
def test_intervals_hold_the_truth_and_absent_effects_are_rarely_called(project: Path) -> None:
    measure = runpy.run_path(str(project / "benchmarks/variants.py"))["measure"]
    for design, count in (("2 x 3, a cell missing, two runs", 150), ("2 x 2, four rounds that drift", 25)):
        found = measure(design, range(1000, 1000 + count))
        assert 0.90 <= found["held"] <= 0.99, design
        assert found["any"] <= stats.binom.ppf(0.999, count, 0.05) / count, design


def test_stated_noise_judges_single_runs() -> None:
    given = matrix()
    given["runs"] = [{**run, "block": None} for run in given["runs"][:4]]
    assert compared(given).verdict == bc.Verdict.INCONCLUSIVE
    given["operations"]["tps"]["run_sd_percent"] = 1.0
    assert compared(given).result.contrasts[1].status == "improvement"


def test_how_many_runs_would_show_a_difference() -> None:
    count = runs_needed(np.log(1.1))["5"]
    base, new = np.random.default_rng(5).normal(0, np.log(1.05), (2, 4000, count))
    assert 0.75 <= np.mean(stats.ttest_ind(new + np.log(1.1), base, axis=1).pvalue < 0.05) <= 0.9
    assert chance_sd(np.log(1.1)) == pytest.approx(100 * np.expm1(np.log(1.1) / (1.96 * np.sqrt(2))), rel=1e-3)


def small(values: dict[str, list[float]], **more: Any) -> VariantsReport:
    given = {
        "name": "small", "factors": {"v": [*values]}, "baseline": {"v": next(iter(values))},
        "operations": {"n": {"unit": "1/s", "better": "higher", "margin_percent": 5.0}},
        "runs": [{"levels": {"v": name}, "values": {"n": n}} for name, each in values.items() for n in each], **more,
    }  # fmt: skip
    return compared(given)


def begins(found: VariantsReport) -> str:
    return " / ".join(opening(found.results))


def test_a_claim_within_the_margin_is_told_as_the_figures_are() -> None:
    every = ("better", "worse", "same", "not_better")
    claims = [{"says": says, "operation": "n", "of": {"v": "new"}} for says in every]
    found = small({"old": [100, 101, 99.5], "new": [103, 102, 102.5]}, claims=claims)
    assert [each.status for each in found.result.claims] == ["within_margin", "contradicted", "holds", "holds"]
    text = " ".join(f"{each.text} {each.detail}" for each in found.results.findings)
    assert "new is worse than old in n”: contradicted (+2.3 %)" in text
    assert "nothing proves it" not in text
    assert text.count("95 % interval +0.8 to +3.9 %") == 4
    unsure = small({"old": [100, 110, 90], "new": [103, 112, 92.5]}, claims=claims[:2])
    assert [each.status for each in unsure.result.claims] == ["unproven", "disagrees"]


def test_why_nothing_is_judged_is_said_as_it_is() -> None:
    def block(run: dict[str, Any]) -> dict[str, Any]:
        return {**run, "block": "of " + "-".join(run["levels"].values())}

    given = matrix()
    once = compared({**given, "runs": given["runs"][:4]})
    few = small({"a": [100, 101], "b": [120], "c": [90], "d": [100]})
    own = compared({**given, "runs": [block(run) for run in given["runs"]]})
    judged = compared(given)
    disks = compared({**given, "runs": [run | {"block": run["levels"]["disk"]} for run in given["runs"]]})
    across = [(row.variant.split()[0] != row.against.split()[0], row.p_value is None) for row in disks.result.contrasts]
    assert {*across} == {(True, True), (False, False)}
    assert {(row.status, row.p_value) for row in own.result.contrasts} == {("inconclusive", None)}
    told = [each.result.unjudged for each in (once, few, own, judged)]
    assert told == ["single", "few", "confounded", None]
    page = {each.result.unjudged: begins(each) + str(each.results.findings) for each in (once, few, own)}
    for said, why in (("Unproven: no variant was run twice", "single"), ("Unproven: too few runs were", "few"),
                      ("Unproven: each variant ran on one machine or in one round only", "confounded")):  # fmt: skip
        assert [each for each, text in page.items() if said in text] == [why]
    assert "No run was repeated" in page[Unjudged.SINGLE]
    assert all("No run was repeated" not in page[why] for why in ("few", "confounded"))
    assert "if single runs vary" not in page[Unjudged.CONFOUNDED]


def test_only_the_baseline_makes_a_regression_and_the_best_comes_first() -> None:
    given = matrix()
    for run in given["runs"]:
        run["values"]["tps"] *= 0.85 if run["levels"] == {"disk": "ephemeral", "scheduler": "mq"} else 1.0
    found = compared(given)
    rows = {(row.variant, row.against): row.status for row in found.result.contrasts}
    assert rows["ephemeral, mq", "ephemeral, none"] == "regression"
    assert (rows["ephemeral, mq", "managed, none"], found.verdict) == ("improvement", bc.Verdict.PASS)
    assert {each.severity for each in found.results.findings} == {"info"}
    assert ": regression" not in " ".join(each.text for each in found.results.findings)
    slower = next(row for row in found.result.contrasts if row.status == "regression")
    said = say("figures", "contrast_row", slower, found.result, found.result.operations[0])
    assert said.endswith("worse than the other")
    best = r"Best: tps of ephemeral, none, \+2\d.\d % against the baseline \(\+.* to \+.* %\)\."
    assert re.search(best, begins(found))
    worse = small({"old": [100, 101, 99.5], "new": [80, 81, 80.5]})
    said = "Regression: n −19.6 % in new, worse than the baseline / Best: n of the baseline itself."
    assert begins(worse).startswith(said)
    assert worse.results.new.label == "1 variant"


LESS_IS_BETTER = {"operations": {"n": {"unit": "", "better": "lower", "margin_percent": 5.0}}}


def test_a_variant_at_zero_is_told_by_the_difference(tmp_path: Path) -> None:
    dead = small({"old": [100, 101, 99], "new": [0, 0, 0], "third": [200, 202, 199]})
    rows = {row.variant: row for row in dead.result.contrasts}
    assert (rows["new"].delta_percent, rows["new"].times_better, rows["new"].status) == (-100.0, 0.0, "regression")
    assert rows["third"].status == "improvement", "the others are judged as ever"
    assert begins(dead).startswith("Regression: n −100 % in new, worse than the baseline / Best: n of third, +100 %")
    assert [(row.variant, row.first, row.last) for row in dead.result.ranking] == [
        ("third", 1, 1), ("old", 2, 2), ("new", 3, 3)
    ]  # fmt: skip
    page = dead.to_html(tmp_path / "report.html").read_text("utf-8")
    assert "A variant with a run of 0 has no ratio. It is judged by the difference" in page
    assert "Ratios with 0 are in the table below." in page
    once = small({"old": [100], "new": [0]})
    assert (once.verdict, once.result.contrasts[0].delta_percent) == (bc.Verdict.INCONCLUSIVE, -100.0)
    assert "n 0 1/s against 100 1/s of the baseline, old, −100 %: unproven." in once.results.findings[0].text
    once.to_html(tmp_path / "once.html")
    with pytest.raises(InputError, match="expected a file that can be written"):
        once.to_html(tmp_path)


def test_counts_from_and_to_zero(tmp_path: Path) -> None:
    broken = small({"old": [0, 0, 0], "new": [5, 6, 5], "same": [0, 0, 0], "few": [1, 1, 1]}, **LESS_IS_BETTER)
    rows = {row.variant: (row.delta_percent, row.status) for row in broken.result.contrasts}
    assert rows == {"new": (None, "regression"), "same": (0.0, "equivalent"), "few": (None, "inconclusive")}
    assert begins(broken).startswith("Regression: n up from 0 in new, worse than the baseline")
    assert "5.31 against 0 of the baseline, old: regression" in broken.results.findings[0].text
    broken.to_html(tmp_path / "broken.html")
    mended = small({"old": [5, 6, 5], "new": [0, 0, 0], "one": [0, 1, 0]}, **LESS_IS_BETTER)
    gone, one = mended.result.contrasts
    assert (gone.status, gone.times_better, one.new) == ("improvement", None, pytest.approx(1 / 3))
    assert mended.verdict == bc.Verdict.PASS
    assert "n of new, −100 % against the baseline" in begins(mended)
    assert small({"old": [0, 0], "new": [0, 0]}, **LESS_IS_BETTER).verdict == bc.Verdict.PASS
    levels = {of["variant"]: value for name, of, value in samples(mended.results) if name == "variant_value"}
    assert levels["new"] == 0.0


def test_a_zero_on_a_machine_of_its_own_is_not_judged() -> None:
    given = {"old": [100.0, 101, 99], "new": [0.0, 0, 0]}
    runs = [
        {"levels": {"v": name}, "values": {"n": n}, "block": f"machine of {name}"}
        for name, of in given.items() for n in of
    ]  # fmt: skip
    assert small(given, runs=runs).result.contrasts[0].status == "inconclusive"
    shared = [{**run, "block": f"round {i % 3}"} for i, run in enumerate(runs)]
    assert small(given, runs=shared).result.contrasts[0].status == "regression"


def test_what_has_no_baseline_beside_it_is_named() -> None:
    given = matrix(workload=["scheduler"], baseline={"disk": "managed"})
    given["operations"]["p99"] = {"unit": "seconds", "better": "lower"}
    for run in given["runs"]:
        if run["levels"]["disk"] == "managed":
            run["values"]["p99"] = run["values"]["tps"]
    given["runs"] = [run for run in given["runs"] if run["levels"] != {"disk": "managed", "scheduler": "mq"}]
    found = compared(given)
    assert found.verdict == bc.Verdict.INCONCLUSIVE
    lacking = "tps at mq: the baseline managed was not run; p99 at none: ephemeral was not measured."
    assert f"Not compared: {lacking}" in begins(found)
    for run in given["runs"]:
        if run["levels"]["disk"] == "managed":
            del run["values"]["tps"]
    with pytest.raises(InputError, match="none that were measured in one operation"):
        compared(given)


def test_a_matrix_and_a_comparison_are_told_where_they_belong(project: Path) -> None:
    said = "expected a matrix of variants, with `factors`, found a comparison of two builds, which comparison.ipynb, "
    with pytest.raises(bc.InputError, match=said):
        bc.read_variants("params/missing-index.yaml")
    with pytest.raises(InputError, match=r"azbench\.yaml: factors \(line \d+\): .* of two builds, found a matrix of v"):
        bc.read_params(project / "params/azbench.yaml")


def test_every_figure_of_seed_001_is_in_its_params(real: Path, project: Path) -> None:
    (seed,) = (real.parent / "seeds").glob("001_*.txt")
    _, *sections = re.split(
        r"(?m)^(?=(?:Master|Index Patch|Normalise Patch|Normalise \+ Index|cdent's WIP \+ Index)\n)", seed.read_text()
    )
    runs = yaml_data((project / "params/ceilometer-schemas.yaml").read_text())["runs"]
    assert len(sections) == len(runs) == 5
    for section, run in zip(sections, runs, strict=True):
        times = re.findall(r"(\w+-list): ([\d.]+) seconds / ([\d.]+)per", section)
        assert run["values"] == {name: float(total) for name, total, _ in times}
        counts = {name: int(count) for name, count in re.findall(r"(samples|meters|resources): (\d+)", section)}
        assert run["facts"] == counts | {f"{name} each": float(each) for name, _, each in times}


def test_every_figure_of_seed_003_is_in_its_params(real: Path, project: Path) -> None:
    (seed,) = (real.parent / "seeds").glob("003_*.txt")
    read = bc.pgbench_runs(seed).to_dict("records")
    params = yaml_data((project / "params/azbench.yaml").read_text())
    runs, setup = params["runs"], " ".join(params["setup"].values()).replace(",", "")
    prose = seed.read_text().partition("## Test runs")[2].replace("2TB", "2 TB").replace("1.5TB", "1.5 TB")
    told = re.findall(r"\d[\d.]* (?:TB|GB)|(?<=\()\d+ vs \d+(?: MBps)?", re.sub(r"```.*?```", "", prose, flags=re.S))
    assert len(told) == 7, "disks of five headings, IOPS, throughput"
    numbers = {number for each in told for number in re.findall(r"[\d.]+", each)}
    assert numbers <= set(re.findall(r"[\d.]+", setup))
    for known, run in zip(read, runs, strict=True):
        values = (known["tps including connections"], known["latency average"], known["tps"])
        assert (tuple(run["values"].values()), run["levels"]["scale"]) == (pytest.approx(values), known["scale"])
        assert run["facts"] == {key: known[key] for key in ("clients", "threads", "duration", "transactions")}


def test_seed_001_says_what_holds_without_spread_and_what_would_settle_it() -> None:
    found = bc.compare_variants(bc.read_variants("params/ceilometer-schemas.yaml"))
    rows = {(row.operation, row.variant, row.against): row for row in found.result.contrasts}
    assert rows["resource-list", "Normalise + index", "Master"].times_better == pytest.approx(4.50, abs=0.005)
    assert {row.status for row in rows.values()} == {"inconclusive"}
    told = [(claim.operation, claim.says, claim.status, claim.runs_needed["5"]) for claim in found.result.claims]
    assert told == [
        ("meter-list", "better", "likely", 2),
        ("meter-list", "not_better", "unproven", 3),
        ("sample-list", "same", "unproven", 19),
        ("resource-list", "better", "likely", 2),
        ("resource-list", "not_better", "unproven", 4),
    ]
    assert found.verdict == bc.Verdict.INCONCLUSIVE


def test_seed_003_shows_disks_and_schedulers_and_proves_nothing() -> None:
    found = bc.compare_variants(bc.read_variants("params/azbench.yaml"))
    rows = [row for row in found.result.contrasts if row.operation == "tps"]
    small = [row for row in rows if "D4s_v3" in row.variant]
    disk = next(row for row in small if row.variant == "ephemeral, none (D4s_v3, scale 120)")
    assert disk.times_better == pytest.approx(1.75, abs=0.005)
    schedulers = [row.delta_percent for row in small if row.differs_in == ["scheduler"]]
    assert schedulers == pytest.approx([12.6, 9.5, 0.1], abs=0.05)
    assert {(row.status, row.p_value) for row in rows} == {("inconclusive", None)}
    assert all("scale" not in row.differs_in for row in rows)
    assert [claim.status for claim in found.result.claims] == ["likely", "unproven", "unproven"]
    assert [claim.runs_needed["5"] for claim in found.result.claims] == [2, 4, 19]


@pytest.mark.slow
def test_a_matrix_is_published_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    (tmp_path / "left/iostat.json").write_text("{}")
    given = matrix(title="<b>Disks</b>")
    given["runs"][1]["artefacts"] = [str(tmp_path / "left")]
    published = publish(write_params(tmp_path / "disks.yaml", given), output=tmp_path / "out").folder
    results = json.loads((published / "results.json").read_text("utf-8"))
    assert (results["verdict"], results["tests"], len(results["variants"]["contrasts"])) == ("pass", [], 5)
    page = (published / "report.html").read_text("utf-8")
    for said in ("Variants", "Factors", "Ranking", "&lt;b&gt;Disks&lt;/b&gt;", "mixed model of logarithms", "1 to 2"):
        assert said in page, said
    readme = (published / "README.md").read_text("utf-8")
    linked = re.findall(r"\(graphs/([^)]+)\)", readme)
    assert sorted(linked) == sorted(file.name for file in (published / "graphs").iterdir())
    assert linked == ["contrasts_tps.svg"], "what stands open on the page"
    for picture in ("heat_map", "interaction_tps_scheduler_disk"):
        assert f'<details class="picture" id="{picture}">' in page
    tables = {file.stem: file.read_text("utf-8").count("\n") - 1 for file in (published / "tables").iterdir()}
    assert tables == {"findings": 3, "variants": 5, "variants_effects": 3, "variants_factors": 3, "variants_ranking": 4,
                      "variants_runs": 12}  # fmt: skip
    suites = ElementTree.parse(published / "junit.xml").getroot()
    assert sum(int(suite.get("tests", 0)) for suite in suites) == 5
    assert sum(int(suite.get("failures", 0)) for suite in suites) == 0
    assert (published / "variants.ipynb").exists()
    assert (published / "artefacts/run-2/left/iostat.json").read_text() == "{}"
    assert '<a href="artefacts/run-2/">managed, mq, run 2</a> (1 files, 2.00 B)' in page


@pytest.mark.slow
def test_a_file_of_the_same_name_does_not_overwrite_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "reports", lambda: tmp_path / "reports")
    files = [write_params(tmp_path / folder / "disks-variants.yaml", matrix()) for folder in ("one", "two")]
    folder = publish(files[0]).folder
    before = (folder / "results.json").read_bytes()
    with pytest.raises(InputError, match=r"output: expected another folder \(--output\) for .*two/disks-variants"):
        publish(files[1])
    assert (folder / "results.json").read_bytes() == before
    assert publish(files[0], resume=True).kept


@pytest.mark.slow
def test_a_worse_variant_fails_the_build(tmp_path: Path) -> None:
    write_params(tmp_path / "worse.yaml", matrix(baseline={"disk": "ephemeral", "scheduler": "none"}))
    done = command("report", tmp_path / "worse.yaml", "-o", tmp_path / "out", "--fail-on", "regression")
    assert done.exit_code == 1, done.output
    assert "Regression: tps −2" in done.output


def test_the_notebook_has_every_key_and_calls_the_public_interface_only(project: Path) -> None:
    notebook = json.loads((project / "notebooks/variants.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert 10 <= len(notebook["cells"]) <= 15
    keys = set(re.findall(r"(?m)^(\w+) = None", code[0])) - {"params_file", "command"}
    assert keys == set(type(check_variants(matrix())).model_fields)
    assert re.findall(r"(?m)^\s*(?:from|import) .*", "\n".join(code)) == ["import buildcompare as bc"]


def test_runs_are_read_from_files_of_pgbench(tmp_path: Path) -> None:
    def block(scale: int, tps: float) -> str:
        return (
            f"scaling factor: {scale}\nnumber of clients: 4\nduration: 60 s\n"
            "number of transactions actually processed: 9\n"
            f"latency average = {4000 / tps:.3f} ms\ntps = {tps} (without initial connection time)\n"
        )

    for disk, factor in (("managed", 1.0), ("ephemeral", 1.5)):
        blocks = [block(scale, tps * factor) for scale in (1, 10) for tps in (600.0, 606.0, 594.0)]
        (tmp_path / f"{disk}.txt").write_text("".join(blocks))
    given = {
        "name": "x", "factors": {"disk": ["managed", "ephemeral"], "scale": [1, 10]}, "workload": ["scale"],
        "baseline": {"disk": "managed"}, "metrics": "pgbench",
        "runs": [{"levels": {"disk": name}, "pgbench": f"{tmp_path}/{name}.txt"} for name in ("managed", "ephemeral")],
    }  # fmt: skip
    found = compared(given)
    rows = {(row.operation, row.status) for row in found.result.contrasts}
    assert rows == {("tps", "improvement"), ("latency-average", "improvement")}
    assert [run.source for run in found.result.runs][1] == f"{tmp_path}/managed.txt, line 7"
    given["factors"] = {"disk": ["managed", "ephemeral"], "scale": [1, 20]}
    with pytest.raises(InputError, match=r"pgbench: .*managed\.txt, line 19: expected scale 1 or 20, found 10"):
        compared(given)


CLAIM = {"says": "better", "operation": "tps"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p["factors"].pop("scheduler"), "a level of disk as `baseline`"),
        (lambda p: p["baseline"].update(disk="tape"), "a level of 'disk' (managed, ephemeral), found 'tape'"),
        (lambda p: p["baseline"].pop("disk"), "a level of disk, scheduler as `baseline`"),
        (lambda p: p["runs"][0].pop("values"), "expected `values` or `pgbench`, found none of them"),
        (lambda p: p["runs"][0]["levels"].pop("disk"), "expected a level of 'disk' (managed, ephemeral), found none"),
        (lambda p: p.update(runs=[]), "runs: expected at least 2 of them, found 0"),
        (lambda p: p.update(workload=["disk", "scheduler"]), "a factor that is no workload"),
        (lambda p: p.update(operations={}), "`operations`, or a catalogue (`metrics`), found neither"),
        (lambda p: p["runs"][0]["values"].update(tps=-1.0), "greater than or equal to 0"),
        (lambda p: p.update(runs=p["runs"][:1] * 2), "runs of two variants or more"),
        (lambda p: p.update(claims=[{**CLAIM, "of": {"disk": "tape"}}]), "found 'tape'"),
        (lambda p: p.update(claims=[{**CLAIM, "of": p["baseline"]}]), "two different variants to compare"),
        (lambda p: p["runs"][0]["values"].update(tps=[100, 101, -1]), "runs[0].values.tps[2]: expected greater"),
        (lambda p: p["operations"]["tps"].update(gate=False), "operations: expected one with two variants or more"),
        (lambda p: p["operations"]["tps"].update(better="neutral"), "`better: higher` or `lower`, without `gate"),
        (lambda p: p.update(names={"ephemeral, mq": p["baseline"]}), "(`names`), found 'ephemeral, mq' for {"),
        (lambda p: p["runs"][0]["values"].update(tps=1e-300), "runs[0].values.tps: expected numbers from 1e-100"),
        (lambda p: p.update(runs=p["runs"][1:4]), "a run of the baseline (managed, none), found none"),
    ],
)
def test_a_fault_of_the_params_is_one_line(change: Callable[[dict[str, Any]], object], expected: str) -> None:
    given = matrix()
    change(given)
    with pytest.raises(InputError, match=re.escape(expected)):
        compared(given)
