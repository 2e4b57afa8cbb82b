"""Read recordings from files of every kind, and pull them from servers.

A new kind of file needs a `FileSource` registered as entry point `buildcompare.sources`, and a key in config/params.py.

Pulled recordings are cached in ``data/recordings/<comparison>/<test>/<build>.parquet``. Each file holds a hash of its
request. If the window, address, a step, the catalogue or the credentials change, the run is pulled again.
"""

import datetime as dt
import glob
import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from buildcompare.config.assumed import given_or_open
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError, plural
from buildcompare.config.params import Run, Source
from buildcompare.config.project import resolve
from buildcompare.config.remote import is_remote
from buildcompare.config.yaml import checked
from buildcompare.recordings import table
from buildcompare.recordings.files import MAX_GRAPHS, InputFile, head_of, matching, read_input
from buildcompare.recordings.formats import FileSource, formats
from buildcompare.recordings.recording import Measurement, Recording, joined_numbers, span, utc
from buildcompare.recordings.series import LATEST
from buildcompare.results.codes import Side

SOURCES: dict[str, FileSource] = {
    **{entry.name: entry.load() for entry in entry_points(group="buildcompare.sources")},
    "recorded": table.SOURCE,
}
"""Kind of file -> its reader. If the kind is unknown, readers are tried in this order; the reader of tables is last."""
AHEAD_S = 300.0  # seconds that the end of a run may lie in the future, because clocks differ
ENDING = re.compile(r"\.(csv|tsv|txt|parquet|jsonl?|ndjson|out|log|jtl|xml)(\.gz)?$")
_RECORDING = re.compile(rf"[^.].*{ENDING.pattern}")
MAX_NAME = 1_000  # bound on the characters of a metric's name, a label or its value, because reports show them in full
_PULLED = "a recording that was pulled before, or no file (name the comparison otherwise, or move it away)"
REQUEST, ASKED_BY = "request", "asked_by"
"""Keys in the provenance of a pulled recording; their values are hashes of the request and of the credentials."""


def read(
    path: str | Path,
    *,
    catalogue: str | Catalogue | None = None,
    kind: str | None = None,
    labels: str | Path | None = None,
    time_unit: str | None = None,
) -> Recording:
    """Read a recording from a file.

    Parameters
    ----------
    path
        A table of samples (CSV, Parquet), a file of a load tester (docs/load-tools.md), a report of ``ltctl report
        generate``, a snapshot of a Grafana dashboard, output of pgbench, or statistics of sysstat; text may be gzipped.
        A pattern such as ``log.4711*`` names the logs of all threads of a pgbench run. A relative path is looked up in
        the working folder, then in the project. An fsspec address, such as ``s3://bucket/run.parquet``, works too.
    catalogue
        A catalogue's name, path or contents: it states the unit of each metric. The default searches all catalogues,
        and reads the units of unlisted metrics from their names.
    kind
        ``recorded``, ``ltctl``, ``grafana``, ``pgbench`` or ``sysstat``; recognised from the contents by default.
    labels
        Path of a CSV of label values for a table of samples, with the columns group, label, stat and value.
    time_unit
        Unit of numeric times in a table: ``s``, ``ms``, ``us``, ``ns``, ``days`` (day numbers of spreadsheets) or
        ``date`` (digits such as 202412111000); by default the only unit that fits.

    Returns
    -------
    Recording
        Everything in the file, gaps and NaN included.

    Raises
    ------
    InputError
        If the file cannot be read.

    Examples
    --------
    >>> read("data/recordings/v10.4.0-rc1/mysql_bounded/base.parquet").duration_s
    5445.0
    """
    if kind is not None and kind not in SOURCES:
        raise InputError(file=None, key="kind", expected="one of " + ", ".join(SOURCES), found=repr(kind))
    beside = None if labels is None else _here(labels)
    return with_samples(_read([_here(path)], given_or_open(catalogue), kind, beside, time_unit), str(path))


