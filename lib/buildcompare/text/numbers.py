"""Format numbers, units, changes, intervals, statuses and lists."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from buildcompare.config.outside import shown
from buildcompare.results.codes import Better, Status, Verdict

if TYPE_CHECKING:
    from buildcompare.results import Change

MISSING = "–"
LONGEST_LABEL = 60
"""Maximum number of characters of a label in a sentence; tables show the whole label."""
_SCALES = {
    "seconds": ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "µs", 1e6), (0.0, "ns", 1e9)),
    "bytes": ((1e9, "GB", 1e-9), (1e6, "MB", 1e-6), (1e3, "kB", 1e-3), (0.0, "B", 1.0)),
}
_FACTORS_FROM = 1000.0  # changes of this many percent or more are shown as factors
_LARGE = ((1e9, "billion"), (1e6, "million"))
_DB_NAMES = {"postgresql": "Postgres", "postgres": "Postgres", "mysql": "MySQL", "mariadb": "MariaDB"}
SHORT_UNITS = {"percent of one core": "%", "percent": "%"}
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
ARROWS = {Status.IMPROVEMENT: "↑", Status.REGRESSION: "↓"}  # for neutral metrics, IMPROVEMENT means a rise
DECIDED_WORDS = {"traffic_mix": "at unchanged traffic mix", "equal_load": "at equal load"}
"""Code in `decided_by` -> words for the value that decides a metric; the codes `level` and `none` have no words."""
VERDICT_WORDS = {Verdict.PASS: "Pass", Verdict.REGRESSION: "Regression", Verdict.INCONCLUSIVE: "Cannot tell",
                 Verdict.INVALID: "Invalid test"}  # fmt: skip
_SMALL = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
VERDICT_SYMBOLS = {Verdict.PASS: "✓", Verdict.REGRESSION: "✗", Verdict.INCONCLUSIVE: "?", Verdict.INVALID: "⊘"}


def printable(text: str) -> str:
    """Return `text` as one line: white space becomes spaces, control characters are escaped."""
    return text if text.isprintable() else shown("".join(" " if each.isspace() else each for each in text))


def status_symbol(status: Status, better: Better | str = Better.LOWER) -> str:
    """Return the symbol of a status; for a metric without a better direction, a change has an arrow."""
    return (ARROWS if better == Better.NEUTRAL else {}).get(status, STATUS_SYMBOLS[status])


def rounded(value: float, places: int, bound: str = "") -> float:
    """Round `value` to `places` decimals; a ``lower`` bound is rounded down, an ``upper`` bound up."""
    if not bound or not math.isfinite(value):
        return round(value, places)
    scaled = value * 10.0**places  # the tolerance 1e-6 exceeds floating-point errors
    return (math.floor(scaled + 1e-6) if bound == "lower" else math.ceil(scaled - 1e-6)) / 10.0**places


def significant(value: float, digits: int = 3, bound: str = "") -> str:
    """Format a number with at most `digits` significant digits, and with an exponent only below 0.001."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    shown = rounded(value, places, bound)
    return f"{shown:,.{max(places, 0)}f}" if abs(shown) >= 1e-3 else f"{shown:.{digits - 1}e}"


def quantity(value: float | None, unit: str, bound: str = "") -> str:
    """Format a value with its unit: ``10.5 ms``, ``604 MB``, ``99.97 %``; a dash for None."""
    if value is None:
        return MISSING
    if unit == "users":
        return f"{rounded(value, 0, bound):,.0f} users"
    if unit not in _SCALES:
        whole = {"percent": 100.0, "": 1.0}.get(unit, 0.0)  # more digits near 100 %: 99.97 % is not 100 %
        digits = min(math.ceil(math.log10(whole / (whole - value)) - 1e-9), 6) if 0.0 < value < whole else 3
        return f"{significant(value, max(digits, 3), bound)} {SHORT_UNITS.get(unit, unit)}".strip()
    factor, name = unit_scale(value, unit) if value else (1.0, {"seconds": "s", "bytes": "B"}[unit])
    return f"{significant(value * factor, 3, bound)} {name}"


