"""Codes of results.json: every status, verdict, severity, kind and source is one of these enums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict

Side = Literal["base", "new"]
SIDES: tuple[Side, Side] = ("base", "new")
TestType = Literal["bounded", "unbounded"]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """One value for each build."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(revalidate_instances="always")

    base: T
    new: T

    @classmethod
    def of(cls, value: Callable[[Side], T]) -> Pair[T]:
        """The pair of ``value("base")`` and ``value("new")``."""
        return cls(value("base"), value("new"))

    def __getitem__(self, side: Side) -> T:
        return self.base if side == "base" else self.new

    def __iter__(self) -> Iterator[T]:
        return iter((self.base, self.new))

    def items(self) -> tuple[tuple[Side, T], tuple[Side, T]]:
        """Each side with its value, the base first."""
        return ("base", self.base), ("new", self.new)

    def map(self, function: Callable[[T], U]) -> Pair[U]:
        """The pair of what `function` makes of each value."""
        return Pair(function(self.base), function(self.new))


class Status(StrEnum):
    """The conclusion about one row, from the new build's point of view."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not_comparable"

    @property
    def changed(self) -> bool:
        """Whether a change was found, in either direction."""
        return self in (Status.REGRESSION, Status.IMPROVEMENT)


class Verdict(StrEnum):
    """Whether the new build may ship, by one test or by all of them."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"


class CauseKind(StrEnum):
    """Why a valid test does not pass."""

    REGRESSION = "regression"
    LEANING = "leaning"
    LOSS_NOT_EXCLUDED = "loss_not_excluded"
    UNJUDGEABLE = "unjudgeable"
    NOTHING_JUDGED = "nothing_judged"


class ValidityStatus(StrEnum):
    """Whether a run or a test may be judged."""

    VALID = "valid"
    LIMITED = "limited"
    INVALID = "invalid"


class ValidityCode(StrEnum):
    """What limits a run or a test; the rule and the sentence of each: :mod:`buildcompare.validity.rules`."""

    TARGET_NOT_REACHED = "target_not_reached"
    TARGET_NOT_HELD = "target_not_held"
    LOADS_DIFFER = "loads_differ"
    USERS_LOST = "users_lost"
    RESTARTED = "restarted"
    COUNTERS_RESTARTED = "counters_restarted"
    CEILING_REACHED = "ceiling_reached"
    STILL_CLIMBING = "still_climbing"
    STILL_FALLING = "still_falling"
    MAY_BE_CUT = "may_be_cut"
    TOO_SHORT = "too_short"
    GAPS = "gaps"
    NO_USERS = "no_users"
    SILENT_END = "silent_end"
    SILENT_START = "silent_start"
    NO_STEADY_WINDOW = "no_steady_window"
    WINDOW_SHORTER = "window_shorter"
    LITTLE_COVERAGE = "little_coverage"
    SERIES_MISSING = "series_missing"
    WINDOWS_OVERLAP = "windows_overlap"
    OTHER_RUNS = "other_runs"


