"""Read the output of pgbench (PostgreSQL 9.5 to today): summaries, progress (``-P``) and logs (``-l``).

Other text, such as headings or a prompt, is skipped; a line that starts like pgbench's but cannot be parsed is a fault.
Several summaries may follow each other, with or without headers. The logs of several threads (``-j``) are one run.
"""

import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.project import resolve
from buildcompare.config.remote import is_remote
from buildcompare.recordings.files import Curve, FileSource, InputFile, read_input, series_of
from buildcompare.recordings.recording import FloatArray, Measurement, Recording, Series, span

EXPECTED = "output of pgbench: a summary, progress (-P) or a log (-l)"
_NUMBER = r"(\d+(?:\.\d+)?)"
_COUNT, _MS = r"(\d+)(?: \(\d+(?:\.\d+)?\s?%\))?", _NUMBER + r" ms(?: \(including failures\))?"
_SETTINGS = {  # text before the colon -> name of the setting, pattern of its value
    "transaction type": ("script", "(.+)"),
    "scaling factor": ("scale", r"([1-9]\d{0,17})"),
    "partition method": ("partition method", r"(\w+)"),
    "partitions": ("partitions", r"(\d{1,18})"),
    "query mode": ("query mode", "(simple|extended|prepared)"),
    "number of clients": ("clients", r"([1-9]\d{0,17})"),
    "number of threads": ("threads", r"([1-9]\d{0,17})"),
    "maximum number of tries": ("most tries", r"(\d{1,18})"),
    "duration": ("duration", r"([1-9]\d{0,17}) s"),
    "number of transactions per client": ("transactions per client", r"([1-9]\d{0,17})"),
}
_TPS = {
    "including connections establishing": "tps including connections",
    "including reconnection times": "tps including connections",
    "excluding connections establishing": "tps",
    "without initial connection time": "tps",
}
_FIGURES = {  # text before the colon or equals sign -> name, pattern and factor (1e-3: milliseconds)
    "number of transactions actually processed": ("transactions", r"(\d+)(?:/\d+)?", 1.0),
    "number of failed transactions": ("failed transactions", _COUNT, 1.0),
    "number of transactions retried": ("retried transactions", _COUNT, 1.0),
    "total number of retries": ("retries", r"(\d+)", 1.0),
    "number of serialization failures": ("serialization failures", _COUNT, 1.0),
    "number of deadlock failures": ("deadlock failures", _COUNT, 1.0),
    "number of other failures": ("other failures", _COUNT, 1.0),
    "number of transactions skipped": ("skipped transactions", _COUNT, 1.0),
    "number of transactions above the latency limit": ("late transactions", r"(\d+)(?:/\d+)?(?: \(.*\))?", 1.0),
    "latency average": ("latency average", _MS, 1e-3),
    "latency stddev": ("latency stddev", _MS, 1e-3),
    "initial connection time": ("initial connection time", _MS, 1e-3),
    "average connection time": ("average connection time", _MS, 1e-3),
    "rate limit schedule lag": ("schedule lag", r"avg " + _NUMBER + r" \(max \d+(?:\.\d+)?\) ms", 1e-3),
}
_KEYS = "|".join(map(re.escape, [*_SETTINGS, *_FIGURES, "tps"]))
_LINE = re.compile(rf"({_KEYS})\s*[:=]\s*(.*)")
_BROKEN = re.compile(rf"(?:{_KEYS})\b")
_LIMIT = re.compile(r"(?<=above the )[\d.]+ ms (?=latency limit)")
_UNDONE = ("skipped", "failed", "serialization", "deadlock", "other")
"""Words that a log may have instead of a latency."""
_PROGRESS = re.compile(
    rf"progress: {_NUMBER} s, {_NUMBER} tps, lat ({_NUMBER}|-?nan) ms stddev ({_NUMBER}|-?nan)"
    r"(?:, \d+ failed)?(?:, lag (?:\d+(?:\.\d+)?|-?nan) ms)?(?:, \d+ skipped)?(?:, \d+ retried, \d+ retries)?",
    re.IGNORECASE,
)
EVERY = 0.99
"""Least share of the transactions that a log must contain, since they are counted for the rate."""
_EPOCH, _LATEST = 1e8, 7.2e9
"""Times in 1973 and 2198. A log's line starts with a time if its first number is above `_EPOCH`, else a client."""
LONGEST_S = 7 * 86_400
"""Longest log in seconds; each second becomes a sample."""
MOST_CUT = 2
"""Most intervals that a thread's aggregate log may lack at an end."""
_INTEGERS = ("scale", "partitions", "clients", "threads", "most tries", "duration", "transactions per client")
_NEEDED = ("clients", "transactions", "tps")


