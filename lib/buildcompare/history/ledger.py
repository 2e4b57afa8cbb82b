"""Keep earlier comparisons in the ledger: a folder with one JSON file for each, which people review and merge.

Only ``report --record`` and ``history-import`` write to it. It holds measurements and their setup, never what was
derived from them, so that a better analysis applies to the whole past.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from buildcompare.config import project
from buildcompare.config.errors import ADDRESSES, InputError
from buildcompare.config.params import FileName, Named, version_in
from buildcompare.config.project import read_text, writing
from buildcompare.config.yaml import Strict, checked
from buildcompare.results.codes import SIDES, Pair, TestType, Verdict

MAKING, RECORDED = ".making", ".recorded"
"""Folders in a ledger's: files being written, and files that count but are not yet in their places.

One rename turns the first into the second."""
PACKED = "entries.parquet"  # of version 0.2
MAX_BYTES = 1_000_000  # an entry of forty tests has some 20 kB
NEWEST = 200
"""Monthly comparisons whose metrics are read: noise is learned from the latest. With two databases their 400 changes
tell a standard deviation within 6 %."""
_DATABASES = {"postgres": "postgresql"}  # other spellings of databases


def _pair(data: Any, default: int | None = None) -> Any:
    """The pair of a JSON object that may leave a build out."""
    if not isinstance(data, dict) or not data.keys() <= {*SIDES}:
        return data
    return Pair(data.get("base", default), data.get("new", default))


Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Users = Annotated[Pair[Level | None], BeforeValidator(_pair)]
Counts = Annotated[Pair[NotNegative | None], BeforeValidator(_pair)]
RunCounts = Annotated[Pair[Count], BeforeValidator(lambda data: _pair(data, 1))]
Look = Annotated[tuple[Count, Count], Field(strict=False)]
TestKey = tuple[str, str]  # type and database


class LedgerBuild(Strict):
    """A build: its label, and the version in the label."""

    label: Name
    version: str | None = Field(default=None, pattern=r"^\d{1,4}\.\d{1,4}(\.\d{1,6})*(-[a-z]+\.?\d+)?$")

    @classmethod
    def of(cls, label: str) -> LedgerBuild:
        """The build with this label."""
        return cls(label=label, version=version_in(label))

    @property
    def title(self) -> str:
        """Its version if it has one, else its label."""
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
    within_se_log: NotNegative  # standard error of log(new / base) within the runs


class LedgerTest(Strict):
    """One test of a comparison; figures are pairs of base and new, null if unknown."""

    name: FileName
    type: TestType
    db_engine: str | None = Field(default=None, min_length=1, max_length=60)
    users: Count | None = None  # the target (bounded) or the ceiling (unbounded)
    supported_users: Users | None = None
    runs: RunCounts = Pair(1, 1)
    errors: Counts | None = None
    looks: list[Look] = Field(default_factory=list)
    """Runs of base and new at each earlier look at this comparison."""
    levels_of_runs: dict[str, Pair[list[Level]]] = Field(default_factory=dict)
    """Metric (:func:`buildcompare.stats.noise.series_key`) -> level of each run over its steady window."""
    within_se_log: dict[str, NotNegative] = Field(default_factory=dict)
    """Metric -> standard error of log(new / base) within the runs."""
    at_load: dict[str, LedgerAtLoad] = Field(default_factory=dict)  # by metric
    misread: list[str] = Field(default_factory=list)  # metrics read off plots, with a reading error
    windows_s: Pair[list[Level]] = Field(default_factory=lambda: Pair(list[float](), list[float]()))
    """Length of each run's steady window."""
    samples: list[str] = Field(default_factory=list)  # SHA-256 of each run's samples
    written: Users | None = None
    """Figures that people published about this test; both null: none."""

    @field_validator("db_engine")
    @classmethod
    def _one_name(cls, db_engine: str | None) -> str | None:
        return _DATABASES.get((db_engine or "").casefold(), db_engine)

    @property
    def key(self) -> TestKey:
        """Type and database: the same test of another comparison has the same."""
        return self.type, (self.db_engine or "").casefold()

    @property
    def levels(self) -> Pair[float | None]:
        """Supported users of each build."""
        return self.supported_users or Pair(None, None)

    @property
    def all_looks(self) -> list[tuple[int, int]]:
        """Runs of base and new at each look so far."""
        return list(dict.fromkeys([*self.looks, (self.runs.base, self.runs.new)]))


