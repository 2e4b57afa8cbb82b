"""An installed wheel works in an empty folder, and reads nothing of the checkout that it was built from."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.slow
PARTS = ("lib", "params", "notebooks", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
GUARD = """
import sys

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if arguments[0].startswith({project!r}) and not arguments[0].startswith({packages!r}):
            sys.stderr.write(f"GUARD {{event}} {{arguments[0]}}\\n")
            raise PermissionError(f"the checkout was read: {{arguments[0]}}")

sys.addaudithook(refuse)
"""
FRAMES = """
import sys
import numpy as np, pandas as pd
import buildcompare as bc

def run(seconds, seed):
    rng = np.random.default_rng(seed)
    elapsed = np.arange(0.0, 1800.0, 5.0)
    latency = seconds * rng.lognormal(0, 0.05, elapsed.size)
    return pd.DataFrame({"checkout_latency": latency, "rps": rng.normal(500, 5, elapsed.size)}, index=elapsed)

assert "site-packages" in bc.__file__, bc.__file__
result = bc.compare([run(0.010, i) for i in (1, 2)], [run(0.020, i) for i in (3, 4)])
assert result.verdict == "regression", result
assert bc.investigate(result, metric="checkout_latency").row.status == "regression"
print(result.to_html("page.html"))
"""


@pytest.fixture(scope="module")
def installed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    folder = tmp_path_factory.mktemp("wheel")
    source, working = folder / "source", folder / "working"
    source.mkdir()
    working.mkdir()
    for part in PARTS:
        if (project / part).is_dir():
            shutil.copytree(project / part, source / part, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy(project / part, source / part)
    for build in ("build_sdist", "build_wheel"):
        code = f"from setuptools import build_meta; build_meta.{build}({str(folder)!r})"
        subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, next(folder.glob("*.whl"))], check=True, capture_output=True)
    packages = sysconfig.get_path("purelib")
    # Its own .pth files, such as the checkout's, do not count.
    (site / "dependencies.pth").write_text(f"{packages}\n")
    guard = {"project": f"{project.resolve()}/", "packages": f"{project.resolve()}/.venv/"}
    (site / "sitecustomize.py").write_text(GUARD.format(**guard))
    shutil.rmtree(source)

    def run(*arguments: object, code: int = 0) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("BUILDCOMPARE", "PYTHON"))}
        script = arguments[:2] == ("-m", "buildcompare")  # the command that pip made of the entry point
        command = [*([python.with_name("buildcompare"), *arguments[2:]] if script else [python, *arguments])]
        done = subprocess.run([*map(str, command)], cwd=working, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "GUARD" not in done.stderr
        return done.stdout

    run.working, run.folder = working, folder  # type: ignore[attr-defined]
    return run


def table(file: Path, seconds: float, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    elapsed = np.arange(0.0, 1800.0, 5.0)
    frame = pd.DataFrame({"time": elapsed, "checkout_latency": seconds * rng.lognormal(0, 0.05, elapsed.size)})
    frame["Number of Connected Devices"] = np.minimum(elapsed * 4, 400)
    frame["Avg API times"] = frame["checkout_latency"]
    frame.to_csv(file, index=False)
    return file


def test_frames_are_compared_outside_of_the_checkout(installed: Callable[..., str]) -> None:
    page = Path(installed.working, installed("-c", FRAMES).strip())  # type: ignore[attr-defined]
    said = "Assumed from names: rps in requests/s, higher is better; checkout_latency in seconds, lower is better"
    assert said in page.read_text("utf-8")


def test_a_report_is_published_in_the_working_folder(installed: Callable[..., str]) -> None:
    working: Path = installed.working  # type: ignore[attr-defined]
    for name, seconds, seed in (("old", 0.010, 1), ("new", 0.020, 2)):
        table(working / f"{name}.csv", seconds, seed)
    text = (
        "base: {label: v1}\nnew: {label: v2}\nsource: {kind: recorded}\n"
        "tests: [{name: api, type: bounded, users: 400, base: {recording: old.csv}, new: {recording: new.csv}}]\n"
    )
    (working / "mine.yaml").write_text(text)
    installed("-m", "buildcompare", "report", "mine.yaml")
    results = json.loads((working / "reports/mine/results.json").read_text("utf-8"))
    assert results["verdict"] == "regression"
    assert "Regression: Avg API times" in (working / "reports/mine/report.html").read_text("utf-8")


def test_tables_are_compared_by_the_catalogue_that_knows_their_columns(installed: Callable[..., str]) -> None:
    working: Path = installed.working  # type: ignore[attr-defined]
    base, new = table(working / "base.csv", 0.010, 1), table(working / "new.csv", 0.020, 2)
    said = installed("-m", "buildcompare", "compare", base.name, new.name, "--json", "x.json")
    assert "Regression: Avg API times" in said
    results = json.loads((working / "x.json").read_text("utf-8"))
    assert results["provenance"]["catalogue"] == "mattermost"
    installed("-m", "buildcompare", "export", "x.json", "--openmetrics", "x.txt")
    installed("-m", "buildcompare", "init", base.name, new.name, "--output", "first.yaml")
    installed("-m", "buildcompare", "plan", "first.yaml")
    (working / "params/metrics").mkdir(parents=True)
    row = "{name: Avg API times, slug: avg-api-times, unit: seconds, better: higher, gate: true}"
    (working / "params/metrics/shop.yaml").write_text(
        f"metrics:\n  - {row}\n  - {{name: Checkout latency, slug: checkout-latency}}\n"
    )
    installed("-m", "buildcompare", "compare", base.name, new.name, "--metrics", "shop", "--json", "x.json")
    results = json.loads((working / "x.json").read_text("utf-8"))
    assert {row["slug"]: row["better"] for row in results["tests"][0]["metrics"]}["avg-api-times"] == "higher"


def test_the_source_distribution_holds_what_a_wheel_is_built_from(installed: Callable[..., str]) -> None:
    import tarfile

    with tarfile.open(next(installed.folder.glob("*.tar.gz"))) as archive:  # type: ignore[attr-defined]
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "params/metrics/http.yaml", "notebooks/comparison.ipynb"} <= names