class Better(StrEnum):
    """Which way a metric gets better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEUTRAL = "neutral"


class NoiseSource(StrEnum):
    """Where the run-to-run noise of a row comes from."""

    CALIBRATION = "calibration"
    CATALOGUE = "catalogue"
    NONE = "none"


class ReasonCode(StrEnum):
    """Why a row was not judged, or why a run has no steady window; in words: :mod:`buildcompare.text.reasons`."""

    NO_NOISE = "no_noise"
    FEW_RUNS = "few_runs"
    SET_BY_TEST = "set_by_test"
    NOT_POSITIVE = "not_positive"
    DIGITISED = "digitised"
    NOT_RECORDED = "not_recorded"
    NO_STEADY_WINDOW = "no_steady_window"
    NO_NUMBER = "no_number"
    ZERO_BASE = "zero_base"
    NO_ERROR_NOISE = "no_error_noise"
    NONE_FAILED = "none_failed"
    ERRORS_NOT_STATED = "errors_not_stated"
    USERS_UNKNOWN = "users_unknown"
    ONLY_IN = "only_in"
    NEVER_CALLED = "never_called"
    BEYOND_LAST_BUCKET = "beyond_last_bucket"
    TOO_SHORT_TO_MEASURE = "too_short_to_measure"
    LOAD_UNKNOWN = "load_unknown"
    NO_SAMPLES = "no_samples"
    FEW_SAMPLES = "few_samples"
    NEVER_RISES = "never_rises"
    STILL_MOVES = "still_moves"
    SHORT = "short"
    UNFIT_EARLY = "unfit_early"


class NoEstimate(StrEnum):
    """Why a curve gives no figure for the supported users."""

    NO_USERS_CURVE = "no_users_curve"
    TOO_SHORT = "too_short"
    GAPS = "gaps"
    INTERRUPTED = "interrupted"
    USERS_LOST = "users_lost"
    STILL_CLIMBING = "still_climbing"
    STILL_FALLING = "still_falling"
    MAY_BE_CUT = "may_be_cut"
    CEILING_REACHED = "ceiling_reached"


class NoHistory(StrEnum):
    """Why a comparison was not compared with earlier ones; in words: :mod:`buildcompare.text.reasons`."""

    STUDY = "study"
    NO_NOISE = "no_noise"
    NO_EARLIER = "no_earlier"
    FIRST = "first"


class DriftKind(StrEnum):
    """Which two levels a row of drift compares.

    This base with the previous new of the same version; this new with the previous new; two databases in one build.
    """

    SAME_VERSION = "same_version"
    PREVIOUS_NEW = "previous_new"
    BETWEEN_DATABASES = "between_databases"


class SetupChange(StrEnum):
    """How a setting differs from an earlier comparison; not recorded: one of the two does not state it."""

    CHANGED = "changed"
    NOT_RECORDED = "not_recorded"


class Severity(StrEnum):
    """How urgent a finding is."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingKind(StrEnum):
    """What a finding is about; the order of findings is in :mod:`buildcompare.findings`."""

    BEGINNING = "beginning"
    BETWEEN_DATABASES = "between_databases"
    BLIND_SPOTS = "blind_spots"
    BUMPS_IN_BOTH = "bumps_in_both"
    COUNTED_ERRORS = "counted_errors"
    COUNTER_RESETS = "counter_resets"
    EMPTY_METRICS = "empty_metrics"
    EQUAL_LOAD = "equal_load"
    ERROR_RATE = "error_rate"
    EVENT = "event"
    GAPS = "gaps"
    LABELS = "labels"
    LABELS_IN_ONE_BUILD = "labels_in_one_build"
    LABELS_IN_SEVERAL_TESTS = "labels_in_several_tests"
    LEVEL_DRIFT = "level_drift"
    LIMITED_BY = "limited_by"
    METHODS_WITH_HANDLERS = "methods_with_handlers"
    METRIC = "metric"
    METRICS_NOWHERE = "metrics_nowhere"
    MISSING_METRICS = "missing_metrics"
    NAMED_TWICE = "named_twice"
    NO_HISTORY = "no_history"
    NO_LABEL_TABLE = "no_label_table"
    PREVIOUS_NEW = "previous_new"
    RECORDING_NOTE = "recording_note"
    REPORTED_AGAINST_ESTIMATED = "reported_against_estimated"
    RUN_LEFT_OUT = "run_left_out"
    SERVER_VERSIONS = "server_versions"
    SETUP_DIFFERENCES = "setup_differences"
    SUPPORTED_USERS = "supported_users"
    TIME_TO_USERS = "time_to_users"
    TRAFFIC_MIX = "traffic_mix"
    UNCHANGED = "unchanged"
    UNJUDGEABLE = "unjudgeable"
    UNLIKELY_UNIT = "unlikely_unit"
    UNRECOGNISED = "unrecognised"
    USERS_IN_PARAMS = "users_in_params"
    VALIDITY = "validity"
    WAVES = "waves"


class SuggestionKind(StrEnum):
    """What is suggested to do next."""

    RERUN = "rerun"
    FORMER_SETUP = "former_setup"
    SETTLE = "settle"
    LOOK_AT_LABEL = "look_at_label"
