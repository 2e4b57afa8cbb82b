"""Strict model of params files. The top-level fields of a params file are the parameters of a notebook."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import AwareDatetime, Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer
from pydantic.functional_validators import AfterValidator, BeforeValidator, model_validator

from buildcompare.config.catalogue import Operation
from buildcompare.config.errors import InputError
from buildcompare.config.outside import CONTROLS_IN_LINES, everywhere, shown
from buildcompare.config.yaml import Document, Strict, Traced, checked, must, read_yaml, refuse, unlike
from buildcompare.results.codes import SIDES, Side, TestType

T = TypeVar("T")
SourceKind = Literal["prometheus", "ltctl", "recorded", "grafana", "pgbench", "sysstat", "values"]
FILE_KEYS: dict[str, str] = {
    "ltctl": "report", "recorded": "recording", "grafana": "snapshot", "pgbench": "pgbench", "sysstat": "sysstat"
}  # fmt: skip
"""Kind of source -> key of a run that holds the path of its file."""
CATALOGUES = {"prometheus": "mattermost"}  # kind of source -> default catalogue; if none, metric names decide
_FILE_KEYS = [f"`{key}`" for key in (*FILE_KEYS.values(), "values")]
MOST_USERS = 1_000_000_000
"""Upper bound of users and of counted errors."""
SLUG = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)(?:\.|$))[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
"""Pattern of names for files and folders: no slashes, no dot at either end, no name that Windows reserves (con)."""


_CREDENTIALS = re.compile(
    r"(?i)\s*[^/]*//[^/?#]*@|.*[?&;#](?:sig|auth|[\w-]*"
    r"(?:token|secret|passw(?:or)?d|pwd|api[_-]?key|signature|credential|jwt|bearer|sessionid))="
)


def _http_url(value: str) -> str:
    """Return an http or https address. Refuse credentials, because papermill would write them into the notebook."""
    refuse(_CREDENTIALS.match(unquote(value)), "an address without credentials", "credentials in it")
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  # reading the port checks it
    except ValueError:
        raise unlike("an http or https address", "none") from None
    is_http = parts.scheme in ("http", "https") and parts.netloc and not re.search(r"\s", value)
    refuse(not is_http, "an http or https address", "")
    return value


def _server_url(value: str) -> str:
    expected = "an address without credentials, query and fragment (secrets go into `auth`)"
    refuse(re.search("[?#]", value), expected, "a query or fragment")
    return _http_url(value).rstrip("/")


_SLUG = "letters, digits, '.', '_' and '-', starting with a letter or digit, ending with no '.', at most 100 of them"
_SLUG += ", no device of Windows (con, nul)"
_OWN_HEADERS = (
    "(?:proxy-)?authorization|proxy-.*|cookie|accept-encoding|content-(?:length|type|encoding)|host|connection|keep-alive"
    "|transfer-encoding|te|trailer|upgrade|expect"
)
_NO_OWN = must(f"(?i)(?!({_OWN_HEADERS})$).*", "no header that other settings decide (see `auth` and `gzip`)")
_WHOLE_MILLISECONDS = must(lambda seconds: abs(seconds * 1000 - round(seconds * 1000)) <= 1e-6, "whole milliseconds")
_TEXT = must(lambda v: not isinstance(v, (int, float)), 'a time with its zone, such as "2024-12-11T10:00:00Z"')
_VARIABLE = "the name of an environment variable (A-Z, 0-9 and _)"  # the pattern rejects most secrets pasted by mistake
FileName = Annotated[str, must(SLUG.pattern, _SLUG)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
ServerUrl = Annotated[str, AfterValidator(_server_url)]
Variable = Annotated[str, must("[A-Z_][A-Z0-9_]{0,99}", _VARIABLE, found="something else")]
HeaderName = Annotated[str, must(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "the name of an HTTP header"), _NO_OWN]
HeaderValue = Annotated[str, must("(?:[!-~](?:[ -~]*[!-~])?)?", "printable ASCII")]
Step = Annotated[float, Field(ge=0.001, le=86_400), _WHOLE_MILLISECONDS]
Instant = Annotated[AwareDatetime, BeforeValidator(_TEXT.func)]
Value = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MOST_VALUES = 1_000_000
ONE_OR_MANY = Discriminator(lambda value: "many" if isinstance(value, list) else "one")
"""Discriminator between a number and a list; with it, an error in a list names the index of the faulty number."""
Values = Annotated[
    Annotated[Value, Tag("one")] | Annotated[list[Value], Field(min_length=1, max_length=MOST_VALUES), Tag("many")],
    ONE_OR_MANY,
]
Numbers = Annotated[dict[str, Values], Field(min_length=1), Tag("numbers")]
ONE_OR_FILE = Discriminator(lambda value: "file" if isinstance(value, str) else "numbers")
"""Discriminator: a path of a file, or a mapping from names to numbers."""
# Whole numbers become text. Decimals and booleans are refused, because YAML changes 10.10 to 10.1 and `yes` to true.
SetupValue = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


Session = Annotated[SetupValue, Field(min_length=1, max_length=100)]
_LISTED = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
Files = Annotated[list[str], _LISTED, Field(min_length=1, max_length=1000)]


class Build(Strict):
    """One build of the server."""

    label: str = Field(min_length=1, max_length=200)


VERSION = r"\d{1,4}\.\d{1,4}(?:\.\d{1,6})*(?:-(?:rc|alpha|beta)\.?\d+)?"


def version_in(label: str, *, whole: bool = True) -> str | None:
    """Return the version in a build's name, such as ``10.4.0-rc1`` in ``v10.4.0-rc1``; None if there is none.

    With `whole`, the result is also None for several versions, or a version with a suffix (``1.4.0-12-gabc1234``).
    """
    end = r"(?![a-z\d.+-])" if whole else r"(?![\d.])"
    found = re.findall(rf"(?i)(?<![a-z\d.])(v?)({VERSION}){end}", label)
    versions = [each.casefold() for mark, each in found if mark] or [each.casefold() for _, each in found]
    return versions[0] if versions and not (whole and len({*versions}) > 1) else None


class Run(Strict):
    """One run of one test on one build, and the place of its measurements.

    One key holds the measurements: `report` (a file of the load-test tool), `recording` (Parquet or CSV), `snapshot`
    (of a Grafana dashboard), `pgbench` or `sysstat` (output of the program), or `values` (numbers or their file).
    A run without such a key is pulled from the source. Data before `start` and after `end` are left out.
    """

    report: str | None = None
    recording: str | None = None
    snapshot: str | None = None
    pgbench: Files | None = None
    """Output of pgbench: one file, or the logs of all threads of the run. In a path, ``*`` matches several files."""
    sysstat: str | None = None
    values: Annotated[Numbers | Annotated[str, Tag("file")], ONE_OR_FILE] | None = None
    """Metric -> number, or list with one number per request or iteration. A string is the path of a file or folder."""
    session: Session | None = None
    """Session of a benchmark, such as a night or a machine start; all runs of a session count as one observation."""
    labels: str | None = None
    start: Instant | None = Field(default=None, strict=False)
    end: Instant | None = Field(default=None, strict=False)
    url: ServerUrl | None = None
    supported_users: int | None = Field(default=None, gt=0, le=MOST_USERS)
    errors: int | None = Field(default=None, ge=0, le=MOST_USERS)
    """Errors that the load-test tool counted over the whole run."""
    artefacts: list[str] = Field(default_factory=list)
    """Files and folders to copy beside the report, such as programs, their output and system statistics."""

    @model_validator(mode="after")
    def _one_place(self) -> Run:
        files = [key for key in (*FILE_KEYS.values(), "values") if getattr(self, key) is not None]
        refuse(len(files) > 1, f"one of {', '.join(_FILE_KEYS[:-1])} and {_FILE_KEYS[-1]}", " and ".join(files))
        refuse((self.start is None) != (self.end is None), "`start` and `end` together", "one of them")
        if self.start is not None and self.end is not None:
            refuse(self.end <= self.start, f"`end` after `start` ({self.start.isoformat()})", self.end.isoformat())
        refuse(not files and self.start is None, f"{', '.join(_FILE_KEYS)}, or `start` and `end`", "none of them")
        beside = self.labels is None or self.recording is not None
        refuse(not beside, "`labels` only beside `recording`", "`labels` without it")
        return self

    @property
    def kind(self) -> str | None:
        """Kind of the run's file; None for `values` and for a run that is pulled."""
        return next((kind for kind, key in FILE_KEYS.items() if getattr(self, key) is not None), None)

    @property
    def file(self) -> str | None:
        """The run's files as written in the params file, joined by commas; None without files."""
        return ", ".join(self.files) or None

    @property
    def files(self) -> list[str]:
        """The run's files and patterns as written in the params file."""
        named = getattr(self, FILE_KEYS[self.kind]) if self.kind else self.values
        return named if isinstance(named, list) else [named] if isinstance(named, str) else []

    @property
    def is_pulled(self) -> bool:
        """Whether the run is pulled from a server: it has neither file nor `values`."""
        return self.kind is None and self.values is None

    def place_of(self, error: InputError) -> tuple[str, ...]:
        """Return the key that names the faulty file of `error`; an empty tuple if the run has no file."""
        if self.labels is not None and error.file in (self.labels, repr(self.labels)):
            return ("labels",)
        return ("values",) if isinstance(self.values, str) else () if self.kind is None else (FILE_KEYS[self.kind],)

    @property
    def window(self) -> tuple[dt.datetime, dt.datetime] | None:
        """`start` and `end`; None if not set."""
        return None if self.start is None or self.end is None else (self.start, self.end)


