"""Programs for tests, from the registries of Go, Python and Maven: made once, and kept outside of the project."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

GO = "1.25.4"
"""What the go.mod of the newest of them asks for."""
GO_FETCHES_ITSELF = (1, 21)
"""The first Go that gets a newer one where a module asks for it."""
BUILD_S = 540
PLUGIN = "com.lazerycode.jmeter:jmeter-maven-plugin:3.6.1"
"""It brings JMeter 5.5."""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>jmeter</artifactId><version>1</version><packaging>pom</packaging></project>
"""


class _BuildError(Exception):
    """It could not be built; the message says why."""


def victoriametrics_program() -> Path:
    module, version = "github.com/VictoriaMetrics/VictoriaMetrics", "v1.130.0"
    said = f"-X {module}/lib/buildinfo.Version=victoria-metrics-{version}"
    return _program("victoria-metrics", module, version, f"{module}/app/victoria-metrics", ["-ldflags", said])


def statsd_exporter_program() -> Path:
    return _program("statsd_exporter", "github.com/prometheus/statsd_exporter", "v0.29.0")


def k6_program() -> Path:
    return _program("k6", "go.k6.io/k6", "v1.8.1")


def vegeta_program() -> Path:
    return _program("vegeta", "github.com/tsenart/vegeta/v12", "v12.13.0")


def locust_program() -> Path:
    def build(program: Path) -> None:
        _run([sys.executable, "-m", "venv", str(program.parents[1])], program.parent)
        _run([f"{program.parent}/python", "-m", "pip", "install", "--quiet", "locust==2.47.0"], program.parent)

    return _kept("locust-2.47.0/bin/locust", build)


def jmeter_program() -> Path:
    def build(program: Path) -> None:
        folder = program.parent
        (folder / "pom.xml").write_text(POM)
        _run(["mvn", "--quiet", "--batch-mode", f"{PLUGIN}:configure"], folder)
        (jar,) = folder.glob("target/*/jmeter/bin/ApacheJMeter-*.jar")
        program.write_text(f'#!/bin/sh\nexec java -jar "{jar}" "$@"\n')
        program.chmod(0o755)

    return _kept("jmeter-3.6.1/jmeter", build)


def _program(name: str, module: str, version: str, package: str = "", flags: list[str] | None = None) -> Path:
    def build(program: Path) -> None:
        go = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
        if go is None:
            raise _BuildError("no go on the PATH (Debian: the package golang-go)")
        with tempfile.TemporaryDirectory(dir=program.parent) as work:
            folder = Path(work)
            go = _new_enough(go, folder)
            # `go install MODULE@VERSION` refuses a module that replaces others, so it is required by one of our own.
            (folder / "go.mod").write_text(f"module build\n\ngo {GO}\n\nrequire {module} {version}\n")
            _run([go, "build", "-trimpath", "-o", str(folder / "built"), *(flags or []), package or module], folder)
            (folder / "built").replace(program)

    return _kept(f"{name}-{version}/{name}", build)


def _kept(name: str, build: Callable[[Path], None]) -> Path:
    cache = Path(os.environ.get("BUILDCOMPARE_CACHE") or Path.home() / ".cache/buildcompare")
    program = cache / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with (program.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
            for tries_left in (2, 1, 0):  # a registry may fail for a moment
                try:
                    if not program.exists():
                        build(program)
                except _BuildError as error:
                    if not tries_left:
                        pytest.skip(f"{name} could not be made: {error}")
    return program


def _new_enough(go: str, folder: Path) -> str:
    found = re.search(r"go(\d+)\.(\d+)", _run([go, "version"], folder))
    if found is None or (int(found[1]), int(found[2])) >= GO_FETCHES_ITSELF:
        return go
    target = _run([go, "env", "GOOS", "GOARCH"], folder).split()
    (folder / "go.mod").write_text("module fetch\n\ngo 1.19\n")
    wanted = f"golang.org/toolchain@v0.0.1-go{GO}.{target[0]}-{target[1]}"
    fetched = Path(json.loads(_run([go, "mod", "download", "-json", wanted], folder))["Dir"])
    tree = folder / "go"
    shutil.copytree(fetched, tree)  # what Go's own switch would do: a module cannot hold these names and modes
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755)
    for path in list(tree.rglob("_go.mod")):
        path.rename(path.with_name("go.mod"))
    return str(tree / "bin/go")


def _run(command: list[str], folder: Path) -> str:
    environment = {
        **os.environ, "GOTOOLCHAIN": "auto", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0",
    }  # fmt: skip
    environment.pop("GOROOT", None)
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=BUILD_S
        )
    except subprocess.CalledProcessError as error:
        raise _BuildError((error.stderr.strip().splitlines() or ["no reason given"])[-1]) from None
    except subprocess.TimeoutExpired:
        raise _BuildError(f"{command[1]} took more than {BUILD_S} s") from None
    except FileNotFoundError:
        raise _BuildError(f"no {command[0]} on the PATH") from None
    return done.stdout