@dataclass(frozen=True)
class Summary:
    """pgbench's summary of one run."""

    line: int
    """First line in the file, from 1."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """For example ``scale``, ``clients``, ``duration`` (seconds)."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """For example ``tps`` (per second), ``latency average`` (seconds), ``transactions``."""


def pgbench_runs(path: str | Path) -> pd.DataFrame:
    r"""Read every summary of a file that holds output of pgbench.

    Parameters
    ----------
    path
        A text file, possibly gzipped; other text in it is skipped.

    Returns
    -------
    DataFrame
        One row for each run in the order of the file: ``line``, its settings (``scale``, ``clients``, ``threads``,
        ``duration`` in seconds), and its figures (``tps``, ``latency average`` in seconds, ``transactions``).

    Raises
    ------
    InputError
        If a summary cannot be parsed; the message names the line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "out.txt")
    >>> lines = ("scaling factor: 120", "number of clients: 4", "number of transactions actually processed: 67083")
    >>> _ = file.write_text("\n".join([*lines, "tps = 554.827463 (excluding connections establishing)"]))
    >>> pgbench_runs(file)[["line", "scale", "tps"]].values.tolist()
    [[1.0, 120.0, 554.827463]]
    """
    found = summaries(read_input(str(Path(path).absolute()), expected=EXPECTED))
    return pd.DataFrame([{"line": each.line, **each.settings, **each.figures} for each in found])


def summaries(file: InputFile) -> list[Summary]:
    """Read every summary of a file, in order; a file without one is a fault."""
    found: list[Summary] = []
    settings: dict[str, str | int] = {}
    figures: dict[str, float] = {}
    begun, lines = 0, _lines(file)

    def close() -> None:
        if begun and not (missing := [key for key in _NEEDED if key not in {**settings, **figures}]):
            found.append(Summary(begun, dict(settings), dict(figures)))
        elif begun:
            raise file.fault(f"line {begun}", f"a summary of pgbench with its {missing[0]}", "none before the next")
        settings.clear()
        figures.clear()

    for number, line in enumerate(lines, start=1):
        if "Run was aborted" in line:
            raise file.fault(f"line {number}", "a run that went to its end", "one that was aborted")
        match = _LINE.match(_LIMIT.sub("", line))
        if not match:
            if begun and "tps" not in figures and _BROKEN.match(line):
                raise file.fault(f"line {number}", "a value after a colon or an equals sign", repr(line[:60]))
            continue
        key, text = match[1], match[2].strip()
        name, value = _read(file, number, key, text)
        header = key in _SETTINGS
        if begun and header and figures:  # the previous summary is complete
            close()
            begun = 0
        if (earlier := settings.get(name, figures.get(name))) is not None and earlier != value:
            raise file.fault(f"line {number}", f"one {name} in each summary", f"{text!r} beside {earlier!r}")
        if earlier is not None and name != "scale":  # people paste the scale twice
            raise file.fault(f"line {number}", f"one {name} in each summary", "a second one")
        begun = begun or number
        if header:
            settings[name] = value if isinstance(value, str) else int(value)
        else:
            figures[name] = float(value)
            if name == "tps including connections" and "reconnection" in text:
                figures["tps"] = float(value)  # with -C it is the only rate
    close()
    if not found:
        raise file.fault(f"line {len(lines)}", EXPECTED, "the end of the file")
    return found


def _read(file: InputFile, number: int, key: str, text: str) -> tuple[str, str | int | float]:
    """Parse one line of a summary: name and value."""
    if key == "tps":
        match = re.fullmatch(rf"{_NUMBER} \(({'|'.join(_TPS)})\)", text)
        name, factor, usual = (_TPS[match[2]] if match else "", 1.0, f"a number and ({next(iter(_TPS))}) or the like")
    elif key in _FIGURES:
        name, pattern, factor = _FIGURES[key]
        match, usual = re.fullmatch(pattern, text), f"{'milliseconds' if factor < 1 else 'a number'} after `{key}`"
    else:
        name, pattern = _SETTINGS[key]
        factor, match, usual = 1.0, re.fullmatch(pattern, text), f"what pgbench writes after `{key}`"
    if match is None or (key not in _SETTINGS and not np.isfinite(float(match[1]))):
        raise file.fault(f"line {number}", usual, repr(text[:60]) if text else "nothing")
    if key in _SETTINGS:
        return name, int(match[1]) if name in _INTEGERS else match[1]
    value = float(match[1]) * factor
    if name == "tps" and value == 0.0:
        raise file.fault(f"line {number}", "more than 0 transactions per second", repr(text[:60]))
    return name, value


def read_pgbench(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read one run: measurements from the summary and a log's latencies, series from the progress or log."""
    if _is_log(file):
        return read_logs([file], catalogue)
    curves = [*_progress(file)]
    found = summaries(file) if not curves or b"tps = " in file.contents else []
    if len(found) > 1:
        places = ", ".join(str(each.line) for each in found[:4])
        raise file.fault(f"line {found[1].line}", "one run of pgbench", f"{len(found)} (lines {places})")
    settings = found[0].settings if found else {}
    if curves and settings:
        curves.append(_clients(curves[0], float(settings["clients"])))
    series = series_of(file, curves, catalogue)
    window = span(series) or (0.0, float(settings.get("duration", 0.0)))
    origin = {"kind": "pgbench", "settings": dict(settings), "files": [file.provenance], **_rate(series)}
    made = Recording(series, window, stop_known=True, provenance=origin)
    return replace(made, measurements=measured(found[0], catalogue) if found else ())


