"""Sentences of findings and suggestions, made of their kind and evidence, and the first two of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buildcompare.config.errors import plural
from buildcompare.results import MetricResult, SupportedUsersResult, TestResult, ValidityReason
from buildcompare.results.codes import CauseKind, FindingKind, Pair, Reason, Status, SuggestionKind
from buildcompare.text import numbers
from buildcompare.text.numbers import change, listed, minutes, percent, quantity, ranged
from buildcompare.text.reasons import NO_ESTIMATE_WORDS, at_load_words, conclusion, reason_words, validity_words

Evidence = Mapping[str, Any]
MOST_LABELS, MOST_MOVERS, MOST_METRICS = 5, 3, 4
"""Names in one sentence; the others are counted."""


def title(test: TestResult) -> str:
    """A test by type and database: ``Unbounded Postgres``."""
    words = numbers.test_words(test.type, test.db_engine)
    return words if test.name in (f"{test.db_engine}_{test.type}", test.type) else f"{words} ({test.name})"


@dataclass(frozen=True)
class Names:
    """Names of the builds, and titles of the tests by their name."""

    builds: Pair[str]
    tests: Mapping[str, str]

    @classmethod
    def of(cls, labels: tuple[str, str], tests: Iterable[TestResult]) -> Names:
        """The names that sentences about `tests` need."""
        return cls(Pair(*labels), {test.name: title(test) for test in tests})


def sentence(kind: FindingKind, evidence: Evidence, names: Names, test: str | None = None) -> str:
    """The sentence of a finding; every number in it is in `evidence`."""
    tests, where = evidence.get("tests"), names.tests.get(test or "", "")
    if isinstance(tests, list):
        every = len(tests) == len(names.tests) > 1
        where = "Every test" if every else " and ".join(names.tests[each] for each in tests)
    return (f"{where}: " if where and kind not in _NOWHERE else "") + _filled(_FINDINGS[kind], evidence, names)


def advice(kind: SuggestionKind, evidence: Evidence, names: Names, test: str | None = None) -> str:
    """The sentence of a suggestion."""
    return _filled(_SUGGESTIONS[kind], {"title": names.tests.get(test or "", ""), **evidence}, names)


Say = str | Callable[[Evidence, Names], str]


def _filled(say: Say, evidence: Evidence, names: Names) -> str:
    if callable(say):
        text = say(evidence, names)
    else:
        build = names.builds[evidence["side"]] if "side" in evidence else ""
        who = build if evidence.get("runs") == 1 else f"run {evidence.get('run')} of {build}"
        text = numbers.fill(say, {**evidence, "builds": names.builds, "build": build, "who": who})
    return text if text.endswith("?") else f"{text}."


def _supported_users(e: Evidence, names: Names) -> str:
    base, new = names.builds
    if e["delta_percent"] is not None:
        return f"{new} supports {e['new']:,.0f} users against {e['base']:,.0f} of {base}, {conclusion(e, 'higher')}"
    missing = []
    for side, label in names.builds.items():
        if e[side] is None:
            at_least, words = e["at_least"][side], NO_ESTIMATE_WORDS.get(e["reason"][side], "there is no estimate")
            missing.append(f"{label}: {words}" + ("" if at_least is None else f", at least {at_least:,.0f}"))
    text = f"the supported users cannot be compared ({'; '.join(missing)})"
    if e["ci_low"] is None:
        return text
    more = f" of more than {percent(e['ruled_out_percent'])}" if e["ci_low"] < 0 else ""
    return f"{text}; a loss{more} can be ruled out"


def _beginning(e: Evidence, names: Names) -> str:
    bumps = [plural(count, "early bump") for count in e["early_bumps"]]
    text = f"{names.builds.new} begins with {bumps[1]} against {bumps[0]} of {names.builds.base}"
    text += f"; its lasting ramp starts at {minutes(e['onset_s'][1])} instead of {minutes(e['onset_s'][0])}"
    if e["shift_users"] is not None and e["shift_status"] != Status.INCONCLUSIVE:
        bounds = f"{e['shift_ci_low']:+,.0f} to {e['shift_ci_high']:+,.0f}".replace("-", "−")
        text += f". From there to the first wave it runs {numbers.shift_words(e['shift_users'])}"
        text += f" (95 % interval {bounds})"
    slopes, waves = e["slope_users_per_s"], e["wave_onset_s"]
    if None not in slopes:
        text += f". The ramp itself rises by {slopes[1]:.2f} users per second against {slopes[0]:.2f}"
    if None not in waves:
        text += f"; its waves begin at {minutes(waves[1])} instead of {minutes(waves[0])}"
    return text


def _waves(e: Evidence, names: Names) -> str:
    words = {
        "wave_period_s": ("come {} s farther apart", "come {} s closer together"),
        "wave_amplitude_users": ("fall {} users deeper", "fall {} users less"),
    }
    differ = []
    for measure in e["differ"]:
        value, (more, less) = e[measure]["value"], words[measure]
        near, far = sorted((abs(e[measure]["ci_low"]), abs(e[measure]["ci_high"])))
        moved = (more if value > 0 else less).format(f"{abs(value):,.0f}")
        differ.append(f"{moved} (95 % interval within these runs {near:,.0f} to {far:,.0f})")
    return f"compared with {names.builds.base}, the waves of {names.builds.new} {' and '.join(differ)}"


def _bumps_in_both(e: Evidence, names: Names) -> str:
    text = f"both builds begin with {plural(e['early_bumps'], 'early bump')}"
    text += f", of {e['peak']:,.0f} users at most" if e["peak"] is not None else ""
    return text + (f"; their lasting ramps start within {minutes(e['onset_s'])}" if e["onset_s"] else "")


def _event(e: Evidence, names: Names) -> str:
    first = max(e["events"], key=lambda event: (event["warning"], abs(event["size_percent"] or 0.0)))
    smallest_first = sorted(e["events"], key=lambda event: -abs(event["size_percent"] or 0.0))[::-1]
    sizes = {each["metric"]: change(each["size_percent"]) for each in smallest_first}
    others = [f"{e['names'][metric]} {size}" for metric, size in sizes.items() if metric != first["metric"]]
    moves = {"level": "shifts its level by", "spike": "has a spike of", "drop": "has a drop of"}[first["kind"]]
    text = f"{e['names'][first['metric']]} of {names.builds[e['side']]} {moves} {change(first['size_percent'])}"
    text += f" at {minutes(first['at_s'])}"
    text += f", together with {listed(sorted(others), MOST_METRICS)}" if others else ""
    return f"{text}; the other build shows nothing similar"


def _unchanged(e: Evidence, names: Names) -> str:
    several = len(e["tests"]) > 1

    def where(row: Evidence) -> str:
        return f" in {names.tests[row['test']]}" if several else ""

    judged, differ, largest = e["judged"], e["differ"], e["largest_undecided"]
    words = plural(judged, "metric") + (" of both tests" if len(e["tests"]) == 2 else "")
    if differ:
        verb = "differs" if len(differ) == 1 else "differ"
        moved = [f"{row['name']} {change(row['delta_percent'])}{where(row)}" for row in differ]
        text = f"of {words} that could be judged {len(differ)} {verb} by more than chance: "
        text += listed(moved, MOST_METRICS)
    else:
        among = f"any of the {words}" if judged > 1 else "the one metric"
        text = f"no difference beyond chance in {among} that could be judged"
    if e["same"]:
        verb = "are the same within their margins" if len(e["same"]) > 1 else "is the same within its margin"
        text += f"; {len(e['same'])} of them {verb}"
    if e["not_worse"]:
        text += f"; {len(e['not_worse'])} {'are' if len(e['not_worse']) > 1 else 'is'} no worse than a bound"
    if largest is not None:
        who = "the others" if e["same"] or e["not_worse"] or differ else "they"
        text += f"; {who} cannot be told from chance, at most {change(largest['delta_percent'])}"
        text += f" ({largest['name']}{where(largest)})"
    return text + (f". Not judged: {listed(e['not_judged_names'], MOST_METRICS)}" if e["not_judged_names"] else "")


def _metric(e: Evidence, names: Names) -> str:
    values = f"{quantity(e['new'], e['unit'])} against {quantity(e['base'], e['unit'])}"
    text = f"{e['name']} of {names.builds.new} {values}, {conclusion(e, e['better'])}"
    mix, at_load, margin = e["traffic_mix"], e["load_adjusted"], e["margin_percent"]
    if mix and mix["counts"] and mix["at_unchanged_mix_percent"] is not None:
        size = ranged(mix["at_unchanged_mix_percent"], mix["ci_low"], mix["ci_high"], "")
        words = numbers.status_words(mix["status"], e["better"], margin, mix["ci_low"], mix["ci_high"])
        text += f". The traffic mix itself changed it by {change(mix['mix_percent'])}"
        text += f"; at unchanged mix: {size}, {words}"
    if at_load and at_load["ci_low"] is not None:
        size = ranged(at_load["delta_percent"], at_load["ci_low"], at_load["ci_high"], "")
        words = at_load_words(at_load, e["better"], margin)
        text += f". At equal load ({at_load['users']:,.0f} users): {size}, {words}"
    apart = {"at_equal_load_percent": "at equal load", "at_unchanged_mix_percent": "at unchanged mix"}
    for group, start in (("also", "Also"), ("contrary", "The other way"), ("rest", "Not significant")):
        others = []
        for row in e["groups"][group]:
            left = ", ".join(f"{apart[key]} {change(row[key])}" for key in apart if key in row)
            others.append(f"{names.tests[row['test']]} {change(row['delta_percent'])}" + (f" ({left})" if left else ""))
        text += f". {start}: {listed(others)}" if others else ""
    return text


def _equal_load(e: Evidence, names: Names) -> str:
    at_load, own = e["load_adjusted"], "" if e["delta_percent"] is None else change(e["delta_percent"])
    text = f"at equal load ({at_load['users']:,.0f} users) {e['name']} of {names.builds.new} "
    text += f"{change(at_load['delta_percent'])}: regression, more than chance (adjusted "
    text += f"{numbers.p_words(at_load['p_adjusted'])}) and more than the margin of {percent(e['margin_percent'])}"
    return text + (f"; at each build's own load {own}" if own else "")


def _unjudgeable(e: Evidence, names: Names) -> str:
    values = ", ".join(f"{quantity(e[side], e['unit'])} in {label}" for side, label in names.builds.items())
    return f"{e['name']} cannot be judged: {values} ({_why(e) or 'no ratio'})"


def detectable_words(sizes: Mapping[str, Sequence[float]]) -> str:
    """The smallest change that each metric would have shown, over its tests: ``Avg API times 33 to 37 %``."""
    spans = []
    for name, of_tests in sizes.items():
        least, most = percent(min(of_tests)), percent(max(of_tests))
        spans.append(f"{name} {most}" if least == most else f"{name} {least.removesuffix(' %')} to {most}")
    return listed(spans, most=8)


def _traffic_mix(e: Evidence, names: Names) -> str:
    share = "{label} from {base_share_percent:percent} to {new_share_percent:percent}"
    text = f"other calls moved {e['name']} of {names.builds.new} by {change(e['mix_percent'])}, of "
    text += f"{change(e['delta_percent'])} in all; shares of calls: "
    text += f"{listed([numbers.fill(share, each) for each in e['movers']], MOST_MOVERS)}. {_at_unchanged_mix(e)}"
    if e["percentiles"]:
        text += f". {listed(e['percentiles'])} may hold the same mix; a percentile is no sum over calls, so it cannot "
        text += "be split"
    return text


def _at_unchanged_mix(e: Evidence) -> str:
    delta, status = e["at_unchanged_mix_percent"], e["status_at_unchanged_mix"]
    if delta is None:
        return f"The rest, {change(e['speed_percent'])}, is slower or faster calls; its noise is not known here"
    start = f"At unchanged mix it is {ranged(delta, e['ci_low'], e['ci_high'])}"
    if status in (Status.REGRESSION, Status.IMPROVEMENT):
        return f"{start}: the calls became {'slower' if delta > 0 else 'faster'} too"
    end = "; the mix does not count against the build" if e["mix_percent"] > 0 else ""
    if status == Status.EQUIVALENT:
        words = numbers.status_words(status, e["better"], e["margin_percent"], e["ci_low"], e["ci_high"])
        return f"{start}, {words}{end}"
    return f"{start}, which cannot be told from chance{end}"


def _error_rate(e: Evidence, names: Names) -> str:
    size = f" ({change(e['delta_percent'])})" if e["delta_percent"] is not None else ""
    of = " of the requests" if e["unit"] == "percent" else ""
    values = f"{quantity(e['new'], e['unit'])}{of} against {quantity(e['base'], e['unit'])}{size}"
    return f"{e['name']} of {names.builds.new} are {values}. Not judged: {_why(e) or 'no noise is known'}"


def _why(e: Evidence) -> str:
    return reason_words(Reason.model_validate(e["reason"])) if e["reason"] else ""


def _counted_errors(e: Evidence, names: Names) -> str:
    rates = [
        f"{names.tests[test]} {numbers.significant(row['new'])} against {numbers.significant(row['base'])}"
        + (f" ({change(row['delta_percent'])})" if row["delta_percent"] is not None else "")
        for test, row in e.items()
    ]
    return f"Errors counted by the load test, for each connected user and minute: {listed(rates, len(rates))}"


def _labels(e: Evidence, names: Names) -> str:
    slowest = [f"{row['label']} {row['stat']} ({change(row['delta_percent'])})" for row in e["slower_labels"]]
    text = f"{e['slower']} of {e['judged']} label rows are slower and {e['faster']} faster; up to "
    text += f"{e['expected']:.0f} are expected by chance" + (f". Slowest: {listed(slowest, 3)}" if slowest else "")
    stay = "stays" if e["surviving"] == 1 else "stay"
    return f"{text}. {e['surviving']} of them {stay} significant after adjusting for the whole table"


def _labels_in_several_tests(e: Evidence, names: Names) -> str:
    agreed = []
    for each in e["labels"]:
        moved = [
            f"{names.tests[test]} {change(row['delta_percent'])}{'' if row['marked'] else ' (leaning)'}"
            for test, row in each["tests"].items()
        ]
        agreed.append(f"{each['label']} {each['stat']} ({' and '.join(moved)})")
    expected = numbers.significant(e["labels"][0]["expected"], 2)
    text = f"Slower in several tests: {listed(agreed, MOST_LABELS)}"
    return f"{text}; by chance {expected} labels would agree as the first one does"


def _validity(e: Evidence, names: Names) -> str:
    reasons = [ValidityReason.model_validate(each) for each in e["reasons"]]
    words = validity_words(reasons, (names.builds.base, names.builds.new), several=e["several"])
    return f"{'invalid test' if e['status'] == 'invalid' else 'limited'}: {'; '.join(words)}"


def _unlikely_unit(e: Evidence, names: Names) -> str:
    values = [
        f"{quantity(e[side], 'seconds')} in {label}{f' ({listed(files, most=1)})' if files else ''}"
        for (side, label), files in zip(names.builds.items(), e["files"], strict=True)
    ]
    why = f"an average above {quantity(e['longest_average_s'], 'seconds')} is more likely in milliseconds"
    if e["apart"]:
        why = f"{numbers.significant(e['times'], 2)} times apart, so one of them may be in milliseconds"
    return f"{e['name']} {' and '.join(values)}: {why}; read as seconds"


def _users_in_params(e: Evidence, names: Names) -> str:
    pairs = zip(e["recorded"], names.builds, strict=True)
    recorded = " and ".join(f"{users:,.0f} in {label}" for users, label in pairs if users is not None)
    return numbers.fill(
        "the params say {users:,.0f} users, recorded are {recorded} ({percent:change}): `users` may be another test's",
        {**e, "recorded": recorded},
    )


def _unrecognised(e: Evidence, names: Names) -> str:
    where = listed(e["files"], most=2) if e["files"] else plural(len(e["runs"]), "recording")
    what = listed(e["wanted"], MOST_MOVERS).replace(", ", ", no ")
    text = f"the catalogue recognises no {what} in {where}"
    if e["nearest"]:
        near = listed([f"{name} ({metric})" for name, metric in e["nearest"]], MOST_MOVERS)
        return f"{text}; similar names there: {near}"
    return text + (f"; names there: {listed(e['unknown'], MOST_MOVERS)}" if e["unknown"] else "")


_FINDINGS: Mapping[FindingKind, Say] = {
    FindingKind.SUPPORTED_USERS: _supported_users,
    FindingKind.REPORTED_AGAINST_ESTIMATED: (
        "the curve of {build} gives {estimated:,.0f} supported users, the load-test tool reported {reported:,.0f} "
        "({percent:change}): they may be of different runs"
    ),
    FindingKind.LIMITED_BY: lambda e, names: "; ".join(
        f"{label} was limited by {e[side]}" for side, label in names.builds.items() if e[side]
    ),
    FindingKind.TIME_TO_USERS: (
        "{builds.new} reaches {users:,} users after {new:min.1}, {builds.base} after {base:min.1}"
    ),
    FindingKind.BEGINNING: _beginning,
    FindingKind.WAVES: _waves,
    FindingKind.BUMPS_IN_BOTH: _bumps_in_both,
    FindingKind.EVENT: _event,
    FindingKind.UNCHANGED: _unchanged,
    FindingKind.METRIC: _metric,
    FindingKind.EQUAL_LOAD: _equal_load,
    FindingKind.UNJUDGEABLE: _unjudgeable,
    FindingKind.BLIND_SPOTS: lambda e, names: f"Smaller changes could go unseen: {detectable_words(e['by_name'])}",
    FindingKind.TRAFFIC_MIX: _traffic_mix,
    FindingKind.ERROR_RATE: _error_rate,
    FindingKind.COUNTED_ERRORS: _counted_errors,
    FindingKind.LABELS: _labels,
    FindingKind.NO_LABEL_TABLE: "{build} recorded no label table {group}",
    FindingKind.LABELS_IN_ONE_BUILD: "only {build} has {labels:#label}: {labels:list.3}",
    FindingKind.LABELS_IN_SEVERAL_TESTS: _labels_in_several_tests,
    FindingKind.METHODS_WITH_HANDLERS: (
        "slower on average together are the handlers {handlers:changes} and the database methods {methods:changes}; "
        "which handler calls which method is not recorded"
    ),
    FindingKind.VALIDITY: _validity,
    FindingKind.RUN_LEFT_OUT: lambda e, names: (
        f"run {e['run']} of {names.builds[e['side']]} does not count for the supported users: "
        f"{NO_ESTIMATE_WORDS[e['reason']]}"
    ),
    FindingKind.METRICS_NOWHERE: "no run has {slugs:#metric} of the catalogue: {slugs:list}",
    FindingKind.MISSING_METRICS: "{who} lacks {slugs:#metric}: {slugs:list}",
    FindingKind.EMPTY_METRICS: "{who} has no sample in {slugs:list}",
    FindingKind.GAPS: (
        "{who} has gaps in {slugs:#metric}, at worst {worst[slug]} with {worst_percent:.0f} % of its samples "
        "(longest gap {worst[longest_gap_s]:min.1})"
    ),
    FindingKind.SERVER_VERSIONS: (
        "{builds.base} was recorded by {base:list}, {builds.new} by {new:list}; servers compute rates differently, "
        "which may be a part of every change"
    ),
    FindingKind.COUNTER_RESETS: "{who} restarted during the run: {resets:#counter} began again at zero ({resets:list})",
    FindingKind.NAMED_TWICE: lambda e, names: (
        f"{' and '.join(f'run {run} of {names.builds[side]}' for side, run in e['runs'])} are the same recording, to "
        "the last sample: was one named twice?"
    ),
    FindingKind.RECORDING_NOTE: "{note:sentence}",
    FindingKind.UNLIKELY_UNIT: _unlikely_unit,
    FindingKind.USERS_IN_PARAMS: _users_in_params,
    FindingKind.UNRECOGNISED: _unrecognised,
}
_NOWHERE = (FindingKind.BLIND_SPOTS,)
"""Sentences about all tests, though the finding names one."""
_SUGGESTIONS: Mapping[SuggestionKind, Say] = {
    SuggestionKind.RERUN: lambda e, names: (
        f"Record the connected users in {e['title']}: its load is unknown"
        if e["load_unknown"]
        else f"Run {e['title']} again: it is {'no valid test' if e['status'] == 'invalid' else 'limited'}"
    ),
    SuggestionKind.SETTLE: (
        "Settle {name} in {title} ({delta_percent:change}): {required_runs:#run} of each build would show a change of "
        "{margin_percent:percent}"
    ),
    SuggestionKind.LOOK_AT_LABEL: (
        "Look at {label}: {stat} is slower in {marked:#test}, by up to {largest_percent:change}"
    ),
}


# ---- The first two sentences of a report -----------------------------------------------------------------------------

MOST_NAMED = 2
"""Metrics in a title: it is read at a glance, and the findings below name all of them."""
USERS = "supported users"
REGRESSED = "Users feel this; it is more than chance and more than the margin."
SETTLED_BELOW = "See below what would settle it."
_STARTS = {
    CauseKind.LEANING: "May have got worse, but not surely by more than chance",
    CauseKind.LOSS_NOT_EXCLUDED: "The supported users are too uncertain to exclude a loss of twice the margin",
    CauseKind.UNJUDGEABLE: "Users feel it, but one build has no number or is zero",
    CauseKind.NOTHING_JUDGED: "Nothing that users feel could be judged",
}


@dataclass(frozen=True)
class Cause:
    """One reason why a valid test does not pass, with the title of the test and the row that it is about."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Of the metric, or `USERS`; None where the cause is about no single row."""
    delta_percent: float | None = None
    decided_by: str = "level"
    loss_percent: float | None = None
    """The largest loss of users that the interval does not exclude."""

    @classmethod
    def of(cls, kind: CauseKind, test: str, row: MetricResult | SupportedUsersResult) -> Cause:
        """The cause that `row` is."""
        if isinstance(row, SupportedUsersResult):
            loss = None if row.ci_low is None else -row.ci_low
            return cls(kind, test, USERS, row.delta_percent, loss_percent=loss)
        deciding = row.deciding
        delta = deciding.delta_percent if deciding else row.delta_percent
        return cls(kind, test, row.full_name, delta, row.decided_by)

    @property
    def size(self) -> float:
        """The size of the change."""
        return abs(self.delta_percent or 0.0)


