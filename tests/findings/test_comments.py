"""Does docs/comments.md say what the generated results say, with its numbers? Five published comparisons."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from buildcompare.comparison import analysis as workbench
from buildcompare.comparison import reading
from buildcompare.config.params import check_params
from buildcompare.findings import above_the_fold
from buildcompare.results import Results
from evidence import without_evidence
from loadfiles.comparisons import import_table
from support import published_params

PAGE = Path(__file__).resolve().parents[2] / "docs/comments.md"
HEADER = "| claim | source | finding | place | we say | claimed ± tolerance |"
LEAST_CLAIMS = {"v10.4": 21, "v11.1": 4, "v9.6": 4, "v9.1": 2, "v9.2": 5}
"""Fewer rows than were written, and the page was not read as it is."""
_FIGURE = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Claim:
    """One row of the page: what somebody claimed, and where we say it, with our figures between ``**``."""

    release: str
    about: str
    finding: str
    place: str
    said: tuple[str, ...]
    claimed: tuple[tuple[float, float] | None, ...]  # by figure: the claim, and how far ours may be from it

    @property
    def figures(self) -> list[float]:
        bold = re.findall(r"\*\*(.+?)\*\*", " ".join(self.said))
        return [float(_FIGURE.findall(each)[0].replace(",", "").replace("−", "-")) for each in bold]


def claims() -> Iterator[Claim]:
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        release = section.split(":", 1)[0]
        if HEADER in section:
            table = section.split(HEADER, 1)[1].split("\n\n", 1)[0].splitlines()[2:]
            for line in table:
                about, _, finding, place, said, claimed = (cell.strip() for cell in line.strip("|").split(" | "))
                told = tuple(part.strip() for part in said.split("…"))
                yield Claim(release, about, finding.strip("`"), place, told, tuple(_claimed(claimed)))


def _claimed(cell: str) -> Iterator[tuple[float, float] | None]:
    if cell == "–":
        return
    for part in re.split(r"\s*,\s+", cell):
        value, _, tolerance = part.replace("−", "-").partition(" ± ")
        yield None if part.strip() == "–" else (float(value), float(tolerance))


@pytest.fixture(scope="module")
def ledger(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "ledger"
    import_table(real / "comparisons/history.csv", folder)
    return folder


@pytest.fixture(scope="module")
def made(real: Path, ledger: Path) -> dict[str, Results]:
    found = {}
    for release in LEAST_CLAIMS:
        params = check_params(published_params(real, release, ledger))
        found[release] = workbench.analyse(params, reading.read_recordings(params)).results
    return found


def sentences(results: Results, identity: str) -> list[tuple[str, str]]:
    top, rest = above_the_fold(results.findings)
    findings = [
        (place, each.whole)
        for place, those in (("top", top), ("folded", rest))
        for each in those
        if re.fullmatch(rf"{re.escape(identity)}(\.\d+)?", each.id)
    ]
    return findings or [("top", each.text) for each in results.suggestions if each.kind == identity]


@pytest.mark.parametrize("release", LEAST_CLAIMS)
def test_every_claim_is_in_the_results(made: dict[str, Results], release: str) -> None:
    rows = [claim for claim in claims() if claim.release == release]
    assert len(rows) >= LEAST_CLAIMS[release]
    results = made[release]
    assert not [each.id for each in results.findings if without_evidence(each, results)]
    assert release != "v10.4" or [each for each in results.findings if each.id.startswith("history.")]
    for claim in rows:
        plain = [part.replace("**", "") for part in claim.said]
        pattern = re.compile(".*".join(re.escape(part) for part in plain))
        holding = [(place, text) for place, text in sentences(made[release], claim.finding) if pattern.search(text)]
        assert holding, f"{claim.about}: {plain} is not in {sentences(made[release], claim.finding)}"
        assert claim.place == holding[0][0], claim.about


def test_every_figure_is_near_what_was_claimed() -> None:
    checked = 0
    for claim in claims():
        assert len(claim.claimed) in (0, len(claim.figures)), claim.about
        for ours, theirs in zip(claim.figures, claim.claimed, strict=False):
            if theirs is not None:
                assert abs(ours - theirs[0]) <= theirs[1] + 1e-9, f"{claim.about}: {ours}, claimed {theirs}"
                checked += 1
    assert checked > 50


def test_what_is_said_of_what_nobody_or_not_everybody_wrote(made: dict[str, Results]) -> None:
    texts = {release: " ".join(each.whole for each in results.findings) for release, results in made.items()}
    page = PAGE.read_text("utf-8")
    for release, said in [
        ("v10.4", "The order was the same in v8.0 (new −12.8 %), v9.0 (base −3.1 %, new −0.5 %), v9.2 (base −0.2 %)."),
        ("v10.4", "MySQL −10.2 %, Postgres −19.7 %; this contains both the drift and the change of the build"),
        ("v9.6", "17.0 % (MySQL) and 9.2 % (Postgres)"),
    ]:
        assert said in page
        assert all(figure in texts[release] for figure in re.findall(r"\d+\.\d %", said))
    assert "MySQL +17.0 %" in texts["v9.6"]
    assert "Postgres +9.2 %" in texts["v9.6"]
    assert {release: results.verdict for release, results in made.items()} == {
        "v10.4": "pass", "v11.1": "pass", "v9.6": "pass", "v9.1": "inconclusive", "v9.2": "pass",
    }  # fmt: skip
    assert [each.kind for each in made["v11.1"].suggestions] == ["look_at_label"]
    assert [each.kind for each in made["v9.6"].suggestions] == ["look_at_label"]
    for test in made["v9.1"].tests:
        assert {ramp.early_bumps for ramp in (test.ramp_up.base, test.ramp_up.new)} == {0}
