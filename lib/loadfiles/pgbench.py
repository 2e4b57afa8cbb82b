"""Read the output of pgbench (PostgreSQL 9.5 to today): summaries, progress (``-P``) and logs (``-l``).

Other text, such as headings or a prompt, is skipped; a line that starts like pgbench's but cannot be parsed is a fault.
Several summaries may follow each other, with or without headers. The logs of several threads (``-j``) are one run.
"""

import glob
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve
from buildcompare.config.remote import is_remote
from buildcompare.recordings.files import Curve, InputFile, read_input, series_of
from buildcompare.recordings.formats import FileSource
from buildcompare.recordings.recording import FloatArray, Measurement, Recording, span

EXPECTED = "output of pgbench: a summary, progress (-P) or a log (-l)"
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_WHOLE, _COUNT, _RATIO = (
    r"([0-9]{1,18})",
    r"([0-9]+)(?: \([0-9]+(?:\.[0-9]+)?\s?%\))?",
    r"([0-9]+)(?:/[0-9]+)?(?: \(.*\))?",
)
_MS = _NUMBER + r" ms(?: \(including failures\))?"
_SETTINGS = {  # text before the colon -> name of the setting, pattern of its value
    "transaction type": ("script", "(.+)"),
    "scaling factor": ("scale", _WHOLE),
    "partition method": ("partition method", r"(\w+)"),
    "partitions": ("partitions", _WHOLE),
    "query mode": ("query mode", "(simple|extended|prepared)"),
    "number of clients": ("clients", _WHOLE),
    "number of threads": ("threads", _WHOLE),
    "maximum number of tries": ("most tries", _WHOLE),
    "duration": ("duration", _WHOLE + " s"),
    "number of transactions per client": ("transactions per client", _WHOLE),
}
_POSITIVE = ("scale", "clients", "threads", "duration", "transactions per client", "tps")
_TPS = {
    "without initial connection time": "tps",
    "excluding connections establishing": "tps",
    "including connections establishing": "tps including connections",
    "including reconnection times": "tps including connections",
}
_FIGURES = {  # text before the colon or equals sign -> name, pattern of its value; milliseconds become seconds
    "tps": ("tps", rf"{_NUMBER} \(({'|'.join(_TPS)})\)"),
    "number of transactions actually processed": ("transactions", _RATIO),
    "number of failed transactions": ("failed transactions", _COUNT),
    "number of transactions retried": ("retried transactions", _COUNT),
    "total number of retries": ("retries", _COUNT),
    "number of serialization failures": ("serialization failures", _COUNT),
    "number of deadlock failures": ("deadlock failures", _COUNT),
    "number of other failures": ("other failures", _COUNT),
    "number of transactions skipped": ("skipped transactions", _COUNT),
    "number of transactions above the latency limit": ("late transactions", _RATIO),
    "latency average": ("latency average", _MS),
    "latency stddev": ("latency stddev", _MS),
    "initial connection time": ("initial connection time", _MS),
    "average connection time": ("average connection time", _MS),
    "rate limit schedule lag": ("schedule lag", rf"avg {_NUMBER} \(max \d+(?:\.\d+)?\) ms"),
}
_KEYS = "|".join(map(re.escape, [*_SETTINGS, *_FIGURES]))
_LINE = re.compile(rf"({_KEYS})\s*[:=]\s*(.*)")
_BROKEN = re.compile(rf"(?:{_KEYS})\b")
_LIMIT = re.compile(r"(?<=above the )[\d.]+ ms (?=latency limit)")
_UNDONE = ("skipped", "failed", "serialization", "deadlock", "other")  # words that replace the latency in a log
_CELL = re.compile(r"nan|[0-9]+(?:\.[0-9]+)?")
_PROGRESS = re.compile(
    rf"progress: {_NUMBER} s, {_NUMBER} tps, lat ({_NUMBER}|-?nan) ms stddev ({_NUMBER}|-?nan)"
    r"(?:, \d+ failed)?(?:, lag (?:\d+(?:\.\d+)?|-?nan) ms)?(?:, \d+ skipped)?(?:, \d+ retried, \d+ retries)?",
    re.IGNORECASE,
)
EVERY = 0.99  # least share of the transactions in a log, whose lines are counted for the rate
_EPOCH, _LATEST = 1e8, 7.2e9
"""Times in 1973 and 2198. A log line starts with a time if its first number is above `_EPOCH`, else with a client."""
LONGEST_S = 7 * 86_400  # longest log in seconds; each second becomes a sample
MOST_CUT = 2  # most intervals that a thread's aggregate log may lack at an end
_NEEDED = ("clients", "transactions", "tps")


