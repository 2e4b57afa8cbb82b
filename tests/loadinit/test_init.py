"""`init` says what two inputs hold, and writes a params file and a catalogue that give the verdict of `compare`."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.results import Results
from loadinit.files import draft_of_files, write_draft
from support import command as run
from support import refused

TOOLS = Path(__file__).parents[1] / "load_tools"
BUNDLED = "data/recordings/v10.4.0-rc1/mysql_bounded"


def table(file: Path, level: float, seed: int, **columns: object) -> None:
    """Fifteen minutes with a load, one time that is assumed from its name, and names that YAML could misread."""
    rng, elapsed = np.random.default_rng(seed), np.arange(0.0, 900.0, 5.0)
    values = {
        "time": 1.7e9 + elapsed,
        "vus": np.minimum(elapsed, 200.0),
        "checkout_ms": level * rng.lognormal(0, 0.02, elapsed.size),
        'odd: "x" # {%y%}': rng.normal(5, 0.1, elapsed.size),
        "yes": 1.0 + elapsed,
        "größe": 2.0 + elapsed,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({**values, **columns}).to_csv(file, index=False)


@pytest.fixture
def builds(tmp_path: Path) -> tuple[Path, Path]:
    for side, level in (("v1", 40.0), ("v2", 52.0)):
        for i in (1, 2, 3):
            table(tmp_path / side / f"run{i}.csv", level, i if side == "v1" else i + 3)
    return tmp_path / "v1", tmp_path / "v2"


def described(results: Results) -> Iterator[tuple[object, ...]]:
    """Everything that is decided, apart from the finding on what was assumed, which the written file states."""
    yield results.verdict, results.base.label, results.new.label
    for test in results.tests:
        yield from ((row.slug, row.unit, row.delta_percent, row.status) for row in test.metrics)
        yield from ((row.label, row.stat, row.delta_percent, row.status) for row in test.labels)
    yield from ((each.kind, each.text) for each in results.findings if each.kind != "assumed")


INPUTS = {
    "k6": (TOOLS / "k6.csv.gz", TOOLS / "k6.json.gz"),
    "jmeter": (TOOLS / "jmeter.jtl.gz", TOOLS / "jmeter.jtl.gz"),
    "vegeta": (TOOLS / "vegeta.csv.gz", TOOLS / "vegeta.csv.gz"),
    "summary": (TOOLS / "k6-summary.json", TOOLS / "k6-summary.json"),
    "locust": (TOOLS / "locust/base", TOOLS / "locust/new"),
    "mattermost": (f"{BUNDLED}/base.parquet", f"{BUNDLED}/new.parquet"),
}


@pytest.mark.parametrize("name", [*INPUTS, "tables"])
def test_the_written_files_give_what_compare_gives(name: str, tmp_path: Path, builds: tuple[Path, Path]) -> None:
    base, new = map(str, INPUTS.get(name, builds))
    params = tmp_path / "params/x.yaml"
    write_draft(draft_of_files(base, new), params, command="init", force=False)
    written = bc.read_params(params)
    assert written.metrics == str(tmp_path / "params/metrics/x.yaml")
    assert read_catalogue(written.metrics).metrics
    assert [*described(bc.compare(written).results)] == [*described(bc.compare(base, new).results)]


def test_it_prints_what_it_recognised_and_what_it_did_not(builds: tuple[Path, Path], tmp_path: Path) -> None:
    base, new = builds
    table(new / "run3.csv", 52.0, 6, empty=np.nan)
    for other in ("run1.csv", "run2.csv"):
        table(new / other, 52.0, 7, empty=np.nan)
    (base / "notes.md").write_text("of no interest")
    (base / "sub").mkdir()
    done = run("init", base, new, "--output", tmp_path / "x.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{base} (base): 3 runs (tables of samples), 15 min each.\n" in done.stdout
    assert "  checkout_ms: ms, lower is better, fails the comparison (assumed from its name)\n" in done.stdout
    assert "Load: vus, up to 200 users.\n  base: steady from 260 s to 895 s.\n" in done.stdout
    unused = [f"{base}/notes.md: no ending of a recording", f"{base}/sub: a folder", "empty: a column without a number"]
    comments = (tmp_path / "x.yaml").read_text("utf-8")
    for each in unused:
        assert f"  {each}" in done.stdout
        assert f"#   {each}" in comments
    assert f"Next: python -m buildcompare report {tmp_path}/x.yaml\n" in done.stdout


def test_endpoints_and_the_catalogue_of_load_testers_are_said(tmp_path: Path) -> None:
    shutil.copytree(TOOLS / "locust/base", tmp_path / "base")
    (tmp_path / "base/run1_failures.csv").touch()  # Locust always writes it
    said = run("init", tmp_path / "base", TOOLS / "locust/new", "--output", tmp_path / "x.yaml").stdout
    assert "Not used" not in said
    assert "(base): 3 runs (locust), 59 s each.\n" in said
    assert "Metrics, by the catalogue http:\n" in said
    assert "Rows by endpoint (4): GET /cart, GET /items/[id], GET /search, POST /login.\n" in said


def test_files_that_exist_are_said_and_kept_without_force(builds: tuple[Path, Path], tmp_path: Path) -> None:
    params, catalogue = tmp_path / "x.yaml", tmp_path / "metrics/x.yaml"
    arguments = ("init", *builds, "--output", params)
    assert run(*arguments).exit_code == 0
    kept = params.read_bytes()
    expected = "expected no file, or --force to overwrite it, found one of"
    assert refused(*arguments) == f"buildcompare: {params}: {expected} {len(kept):,} bytes\n"
    params.unlink()
    catalogue.write_text("somebody's")
    assert f"{catalogue}: {expected} 10" in refused(*arguments)
    assert not params.exists()
    assert (run(*arguments, "--force").exit_code, params.read_bytes()) == (0, kept)


def test_the_default_name_is_the_new_build(
    builds: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "params/metrics", project / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(project))
    done = run("init", *builds)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"Next: python -m buildcompare report {project / 'params/v2.yaml'}\n")
    monkeypatch.chdir(project)
    assert run("init", *builds, "--force").stdout.endswith("Next: python -m buildcompare report params/v2.yaml\n")
    written = bc.read_params(project / "params/v2.yaml")
    assert (written.metrics, bc.compare(written).verdict) == ("v2", "regression")


@pytest.mark.parametrize("contents", [
    None, b"", b"hello\nworld\n", b"a,b\n1,2\n", b'{"a": 1}', b"\x1f\x8b\x08\x00abc", b"PAR1" + bytes(40),
    b'{"benchmarks": [{"runs": [{"values": ["x"]}]}]}',
])  # fmt: skip
def test_a_file_of_nobody_gives_one_line_and_writes_nothing(contents: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "x"
    if contents is not None:
        file.write_bytes(contents)
    said = refused("init", file, file, "--output", tmp_path / "params/x.yaml")
    assert re.fullmatch(rf"buildcompare: {file}: .*expected .+, found .+\n", said)
    assert not (tmp_path / "params").exists()


def test_parts_of_one_run_and_foreign_names_of_files_are_refused(builds: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        table(tmp_path / f"parts/{name}.csv", 1.0, 1)
        frame = pd.read_csv(tmp_path / f"parts/{name}.csv")[["time", "vus"]]
        frame.rename(columns={"vus": name}).to_csv(tmp_path / f"parts/{name}.csv", index=False)
    said = refused("init", tmp_path / "parts", tmp_path / "parts", "--output", tmp_path / "x.yaml")
    assert re.search("expected one file for each run.*, found 2 files that are parts of one run", said)
    assert "--output: expected a file such as params/NAME.yaml" in refused("init", *builds, "--output", "x.txt")
