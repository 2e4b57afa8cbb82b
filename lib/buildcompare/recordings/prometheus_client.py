"""Ask a server that speaks Prometheus's query API. Secrets leave this module only inside requests."""

import base64
import hashlib
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from typing import Any, TypeVar

import requests
from pydantic_core import from_json
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3 import exceptions as faults
from urllib3.connection import HTTPConnection
from urllib3.response import HTTPResponse
from urllib3.util.retry import Retry

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.outside import hiding, one_line
from buildcompare.config.params import Source, Tls
from buildcompare.config.project import read_text, resolve
from buildcompare.recordings.prometheus_answer import (
    BATCH,
    MAX_WORDS,
    Answer,
    PassingError,
    RefusedAnswerError,
    json_object,
    read_answer,
)

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60
"""Bound on the pause that a server's Retry-After asks for."""
CONNECT_S = 10.0
GRACE_S = 5.0
"""Seconds beyond the server's time-out, so that its message arrives first."""
WATCH_S = 0.1
"""How often answers on their way are looked at."""
PATIENCE = 2
"""An answer may take so many times the longest pause: one that trickles in must end too."""
MAX_SECRET_BYTES = 100_000
"""Bound on a file with a secret; servers refuse headers far shorter than this."""
MAX_BYTES = 1_000_000_000
"""Bound on one answer: 5,000 series of 1,081 points take about 170 MB."""
MAX_PAGE = 10_000_000
"""Bound on an answer without samples."""
MAX_PAGE_WORDS = 100_000
"""Characters of a page that are searched for secrets and quoted from."""
LONG_QUERY = 1_500
"""Queries of so many characters are sent in a body, because proxies refuse addresses of a few kilobytes."""
_BUSY = (429, 502, 504)
"""Statuses of a server that may answer a second time."""

T = TypeVar("T")


