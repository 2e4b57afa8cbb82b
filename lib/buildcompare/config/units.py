"""Recognise and convert units in Grafana panels, in values such as ``12.5 ms``, and in names of metrics."""

import re
from collections.abc import Callable

LONGEST_NAME = 200  # names with this many characters or more are not searched for units
LASTS = r"latency|duration|delay|(?<!io-)wait|rtt|times?|elapsed|p\d\d+|percentile"
OF_SYSTEM = r"(iostat|mpstat|sar|vmstat|all-threads|(seconds|bytes)-(count|sum|bucket))"  # neutral metrics
OF_WORDS = {
    OF_SYSTEM: "",
    r"bytes-per-(second|sec|s)": "bytes/s",
    r"((ms|us|ns|seconds?|[kmg]?bits?)-per-(second|sec|s))": "",
    r"per-(ms|millisecond)": "1/ms",
    r"(ms|msecs?|millis|milliseconds?)": "ms",
    r"(us|usecs?|micros|microseconds?)": "µs",
    r"(ns|nsecs?|nanos|nanoseconds?)": "ns",
    r"(rps|(requests|reqs?)-(per-(second|sec|s)|s))": "requests/s",
    r"(qps|queries-per-(second|sec|s))": "queries/s",
    r"(tps|transactions-per-(second|sec|s))": "transactions/s",
    r"(kb|mb|gb|kib|mib|gib)-per-(second|sec|s)": "{}/s",
    r"per-(second|sec|s)": "1/s",
    r"bytes": "bytes",
    r"(kb|mb|gb|kib|mib|gib)": "{}",
    r"(percent|pct|percentage)": "percent",
    r"(ratio|fraction)": "ratio",
    r"(seconds?|secs?|s)": "seconds",
    r"(users|vus|clients|user-count)": "users",
    rf"({LASTS})": "seconds",
}
"""Pattern of whole words in a name -> unit; the first match counts. Base units follow Prometheus and OpenTelemetry."""
_SIZES = ("", "k", "m", "g", "t", "p")
_PER_SECOND = ("cps", "eps", "mps", "ops", "reqps", "rps", "wps", "iops", "recps", "rowsps")
_PER_MINUTE = ("cpm", "epm", "mpm", "opm", "reqpm", "rpm", "wpm", "recpm", "rowspm")
UNITS: dict[str, tuple[str, float]] = {
    "ns": ("seconds", 1e-9),
    **dict.fromkeys(("µs", "us"), ("seconds", 1e-6)),
    **dict.fromkeys(("ms", "dtdurationms", "clockms"), ("seconds", 1e-3)),
    "timeticks": ("seconds", 1e-2),
    **dict.fromkeys(("s", "dtdurations", "dthms", "dtdhms", "clocks"), ("seconds", 1.0)),
    "m": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "d": ("seconds", 86400.0),
    "percent": ("percent", 1.0),
    "percentunit": ("percent", 100.0),
    **{f"{size}bytes": ("bytes", 1024.0**i) for i, size in enumerate(_SIZES)},
    **{f"dec{size}bytes": ("bytes", 1e3**i) for i, size in enumerate(_SIZES)},
    **dict.fromkeys(("bits", "decbits"), ("bytes", 0.125)),
    **dict.fromkeys(("Bps", "binBps"), ("bytes/s", 1.0)),
    **{f"{size.upper()}Bs": ("bytes/s", 1e3**i) for i, size in enumerate(_SIZES) if size},
    **{f"{size.upper()}iBs": ("bytes/s", 1024.0**i) for i, size in enumerate(_SIZES) if size},
    **dict.fromkeys(_PER_SECOND, ("events/s", 1.0)),
    **dict.fromkeys(_PER_MINUTE, ("events/s", 1.0 / 60.0)),
}
"""Unit of a panel (Grafana's `valueFormats/categories.ts`) -> unit in this library, and the factor to convert to it."""
_PARTS = {"n": 1e-9, "µ": 1e-6, "u": 1e-6, "m": 1e-3, "": 1.0, "μ": 1e-6, "nano": 1e-9, "micro": 1e-6, "milli": 1e-3}
SUFFIXES: dict[str, tuple[str, float]] = {
    **{
        f"{part}{name}": ("seconds", seconds)
        for name in ("s", "sec", "secs", "second", "seconds")
        for part, seconds in _PARTS.items()
    },
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("seconds", 60.0)),
    **dict.fromkeys(("hour", "hours"), ("seconds", 3600.0)),
    **dict.fromkeys(("day", "days"), ("seconds", 86400.0)),
    **dict.fromkeys(("%", "percent", "percentage", "pct"), ("percent", 1.0)),
    **dict.fromkeys(("ratio", "fraction"), ("percent", 100.0)),
    **{f"{size}B{per}": (f"bytes{per}", 1e3**i) for per in ("", "/s") for i, size in enumerate(("", *"kMGT"))},
    **{f"{size}iB{per}": (f"bytes{per}", 1024.0**i) for per in ("", "/s") for i, size in enumerate("KMGT", 1)},
    **dict.fromkeys(("byte", "bytes"), ("bytes", 1.0)),
    **{size: ("", 1e3**i) for i, size in enumerate(("K", "Mil", "Bil", "Tri"), 1)},
    **{
        f"{size} {what}/{per}".strip(): ("events/s", 1e3**i / seconds)
        for i, size in enumerate(("", "K", "M", "B", "T"))
        for what in ("req", "requests", "c", "ops", "rd", "wr", "io", "evt", "mpx", "rec", "rows", "hits", "1", "")
        for per, seconds in (("s", 1.0), ("sec", 1.0), ("second", 1.0), ("min", 60.0), ("m", 60.0), ("minute", 60.0))
    },
    **{name: UNITS[name] for name in (*_PER_SECOND, *_PER_MINUTE)},
}
"""Suffix of a value in Grafana -> unit in this library, and the factor to convert to it; an empty unit fits any."""
TIMES = {"seconds", *(unit for unit, (base, _) in (UNITS | SUFFIXES).items() if base == "seconds")}  # units of time
NO_UNIT = ("", "none", "short", "locale", "sishort", "string", "sci")


