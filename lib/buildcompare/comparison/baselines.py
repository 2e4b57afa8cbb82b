"""Keep runs of the main branch in a folder, and find the kept runs that a new build is compared with."""

import datetime as dt
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buildcompare.config.errors import InputError
from buildcompare.config.project import own_folder, writing
from buildcompare.recordings.recording import Recording

MOST = 5
"""Maximum number of folders with kept runs that together form the base of a comparison."""
ALIKE = 0.05
"""Maximum relative difference between the loads of comparable runs."""
_ABOUT, _RUNS = "about.json", "runs"
Stated = Mapping[str, str | int | None]
"""Facts that comparable runs share: test, machine, type and users."""


class KeptRuns(NamedTuple):
    """Runs of one build in a folder of baselines."""

    folder: Path
    name: str
    stated: Stated
    load: float | None
    """Highest number of users; None if not recorded."""
    runs: int

    @property
    def files(self) -> str:
        """Path of the folder with the files of the runs."""
        return str(self.folder / _RUNS)


def latest(folder: Path, stated: Stated, load: float | None = None) -> list[KeptRuns]:
    """Find the latest folders, at most `MOST`, of kept runs with the facts `stated` and a similar load (if known)."""
    if folder.exists() and not folder.is_dir():
        raise InputError(file=folder, key="--baseline", expected="a folder", found="a file")
    files = sorted(folder.glob(f"[!.]*/{_ABOUT}"), reverse=True)
    fit, far = [each for each in map(_read, files) if each.stated == stated], math.log1p(ALIKE)
    return [each for each in fit if not load or not each.load or abs(math.log(load / each.load)) <= far][:MOST]


def _read(file: Path) -> KeptRuns:
    try:
        about = json.loads(file.read_text("utf-8"))
        load = None if about["load"] is None else float(about["load"])
        return KeptRuns(file.parent, str(about["name"]), dict(about["stated"]), load, int(about["runs"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "a baseline that `--keep` wrote"
        raise InputError(file=file, key=None, expected=expected, found=f"{type(error).__name__}: {error}") from None


def keep(folder: Path, files: Path, name: str, stated: Stated, runs: Sequence[Recording]) -> Path:
    """Copy the files of a build's runs to a new folder in `folder`, completely or not at all; return its path."""
    now = dt.datetime.now(dt.UTC)
    place = folder / f"{now:%Y%m%dT%H%M%S.%fZ}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:60]}"
    with writing(place, "--baseline", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        with own_folder(folder, ".new-") as draft:
            made = draft / "made"
            (made / _RUNS).mkdir(parents=True)
            for file in sorted(files.iterdir()) if files.is_dir() else [files]:
                if file.is_file():
                    shutil.copy2(file, made / _RUNS / file.name)
            about = {"name": name, "stated": dict(stated), "load": load_of(runs), "runs": len(runs)}
            (made / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
            made.rename(place)
    return place


def load_of(runs: Sequence[Recording]) -> float | None:
    """Return the load of the runs: their highest number of users. Return None if users were not recorded."""
    users = [series.values for run in runs for series in run.graphs() if series.unit == "users"]
    return max((float(np.nanmax(values)) for values in users if np.isfinite(values).any()), default=0.0) or None


def compare_to_kept(
    compare: Callable[..., Any],
    new: str,
    folder: Path,
    stated: Stated,
    labels: tuple[str | None, str],
    sessions: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[Any, list[KeptRuns]]:
    """Compare the runs `new` with the latest kept runs; return the result (None without such runs) and the kept runs.

    `compare` is :func:`buildcompare.compare`. If kept runs turn out to have another load than `new`, the comparison is
    repeated at the load of `new`. In a benchmark without session names, `new` and each kept folder are a session each.
    """

    def compared(kept: Sequence[KeptRuns]) -> Any:
        others = f" and {len(kept) - 1} earlier" if len(kept) > 1 else ""
        named = labels[0] or kept[0].name + others, labels[1]
        return compare([each.files for each in kept], new, labels=named, sessions=sessions)

    if not (kept := latest(folder, stated)):
        return None, kept
    result = compared(kept)
    ((base, runs),) = [(each["base"], each["new"]) for each in result.recordings.values()]
    fit = latest(folder, stated, load_of(runs))
    untimed = not any(run.series or run.session for run in (*base, *runs))  # a pyperf session "" counts as no session
    if untimed and sessions is None:
        sessions = [each.folder.name for each in fit for _ in range(each.runs)], ["new"] * len(runs)
    if fit != kept or untimed:
        result = compared(fit) if fit else None
    return result, fit