def short_quantity(value: float | None, unit: str) -> str:
    """Format a value for a narrow table: ``10.5 ms``, ``0.47/s``; units of counts are left out."""
    if unit in _SCALES or unit in SHORT_UNITS or value is None:
        return quantity(value, unit)
    return quantity(value, "") + unit[unit.rfind("/") :] * ("/" in unit)


def whole(value: float | None, sign: str = "", bound: str = "") -> str:
    """Format a number without decimals: ``15,400``; with `sign` ``"+"`` a rise shows its sign."""
    return MISSING if value is None else f"{rounded(value, 0, bound):{sign},.0f}".replace("-", "−")


def share(part: float) -> str:
    """Format a fraction (0 to 1) in percent: ``45 %``; below 1 %, two digits: ``0.48 %``."""
    return f"{100 * part:.0f} %" if part >= 0.01 or part == 0 else f"{significant(100 * part, 2)} %"


def duration(hours: float) -> str:
    """Format a duration in hours, or in minutes below one hour: ``14 minutes``, ``2.5 hours``."""
    return f"{significant(hours, 2)} hours" if hours >= 1.0 else f"{max(hours * 60.0, 1.0):.0f} minutes"


def quoted(label: str) -> str:
    """Cut a long label, and put a label of three or more words, such as an SQL statement, in quotation marks."""
    short = label if len(label) <= LONGEST_LABEL else f"{label[:LONGEST_LABEL].rstrip()}…"
    return f"“{short}”" if len(label.split()) > 2 else short


def scales(unit: str) -> tuple[tuple[float, str, float], ...]:
    """Return the display units for `unit`, largest first (kB before B), each as its smallest value, name and factor."""
    large = ((2.0 * size, f"{name} {unit}".strip(), 1.0 / size) for size, name in _LARGE)
    return _SCALES.get(unit) or (*large, (0.0, unit, 1.0))


def unit_scale(largest: float, unit: str) -> tuple[float, str]:
    """Choose the unit of an axis whose largest value is `largest`; return factor and name."""
    _, name, factor = next((scale for scale in scales(unit) if abs(largest) >= scale[0]), (0.0, unit, 1.0))
    return factor, name


def change(percent: float | None, bound: str = "") -> str:
    """Format a change with its sign: ``+6.1 %``; a rise of 1,000 % or more as a factor; a dash for None."""
    if percent is None:
        return MISSING
    if percent >= _FACTORS_FROM:
        return f"×{significant(1.0 + percent / 100.0, 3, bound)}"
    places = 1 if abs(percent) < 99.95 else 0
    text = f"{rounded(percent, places, bound):+,.{places}f}"
    return "0.0 %" if text in ("+0.0", "-0.0") else f"{text.replace('-', '−')} %"


def interval(low: float | None, high: float | None) -> str:
    """Format the interval of a change, rounded outward: ``+0.9 to +11.5 %``; a dash for None."""
    if low is None or high is None:
        return MISSING
    if high >= _FACTORS_FROM:
        return f"×{significant(1.0 + low / 100.0, 3, 'lower')} to ×{significant(1.0 + high / 100.0, 3, 'upper')}"
    return f"{change(low, 'lower').removesuffix(' %')} to {change(high, 'upper')}"


def moved(row: "Change | None") -> tuple[str, str]:
    """Format the change of `row` and its interval; a rise from zero, which has no percentage, is ``from 0``."""
    if row is None or row.delta_percent is None:
        return "from 0" if row and row.base == 0 and row.new else MISSING, MISSING
    return change(row.delta_percent), interval(getattr(row, "ci_low", None), getattr(row, "ci_high", None))


