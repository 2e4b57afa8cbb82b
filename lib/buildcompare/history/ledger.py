"""Keep earlier comparisons in the ledger: a folder with one small JSON file for each, and many in one Parquet file.

Only ``report --record``, ``history-import`` and ``history-pack`` write to it. It holds what was measured and on which
setup, never what was derived from it, so that a better analysis applies to the whole past. A comparison that stands in
both is that of the JSON file: packing writes the Parquet file first, and recording again writes JSON.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import BeforeValidator, Field, field_validator, model_validator

from buildcompare.config.errors import ADDRESSES, InputError
from buildcompare.config.params import FileName, Named, version_in
from buildcompare.config.project import read_text, writing
from buildcompare.config.remote import held
from buildcompare.config.yaml import Strict, checked
from buildcompare.history import dataset
from buildcompare.results.codes import SIDES, Pair, TestType, Verdict

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"
MAKING, RECORDED = ".making", ".recorded"
"""Folders in a ledger's: files that are being made, and those that count but are not in their places yet.

One renaming makes the first the second. There an empty file says that the one of its name goes."""
MAX_BYTES = 1_000_000  # an entry of forty tests has some 20 kB; what is larger is none
MOST_FILES = 200
"""A ledger of more JSON files packs them when it is written to: reading so many takes longer than a report may."""
_DATABASES = {"postgres": "postgresql"}
"""Other names of databases: one chain, however a table or a params file spells it."""


def _pair(given: Any, default: int | None = None) -> Any:
    """The pair of a JSON object that may leave a build out."""
    partial = isinstance(given, dict) and given.keys() <= {*SIDES}
    return Pair.of(lambda side: given.get(side, default)) if partial else given


Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=10**12)]  # more has no column of the Parquet file room for
Users = Annotated[Pair[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None], BeforeValidator(_pair)]
Counts = Annotated[Pair[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None], BeforeValidator(_pair)]
RunCounts = Annotated[Pair[Count], BeforeValidator(lambda given: _pair(given, 1))]
Look = Annotated[tuple[Count, Count], Field(strict=False)]
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
    users: Count | None = None  # the target (bounded) or the ceiling (unbounded)
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
    windows_s: Pair[list[Level]] = Field(default_factory=lambda: Pair(list[float](), list[float]()))
    """How long the steady window of each run is."""
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
    position: Count | None = None
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

    @property
    def sha256(self) -> str:
        """What its contents are known by, whatever file they stand in."""
        data = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def looked_at(self, test: LedgerTest) -> LedgerTest:
        """`test`, a later look at this comparison, with its earlier looks."""
        earlier = [look for each in self.tests if each.name == test.name for look in each.all_looks]
        now = (test.runs.base, test.runs.new)
        return test.model_copy(update={"looks": [look for look in earlier if look != now]})


@dataclass(frozen=True, eq=False)
class Ledger:
    """Every recorded comparison: the chain in its order, and the studies by name."""

    folder: Path
    loose: Mapping[str, Entry] = field(default_factory=dict)  # by name: those in JSON files
    packed: ds.Dataset | None = None  # the others, a row for each test
    _books: dict[object, Book] = field(default_factory=dict, init=False)  # by what was asked, as a report asks twice

    def table(self, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        """These `columns` of all tests that `where` holds for; those of one comparison stand together."""
        own = (self._loose_rows if where is None else self._loose_rows.filter(where)).select(list(columns))
        if self.packed is None:
            return own
        others = ~ds.field("name").isin(pa.array(self.loose, pa.string()))
        where = others if where is None else where & others
        file = self.folder / dataset.FILE
        return pa.concat_tables([dataset.read(file, self.packed, columns, where), own])

    @functools.cached_property
    def _loose_rows(self) -> pa.Table:
        return dataset.to_table((entry.model_dump(mode="json"), entry.sha256) for entry in self.loose.values())

    def read(self, names: Collection[str] | None = None) -> dict[str, Entry]:
        """The entries of these names, of all without any, by name: as small as what is asked for."""
        found = {name: self.loose[name] for name in (self.loose if names is None else names) if name in self.loose}
        asked = None if names is None else [*{*names} - found.keys()]
        if self.packed is None or asked == []:
            return found
        file = self.folder / dataset.FILE
        if asked is None:
            others = ~ds.field("name").isin(pa.array(self.loose, pa.string()))
            rows = dataset.read(file, self.packed, dataset.SCHEMA.names, others)
        else:
            rows = dataset.read_named(file, self.packed, asked)
        return found | {data["name"]: checked(Entry, data, file=file) for data in dataset.to_entries(rows)}

    @property
    def entries(self) -> list[Entry]:
        """Every entry, by name: of a ledger of thousands, ask for what is needed."""
        return [entry for _, entry in sorted(self.read().items())]

    @property
    def chain(self) -> list[Entry]:
        """The monthly comparisons, in their order."""
        return sorted((e for e in self.entries if e.position is not None), key=lambda e: e.position or 0)

    @property
    def studies(self) -> list[Entry]:
        """The studies, by name."""
        return [entry for entry in self.entries if entry.kind == "study"]

    @functools.cached_property
    def book(self) -> Book:
        """What a comparison is found and refused by."""
        return self._book()

    def _book(self, where: pc.Expression | None = None) -> Book:
        book = Book(self.folder)
        table = self.table(["name", "kind", "position", "simulated", "base", "new"], where)
        for row in table.filter(pa.array(dataset.begins(table["name"]))).to_pylist():
            known = Known(**{**row, "base": tuple(row["base"].values()), "new": tuple(row["new"].values())})
            book.add(known)
        return book

    def _same(self, other: Entry) -> Book:
        """Those that may be of the comparison that `other` is of: the builds of one label or version."""
        where = pc.scalar(False)
        asked = tuple(tuple(getattr(build, name) for build in other.builds) for name in ("label", "version"))
        for name, builds in zip(("label", "version"), asked, strict=True):
            if None not in builds:
                base, new = (ds.field(side, name) == value for side, value in zip(SIDES, builds, strict=True))
                where = where | (base & new)
        if asked not in self._books:
            self._books[asked] = self._book(where)
        return self._books[asked]

    def alike(self, other: Entry) -> set[str]:
        """The names of the entries of the comparison that `other` is of: several of a repeated study."""
        return self._same(other).alike(Known.of(other))

    def find(self, other: Entry) -> Entry | None:
        """The entry of the comparison that `other` is of; of several (repeated studies) that with its name."""
        found = self._same(other).held(other)
        return None if found is None else self.read([found])[found]

    @property
    def next_position(self) -> int:
        """The place after the last of the chain."""
        return 1 + max(self.book.places, default=0)


@dataclass(frozen=True)
class Known:
    """What a comparison is told apart by."""

    name: str
    kind: str
    position: int | None
    simulated: bool
    base: tuple[str, str | None]  # label and version
    new: tuple[str, str | None]

    @classmethod
    def of(cls, entry: Entry) -> Known:
        """That of an entry."""
        base, new = ((build.label, build.version) for build in entry.builds)
        return cls(entry.name, entry.kind, entry.position, entry.simulated, base, new)

    @property
    def comparisons(self) -> list[tuple[object, ...]]:
        """Both builds by name, and by two different versions to the last digit: each makes the same comparison."""
        (_, base), (_, new) = self.base, self.new
        return [(self.base, self.new), *([(base, new)] if base is not None and new is not None and base != new else [])]


class Book:
    """Names, comparisons and places of a ledger; refuses what is another's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Known] = {}  # by name without regard to case
        self.places: dict[int, str] = {}
        self.kinds: Counter[bool] = Counter()  # simulated or measured
        self._compared: dict[tuple[object, ...], set[str]] = {}

    def add(self, known: Known) -> None:
        """Note a comparison that has a place of its own."""
        if known.position is not None:
            self.claim(known.name, known.position)
        self.names[known.name.casefold()] = known
        self.kinds[known.simulated] += 1
        for each in known.comparisons:
            self._compared.setdefault(each, set()).add(known.name)

    def claim(self, name: str, position: int) -> None:
        """Give a place to a comparison; two at one place are refused."""
        if (other := self.places.setdefault(position, name)) != name:
            raise self._fault(name, "position", f"another place than {other}'s", f"{position} in both")

    def alike(self, known: Known) -> set[str]:
        """Names of the same comparison."""
        return {name for each in known.comparisons for name in self._compared.get(each, ())}

    def held(self, entry: Entry) -> str | None:
        """The name of the same comparison; of several (repeated studies) its own."""
        alike = sorted(self.alike(Known.of(entry)))
        return entry.name if entry.name in alike else next(iter(alike), None)

    def namesake(self, entry: Entry) -> str | None:
        """The name of the same comparison, if there is one; refuses a name or a pair of builds that is another's."""
        known, builds = Known.of(entry), f"{entry.base.label} with {entry.new.label}"
        namesake, alike = self.names.get(entry.name.casefold()), self.alike(known)
        if namesake and not ((namesake.name, namesake.kind) == (entry.name, entry.kind) and entry.name in alike):
            found = f"that of {namesake.base[0]} with {namesake.new[0]}"
            raise self._fault(namesake.name, "name", f"the comparison of {builds}, or another name", found)
        for other in (self.names[name.casefold()] for name in sorted(alike)):
            if other is not namesake and other.kind == entry.kind == "monthly":
                expected = f"{entry.name!r}, or no record yet of {builds}"
                raise self._fault(other.name, "name", expected, f"the same comparison as {other.name!r}")
        return namesake.name if namesake else None

    def place(self, entry: Entry, held: Mapping[str, Entry]) -> Entry:
        """Add `entry` at the place that it had in what is `held`, once nothing speaks against it."""
        namesake = self.namesake(entry)
        if self.kinds[not entry.simulated] > (namesake is not None and held[namesake].simulated != entry.simulated):
            kinds = ("measured", "simulated")
            expected = f"a {kinds[not entry.simulated]} comparison, as the others of this ledger"
            raise InputError(
                file=self.folder, key=entry.name, expected=expected, found=f"a {kinds[entry.simulated]} one"
            )
        if namesake is not None:
            old = held[namesake]
            kept = {"position": old.position} if entry.kind == "monthly" else {}
            entry = entry.model_copy(update={**kept, "tests": [old.looked_at(test) for test in entry.tests]})
            self.kinds[old.simulated] -= 1
            for each in Known.of(old).comparisons:
                self._compared[each].discard(namesake)
        self.add(Known.of(entry))
        return entry

    def _fault(self, name: str, key: str, expected: str, found: str) -> InputError:
        return InputError(file=self.folder / f"{name}.json", key=key, expected=expected, found=found)


