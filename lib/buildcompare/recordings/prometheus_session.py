"""How is a server spoken to: time-outs, repeats, TLS, and who we are?

Nothing that is secret leaves this file but in a request.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, Timeout
from urllib3.util.retry import Retry

from buildcompare.config.errors import InputError
from buildcompare.config.params import Source
from buildcompare.config.project import resolve

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60.0
"""The longest that a server's Retry-After makes us wait."""
_METHODS = frozenset({"GET", "POST"})
"""A query changes nothing, so it may be repeated whichever way it is sent."""


@dataclass(frozen=True)
class Secrets:
    """What must never be seen, although a server may repeat it in an error."""

    values: tuple[str, ...] = ()

    def hide(self, text: str) -> str:
        """`text` without any of them."""
        for value in sorted(self.values, key=len, reverse=True):
            text = text.replace(value, "***")
        return text


class PoliteRetry(Retry):
    """Waits as long as the server asks for, within reason."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Seconds to wait, at most `MAX_WAIT_S`."""
        asked = super().get_retry_after(response)
        return None if asked is None else min(asked, MAX_WAIT_S)


class Session(requests.Session):
    """A session that sends the parameters of a POST in its body, and follows nobody elsewhere.

    requests would put them into the address, which a long query does not fit into, and would take our
    headers along to wherever a redirect points.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ways: dict[tuple[str, str], _Way] = {}

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send one request, as the client library does in its own calls."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        options.setdefault("allow_redirects", False)
        return super().request(method, url, **options)

    def ask(self, method: str, url: str, parameters: Mapping[str, str], timeout: Timeout) -> BaseHTTPResponse:
        """Send one request, and return its answer once the headers are there; raises what urllib3 does.

        requests knows the connections, the headers and what the environment says of proxies and certificates: all of
        it is the same in every request to `url` and made once, because each time anew it costs more than a small
        answer. The caller closes the answer and releases its connection.
        """
        way = self._ways.get((method, url)) or self._ways.setdefault((method, url), self._way(method, url))
        encoded = urlencode(parameters)
        posted = method == "POST"
        return way.pool.urlopen(
            method,
            f"{way.target}?{encoded}" if encoded and not posted else way.target,
            body=encoded if posted else None,
            headers=way.headers,
            retries=way.repeats,
            timeout=timeout,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
            decode_content=False,
        )

    def _way(self, method: str, url: str) -> _Way:
        prepared = self.prepare_request(requests.Request(method, url))
        headers = {name: str(value) for name, value in prepared.headers.items() if name != "Content-Length"}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        settings = self.merge_environment_settings(url, {}, True, self.verify, self.cert)
        proxies, verify, cert = settings["proxies"], settings["verify"], settings["cert"]
        adapter = self.get_adapter(url)
        if not isinstance(adapter, HTTPAdapter):
            raise TypeError(f"expected an adapter for HTTP at {url}, found {type(adapter).__name__}")
        pool = adapter.get_connection_with_tls_context(prepared, verify, proxies, cert)
        adapter.cert_verify(pool, str(prepared.url), verify, cert)
        return _Way(pool, adapter.request_url(prepared, proxies), headers, adapter.max_retries)


@dataclass(frozen=True)
class _Way:
    """How requests to one address are sent."""

    pool: HTTPConnectionPool
    target: str
    headers: Mapping[str, str]
    repeats: Retry


def retry() -> Retry:
    """Repeat what is worth repeating: no connection, and statuses that pass. Never a query that ran too long."""
    return PoliteRetry(
        total=REPEATS,
        connect=REPEATS,
        status=REPEATS,
        read=0,
        redirect=0,
        other=0,
        allowed_methods=_METHODS,
        status_forcelist=(429, 502, 504),
        backoff_factor=BACKOFF_S,
        respect_retry_after_header=True,
        raise_on_status=False,
        raise_on_redirect=False,
    )


def adapter(source: Source) -> HTTPAdapter:
    """An adapter with a connection for each thread."""
    return HTTPAdapter(max_retries=retry(), pool_connections=2, pool_maxsize=source.threads, pool_block=True)


def open_session(source: Source) -> tuple[Session, Secrets]:
    """A session as `source` describes it, and the secrets in it.

    Raises
    ------
    InputError
        Where a variable or a file is missing or does not hold what it should.
    """
    session = Session()
    session.headers["Accept-Encoding"] = "gzip" if source.gzip else "identity"
    session.headers["User-Agent"] = "buildcompare"
    session.headers.update(source.headers)
    secrets = []
    for name, variable in source.headers_env.items():
        session.headers[name] = _from_environment(variable, f"source.headers_env.{name}")
        secrets.append(session.headers[name])
    authorization = _authorization(source)
    if authorization is not None:
        secrets += [authorization, authorization.partition(" ")[2], *_parts(authorization)]
    session.auth = _Authorize(authorization)
    _set_tls(session, source)
    return session, Secrets(tuple(str(secret) for secret in secrets if secret))


class _Authorize(requests.auth.AuthBase):
    """Sets the header, or nothing; without it requests would look for a password in ~/.netrc."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._value is not None:
            request.headers["Authorization"] = self._value
        return request