def read_runs(path: str | Path, catalogue: str | Catalogue | None = None) -> list[Recording]:
    """Read the runs of one build from a file or a folder.

    Files of a folder are repeated runs of the build if all have one metric in common, and parts of one run if each
    metric is in one file only. A CSV beside a table holds its label values: ``run.labels.csv`` for ``run.csv``.

    Parameters
    ----------
    path
        A file that :func:`read` reads, or a folder of such files; other files are ignored. If a folder holds no such
        files, the files in its subfolders are read.
    catalogue
        A catalogue's name, path or contents.

    Returns
    -------
    list[Recording]
        In alphabetical order of the files.

    Raises
    ------
    InputError
        If a file cannot be read, or a folder holds neither repeated runs nor the parts of one run.

    Examples
    --------
    >>> [run.duration_s for run in read_runs("data/recordings/v10.4.0-rc1/mysql_bounded/base.parquet")]
    [5445.0]
    """
    if is_remote(path):
        return [read(path, catalogue=catalogue)]
    place, files = resolve(_here(path)), [Path(path)]
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if _RECORDING.fullmatch(each.name))
        if not names:
            inside = (each for each in place.glob("[!.]*/*") if _RECORDING.fullmatch(each.name))
            names = sorted(f"{each.parent.name}/{each.name}" for each in inside)
        beside = set().union(*(form.parts(names) for form in formats()))
        files = [Path(path, name) for name in names if ".labels." not in name and name not in beside]
    runs = []
    for file in files:
        tables = (file.with_name(f"{ENDING.sub('', file.name)}.labels.csv{zipped}") for zipped in ("", ".gz"))
        labels = next((table for table in tables if file.name and resolve(_here(table)).is_file()), None)
        runs.append(read(file, catalogue=catalogue, labels=labels))
    if not runs:
        expected = "files of recordings (.csv, .parquet, .json, .jtl, .xml, .out, .txt, .log; may be .gz)"
        raise InputError(file=str(path), key=None, expected=expected, found="none")
    [(name, most)] = Counter(name for run in runs for name in _names(run)).most_common(1)
    if most in (1, len(runs)):
        return _each_once(runs, str(path)) if most == len(runs) else [_joined(runs, str(path))]
    expected = "repeated runs (all with the same metrics) or parts of one run (each metric in one file)"
    raise InputError(file=str(path), key=None, expected=expected, found=f"{name} in {most} of {len(runs)} files")


def _each_once(runs: list[Recording], folder: str) -> list[Recording]:
    """Return repeated runs; raise an error if one run occurs twice, or if the load testers or targets differ."""
    kinds = {f"{run.provenance['kind']} {run.provenance.get('target', '')}" for run in runs if run.measurements}
    if len(kinds) > 1:
        expected = "runs of one load tester and endpoint (a folder for each)"
        raise InputError(file=folder, key=None, expected=expected, found=", ".join(sorted(map(str.strip, kinds))))
    timed, once = {bool(run.series) for run in runs}, dict[object, Recording]()
    for run in runs:
        labels = [each for each in run.label_summaries if each.stat in ("calls", "avg")]
        calls = (run.window, *((each.label, f"{each.value:.6g}") for each in labels))
        same = once.setdefault(calls, run) if labels else run
        if len(timed) > 1 or same.samples_sha256 != run.samples_sha256:
            expected = "each run in one file (keep its requests, and move its summary or second format away)"
            raise InputError(file=folder, key=None, expected=expected, found="one run in two files")
    return runs


def _names(run: Recording) -> set[str]:
    """Return the names of a run's metrics and label values."""
    labels = (f"{each.group} {each.label} {each.stat}" for each in run.label_summaries)
    return {*(series.metric for series in run.series), *(each.metric for each in run.measurements), *labels}


def _joined(parts: Sequence[Recording], folder: str) -> Recording:
    """Join the parts of one run, which must overlap in time."""
    starts, ends = zip(*(each.window for each in parts), strict=True)
    if max(starts) >= min(ends):
        expected = "parts of one run, which overlap in time"
        raise InputError(file=folder, key="window", expected=expected, found="parts that do not overlap")
    rates = [rate for each in parts if (rate := each.provenance.get("rate_s")) is not None]
    files = [file for each in parts for file in each.provenance["files"]]
    return Recording(
        series=tuple(series for each in parts for series in each.series),
        window=(min(starts), max(ends)),
        stop_known=all(each.stop_known for each in parts),
        label_summaries=tuple(summary for each in parts for summary in each.label_summaries),
        notes=tuple(dict.fromkeys(note for each in parts for note in each.notes)),
        measurements=tuple(measured for each in parts for measured in each.measurements),
        provenance={**parts[0].provenance, "files": files, **({"rate_s": max(rates)} if rates else {})},
    )


