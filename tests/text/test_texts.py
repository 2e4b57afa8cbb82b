"""Texts of strangers stay texts in every format, and numbers are said as people say them."""

import html
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from buildcompare.report import commonmark
from buildcompare.report.junit import escaped
from buildcompare.text import numbers as wording

GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
GITHUB.validateLink = lambda url: True  # type: ignore[method-assign]
SYNTAX = st.text(alphabet="ab1 _*`[]()<>&!|~#+-=.\\:\"'/\n", max_size=40)
WRITTEN = st.one_of(
    SYNTAX,
    st.sampled_from(
        [
            "<script>alert(1)</script>", "[x](javascript:alert(1))", "[x\\](javascript:alert(1))",
            "[x](<javascript:alert(1)>)", "[a]: javascript:x\n\n[a]", "![i](https://example.org/i.png)",
            "<img src=x onerror=alert(1)>", "`` `<b>` ``", "a\n\n<div>\n\n- b", "&lt;script&gt;",
        ]
    ),
)  # fmt: skip


@given(WRITTEN)
def test_written_html_holds_only_what_markdown_makes(text: str) -> None:
    markup = str(commonmark.to_html(text))
    allowed = {"p", "em", "strong", "code", "pre", "a", "ul", "ol", "li", "blockquote", "hr", "br", "s"}
    assert {*re.findall(r"<([a-z0-9]+)", markup)} <= allowed | {f"h{i}" for i in range(1, 7)}
    assert not [
        link for link in re.findall(r'href="([^"]*)"', markup) if re.match(r"(?i)(javascript|data|file):", link)
    ]


@given(WRITTEN)
def test_written_markdown_holds_no_html_where_it_is_let_through(text: str) -> None:
    tokens = GITHUB.parse(commonmark.to_markdown(text))
    children = [child for token in tokens for child in (token.children or [])]
    assert not [t for t in [*tokens, *children] if t.type in ("html_block", "html_inline")]


@given(SYNTAX)
def test_plain_text_appears_letter_for_letter(text: str) -> None:
    rendered = GITHUB.renderInline(commonmark.plain(text))
    assert html.unescape(rendered) == " ".join(text.split())
    paragraph = GITHUB.render(commonmark.plain(text)).strip()
    assert paragraph in ("", f"<p>{rendered}</p>")


@given(SYNTAX.filter(str.strip))
def test_code_appears_letter_for_letter(text: str) -> None:
    rendered = GITHUB.renderInline(commonmark.code(text))
    assert html.unescape(rendered) == f"<code>{' '.join(text.split())}</code>"


@given(st.lists(WRITTEN.filter(str.strip), min_size=2, max_size=2))
def test_cells_keep_the_table_whole(texts: list[str]) -> None:
    row = " | ".join(commonmark.cell(commonmark.to_markdown(text)) or "x" for text in texts)
    table = GITHUB.parse(f"| a | b |\n| --- | --- |\n| {row} |\n")
    assert sum(token.type == "td_open" for token in table) == 2
    assert sum(token.type == "tr_open" for token in table) == 2


def test_what_people_write_stays_as_it_is() -> None:
    text = "Shift of \\~1.6k users, ~~maybe~~ **surely**, see [notes](https://example.org/a_b) and `x|y`."
    assert commonmark.to_markdown(text) == text
    assert '<a href="https://example.org/a_b">notes</a>' in commonmark.to_html(text)
    assert "<s>maybe</s> <strong>surely</strong>" in commonmark.to_html(text)


@given(st.text())
def test_xml_holds_any_text(text: str) -> None:
    element = ET.fromstring(f'<a name="{escaped(text)}">{escaped(text)}</a>')  # our own
    assert element.get("name") == (element.text or "")


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.0105, "seconds", "10.5 ms"), (2.4, "seconds", "2.40 s"), (0.00000042, "seconds", "420 ns"),
        (0.0, "seconds", "0 s"), (6.04e8, "bytes", "604 MB"), (15432.0, "goroutines", "15,400 goroutines"),
        (7097.0, "users", "7,097 users"), (79.31, "percent of one core", "79.3 %"), (0.00012345, "", "1.23e-04"),
        (999.96, "", "1,000"), (99.97, "percent", "99.97 %"), (None, "seconds", "–"),
    ],
)  # fmt: skip
def test_quantities(value: float | None, unit: str, words: str) -> None:
    assert wording.quantity(value, unit) == words


def test_bounds_are_rounded_outward() -> None:
    assert (wording.interval(-4.41, 4.41), wording.interval(0.06, 233.1)) == ("−4.5 to +4.5 %", "0.0 to +234 %")
    assert wording.interval(0.1 + 0.2, 1.0 - 0.9) == "+0.3 to +0.1 %", "errors of sums are no part of a bound"
    assert [wording.percent(9.93, bound) for bound in ("", "lower", "upper")] == ["9.9 %", "9.9 %", "10.0 %"]
    assert wording.status_words("not_worse", no_worse_than=5.01) == "no worse than 5.1 %"
    assert wording.whole(-1252.2, "+", "lower") == "−1,253"


def test_changes_and_names() -> None:
    assert [wording.change(p) for p in (6.07, -3.64, 0.0, 233.3, None)] == ["+6.1 %", "−3.6 %", "0.0 %", "+233 %", "–"]
    assert [wording.db_name(n) for n in ("postgresql", "mysql", "oracle", None)] == ["Postgres", "MySQL", "Oracle", ""]
    assert (wording.listed(["a", "b", "c"], most=2), wording.minutes(1090)) == ("a, b and 1 more", "18.2 min")
