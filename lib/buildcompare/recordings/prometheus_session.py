"""Make a session with a server: its credentials, certificates, time limits and repeated requests."""

import base64
import hashlib
import http.client
import json
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from buildcompare.config.errors import InputError
from buildcompare.config.params import Source, Tls
from buildcompare.config.project import read_text, resolve

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60  # maximum seconds to wait if a server sends Retry-After; a shorter `timeout_s` replaces this limit
CONNECT_S = 10.0
GRACE_S = 5.0  # seconds that we wait beyond the server's time-out, so that its message arrives first
PATIENCE = 2  # maximum time of a request with its retries, as a multiple of the read time-out
MAX_SECRET_BYTES = 100_000  # maximum bytes of a file with a secret; servers refuse even much shorter headers
_BUSY = (429, 502, 504)  # temporary statuses: the request is repeated


class Session(requests.Session):
    """Session that sends a POST's parameters in its body, where long queries fit; by default it follows no redirect."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]  # options pass on
        """Send one request; prometheus-api-client calls this method too."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        return super().request(method, url, **{"allow_redirects": False, **options})


class TrickleError(Exception):
    """An answer takes longer than its total time limit, or the client is stopped."""


limit = threading.local()
"""Each thread's function `is_over()`: whether its request is past the time limit, or the client is stopped."""


class _Response(http.client.HTTPResponse):
    """A response with a total time limit, because a response that trickles in never reaches the socket's time-out."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        raw: Any = self.fp.raw
        read, until = raw.readinto, time.monotonic() + PATIENCE * (sock.gettimeout() or math.inf)
        is_over = getattr(limit, "is_over", lambda: time.monotonic() > until)

        def read_in_time(buffer: memoryview) -> int:
            if is_over():
                raise TrickleError
            return int(read(buffer))

        raw.readinto = read_in_time


class _Adapter(HTTPAdapter):
    """Adapter whose connections return each response as a `_Response`."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the pool of connections to a server."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        if pool.ConnectionCls.response_class is not _Response:
            pool.ConnectionCls = type("Limited", (pool.ConnectionCls,), {"response_class": _Response})
        return pool


class _Repeats(Retry):
    """Retries that accept a Retry-After header that cannot be parsed."""

    def parse_retry_after(self, retry_after: str) -> float:
        """Return the seconds to wait; 0 if the header cannot be parsed."""
        try:
            return super().parse_retry_after(retry_after)
        except (InvalidHeader, ValueError, OverflowError):
            return 0.0


def open_session(source: Source, url: str) -> tuple[Session, list[str]]:
    """Return a session for `url` with the settings of `source`, and the secrets that the session contains."""
    session = Session()
    # Repeat requests after temporary faults (no connection, busy server), but not queries that ran too long.
    repeats = _Repeats(
        REPEATS, backoff_factor=BACKOFF_S, retry_after_max=math.ceil(min(MAX_WAIT_S, source.timeout_s)), read=0,
        redirect=0, other=0, allowed_methods={"GET", "POST"}, status_forcelist=_BUSY, raise_on_status=False,
        raise_on_redirect=False,
    )  # fmt: skip
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(2, source.threads, repeats, pool_block=True))
    session.headers.update({"Accept-Encoding": "gzip" if source.gzip else "identity", "User-Agent": "buildcompare"})
    private, secrets = credentials(source)
    session.headers.update({**source.headers, **private})
    if source.tls is not None:
        ca = _pem(source.tls, "ca", "a file of certificates (PEM)", ssl.SSLContext.load_verify_locations)
        key = _pem(source.tls, "key", "a key", lambda context, file: None)  # checked with `cert` below
        wanted = "a certificate and its key (PEM, without a passphrase)"
        cert = _pem(source.tls, "cert", wanted, lambda c, file: c.load_cert_chain(file, key, password=lambda: b""))
        session.verify = ca or source.tls.verify
        session.cert = (cert, key) if cert and key else cert
    # Read proxies and certificates from the environment once, not for each request; never read ~/.netrc.
    settings = session.merge_environment_settings(url, {}, None, session.verify, None)
    session.proxies, session.verify, session.trust_env = settings["proxies"], settings["verify"], False
    return session, secrets


def identity(source: Source) -> str | None:
    """Return a hash of the credentials; None if a secret is missing, an empty text if the source has no credentials."""
    try:
        sent, _ = credentials(source)
        cert = source.tls and source.tls.cert
        if cert:
            sent["cert"] = read_text(resolve(cert), "a certificate", max_bytes=MAX_SECRET_BYTES)
    except InputError:
        return None
    text, salt = json.dumps(sent, sort_keys=True), f"buildcompare {source.url or ''}"
    return _slow_hash(text.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex() if sent else ""


_slow_hash = cache(hashlib.scrypt)


def credentials(source: Source) -> tuple[dict[str, str], list[str]]:
    """Return the headers of `source` that contain secrets, and the secrets themselves."""
    headers = {name: _secret(f"headers_env.{name}", variable) for name, variable in source.headers_env.items()}
    secrets = [*headers.values()]
    if source.auth is not None:
        named = source.auth.model_dump(exclude_none=True)  # where to find a token, or user and password
        login = [_secret(f"auth.{key}", name, ascii_only=len(named) == 1) for key, name in named.items()]
        basic = base64.b64encode(":".join(login).encode()).decode()
        headers["Authorization"] = f"Bearer {login[0]}" if len(login) == 1 else f"Basic {basic}"
        secrets += [basic, login[-1]]
    return headers, secrets


def _secret(key: str, name: str, *, ascii_only: bool = True) -> str:
    """Return the secret in the environment variable `name`, or in the file `name` if the key ends in ``_file``."""
    key, place = f"source.{key}", name if key.endswith("_file") else f"the environment variable {name}"
    if key.endswith("_file"):
        value = read_text(resolve(name), f"a readable file {name}", key=key, max_bytes=MAX_SECRET_BYTES).strip()
    else:
        value = os.environ.get(name, "").strip()
    if not value:
        expected = f"a token in {name}" if key.endswith("_file") else place
        raise InputError(file=None, key=key, expected=expected, found="none or empty")
    if not value.isprintable() or (ascii_only and not value.isascii()):
        expected = f"one line of printable {'ASCII' if ascii_only else 'text'} in {place}"
        raise InputError(file=None, key=key, expected=expected, found="other characters")
    return value


def _pem(tls: Tls, key: str, expected: str, load: Callable[[ssl.SSLContext, str], object]) -> str | None:
    """Check that OpenSSL can read the file of `key`, and return its path; None if `key` is not set."""
    name = getattr(tls, key)
    if name is None:
        return None
    file = resolve(name)
    try:
        if file.is_file():
            load(ssl.create_default_context(), str(file))
            return str(file)
        expected, found = f"the file {name}", "no such file"
    except (ssl.SSLError, OSError, ValueError) as error:
        found = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or "something else")
        expected = f"{expected} in {name}"
    raise InputError(file=None, key=f"source.tls.{key}", expected=expected, found=found)


def timeouts(source: Source) -> tuple[float, float]:
    """Return the time limits in seconds: to connect, and between two parts of an answer."""
    return min(CONNECT_S, source.timeout_s), source.timeout_s + GRACE_S
