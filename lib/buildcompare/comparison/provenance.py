"""Where results come from: parameters, inputs, command, commit and package versions."""

import datetime as dt
import functools
import hashlib
import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from buildcompare import results as schema
from buildcompare.config.project import commit, root


def provenance(
    params: BaseModel,
    catalogue: str,
    inputs: list[schema.InputProvenance],
    command: str | None,
    copied: Sequence[tuple[schema.ArtefactProvenance, object]] = (),
) -> schema.Provenance:
    """Where results come from; equal parameters give one hash, whether from a file, papermill or a cell."""
    dumped = params.model_dump(mode="json")
    asked = json.dumps(dumped, sort_keys=True, ensure_ascii=False)
    return schema.Provenance(
        params_sha256=hashlib.sha256(asked.encode()).hexdigest(),
        catalogue=catalogue,
        inputs=inputs,
        artefacts=[row for row, _ in copied],
        run=_this_run(command or f"python -m buildcompare report params/{dumped['name']}.yaml"),
    )


def _this_run(command: str) -> dict[str, Any]:
    """The facts that differ between two runs on the same inputs."""
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"created": created, "command": command, **running_code(root())}


@functools.cache
def running_code(project: Path) -> dict[str, Any]:
    """The commit and package versions of the running code, as they were at import."""
    packages = ("buildcompare", "numpy", "pandas", "scipy", "statsmodels")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}
    return {"git_commit": commit(project), "versions": versions}
