"""Keep earlier comparisons in the ledger: a folder with one JSON file per comparison, which people review and merge.

Only ``report --record`` and ``history-import`` write to it. It holds measurements, their setup and the verdict, but no
other conclusions, so that a better analysis can be applied to all earlier comparisons.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from buildcompare.config import project
from buildcompare.config.errors import ADDRESSES, InputError, named
from buildcompare.config.params import Comparison, FileName, Named, Test, version_in
from buildcompare.config.project import read_text, resolve, writing
from buildcompare.config.yaml import Strict, checked
from buildcompare.results import TestResult
from buildcompare.results.codes import SIDES, Pair, TestType, ValidityStatus, Verdict
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import series_key
from buildcompare.text.sentences import say

MAKING, RECORDED = ".making", ".recorded"
"""Name of a ledger's subfolder while files are written to it, and its new name when all files are complete.

The files are then moved from the renamed subfolder into the ledger."""
PACKED = "entries.parquet"  # the whole ledger in one file, as version 0.2 could write it
MAX_BYTES = 1_000_000  # maximum size of an entry in bytes; an entry with forty tests has about 20 kB
_DATABASES = {"postgres": "postgresql"}  # other spelling -> name of the database
_EXPECTED = "an entry that `report --record` or `history-import` wrote"


def _pair(data: Any, default: int | None = None) -> Any:
    """Convert a JSON object of base and new to a pair, with `default` for missing values; return other data as is."""
    if not isinstance(data, dict) or not data.keys() <= {*SIDES}:
        return data
    return Pair(data.get("base", default), data.get("new", default))


Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Users = Annotated[Pair[Level | None], BeforeValidator(_pair)]
Counts = Annotated[Pair[NotNegative | None], BeforeValidator(_pair)]
Bumps = Annotated[Pair[Annotated[int, Field(ge=0, le=10**6)]], BeforeValidator(_pair)]
RunCounts = Annotated[Pair[Count], BeforeValidator(functools.partial(_pair, default=1))]
Look = Annotated[tuple[Count, Count], Field(strict=False)]
TestKey = tuple[str, str]  # type and database


class LedgerBuild(Strict):
    """A build: its label, and the version that the label contains."""

    label: Name
    version: str | None = Field(default=None, pattern=r"^\d{1,4}\.\d{1,4}(\.\d{1,6})*(-[a-z]+\.?\d+)?$")

    @classmethod
    def of(cls, label: str) -> LedgerBuild:
        """The build with this label."""
        return cls(label=label, version=version_in(label))

    @property
    def title(self) -> str:
        """The version of the build if it has one, else the label."""
        return f"v{self.version}" if self.version else self.label

    @property
    def without_run(self) -> str:
        """The label without a run number at its end: ``v1.2, run 1`` and ``v1.2, run 2`` name the same build."""
        return re.sub(r"\W*\brun \d+$", "", self.label)

    @property
    def minor(self) -> str | None:
        """Major and minor number of the version, such as ``10.4`` for ``10.4.1``; None if the version is unknown."""
        return None if self.version is None else ".".join(self.version.partition("-")[0].split(".")[:2])


class LedgerAtLoad(Strict):
    """One metric of both builds at the highest load (`users`) that both sustained."""

    users: Level
    base: Level
    new: Level
    within_se_log: NotNegative  # standard error of log(new / base) within the runs


class ChainTest(Strict, extra="ignore"):
    """Part of a test that is loaded for every comparison of a ledger. Pairs hold base and new, null if unknown."""

    name: Name
    type: TestType
    db_engine: str | None = Field(default=None, min_length=1, max_length=60)
    supported_users: Users | None = None
    runs: RunCounts = Pair(1, 1)
    errors: Counts | None = None
    users: Count | None = None  # target number of users (bounded test) or maximum number of users (unbounded test)
    early_bumps: Bumps | None = None

    @field_validator("db_engine")
    @classmethod
    def _one_name(cls, db_engine: str | None) -> str | None:
        return _DATABASES.get((db_engine or "").casefold(), db_engine)

    @property
    def key(self) -> TestKey:
        """Type and database, which identify the test in other comparisons."""
        return self.type, (self.db_engine or "").casefold()

    @property
    def levels(self) -> Pair[float | None]:
        """Supported users of each build."""
        return self.supported_users or Pair(None, None)


class LedgerTest(ChainTest, extra="forbid"):
    """One test of a comparison."""

    name: FileName
    looks: list[Look] = Field(default_factory=list)
    """Numbers of runs of base and new at each earlier analysis of this comparison."""
    levels_of_runs: dict[str, Pair[list[Level]]] = Field(default_factory=dict)
    """Metric (:func:`buildcompare.stats.noise.series_key`) -> level of each run over its steady window."""
    within_se_log: dict[str, NotNegative] = Field(default_factory=dict)
    """Metric -> standard error of log(new / base) from the samples within the runs."""
    at_load: dict[str, LedgerAtLoad] = Field(default_factory=dict)  # metric -> result at equal load
    misread: list[str] = Field(default_factory=list)  # metrics read off plots, with a reading error
    windows_s: Pair[list[Level]] = Field(default_factory=lambda: Pair(list[float](), list[float]()))
    """Length of each run's steady window, in seconds."""
    samples: list[str] = Field(default_factory=list)  # SHA-256 of each run's samples
    written: Users | None = None
    """Supported users of base and new in a published report (null if not stated); None if no report is known."""

    @property
    def all_looks(self) -> list[tuple[int, int]]:
        """Numbers of runs of base and new at each analysis of this comparison, including the present one."""
        return list(dict.fromkeys([*self.looks, (self.runs.base, self.runs.new)]))


