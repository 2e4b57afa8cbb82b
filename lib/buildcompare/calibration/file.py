"""Read a calibration file: the noise between runs of one build, as `calibrate` measured it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from buildcompare.config.catalogue import Catalogue, RunSd
from buildcompare.config.errors import InputError
from buildcompare.config.project import read_text, resolve
from buildcompare.config.yaml import Strict
from buildcompare.metrics.judge_at_load import learned_at_load
from buildcompare.recordings.recording import Recording
from buildcompare.stats import noise

METHOD = 8  # Version of the calculations. Reports omit the self-check of a calibration file with another version.
DIGITS = 7  # Significant digits of numbers in the file; noise between runs (at least 0.1 %) far exceeds this rounding
MAX_BYTES = 100_000_000

Short = Annotated[float, AfterValidator(lambda value: float(f"{value:.{DIGITS}g}"))]
Known = Annotated[Short, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A value, or NaN if unknown; JSON holds null for NaN."""
AtLoad = tuple[Annotated[Short, Field(ge=0)], Annotated[Short, Field(ge=0)], Annotated[float, Field(gt=0)]]


class KeptRun(Strict):
    """Measurements of one run, as the calibration file holds them."""

    inputs: list[str]  # Paths of the run's files; for a run pulled from a server, the path of the downloaded file
    ids: list[str]  # Hashes by `ids_of`; runs that share a hash are the same run
    metrics: dict[str, tuple[Short, Known, Known]]
    """Series key (`stats.noise.series_key`) -> level, standard error of log(level), length of the steady window (s)."""
    labels: dict[str, dict[str, dict[str, tuple[Short, Known]]]]
    """Name of a label table -> statistic (such as avg) -> label -> value and number of calls (NaN if unknown)."""
    no_change: dict[str, Short] = Field(default_factory=dict)  # Slug -> lowest penalty that leaves no changepoint

    @classmethod
    def of(cls, recording: Recording, levels: noise.RunLevels) -> KeptRun:
        """Convert the measured `levels` of a recording to a run of the calibration file."""
        labels: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
        for group, label, stat, value, calls in levels.labels.itertuples(index=False, name=None):
            labels.setdefault(group, {}).setdefault(stat, {})[label] = (value, calls)
        return cls(
            inputs=[str(file["path"]) for file in recording.provenance.get("files", ())],
            ids=ids_of(recording),
            metrics={key: astuple(level) for key, level in levels.metrics.items()},
            labels=labels,
            no_change=dict(levels.no_change),
        )

    def levels(self) -> noise.RunLevels:
        """Return the run as `RunLevels`, the type that the analyses read."""
        tables = ((group, stat, table) for group, stats in self.labels.items() for stat, table in stats.items())
        labels = [(group, label, stat, *value) for group, stat, table in tables for label, value in table.items()]
        metrics = {key: noise.RunLevel(*each) for key, each in self.metrics.items()}
        return noise.RunLevels(metrics, noise.label_frame(labels, ["value", "calls"]), self.no_change)


class KeptGroup(Strict):
    """Measured runs of one build on one setup."""

    name: str
    type: Literal["bounded", "unbounded"]
    runs: list[KeptRun]
    at_load: dict[str, AtLoad] = Field(default_factory=dict)
    """Metric slug -> total variance of log values at equal load, variance within runs alone, and degrees of freedom."""


class Calibration(Strict):
    """A calibration file."""

    schema_version: Literal[1] = 1
    method: int
    metrics: str  # Name of the catalogue that defines the slugs
    groups: list[KeptGroup]
    self_check: dict[str, Any] | None = None

    def repeated_runs(self) -> list[noise.RepeatedRuns]:
        """Return the groups as `RepeatedRuns`, the type that the analyses read."""
        groups = []
        for group in self.groups:
            at_load = {slug: noise.NoiseAtEqualLoad(*each) for slug, each in group.at_load.items()}
            groups.append(noise.RepeatedRuns(group.name, group.type, [run.levels() for run in group.runs], at_load))
        return groups