def ledger_of(entries: Iterable[Entry], folder: Path = Path()) -> Ledger:
    """A ledger of `entries` that no file holds."""
    return Ledger(folder, {entry.name: entry for entry in entries})


def read_ledger(folder: Path) -> Ledger:
    """Read a ledger: JSON files are checked, of what is packed only places. A missing folder is an empty ledger."""
    if folder.exists() and not folder.is_dir():
        raise InputError(file=folder, key="history", expected="a folder", found="something else")
    if (folder / RECORDED).exists():
        with locked(folder):  # a killed process had recorded it, or a living one does
            pass
    loose = {}
    for file in sorted(folder.glob("*.json")):
        try:
            loose[file.stem] = _read(file)
        except InputError:
            if file.exists():
                raise
            # Else it was packed meanwhile: the Parquet file is opened after it.
    try:
        packed = dataset.opened(folder)
    except (OSError, ValueError) as error:  # pyarrow's own are both
        file, found = folder / dataset.FILE, str(error)[:200]
        raise InputError(file=file, key="history", expected=dataset.EXPECTED, found=found) from None
    ledger, placed = Ledger(folder, loose, packed), Book(folder)
    for entry in loose.values():
        placed.add(Known.of(entry))
    among = ds.field("position").isin(pa.array(placed.places, pa.int64()))
    for row in ledger.table(["name", "position"], among).to_pylist() if loose and packed else ():
        placed.claim(row["name"], row["position"])
    return ledger


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
    """Keep other processes from recording in `folder` meanwhile: two would take the same place.

    What a killed process had recorded is put in its place. The copy of a ledger elsewhere is made anew, and what
    changed in it is changed there at the end.
    """
    if folder in ADDRESSES:
        with held(ADDRESSES[folder]):
            yield
        return
    with writing(folder, "history", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a")
    with file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        with writing(folder, "history", "a folder that can be written"):
            shutil.rmtree(folder / MAKING, ignore_errors=True)
            _put_in_place(folder)
        yield


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write `files` (by name; without contents they go), all or none, whenever the process ends."""
    making = folder / MAKING
    try:
        making.mkdir(parents=True)
        for name, contents in files.items():
            (making / name).write_bytes(contents.encode() if isinstance(contents, str) else contents)
        making.rename(folder / RECORDED)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _put_in_place(folder)


def _put_in_place(folder: Path) -> None:
    recorded = folder / RECORDED
    if recorded.is_dir():
        for file in sorted(
            recorded.iterdir(), key=lambda file: file.stat().st_size == 0
        ):  # nothing goes before it is there
            if file.stat().st_size:
                file.replace(folder / file.name)
            else:
                (folder / file.name).unlink(missing_ok=True)
                file.unlink()
        recorded.rmdir()


def record(folder: Path, entries: Sequence[Entry]) -> int:
    """Write `entries` into the ledger at `folder`, all or none; the same comparison keeps its place.

    Returns
    -------
    int
        How many JSON files were packed, as there were more than `MOST_FILES`: 0 where they stayed.

    Raises
    ------
    InputError
        Where a name, a pair of builds or a place belongs to another comparison, or measured and simulated would mix:
        then nothing is written.
    """
    ledger = read_ledger(folder)
    book, held = ledger.book, ledger.read({entry.name for entry in entries})
    placed = [book.place(entry, held) for entry in entries]
    loose = {**ledger.loose, **{entry.name: entry for entry in placed}}
    if len(loose) > MOST_FILES:
        return pack(Ledger(folder, loose, ledger.packed))
    with writing(folder, "history", "a folder that can be written"):
        _write(folder, {f"{entry.name}.json": _json(entry) for entry in placed})
    return 0


def repack(folder: Path, *, undo: bool = False) -> int:
    """Move the JSON files of a ledger into its Parquet file, or with `undo` out of it; how many entries moved."""
    if not folder.is_dir():
        raise InputError(file=folder, key="FOLDER", expected="the folder of a ledger", found="none")
    with locked(folder):
        return (unpack if undo else pack)(read_ledger(folder))


def pack(ledger: Ledger) -> int:
    """Move the entries of JSON files into the Parquet file; how many. Call it while the ledger is :func:`locked`."""
    if ledger.loose:
        table = ledger.table(dataset.SCHEMA.names)
        with writing(ledger.folder, "history", "a folder that can be written"):
            gone = {f"{name}.json": b"" for name in ledger.loose}  # a reader that still sees one finds the same in both
            _write(ledger.folder, {dataset.FILE: dataset.contents(table), **gone})
    return len(ledger.loose)


def unpack(ledger: Ledger) -> int:
    """Write every packed entry as JSON again and remove the Parquet file; how many. Call it while :func:`locked`."""
    packed = {name: entry for name, entry in ledger.read().items() if name not in ledger.loose}
    with writing(ledger.folder, "history", "a folder that can be written"):
        _write(ledger.folder, {**{f"{name}.json": _json(entry) for name, entry in packed.items()}, dataset.FILE: b""})
    return len(packed)


def _json(entry: Entry) -> str:
    data = entry.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