def pull(
    url: str,
    start: str | dt.datetime,
    end: str | dt.datetime,
    *,
    catalogue: str | Catalogue = "mattermost",
    step_s: float = 5.0,
    label_step_s: float = 60.0,
    rate_s: float = 60.0,
    **settings: Any,
) -> Recording:
    """Pull a recording from a server with Prometheus's query API.

    Parameters
    ----------
    url
        The server's address, without credentials.
    start, end
        When the run started and ended: times with their zone, such as ``"2024-12-11T10:00:00Z"``.
    catalogue
        A catalogue's name, path or contents; its queries are sent to the server.
    step_s, label_step_s
        Seconds between two points of a graph, and between two points of a label's series.
    rate_s
        Seconds over which rates are taken; they replace `{rate}` in the catalogue's queries.
    **settings
        Other keys of `source` in a params file: ``threads``, ``timeout_s``, ``gzip``, ``headers``, ``headers_env``,
        ``auth`` and ``tls`` (see docs/prometheus.md). Secrets are read from environment variables or files.

    Returns
    -------
    Recording
        Every series of every query, gaps and NaN included; a query without an answer adds no series.

    Raises
    ------
    InputError
        If a setting is wrong, or the server refuses a query or the credentials, or has no sample in the window.
    SourceError
        If the server cannot be reached or fails.

    Examples
    --------
    >>> pull("http://localhost:9090", "2024-12-11T10:00:00Z", "2024-12-11T11:30:00Z")  # doctest: +SKIP
    Recording(10 series of 10 metrics over 5,400 s from 2024-12-11T10:00:00Z)
    """
    steps = {"step_s": float(step_s), "label_step_s": float(label_step_s), "rate_s": float(rate_s)}
    source = checked(Source, {"kind": "prometheus", "url": url, **steps, **settings})
    return record(checked(Run, {"start": start, "end": end}), source, read_catalogue(catalogue))


def record(run: Run, source: Source, catalogue: Catalogue) -> Recording:
    """Read one run of a comparison; a window in the params replaces the window of a recording in a file."""
    if isinstance(run.values, str):
        files = [_values_in(path, catalogue) for path in matching([run.values])]
        if run.session is None and len(files) > 1 and any(each.session is not None for each in files):
            expected, found = "a run for each file that is a session of its own", plural(len(files), "file")
            raise InputError(file=run.values, key="values", expected=expected, found=found)
        return with_samples(joined_numbers(files) if len(files) > 1 else files[0], run.values)
    if run.values is not None:
        return recording_of_values(run.values, catalogue)
    if run.file is None:
        from buildcompare.recordings.prometheus import pull_run  # imported late, because it is slow

        if run.window is not None and run.window[1].timestamp() > time.time() + AHEAD_S:
            expected = "a time that is past (`watch` follows a test that still runs)"
            raise InputError(file=None, key="end", expected=expected, found=run.window[1].isoformat())
        return with_samples(pull_run(run, source, catalogue), None)
    recording = _read(run.files, catalogue, run.kind, run.labels, source.time_unit)
    if run.window is not None:
        start, end = (instant.timestamp() for instant in run.window)
        stop_known = recording.stop_known and end >= recording.window[1]  # the window may end before the run stops
        recording = replace(recording, window=(start, end), stop_known=stop_known)
    if "rate_s" in source.model_fields_set and source.kind != "prometheus":
        recording = recording.with_rate(source.rate_s)
    return with_samples(recording, run.file)


def _values_in(path: str, catalogue: Catalogue) -> Recording:
    """Read a benchmark's numbers from a registered format, such as pyperf's, or from JSON (name -> number or list)."""
    if any(form.recognise(head) for head in [head_of(path)] for form in formats()):
        return _read([path], catalogue, None, None)
    expected = "a result of pyperf, or JSON of names and their numbers"
    file = read_input(path, expected=expected)
    data = file.json()
    if not isinstance(data, dict) or not data:
        raise file.fault(None, expected, "other JSON")
    try:
        recording = recording_of_values(data, catalogue)
    except InputError as error:
        raise file.fault(error.key, error.expected, error.found) from None
    return replace(recording, provenance={"kind": "values", "files": [file.provenance]})