def _distinct(items: list[Any]) -> list[Any]:
    names = [item.name.casefold() for item in items]  # names become file names, and some file systems ignore case
    twice = [item.name for i, item in enumerate(items) if names[i] in names[:i]]
    if twice:
        raise unlike("a different `name` for each", f"{twice[0]!r} twice")
    return items


Named = Annotated[list[T], Field(min_length=1, max_length=200), AfterValidator(_distinct)]
Runs = Annotated[list[Run], _LISTED, Field(min_length=1, max_length=100)]


class Profiles(Strict):
    """Files of profiles of both builds, taken during the test: folded stacks or pprof."""

    base: Annotated[list[str], Field(min_length=1)]
    new: Annotated[list[str], Field(min_length=1)]


class Test(Strict):
    """One test of the comparison: the same load on both builds."""

    __test__ = False  # tells pytest that this is no test class

    name: FileName
    type: TestType
    db_engine: str | None = Field(default=None, min_length=1, max_length=60)
    users: int | None = Field(default=None, gt=0, le=MOST_USERS)
    base: Runs
    new: Runs
    profiles: Profiles | None = None

    @model_validator(mode="after")
    def _sessions(self) -> Test:
        named = any(run.session is not None for run in (*self.base, *self.new))
        refuse(
            named and self.type != "benchmark", "`session` only in a test of type benchmark", f"it in a {self.type} one"
        )
        return self

    def runs(self, side: Side) -> list[Run]:
        """Return the runs of one build."""
        return self.base if side == "base" else self.new