def _is_log(file: InputFile) -> bool:
    return re.match(r"\d+ \d", next((line for line in _lines(file) if line.strip()), "")) is not None


def _clients(beside: Curve, count: float) -> Curve:
    """Make the curve of clients, constant over the run."""
    return Curve("clients", beside.times, np.full(beside.times.size, count), {}, beside.place)


def measured(summary: Summary, catalogue: Catalogue) -> tuple[Measurement, ...]:
    """Convert a summary's figures to measurements of the catalogue's metrics."""
    return tuple(Measurement.of(name, [value], catalogue) for name, value in summary.figures.items())


def _progress(file: InputFile) -> Iterator[Curve]:
    rows: list[tuple[float, float, float, float]] = []
    for number, line in enumerate(_lines(file), start=1):
        if line.startswith("progress:"):
            match = _PROGRESS.fullmatch(line.strip())
            if match is None:
                expected = "progress as pgbench writes it (progress: 5.0 s, 618.8 tps, lat 15.844 ms stddev 2.715)"
                raise file.fault(f"line {number}", expected, repr(line[:60]))
            rows.append((float(match[1]), float(match[2]), float(match[3]) / 1e3, float(match[5]) / 1e3))
            if rows[-1][0] > _LATEST:
                raise file.fault(f"line {number}", "a time in seconds", f"{rows[-1][0]:g} s")
            if len(rows) > 1 and rows[-1][0] <= rows[-2][0]:
                raise file.fault(f"line {number}", f"a time after {rows[-2][0]:g} s (of one run)", f"{rows[-1][0]:g} s")
    if rows:
        times, tps, *latencies = np.array(rows).T
        yield from _curves(times, [tps, *(np.where(tps > 0, each, np.nan) for each in latencies)])


