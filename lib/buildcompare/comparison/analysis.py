"""Run a whole comparison: compare the builds in every test, then reach the verdict and draw findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from buildcompare import findings
from buildcompare import results as schema
from buildcompare.calibration.file import beside_runs, groups_without
from buildcompare.comparison import artefacts
from buildcompare.comparison.measure import TestRecordings, TestView, compare_test, judge_test
from buildcompare.comparison.plan import plan_tests
from buildcompare.comparison.pooling import pool_metrics
from buildcompare.comparison.provenance import params_sha256, provenance
from buildcompare.comparison.reading import calibration_of, fitted, read_profiles
from buildcompare.config.assumed import with_times
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.findings import history as findings_history
from buildcompare.findings import verdict
from buildcompare.history.chain import compare_to_ledger, supported_users_noise
from buildcompare.history.ledger import Ledger, entry_of, ledger_of
from buildcompare.history.levels import contrasts_in
from buildcompare.labels.noise import LabelNoise
from buildcompare.profiles.stacks import Profile
from buildcompare.recordings.recording import Recording
from buildcompare.results.base import Label
from buildcompare.results.codes import SIDES, Pair, numbered
from buildcompare.stats.noise import Contrasts, RepeatedRuns
from buildcompare.text.sentences import say


@dataclass(frozen=True)
class Analysis:
    """A comparison that was read and analysed."""

    params: Comparison
    catalogue: Catalogue
    recordings: Mapping[str, TestRecordings]
    results: schema.Results
    compared: Mapping[str, TestView]
    """Every test with its recordings, by the test's name."""

    def tests(self) -> list[TestView]:
        """Return every test with its recordings, in the order of the params."""
        return [replace(self.compared[test.name], result=test) for test in self.results.tests]


def analyse(
    params: Comparison,
    recordings: Mapping[str, TestRecordings],
    *,
    catalogue: Catalogue | None = None,
    command: str | None = None,
) -> Analysis:
    """Compare the builds in every test, reach the verdict and draw the findings.

    `catalogue` replaces the one that `params` name. `command` is the command line that reproduces the report.
    """
    runs = [[recording for side in SIDES for recording in test[side]] for test in recordings.values()]
    every = [recording for test in runs for recording in test]
    params, catalogue = fitted(params, runs, catalogue)
    catalogue, learned = with_noise(params, catalogue, every)
    simulated, profiles = any(recording.simulated for recording in every), read_profiles(params)
    compared = _compared(params, recordings, catalogue, learned, profiles)
    tests, ledger = [each.result for each in compared.values()], learned.ledger
    noise = supported_users_noise(catalogue, learned.groups)
    past = compare_to_ledger(ledger, params, tests, noise, simulated=simulated) if ledger else None
    history, drift, setup_differences = past or (None, [], [])
    inputs = _inputs(recordings, profiles)
    origin = provenance(params, params.metrics or "", inputs, command, artefacts.of_runs(params))
    results = schema.Results(
        comparison=params.name or "",
        base=Label(label=params.base.label),
        new=Label(label=params.new.label),
        verdict=verdict.of_comparison(tests),
        verdict_rule=say("reasons", "verdict_rule"),
        setup=[schema.SetupRow(setting=setting, value=value) for setting, value in params.setup.items()],
        setup_differences=setup_differences,
        drift=drift,
        history=history,
        comments=params.comments,
        action_items=params.action_items,
        action_items_title=params.action_items_title,
        grafana=[schema.GrafanaLink(title=title, url=url) for title, url in params.grafana.items()],
        tests=tests,
        findings=[],
        provenance=origin,
        self_check=learned.self_check,
        simulated=simulated,
    )
    return Analysis(params, catalogue, recordings, _concluded(results, catalogue), compared)


class LearnedNoise(NamedTuple):
    """Noise between runs that was learned from a calibration and a ledger."""

    groups: Sequence[RepeatedRuns] = ()
    self_check: dict[str, Any] | None = None
    ledger: Ledger | None = None
    contrasts: Contrasts | None = None


