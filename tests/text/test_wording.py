# ruff: noqa: E501
"""The words of findings, suggestions, reasons and first sentences: everything about wording is asserted here."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from jinja2 import UndefinedError

from buildcompare.findings import RANKS
from buildcompare.findings.finding import sentence, suggestion
from buildcompare.findings.verdict import Cause
from buildcompare.results import ValidityReason
from buildcompare.results.base import Reason
from buildcompare.results.codes import (
    CauseKind,
    DriftKind,
    FindingKind,
    NoEstimate,
    NoHistory,
    Pair,
    ReasonCode,
    SuggestionKind,
    ValidityCode,
    ValidityStatus,
)
from buildcompare.text.sentences import Names, macros, say

PG, MY = "postgresql_bounded", "mysql_bounded"
NAMES = Names(Pair("v1", "v2"), {PG: "Bounded Postgres", MY: "Bounded MySQL", "other": "Unbounded MySQL"})
OF_HISTORY = {
    FindingKind.BETWEEN_DATABASES, FindingKind.LEVEL_DRIFT, FindingKind.NO_HISTORY, FindingKind.PREVIOUS_NEW,
    FindingKind.SETUP_DIFFERENCES,
}  # fmt: skip
CHANGE = {
    "delta_percent": 23.64, "ci_low": 17.0, "ci_high": 30.5, "status": "regression", "margin_percent": 10.0,
    "by_chance_percent": 5.6,
}  # fmt: skip
SAMPLES: dict[FindingKind, tuple[dict[str, Any], str]] = {
    FindingKind.SUPPORTED_USERS: (
        {
            "base": 7097.0,
            "new": 7126.0,
            "delta_percent": 0.41,
            "ci_low": -4.4,
            "ci_high": 4.5,
            "status": "equivalent",
            "band_percent": 5.0,
            "by_chance_percent": 5.0,
        },
        "Bounded Postgres: v2 supports 7,126 users against 7,097 of v1, +0.4 %: no difference beyond 5.0 %. // 95 % interval −4.4 to +4.5 %.",
    ),
    FindingKind.REPORTED_AGAINST_ESTIMATED: (
        {"side": "new", "reported": 19913, "estimated": 9391.0, "percent": -52.8},
        "Bounded Postgres: the curve of v2 gives 9,391 supported users, the load-test tool reported 19,913. // That is −52.8 %: the two may come from different runs.",
    ),
    FindingKind.LIMITED_BY: (
        {
            "base": None,
            "new": "Slow (at or above 100 ms)",
            "limiting": {"base": None, "new": "Slow"},
            "wave_onset_s": [2718.0, None],
            "stop_s": [6770.0, 6900.0],
        },
        "Bounded Postgres: v1: first wave at 45.3 min, stop at 112.8 min; v2: stop at 115.0 min, limited by Slow. // v2: Slow (at or above 100 ms).",
    ),
    FindingKind.TIME_TO_USERS: (
        {"users": 4000, "base": 1920.0, "new": 2820.0, "identical": (3, 9)},
        "Bounded Postgres: v2 reaches 4,000 users after 47.0 min, v1 after 32.0 min. // One run of each build is weak evidence: 3 of 9 pairs of identical runs differ as much.",
    ),
    FindingKind.BEGINNING: (
        {
            "early_bumps": [1, 3],
            "onset_s": [222.0, 888.0],
            "shift_users": -890.0,
            "shift_ci_low": -1253.0,
            "shift_ci_high": -527.0,
            "shift_status": "regression",
            "shift_noise_source": "simulated",
            "identical": None,
            "falls": [{"depth_users": 206.0, "peak_s": 160.0}, {"depth_users": 774.0, "peak_s": 450.0}],
            "slope_users_per_s": [2.19, 2.2],
            "wave_onset_s": [2916.0, 3438.0],
        },
        "Bounded Postgres: v2 begins with 3 early bumps against 1 early bump of v1; its lasting ramp starts at 14.8 min instead of 3.7 min. From there to the first wave it runs 890 users behind. v1 falls early by 206 users at 2.7 min; v2 falls early by 774 users at 7.5 min. // 95 % interval −1,253 to −527 (from the spread of simulated runs). The ramp itself rises by 2.20 users per second against 2.19; its waves begin at 57.3 min instead of 48.6 min.",
    ),
    FindingKind.WAVES: (
        {"differ": ["wave_period_s"], "wave_period_s": {"value": -25.0, "ci_low": -40.0, "ci_high": -10.0}},
        "Bounded Postgres: compared with v1, the waves of v2 come 25 s closer together. // 95 % interval 10 to 40 s.",
    ),
    FindingKind.BUMPS_IN_BOTH: (
        {"tests": [PG, MY], "early_bumps": 1, "peak": 201.0, "onset_s": 252.0},
        "Bounded Postgres and Bounded MySQL: both builds begin with 1 early bump, of 201 users at most; their lasting ramps start within 4.2 min.",
    ),
    FindingKind.EVENT: (
        {
            "side": "base",
            "identical": [5, 22],
            "names": {"p99": "P99", "go": "Goroutines"},
            "events": [
                {"metric": "p99", "warning": True, "size_percent": 77.1, "kind": "spike", "at_s": 1878.0},
                {"metric": "go", "warning": False, "size_percent": 9.4, "kind": "spike", "at_s": 1880.0},
            ],
        },
        "Bounded Postgres: P99 of v1 has a spike of +77.1 % at 31.3 min, together with one other metric. // The others: Goroutines +9.4 %. 5 of 22 pairs of identical runs have such an event in one run only.",
    ),
    FindingKind.MORE_EVENTS: (
        {"groups": [2, 7]},
        "Bounded Postgres: two more events in one build only: see the table of events.",
    ),
    FindingKind.UNCHANGED: (
        {
            "tests": [PG, MY],
            "judged": 12,
            "decided_by": "level",
            "differ": [],
            "same": ["a"] * 5,
            "not_worse": ["b"] * 3,
            "not_worse_percent": 12.0,
            "undecided": ["c"] * 4,
            "largest_undecided": {"test": MY, "name": "CPU", "delta_percent": -6.4},
            "not_judged_names": ["RPS"],
        },
        "Bounded Postgres and Bounded MySQL: no difference beyond chance in any of 12 judged metrics of both tests. // 5 are the same within their margins; 3 are no worse than 12 %; the other 4 cannot be told from chance, the largest being −6.4 % (CPU in Bounded MySQL). Not judged: RPS.",
    ),
    FindingKind.METRIC: (
        {
            **CHANGE,
            "name": "Stack",
            "unit": "bytes",
            "better": "lower",
            "base": 75.3e6,
            "new": 93e6,
            "traffic_mix": None,
            "load_adjusted": None,
            "decided_by": "level",
            "leans_worse": False,
            "groups": {
                "also": [{"test": MY, "delta_percent": 3.1, "decided_by": "equal_load"}],
                "contrary": [],
                "rest": [],
            },
        },
        "Bounded Postgres: Stack of v2 93.0 MB against 75.3 MB, +23.6 %: regression. // 95 % interval +17.0 to +30.5 %: more than chance and more than the margin of 10 %. Also: Bounded MySQL +3.1 % (at equal load).",
    ),
    FindingKind.UNJUDGEABLE: (
        {"name": "RPS", "unit": "", "base": 5.0, "new": None, "reason": {"code": "not_recorded", "build": "new"}},
        "Bounded Postgres: RPS cannot be judged: 5.00 in v1, – in v2 (not recorded in the new build).",
    ),
    FindingKind.SINGLE_RUNS: (
        {"name": "import", "unit": "seconds", "base": 61.8, "new": 55.2, "delta_percent": -10.7, "within_low": None},
        "Bounded Postgres: import of v2 55.2 s against 61.8 s, −10.7 %, which is unproven. // The noise between runs of one build is unknown. Two or three runs of each build would decide.",
    ),
    FindingKind.VARIANT: (
        {
            "variant": "new disk",
            "name": "tps",
            "unit": "1/s",
            "base": 600.0,
            "new": 660.0,
            "other": "old disk",
            "delta_percent": 10.0,
            "times_better": 1.1,
            "ci_low": None,
            "p_value": None,
            "chance_sd_percent": 3.5,
            "unjudged": "single",
            "beside_baseline": True,
        },
        (
            "Bounded Postgres: new disk: tps 660 1/s against 600 1/s of the baseline, old disk, +10.0 %: unproven. // No run was repeated: this exceeds chance only if single runs vary by less than 3.5 %."
        ),
    ),
    FindingKind.VARIANT_CLAIM: (
        {
            "text": None,
            "says": "same",
            "variant": "new disk",
            "other": "old disk",
            "name": "tps",
            "status": "unproven",
            "delta_percent": 1.0,
            "ci_low": None,
            "unjudged": "single",
            "chance_sd_percent": None,
            "runs_needed": {"2": 3, "5": 19},
        },
        (
            "Bounded Postgres: “new disk is no different from old disk in tps”: the figures agree, but nothing proves it (+1.0 %). // If single runs vary by 5 %, 19 runs of each would settle it."
        ),
    ),
    FindingKind.VARIANT_FACTOR: (
        {"factors": ["disk", "scale"], "name": "tps", "largest_percent": -14.6, "p_adjusted": 0.012},
        (
            "Bounded Postgres: disk and scale act together on tps: up to −14.6 %. // p 0.012, adjusted for all factors and operations."
        ),
    ),
    FindingKind.ASSUMED: (
        {
            "metrics": [
                {"name": "latency", "unit": "seconds", "better": "lower", "load": False},
                {"name": "cache_hits", "unit": "", "better": "higher", "load": False},
                {"name": "vus", "unit": "users", "better": "neutral", "load": True},
                {"name": "foo", "unit": "", "better": "neutral", "load": False},
            ]
        },
        (
            "Bounded Postgres: Assumed from names: latency in seconds, lower is better; cache_hits, higher is better; vus as "
            "the load. No better direction is known of foo. // State others with metrics={...} of compare(), or in a "
            "catalogue (docs/catalogues.md)."
        ),
    ),
    FindingKind.BLIND_SPOTS: (
        {"by_name": {"CPU": [19.0, 40.0], "supported users": [7.3]}},
        "Smaller changes could go undetected: CPU 19 to 40 %, supported users 7.3 %.",
    ),
    FindingKind.TRAFFIC_MIX: (
        {
            "name": "Avg",
            "better": "lower",
            "margin_percent": 10.0,
            "delta_percent": 30.0,
            "mix_percent": 25.0,
            "movers": [{"label": "getUser", "base_share_percent": 20.0, "new_share_percent": 0.0}],
            "at_unchanged_mix_percent": 4.0,
            "status_at_unchanged_mix": "inconclusive",
            "ci_low": -9.0,
            "ci_high": 19.0,
            "percentiles": ["P99"],
        },
        "Bounded Postgres: a changed traffic mix moved Avg of v2 by +25.0 %, of +30.0 % in all. // Shares of calls: getUser from 20 % to 0 %. At unchanged mix it is +4.0 % (95 % interval −9.0 to +19.0 %), which cannot be told from chance; the mix does not count against the build. The mix may have moved P99 too; a percentile cannot be split by calls.",
    ),
    FindingKind.ERROR_RATE: (
        {
            "name": "Client errors",
            "unit": "percent",
            "base": 0.01,
            "new": 0.09,
            "delta_percent": 800.0,
            "reason": {"code": "no_error_noise"},
        },
        "Bounded Postgres: Client errors of v2 are 0.0900 % of the requests against 0.0100 % (+800 %). // Not judged: run-to-run noise of error rates is not known.",
    ),
    FindingKind.COUNTED_ERRORS: (
        {MY: {"base": 1.0, "new": 0.997, "delta_percent": -0.3}},
        "Bounded Postgres: Errors counted by the load test per connected user and minute changed by −0.3 %. // Bounded MySQL 0.997 against 1.00 (−0.3 %).",
    ),
    FindingKind.LABELS: (
        {
            "slower": 2,
            "judged": 100,
            "faster": 1,
            "expected": 2.0,
            "surviving": 1,
            "moved_most": [
                {
                    "label": "getPost",
                    "stat": "avg",
                    "delta_percent": 60.0,
                    "calls": {"base": 1e5, "new": 120_000},
                    "time_share": {"base": 0.1, "new": 0.14},
                },
                {"label": "login", "stat": "avg", "delta_percent": -9.0, "calls": None, "time_share": None},
            ],
        },
        "Bounded Postgres: 2 of 100 label rows are slower and 1 faster; up to 2 are expected by chance. // Moved most: getPost avg +60.0 % (120,000 calls, 14% of the time of its table), login avg −9.0 %. 1 changed row stays significant after adjusting for the whole table.",
    ),
    FindingKind.PROFILES: (
        {
            "own": [
                {
                    "frame": "parse",
                    "base_percent": 12.0,
                    "new_percent": 31.0,
                    "points": 19.0,
                    "noise_points": 3.1,
                    "noise_share": 0.16,
                }
            ],
            "total": [],
            "noise_known": True,
        },
        "Bounded Postgres: in profiles of v2 the share of samples grew in parse 12 % → 31 % (noise explains up to 16% of it).",
    ),
    FindingKind.LABELS_BEYOND_NOISE: (
        {
            "labels": [
                {
                    "label": "getPost",
                    "stat": "avg",
                    "base": 0.01,
                    "new": 0.08,
                    "delta_percent": 700.0,
                    "calls": {"base": 1e5, "new": 120_000},
                    "test": PG,
                    "times": 8.0,
                    "added_share": 0.21,
                    "p99_times": 22.0,
                    "p99_at_least": True,
                    "others": {MY: 640.0},
                }
            ]
        },
        "Bounded Postgres: getPost avg takes 8.0 times as long (120,000 calls, which add 21% to the time of their table). // getPost avg 10.0 ms → 80.0 ms (+700 %, p99 at least 22 times as long, 120,000 calls in Bounded Postgres; +640 % in Bounded MySQL).",
    ),
    FindingKind.LABEL_CHANGED: (
        {
            "label": "GET /search",
            "stat": "avg",
            "base": 0.0375,
            "new": 0.0466,
            "delta_percent": 24.2,
            "ci_low": 18.7,
            "ci_high": 30.0,
            "calls": {"base": 1875.0, "new": 1818.0},
            "time_share": {"base": 0.4, "new": 0.45},
            "also": {"p95": 22.6},
        },
        "Bounded Postgres: GET /search of v2 takes 46.6 ms instead of 37.5 ms, +24.2 %, in 1,818 calls. // 95 % interval +18.7 % to +30.0 %, by the noise between the repeated runs. Also changed: p95 +22.6 %. 45% of the time of its table.",
    ),
    FindingKind.NO_LABEL_TABLE: (
        {"group": "api", "side": "new"},
        "Bounded Postgres: v2 recorded no label table api.",
    ),
    FindingKind.LABELS_IN_ONE_BUILD: (
        {
            "side": "new",
            "rows": [{"label": "a", "group": "api", "seconds": 0.02}, {"label": "b", "group": "api", "seconds": None}],
            "tests": [PG, MY, "other"],
        },
        "Every test: only v2 has 2 labels: a (api, 20.0 ms), b (api).",
    ),
    FindingKind.LABELS_IN_SEVERAL_TESTS: (
        {
            "labels": [
                {
                    "label": "getPost",
                    "stat": "avg",
                    "expected": 0.0006,
                    "tests": {
                        PG: {"delta_percent": 60.0, "marked": True},
                        MY: {"delta_percent": 11.0, "marked": False},
                    },
                }
            ]
        },
        "Bounded Postgres: Slower in several tests: getPost avg. // getPost avg (Bounded Postgres +60.0 % and Bounded MySQL +11.0 % (leaning)). By chance 6.0e-04 labels would agree as the first does; published releases with base and new swapped have such labels as often.",
    ),
    FindingKind.METHODS_WITH_HANDLERS: (
        {"handlers": {"createPost": 40.0}, "methods": {"PostStore.Save": 38.0}},
        "Bounded Postgres: 1 handler and 1 database method are slower on average. // Handlers: createPost (+40.0 %). Database methods: PostStore.Save (+38.0 %). Which handler calls which method is not recorded.",
    ),
    FindingKind.VALIDITY: (
        {
            "status": "invalid",
            "several": False,
            "reasons": [{"code": "no_users", "status": "invalid", "side": "new", "run": 1, "text": "no users"}],
        },
        "Bounded Postgres: invalid test: v2: no users.",
    ),
    FindingKind.LOOKS: (
        {"looks": ["1", "2 and 1"], "level": 0.00914, "planned_runs": None},
        "Bounded Postgres: this is look 2 at its runs (1, then 2 and 1 of each build). // A change counts here if its adjusted p is below 0.0091, and intervals are wider: all looks after the first together keep an error rate of 5 %.",
    ),
    FindingKind.SESSIONS: (
        {"names": {"base": ["mon"], "new": ["tue"]}, "paired": False, "least_percent": 40.2},
        "Bounded Postgres: 1 session of v1 (mon) and 1 of v2 (tue) cannot tell a change below 40 % from the noise between sessions, so none is claimed. // All processes and repeats of a session count once, as they do not show how far sessions differ. The noise is that of CPython's benchmarks; three sessions of each build would show your own.",
    ),
    FindingKind.RUN_LEFT_OUT: (
        {"side": "base", "run": 2, "reason": "gaps"},
        "Bounded Postgres: run 2 of v1 does not count for the supported users: the last 30 minutes have gaps.",
    ),
    FindingKind.METRICS_NOWHERE: (
        {"slugs": ["rps", "heap"]},
        "Bounded Postgres: no run has two metrics of the catalogue: rps, heap.",
    ),
    FindingKind.MISSING_METRICS: (
        {"side": "new", "run": 2, "runs": 2, "slugs": ["rps"]},
        "Bounded Postgres: run 2 of v2 lacks 1 metric: rps.",
    ),
    FindingKind.EMPTY_METRICS: (
        {"side": "new", "run": 1, "runs": 1, "slugs": ["rps"]},
        "Bounded Postgres: v2 has no sample in rps.",
    ),
    FindingKind.GAPS: (
        {
            "side": "base",
            "run": 1,
            "runs": 1,
            "slugs": ["rps"],
            "worst": {"slug": "rps", "longest_gap_s": 505.0},
            "worst_percent": 86.1,
            "others": 0,
        },
        "Bounded Postgres: v1 has gaps in 1 metric, at worst rps with 86 % of its samples. // Longest gap 8.4 min.",
    ),
    FindingKind.SERVER_VERSIONS: (
        {"base": ["prometheus 2.42"], "new": ["victoriametrics 1.130"]},
        "Bounded Postgres: v1 was recorded by prometheus 2.42, v2 by victoriametrics 1.130. // Servers compute rates differently, which may explain part of every change.",
    ),
    FindingKind.COUNTER_RESETS: (
        {"side": "new", "run": 1, "runs": 1, "resets": {"requests_total": 1}},
        "Bounded Postgres: a server of v2 restarted: 1 counter began again at zero. // requests_total.",
    ),
    FindingKind.RECORDING_NOTE: (
        {"note": "Read off a plot.", "tests": [PG]},
        "Bounded Postgres: Read off a plot.",
    ),
    FindingKind.USERS_IN_PARAMS: (
        {"users": 500, "recorded": [1000.0, 1000.0], "percent": 100.0},
        "Bounded Postgres: the params state 500 users, but v1 recorded 1,000 and v2 recorded 1,000 (+100 %): `users` may be another test's.",
    ),
    FindingKind.UNRECOGNISED: (
        {
            "wanted": ["Avg", "P99"],
            "files": ["a.csv"],
            "runs": ["x base 1"],
            "nearest": [["avg-api-time", "Avg"]],
            "unknown": ["avg-api-time"],
        },
        "Bounded Postgres: the catalogue recognises no Avg, no P99 in a.csv. // Similar names there: avg-api-time (Avg).",
    ),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_finding_in_words(kind: FindingKind) -> None:
    evidence, expected = SAMPLES[kind]
    assert " // ".join(filter(None, sentence(kind, evidence, NAMES, PG))) == expected


def test_every_kind_has_a_sentence_and_a_sample() -> None:
    assert set(SAMPLES) == set(FindingKind) - OF_HISTORY
    assert set(RANKS) <= set(FindingKind)


@pytest.mark.parametrize(
    ("file", "codes"),
    [("findings", FindingKind), ("suggestions", SuggestionKind), ("validity", ValidityCode)],
)
def test_every_code_has_a_macro_of_its_name(file: str, codes: type[StrEnum]) -> None:
    assert [code for code in codes if not callable(getattr(macros(file), code, None))] == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {},
            "+23.6 %: regression // 95 % interval +17.0 to +30.5 %: more than chance and more than the margin of 10 %.",
        ),
        ({"ci_low": None}, "+23.6 %, which may be chance // Run-to-run noise is not known here."),
        (
            {"status": "inconclusive"},
            "+23.6 %, which may be a change, but is not certain // 95 % interval +17.0 to +30.5 %: significant alone, not after adjusting for all metrics.",
        ),
        (
            {"status": "inconclusive", "ci_low": -3.0},
            "+23.6 %, which cannot be told from chance // 95 % interval −3.0 to +30.5 %: chance moves this by up to 5.6 %.",
        ),
        (
            {"delta_percent": 6.0, "ci_low": 1.0, "ci_high": 11.0},
            "+6.0 %: regression // 95 % interval +1.0 to +11.0 %: more than chance and perhaps more than the margin of 10 %.",
        ),
    ],
)
def test_a_conclusion_in_words(change: dict[str, Any], expected: str) -> None:
    row = {**CHANGE, "no_worse_than_percent": None, **change}
    assert " // ".join(say("reasons", part, row, "lower") for part in ("told", "basis")) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "regression"),
        ({"status": "not_worse", "no_worse_than_percent": 19.0}, "no worse than 19 %"),
        ({"status": "inconclusive", "ci_low": -3.0}, "no change shown; up to 30 % worse is possible"),
        ({"status": "inconclusive"}, "may be worse"),
        ({"status": "inconclusive", "ci_low": None}, "not judged"),
        ({"status": "not_comparable", "base": 0.0}, "not comparable"),
        ({"status": "not_comparable", "base": 0.0, "new": 0.0}, "0 in both"),
    ],
)
def test_a_row_at_a_glance(change: dict[str, Any], expected: str) -> None:
    row = {**CHANGE, "base": 1.0, "new": 1.3, "no_worse_than_percent": None, **change}
    assert say("reasons", "at_a_glance", row, "lower") == expected


@pytest.mark.parametrize(
    ("kind", "evidence", "expected"),
    [
        (SuggestionKind.RERUN, {"status": "invalid", "load_unknown": False}, "Run Bounded Postgres again: it is no valid test."),
        (SuggestionKind.RERUN, {"status": "limited", "load_unknown": True},
         "Record the connected users in Bounded Postgres: its load is unknown."),
        (SuggestionKind.SETTLE, {"name": "CPU", "delta_percent": 8.0, "required_runs": 3,
                                 "required_runs_show_percent": 4.6},
         "Settle CPU in Bounded Postgres (+8.0 %): 3 runs of each build would show a change of 4.6 %."),
        (SuggestionKind.FIND_CAUSE, {"name": "supported users", "delta_percent": -10.1, "movers": [["Stack", 19.2]]},
         "Find the cause of supported users −10.1 % in Bounded Postgres: Stack (+19.2 %) got worse too."),
        (SuggestionKind.LOOK_AT_LABEL, {"label": "getPost", "stat": "avg", "marked": 2, "largest_percent": 60.0},
         "Look at getPost: avg is slower in 2 tests, by up to +60.0 %."),
    ],
)  # fmt: skip
def test_a_suggestion_in_words(kind: SuggestionKind, evidence: dict[str, Any], expected: str) -> None:
    assert suggestion(kind, evidence, NAMES, test=PG).text == expected


def test_reasons_in_words() -> None:
    for code in ReasonCode:
        said = say(
            "reasons", "reason_words", Reason(code=code, build="new", minutes=2.0, because=ReasonCode.NO_SAMPLES)
        )
        assert said
        assert not said.endswith(".")
    assert set(macros("reasons").REASONS) == set(ReasonCode)
    assert set(macros("reasons").NO_ESTIMATE) == set(NoEstimate)
    assert set(macros("history").NO_HISTORY) == set(NoHistory)
    assert set(macros("history").DRIFT) == set(DriftKind)
    assert (
        say("reasons", "reason_words", Reason(code=ReasonCode.NO_NUMBER))
        == "no number in the steady window of either build"
    )
    because = Reason(code=ReasonCode.NO_STEADY_WINDOW, build="base", because=ReasonCode.SHORT, minutes=2.4)
    assert (
        say("reasons", "reason_words", because) == "no steady window in the base build: only 2 minutes of steady load"
    )


def test_a_run_is_named_by_its_build_and_number() -> None:
    reason = ValidityReason(code=ValidityCode.GAPS, status=ValidityStatus.LIMITED, text="gaps", side="new", run=2)
    assert say("reasons", "limits", [reason], False, Pair("v1", "v2")) == "v2: gaps"
    assert say("reasons", "limits", [reason, reason], several=True) == "new run 2: gaps; new run 2: gaps"


def test_the_first_sentences() -> None:
    leaning = Cause(CauseKind.LEANING, "Bounded Postgres", "P99 API times", 25.0)
    loss = Cause(CauseKind.LOSS_NOT_EXCLUDED, "Unbounded MySQL", "supported users", -7.0, loss_percent=14.0)
    assert say("opening", "undecided", [leaning, loss], settle=True) == (
        "Not decided: it may be worse, or this may be chance (Bounded Postgres: P99 API times). "
        "The supported users are too uncertain to exclude a loss of twice the margin (Unbounded MySQL: a loss of up to 14 %). "
        "See below what would settle it."
    )
    assert say("opening", "pass", {"CPU": 19.0, "RPS": 4.0}, ["RPS"]) == (
        "Nothing speaks against shipping: no metric that users feel got worse, as far as these tests can show. Still "
        "possible: CPU 19 % worse, RPS 4.0 % worse. Not judged: RPS."
    )


HOSTILE = "{{ 7 * 7 }} {% raw %} {e}  two spaces\nand a line"


def test_what_people_wrote_is_said_letter_for_letter() -> None:
    names = Names(Pair(HOSTILE, "v2"), {PG: HOSTILE})
    said = sentence(FindingKind.NO_LABEL_TABLE, {"side": "base", "group": HOSTILE}, names, PG)
    assert said == (f"{HOSTILE}: {HOSTILE} recorded no label table {HOSTILE}.", "")


def test_every_number_in_a_row_s_explanation_is_written_for_readers() -> None:
    change = {"status": "inconclusive", "ci_low": -3.0, "by_chance_percent": 24.0, "min_detectable_percent": 41.0}
    row = {**CHANGE, **change, "required_runs": 11, "required_runs_show_percent": 9.956310511383226}
    said = say("reasons", "explain", row)
    assert said.endswith("11 runs of each build would show a change of 10.0 %."), said


def test_a_value_that_a_sentence_needs_must_be_there() -> None:
    with pytest.raises(UndefinedError, match="group"):
        sentence(FindingKind.NO_LABEL_TABLE, {"side": "base"}, NAMES, PG)
