"""Text from outside: what of it may reach a terminal, a page or a file, and how secrets in it are hidden.

Whoever writes a label, a title, a file's name or a server's answer does not decide what a terminal does or in which
order a page reads: control characters, halves of characters and those that turn the direction of writing are shown.
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
"""The same without tabs and line ends, for text that has several lines."""
MAX_LINE = 1_000
"""Characters of one part of an error, and of a line that a server wrote."""
_HIDDEN = "***"
_PIECE = 16
"""So many characters of a secret in a row are hidden: a server, or whoever cut its answer, may repeat a part of it."""


_LONG = 10_000
"""Bytes of a secret up to which it is looked for in hex and in escapes too; letters of a text, over line ends too."""
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def shown(text: str, controls: re.Pattern[str] = CONTROLS) -> str:
    r"""`text` with its control characters as Python writes them: ``\x1b``, ``\n``, ``\u202e``.

    Examples
    --------
    >>> print(shown("red: \x1b[31m"))
    red: \x1b[31m
    """
    if text.isprintable():  # nearly always, and found out many times faster
        return text
    return controls.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """`text` as one line of at most `limit` characters that a terminal only shows."""
    line = shown(" ".join(text[: 20 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def everywhere(data: Any, change: Callable[[str], str]) -> Any:
    """Plain data (as JSON or YAML hold it) with each of its texts changed."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {everywhere(key, change): everywhere(value, change) for key, value in data.items()}
    return [everywhere(each, change) for each in data] if isinstance(data, (list, tuple)) else data


def hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that hides `secrets`, in the forms in which a server may repeat them, and longer parts of them.

    Parts are found in letters of either size, and over spaces and line ends.

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
        end = 0  # up to `end` it is kept or hidden
        for i in range(len(letters) - _PIECE + 1):
            if letters[i : i + _PIECE] in pieces:
                first, last = places[i], places[i + _PIECE - 1] + 1
                if first > end or not kept:
                    kept += [text[end:first], _HIDDEN]
                end = last
        return "".join([*kept, text[end:]])

    known = lru_cache(maxsize=10_000)(hidden)  # most labels are those of other series too

    def hide(text: str) -> str:
        if not forms or len(text) <= MAX_LINE:
            return known(text) if forms else text
        return "".join(map(hidden, text.splitlines(keepends=True) if len(text) > _LONG else [text]))

    return hide


def _forms(secret: str) -> set[str]:
    """How a secret may be written: as it is, in an address, in JSON, in hex, and anywhere in a text in base64."""
    forms = {secret, secret.replace("/", r"\/"), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    forms |= {quote(quote(secret, safe="")), html.escape(secret), json.dumps(secret)[1:-1]}
    forms |= {re.sub("%..", lambda found: found[0].lower(), form) for form in forms}
    raw = secret.encode()
    for before in range(3):  # bytes that share a group of three with the first of the secret
        whole = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = whole[(0, 2, 3)[before] : len(whole) - ((before + len(raw)) % 3 > 0)]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))} if len(inner) >= 4 else set()
    if len(raw) <= _LONG:
        forms |= {raw.hex(), raw.hex(" "), raw.hex(":"), "".join(f"%{byte:02X}" for byte in raw)}
        forms |= {"".join(f"\\u{ord(letter):04x}" for letter in secret), "".join(f"\\x{byte:02x}" for byte in raw)}
    return {form for form in forms if form}