class ChainEntry(Strict):
    """Part of a ledger entry that is loaded for every comparison; :class:`Entry` is the whole entry."""

    schema_version: Literal[1] = 1
    name: FileName
    kind: Literal["monthly", "study"] = "monthly"
    position: Count | None = None
    base: LedgerBuild
    new: LedgerBuild
    verdict: Annotated[Verdict, Field(strict=False)] | None = None
    simulated: bool = False
    tests: Named[ChainTest]
    setup: dict[str, str] = Field(default_factory=dict)  # rows of the setup table, in Markdown
    coordinator: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    servers: list[Name] = Field(default_factory=list)
    source: Name  # ``report``, or the file name of the imported table

    @model_validator(mode="after")
    def _placed(self) -> ChainEntry:
        if (self.kind == "monthly") != (self.position is not None):
            raise ValueError("a `position` for a monthly comparison, and none for a study")
        return self

    @property
    def builds(self) -> Pair[LedgerBuild]:
        """Both builds."""
        return Pair(self.base, self.new)

    @property
    def builds_compared(self) -> list[tuple[object, ...]]:
        """Keys of the pair of builds: by label and version; if both versions are known and differ, also by version."""
        base, new = self.base, self.new
        by_label, by_version = (base.label, base.version, new.label, new.version), (base.version, new.version)
        return [by_label, by_version] if None not in by_version and base.version != new.version else [by_label]


class Entry(ChainEntry):
    """One comparison in the ledger: a monthly comparison with a position, or a separate study without a position."""

    tests: Named[LedgerTest]  # type: ignore[assignment]  # lists are invariant; entries are never changed

    def looked_at(self, test: LedgerTest) -> LedgerTest:
        """Return `test` with `looks` (numbers of runs at earlier analyses) from this entry's test of the same name."""
        earlier = [look for each in self.tests if each.name == test.name for look in each.all_looks]
        now = (test.runs.base, test.runs.new)
        return test.model_copy(update={"looks": [look for look in earlier if look != now]})


