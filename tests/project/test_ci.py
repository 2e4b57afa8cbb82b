"""The workflows of docs/ci.md, played by a runner: commands, exit codes, step summary, one comment that is updated."""

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
from typing import Any, get_args
from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

from buildcompare import __main__ as command_line
from buildcompare.results.codes import FailOn
from serving import Answer, serving
from support import users_curve, yaml_data

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
    """A server of comments, as GitHub and GitLab answer about them: another's stands there first."""

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
    """Three runs of each build: alike, the new one twice as slow, with errors, or the same files twice."""
    users = users_curve(1000.0, ramp_s=600.0, hold_s=2400.0)
    for i, build in enumerate(("base", "new")):
        (folder / build).mkdir(parents=True)
        for run in range(3):
            rng = np.random.default_rng(run if case == "invalid" else 10 * i + run)
            slow, failed = (2.0 if case == "regression" and i else 1.0), (5.0 if case == "errors" and i else 0.0)
            values = {
                "Users": users,
                "Response time": 0.01 * slow * rng.lognormal(0, 0.02) * rng.lognormal(0, 0.05, users.size),
                "Failed requests": failed * rng.lognormal(0, 0.05, users.size),
            }
            table = pd.DataFrame(values, 1733911200 + 5 * np.arange(users.size))
            table.to_csv(folder / build / f"run-{run}.csv", index_label="Time")


@dataclass
class Runner:
    """The machine of a build server, with a checkout in `folder`."""

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
        """The shell scripts of the workflow, whether each runs after a failure, and its variables."""
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
        """Run the workflow on a fresh checkout whose load tests end as `case`; returns the first exit code but 0."""
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
    assert set(codes) == {*get_args(FailOn)}


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