class Client:
    """Ask one server: repeat requests that fail for a moment, name lasting faults, return arrays. Safe in threads.

    prometheus-api-client's `custom_query_range` drops the server's warnings and takes 3.5 to 9.5 times curl's time.
    """

    def __init__(self, source: Source, url: str) -> None:
        self.url = url
        self._session, secrets = open_session(source)
        # requests reads proxies and authorities from the environment anew for each request.
        settings = self._session.merge_environment_settings(url, {}, True, self._session.verify, self._session.cert)
        self._session.proxies, self._session.verify = settings["proxies"], settings["verify"]
        self._session.trust_env = False
        self._hide = hiding(secrets)
        self._source = source
        self.stopped = threading.Event()
        """Once it is set, no request is repeated."""

    def close(self) -> None:
        """Close every connection."""
        self._session.close()

    def server(self) -> dict[str, str]:
        """Return kind and version of the server; raise an error if it is not ready."""
        ready = self._page("/-/ready").decode("utf-8", "replace").casefold()
        try:
            build = dict(from_json(self._page("/api/v1/status/buildinfo"))["data"])
        except (ValueError, KeyError, TypeError):
            build = {}
        if "victoriametrics" in ready:  # its buildinfo pretends to be Prometheus
            found = re.search(rb'vm_app_version\{[^}]*short_version="([^"]+)"', self._page("/metrics"))
            version = found[1].decode("utf-8", "replace") if found else ""
            return {"kind": "victoriametrics", "version": self._line(version, 60)}
        kind = str(build.get("application") or ("prometheus" if "prometheus" in ready else "unknown"))
        return {"kind": self._line(kind, 60).casefold(), "version": self._line(str(build.get("version", "")), 60)}

    def query_range(self, query: str, start_s: float, end_s: float, step_s: float) -> Answer:
        """Ask for every series of `query`; times in seconds since 1970, sent in whole milliseconds."""
        grid = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        # The server stops first, so that we get its message; `nocache` keeps VictoriaMetrics on our grid.
        limit = {"timeout": f"{max(1, round(self._source.timeout_s * 1000))}ms", "nocache": "1"}
        return self._repeated("/api/v1/query_range", {"query": query, **grid, **limit}, self._answer)

    def _answer(self, response: HTTPResponse) -> Answer:
        if response.status != 200 or _kind(response) != "application/json":
            raise self._complaint(response, b"".join(self._chunks(response, MAX_PAGE)))
        try:
            return read_answer(self._chunks(response), self._hide)
        except RefusedAnswerError as error:
            raise self._complaint(response, *error.args) from None

    def _page(self, path: str) -> bytes:
        """Return a body of any type; an empty one from a server without this path."""

        def read(response: HTTPResponse) -> bytes:
            body = b"".join(self._chunks(response, MAX_PAGE))
            if response.status not in (200, 400, 404, 405):
                raise self._complaint(response, body)
            return body if response.status == 200 else b""

        return self._repeated(path, {}, read)

    def _repeated(self, path: str, fields: Mapping[str, str], read: Callable[[HTTPResponse], T]) -> T:
        """Repeat a request whose answer is damaged; the session itself repeats refused connections and statuses."""
        failed: PassingError | None = None
        for attempt in range(REPEATS + 1):
            if attempt and self.stopped.wait(BACKOFF_S * 2 ** (attempt - 1)):
                break
            try:
                return self._once(path, fields, read)
            except PassingError as error:
                failed = error
        raise self._failed("a whole answer", f"{failed}, {REPEATS + 1} times")

    def _once(self, path: str, fields: Mapping[str, str], read: Callable[[HTTPResponse], T]) -> T:
        pauses = timeouts(self._source)
        method = "GET" if len(fields.get("query", "")) < LONG_QUERY else "POST"
        try:
            address = self.url.rstrip("/") + path
            with self._session.request(method, address, params=fields, stream=True, timeout=pauses) as response:
                return read(response.raw)
        except Exception as error:
            if _stop_watch():  # a cut connection has errors of many kinds
                expected = f"a whole answer within {PATIENCE * pauses[1]:g} s (see source.timeout_s)"
                raise self._failed(expected, "one that takes longer") from None
            theirs = (requests.RequestException, faults.HTTPError, HTTPException, OSError)
            raise (self._meaning(error) if isinstance(error, theirs) else error) from None
        finally:
            _stop_watch()

    def _chunks(self, response: HTTPResponse, most: int = MAX_BYTES) -> Iterator[bytes]:
        """Yield a body of at most `most` bytes as it arrives."""
        total = 0
        try:
            while chunk := response.read(BATCH, decode_content=True):
                total += len(chunk)
                if total > most:
                    expected = f"an answer of at most {most // 1_000_000:,} MB"
                    raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
                yield chunk
        except ValueError as error:  # http.client takes a negative size of a chunk for a number of bytes to read
            raise PassingError(f"a damaged body ({self._line(str(error))})") from None

    def _meaning(self, error: Exception) -> Exception:
        """Translate an error of requests or urllib3, ten lines long, into one of ours."""
        causes: list[BaseException] = [error]
        for cause in causes:  # the list grows meanwhile: causes stand in several attributes
            inner = (getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args)
            causes += [each for each in inner if isinstance(each, BaseException) and each not in causes]

        # Only the operating system's and OpenSSL's messages hold no address.
        messages = [getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) for cause in causes]
        names = [type(cause).__name__ for cause in causes if cause is error or isinstance(cause, faults.HTTPError)]
        words = self._line(str(next(filter(None, messages), names[-1])))
        connect_s, read_s = timeouts(self._source)
        certificate = "a certificate that source.tls.ca, or the system, vouches for"
        pause = f"an answer that does not pause for {read_s:g} s (source.timeout_s)"
        meanings: list[tuple[Any, Exception]] = [
            ((faults.SSLError, ssl.SSLError), self._refused("source.tls", certificate, words)),
            ((ConnectionRefusedError, faults.NameResolutionError), self._failed("a server that answers", words)),
            (faults.NewConnectionError, PassingError(words)),
            (faults.ConnectTimeoutError, self._failed("a connection", f"none within {connect_s:g} s")),
            ((faults.ReadTimeoutError, TimeoutError), self._failed(pause, "silence")),
            (faults.DecodeError, PassingError("a damaged gzip stream")),
            ((faults.ProtocolError, faults.ProxyError, HTTPException, ConnectionError), PassingError(words)),
            (requests.RequestException, self._failed("an address that can be asked", words)),
            (OSError, PassingError(words)),
            (BaseException, self._failed("an answer", words)),
        ]
        return next(meaning for kinds, meaning in meanings if any(isinstance(cause, kinds) for cause in causes))

    def _complaint(self, response: BaseHTTPResponse, body: bytes) -> Exception:
        """Translate an answer without samples: whose fault it is, and the server's message."""
        status, kind = response.status, _kind(response)
        data: dict[str, Any] = {}
        with suppress(PassingError):
            data = json_object(body if kind == "application/json" else b"")
        failed, fault = data.get("status") == "error", self._line(str(data.get("errorType", "")), 40)
        code = f"HTTP {status} ({fault})" if failed else f"HTTP {status}"
        page = body.decode("utf-8", "replace") if kind in ("text/plain", "application/json") else ""
        words = self._line(f"{code}: {self._line(str(data.get('error', '')) if failed else page) or response.reason}")
        if status == 200 and not failed:
            words = f"an answer of the type {self._line(kind, 60) or 'none'}"
            return self._refused("source.url", "the query API (JSON)", words)
        if 300 <= status < 400:
            return self._refused("source.url", "the query API itself", f"a redirect ({code})")
        if status in (401, 403, 407):
            return self._refused("source.auth", "to be let in", words)
        if status == 404:
            return self._refused("source.url", "the query API", words)
        if fault in ("bad_data", "execution") and status in (200, 400, 422):
            return self._refused(None, "a query that the server can answer", words)
        if status in (400, 413, 414, 422):
            return self._refused(None, "a query that the server accepts", words)
        return PassingError(words) if status == 503 and not failed else self._failed("an answer", words)

    def _refused(self, key: str | None, expected: str, found: str) -> InputError:
        """An error of the user's: in the setting `key`, or without one in the query."""
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=self._hide(found))

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._hide(found))

    def _line(self, text: str, limit: int = MAX_WORDS) -> str:
        """A server's message in one line; secrets are hidden before it is cut, or a part of one would remain."""
        return one_line(self._hide(text[:MAX_PAGE_WORDS]), limit)