class Ledger:
    """Comparisons of a ledger, by name.

    Parameters
    ----------
    folder
        Folder of the comparisons' files.
    read
        Entries with the SHA-256 of their files, in any order. Two entries at one position raise an :class:`InputError`.
    """

    def __init__(self, folder: Path = Path(), read: Iterable[tuple[ChainEntry, str]] = ()) -> None:
        self.folder = folder
        self.by_name: dict[str, ChainEntry] = {}
        self.sha256: dict[str, str] = {}  # SHA-256 of each file, by name
        self._names: dict[str, str] = {}  # names by their lower-case form
        self._positions: dict[int, str] = {}
        self._compared: dict[tuple[object, ...], set[str]] = defaultdict(set)
        for entry, self.sha256[entry.name] in read:
            self._add(entry)

    @property
    def listed(self) -> list[ChainEntry]:
        """All entries: monthly comparisons by position, then separate studies by name."""
        return sorted(self.by_name.values(), key=lambda each: (each.position or math.inf, each.name))

    def entry(self, name: str) -> Entry:
        """The whole entry of a comparison, read from its file if only a part is in memory."""
        entry = self.by_name[name]
        return entry if isinstance(entry, Entry) else _read(str(self.folder / f"{name}.json"), Entry)[0]

    @property
    def entries(self) -> list[Entry]:
        """Whole entries, in the order of `listed`."""
        return [self.entry(each.name) for each in self.listed]

    @property
    def next_position(self) -> int:
        """The position of the next monthly comparison: one above the highest position in the ledger."""
        return 1 + max(self._positions, default=0)

    def alike(self, other: ChainEntry) -> list[str]:
        """Sorted names of all entries (separate studies included) that compare the same builds as `other`."""
        return sorted({name for builds in other.builds_compared for name in self._compared.get(builds, ())})

    def find(self, other: ChainEntry) -> Entry | None:
        """Find the entry that compares the same builds as `other`; of several, prefer the one with the same name."""
        alike = self.alike(other)
        return self.entry(other.name if other.name in alike else alike[0]) if alike else None

    def namesake(self, entry: Entry) -> Entry | None:
        """Find the entry that `entry` replaces; raise if another has the same name or (if monthly) the same builds."""
        if self.folder in ADDRESSES:
            raise InputError(file=self.folder, key="history", expected="a local folder", found="an address (read only)")
        builds, alike = f"{entry.base.label} with {entry.new.label}", self.alike(entry)
        name = self._names.get(entry.name.casefold())
        same = self.entry(name) if name else None
        if same and not ((same.name, same.kind) == (entry.name, entry.kind) and entry.name in alike):
            found = f"that of {same.base.label} with {same.new.label}"
            raise self._fault(same.name, "name", f"the comparison of {builds}, or another name", found)
        for other in alike:
            if other != name and entry.kind == "monthly" and self.by_name[other].position is not None:
                expected = f"{entry.name!r}, or builds that no entry compares ({builds})"
                raise self._fault(other, "name", expected, f"an entry {other!r} that compares them")
        return same

    def place(self, entry: Entry) -> Entry:
        """Add `entry` with position and looks of any entry that it replaces; return the result or raise on conflict."""
        same = self.namesake(entry)
        other = next((each for each in self.by_name.values() if each.name != entry.name), None)
        if other and other.simulated != entry.simulated:
            kinds = ("measured", "simulated")
            expected = f"a {kinds[other.simulated]} comparison, as the others of this ledger"
            found = f"a {kinds[entry.simulated]} one"
            raise InputError(file=self.folder, key=entry.name, expected=expected, found=found)
        if same is not None:
            tests = [same.looked_at(test) for test in entry.tests]
            entry = entry.model_copy(update={"position": same.position, "tests": tests})
        self._add(entry)
        return entry

    def _add(self, entry: ChainEntry) -> None:
        if entry.position is not None:
            other = self._positions.setdefault(entry.position, entry.name)
            if other != entry.name:
                expected = f"a position other than {other}'s"
                raise self._fault(entry.name, "position", expected, f"{entry.position} in both")
        self.by_name[entry.name] = entry
        self._names[entry.name.casefold()] = entry.name
        for builds in entry.builds_compared:
            self._compared[builds].add(entry.name)

    def _fault(self, name: str, key: str, expected: str, found: str) -> InputError:
        return InputError(file=self.folder / f"{name}.json", key=key, expected=expected, found=found)