@dataclass(frozen=True)
class Summary:
    """pgbench's summary of one run."""

    line: int  # first line in the file, from 1
    settings: dict[str, str | int] = field(default_factory=dict)
    """For example ``scale``, ``clients``, ``duration`` (seconds)."""
    figures: dict[str, float] = field(default_factory=dict)
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
    runs = summaries(read_input(str(Path(path).absolute()), expected=EXPECTED))
    return pd.DataFrame([{"line": each.line, **each.settings, **each.figures} for each in runs])


def summaries(file: InputFile) -> list[Summary]:
    """Read every summary of a file, in order; a file without one is a fault."""
    made, lines = list[Summary](), _lines(file)
    for number, line in enumerate(lines, start=1):
        fault = partial(file.fault, f"line {number}")
        if "Run was aborted" in line:
            raise fault("a finished run", "an aborted run")
        match = _LINE.match(_LIMIT.sub("", line))
        if not match:
            if made and "tps" not in made[-1].figures and _BROKEN.match(line):
                raise fault("a value after a colon or an equals sign", repr(line[:60]))
            continue
        key, text = match[1], match[2].strip()
        is_setting = key in _SETTINGS
        if not made or (is_setting and made[-1].figures):  # the previous summary is complete
            made.append(Summary(number))
        now = made[-1]
        name, value = _read(key, text, fault)
        if (earlier := now.settings.get(name, now.figures.get(name))) is not None and earlier != value:
            raise fault(f"one {name} in each summary", f"{text!r} beside {earlier!r}")
        if earlier is not None and name != "scale":  # people paste the scale twice
            raise fault(f"one {name} in each summary", "a second one")
        if is_setting:
            now.settings[name] = value if isinstance(value, str) else int(value)
        else:
            now.figures[name] = float(value)
            if "reconnection" in text:
                now.figures["tps"] = float(value)  # with -C it is the only rate
    for each in made:
        if missing := [key for key in _NEEDED if key not in {**each.settings, **each.figures}]:
            raise file.fault(f"line {each.line}", f"a summary of pgbench with its {missing[0]}", "no such line")
    if not made:
        raise file.fault(f"line {len(lines)}", EXPECTED, "the end of the file")
    return made


def _read(key: str, text: str, fault: Callable[[str, str], InputError]) -> tuple[str, str | int | float]:
    """Parse one line of a summary: name and value."""
    name, pattern = _SETTINGS.get(key) or _FIGURES[key]
    match = re.fullmatch(pattern, text)
    value: str | int | float = match[1] if match else ""
    if match and pattern.startswith(_WHOLE):
        value = int(match[1])
    elif match and key in _FIGURES:
        value = float(match[1]) * (1e-3 if " ms" in pattern else 1.0)
    if not match or value == float("inf") or (value == 0 and name in _POSITIVE):
        usual = "milliseconds" if " ms" in pattern else f"{'more than 0, ' * (value == 0)}what pgbench writes"
        raise fault(f"{usual} after `{key}`", repr(text[:60]) if text else "nothing")
    return _TPS[match[2]] if key == "tps" else name, value


