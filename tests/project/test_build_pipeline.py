"""What a build pipeline gets: a comment for the pull request, JUnit XML, the step summary, and an exit code."""

import re
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.findings.verdict import opening, shortcomings
from buildcompare.report import junit, markdown
from buildcompare.results import Results, TestPlan
from buildcompare.results.codes import Status, Verdict
from support import command as run
from support import refused

LOCUST = Path(__file__).parents[1] / "load_tools/locust"
MOST_LINES = 60


@pytest.fixture(scope="module")
def slower() -> Results:
    return bc.compare(LOCUST / "base", LOCUST / "new").results


@pytest.fixture(scope="module")
def faster() -> Results:
    return bc.compare(LOCUST / "new", LOCUST / "base").results


def changed(results: Results, **fields: Any) -> Results:
    """The results with other fields of their one test."""
    (test,) = results.tests
    return results.model_copy(update={"tests": [test.model_copy(update=fields)]})


def test_compare_writes_comment_and_junit_and_appends_to_the_step_summary(tmp_path: Path, slower: Results) -> None:
    comment, xml, summary = (tmp_path / name for name in ("pr/comment.md", "junit.xml", "summary.md"))
    summary.write_text("# Build\n", "utf-8")
    arguments = ["compare", LOCUST / "base", LOCUST / "new", "--markdown", comment, "--junit", xml]
    address = "https://ci.example/runs/1?a=(b)"
    done = run(*arguments, "--link", address, "--quiet", GITHUB_STEP_SUMMARY=str(summary))
    assert (done.exit_code, done.output) == (0, "")
    text = comment.read_text("utf-8")
    assert text == markdown.comment(slower, address)
    assert "(https://ci.example/runs/1?a=%28b%29)" in text
    assert summary.read_text("utf-8") == f"# Build\n{text}\n"
    assert xml.read_text("utf-8") == junit.render(slower)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    summary = {"GITHUB_STEP_SUMMARY": str(tmp_path)}
    for option, environment in (["--markdown", tmp_path], {}), (["--junit", tmp_path], {}), ([], summary):
        assert f"{tmp_path}" in refused("compare", LOCUST / "base", LOCUST / "base", "--quiet", *option, **environment)


def test_the_comment_says_what_the_page_says(slower: Results) -> None:
    lines = markdown.comment(slower).splitlines()
    assert lines[0] == "<!-- buildcompare -->"
    assert lines[1] == f"**✗ {opening(slower).title}.** {opening(slower).sentence}"
    rows = {cells[1]: cells[2:] for line in lines if len(cells := [each.strip() for each in line.split("|")]) > 7}
    assert rows["Response time"][1:5] == ["36.6 ms", "+12.0 %", "+5.5 to +18.8 %", "✗ regression"]
    assert list(rows)[2:5] == ["Response time", "P50 response time", "P95 response time"]  # changes first
    assert f"- **critical**: {slower.findings[0].text}" in lines
    assert all(f"- {each.text}" in lines for each in slower.suggestions)
    assert "report is" not in "".join(lines)  # no address


def test_changed_labels_stand_in_the_comment_once_each(slower: Results) -> None:
    worse = {("GET /search", "avg"), ("GET /search", "p99"), ("GET /cart", "p95")}
    labels = [
        row.model_copy(update={"status": Status.REGRESSION}) if (row.label, row.stat) in worse else row
        for row in slower.tests[0].labels
    ]
    text = markdown.comment(changed(slower, labels=labels))
    rows = [[each.strip() for each in line.split("|")][1:-1] for line in text.splitlines() if "| GET " in line]
    assert [row[:2] for row in rows] == [["GET /search", "avg"], ["GET /cart", "p95"]]
    assert rows[0][4:] == ["+24.2 %", "✗ slower"]


def test_an_invalid_test_has_numbers_but_no_judgement(slower: Results) -> None:
    text = markdown.comment(changed(slower, verdict=Verdict.INVALID))
    (row,) = (line for line in text.splitlines() if line.startswith("| Response time "))
    assert row.endswith("| not judged |")
    assert "+5.5 to" not in text.partition("- **critical**")[0]
    assert "1 more: 1 not judged." in text


