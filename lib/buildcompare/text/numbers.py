"""Format numbers, units, changes, intervals, statuses and lists."""

import math
from collections.abc import Iterable

from buildcompare.config.outside import shown
from buildcompare.results.codes import Better, Status, Verdict

MISSING = "–"
_SCALES = {
    "seconds": ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "µs", 1e6), (0.0, "ns", 1e9)),
    "bytes": ((1e9, "GB", 1e-9), (1e6, "MB", 1e-6), (1e3, "kB", 1e-3), (0.0, "B", 1.0)),
}
_LARGE = ((1e9, "billion"), (1e6, "million"))
_DB_NAMES = {"postgresql": "Postgres", "postgres": "Postgres", "mysql": "MySQL", "mariadb": "MariaDB"}
SHORT_UNITS = {"percent of one core": "%", "percent": "%"}
SCALED = {*_SCALES, *SHORT_UNITS}
"""Units that stand behind a value in a narrow table; of others the metric's name says what is counted."""
STATUS_WORDS = {
    Status.REGRESSION: Status.REGRESSION,
    Status.IMPROVEMENT: Status.IMPROVEMENT,
    Status.EQUIVALENT: "no difference",
    Status.NOT_WORSE: "no worse",
    Status.INCONCLUSIVE: "cannot tell",
    Status.NOT_COMPARABLE: "not comparable",
}
STATUS_SYMBOLS = {Status.REGRESSION: "✗", Status.IMPROVEMENT: "✓", Status.EQUIVALENT: "=", Status.NOT_WORSE: "≤",
                  Status.INCONCLUSIVE: "?", Status.NOT_COMPARABLE: "∅"}  # fmt: skip
DECIDED_WORDS = {"traffic_mix": "at unchanged traffic mix", "equal_load": "at equal load"}
"""How a metric was measured that a verdict counts; of its level nothing is said."""
VERDICT_WORDS = {Verdict.PASS: "Pass", Verdict.REGRESSION: "Regression", Verdict.INCONCLUSIVE: "Cannot tell",
                 Verdict.INVALID: "Invalid test"}  # fmt: skip
_SMALL = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
VERDICT_SYMBOLS = {Verdict.PASS: "✓", Verdict.REGRESSION: "✗", Verdict.INCONCLUSIVE: "?", Verdict.INVALID: "⊘"}


def printable(text: str) -> str:
    """`text` as one line in which nothing steers a terminal: spaces for white space, control characters written out."""
    return text if text.isprintable() else shown("".join(" " if each.isspace() else each for each in text))


def significant(value: float, digits: int = 3) -> str:
    """A number with at most `digits` significant digits, never in exponent form above 0.001."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    if abs(rounded) >= 1e-3:
        return f"{rounded:,.{max(places, 0)}f}"
    return f"{rounded:.{digits - 1}e}"


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit: ``10.5 ms``, ``604 MB``, ``15,400 goroutines``; a dash where there is none."""
    if value is None:
        return MISSING
    if unit == "users":
        return f"{value:,.0f} users"
    if unit not in _SCALES:
        return f"{significant(value)} {SHORT_UNITS.get(unit, unit)}".strip()
    factor, name = unit_scale(value, unit) if value else (1.0, {"seconds": "s", "bytes": "B"}[unit])
    return f"{significant(value * factor)} {name}"


def whole(value: float, sign: str = "") -> str:
    """A number without decimals: ``15,400``; `sign`: ``"+"`` where a rise shall show its own."""
    return f"{value:{sign},.0f}".replace("-", "−")


def share(part: float) -> str:
    """A part of the whole: ``45%``."""
    return f"{part:.0%}"


def scales(unit: str) -> tuple[tuple[float, str, float], ...]:
    """In what values of `unit` are read, largest first: from which size on, the name, and the factor."""
    large = ((2.0 * size, f"{name} {unit}".strip(), 1.0 / size) for size, name in _LARGE)
    return _SCALES.get(unit) or (*large, (0.0, unit, 1.0))


