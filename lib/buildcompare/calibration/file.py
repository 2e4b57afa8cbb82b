"""Read and write calibration files: the levels of repeated runs of one build, so that any of them can be left out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from buildcompare.config.errors import InputError
from buildcompare.config.params import FileName, Run, Source
from buildcompare.config.project import resolve
from buildcompare.config.yaml import Traced, checked, read_yaml
from buildcompare.recordings.recording import Recording
from buildcompare.stats.noise import NoiseAtEqualLoad, RepeatedRuns, RunLevel, RunLevels, label_frame

METHOD = 4  # Raised with every change of how runs are measured or judged: a self-check of another is not shown
DIGITS = 7  # Significant digits of the levels in the file; run-to-run noise is no smaller than a part in a thousand
MAX_BYTES = 100_000_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GroupSpec(_Strict):
    """Runs of one build on one setup."""

    name: FileName
    type: Literal["bounded", "unbounded"]
    runs: list[Run] = Field(min_length=2)


def _distinct(groups: list[GroupSpec]) -> list[GroupSpec]:
    names = [group.name for group in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"a different `name` for each group, not {twice[0]!r} twice")
    return groups


class CalibrationSpec(_Strict, Traced):
    """The file that `calibrate` reads: which runs are repetitions of each other."""

    metrics: str = Field(default="mattermost", min_length=1)
    source: Source
    groups: Annotated[list[GroupSpec], Field(min_length=1), AfterValidator(_distinct)]


Short = Annotated[float, AfterValidator(lambda value: float(f"{value:.{DIGITS}g}"))]
Known = Annotated[
    Short,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: value if math.isfinite(value) else None),
]
"""NaN, in the file null: unknown."""
AtLoad = tuple[Annotated[Short, Field(ge=0)], Annotated[Short, Field(ge=0)], Annotated[float, Field(gt=0)]]


class KeptRun(_Strict):
    """One run: what it was read from, and its levels."""

    inputs: list[str]  # Paths, as the user wrote them, or the window of a pulled run
    ids: list[str]  # SHA-256 of each input, by which a run is known again
    metrics: dict[str, tuple[Short, Known, Known]]
    """By slug (see stats.noise.series_key): level, its standard error (log scale) and the seconds it covers."""
    labels: dict[str, dict[str, dict[str, tuple[Short, Known]]]]
    """By group, statistic and label: value, and how often it was called."""
    no_change: dict[str, Short] = Field(default_factory=dict)  # By metric, its no-change penalty (see metrics.events)

    @classmethod
    def of(cls, recording: Recording, levels: RunLevels) -> KeptRun:
        """A run as the file keeps it."""
        files = recording.provenance.get("files", [])
        labels: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
        for group, label, stat, value, calls in levels.labels.itertuples(index=False, name=None):
            labels.setdefault(group, {}).setdefault(stat, {})[label] = (value, calls)
        return cls(
            inputs=[str(file["path"]) for file in files] if isinstance(files, list) else [],
            ids=ids_of(recording),
            metrics={key: astuple(level) for key, level in levels.metrics.items()},
            labels=labels,
            no_change=dict(levels.no_change),
        )

    def levels(self) -> RunLevels:
        """The run as the analyses take it."""
        tables = ((group, stat, table) for group, stats in self.labels.items() for stat, table in stats.items())
        labels = [(group, label, stat, *value) for group, stat, table in tables for label, value in table.items()]
        metrics = {key: RunLevel(*each) for key, each in self.metrics.items()}
        return RunLevels(metrics, label_frame(labels, ["value", "calls"]), self.no_change)


class KeptGroup(_Strict):
    """Runs of one build on one setup, measured."""

    name: str
    type: Literal["bounded", "unbounded"]
    runs: list[KeptRun]
    at_load: dict[str, AtLoad] = Field(default_factory=dict)
    """By metric, at equal load: variance of log values, the part of it within runs, degrees of freedom. Left out
    where it was not measured: bounded runs, and files before method 4."""


class Calibration(_Strict):
    """A calibration file."""

    schema_version: Literal[1] = 1
    method: int
    metrics: str  # The catalogue that the metrics' slugs are of
    groups: list[KeptGroup]
    self_check: dict[str, Any] | None = None

    def repeated_runs(self) -> list[RepeatedRuns]:
        """The groups as the analyses take them."""
        found = []
        for group in self.groups:
            at_load = {slug: NoiseAtEqualLoad(*each) for slug, each in group.at_load.items()}
            found.append(RepeatedRuns(group.name, group.type, [run.levels() for run in group.runs], at_load))
        return found


def read_spec(file: str | Path) -> CalibrationSpec:
    """Read the file that names the groups of repeated runs."""
    document = read_yaml(Path(file))
    return checked(CalibrationSpec, document.data, file=file, document=document)


def read_calibration(file: str, catalogue_name: str) -> Calibration:
    """Read a calibration for a comparison that uses the catalogue `catalogue_name`."""
    path, key, expected = resolve(file), "calibration", "a file that `python -m buildcompare calibrate` made"
    if not path.is_file():
        raise InputError(file=file, key=key, expected=expected, found="no such file")
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise InputError(file=file, key=key, expected=f"at most {MAX_BYTES:,} bytes", found=f"{size:,} bytes")
        calibration = Calibration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"]) or key
        raise InputError(file=file, key=key, expected=expected, found=fault["msg"].casefold()) from None
    except OSError as error:
        raise InputError(file=file, key=key, expected=expected, found=str(error.strerror)) from None
    if (found := calibration.metrics) != catalogue_name:
        expected = f"a calibration for the catalogue {catalogue_name}"
        raise InputError(file=file, key="metrics", expected=expected, found=f"one for {found}")
    return calibration


def without_runs(calibration: Calibration, recordings: Iterable[Recording]) -> tuple[Calibration, list[str]]:
    """Leave out each group that holds one of `recordings`, for no run may be judged by itself; and their names."""
    own = {each for recording in recordings for each in ids_of(recording)}
    left_out = [group.name for group in calibration.groups if any(own & {*run.ids} for run in group.runs)]
    kept = [group for group in calibration.groups if group.name not in left_out]
    return calibration.model_copy(update={"groups": kept}), left_out


def ids_of(recording: Recording) -> list[str]:
    """What a run is known by: hashes of its samples, of its first file, and of what a server was asked."""
    files = recording.provenance.get("files", [])
    hashes = [str(file["sha256"]) for file in files[:1]] if isinstance(files, list) else []
    request = recording.provenance.get("request")
    return [recording.samples_sha256, *hashes, *([str(request)] if request else [])]


def write_calibration(calibration: Calibration, file: Path) -> None:
    """Write the file, whole or not at all."""
    text = calibration.model_dump_json().replace('{"inputs"', '\n{"inputs"') + "\n"
    half = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        raise _unwritable(file, error) from None
    finally:
        half.unlink(missing_ok=True)


def check_writable(file: Path) -> None:
    """Make the folder of `file`, before the long work whose result shall stand there."""
    if file.is_dir():
        raise InputError(file=file, key="--output", expected="the name of a file", found="a folder")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(file, error) from None


def _unwritable(file: Path, error: OSError) -> InputError:
    return InputError(file=file, key="--output", expected="a file that can be written", found=str(error.strerror))
