"""What a build pipeline gets, and the workflows of docs/ci.md, played by a runner with comments and exit codes."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import buildcompare as bc
from buildcompare import __main__ as command_line
from buildcompare.findings.verdict import shortcomings
from buildcompare.report import junit, markdown
from buildcompare.results import Results
from serving import Answer, serving
from support import command as run
from support import refused, users_curve, yaml_data

PAGE = Path(__file__).resolve().parents[2] / "docs/ci.md"
_TEXTS = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
BLOCKS = dict(zip(("github", "gitlab", "jenkins"), _TEXTS, strict=True))
MOST_LINES = 25
COMPARE = re.compile(r"python -m buildcompare (.*?) --link \"\S+\" --fail-on ([\w,]+)")
MARK = "<!-- buildcompare -->"

VARIABLES = {
    "github": """GITHUB_SERVER_URL=https://github.com GITHUB_REPOSITORY=shop/shop GITHUB_RUN_ID=5
        GITHUB_STEP_SUMMARY={folder}/summary.md""",
    "gitlab": """CI_API_V4_URL={forge} CI_PROJECT_ID=3 CI_MERGE_REQUEST_IID=7
        CI_JOB_URL=https://gitlab.com/shop/shop/-/jobs/5 COMMENT_TOKEN=secret""",
    "jenkins": """BUILD_URL=https://ci.example/job/shop/5/ CHANGE_ID=7
        CHANGE_URL=https://github.com/shop/shop/pull/7 TOKEN=secret""",
}
"""What each server sets for a pull request."""
GH = '''#!{python}
"""What the workflow uses of GitHub's command line: reading comments with --jq, and sending a field from a file."""
import json, os, subprocess, sys, urllib.request

assert os.environ["GH_TOKEN"] == "secret" and sys.argv[1] == "api", sys.argv
words, path, method, query, data = sys.argv[2:], "", "", "", None
while words:
    word = words.pop(0)
    if word == "-X":
        method = words.pop(0)
    elif word == "--jq":
        query = words.pop(0)
    elif word == "-F":
        name, _, file = words.pop(0).partition("=@")
        data = json.dumps({{name: open(file, encoding="utf-8").read()}}).encode()
    elif word != "--paginate":
        path = word
asked = urllib.request.Request("{server}/" + path, data, method=method or None)
answer = urllib.request.urlopen(asked).read()
print(subprocess.run(["jq", query or ".", "-r"], input=answer, capture_output=True, check=True).stdout.decode(), end="")
'''


@dataclass
class Forge:
    address: str = ""
    bodies: dict[int, str] = field(default_factory=lambda: {1: "Please have a look"})


@pytest.fixture
def forge() -> Iterator[Forge]:
    if missing := [name for name in ("curl", "jq") if not shutil.which(name)]:
        pytest.skip(f"{missing[0]} is not on the PATH")
    made = Forge()

    def answer(value: object) -> Answer:
        return 200, {}, json.dumps(value).encode()

    def listed(path: str, asked: dict[str, list[str]]) -> Answer:
        assert re.search(r"/(issues|merge_requests)/7/(comments|notes)$", path), path
        assert asked in ({}, {"per_page": ["100"]})
        return answer([{"id": i, "body": body} for i, body in made.bodies.items()])

    def put(method: str, path: str, body: bytes) -> Answer:
        places = {"POST": r"/(issues|merge_requests)/7/(comments|notes)()$"}
        found = re.search(places.get(method, r"/(issues/comments|merge_requests/7/notes)/()(\d+)$"), path)
        assert found, path
        at, sent = int(found[3] or max(made.bodies) + 1), body.decode()
        made.bodies[at] = json.loads(sent)["body"] if sent.startswith("{") else parse_qs(sent)["body"][0]
        return answer({"id": at})

    with serving(listed, put) as made.address:
        yield made


def write_runs(folder: Path, case: str) -> None:
    users = users_curve(1000.0, ramp_s=600.0, hold_s=2400.0)
    for i, build in enumerate(("base", "new")):
        (folder / build).mkdir(parents=True)
        for number in range(3):
            rng = np.random.default_rng(number if case == "invalid" else 10 * i + number)
            slow, failed = (2.0 if case == "regression" and i else 1.0), (5.0 if case == "errors" and i else 0.0)
            values = {
                "Users": users,
                "Response time": 0.01 * slow * rng.lognormal(0, 0.02) * rng.lognormal(0, 0.05, users.size),
                "Failed requests": failed * rng.lognormal(0, 0.05, users.size),
            }
            table = pd.DataFrame(values, 1733911200 + 5 * np.arange(users.size))
            table.to_csv(folder / build / f"run-{number}.csv", index_label="Time")