def unit_scale(largest: float, unit: str) -> tuple[float, str]:
    """The factor and the name of the unit in which an axis up to `largest` is read."""
    _, name, factor = next((scale for scale in scales(unit) if abs(largest) >= scale[0]), (0.0, unit, 1.0))
    return factor, name


def change(percent: float | None) -> str:
    """A change with its sign: ``+6.1 %``; a dash where there is none."""
    if percent is None:
        return MISSING
    text = f"{percent:+.1f}" if abs(percent) < 99.95 else f"{percent:+,.0f}"
    return "0.0 %" if text in ("+0.0", "-0.0") else f"{text.replace('-', '−')} %"


def interval(low: float | None, high: float | None) -> str:
    """An interval of a change: ``+0.9 to +11.5 %``; a dash where there is none."""
    if low is None or high is None:
        return MISSING
    return f"{change(low).removesuffix(' %')} to {change(high)}"


def ranged(delta: float | None, low: float | None, high: float | None, name: str = "95 % interval ") -> str:
    """A change with its interval: ``+6.1 % (95 % interval +0.9 to +11.5 %)``."""
    return f"{change(delta)} ({name}{interval(low, high)})"


def shift_words(users: float) -> str:
    """How far the new build's ramp is from the base's: ``890 users behind``."""
    return f"{abs(users):,.0f} users {'behind' if users < 0 else 'ahead'}"


def percent(value: float | None) -> str:
    """A size in percent without a sign: ``5.2 %``."""
    return MISSING if value is None else f"{significant(value, 2)} %"


def p_words(p_value: float | None) -> str:
    """A p-value: ``p 0.030``, ``p below 0.001``."""
    return f"p {significant(p_value or 0.0, 2)}" if p_value is None or p_value >= 0.001 else "p below 0.001"


def counted(count: int, noun: str) -> str:
    """A small number of things in words: ``one thing``, ``two things``."""
    return f"one {noun}" if count == 1 else f"{_SMALL.get(count, count)} {noun}s"


def status_words(
    status: Status,
    better: Better | str = Better.LOWER,
    margin: float | None = None,
    low: float | None = None,
    high: float | None = None,
    no_worse_than: float | None = None,
) -> str:
    """A status as people say it: ``no difference beyond 5 %``, ``no worse than 10 %``.

    Equivalence goes by the 90 % interval (two one-sided tests at 5 %). Where the 95 % interval from `low` to `high`,
    which is shown beside it, leaves the margin, the words name the 90 % interval.
    """
    if better == "neutral" and status in (Status.REGRESSION, Status.IMPROVEMENT):
        return "lower" if status == Status.REGRESSION else Better.HIGHER
    words = STATUS_WORDS[status]
    if status == Status.NOT_WORSE and no_worse_than is not None:
        return f"{words} than {percent(no_worse_than)}"
    if status != Status.EQUIVALENT or margin is None:
        return words
    leaves = low is not None and high is not None and not -margin < low <= high < margin
    return f"{words} beyond {percent(margin)}" + (" (its 90 % interval lies within)" if leaves else "")


def minutes(seconds: float | None, places: int = 1) -> str:
    """Elapsed time as minutes: ``18.2 min``."""
    return MISSING if seconds is None else f"{seconds / 60:.{places}f} min"


def db_name(db_engine: str | None) -> str:
    """A database's name as people write it."""
    engine = db_engine or ""
    return _DB_NAMES.get(engine.casefold(), engine[:1].upper() + engine[1:])


def test_words(kind: str, db_engine: str | None) -> str:
    """A test by type and database: ``Unbounded Postgres``."""
    return f"{kind.capitalize()} {db_name(db_engine)}".strip()


def listed(items: Iterable[str], most: int = 5) -> str:
    """The first `most` items, with a count of those left out."""
    every = list(items)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"