def _authorization(source: Source) -> str | None:
    auth = source.auth
    if auth is None:
        return None
    if auth.bearer_token_env is not None:
        return "Bearer " + _from_environment(auth.bearer_token_env, "source.auth.bearer_token_env")
    if auth.bearer_token_file is not None:
        return "Bearer " + _from_file(auth.bearer_token_file, "source.auth.bearer_token_file")
    user = _from_environment(auth.username_env or "", "source.auth.username_env", ascii_only=False)
    password = _from_environment(auth.password_env or "", "source.auth.password_env", ascii_only=False)
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _parts(authorization: str) -> list[str]:
    """The password in a Basic header."""
    kind, _, value = authorization.partition(" ")
    return [base64.b64decode(value).decode().partition(":")[2]] if kind == "Basic" else []


def _from_environment(variable: str, key: str, *, ascii_only: bool = True) -> str:
    value = os.environ.get(variable, "")
    if not value.strip():
        raise InputError(file=None, key=key, expected=f"the environment variable {variable}", found="none or empty")
    return _checked(value, key, f"the environment variable {variable}", ascii_only=ascii_only)


def _from_file(name: str, key: str) -> str:
    try:
        value = resolve(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise InputError(file=None, key=key, expected=f"a readable file {name}", found=str(words)) from None
    if not value.strip():
        raise InputError(file=None, key=key, expected=f"a token in {name}", found="an empty file")
    return _checked(value, key, name, ascii_only=True)


def _checked(value: str, key: str, place: str, *, ascii_only: bool) -> str:
    value = value.strip()
    if not value.isprintable() or (ascii_only and not value.isascii()):
        expected = f"one line of printable {'ASCII' if ascii_only else 'text'} in {place}"
        raise InputError(file=None, key=key, expected=expected, found="other characters")
    return value


def _set_tls(session: Session, source: Source) -> None:
    tls = source.tls
    if tls is None:
        return
    session.verify = tls.verify
    if tls.ca is not None:
        session.verify = str(
            _pem(tls.ca, "ca", "a file of certificates (PEM)", lambda c, f: c.load_verify_locations(f))
        )
    if tls.cert is not None:
        key = None if tls.key is None else str(_existing(tls.key, "key"))
        wanted = "a certificate and its key (PEM, without a passphrase)"
        file = _pem(tls.cert, "cert", wanted, lambda c, f: c.load_cert_chain(f, key, password=lambda: b""))
        session.cert = str(file) if key is None else (str(file), key)


def _existing(name: str, key: str) -> Path:
    file = resolve(name)
    if not file.is_file():
        raise InputError(file=None, key=f"source.tls.{key}", expected=f"the file {name}", found="no such file")
    return file


def _pem(name: str, key: str, expected: str, load: Any) -> Path:
    """The file, once OpenSSL could read it: later its error would name neither file nor key."""
    file = _existing(name, key)
    try:
        load(ssl.create_default_context(), file)
    except (ssl.SSLError, OSError, ValueError) as error:
        found = getattr(error, "reason", None) or getattr(error, "strerror", None) or "something else"
        raise InputError(
            file=None, key=f"source.tls.{key}", expected=f"{expected} in {name}", found=str(found)
        ) from None
    return file
