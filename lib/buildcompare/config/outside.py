"""Text from outside: what of it may reach a terminal, a page or a file, and how secrets in it are hidden.

Whoever writes a label, a title, a file's name or a server's answer does not decide what a terminal does or in which
order a page reads: control characters, halves of characters and those that turn the direction of writing are shown.
"""

import base64
import re
from collections.abc import Callable, Iterable
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
    """A function that hides `secrets`, plain, percent-encoded or in base64, and longer parts of them.

    Examples
    --------
    >>> hiding(["s3cr3t/t0ken"])("Authorization: Bearer s3cr3t/t0ken, or s3cr3t%2Ft0ken")
    'Authorization: Bearer ***, or ***'
    """
    forms = {form for secret in secrets for form in _forms(secret)}
    short = sorted((form for form in forms if len(form) < _PIECE), key=len, reverse=True)
    pieces = {form[i : i + _PIECE] for form in forms for i in range(len(form) - _PIECE + 1)}

    def hide(text: str) -> str:
        for form in short:
            text = text.replace(form, _HIDDEN)
        kept, copied, end = [], 0, 0  # up to `copied` it is kept or hidden, up to `end` it is a secret's
        for i in range(len(text) - _PIECE + 1 if pieces else 0):
            if text[i : i + _PIECE] in pieces:
                if i > end or not end:
                    kept += [text[copied:end] and _HIDDEN, text[end:i]]
                    copied = i
                end = i + _PIECE
        return "".join([*kept, _HIDDEN if end else "", text[end:]])

    return hide


def _forms(secret: str) -> set[str]:
    """How a secret may be written: as it is, in an address, in JSON, and wherever it stands in a text in base64."""
    forms = {secret, secret.replace("/", r"\/"), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    forms |= {re.sub("%..", lambda found: found[0].lower(), form) for form in forms}
    raw = secret.encode()
    for before in range(3):  # bytes that share a group of three with the first of the secret
        whole = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = whole[(0, 2, 3)[before] : len(whole) - ((before + len(raw)) % 3 > 0)]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))} if len(inner) >= 4 else set()
    return {form for form in forms if form}