@dataclass
class Runner:
    name: str
    folder: Path
    forge: Forge

    def __post_init__(self) -> None:
        self.bin = self.folder / ".bin"
        self.bin.mkdir(parents=True)
        self.program("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.program("gh", GH.format(python=sys.executable, server=self.forge.address))
        for name in ("pip", "apt-get"):
            self.program(name, "#!/bin/sh\n")

    def program(self, name: str, text: str) -> None:
        file = self.bin / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    @property
    def environment(self) -> dict[str, str]:
        of_server = VARIABLES[self.name].format(folder=self.folder, forge=self.forge.address)
        named = dict(each.split("=", 1) for each in of_server.split())
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **named}

    def steps(self) -> list[tuple[str, bool, dict[str, str]]]:
        text = BLOCKS[self.name].replace("https://api.github.com", self.forge.address)
        if self.name == "jenkins":
            scripts = re.finditer(r"sh (?:'''(.*?)'''|'(.*?)')", text, re.S)
            return [(each[1] or each[2], each.start() > text.index("post {"), {}) for each in scripts]
        if self.name == "gitlab":
            (job,) = yaml_data(text).values()
            run, after = job["before_script"] + job["script"], job["after_script"]
            return [("\n".join(run), False, {}), ("\n".join(after), True, {})]
        text = text.replace("${{ github.token }}", "secret").replace("${{ github.event.number }}", "7")
        (job,) = yaml_data(text)["jobs"].values()
        steps = (each for each in job["steps"] if "run" in each)
        return [(each["run"], each.get("if") == "always()", each.get("env", {})) for each in steps]

    def play(self, case: str) -> int:
        for left in ("runs", "comment.md", "junit.xml", "report.html", "summary.md"):
            shutil.rmtree(self.folder / left, ignore_errors=True)
            (self.folder / left).unlink(missing_ok=True)
        write_runs(self.folder / "made", case)
        self.program("../load-test.sh", "#!/bin/sh\nmv made runs\n")
        code = 0
        for script, always, variables in self.steps():
            if not code or always:
                known = {**self.environment, **variables}
                done = subprocess.run(
                    ["bash", "-e", "-c", script], cwd=self.folder, env=known, capture_output=True, check=False
                )
                assert not (always and done.returncode), done.stderr.decode()
                code = code or done.returncode
        return code


@pytest.mark.parametrize("name", BLOCKS)
def test_a_workflow_is_short_and_its_comparison_is_that_of_the_others(name: str) -> None:
    assert len(BLOCKS[name].splitlines()) <= MOST_LINES
    found = [COMPARE.search(" ".join(text.replace("\\\n", " ").split())) for text in BLOCKS.values()]
    assert len({(each[1], each[2]) for each in found if each}) == 1
    assert all(found)


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text("utf-8")
    commands: dict[str, Any] = get_command(command_line.app).commands  # type: ignore[attr-defined]
    named = set(re.findall(r"`(--[\w-]+)", text)) | {"--html"}
    options = {
        name: {option for each in commands[name].params for option in each.opts} for name in ("compare", "report")
    }
    assert named <= options["compare"]
    assert {"--markdown", "--junit", "--link", "--fail-on"} <= named & options["report"]
    codes = dict(re.findall(r"^\| `(\w+)` \| (\d) \|", text, re.M))
    assert codes == {"regression": "1", "errors": "1", "invalid": "2", "inconclusive": "2"}
    assert f"expected words of {', '.join(codes)}, separated" in run("compare", "a", "b", "--fail-on", "all").stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_gate_closes_and_one_comment_is_updated(name: str, forge: Forge, tmp_path: Path) -> None:
    runner = Runner(name, tmp_path, forge)
    assert (runner.play("regression"), forge.bodies[1]) == (1, "Please have a look")
    assert "Regression: Response time +" in forge.bodies[2]
    assert "](https://" in forge.bodies[2]
    assert (runner.play("pass"), set(forge.bodies)) == (0, {1, 2})
    assert forge.bodies[2].startswith(f"{MARK}\n**✓ Pass")
    assert forge.bodies[2].strip() == (tmp_path / "comment.md").read_text("utf-8").strip()
    assert (tmp_path / "report.html").exists()
    assert "<testsuite " in (tmp_path / "junit.xml").read_text("utf-8")
    if name == "github":
        assert (tmp_path / "summary.md").read_text("utf-8").strip() == forge.bodies[2].strip()


@pytest.mark.slow
@pytest.mark.parametrize(("case", "code", "said"), [("invalid", 2, "⊘ Invalid test"), ("errors", 1, "Failed requests")])
def test_invalid_tests_and_errors_close_the_gate(case: str, code: int, said: str, forge: Forge, tmp_path: Path) -> None:
    assert Runner("github", tmp_path, forge).play(case) == code
    assert said in forge.bodies[2]


@pytest.mark.slow
def test_a_comparison_that_did_not_run_leaves_the_comments_as_they_are(forge: Forge, tmp_path: Path) -> None:
    runner = Runner("gitlab", tmp_path, forge)
    runner.program("pip", "#!/bin/sh\nexit 9\n")
    assert (runner.play("pass"), set(forge.bodies)) == (9, {1})