def recording_of_values(values: Mapping[str, float | Sequence[float]], catalogue: Catalogue) -> Recording:
    """Make a run from one or several values of each metric; durations must be above 0, other values at least 0."""
    measurements = []
    for name, given in values.items():
        try:
            raw = np.atleast_1d(np.asarray(given))
            numbers = np.empty(0) if raw.dtype.kind in "US" else raw.astype(np.float64)
        except (TypeError, ValueError):  # values that are not numbers, or nested lists of unequal lengths
            numbers = np.empty(0)
        measured = Measurement.of(name, numbers, catalogue)
        least = np.nextafter(0.0, 1.0) if measured.unit == "seconds" else 0.0  # rates may be 0, durations may not
        if numbers.ndim != 1 or not numbers.size or not np.all(np.isfinite(numbers) & (numbers >= least)):
            expected = f"a number {'above 0' if least else 'of 0 or more'}, or a list of them"
            raise InputError(file=None, key=name, expected=expected, found=str(given)[:60])
        measurements.append(measured)
    return Recording((), (0.0, 0.0), stop_known=True, measurements=tuple(measurements), provenance={"kind": "values"})


def _here(path: str | Path) -> str:
    """Make a path or pattern absolute if the working folder has a match; return URLs and all others unchanged."""
    if is_remote(path):
        return str(path)
    there = "\0" not in str(path) and (Path(path).exists() or glob.glob(str(path)))
    return str(Path(path).absolute()) if there else str(path)


def _read(
    paths: Sequence[str], catalogue: Catalogue, kind: str | None, labels: str | None, time_unit: str | None = None
) -> Recording:
    expected = SOURCES[kind].expected if kind else table.EXPECTED
    named = dict.fromkeys(matching(paths) if kind is None or SOURCES[kind].join else paths)
    if len(named) == 1 and labels is None and kind in (None, "recorded"):
        [path] = named
        head = head_of(path)
        if form := next((form for form in formats() if form.recognise(head)), None):
            return form.read(path, catalogue)
    may_be_large = table.is_text if kind in (None, "recorded") else None
    files = [replace(read_input(path, expected=expected, is_table=may_be_large), time_unit=time_unit) for path in named]
    file = files[0]
    try:
        able = [SOURCES[kind]] if kind else [each for each in SOURCES.values() if each.join or len(files) == 1]
        source = next((each for each in able if kind or each.recognise(file.contents)), None)
        if source is None:
            expected = "a file of a load tester, or " + ", or ".join(each.expected for each in able)
            raise file.fault(None, expected, "other JSON" if len(files) == 1 else f"{len(files)} files of another kind")
        if len(files) > 1 and source.join:
            return source.join(files, catalogue)
        recording = source.read(file, catalogue)
        return recording if labels is None else table.with_labels(recording, labels)
    except InputError:
        raise
    except Exception as error:  # libraries raise errors of any type on damaged bytes
        raise file.fault("contents", expected, f"{type(error).__name__}: {error}") from error


def with_samples(recording: Recording, file: str | None) -> Recording:
    """Return the recording; raise an error if its window, names or number of graphs are wrong, or it holds no value."""
    start, end = recording.window
    if not (math.isfinite(start) and math.isfinite(end) and 0.0 <= start <= end < LATEST):
        expected = "a start and a later end between 1970 and 2200"
        raise InputError(file=file, key="window", expected=expected, found=f"{start:.12g} to {end:.12g} s")
    texts = [text for each in recording.series for text in (each.name, each.metric, *sum(each.labels.items(), ()))]
    texts += [each.name for each in recording.measurements]
    texts += [text for each in recording.label_summaries for text in (each.group, each.label, each.stat)]
    covered = [recording.coverage(series) for series in recording.series]
    ends = span(recording.series)
    if (longest := max(map(len, texts), default=0)) > MAX_NAME:
        key, expected = "names", f"names of metrics and labels of at most {MAX_NAME:,} characters"
        found = f"a name of {longest:,}"
    elif ends and not any(each.present for each in covered):
        data, found = (" to ".join(map(utc, pair)) for pair in (ends, recording.window))
        key, expected = "window", f"a window that overlaps the data ({data})"
    elif len(recording.graphs()) > MAX_GRAPHS:
        key, expected, found = "metrics", f"at most {MAX_GRAPHS} series to draw", f"{len(recording.graphs()):,}"
    elif not recording.label_summaries and not recording.measurements and not any(each.finite for each in covered):
        key, expected = "values", "at least one number in the run's window"
        found = plural(len(recording.series), "metric") + " without numbers"
    else:
        return recording
    raise InputError(file=file, key=key, expected=expected, found=found)