class Entry(Strict):
    """One comparison in the ledger. A study answers a question of its own and stays outside the chain."""

    schema_version: Literal[1] = 1
    name: FileName
    kind: Literal["monthly", "study"] = "monthly"
    position: Count | None = None
    base: LedgerBuild
    new: LedgerBuild
    verdict: Annotated[Verdict, Field(strict=False)] | None = None
    simulated: bool = False
    tests: Named[LedgerTest]
    setup: dict[str, str] = Field(default_factory=dict)  # rows of the setup table, in Markdown
    coordinator: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    servers: list[Name] = Field(default_factory=list)
    source: Name  # ``report``, or the file name of the imported table

    @model_validator(mode="after")
    def _placed(self) -> Entry:
        if (self.kind == "monthly") != (self.position is not None):
            raise ValueError("a `position` for a monthly comparison, and none for a study")
        return self

    @property
    def builds(self) -> Pair[LedgerBuild]:
        """Both builds."""
        return Pair(self.base, self.new)

    @property
    def place(self) -> tuple[bool, int, str]:
        """Sort key: the chain in its order, then studies by name."""
        return self.position is None, self.position or 0, self.name

    @property
    def builds_compared(self) -> list[tuple[object, ...]]:
        """Both builds by label, and by version if the versions differ: either identifies the comparison."""
        by_label = tuple((build.label, build.version) for build in self.builds)
        by_version = tuple(build.version for build in self.builds)
        return [by_label, by_version] if None not in by_version and len({*by_version}) == 2 else [by_label]

    def looked_at(self, test: LedgerTest) -> LedgerTest:
        """`test`, a later look at this comparison, with its earlier looks."""
        earlier = [look for each in self.tests if each.name == test.name for look in each.all_looks]
        now = (test.runs.base, test.runs.new)
        return test.model_copy(update={"looks": [look for look in earlier if look != now]})


_NO_WINDOWS = Pair(list[float](), list[float]())


class OlderTest(LedgerTest, extra="ignore"):
    """A test of a comparison before the `NEWEST`: nothing is learned from its metrics, so they are not read."""

    levels_of_runs: dict[str, Pair[list[Level]]] = Field(default_factory=dict, validation_alias="-0")
    within_se_log: dict[str, NotNegative] = Field(default_factory=dict, validation_alias="-1")
    at_load: dict[str, LedgerAtLoad] = Field(default_factory=dict, validation_alias="-2")
    samples: list[str] = Field(default_factory=list, validation_alias="-3")
    misread: list[str] = Field(default_factory=list, validation_alias="-4")
    windows_s: Pair[list[Level]] = Field(default_factory=lambda: _NO_WINDOWS, validation_alias="-5")


class OlderEntry(Entry):
    """A comparison before the `NEWEST`."""

    tests: Named[OlderTest]  # type: ignore[assignment]  # lists are invariant; entries are never changed