class Auth(Strict):
    """Login at a server: names of environment variables or of a file with the secrets, never the secrets themselves."""

    bearer_token_env: Variable | None = None
    bearer_token_file: str | None = Field(default=None, min_length=1)
    username_env: Variable | None = None
    password_env: Variable | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Auth:
        both = (self.username_env is None) == (self.password_env is None)
        refuse(not both, "`username_env` and `password_env` together", "one of them")
        count = sum(way is not None for way in (self.bearer_token_env, self.bearer_token_file, self.username_env))
        ways = "one of `bearer_token_env`, `bearer_token_file`, and `username_env` with `password_env`"
        refuse(count != 1, ways, "several" if count else "none of them")
        return self


class Tls(Strict):
    """PEM files for TLS: trusted certificates, and the client's certificate and key."""

    ca: str | None = Field(default=None, min_length=1)
    cert: str | None = Field(default=None, min_length=1)
    key: str | None = Field(default=None, min_length=1)
    verify: bool = True
    """If False, certificates are not checked, and pulled recordings contain a note about this."""

    @model_validator(mode="after")
    def _together(self) -> Tls:
        refuse(self.key is not None and self.cert is None, "`cert` beside `key`", "`key` without it")
        refuse(self.ca is not None and not self.verify, "`verify: true` beside `ca`", "`verify: false`")
        return self