def ledger_of(params: Comparison) -> Ledger | None:
    """Read the ledger that the params name, if any."""
    return None if params.history is None else read_ledger(resolve(params.history, is_folder=True))


def read_ledger(folder: Path) -> Ledger:
    """Read and check a ledger, and raise an InputError if it is damaged; a missing folder gives an empty ledger."""
    if folder.exists() and not folder.is_dir():
        raise InputError(file=folder, key="history", expected="a folder", found="something else")
    if (folder / PACKED).exists():
        expected = "only JSON files (`history-pack --undo` of version 0.2 writes them)"
        raise InputError(file=folder / PACKED, key="history", expected=expected, found="packed entries")
    if (folder / RECORDED).exists():
        with _locked(folder):  # `_locked` first finishes what a killed process began to record
            pass
    return Ledger(folder, (_read(file, ChainEntry) for file in sorted(map(str, folder.glob("*.json")))))


E = TypeVar("E", bound=ChainEntry)


def _read(file: str, model: type[E]) -> tuple[E, str]:
    """Read and check an entry, from a cache if its file is unchanged; also return the SHA-256 of the file."""
    seen = None
    with contextlib.suppress(OSError):
        seen = os.stat(file)
    return read_entry(file, model, seen and (seen.st_ino, seen.st_mtime_ns, seen.st_size))


