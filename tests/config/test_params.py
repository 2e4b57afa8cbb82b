"""A params file is right, or one message says file, key, what was expected and what was found."""

import re
from pathlib import Path

import numpy as np
import pytest

import fuzzing
from buildcompare.comparison.analysis import read_recordings
from buildcompare.config.errors import InputError
from buildcompare.config.params import FILE_KEYS, Comparison, Run, Test, read_params
from support import write_csv

EXAMPLE = fuzzing.seed("params-design").decode()

BAD = [
    # what stands in the file, what to put there, key, expected, found; docs/input-faults.md has more
    ("users: 20000", "users: -1", "tests[0].users", "greater than 0", "-1"),
    ("type: bounded", "type: bound", "tests[1].type", "'bounded', 'unbounded' or 'benchmark'", "'bound'"),
    ("[{report: runs/base-1.out.gz}", "[{reprt: x}", "tests[1].base[0].reprt", "report, recording", "reprt"),
    ("name: mysql_bounded", "name: POSTGRESQL_unbounded", "tests", "a different `name`", "twice"),
    ("Users: 7500", "Users: 7.50", "setup.Users", "text", "7.50, which YAML reads as 7.5"),
    ("comments: []", "comments: hello", "comments", "a list", "'hello'"),
    ("comments: []", "comments: [yes]", "comments[0]", "text", "'yes', which YAML reads as True"),
    ('kind: prometheus, url: "http://localhost:9090"', "kind: prometheus", "source", "`url`", "no `url`"),
    ("rest_s: 2", 'rest_s: "2"', "coordinator.rest_s", "a number", "'2'"),
    ("rest_s: 2", "rest: 2", "coordinator.rest", "users_inc, users_dec, rest_s", "unknown key"),
    ("{report: runs/new-1.out.gz}", "{}", "tests[1].new[0]", "`report`, `recording`", "none of them"),
    ("8, rest_s", "true, rest_s", "coordinator.users_dec", "a whole number", "True"),
]


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXAMPLE)
    params = read_params(file)
    assert params.name == "v10.4.0-rc1"
    assert [test.name for test in params.tests] == ["postgresql_unbounded", "mysql_bounded"]
    window = params.tests[0].base[0].window
    assert (window[1] - window[0]).total_seconds() == 113 * 60
    assert [run.report for run in params.tests[1].base] == ["runs/base-1.out.gz", "runs/base-2.out.gz"]
    assert list(params.setup.items())[1] == ("Users", "7500")
    assert params.coordinator.fastest_fall == 4.0
    file.write_text(EXAMPLE.replace("name: v10.4.0-rc1\n", "", 1))
    assert read_params(file).name == "x", "without a name the file names the comparison"


def test_empty_optional_keys_mean_none(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(re.sub(r"(?m)^(comments|action_items|coordinator):.*$", r"\1:", EXAMPLE))
    params = read_params(file)
    assert (params.comments, params.action_items, params.coordinator.users_inc) == ([], [], 8)
    file.write_text("- a\n- b\n")
    with pytest.raises(InputError, match="expected a mapping of keys to values, found a list"):
        read_params(file)


@pytest.mark.parametrize(("there", "instead", "key", "expected", "found"), BAD, ids=[bad[1][:40] for bad in BAD])
def test_a_fault_is_named(tmp_path: Path, there: str, instead: str, key: str, expected: str, found: str) -> None:
    assert there in EXAMPLE
    (tmp_path / "x.yaml").write_text(EXAMPLE.replace(there, instead, 1))
    said = rf"x\.yaml: .*{re.escape(key)}.*: expected .*{re.escape(expected)}.*, found .*{re.escape(found)}"
    with pytest.raises(InputError, match=said):
        read_params(tmp_path / "x.yaml")


def test_the_template_is_right_once_its_two_paths_are(project: Path, tmp_path: Path) -> None:
    template = (project / "docs/template.yaml").read_text("utf-8")
    file = tmp_path / "v1.1.0.yaml"
    for side in ("base", "new"):
        template = template.replace(f"runs/{side}.csv", str(tmp_path / f"{side}.csv"))
        write_csv(tmp_path / f"{side}.csv", {"rps": np.linspace(9.0, 10.0, 99)})
    file.write_text(template, "utf-8")
    params = read_params(file)
    assert (params.name, params.comments, params.setup, params.history) == ("v1.1.0", [], {}, None)
    assert [len(runs) for runs in read_recordings(params)["postgresql_bounded"].values()] == [1, 1]


def test_the_template_shows_every_key(project: Path, tmp_path: Path) -> None:
    """Those that may stay away, too: without their `#` they are right."""
    file = tmp_path / "all.yaml"
    template = (project / "docs/template.yaml").read_text("utf-8")
    file.write_text(re.sub(r"(?m)^( *)# (?=[a-z_]+: )", r"\1", template), "utf-8")
    params = read_params(file)
    assert params.model_fields_set == set(Comparison.model_fields)
    assert params.tests[0].model_fields_set == set(Test.model_fields)
    elsewhere = {*FILE_KEYS.values(), "values", "session", "url"}  # other files, benchmarks; a server of its own
    assert params.tests[0].base[0].model_fields_set == set(Run.model_fields) - (elsewhere - {"recording"})
    assert len(template.splitlines()) < 40