# ---- Cache of pulled recordings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """The place of one pulled run in the cache; run numbers start at 1."""

    comparison: str
    test: str
    build: Side
    run: int

    @property
    def path(self) -> str:
        """Path of the cached file, relative to the project's root."""
        name = self.build if self.run == 1 else f"{self.build}-{self.run}"
        return str(Path("data/recordings", self.comparison, self.test, f"{name}.parquet"))


def read_run(run: Run, source: Source, catalogue: Catalogue, slot: Slot, *, refresh: bool = False) -> Recording:
    """Read one run; a pulled run is cached in `slot`, and pulled again with `refresh` or after its request changed."""
    if not run.is_pulled:
        return record(run, source, catalogue)
    file = _kept(slot, run, source, catalogue, refresh=refresh)
    if file is None:
        pulled = record(run, source, catalogue)
        hashes = {REQUEST: _request(run, source, catalogue), ASKED_BY: _identity(source)}
        table.write_recording(replace(pulled, provenance={**pulled.provenance, **hashes}), resolve(slot.path))
        file = read_input(slot.path, expected=_PULLED)
    kept = table.read_recording(table.open_table(file), file)
    return replace(kept, provenance={**kept.provenance, "files": [file.provenance]})


def is_kept(slot: Slot, run: Run, source: Source, catalogue: Catalogue) -> bool:
    """Whether `run` is in the cache; only the metadata of its file are parsed."""
    try:
        return _kept(slot, run, source, catalogue) is not None
    except InputError:  # read_run reports the error
        return False


def _kept(slot: Slot, run: Run, source: Source, catalogue: Catalogue, *, refresh: bool = False) -> InputFile | None:
    """Return the file in `slot` if it was pulled by this request and with these credentials, else None.

    A file that was not pulled raises an error. The result is also None for a file pulled before its run ended, and with
    `refresh` for every pulled or damaged file. Credentials are compared only if all secrets are available.
    """
    if not resolve(slot.path).exists():
        return None
    file = read_input(slot.path, expected=_PULLED)
    is_damaged = table.is_whole(file.contents) is False
    if is_damaged and refresh:
        return None
    try:
        kept = table.read_head(table.open_table(file, only_schema=True), file).provenance
    except InputError:
        kept = {}
        if is_damaged:
            raise
    if REQUEST not in kept:
        raise file.fault("pulled recording", _PULLED, "another file")
    end = run.window[1].timestamp() if run.window else 0.0
    was_early = resolve(slot.path).stat().st_mtime < end <= time.time()  # pulled during the run
    is_same = not refresh and not was_early and kept[REQUEST] == _request(run, source, catalogue)
    return file if is_same and _identity(source) in (None, kept.get(ASKED_BY) or "") else None


def _identity(source: Source) -> str | None:
    from buildcompare.recordings.prometheus_session import identity  # imported late, because it is slow

    return identity(source)


def _request(run: Run, source: Source, catalogue: Catalogue) -> str:
    """Hash the parameters that determine a server's answer, without secrets and connection settings."""
    request = {
        "window": [instant.astimezone(dt.UTC).isoformat() for instant in run.window or ()],
        "url": run.url or source.url,
        "kind": source.kind,
        "steps": {name: value for name, value in source.model_dump(mode="json").items() if name.endswith("step_s")},
        "catalogue": catalogue.model_dump(mode="json"),
        **({"rate_s": source.rate_s} if catalogue.leaves_rates_open else {}),
    }
    if source.headers:  # hash headers too: they may choose the tenant whose data the server returns
        request["headers"] = {name.casefold(): value for name, value in source.headers.items()}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def shown(pulls: Sequence[tuple[Slot, Run]], *, quiet: bool = False) -> Iterator[tuple[Slot, Run]]:
    """Yield the runs to pull; unless `quiet`, show the progress on a terminal or in a notebook."""
    if quiet or not pulls:
        yield from pulls
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    is_hidden = not (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, disable=is_hidden) as progress:
        task = progress.add_task("recordings", total=len(pulls))
        for slot, run in pulls:
            progress.update(task, description=f"{slot.test}, {slot.build}, run {slot.run}")
            yield slot, run
            progress.advance(task)
        progress.update(task, description="recordings")
        progress.refresh()  # notebooks show the final state only after a refresh