def headed(words: str, causes: Sequence[Cause], tests: int) -> str:
    """A title; one test that has all causes is named once, and not where there is no other."""
    titles = {each.test for each in causes}
    where = f" in {causes[0].test}" if len(titles) == 1 and tests > 1 else ""
    return f"{words}{where}: {named(causes, alone=len(titles) == 1)}" if causes else words


def named(causes: Sequence[Cause], *, alone: bool = False) -> str:
    """Metrics with their change, the supported users first, then what moved most; `alone`: without their tests."""
    by_name: dict[str, list[Cause]] = {}
    for each in sorted(causes, key=lambda each: (each.name != USERS, -each.size)):
        by_name.setdefault(each.name or USERS, []).append(each)
    moved = []
    for name, (largest, *others) in by_name.items():
        tests = {each.test for each in (largest, *others)}
        where = "" if alone else f" in {largest.test}" if len(tests) == 1 else f" in {len(tests)} tests"
        how = f" {numbers.DECIDED_WORDS[largest.decided_by]}" if largest.decided_by in numbers.DECIDED_WORDS else ""
        size = f" {'up to ' if len(tests) > 1 else ''}{change(largest.delta_percent)}{how}"
        moved.append(f"{name}{'' if largest.delta_percent is None else size}{where}")
    return listed(moved, most=MOST_NAMED)