def read_logs(files: Sequence[InputFile], catalogue: Catalogue) -> Recording:
    """Read one run from the transaction logs or aggregate logs of all its threads (``--jobs``).

    Transactions are sorted by their ends; aggregates of the same interval are added up. One of the files may be the
    run's output, whose summary states the number of clients; aggregate logs lack it.
    """
    said = [file for file in files if len(files) > 1 and not _is_log(file)]
    summed_up = [each for file in said for each in summaries(file)]
    if len(summed_up) > 1:
        raise said[-1].fault(f"line {summed_up[-1].line}", "one summary beside the logs of one run", "a second one")
    if said and len(said) == len(files):
        raise files[1].fault("line 1", "a log of pgbench", "another output")
    files = [file for file in files if file not in said]
    tables = [_rows_of_log(file) for file in files]
    first, aggregate = files[0], bool(tables[0][0, 0] > _EPOCH)
    given, clients = {file.path and Path(resolve(file.path)).resolve() for file in files}, set[float]()
    for file, rows in zip(files, tables, strict=True):
        if bool(rows[0, 0] > _EPOCH) != aggregate:
            raise file.fault("line 1", f"a log of the kind of {first.path}", "the other (aggregates and transactions)")
        threads = _threads(file.path)
        if left := [each for each in threads if each.resolve() not in given]:
            named = Path(str(file.path)).with_name(threads[0].name)
            expected = f'the logs of all threads of the run (`pgbench: ["{named}", "{named}.*"]` in a params file)'
            raise file.fault(None, expected, f"{len(threads) - len(left)} of {len(threads)}, without {left[0].name}")
        if aggregate:
            continue
        if twice := clients & {*rows[:, 0]}:
            raise file.fault("line 1", "logs of one run: each client in one of them", f"client {min(twice):g} in two")
        clients |= {*rows[:, 0]}
        if abs(rows[0, 4] - tables[0][0, 4]) > LONGEST_S:
            raise file.fault("line 1", f"a time within {LONGEST_S // 86_400} days of {first.path}", f"{rows[0, 4]:.0f}")
    if aggregate:
        curves, done = _of_aggregates(first, _summed(files, tables)), list[Measurement]()
    else:
        table = np.concatenate(tables)
        table = table[np.lexsort((table[:, 5], table[:, 4]))]
        curves = _of_transactions(first, table)
        done = [Measurement.of("latency", table[np.isfinite(table[:, 2]), 2] / 1e6, catalogue)]
    count = max([float(each.settings["clients"]) for each in summed_up] + [float(len(clients))])
    curves += [_clients(curves[0], count)] if count else []
    series = series_of(first, curves, catalogue)
    window = span(series)
    assert window is not None  # a log has a line
    done += [each for summary in summed_up for each in measured(summary, catalogue)]
    settings = {name: value for each in summed_up for name, value in each.settings.items()}
    read = [file.provenance for file in (*said, *files)]
    origin = {"kind": "pgbench", "settings": settings, "files": read, **_rate(series)}
    return Recording(series, window, stop_known=True, measurements=tuple(done), provenance=origin)


def _rows_of_log(file: InputFile) -> FloatArray:
    """Return the first six numbers of each line; NaN for the latency of an undone transaction."""
    rows: list[list[float]] = []
    for number, line in enumerate(_lines(file), start=1):
        cells = ["nan" if cell in _UNDONE else cell for cell in line.split()]
        if not cells:
            continue
        if len(cells) < 6 or any(cell != "nan" and not re.fullmatch(r"\d+(?:\.\d+)?", cell) for cell in cells):
            raise file.fault(f"line {number}", "a line of a log of pgbench: six numbers or more", repr(line[:60]))
        row = [float(cell) for cell in cells[:6]]
        if rows and (row[0] > _EPOCH) != (rows[0][0] > _EPOCH):
            raise file.fault(f"line {number}", "one kind of log", "aggregates beside transactions")
        if row[0] > _EPOCH and rows and row[0] <= rows[-1][0]:
            raise file.fault(f"line {number}", f"an interval after {rows[-1][0]:.0f}", f"{row[0]:.0f}")
        column, time = ("first", row[0]) if row[0] > _EPOCH else ("fifth", row[4])
        if not _EPOCH < time < _LATEST:
            raise file.fault(f"line {number}", f"a time in seconds since 1970 in the {column} column", f"{time:g}")
        if row[0] <= _EPOCH and rows and abs(row[4] - rows[0][4]) > LONGEST_S:
            expected = f"a time within {LONGEST_S // 86_400} days of the first ({rows[0][4]:.0f})"
            raise file.fault(f"line {number}", expected, f"{row[4]:.0f}")
        rows.append(row)
    if not rows:
        raise file.fault("line 1", "a log of pgbench", "an empty one")
    return np.array(rows)


