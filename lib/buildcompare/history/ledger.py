"""Keep earlier comparisons in the ledger: a folder with one small JSON file for each.

Only ``report --record`` and ``history-import`` write to it. A file holds what was measured and on which setup, never
what was derived from it, so that a better analysis applies to the whole past.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from buildcompare.config.errors import InputError
from buildcompare.config.params import FileName, Named, version_in
from buildcompare.config.project import read_text, write_files, writing
from buildcompare.config.yaml import Strict, checked
from buildcompare.results.codes import SIDES, Pair, TestType, Verdict

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"
MAX_BYTES = 1_000_000  # an entry of forty tests has some 20 kB; what is larger is none
_DATABASES = {"postgres": "postgresql"}
"""Other names of databases: one chain, however a table or a params file spells it."""


def _pair(given: Any, default: int | None = None) -> Any:
    """The pair of a JSON object that may leave a build out."""
    partial = isinstance(given, dict) and given.keys() <= {*SIDES}
    return Pair.of(lambda side: given.get(side, default)) if partial else given


Name = Annotated[str, Field(min_length=1, max_length=200)]
Users = Annotated[Pair[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None], BeforeValidator(_pair)]
Counts = Annotated[Pair[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None], BeforeValidator(_pair)]
RunCounts = Annotated[Pair[Annotated[int, Field(ge=1)]], BeforeValidator(lambda given: _pair(given, 1))]
Look = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], Field(strict=False)]
Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TestKey = tuple[str, str]  # a test's type and database: what a test of one comparison is found again by in the next


class LedgerBuild(Strict):
    """A build by the name that people call it, and the version in that name."""

    label: Name
    version: str | None = Field(default=None, pattern=r"^\d{1,4}\.\d{1,4}(\.\d{1,6})*(-[a-z]+\.?\d+)?$")

    @classmethod
    def of(cls, label: str) -> LedgerBuild:
        """The build of this label, with the version in it."""
        return cls(label=label, version=version_in(label))

    @property
    def title(self) -> str:
        """Its version where it has one, else its label."""
        return f"v{self.version}" if self.version else self.label

    @property
    def minor(self) -> str | None:
        """Major and minor number: builds that share them count as the same version."""
        return None if self.version is None else ".".join(self.version.partition("-")[0].split(".")[:2])


class LedgerAtLoad(Strict):
    """One metric of both builds at the highest load (`users`) that both sustained."""

    users: Level
    base: Level
    new: Level
    within_se_log: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # of log(new / base), within the runs


class LedgerTest(Strict):
    """One test of a comparison, its figures of each build (null: none) over so many `runs`."""

    name: FileName
    type: TestType
    db_engine: str | None = Field(default=None, min_length=1, max_length=60)
    users: int | None = Field(default=None, gt=0)  # the target (bounded) or the ceiling (unbounded)
    supported_users: Users | None = None
    runs: RunCounts = Pair(1, 1)
    errors: Counts | None = None
    looks: list[Look] = Field(default_factory=list)
    """Runs of base and new at each earlier look, before the one that this is of."""
    levels_of_runs: dict[str, Pair[list[Level]]] = Field(default_factory=dict)
    """By metric (see :func:`buildcompare.stats.noise.series_key`), the level of each run over its steady window."""
    within_se_log: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """By metric, the standard error of the logarithm of new over base within the runs."""
    at_load: dict[str, LedgerAtLoad] = Field(default_factory=dict)  # by metric
    misread: list[str] = Field(default_factory=list)  # metrics that were read off plots, with an error worth a word
    windows_s: Pair[list[Level]] = Pair([], [])  # how long the steady window of each run is
    samples: list[str] = Field(default_factory=list)  # what its runs are known again by
    written: Users | None = None
    """The figures that people wrote about this test, where the ledger's source tells; both null: nobody did."""

    @field_validator("db_engine")
    @classmethod
    def _one_name(cls, db_engine: str | None) -> str | None:
        return _DATABASES.get((db_engine or "").casefold(), db_engine)

    @property
    def key(self) -> TestKey:
        """Type and database."""
        return self.type, (self.db_engine or "").casefold()

    @property
    def levels(self) -> Pair[float | None]:
        """The supported users, or None for each build."""
        return self.supported_users or Pair(None, None)

    @property
    def all_looks(self) -> list[tuple[int, int]]:
        """Runs of base and new at each look so far."""
        return list(dict.fromkeys([*self.looks, (self.runs.base, self.runs.new)]))


class Entry(Strict):
    """One comparison as the ledger keeps it. Studies answer a question of their own, and stay out of the chain."""

    schema_version: Literal[1] = 1
    name: FileName
    kind: Literal["monthly", "study"] = "monthly"
    position: int | None = Field(default=None, ge=1)
    base: LedgerBuild
    new: LedgerBuild
    verdict: Annotated[Verdict, Field(strict=False)] | None = None
    simulated: bool = False
    tests: Named[LedgerTest]
    setup: dict[str, str] = Field(default_factory=dict)  # rows of the setup table: Markdown, at their writer's choice
    coordinator: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    servers: list[Name] = Field(default_factory=list)
    source: Name  # what wrote this entry: ``report``, or the name of the table that it was imported from

    @model_validator(mode="after")
    def _placed(self) -> Entry:
        if (self.kind == "monthly") != (self.position is not None):
            raise ValueError("a `position` for a monthly comparison, and none for a study")
        return self

    @property
    def builds(self) -> Pair[LedgerBuild]:
        """Both builds."""
        return Pair(self.base, self.new)

    def looked_at(self, test: LedgerTest) -> LedgerTest:
        """`test`, a later look at this comparison, with its earlier looks."""
        earlier = [look for each in self.tests if each.name == test.name for look in each.all_looks]
        now = (test.runs.base, test.runs.new)
        return test.model_copy(update={"looks": [look for look in earlier if look != now]})

    def is_same_comparison(self, other: Entry) -> bool:
        """Whether both compare the same two builds: by name, or by two different versions to the last digit."""
        versions = (self.base.version, self.new.version)
        by_version = None not in versions and versions[0] != versions[1]
        same_versions = by_version and versions == (other.base.version, other.new.version)
        return same_versions or (self.base, self.new) == (other.base, other.new)


