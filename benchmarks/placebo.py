"""How often does a report find something where nothing changed?

    python benchmarks/placebo.py [FOLDER] [--ledger]

Two placebos, by kind of finding. First every two identical runs of Mattermost's ceiling tests are compared in both
orders, judged by the other configurations; every second configuration, by name, belongs to the other half, so that a
setting made on one half is checked on the other. Then every published release is analysed as it was and with
base and new swapped: what a swap finds as often says nothing of the new build. A kind of `SYMMETRIC` is found as often
by nature. As gains are losses when swapped, `left` counts the warnings without tests whose change is beyond doubt: a
row that decides has p < `SURE`. Swapped warnings of users are those of v9.11-v10.5, whose makers publish gains of 11 to
13 % in run 1 and of 8 to 9 % in run 2 of the same builds: gains that repeat, and no noise.
`FOLDER` is the folder of real recordings (BUILDCOMPARE_REAL). With `--ledger` each release is judged by the noise that
the others teach.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd
from identical import CATALOGUE, SMALL, read
from releases import Recordings, comparison, with_labels

from buildcompare import findings
from buildcompare.calibration.file import beside_runs
from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.measure import compare_test
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.params import Comparison, Run, Test
from buildcompare.history.ledger import entry_of, record
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.view import view_run
from buildcompare.results import Finding, TestResult
from buildcompare.stats.noise import RepeatedRuns
from loadcalibrate.learn import run_levels
from validity import published

HEADER = f"{'':44} {'warning':>9} {'left':>9} {'info':>9}"
SYMMETRIC = {"validity"}
"""Kinds that a swap finds again by nature: a run that lost agents, or whose users are another run's, is either's."""
SURE = 0.001
"""p-value of a change beyond doubt: one of 1,000 unchanged rows has it, and the releases have about 200."""
GAIN_PERCENT = 5


def main(*given: str) -> None:
    """Print both placebos."""
    folder = next((each for each in given if not each.startswith("--")), None)
    real = Path(folder or os.environ.get("BUILDCOMPARE_REAL") or "../shared/real")
    identical_pairs(real)
    swapped_releases(real, "--ledger" in given)


def identical_pairs(real: Path) -> None:
    """Print the kinds of findings in comparisons of identical runs, by half and kind of test."""
    recordings, reported = read(real)
    groups = {
        key: RepeatedRuns(*key, [run_levels(view_run(r, key[1], CATALOGUE), key[1], CATALOGUE) for r in runs])  # type: ignore[arg-type]
        for key, runs in recordings.items()
    }
    counts: dict[tuple[str, str], Counts] = {}
    judged = sorted((kind, name) for name, kind in recordings if name not in SMALL)
    for place, (kind, name) in enumerate(judged):
        runs = recordings[name, kind]
        others = [group for group in groups.values() if group.name not in (name, *SMALL)]
        catalogue = beside_runs(CATALOGUE, others)
        seen = counts.setdefault((kind, "second" if place % 2 else "first"), Counts())
        for i, j in itertools.permutations(range(len(runs)), 2):
            base, new = (Run(report="-", supported_users=reported.get((name, n + 1))) for n in (i, j))
            test = Test(name=f"{name}_{i}_{j}", type=kind, base=[base], new=[new])  # type: ignore[arg-type]
            pair = {"base": [runs[i]], "new": [runs[j]]}
            result = compare_test(test, pair, catalogue, groups=others, label_noise=LabelNoise(others)).result
            seen.add(str(result.verdict), findings.find([result], ("first", "second")))
    for (kind, part), seen in sorted(counts.items()):
        seen.show(f"Identical runs, {kind} tests, {part} half, both orders")


def swapped_releases(real: Path, with_ledger: bool) -> None:
    """Print the kinds of findings in published releases, as they are and with base and new swapped."""
    tests: dict[str, list[Test]] = {}
    for name, test, _ in published(real):
        release = name.split()[0]
        tests.setdefault(release, []).append(with_labels(test, real / "comparisons" / release / test.name))
    releases = {name: comparison(name, each) for name, each in tests.items()}
    rows = pd.read_csv(real / "comparisons/history.csv").query("test_type == 'unbounded'")
    names = rows["release"] + rows["run"].map(lambda run: f"-{run}" if isinstance(run, str) else "")
    users = rows["delta_pct"][names.isin(releases)]
    gains, losses = (users >= GAIN_PERCENT).sum(), (users <= -GAIN_PERCENT).sum()
    print(f"\nSupported users of {len(users)} unbounded tests, as published: {gains} gains and {losses} losses of "
          f"{GAIN_PERCENT} % or more; a swap makes losses of the gains")  # fmt: skip
    recordings = {name: read_recordings(params) for name, params in releases.items()}
    show_releases("Releases as they are", releases, recordings, with_ledger)
    turned = {
        name: params.model_copy(
            update={
                "base": params.new,
                "new": params.base,
                "tests": [test.model_copy(update={"base": test.new, "new": test.base}) for test in params.tests],
            }
        )
        for name, params in releases.items()
    }
    back = {
        name: {test: {"base": runs["new"], "new": runs["base"]} for test, runs in each.items()}
        for name, each in recordings.items()
    }
    show_releases("Releases with base and new swapped", turned, back, with_ledger)


def show_releases(
    title: str, releases: Mapping[str, Comparison], recordings: Mapping[str, Recordings], with_ledger: bool
) -> None:
    """Print the verdicts and the kinds of findings of all releases."""
    seen = Counts()
    with tempfile.TemporaryDirectory() as ledger:
        if with_ledger:
            alone = {name: analyse(params, recordings[name]).results.tests for name, params in releases.items()}
            places = {name: None if "-run" in name else i for i, name in enumerate(releases, 1)}  # studies have none
            record(Path(ledger), [entry_of(releases[n], alone[n], position=place) for n, place in places.items()])
            releases = {name: each.model_copy(update={"history": ledger}) for name, each in releases.items()}
        for name, params in releases.items():
            results = analyse(params, recordings[name]).results
            sure = {test.name for test in results.tests if _sure(test)}
            seen.add(str(results.verdict), results.findings, sure)
            if sure:
                print(f"{title}, {name}: beyond doubt: {', '.join(sorted(sure))}")
            if grave := [each.id for each in results.findings if each.severity != "info"]:
                print(f"{title}, {name}: {', '.join(grave)}")
    seen.show(title)


def _sure(test: TestResult) -> bool:
    """Whether a row that the verdict of a test rests on changed beyond doubt."""
    rows = [test.supported_users, *(metric.deciding for metric in test.metrics if metric.gate)]
    return any(row is not None and row.p_value is not None and row.p_value < SURE for row in rows)


class Counts:
    """In how many comparisons each kind of finding occurs, by severity."""

    def __init__(self) -> None:
        self.of = 0
        self.verdicts: Counter[str] = Counter()
        self.kinds: Counter[tuple[str, bool]] = Counter()
        self.left: Counter[str] = Counter()
        """Warnings by kind without tests whose change is beyond doubt."""

    def add(self, verdict: str, found: list[Finding], sure: Collection[str] = ()) -> None:
        """Count one comparison, in which the tests `sure` changed beyond doubt."""
        self.of += 1
        self.verdicts[verdict] += 1
        self.kinds.update({(str(each.kind), each.severity != "info") for each in found})
        grave = [each for each in found if each.severity != "info"]
        self.kinds["any kind", True] += bool(grave)
        self.kinds["any kind with a direction", True] += any(each.kind not in SYMMETRIC for each in grave)
        left = [each.kind for each in grave if each.test not in sure]
        self.left.update({"any kind", *map(str, left)} if left else ())
        self.left["any kind with a direction"] += any(kind not in SYMMETRIC for kind in left)

    def show(self, title: str) -> None:
        """Print the table of one placebo."""
        print(f"\n{title}: {self.of} comparisons; {', '.join(f'{n} {v}' for v, n in sorted(self.verdicts.items()))}")
        print(HEADER)
        for kind in sorted({kind for kind, _ in self.kinds}):
            shares = self.kinds[kind, True], self.left[kind], self.kinds[kind, False]
            name = f"{kind} (symmetric by nature)" if kind in SYMMETRIC else kind
            print(f"{name:44} {' '.join(f'{self.share(each):>9}' for each in shares)}")

    def share(self, count: int) -> str:
        """A count as a share of all comparisons."""
        return f"{100 * count / self.of:.1f} %"


if __name__ == "__main__":
    main(*sys.argv[1:])