def read_calibration(file: str, catalogue_name: str | None) -> Calibration:
    """Read a calibration file, and check that it belongs to the catalogue `catalogue_name` (if this is not None)."""
    key, expected = "calibration", "a file that `python -m buildcompare calibrate` made"
    text = read_text(resolve(file), expected, key=key, max_bytes=MAX_BYTES)
    try:
        calibration = Calibration.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"]) or key
        raise InputError(file=file, key=key, expected=expected, found=fault["msg"].casefold()) from None
    if (found := calibration.metrics) != catalogue_name and catalogue_name is not None:
        expected = f"a calibration for {f'the catalogue {catalogue_name}' if catalogue_name else 'no catalogue'}"
        raise InputError(file=file, key="metrics", expected=expected, found=f"one for {found}")
    return calibration


def groups_without(
    calibration: Calibration, recordings: Iterable[Recording]
) -> tuple[list[noise.RepeatedRuns], dict[str, Any]]:
    """Return the groups that hold no run of `recordings` (a run must not define its own noise) and a summary."""
    compared = {each for recording in recordings for each in ids_of(recording)}
    left_out = [group.name for group in calibration.groups if any(compared & {*run.ids} for run in group.runs)]
    kept = [group for group in calibration.groups if group.name not in left_out]
    same = calibration.method == METHOD
    shown = {"calibration": [group.name for group in kept], "left_out": left_out, "same_method": same}
    shown |= (calibration.self_check or {}) if same else {}
    return calibration.model_copy(update={"groups": kept}).repeated_runs(), shown


def beside_runs(catalogue: Catalogue, groups: Sequence[noise.RepeatedRuns]) -> Catalogue:
    """Scale the catalogue's noise, which was measured on another setup, to the setup of `groups`.

    :func:`~buildcompare.stats.noise.laboratory_ratio` estimates one ratio of variances for all metrics, because a few
    repeated runs suffice to estimate one ratio. Bounded, unbounded and equal-load noise have separate ratios.
    """
    kinds: dict[noise.Kind, Callable[[str], noise.Noise | None]] = {
        "bounded": lambda slug: noise.learned_noise(slug, "bounded", groups),
        "unbounded": lambda slug: noise.learned_noise(slug, "unbounded", groups),
        "equal_load": lambda slug: learned_at_load(slug, groups),
    }
    ratios = {}
    for kind, learned in kinds.items():
        pairs = ((learned(metric.slug), noise.catalogue_noise(metric, kind)) for metric in catalogue.metrics)
        if both := [(here, stated) for here, stated in pairs if here is not None and stated is not None]:
            ratios[kind] = noise.laboratory_ratio(both)
    metrics = tuple(
        metric.model_copy(update={"run_sd_percent": _in_laboratory(metric.run_sd_percent, ratios)})
        for metric in catalogue.metrics
    )
    return catalogue.model_copy(update={"metrics": metrics})


def ids_of(recording: Recording) -> list[str]:
    """Return hashes that identify a run: of its samples, of its first file, and of its request to a server."""
    hashes = [str(file["sha256"]) for file in recording.provenance.get("files", ())[:1]]
    request = recording.provenance.get("request")
    return [recording.samples_sha256, *hashes, *([str(request)] if request else [])]


def _in_laboratory(stated: RunSd, ratios: Mapping[noise.Kind, float]) -> RunSd:
    """Scale a metric's catalogue noise to another laboratory; `ratios` has the ratio of variances by kind of noise."""
    percents = {kind: getattr(stated, kind) for kind in ratios}
    sds = {kind: math.log1p(percent / 100.0) * math.sqrt(ratios[kind]) for kind, percent in percents.items() if percent}
    dfs = {kind: min(stated.df.get(kind, noise.CATALOGUE_DF), noise.CATALOGUE_DF) for kind in sds}
    changed: dict[str, object] = {kind: 100.0 * math.expm1(sd) for kind, sd in sds.items()}
    return stated.model_copy(update=changed | {"df": {**stated.df, **dfs}})