def _kind(response: BaseHTTPResponse) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def timeouts(source: Source) -> tuple[float, float]:
    """Seconds to connect in, and between two parts of an answer."""
    return min(CONNECT_S, source.timeout_s), source.timeout_s + GRACE_S


# ---- The session -----------------------------------------------------------------------------------------------------


class Session(requests.Session):
    """Send a POST's parameters in its body, where long queries fit; follow no redirect, which would get our headers."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]  # all go on
        """Send one request, also for prometheus-api-client."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        # Without `verify` here, the variable REQUESTS_CA_BUNDLE would take precedence over the session's.
        options = {"allow_redirects": False, "verify": self.verify, **options}
        try:
            return super().request(method, url, **options)
        finally:
            if not options.get("stream"):
                _stop_watch()


@dataclass
class _Exchange:
    """Answer in transit, with the time at which its connection is cut."""

    connection: socket.socket
    until: float
    is_cut: bool = False


_exchanges: dict[int, _Exchange] = {}
"""Answers on their way, by the thread that asked. One thread watches all: one for each costs as much as a request."""
_lock = threading.Lock()
_watcher: threading.Thread | None = None


def _start_watch(connection: socket.socket, limit_s: float) -> None:
    """Cut `connection` off after `limit_s`, unless this thread stops its watch: a trickle exceeds no other limit."""
    global _watcher  # noqa: PLW0603  # it ends when nothing is left to watch
    with _lock:
        _exchanges[threading.get_ident()] = _Exchange(connection, time.monotonic() + limit_s)
        if _watcher is None or not _watcher.is_alive():  # a forked process has no thread but its own
            _watcher = threading.Thread(target=_watch, name="watch", daemon=True)
            _watcher.start()


def _stop_watch() -> bool:
    """Stop the watch of this thread's answer; return whether its connection was cut off."""
    exchange = _exchanges.pop(threading.get_ident(), None)
    return exchange is not None and exchange.is_cut


def _watch() -> None:
    global _watcher  # noqa: PLW0603
    while True:
        time.sleep(WATCH_S)
        with _lock:
            if not _exchanges:
                _watcher = None
                return
            for each in [*_exchanges.values()]:
                if time.monotonic() > each.until:
                    each.is_cut = True
                    with suppress(OSError):  # the method of TLS sockets would not wake a reader
                        socket.socket.shutdown(each.connection, socket.SHUT_RDWR)


class _Watched(HTTPConnection):
    """A connection whose answers are watched, from the first byte of their headers on."""

    limit_s: float

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        """Read the answer's headers."""
        _start_watch(self.sock, self.limit_s)
        return super().getresponse()