LOCUST = Path(__file__).parents[1] / "load_tools/locust"
MOST_OF_COMMENT = 60


@pytest.fixture(scope="module")
def slower() -> Results:
    return bc.compare(LOCUST / "base", LOCUST / "new").results


@pytest.fixture(scope="module")
def faster() -> Results:
    return bc.compare(LOCUST / "new", LOCUST / "base").results


def changed(results: Results, **fields: Any) -> Results:
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
    said = run("compare", LOCUST / "base", LOCUST / "new", COLUMNS="120").stdout.partition("\n\n")[0].splitlines()
    assert said[1].startswith("✗ Regression: Response time +11.9 %")
    assert lines[1] == f"**{said[1]}** {' '.join(said[2:])}"
    rows = {cells[1]: cells[2:] for line in lines if len(cells := [each.strip() for each in line.split("|")]) > 7}
    assert rows["Response time"][1:5] == ["36.6 ms", "+11.9 %", "+5.7 to +18.4 %", "✗ regression"]
    assert list(rows)[2:5] == ["Response time", "P50 response time", "P95 response time"]  # changes first
    assert f"- **critical**: {slower.findings[0].text}" in lines
    assert all(f"- {each.text}" in lines for each in slower.suggestions)
    assert "report is" not in "".join(lines)  # no address


def test_changed_labels_stand_in_the_comment_once_each(slower: Results) -> None:
    worse = {("GET /search", "avg"), ("GET /search", "p99"), ("GET /cart", "p95")}
    labels = [
        row.model_copy(update={"status": bc.Status.REGRESSION}) if (row.label, row.stat) in worse else row
        for row in slower.tests[0].labels
    ]
    text = markdown.comment(changed(slower, labels=labels))
    rows = [[each.strip() for each in line.split("|")][1:-1] for line in text.splitlines() if "| GET " in line]
    assert [row[:2] for row in rows] == [["GET /search", "avg"], ["GET /cart", "p95"]]
    assert rows[0][4:] == ["+24.2 %", "+18.7 to +30.0 %", "✗ slower"]


def test_an_invalid_test_has_numbers_but_no_judgement(slower: Results) -> None:
    text = markdown.comment(changed(slower, verdict=bc.Verdict.INVALID))
    (row,) = (line for line in text.splitlines() if line.startswith("| Response time "))
    assert row.endswith("| not judged |")
    assert "+5.5 to" not in text.partition("- **critical**")[0]
    assert "1 more metric: 1 not judged." in text


def test_a_comment_is_short_whatever_changed(slower: Results) -> None:
    (test,) = slower.tests
    worse = {"status": bc.Status.REGRESSION}
    named = [
        row.model_copy(update={**worse, "label": f"{row.label}|{i}\n`![x](y)` <img src=x>"})
        for i in range(20)
        for row in test.labels
    ]
    many = {"labels": named, "metrics": [row.model_copy(update=worse) for row in test.metrics] * 20}
    tests = [test.model_copy(update={"name": f"t{i}", "verdict": each, **many}) for i, each in enumerate(bc.Verdict)]
    grave = slower.findings[0].model_copy(update={"test": "t0"})
    findings = [grave.model_copy(update={"id": f"{grave.id}.{i}", "text": f"{i}\n<b>{grave.text}"}) for i in range(40)]
    (plan,), row = slower.plan, slower.plan[0].rows[0]
    open_ = row.model_copy(update={"status": bc.Status.INCONCLUSIVE, "steps": 2 * row.steps})
    plans = [plan.model_copy(update={"test": each.name, "rows": 20 * [open_]}) for each in tests]
    fields = {"tests": tests, "findings": findings, "suggestions": slower.suggestions * 3, "plan": plans}
    text = markdown.comment(slower.model_copy(update={**fields, "simulated": True}), "https://ci.example/1")
    assert 40 < len(text.splitlines()) <= MOST_OF_COMMENT
    assert not re.search(r"(?<!\\)!\[|<img|<b>", text)
    assert sum(line.startswith("- **critical**") for line in text.splitlines()) == 5


def test_errors_and_regressions_of_valid_tests_count_beside_invalid_ones(slower: Results, faster: Results) -> None:
    assert "regression" in shortcomings(slower)
    assert not shortcomings(faster) & {"regression", "errors"}
    row = next(each for each in faster.tests[0].metrics if each.slug == "successful-requests")
    lost = row.model_copy(update={"status": bc.Status.REGRESSION})
    assert "errors" in shortcomings(changed(faster, metrics=[lost]))
    invalid = faster.tests[0].model_copy(update={"name": "other", "verdict": bc.Verdict.INVALID})
    both = slower.model_copy(update={"tests": [*slower.tests, invalid], "verdict": bc.Verdict.INVALID})
    assert shortcomings(both) >= {"regression", "invalid"}


def main_branch(folder: Path, name: str, users: int) -> Path:
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
