"""Make sentences from macros in the templates of `sentences/`. A code in results.json names a macro or a table's key.

A line break in a template becomes a space; ``{%-`` removes the space. Texts of users, such as labels, names and notes,
are values, never parts of a template.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buildcompare.config.errors import plural
from buildcompare.results import TestResult
from buildcompare.results.codes import Pair
from buildcompare.text import numbers

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

MOST_LABELS, MOST_MOVERS, MOST_METRICS = 5, 3, 4
"""Maximum numbers of labels, of other items, and of metrics that a sentence lists; the rest are only counted."""
DETAIL = "\x1e"
"""Separator between a sentence and its detail; texts of users never contain this character."""
_FILTERS = (
    numbers.change, numbers.counted, numbers.db_name, numbers.duration, numbers.interval, numbers.lasting,
    numbers.listed, numbers.minutes, numbers.p_words, numbers.percent, numbers.quantity, numbers.quoted, numbers.ranged,
    numbers.of_label, numbers.share, numbers.shift_words, numbers.significant, numbers.status_words, numbers.test_words,
    numbers.whole, plural, zip,
)  # fmt: skip
_TABLES = {
    "DETAIL": DETAIL, "MOST_LABELS": MOST_LABELS, "MOST_MOVERS": MOST_MOVERS, "MOST_METRICS": MOST_METRICS,
    "STATUS_SYMBOLS": numbers.STATUS_SYMBOLS, "status_symbol": numbers.status_symbol,
    "DECIDED_WORDS": numbers.DECIDED_WORDS, "VERDICT_WORDS": numbers.VERDICT_WORDS,
}  # fmt: skip


def say(file: str, macro: str, *values: object, **named: object) -> str:
    """Render the sentence `macro` of the template `file` with these values.

    Examples
    --------
    >>> say("suggestions", "look_at_label", {"label": "getPost", "stat": "avg", "marked": 2, "largest_percent": 60.0})
    'Look at getPost: avg is slower in 2 tests, by up to +60.0 %.'
    """
    return str(getattr(macros(file), macro)(*values, **named))


def say_with_detail(file: str, macro: str, *values: object, **named: object) -> tuple[str, str]:
    """Render a sentence and its detail, which follows `DETAIL` in the template."""
    text, _, detail = say(file, macro, *values, **named).partition(DETAIL)
    return text.strip(), detail.strip()


@cache
def macros(file: str) -> Any:
    """Load the template `file`; its macros and tables are attributes of the result."""
    return environment().get_template(f"{file}.j2").module


def compiled(module: str) -> BytecodeCache:
    """Make a cache of templates beside `module`'s byte code; entries expire if template, `module` or Jinja changes."""
    from jinja2.bccache import Bucket, FileSystemBytecodeCache

    place, setup = Path(module).with_name("__pycache__"), Path(module).read_text("utf-8") + version("jinja2")

    class Compiled(FileSystemBytecodeCache):
        def get_source_checksum(self, source: str) -> str:
            return super().get_source_checksum(source + setup)

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # if the folder cannot be written, nothing is cached
                if not sys.dont_write_bytecode:
                    super().dump_bytecode(bucket)

    return Compiled(str(place), "%s.pyc")


@cache
def environment() -> Environment:
    """Make the environment of the sentences' templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # late import: not every command needs Jinja
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    class OneLine(Extension):
        """Replace a line break in a template, and the white space around it, by a space; inserted values are kept."""

        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            for token in stream:
                is_text = token.type == "data"
                yield Token(token.lineno, "data", re.sub(r"\s*\n\s*", " ", token.value)) if is_text else token

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "sentences"),
        autoescape=False,  # noqa: S701  # sentences are plain text, which pages escape
        undefined=StrictUndefined,
        extensions=[OneLine],
        finalize=lambda value: numbers.significant(value) if isinstance(value, float) else value,
        bytecode_cache=compiled(__file__),
        optimized=False,  # optimising takes longer than it saves: most sentences are rendered once or never
    )
    usable = {function.__name__: function for function in (*_FILTERS, each, largest_first, title)}
    made.filters.update(usable)
    made.globals.update(usable, **_TABLES)
    return made


def each(items: Iterable[Any], macro: Callable[..., str]) -> list[str]:
    """Apply `macro` to each item."""
    return [macro(item) for item in items]


def largest_first(items: Iterable[Any], key: str) -> list[Any]:
    """Sort items by the absolute value of their `key`, the largest first; None counts as zero."""
    return sorted(items, key=lambda item: -abs(item[key] or 0.0))


def title(test: TestResult) -> str:
    """Name a test by type and database: ``Unbounded Postgres``. Any other name of the test follows in parentheses."""
    words = numbers.test_words(test.type, test.db_engine)
    return words if test.name in (f"{test.db_engine}_{test.type}", test.type) else f"{words} ({test.name})"


@dataclass(frozen=True)
class Names:
    """Names of the builds, and titles of the tests by name."""

    builds: Pair[str]
    tests: Mapping[str, str]

    @classmethod
    def of(cls, labels: tuple[str, str], tests: Iterable[TestResult]) -> Names:
        """Collect the names for sentences about `tests`."""
        return cls(Pair(*labels), {test.name: title(test) for test in tests})

    def opens(self, words: str) -> str:
        """Return `words`, capitalised if there is only one test; else unchanged, because they follow a test's title."""
        return words[:1].upper() + words[1:] if len(self.tests) == 1 else words
