"""Programs in Go for tests: built once through the Go module proxy, and kept outside of the project."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

GO = "1.25.4"
"""What the go.mod of the newest of them asks for."""
GO_FETCHES_ITSELF = (1, 21)
"""The first Go that gets a newer one where a module asks for it."""
BUILD_S = 540


class _BuildError(Exception):
    """It could not be built; the message says why."""


def victoriametrics_program() -> Path:
    """A server that stores series and answers Prometheus's queries."""
    module, version = "github.com/VictoriaMetrics/VictoriaMetrics", "v1.130.0"
    said = f"-X {module}/lib/buildinfo.Version=victoria-metrics-{version}"
    return _program("victoria-metrics", module, version, f"{module}/app/victoria-metrics", ["-ldflags", said])


def statsd_exporter_program() -> Path:
    """A statsd that shows what it received to a Prometheus."""
    module = "github.com/prometheus/statsd_exporter"
    return _program("statsd_exporter", module, "v0.29.0", module)


def _program(name: str, module: str, version: str, package: str, flags: list[str] | None = None) -> Path:
    """A program, built where it is not kept yet; tests are skipped where that does not work."""
    go = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    cache = Path(os.environ.get("BUILDCOMPARE_CACHE") or Path.home() / ".cache/buildcompare")
    program = cache / f"{name}-{version}" / name
    if not program.exists():
        if go is None:
            pytest.skip(f"{name}: no go on the PATH to build it with (Debian: the package golang-go)")
        program.parent.mkdir(parents=True, exist_ok=True)
        with (program.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
            try:
                if not program.exists():
                    _build(go, program, f"{module} {version}", [*(flags or []), package])
            except _BuildError as error:
                pytest.skip(f"{name} {version} could not be built: {error}")
    return program


def _build(go: str, program: Path, required: str, arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as name:
        folder = Path(name)
        go = _new_enough(go, folder)
        # `go install MODULE@VERSION` refuses a module that replaces others, so it is required by one of our own.
        (folder / "go.mod").write_text(f"module build\n\ngo {GO}\n\nrequire {required}\n")
        _run([go, "build", "-trimpath", "-o", str(folder / "built"), *arguments], folder)
        (folder / "built").replace(program)


def _new_enough(go: str, folder: Path) -> str:
    """`go`, or for one that is too old to fetch a newer Go itself (Debian 12's), the newer one's program."""
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
    return done.stdout