@dataclass(frozen=True)
class Ledger:
    """Every recorded comparison: the chain in its order, and the studies by name."""

    folder: Path
    entries: Sequence[Entry] = ()

    def __post_init__(self) -> None:
        placed: dict[int | None, Entry] = {}
        for entry in self.entries:
            other = placed.setdefault(entry.position, entry)
            if entry.position is not None and other is not entry:
                raise self._fault(entry, "position", f"another place than {other.name}'s", f"{entry.position} in both")

    @property
    def chain(self) -> list[Entry]:
        """The monthly comparisons, in their order."""
        return sorted((e for e in self.entries if e.position is not None), key=lambda e: e.position or 0)

    @property
    def studies(self) -> list[Entry]:
        """The studies, by name."""
        return [entry for entry in self.entries if entry.kind == "study"]

    def find(self, other: Entry) -> Entry | None:
        """The entry of the comparison that `other` is of; of several (repeated studies) that with its name."""
        alike = [entry for entry in self.entries if entry.is_same_comparison(other)]
        return next((entry for entry in alike if entry.name == other.name), alike[0] if alike else None)

    def namesake(self, entry: Entry) -> Entry | None:
        """The entry of the same comparison, if there is one; refuses a name or a pair of builds that is another's."""
        builds = f"{entry.base.label} with {entry.new.label}"
        namesake = next((each for each in self.entries if each.name.casefold() == entry.name.casefold()), None)
        if namesake is not None:
            same = (namesake.name, namesake.kind) == (entry.name, entry.kind) and namesake.is_same_comparison(entry)
            if not same:
                found = f"that of {namesake.base.label} with {namesake.new.label}"
                raise self._fault(namesake, "name", f"the comparison of {builds}, or another name", found)
        for other in self.entries:
            if other is not namesake and other.kind == entry.kind == "monthly" and other.is_same_comparison(entry):
                expected = f"{entry.name!r}, or no record yet of {builds}"
                raise self._fault(other, "name", expected, f"the same comparison as {other.name!r}")
        return namesake

    def with_entry(self, entry: Entry) -> Ledger:
        """The ledger with `entry` first, at the place that it had already, once nothing speaks against it."""
        namesake = self.namesake(entry)
        others = [each for each in self.entries if each is not namesake]
        if any(each.simulated != entry.simulated for each in others):
            kinds = ("measured", "simulated")
            expected = f"a {kinds[not entry.simulated]} comparison, as the others of this ledger"
            found = f"a {kinds[entry.simulated]} one"
            raise InputError(file=self.folder, key=entry.name, expected=expected, found=found)
        if namesake is not None:
            kept = {"position": namesake.position} if entry.kind == "monthly" else {}
            entry = entry.model_copy(update={**kept, "tests": [namesake.looked_at(test) for test in entry.tests]})
        return Ledger(self.folder, [entry, *others])

    def _fault(self, entry: Entry, key: str, expected: str, found: str) -> InputError:
        return InputError(file=self.folder / f"{entry.name}.json", key=key, expected=expected, found=found)

    @property
    def next_position(self) -> int:
        """The place after the last of the chain."""
        return 1 + max((entry.position or 0 for entry in self.entries), default=0)


def read_ledger(folder: Path) -> Ledger:
    """Read a ledger and check all of it; a folder that does not exist yet is an empty one."""
    if folder.exists() and not folder.is_dir():
        raise InputError(file=folder, key="history", expected="a folder", found="something else")
    return Ledger(folder, [_read(file) for file in sorted(folder.glob("*.json"))])


def _read(file: Path) -> Entry:
    key, expected = "history", "an entry that `report --record` or `history-import` wrote"
    text = read_text(file, expected, key=key, max_bytes=MAX_BYTES)
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # half a character could be read, and never written again
    except (ValueError, RecursionError) as error:
        raise InputError(file=file, key=key, expected=expected, found=str(error)[:200]) from None
    entry = checked(Entry, data, file=file)
    if entry.name != file.stem:
        raise InputError(file=file, key="name", expected=f"the file's name, {file.stem!r}", found=repr(entry.name))
    return entry


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from recording in `folder` meanwhile: two would take the same place."""
    with writing(folder, "history", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a")
    with file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record(folder: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write `entries` into the ledger at `folder`, each file whole or not at all; the same comparison keeps its place.

    Raises
    ------
    InputError
        Where a name, a pair of builds or a place belongs to another comparison, or measured and simulated would mix:
        then nothing is written.
    """
    ledger, texts = read_ledger(folder), {}
    for entry in entries:
        ledger = ledger.with_entry(entry)
        data = ledger.entries[0].model_dump(mode="json", exclude_defaults=True)
        texts[folder / f"{entry.name}.json"] = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    with writing(folder, "history", "a folder that can be written"):
        write_files(texts)
    return list(texts)