def unit_factor(fault: Callable[..., Exception], key: str, stated: str, unit: str, *, is_suffix: bool = False) -> float:
    """Return the factor that converts `stated`, a panel's unit or a suffix such as ms, to the catalogue's `unit`."""
    if stated == unit or (not is_suffix and (stated in NO_UNIT or not unit)):
        return 1.0
    units, (wanted, size) = SUFFIXES if is_suffix else UNITS, SUFFIXES.get(unit) or (_quantity(unit), 1.0)
    quantity, factor = (_suffix(stated) or (None, 1.0)) if is_suffix else UNITS.get(stated, ("", 1.0))
    if quantity == wanted or (is_suffix and quantity is not None and (not quantity or not unit)):
        return factor / size
    fits = ", ".join([name for name, (each, _) in units.items() if each and each == wanted][:10]) or "none"
    of_value, of_panel = f"a number, or one in {unit or 'a known unit'} ({fits})", f"a unit of {unit} ({fits}), or none"
    raise fault(key, of_value if is_suffix else of_panel, repr(stated))


def is_unit(text: str, unit: str) -> bool:
    """Whether `text` is a known unit that converts to the catalogue's `unit`; an empty `unit` fits any known unit."""
    found, wanted = _suffix(text), SUFFIXES.get(unit, (_quantity(unit),))[0]
    return found is not None and (not unit or found[0] == wanted != "")


def base_unit(text: str) -> str:
    """Return the unit to which values in `text` are converted, such as seconds for ``ms``; empty if unknown."""
    return (_suffix(text) or ("",))[0]


def _suffix(text: str) -> tuple[str, float] | None:
    return SUFFIXES.get(text) or SUFFIXES.get(text.casefold())  # `MS` matches `ms`; `mb` (megabits) must not match `MB`


def split_unit(text: str) -> tuple[str, str]:
    """Split a text such as ``P99 API times (ms)`` into name and unit; the unit is empty if no known unit follows."""
    for gap in re.finditer(r"(?:[^\w%/]|_)+|(?=[%/])", text if len(text) < LONGEST_NAME else ""):
        rest = re.sub(r"^(?:in|unit)(?:[^\w%]|_)+|[^\w%]+$", "", text[gap.end() :])
        for unit in (rest, rest.removeprefix("/")):
            if gap.start() and is_unit(unit, ""):
                return text[: gap.start()], unit
    return text, ""


def _quantity(unit: str) -> str:
    """Return the unit in `UNITS` that corresponds to a catalogue's unit; empty if there is none (counts)."""
    usual = {"percent of one core": "percent"}.get(unit, unit)
    counted = "events/s" if unit.endswith("/s") else ""
    return usual if usual in {quantity for quantity, _ in UNITS.values()} else counted