def invalid_words(tests: int, worse: Sequence[Cause]) -> str:
    """What an invalid comparison means, and what got worse in its valid tests."""
    others = f" What could be judged got worse: {named(worse)}." if worse else ""
    return f"{'It' if tests == 1 else 'They'} cannot be judged.{others}"


def undecided_words(causes: Sequence[Cause]) -> Iterator[str]:
    """Why nothing can be concluded, a sentence for each kind of cause."""
    for kind, start in _STARTS.items():
        where = []
        for each in (each for each in causes if each.kind == kind):
            why = each.name
            if kind == CauseKind.LOSS_NOT_EXCLUDED:
                loss = each.loss_percent or 0.0
                why = f"a loss of up to {percent(loss)}" if loss > 0 else "no interval"
            where.append(f"{each.test}: {why}" if why else each.test)
        if where:
            yield f"{start} ({listed(list(dict.fromkeys(where)))})."


def passed_words(detectable: Mapping[str, Sequence[float]], not_judged: Sequence[str]) -> str:
    """What a pass rests on: how small a change could have been missed, and what was not judged at all."""
    text = "No metric that users feel got worse, as far as these tests can show."
    if detectable:
        text += f" Smaller changes could go unseen: {detectable_words(detectable)}."
    return f"{text} Not judged: {listed(not_judged)}." if not_judged else text