def _summed(files: Sequence[InputFile], tables: Sequence[FloatArray]) -> FloatArray:
    """Add up the threads' intervals: start, count, sum of latencies, sum of their squares, shape (n, 4).

    A thread's intervals start at its first whole second; starts within one second count as equal. Intervals at the
    ends that some thread lacks are left out.
    """
    gaps = np.concatenate([np.diff(rows[:, 0]) for rows in tables])
    if len(tables) == 1 or not gaps.size:
        return tables[0][:, :4]
    every, start = float(np.median(gaps)), min(float(rows[0, 0]) for rows in tables)
    places = [np.round((rows[:, 0] - rows[0, 0] + max(rows[0, 0] - start - 1.0, 0.0)) / every) for rows in tables]
    begin, end = max(float(place[0]) for place in places), min(float(place[-1]) for place in places)
    for file, place in zip(files, places, strict=True):
        for line, beyond in ((1, begin - place[0]), (place.size, place[-1] - end)):
            if beyond > MOST_CUT:
                expected = f"logs of one run, which begin and end within {MOST_CUT} intervals of each other"
                raise file.fault(f"line {line}", expected, f"{beyond:g} intervals without another")
    every_row = pd.DataFrame(np.concatenate(tables)[:, 1:4]).groupby(np.concatenate(places)).sum()
    kept = every_row.loc[begin:end]
    return np.column_stack([start + every * kept.index.to_numpy(dtype=np.float64), kept.to_numpy()])


def _threads(path: str | None) -> list[Path]:
    """List the logs of one run's threads (``--jobs``) beside `path`, itself included; empty for a single log."""
    if path is None or is_remote(path) or not (name := re.fullmatch(r"(.+?\.\d+)(?:\.\d+)?", Path(path).name)):
        return []
    folder = resolve(path).parent
    first = folder / name[1]
    others = sorted(each for each in folder.glob(f"{glob.escape(name[1])}.*") if each.suffix[1:].isdigit())
    return [first, *others] if first.is_file() and others else []


def _rate(series: Sequence[Series]) -> dict[str, float]:
    """Return the interval of the samples in seconds, over which rates are averages."""
    return {"rate_s": series[0].step_s} if series and series[0].times.size > 1 else {}


def _of_aggregates(file: InputFile, table: FloatArray) -> list[Curve]:
    times, count, total, squares = table[:, :4].T
    if times.size < 2:
        raise file.fault("line 1", "two intervals or more (how long one is stands nowhere)", "one")
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    columns = (count / np.median(np.diff(times)), mean / 1e6, spread / 1e6)
    return _curves(times, columns)


def _curves(times: FloatArray, columns: Iterable[FloatArray]) -> list[Curve]:
    names = ("tps", "latency average", "latency stddev")
    return [Curve(name, times, of, {}, "sample {}".format) for name, of in zip(names, columns, strict=True)]


def _of_transactions(file: InputFile, table: FloatArray) -> list[Curve]:
    """Count and average a log's transactions by whole second, without the incomplete first and last second."""
    numbers = pd.Series(table[:, 1]).groupby(table[:, 0])  # clients number their transactions separately
    made = int((numbers.max() - numbers.min() + 1).sum())
    if len(table) < EVERY * made:
        raise file.fault("line 1", "every transaction (without --sampling-rate)", f"{len(table):,} of {made:,}")
    ended = np.floor(table[:, 4]).astype(np.int64)
    done = pd.DataFrame({"second": ended, "latency": table[:, 2] / 1e6})
    seconds = np.arange(ended.min(), ended.max() + 1)
    found = done.groupby("second")["latency"].agg(["count", "mean", "std"]).reindex(seconds)
    found = (found.iloc[1:-1] if len(found) > 4 else found).fillna({"count": 0})
    times = found.index.to_numpy(dtype=np.float64)
    columns = found.to_numpy(dtype=np.float64).T
    return _curves(times, columns)


def _lines(file: InputFile) -> list[str]:
    try:
        return file.contents.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = file.contents[: error.start].count(b"\n") + 1
        raise file.fault(f"line {line}", "text in UTF-8", "bytes that are not") from None


_LIKE = re.compile(
    rb"(?m)^(?:pgbench \(|progress: [\d.]+ s,|transaction type: |scaling factor: |tps = )|\A\d+ \d+ [\d.]+ "
)
SOURCE = FileSource(EXPECTED, read_pgbench, lambda contents: _LIKE.search(contents[:100_000]) is not None)