def with_noise(params: Comparison, catalogue: Catalogue, every: Sequence[Recording]) -> tuple[Catalogue, LearnedNoise]:
    """Return the catalogue with the margins of `params` and noise scaled by the calibration, and the learned noise."""
    catalogue = with_times(catalogue, ((each.name, each.unit) for run in every for each in run.measurements))
    catalogue = catalogue.with_margins(params.margins)
    calibration = calibration_of(params, params.calibration) if params.calibration else None
    groups, self_check = groups_without(calibration, every) if calibration else ([], None)
    ledger = ledger_of(params)
    samples, simulated = {run.samples_sha256 for run in every}, any(recording.simulated for recording in every)
    changes = contrasts_in(ledger, params, samples, simulated=simulated) if ledger else None
    return beside_runs(catalogue, groups), LearnedNoise(groups, self_check, ledger, changes)


def _compared(
    params: Comparison,
    recordings: Mapping[str, TestRecordings],
    catalogue: Catalogue,
    learned: LearnedNoise,
    profiles: Mapping[str, Pair[list[Profile]] | None],
) -> dict[str, TestView]:
    """Compare the builds in every test; return each test with its result, by name."""
    label_noise = LabelNoise(learned.groups, catalogue.label_tables)
    kept = learned.ledger.find(entry_of(params, position=1)) if learned.ledger else None
    looks = {test.name: test.all_looks for test in kept.tests} if kept and kept.name == params.name else {}
    return {
        test.name: compare_test(
            test,
            recordings[test.name],
            catalogue,
            coordinator=params.coordinator,
            groups=learned.groups,
            past=learned.contrasts,
            label_noise=label_noise,
            labels=(params.base.label, params.new.label),
            looks=looks.get(test.name, ()),
            planned_runs=params.planned_runs,
            profiles=profiles[test.name],
        )
        for test in params.tests
    }


def _concluded(results: schema.Results, catalogue: Catalogue) -> schema.Results:
    """Return a copy of `results` with verdict, findings, suggestions, pooled metrics and plan of its tests."""
    tests, labels = results.tests, (results.base.label, results.new.label)
    past = (results.history, results.drift, results.setup_differences) if results.history else None
    plans = plan_tests(tests)
    settings = {
        "verdict": verdict.of_comparison(tests),
        "pooled": pool_metrics(tests, catalogue),
        "plan": plans,
        "suggestions": findings.suggest(tests, labels, findings_history.former_setup(*past) if past else (), plans),
        "findings": findings.find(
            tests, labels, results.provenance.inputs, catalogue, findings_history.find(*past) if past else ()
        ),
    }
    return results.model_copy(update=settings)


def _inputs(
    recordings: Mapping[str, TestRecordings], profiles: Mapping[str, Pair[list[Profile]] | None]
) -> list[schema.InputProvenance]:
    """List the files from which recordings and profiles were read, with their checksums."""
    read = [
        (test, side, i, str(run.provenance.get("kind", "")), file)
        for test, runs in recordings.items()
        for side, i, run in numbered(runs)
        for file in run.provenance.get("files", ())
    ]
    read += [
        (test, side, i, "profile", profile.provenance)
        for test, both in profiles.items()
        for side, i, profile in (numbered(both) if both else ())
    ]
    return [schema.InputProvenance(test=t, build=side, run=i, kind=kind, **file) for t, side, i, kind, file in read]


A = TypeVar("A", bound=Analysis)


def with_margins(analysis: A, margins: Mapping[str, float]) -> A:
    """Judge a comparison again with other `margins`, in percent for each metric; nothing is read or measured again."""
    params = analysis.params.model_copy(update={"margins": {**analysis.params.margins, **margins}})
    catalogue, results = analysis.catalogue.with_margins(margins), analysis.results
    compared = {name: judge_test(view, catalogue) for name, view in analysis.compared.items()}
    margin = catalogue.load.margin_percent if catalogue.load else 0.0
    settings = {
        "tests": [view.result for view in compared.values()],
        "history": results.history and results.history.model_copy(update={"margin_percent": margin}),
        "provenance": results.provenance.model_copy(update={"params_sha256": params_sha256(params)}),
    }
    results = _concluded(results.model_copy(update=settings), catalogue)
    return replace(analysis, params=params, catalogue=catalogue, results=results, compared=compared)
