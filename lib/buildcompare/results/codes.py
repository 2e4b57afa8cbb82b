"""Codes of results.json as enums: statuses, verdicts, severities, kinds and sources. This module loads no pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from pydantic import ConfigDict

Side = Literal["base", "new"]
SIDES: tuple[Side, Side] = ("base", "new")
TestType = Literal["bounded", "unbounded", "benchmark"]
FailOn = Literal["regression", "errors", "invalid", "inconclusive"]
"""Values of the option ``--fail-on``: outcomes of a comparison that make a build pipeline fail."""
Window = tuple[float, float]
"""Start and end of a range, in seconds unless a field states another unit."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """One value for each build."""

    __pydantic_config__: ClassVar[ConfigDict] = {"revalidate_instances": "always"}

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
        """Both sides with their values, the base first."""
        return ("base", self.base), ("new", self.new)

    def map(self, function: Callable[[T], U]) -> Pair[U]:
        """Apply `function` to the value of each build, and return the pair of results."""
        return Pair(function(self.base), function(self.new))


def numbered(runs: Pair[list[T]] | Mapping[Side, Sequence[T]]) -> Iterator[tuple[Side, int, T]]:
    """Yield every run with its build and its number, from 1."""
    return ((side, number, run) for side in SIDES for number, run in enumerate(runs[side], start=1))


class Status(StrEnum):
    """The conclusion about one row, from the new build's point of view."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    EQUIVALENT = "equivalent"
    NOT_WORSE = "not_worse"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not_comparable"

    @property
    def changed(self) -> bool:
        """Whether a change was found, in either direction."""
        return self in (Status.REGRESSION, Status.IMPROVEMENT)


Verdict = StrEnum("Verdict", "PASS REGRESSION INCONCLUSIVE INVALID")
Verdict.__doc__ = "Whether the new build may ship, judged by one test or by all."
CauseKind = StrEnum(
    "CauseKind",
    """
    REGRESSION RESTARTED ENDED_EARLY FAILING LEANING LOSS_NOT_EXCLUDED TWICE_AS_BAD MEAN_DOUBLED UNJUDGEABLE
    FEW_SESSIONS NOTHING_JUDGED
    """,
)
CauseKind.__doc__ = "Why a valid test does not pass."
ValidityStatus = StrEnum("ValidityStatus", "VALID LIMITED INVALID")
ValidityStatus.__doc__ = "Whether a run or a test may be judged."
ValidityCode = StrEnum(
    "ValidityCode",
    """
    TARGET_NOT_REACHED TARGET_NOT_HELD LOADS_DIFFER USERS_LOST RESTARTED COUNTERS_RESTARTED CEILING_REACHED
    STILL_CLIMBING STILL_FALLING MAY_BE_CUT TOO_SHORT GAPS NO_USERS SILENT_END SILENT_START NO_STEADY_WINDOW
    WINDOW_SHORTER LOAD_ENDED LITTLE_COVERAGE SERIES_MISSING WINDOWS_OVERLAP OTHER_RUNS SAME_RECORDING UNLIKELY_UNIT
    LOAD_UNKNOWN CUT_IN_RAMP ANOTHER_BUILD NONE_SUCCEEDED
    """,
)
ValidityCode.__doc__ = "Facts that limit conclusions from a run or a test; rules: :mod:`buildcompare.validity.rules`."
Better = StrEnum("Better", "LOWER HIGHER NEUTRAL")
Better.__doc__ = "The direction in which a metric improves."
NoiseSource = StrEnum("NoiseSource", "CALIBRATION LEDGER CATALOGUE SESSIONS REPEATS NONE")
NoiseSource.__doc__ = "Source of the run-to-run noise of a row."
ReasonCode = StrEnum(
    "ReasonCode",
    """
    NO_NOISE FEW_RUNS FEW_SESSIONS SET_BY_TEST SUPPORTED_USERS NOT_POSITIVE NOT_RECORDED NO_STEADY_WINDOW NO_NUMBER
    ZERO_BASE NO_ERROR_NOISE NONE_FAILED FEW_FAILED ERRORS_NOT_STATED USERS_UNKNOWN ONLY_IN AMONG_OTHERS NEVER_CALLED
    BEYOND_LAST_BUCKET TOO_SHORT_TO_MEASURE LOAD_UNKNOWN NO_SAMPLES FEW_SAMPLES NEVER_RISES STILL_MOVES SHORT
    UNFIT_EARLY
    """,
)
ReasonCode.__doc__ = "Why a row was not judged, or a run has no steady window; sentences: text/sentences/reasons.j2."
NoEstimate = StrEnum(
    "NoEstimate",
    """
    NO_USERS_CURVE TOO_SHORT GAPS INTERRUPTED USERS_LOST STILL_CLIMBING STILL_FALLING MAY_BE_CUT CEILING_REACHED
    """,
)
NoEstimate.__doc__ = "Why a curve gives no figure for the supported users."
NoHistory = StrEnum("NoHistory", "STUDY NO_NOISE NO_EARLIER FIRST")
NoHistory.__doc__ = "Why a comparison was not compared with earlier ones; sentences: text/sentences/history.j2."
DriftKind = StrEnum("DriftKind", "SAME_VERSION PREVIOUS_NEW BETWEEN_DATABASES")
DriftKind.__doc__ = """The two levels that a row of drift compares. `between_databases`: one build on two databases.

Base (`same_version`) or new build (`previous_new`), and an earlier new build (of the base's version if possible)."""
SetupChange = StrEnum("SetupChange", "CHANGED NOT_RECORDED")
SetupChange.__doc__ = "How a setting differs between two comparisons; not recorded: only one comparison states it."
Severity = StrEnum("Severity", "CRITICAL WARNING INFO")
Severity.__doc__ = "How urgent a finding is."
FindingKind = StrEnum(
    "FindingKind",
    """
    BEGINNING BETWEEN_DATABASES BLIND_SPOTS BUMPS_IN_BOTH COUNTED_ERRORS COUNTER_RESETS EMPTY_METRICS
    ERROR_RATE EVENT GAPS LABELS LABELS_BEYOND_NOISE LABELS_IN_ONE_BUILD LABELS_IN_SEVERAL_TESTS LEVEL_DRIFT LIMITED_BY
    LOOKS METHODS_WITH_HANDLERS METRIC METRICS_NOWHERE MISSING_METRICS MORE_EVENTS NO_HISTORY NO_LABEL_TABLE
    PREVIOUS_NEW PROFILES RECORDING_NOTE REPORTED_AGAINST_ESTIMATED RUN_LEFT_OUT SERVER_VERSIONS SESSIONS
    SETUP_DIFFERENCES SINGLE_RUNS SUPPORTED_USERS TIME_TO_USERS TRAFFIC_MIX UNCHANGED UNJUDGEABLE UNRECOGNISED
    USERS_IN_PARAMS VALIDITY VARIANT VARIANT_CLAIM VARIANT_FACTOR WAVES ASSUMED LABEL_CHANGED BUMPS_CHANGED
    DRIFT_IN_RUN LOAD_MAY_DIFFER
    """,
)
FindingKind.__doc__ = "The subject of a finding; :mod:`buildcompare.findings` defines the order of findings."
SuggestionKind = StrEnum("SuggestionKind", "RERUN FIND_CAUSE FORMER_SETUP SETTLE LOOK_AT_LABEL")
SuggestionKind.__doc__ = "The kind of a proposed next step."