def ranged(delta: float | None, low: float | None, high: float | None, name: str = "95 % interval ") -> str:
    """Format a change with its interval: ``+6.1 % (95 % interval +0.9 to +11.5 %)``."""
    return f"{change(delta)} ({name}{interval(low, high)})"


def shift_words(users: float) -> str:
    """Format how far the new build's ramp is from the base's: ``890 users behind``."""
    return f"{abs(users):,.0f} users {'behind' if users < 0 else 'ahead'}"


def percent(value: float | None, bound: str = "") -> str:
    """Format a percentage without a plus sign: ``5.2 %``; a ``lower`` bound is rounded down, an ``upper`` bound up."""
    return change(value, bound).removeprefix("+") if bound or value is None else f"{significant(value, 2)} %"


def p_words(p_value: float | None) -> str:
    """Format a p-value: ``p 0.030``, ``p below 0.001``."""
    return f"p {significant(p_value or 0.0, 2)}" if p_value is None or p_value >= 0.001 else "p below 0.001"


def counted(count: int, noun: str) -> str:
    """Format a number of things, from one to ten in words: ``one thing``, ``two things``."""
    return f"one {noun}" if count == 1 else f"{_SMALL.get(count, count)} {noun}s"


def status_words(
    status: Status,
    better: Better | str = Better.LOWER,
    margin: float | None = None,
    low: float | None = None,
    high: float | None = None,
    no_worse_than: float | None = None,
    unit: str | None = None,
) -> str:
    """Format a status in words: ``no difference beyond 5 %``, ``no worse than 10 %``.

    For a row that cannot fail the comparison, give its `unit`: a change is then called slower, faster, more or less,
    instead of regression or improvement.
    Equivalence is tested with the 90 % interval (two one-sided tests at 5 %). If the displayed 95 % interval, from
    `low` to `high`, exceeds the margin, the words name the limit farther from zero instead of the margin.
    """
    if better == "neutral" and status in (Status.REGRESSION, Status.IMPROVEMENT):
        return "lower" if status == Status.REGRESSION else Better.HIGHER
    if unit is not None and status in (Status.REGRESSION, Status.IMPROVEMENT):
        rises = (status == Status.REGRESSION) == (better != Better.HIGHER)
        if unit == "seconds" and better != Better.HIGHER:
            return "slower" if rises else "faster"
        return "more" if rises else "less"
    words = STATUS_WORDS[status]
    if status == Status.NOT_WORSE and no_worse_than:
        return f"{words} than {percent(no_worse_than, 'upper')}"
    if status != Status.EQUIVALENT or margin is None:
        return words
    bound = margin if low is None or high is None else max(-low, high)
    return f"{words} beyond {percent(margin) if bound <= margin else percent(bound, 'upper')}"


def minutes(seconds: float | None, places: int = 1) -> str:
    """Format elapsed time in minutes: ``18.2 min``."""
    return MISSING if seconds is None else f"{seconds / 60:.{places}f} min"


def of_label(value: float, group: str) -> str:
    """Format the value of a label in the unit of its table."""
    from buildcompare.config.catalogue import unit_of_label  # late import: the command line needs no pydantic

    return quantity(value, unit_of_label(group))


def lasting(seconds: float) -> str:
    """Format a duration, rounded up to whole seconds: ``74 s``, ``6 min 10 s``."""
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")


def db_name(db_engine: str | None) -> str:
    """Return the usual spelling of a database's name."""
    engine = db_engine or ""
    return _DB_NAMES.get(engine.casefold(), engine[:1].upper() + engine[1:])


def test_words(kind: str, db_engine: str | None) -> str:
    """Name a test by its type (`kind`) and database: ``Unbounded Postgres``, ``Load test``."""
    return "Load test" if kind == "bounded" and not db_engine else f"{kind.capitalize()} {db_name(db_engine)}".strip()


def listed(items: Iterable[str], most: int = 5) -> str:
    """List the first `most` items, followed by the number of the others."""
    every = list(items)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"