@functools.lru_cache(maxsize=10_000)
def read_entry(file: str, model: type[E], _: tuple[int, int, int] | None) -> tuple[E, str]:
    """Return a checked entry and its file's SHA-256; the last argument (inode, mtime, size) is only a cache key."""
    text = read_text(file, _EXPECTED, key="history", max_bytes=MAX_BYTES)
    try:
        entry = model.model_validate_json(text)
    except ValidationError:
        try:
            data = from_json(text)
        except ValueError as error:
            raise InputError(file=file, key="history", expected=_EXPECTED, found=str(error)[:200]) from None
        entry = checked(model, data, file=Path(file))  # raises an error that names the fault
    if entry.name != (stem := os.path.basename(file).removesuffix(".json")):
        raise InputError(file=file, key="name", expected=f"the file's name, {stem!r}", found=repr(entry.name))
    return entry, hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from recording in `folder`; first finish the recording of a killed process."""
    with writing(folder, "history", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        with project.locked(folder):
            shutil.rmtree(folder / MAKING, ignore_errors=True)
            _put_in_place(folder)
            yield


def _put_in_place(folder: Path) -> None:
    recorded = folder / RECORDED
    if recorded.is_dir():
        for file in recorded.iterdir():
            file.replace(folder / file.name)
        recorded.rmdir()


def record(folder: Path, entries: Sequence[Entry], *, at_end: bool = False) -> Ledger:
    """Write `entries` into the ledger at `folder`, all or none, even if the process is killed; return the whole ledger.

    A comparison that is recorded again keeps its position and the list of its earlier analyses. With `at_end`, new
    monthly comparisons follow all others in the order of `entries`, whatever their `position`. Raises an InputError if
    another comparison has the same name, builds or position, or if the ledger would mix measured and simulated entries.
    """
    with _locked(folder):
        ledger, placed = read_ledger(folder), []
        for entry in entries:
            last = {"position": ledger.next_position} if at_end and entry.kind == "monthly" else {}
            placed.append(ledger.place(entry.model_copy(update=last)))
        making = folder / MAKING
        try:
            making.mkdir()
            for entry in placed:
                data = entry.model_dump(mode="json", exclude_defaults=True)
                text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
                (making / f"{entry.name}.json").write_bytes(text.encode())
            making.rename(folder / RECORDED)
        finally:
            shutil.rmtree(making, ignore_errors=True)
        _put_in_place(folder)
    return read_ledger(folder)


def entry_of(
    params: Comparison,
    tests: Sequence[TestResult] = (),
    *,
    position: int | None,
    simulated: bool = False,
    verdict: Verdict | None = None,
) -> Entry:
    """Make a ledger entry from params and results: a monthly comparison, or a separate study if `position` is None."""
    steps = params.coordinator
    runs = [run for test in tests for run in (*test.runs.base, *test.runs.new)]
    servers = {f"{run.server.kind} {run.server.version}".strip()[:200] for run in runs if run.server}
    return Entry(
        name=params.name or "comparison",  # a placeholder: a comparison without a name is never recorded
        kind="study" if position is None else "monthly",
        position=position,
        base=LedgerBuild.of(params.base.label),
        new=LedgerBuild.of(params.new.label),
        verdict=verdict,
        simulated=simulated,
        tests=[_test(test, result) for test, result in itertools.zip_longest(params.tests, tests)],
        setup=dict(params.setup),
        coordinator=steps.model_dump(exclude={"thresholds"})
        | {f"threshold_{name}": value for name, value in steps.thresholds.items()},
        servers=sorted(servers - {""}),
        source="report",
    )


def _test(test: Test, result: TestResult | None) -> LedgerTest:
    if result is None:
        return LedgerTest(name=test.name, type=test.type, db_engine=test.db_engine)
    counts = Pair.of(lambda side: [run.errors for run in test.runs(side)])
    errors = counts.map(lambda each: None if None in each else mean_of_runs(each))
    return ledger_test(result, errors=None if errors == Pair(None, None) else errors)


def ledger_test(result: TestResult, errors: Counts | None = None) -> LedgerTest:
    """Extract what a ledger keeps from the result of a test; the metrics of an invalid test are left out."""
    users = Pair.of(lambda side: getattr(result.supported_users, side, None) or None)
    runs, rows = result.runs, result.metrics if result.validity.status != ValidityStatus.INVALID else []
    levels = {series_key(row.slug, row.labels): row.levels for row in rows}
    at_load = {row.slug: row.load_adjusted for row in rows if row.load_adjusted}
    bumps = Pair.of(lambda side: getattr(result.ramp_up, side).early_bumps)
    windows = runs.map(lambda side: [run.window[1] - run.window[0] for run in side if rows and run.window])
    samples = [run.samples_sha256 for side in runs for run in side if rows and run.samples_sha256]
    kept: Mapping[str, object] = {
        "name": result.name,
        "type": result.type,
        "db_engine": result.db_engine,
        "users": result.users,
        "supported_users": users if any(users) else None,
        "runs": runs.map(len),
        "errors": errors,
        "early_bumps": None if result.type != "unbounded" or None in bumps else bumps,
        "levels_of_runs": {key: each for key, each in levels.items() if min((*each.base, *each.new), default=0.0) > 0},
        "within_se_log": {series_key(row.slug, row.labels): row.within_se_log for row in rows if row.within_se_log},
        "at_load": {slug: row.model_dump(include={*LedgerAtLoad.model_fields}) for slug, row in at_load.items()},
        "misread": sorted({row.slug for row in rows if row.reading_error_percent}),
        "windows_s": windows,
        "samples": samples,
    }
    return LedgerTest.model_validate(kept)


def place_in_words(ledger: Ledger, name: str) -> str:
    """Return a sentence on the position of comparison `name` in the ledger, and on newer versions placed before it."""
    minors = {each.name: each.new.minor or "" for each in ledger.listed if each.position is not None}
    numbers = {each: [int(part) for part in minor.split(".") if part] for each, minor in minors.items()}
    before = list(itertools.takewhile(lambda each: each != name, numbers)) if name in numbers else None
    later = [each for each in before or () if numbers[name] and numbers[each] > numbers[name]]
    return say("history", "recorded", named(ledger.folder), name, before, len(numbers), later)