def read_pgbench(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read one run: measurements from the summary and a log's latencies, series from the progress or log."""
    if _is_log(file):
        return read_logs([file], catalogue)
    curves = _progress(file)
    runs = summaries(file) if not curves or b"tps = " in file.contents else []
    if len(runs) > 1:
        places = ", ".join(str(each.line) for each in runs[:4])
        raise file.fault(f"line {runs[1].line}", "one run of pgbench", f"{len(runs)} (lines {places})")
    return _recording([file], curves, runs, catalogue)


def _recording(
    files: Sequence[InputFile],
    curves: list[Curve],
    runs: Sequence[Summary],
    catalogue: Catalogue,
    clients: float = 0.0,
) -> Recording:
    """Make the recording of one run; a summary in `runs` states its settings and the number of clients."""
    settings = {name: value for each in runs for name, value in each.settings.items()}
    clients = max(clients, float(settings.get("clients", 0)))
    if curves and clients:
        times = curves[0].times
        curves = [*curves, Curve("clients", times, np.full(times.size, clients), {}, curves[0].place)]
    series = series_of(files[0], curves, catalogue)
    window = span(series) or (0.0, float(settings.get("duration", 0.0)))
    regular = bool(series) and series[0].times.size > 1
    rate = {"rate_s": series[0].step_s} if regular else {}  # rates are averages over the interval of the samples
    origin = {"kind": "pgbench", "settings": settings, "files": [file.provenance for file in files], **rate}
    measurements = tuple(each for summary in runs for each in measured(summary, catalogue))
    return Recording(series, window, stop_known=True, measurements=measurements, provenance=origin)


def _is_log(file: InputFile) -> bool:
    return re.match(r"\d+ \d", next((line for line in _lines(file) if line.strip()), "")) is not None


def measured(summary: Summary, catalogue: Catalogue) -> tuple[Measurement, ...]:
    """Convert a summary's figures to measurements of the catalogue's metrics."""
    return tuple(Measurement.of(name, [value], catalogue) for name, value in summary.figures.items())


def _progress(file: InputFile) -> list[Curve]:
    rows: list[list[float]] = []
    for number, line in enumerate(_lines(file), start=1):
        if not line.startswith("progress:"):
            continue
        match = _PROGRESS.fullmatch(line.strip())
        if match is None:
            expected = "progress as pgbench writes it (progress: 5.0 s, 618.8 tps, lat 15.844 ms stddev 2.715)"
            raise file.fault(f"line {number}", expected, repr(line[:60]))
        rows.append([float(match[group]) for group in (1, 2, 3, 5)])
        before, now = rows[-2][0] if len(rows) > 1 else 0.0, rows[-1][0]
        if not before < now < _LATEST:
            raise file.fault(f"line {number}", f"a later time of the same run than {before:g} s", f"{now:g} s")
    if not rows:
        return []
    times, tps, *latencies = np.array(rows).T
    return _curves(times, [tps, *(np.where(tps > 0, each / 1e3, np.nan) for each in latencies)])


def read_logs(files: Sequence[InputFile], catalogue: Catalogue) -> Recording:
    """Read one run from the transaction logs or aggregate logs of all its threads (``--jobs``).

    Transactions are sorted by their ends; aggregates of the same interval are added up. One of the files may be the
    run's output, whose summary states the number of clients; aggregate logs lack it.
    """
    outputs = [file for file in files if len(files) > 1 and not _is_log(file)]
    summed_up = [each for file in outputs for each in summaries(file)]
    if len(summed_up) > 1:
        raise outputs[-1].fault(f"line {summed_up[-1].line}", "one summary beside the logs of one run", "a second one")
    if outputs and len(outputs) == len(files):
        raise files[1].fault("line 1", "a log of pgbench (-l)", "other output")
    files = [file for file in files if file not in outputs]
    tables = [_rows_of_log(file) for file in files]
    first, aggregate = files[0], bool(tables[0][0, 0] > _EPOCH)
    paths, clients = {file.path and Path(resolve(file.path)).resolve() for file in files}, set[float]()
    for file, rows in zip(files, tables, strict=True):
        if bool(rows[0, 0] > _EPOCH) != aggregate:
            raise file.fault("line 1", f"the same kind of log as {first.path}", "transactions beside aggregates")
        threads = _threads(file.path)
        if left := [each for each in threads if each.resolve() not in paths]:
            named = Path(str(file.path)).with_name(threads[0].name)
            expected = f'the logs of all threads of the run (`pgbench: ["{named}", "{named}.*"]` in a params file)'
            raise file.fault(None, expected, f"{len(threads) - len(left)} of {len(threads)}, without {left[0].name}")
        if aggregate:
            continue
        if twice := clients & {*rows[:, 0]}:
            raise file.fault("line 1", "each client in only one log of a run", f"client {min(twice):g} in two logs")
        clients |= {*rows[:, 0]}
        if abs(rows[0, 4] - tables[0][0, 4]) > LONGEST_S:
            raise file.fault("line 1", f"a time within {LONGEST_S // 86_400} days of {first.path}", f"{rows[0, 4]:.0f}")
    if aggregate:
        return _recording([*files, *outputs], _of_aggregates(first, _summed(files, tables)), summed_up, catalogue)
    table = np.concatenate(tables)
    table = table[np.lexsort((table[:, 5], table[:, 4]))]
    made = _recording([*files, *outputs], _of_transactions(first, table), summed_up, catalogue, float(len(clients)))
    latency = Measurement.of("latency", table[np.isfinite(table[:, 2]), 2] / 1e6, catalogue)
    return replace(made, measurements=(latency, *made.measurements))


def _rows_of_log(file: InputFile) -> FloatArray:
    """Return the first six numbers of each line; NaN for the latency of an undone transaction."""
    rows: list[list[float]] = []
    for number, line in enumerate(_lines(file), start=1):
        cells = ["nan" if cell in _UNDONE else cell for cell in line.split()]
        if cells and (len(cells) < 6 or not all(map(_CELL.fullmatch, cells))):
            raise file.fault(f"line {number}", "a line of a log of pgbench: six numbers or more", repr(line[:60]))
        rows += [[number, *map(float, cells[:6])]] if cells else []
    if not rows:
        raise file.fault("line 1", "a log of pgbench", "an empty one")
    lines, table = np.split(np.array(rows), [1], axis=1)
    aggregate = table[:, 0] > _EPOCH
    times, column = (table[:, 0], "first") if aggregate[0] else (table[:, 4], "fifth")

    def check(bad: npt.NDArray[np.bool_], expected: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise file.fault(f"line {lines[first, 0]:.0f}", expected, f"{times[first]:.12g}")

    check(aggregate != aggregate[0], "one kind of log, aggregates or transactions")
    check((times <= _EPOCH) | (times >= _LATEST), f"a time in seconds since 1970 in the {column} column")
    if aggregate[0]:
        check(np.diff(times, prepend=0.0) <= 0, "an interval after the one before")
    else:
        expected = f"a time within {LONGEST_S // 86_400} days of the first ({times[0]:.0f})"
        check(np.abs(times - times[0]) > LONGEST_S, expected)
    return table


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
                expected = f"logs of one run, whose starts and ends differ by at most {MOST_CUT} intervals"
                raise file.fault(f"line {line}", expected, f"a difference of {beyond:g} intervals")
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


def _of_aggregates(file: InputFile, table: FloatArray) -> list[Curve]:
    times, count, total, squares = table[:, :4].T
    if times.size < 2:
        raise file.fault("line 1", "at least two intervals, which tell their length", "one")
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return _curves(times, [count / np.median(np.diff(times)), mean / 1e6, spread / 1e6])


def _of_transactions(file: InputFile, table: FloatArray) -> list[Curve]:
    """Count and average a log's transactions by whole second, without the incomplete first and last second."""
    numbers = pd.Series(table[:, 1]).groupby(table[:, 0])  # clients number their transactions separately
    made = int((numbers.max() - numbers.min() + 1).sum())
    if len(table) < EVERY * made:
        raise file.fault("line 1", "every transaction (without --sampling-rate)", f"{len(table):,} of {made:,}")
    seconds = np.floor(table[:, 4]).astype(np.int64)
    done = pd.Series(table[:, 2] / 1e6).groupby(seconds).agg(["count", "mean", "std"])
    done = done.reindex(np.arange(seconds.min(), seconds.max() + 1))
    done = (done.iloc[1:-1] if len(done) > 4 else done).fillna({"count": 0})
    return _curves(done.index.to_numpy(dtype=np.float64), done.to_numpy(dtype=np.float64).T)


def _curves(times: FloatArray, columns: Iterable[FloatArray]) -> list[Curve]:
    names = ("tps", "latency average", "latency stddev")
    return [Curve(name, times, of, {}, "sample {}".format) for name, of in zip(names, columns, strict=True)]


def _lines(file: InputFile) -> list[str]:
    try:
        return file.contents.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = file.contents[: error.start].count(b"\n") + 1
        raise file.fault(f"line {line}", "text in UTF-8", "other bytes") from None


_LIKE = re.compile(
    rb"(?m)^(?:pgbench \(|progress: [\d.]+ s,|transaction type: |scaling factor: |tps = )|\A\d+ \d+ [\d.]+ "
)
SOURCE = FileSource(EXPECTED, read_pgbench, lambda contents: _LIKE.search(contents[:100_000]) is not None, read_logs)