class Ledger:
    """Comparisons by name, indexed by their builds and places.

    Parameters
    ----------
    folder
        Where their files are.
    entries
        In any order; two at one place are an :class:`InputError`.
    digests
        SHA-256 of each comparison's file, by its name.
    """

    def __init__(
        self, folder: Path = Path(), entries: Iterable[Entry] = (), digests: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.digests = digests or {}
        self.by_name: dict[str, Entry] = {}
        self._names: dict[str, str] = {}  # by name without regard to case
        self._places: dict[int, str] = {}
        self._compared: dict[tuple[object, ...], set[str]] = defaultdict(set)
        self._simulated: Counter[bool] = Counter()
        for entry in entries:
            self._add(entry)

    @property
    def entries(self) -> list[Entry]:
        """The chain in its order, then the studies by name."""
        return sorted(self.by_name.values(), key=lambda entry: entry.place)

    @property
    def chain(self) -> list[Entry]:
        """The monthly comparisons, in their order."""
        return [entry for entry in self.entries if entry.kind == "monthly"]

    @property
    def studies(self) -> list[Entry]:
        """The studies, by name."""
        return [entry for entry in self.entries if entry.kind == "study"]

    @property
    def next_position(self) -> int:
        """The place after the last of the chain."""
        return 1 + max(self._places, default=0)

    def alike(self, other: Entry) -> list[str]:
        """Names of the entries of the comparison that `other` is of: several of a repeated study."""
        return sorted({name for builds in other.builds_compared for name in self._compared.get(builds, ())})

    def find(self, other: Entry) -> Entry | None:
        """The entry of the comparison that `other` is of; of several the one with its name."""
        alike = self.alike(other)
        return self.by_name[other.name if other.name in alike else alike[0]] if alike else None

    def namesake(self, entry: Entry) -> Entry | None:
        """The earlier record of this comparison; an InputError if its name or its builds are another's."""
        if self.folder in ADDRESSES:
            raise InputError(file=self.folder, key="history", expected="a local folder", found="an address: read only")
        builds, alike = f"{entry.base.label} with {entry.new.label}", self.alike(entry)
        same = self.by_name.get(self._names.get(entry.name.casefold(), ""))
        if same and not ((same.name, same.kind) == (entry.name, entry.kind) and entry.name in alike):
            found = f"that of {same.base.label} with {same.new.label}"
            raise self._fault(same.name, "name", f"the comparison of {builds}, or another name", found)
        for other in (self.by_name[name] for name in alike):
            if other is not same and other.kind == entry.kind == "monthly":
                expected = f"{entry.name!r}, or no record yet of {builds}"
                raise self._fault(other.name, "name", expected, f"the same comparison as {other.name!r}")
        return same

    def place(self, entry: Entry) -> Entry:
        """Add `entry` and return it as it is recorded: at its earlier place, with its earlier looks."""
        same = self.namesake(entry)
        if self._simulated[not entry.simulated] > (same is not None and same.simulated != entry.simulated):
            kinds = ("measured", "simulated")
            expected = f"a {kinds[not entry.simulated]} comparison, as the others of this ledger"
            found = f"a {kinds[entry.simulated]} one"
            raise InputError(file=self.folder, key=entry.name, expected=expected, found=found)
        if same is not None:
            tests = [same.looked_at(test) for test in entry.tests]
            entry = entry.model_copy(update={"position": same.position, "tests": tests})
            self._simulated[same.simulated] -= 1
            for builds in same.builds_compared:
                self._compared[builds].discard(same.name)
        self._add(entry)
        return entry

    def _add(self, entry: Entry) -> None:
        if entry.position is not None:
            other = self._places.setdefault(entry.position, entry.name)
            if other != entry.name:
                expected = f"another place than {other}'s"
                raise self._fault(entry.name, "position", expected, f"{entry.position} in both")
        self.by_name[entry.name] = entry
        self._names[entry.name.casefold()] = entry.name
        self._simulated[entry.simulated] += 1
        for builds in entry.builds_compared:
            self._compared[builds].add(entry.name)

    def _fault(self, name: str, key: str, expected: str, found: str) -> InputError:
        return InputError(file=self.folder / f"{name}.json", key=key, expected=expected, found=found)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Stop the garbage collector meanwhile: it would search the entries again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Read(NamedTuple):
    """An entry as it was read from a file, and the state of the file: size, time of change, inode."""

    state: tuple[int, int, int]
    entry: Entry
    sha256: str


LAST_READ: dict[Path, dict[str, _Read]] = {}
"""The ledger that was read last, by folder and file name: one report reads it three times."""


@uncollected()
def read_ledger(folder: Path, newest: int = NEWEST) -> Ledger:
    """Read and check a ledger; a missing folder is an empty one.

    Of a longer chain only the `newest` comparisons have their metrics. Files that did not change since this process
    read them last are not read again.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(file=folder, key="history", expected="a folder", found="something else")
    if (folder / PACKED).exists():
        expected = "JSON files alone (`history-pack --undo` of version 0.2 writes them)"
        raise InputError(file=folder / PACKED, key="history", expected=expected, found="packed entries")
    if (folder / RECORDED).exists():
        with _locked(folder):  # puts into place what a killed process recorded
            pass
    before, names = LAST_READ.get(folder, {}), _file_names(folder)
    model = Entry if len(names) <= newest else OlderEntry
    entries = {name: _read(folder, name, model, before.get(name)) for name in names}
    if model is OlderEntry:
        last = max((each.entry.position or 0 for each in entries.values()), default=0)
        late = [name for name, each in entries.items() if (each.entry.position or last) > last - newest]
        entries |= {name: _read(folder, name, Entry, entries[name]) for name in late}
    LAST_READ.clear()
    LAST_READ[folder] = entries
    digests = {each.entry.name: each.sha256 for each in entries.values()}
    return Ledger(folder, [each.entry for each in entries.values()], digests)


_EXPECTED = "an entry that `report --record` or `history-import` wrote"


def _file_names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        return sorted(file.name for file in files if file.name.endswith(".json"))
    return []


def _read(folder: Path, name: str, model: type[Entry], before: _Read | None) -> _Read:
    """Read a file as `model`, unless it is as it was `before`; an Entry is an OlderEntry with its metrics."""
    path, state = f"{folder}/{name}", (-1, -1, -1)
    with contextlib.suppress(OSError, ValidationError):  # _checked finds the words for them
        stat = os.stat(path)
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if before and before.state == state and (model is OlderEntry or type(before.entry) is Entry):
            return before
        if S_ISREG(stat.st_mode) and stat.st_size <= MAX_BYTES:
            with open(path, "rb") as opened:
                data = opened.read()
            entry = model.model_validate_json(data)
            if f"{entry.name}.json" == name:
                return _Read(state, entry, hashlib.sha256(data).hexdigest())
    text = read_text(folder / name, _EXPECTED, key="history", max_bytes=MAX_BYTES)
    return _Read(state, _checked(model, text, folder / name), hashlib.sha256(text.encode()).hexdigest())


def _checked(model: type[Entry], text: str, file: Path) -> Entry:
    try:
        data = from_json(text)
    except ValueError as error:
        raise InputError(file=file, key="history", expected=_EXPECTED, found=str(error)[:200]) from None
    entry = checked(model, data, file=file)  # says what is wrong in our words
    if entry.name != file.stem:
        raise InputError(file=file, key="name", expected=f"the file's name, {file.stem!r}", found=repr(entry.name))
    return entry


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from recording in `folder`, and finish what a killed process had recorded."""
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
    """Write `entries` into the ledger at `folder`, all or none, even if the process is killed.

    Parameters
    ----------
    folder
        Made if missing.
    entries
        A comparison that is recorded again keeps its place, and its numbers of runs join the earlier looks.
    at_end
        If True, the others stand at the end of the chain in their order, whatever their `position`.

    Returns
    -------
    Ledger
        With the entries in it.

    Raises
    ------
    InputError
        If a name, a pair of builds or a place is another comparison's, or measured and simulated ones would mix.
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
    return ledger