class _Adapter(HTTPAdapter):
    """Makes watched connections."""

    limit_s = 0.0

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the pool of connections to a server."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        if not issubclass(pool.ConnectionCls, _Watched):
            pool.ConnectionCls = type("Watched", (_Watched, pool.ConnectionCls), {"limit_s": self.limit_s})
        return pool


class _Repeats(Retry):
    """Repeats also where Retry-After cannot be read."""

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait before the next attempt."""
        _stop_watch()  # another thread may use the connection meanwhile
        super().sleep(response)

    def parse_retry_after(self, retry_after: str) -> float:
        """Seconds to wait; 0 if unreadable."""
        try:
            return super().parse_retry_after(retry_after)
        except (faults.InvalidHeader, ValueError, OverflowError):
            return 0.0


def open_session(source: Source) -> tuple[Session, list[str]]:
    """A session as `source` describes it, and the secrets in it, the longest first."""
    session = Session()
    # Repeat what passes (no connection, busy statuses), never a query that ran too long; a query changes nothing.
    repeats = _Repeats(
        REPEATS,
        backoff_factor=BACKOFF_S,
        retry_after_max=MAX_WAIT_S,
        allowed_methods={"GET", "POST"},
        status_forcelist=_BUSY,
        read=0,
        redirect=0,
        other=0,
        raise_on_status=False,
        raise_on_redirect=False,
    )
    for scheme in ("http://", "https://"):
        adapter = _Adapter(2, source.threads, repeats, pool_block=True)
        adapter.limit_s = PATIENCE * timeouts(source)[1]
        session.mount(scheme, adapter)
    session.headers.update({"Accept-Encoding": "gzip" if source.gzip else "identity", "User-Agent": "buildcompare"})
    private, secrets = _credentials(source)
    session.headers.update({**source.headers, **private})
    session.auth = lambda request: request  # without any, requests would look for a password in ~/.netrc
    if source.tls is not None:
        ca = _pem(source.tls, "ca", "a file of certificates (PEM)", ssl.SSLContext.load_verify_locations)
        key = _pem(source.tls, "key", "a key", lambda context, file: None)  # read with its certificate
        wanted = "a certificate and its key (PEM, without a passphrase)"
        cert = _pem(source.tls, "cert", wanted, lambda c, file: c.load_cert_chain(file, key, password=lambda: b""))
        session.verify = ca or source.tls.verify
        session.cert = (cert, key) if cert and key else cert
    return session, secrets


def secrets_of(source: Source) -> list[str]:
    """The secrets that are sent to a server, which no answer of it may show."""
    return _credentials(source)[1]


def identity(source: Source) -> str | None:
    """Who asks, as a slow hash that reveals no password; None if a secret is missing, empty without credentials."""
    try:
        sent, _ = _credentials(source)
        cert = source.tls and source.tls.cert
        if cert:
            sent["cert"] = read_text(resolve(cert), "a certificate", max_bytes=MAX_SECRET_BYTES)
    except InputError:
        return None
    return _slow_hash(json.dumps(sent, sort_keys=True), source.url or "") if sent else ""


@cache
def _slow_hash(text: str, salt: str) -> str:
    return hashlib.scrypt(text.encode(), salt=f"buildcompare {salt}".encode(), n=2**14, r=8, p=1, dklen=16).hex()


def _credentials(source: Source) -> tuple[dict[str, str], list[str]]:
    """The headers of `source` that hold secrets, and these secrets."""
    headers = {name: _secret(f"headers_env.{name}", variable) for name, variable in source.headers_env.items()}
    secrets = [*headers.values()]
    if source.auth is not None:
        named = source.auth.model_dump(exclude_none=True)  # a token, or a user and a password
        held = [_secret(f"auth.{key}", name, ascii_only=len(named) == 1) for key, name in named.items()]
        basic = base64.b64encode(":".join(held).encode()).decode()
        headers["Authorization"] = f"Bearer {held[0]}" if len(held) == 1 else f"Basic {basic}"
        secrets += [basic, held[-1]]
    return headers, secrets


def _secret(key: str, name: str, *, ascii_only: bool = True) -> str:
    """One line of text in the environment variable `name`, or in the file `name` where the key ends in ``_file``."""
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
    """The path of a file that OpenSSL can read; the error of a later attempt would name neither file nor key."""
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