def test_a_comment_is_short_whatever_changed(slower: Results) -> None:
    (test,) = slower.tests
    worse = {"status": Status.REGRESSION}
    named = [
        row.model_copy(update={**worse, "label": f"{row.label}|{i}\n`![x](y)` <img src=x>"})
        for i in range(20)
        for row in test.labels
    ]
    many = {"labels": named, "metrics": [row.model_copy(update=worse) for row in test.metrics] * 20}
    tests = [test.model_copy(update={"name": f"t{i}", "verdict": each, **many}) for i, each in enumerate(Verdict)]
    grave = slower.findings[0].model_copy(update={"test": "t0"})
    findings = [grave.model_copy(update={"id": f"{grave.id}.{i}", "text": f"{i}\n<b>{grave.text}"}) for i in range(40)]
    step = {"further": 2, "hours": 1.0, "found_percent": 5.0, "no_worse_than_percent": 5.0}
    row = {"slug": "x", "name": "X", "better": "lower", "margin_percent": 5.0, "decided_by": "level", "now_percent": 9}
    rows = [{**row, "status": Status.INCONCLUSIVE, "steps": [step, step]}] * 20
    plan = {"hours": 1.0, "runs": 2, "order": ["base", "new"], "rows": rows}
    plans = [TestPlan.model_validate({"test": each.name, **plan}) for each in tests]
    fields = {"tests": tests, "findings": findings, "suggestions": slower.suggestions * 3, "plan": plans}
    text = markdown.comment(slower.model_copy(update={**fields, "simulated": True}), "https://ci.example/1")
    assert 40 < len(text.splitlines()) <= MOST_LINES
    assert not re.search(r"(?<!\\)!\[|<img|<b>", text)
    assert sum(line.startswith("- **critical**") for line in text.splitlines()) == 5


def test_errors_and_regressions_of_valid_tests_count_beside_invalid_ones(slower: Results, faster: Results) -> None:
    assert "regression" in shortcomings(slower)
    assert not shortcomings(faster) & {"regression", "errors"}
    row = next(each for each in faster.tests[0].metrics if each.slug == "successful-requests")
    lost = row.model_copy(update={"status": Status.REGRESSION})
    assert "errors" in shortcomings(changed(faster, metrics=[lost]))
    invalid = faster.tests[0].model_copy(update={"name": "other", "verdict": Verdict.INVALID})
    both = slower.model_copy(update={"tests": [*slower.tests, invalid], "verdict": Verdict.INVALID})
    assert shortcomings(both) >= {"regression", "invalid"}


def main_branch(folder: Path, name: str, users: int) -> Path:
    """Runs of the base with another number of users."""
    (folder / name).mkdir()
    for file in (LOCUST / "base").iterdir():
        text = re.sub(r"(?m)^(\d{9,}),\d+,", rf"\1,{users},", file.read_text("utf-8"))
        (folder / name / file.name).write_text(text, "utf-8")
    return folder / name


def test_runs_of_the_main_branch_are_kept_and_compared_with(tmp_path: Path) -> None:
    """A pipeline keeps runs of the main branch, on two machines and at two loads; then comes a pull request."""
    kept = tmp_path / "kept"
    for name, users, options in (("one", 10, []), ("two", 10, ["--machine", "m"]), ("three", 40, [])):
        runs = main_branch(tmp_path, name, users)
        done = run("compare", runs, "--baseline", kept, "--keep", *options)
        assert (done.exit_code, done.stdout.count("\nKept: ")) == (0, 1)
    assert len([*kept.iterdir()]) == 3
    done = run("compare", LOCUST / "new", "--baseline", kept, "--new-name", "pr", "--fail-on", "regression")
    assert done.exit_code == 1
    (which,) = (line for line in done.stdout.splitlines() if line.startswith("Baseline: "))
    assert which.endswith("-one")
    assert "Base one, new pr." in done.output
    assert len([*kept.iterdir()]) == 3


def test_kept_numbers_are_sessions(tmp_path: Path) -> None:
    for day in range(4):
        summary = f"Running 6s test @ http://a/\n    Latency    2{day}.00ms\n  300 requests in 6.00s, 1MB read\n"
        (tmp_path / f"day{day}.txt").write_text(summary, "utf-8")
        files = ["--baseline", tmp_path / "kept", "--keep", "--json", tmp_path / "r"]
        assert run("compare", tmp_path / f"day{day}.txt", *files).exit_code == 0
    (test,) = Results.model_validate_json((tmp_path / "r").read_text("utf-8")).tests
    assert test.sessions is not None
    assert [name.rpartition("-")[2] for name in test.sessions.names.base] == ["day2", "day1", "day0"]


def test_runs_are_kept_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("buildcompare.comparison.baselines.shutil.copy2", full)
    said = refused("compare", LOCUST / "base", "--baseline", tmp_path / "kept", "--keep")
    assert "expected a folder that can be written, found No space left on device" in said
    assert [*(tmp_path / "kept").iterdir()] == []


@pytest.mark.parametrize(
    "arguments", [["a"], ["a", "b", "--baseline", "c"], ["a", "b", "--keep"], ["a", "--baseline", __file__]]
)
def test_what_is_compared_is_stated_once(arguments: list[str]) -> None:
    refused("compare", *arguments)


def test_a_folder_that_holds_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/about.json").write_text("{}", "utf-8")
    said = refused("compare", LOCUST / "new", "--baseline", tmp_path)
    assert "x/about.json: expected a baseline that `--keep` wrote, found KeyError: 'load'" in said
