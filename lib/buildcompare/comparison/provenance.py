"""Where results come from: parameters, inputs, command, commit and package versions."""

import datetime as dt
import functools
import hashlib
import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel

from buildcompare import results as schema
from buildcompare.config.params import Reported
from buildcompare.config.project import commit, root


def provenance(
    params: Reported,
    catalogue: str,
    inputs: list[schema.InputProvenance],
    command: str | None,
    copied: Sequence[tuple[schema.ArtefactProvenance, object]] = (),
) -> schema.Provenance:
    """Return where results come from; `copied` lists the runs' artefacts that the report copies."""
    return schema.Provenance(
        params_sha256=params_sha256(params),
        catalogue=catalogue,
        inputs=inputs,
        artefacts=[row for row, _ in copied],
        run={
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "command": command or (f"python -m buildcompare report params/{params.name}.yaml" if params.name else ""),
            **running_code(root()),
        },
    )


def params_sha256(params: BaseModel) -> str:
    """Hash the parameters. The hash depends only on their values, not on the file or notebook that they come from."""
    text = json.dumps(params.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def running_code(project: Path) -> dict[str, str | dict[str, str] | None]:
    """Return the commit and package versions of the running code, as they were at the first call."""
    packages = ("buildcompare", "numpy", "pandas", "scipy", "statsmodels")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}
    return {"git_commit": commit(project), "versions": versions}
