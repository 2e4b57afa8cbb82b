"""Make text from other programs safe to show, and hide secrets in it.

Labels, titles, file names and servers' answers must not control a terminal or the reading order of a page: control
characters, surrogates and characters that change the direction of writing are shown as escapes.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any
from urllib.parse import quote, quote_plus

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CONTROLS_IN_LINES = re.compile(CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b\x0c\x0e-\x1f"))
"""Control characters except tabs and line ends, for text of several lines."""
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MAX_LINE = 1_000
"""Maximum characters of each part of an error message, and of a text that `hiding` caches."""
_HIDDEN = "***"
_PIECE = 16
"""Parts of a secret are hidden if they have at least this many characters: truncated answers may hold only a part."""
_LONG = 10_000
"""Hex and escapes of secrets over `_LONG` bytes are not hidden. Texts over `_LONG` characters are searched by line."""
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def shown(text: str, controls: re.Pattern[str] = CONTROLS) -> str:
    r"""Return `text` with its control characters escaped as in Python: ``\x1b``, ``\n``, ``\u202e``.

    Examples
    --------
    >>> print(shown("red: \x1b[31m"))
    red: \x1b[31m
    """
    if text.isprintable():  # the usual case, and a fast check
        return text
    return controls.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def xml_text(text: str) -> str:
    """Return `text` with U+FFFD in place of each character that XML forbids."""
    return _NOT_XML.sub("\ufffd", text)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Return `text` as one line of at most `limit` characters, with control characters escaped."""
    line = shown(" ".join(text[: 20 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def everywhere(data: Any, change: Callable[[str], str]) -> Any:
    """Return plain data, such as from JSON, with `change` applied to every string, keys included."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {everywhere(key, change): everywhere(value, change) for key, value in data.items()}
    return [everywhere(each, change) for each in data] if isinstance(data, (list, tuple)) else data


def hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that hides `secrets`, and long parts of them, in every form in which a server may repeat them.

    Long parts are found in upper and lower case, and across spaces and line ends.

    Examples
    --------
    >>> hiding(["s3cr3t/t0ken"])("Authorization: Bearer s3cr3t/t0ken, or s3cr3t%2Ft0ken")
    'Authorization: Bearer ***, or ***'
    """
    forms = {form for secret in secrets for form in _forms(secret)}
    short = sorted((form for form in forms if len(form) < _PIECE), key=len, reverse=True)
    long = {"".join(form.split()).translate(_SMALL) for form in forms}
    pieces = {form[i : i + _PIECE] for form in long for i in range(len(form) - _PIECE + 1)}

    def hidden(text: str) -> str:
        for form in short:
            text = text.replace(form, _HIDDEN)
        places = [i for i, letter in enumerate(text) if not letter.isspace()]
        letters = "".join(text.split()).translate(_SMALL)
        kept: list[str] = []
        end = 0  # end of the processed text
        for i in range(len(letters) - _PIECE + 1):
            if letters[i : i + _PIECE] in pieces:
                first, last = places[i], places[i + _PIECE - 1] + 1
                if first > end or not kept:
                    kept += [text[end:first], _HIDDEN]
                end = last
        return "".join([*kept, text[end:]])

    cached = lru_cache(maxsize=10_000)(hidden)  # cached, because most labels occur in many series

    def hide(text: str) -> str:
        if not forms or len(text) <= MAX_LINE:
            return cached(text) if forms else text
        return "".join(map(hidden, text.splitlines(keepends=True) if len(text) > _LONG else [text]))

    return hide


def _forms(secret: str) -> set[str]:
    """Return the forms of a secret to search for: plain, in addresses, HTML, JSON, hex, and base64 at any offset."""
    forms = {secret, secret.replace("/", r"\/"), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    forms |= {quote(quote(secret, safe="")), html.escape(secret), json.dumps(secret)[1:-1]}
    forms |= {re.sub("%..", lambda match: match[0].lower(), form) for form in forms}
    raw = secret.encode()
    for before in range(3):  # base64 encodes groups of three bytes: up to two may precede the secret
        whole = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = whole[(0, 2, 3)[before] : len(whole) - ((before + len(raw)) % 3 > 0)]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))} if len(inner) >= 4 else set()
    if len(raw) <= _LONG:
        forms |= {raw.hex(), raw.hex(" "), raw.hex(":"), "".join(f"%{byte:02X}" for byte in raw)}
        forms |= {"".join(f"\\u{ord(letter):04x}" for letter in secret), "".join(f"\\x{byte:02x}" for byte in raw)}
    return {form for form in forms if form}