class Source(Strict):
    """The server to pull runs from, or the kind of the runs' files."""

    kind: SourceKind
    url: ServerUrl | None = None
    step_s: Step = 5.0
    label_step_s: Step = 60.0
    """Step of the series of label tables, in seconds; each point covers one step."""
    rate_s: Step = 60.0
    """Seconds over which rates are averaged, in files and in queries of the catalogue (placeholder `{rate}`)."""
    threads: int = Field(default=5, ge=1, le=32)
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    """Limit of one query, in seconds."""
    time_unit: Literal["s", "ms", "us", "ns", "days", "date"] | None = None
    """Unit of numeric timestamps in tables. ``days``: spreadsheet day counts; ``date``: digits such as 202412111000."""
    gzip: bool = False
    """Ask for compressed answers, which take a third of the bytes, but more time on a fast network."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    headers_env: dict[HeaderName, Variable] = Field(default_factory=dict)
    """Name of a header -> environment variable that holds the header's value."""
    auth: Auth | None = None
    tls: Tls | None = None

    @model_serializer(mode="wrap")
    def _stated(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit `rate_s` if it is not set and runs are read from files, because a file may state its own value."""
        keys: dict[str, Any] = handler(self)
        is_unset = self.kind != "prometheus" and "rate_s" not in self.model_fields_set
        return {key: value for key, value in keys.items() if not (is_unset and key == "rate_s")}

    @model_validator(mode="after")
    def _reachable(self) -> Source:
        served, keys = self.kind == "prometheus", sorted(self.model_fields_set - {"kind", "rate_s"})
        keys = [key for key in keys if key != "time_unit" or self.kind != "recorded"]
        refuse(served and self.url is None, "`url` where kind is prometheus", "no `url`")
        if not served and keys and getattr(self, keys[-1]) is not None:
            raise unlike(f"no `{keys[-1]}` where kind is {self.kind}", f"`{keys[-1]}`")
        twice = {name.casefold() for name in self.headers} & {name.casefold() for name in self.headers_env}
        if twice:
            raise unlike("each header once", f"{min(twice)!r} in `headers` and `headers_env`")
        return self


class Coordinator(Strict):
    """How the load-test coordinator adds and removes users (defaults: mattermost-load-test-ng's)."""

    users_inc: int = Field(default=8, gt=0)
    users_dec: int = Field(default=8, gt=0)
    rest_s: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    thresholds: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)

    @property
    def fastest_fall(self) -> float:
        """Highest rate at which the coordinator removes users, in users per second."""
        return self.users_dec / self.rest_s


class RunFiles(NamedTuple):
    """Artefacts of one run, as the params file lists them."""

    location: tuple[str | int, ...]
    """Keys that lead to the run in the params."""
    paths: list[str]
    test: str
    build: Side | None
    run: int
    folder: str
    """Folder of the run's artefacts, inside the folder `artefacts` of a report."""


class Reported(Traced):
    """Keys for the report that are common to all kinds of params files."""

    name: FileName | None = None
    setup: dict[str, SetupValue] = Field(default_factory=dict)
    comments: list[str] = Field(default_factory=list)
    action_items: list[str] = Field(default_factory=list)
    action_items_title: str = Field(default="Action Items", min_length=1, max_length=100)

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Treat a key without a value (`comments:`) as absent if the key has a default."""
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in values.items() if value is not None or key not in optional}

    def run_files(self) -> Iterator[RunFiles]:
        """Yield the artefacts of each run."""
        raise NotImplementedError  # the model of each kind of params file implements this


class Comparison(Reported):
    """A base build, a new build, and the tests of both."""

    base: Build
    new: Build
    source: Source
    metrics: str | None = Field(default_factory=lambda read: CATALOGUES.get(read["source"].kind), min_length=1)
    """Name or path of the catalogue; if None, the catalogues that fit the tests' metrics are merged."""
    operations: dict[Annotated[str, Field(min_length=1, max_length=200)], Operation] = Field(default_factory=dict)
    """Name of a metric -> its settings, which override the catalogue's."""
    tests: Named[Test]
    grafana: dict[str, HttpUrl] = Field(default_factory=dict)
    coordinator: Coordinator = Field(default_factory=Coordinator)
    margins: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Slug of a metric -> margin in percent, in place of the catalogue's."""
    calibration: str | None = None
    history: str | None = None
    planned_runs: int | None = Field(default=None, ge=1, le=99)
    """Planned number of runs per build, for reports made before all runs are done."""

    @model_validator(mode="after")
    def _pullable(self) -> Comparison:
        for test, side in ((test, side) for test in self.tests for side in SIDES):
            key = FILE_KEYS.get(self.source.kind, self.source.kind)
            if self.source.kind != "prometheus" and any(run.is_pulled for run in test.runs(side)):
                expected = f"`{key}` in each run where source.kind is {self.source.kind}"
                raise unlike(expected, f"none in `{side}` of test {test.name!r}")
        return self

    def run_files(self) -> Iterator[RunFiles]:
        """Yield the artefacts of each run."""
        for number, test in enumerate(self.tests):
            for side in SIDES:
                for i, run in enumerate(test.runs(side)):
                    location = ("tests", number, side, i)
                    yield RunFiles(location, run.artefacts, test.name, side, i + 1, f"{test.name}/{side}-{i + 1}")


def read_params(file: str | Path) -> Comparison:
    """Read and check a params file.

    Parameters
    ----------
    file
        Path of a YAML file; docs/params.md lists its keys. Without a `name`, the comparison is named after the file.

    Returns
    -------
    Comparison
        The checked parameters.

    Raises
    ------
    InputError
        If the file is not valid; the message names file, key, expected value and actual value.

    Examples
    --------
    >>> [test.name for test in read_params("params/v11.1.0-rc2.yaml").tests]
    ['postgresql_bounded', 'postgresql_unbounded']
    """
    path = Path(file)
    return params_of(read_yaml(path), path)


def params_of(document: Document, path: Path) -> Comparison:
    """Check the `document` of the params file at `path`."""
    if isinstance(document.data, dict) and "factors" in document.data:
        found = "a matrix of variants, which `report` and `compare_variants` take"
        raise InputError(file=path, key=document.key(("factors",)), expected="a comparison of two builds", found=found)
    comparison = check_params(document)
    return comparison.model_copy(update={"name": name_of(path, comparison.name)})


def name_of(path: Path, name: str | None) -> str:
    """Return the `name` in a params file, else the file's stem, which must then be a valid folder name."""
    if name is None and not re.fullmatch(SLUG, path.stem):
        raise InputError(file=path, key="file name", expected=_SLUG, found=repr(path.stem))
    return name or path.stem


def check_params(data: Any) -> Comparison:
    """Check plain data, such as what papermill injected, against the model."""
    plain = data if isinstance(data, Document) else everywhere(data, lambda text: shown(text, CONTROLS_IN_LINES))
    return checked(Comparison, plain)
