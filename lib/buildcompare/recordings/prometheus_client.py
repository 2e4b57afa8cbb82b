"""Ask a server that speaks Prometheus's query API. Nothing that is secret leaves this file but in a request."""

import base64
import hashlib
import itertools
import json
import os
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import cache, cached_property, partial
from http.client import HTTPException
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

import requests
from pydantic_core import from_json
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, Timeout
from urllib3 import exceptions as faults
from urllib3.util.retry import Retry

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.outside import hiding, one_line
from buildcompare.config.params import Source, Tls
from buildcompare.config.project import read_text, resolve
from buildcompare.recordings.prometheus_answer import (
    CHUNK,
    MAX_WORDS,
    Answer,
    PassingError,
    RefusedAnswerError,
    json_object,
    read_answer,
    start_parser,
)

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60
"""The longest that a server's Retry-After makes us wait."""
CONNECT_S = 10.0
GRACE_S = 5.0
"""How much longer than the server's own time-out we wait, so that its words reach us."""
PATIENCE = 2
"""How many times as long as it may pause an answer may take: one that trickles in must end too."""
MAX_SECRET_BYTES = 100_000
"""Servers refuse headers far shorter than this."""
MAX_BYTES = 1_000_000_000
"""Bound on one answer: 5,000 series of 1,081 points take about 170 MB."""
MAX_PAGE = 10_000_000
"""Bound on an answer that is no data."""
MAX_PAGE_WORDS = 100_000
"""Characters of a page that are looked at."""
LONG_QUERY = 1_500
"""Characters from which a query is sent in a body: addresses are cut at a few kilobytes on the way."""
NEAR_S = 0.005
"""Seconds in which a near server is reached."""
_RANGE = "/api/v1/query_range"
_BUSY = (429, 502, 504)
"""Statuses after which a server may answer."""

Query = Mapping[str, str]
"""The text of a query, and its times: start, end and step in seconds."""
T = TypeVar("T")


class Client:
    """Asks one server: passing faults are repeated, lasting ones named, answers are arrays.

    prometheus-api-client's `custom_query_range` makes a Python object of every number and drops the server's warnings.
    """

    def __init__(self, source: Source, url: str) -> None:
        self.url = url
        self._session, secrets = open_session(source)
        self._hide = hiding(secrets)
        self._source = source
        self._watch = _Watch(PATIENCE * timeouts(source)[1])
        self.stopped = threading.Event()
        """Set once a query has failed for good: then nothing is repeated, and nothing else asked."""

    def close(self) -> None:
        """Close every connection."""
        self._watch.close()
        self._session.close()

    def server(self) -> dict[str, str]:
        """Kind and version of the server, having made sure that it is ready."""
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

    def query_ranges(
        self, queries: Sequence[Query], at_once: int, meanwhile: Callable[[], object]
    ) -> Iterator[tuple[int, Callable[[], Answer]]]:
        """Ask each of `queries` once, so many at a time, and call `meanwhile` while they wait.

        Through a proxy, or once a connection cannot be opened, no more are asked here.
        Yields, in the order of arrival, which one it was, and what reads its answer or raises its fault, which is a
        :class:`PassingError` where it is worth a :meth:`query_range`. One thread waits for all connections: that takes
        half the CPU time of a thread for each (benchmarks/pull.py).
        """
        pool = self._way[0]
        connections = [pool._new_conn() for _ in range(min(at_once, len(queries)))]
        if pool.proxy is not None or not self._opened(connections):
            meanwhile()
            return
        pause_s = timeouts(self._source)[1]
        left: Iterator[tuple[int, Query]] = iter(enumerate(queries))
        idle = [*connections]
        come: list[tuple[int, Callable[[], Answer]]] = []
        with ExitStack() as opened, selectors.DefaultSelector() as asked:
            for connection in connections:
                opened.callback(connection.close)
            for turn in itertools.count():
                # First the next queries, so that the server works while we read what came.
                while idle and not self.stopped.is_set() and (each := next(left, None)):
                    i, connection = each[0], idle.pop()
                    if failed := self._tried(connection, partial(self._send, connection, each[1])):
                        come.append((i, failed))
                        left = iter(())  # the others are not asked here
                    else:
                        asked.register(connection.sock, selectors.EVENT_READ, (i, connection, time.monotonic()))
                if turn == 0:
                    start_parser()
                    meanwhile()
                yield from come
                come.clear()
                waiting = [key.data for key in asked.get_map().values()]
                if not waiting:
                    return
                first = min(waiting, key=lambda each: each[2])
                ready = [key.data for key, _ in asked.select(max(0.0, first[2] + pause_s - time.monotonic()))]
                for i, connection, _ in ready or [first]:
                    asked.unregister(connection.sock)
                    take = partial(self._receive, connection) if ready else partial(_raise, TimeoutError())
                    come.append((i, self._tried(connection, take)))
                    idle.append(connection)

    def _tried(self, connection: Any, act: Callable[[], T]) -> T | Callable[[], Answer]:
        """What `act` returns, or what raises its fault once the connection is closed."""
        try:
            return act()
        except (faults.NewConnectionError, faults.ConnectTimeoutError) as error:
            fault: Exception = PassingError(type(error).__name__)
        except Exception as error:
            fault = self._meaning(error)
        finally:
            self._watch.stop()
        connection.close()
        if not isinstance(fault, PassingError):
            self.stopped.set()
        return partial(_raise, fault)

    def _opened(self, connections: Sequence[Any]) -> bool:
        """Whether the server can be reached; over a long way all are opened, side by side, nearer each when needed."""
        started = time.monotonic()
        try:
            self._open(connections[0])
        except Exception:
            return False
        if time.monotonic() - started > NEAR_S:
            with ThreadPoolExecutor(len(connections), "open") as threads:
                threads.map(self._open, connections[1:])
        return True

    def _open(self, connection: Any) -> None:
        connection.timeout, pause_s = timeouts(self._source)
        try:
            connection.connect()
        except BaseException:
            connection.close()  # or the next request would go over half of it, unencrypted
            raise
        connection.timeout = pause_s

    def _send(self, connection: Any, query: Query) -> None:
        if connection.is_closed:
            self._open(connection)
        method, target, sent = self._request(_RANGE, self._ranged(query))
        with suppress(BrokenPipeError, ConnectionResetError):  # what the server said before can still be read
            connection.request(method, target, **sent, preload_content=False, decode_content=False)

    def _receive(self, connection: Any) -> Callable[[], Answer]:
        with closing(connection.getresponse()) as response:
            if response.status in _BUSY:
                busy = PassingError(f"HTTP {response.status}")
                busy.wait_s = self._way[2]["retries"].get_retry_after(response) or 0.0
                raise busy
            return self._unread(response)

    def query_range(self, query: Query, failed: PassingError | None = None) -> Answer:
        """Ask for every series of `query`, as often as it takes; `failed` is what the first answer was, if known."""
        return self._asked(_RANGE, self._ranged(query), lambda response: self._unread(response)(), failed)

    def _ranged(self, query: Query) -> dict[str, str]:
        """What is sent: our limit, so that the server's words reach us, and VictoriaMetrics stays on our grid."""
        return {**query, "timeout": f"{max(1, round(self._source.timeout_s * 1000))}ms", "nocache": "1"}

    def _unread(self, response: BaseHTTPResponse) -> Callable[[], Answer]:
        """What reads an answer: of a short one when it is called, of a long one here, as it comes."""
        if response.status != 200 or _kind(response) != "application/json":
            raise self._complaint(response, b"".join(self._chunks(response, MAX_PAGE)))
        chunks = self._chunks(response)
        first = next(chunks, b"")
        if len(first) < CHUNK:
            return partial(self._read, response, [first, *chunks])
        found = self._read(response, itertools.chain([first], chunks))
        return lambda: found

    def _read(self, response: BaseHTTPResponse, chunks: Iterable[bytes]) -> Answer:
        try:
            return read_answer(chunks, self._hide)
        except RefusedAnswerError as error:
            raise self._complaint(response, *error.args) from None

    def _page(self, path: str) -> bytes:
        """A body of any type; none from a server without the path."""

        def read(response: BaseHTTPResponse) -> bytes:
            body = b"".join(self._chunks(response, MAX_PAGE))
            if response.status not in (200, 400, 404, 405):
                raise self._complaint(response, body)
            return body if response.status == 200 else b""

        return self._asked(path, {}, read)

    def _asked(
        self,
        path: str,
        parameters: Mapping[str, str],
        read: Callable[[BaseHTTPResponse], T],
        failed: PassingError | None = None,
    ) -> T:
        """Ask again where an answer came in pieces; the session itself repeats refused connections and statuses.

        `failed` is what the first answer was, where that is known.
        """
        for attempt in range(0 if failed is None else 1, REPEATS + 1):
            wait_s = max(BACKOFF_S * 2 ** (attempt - 1), failed.wait_s if failed else 0.0)
            if attempt and self.stopped.wait(wait_s):
                break
            try:
                return self._once(path, parameters, read)
            except PassingError as error:
                failed = error
        raise self._failed("a whole answer", f"{failed}, {REPEATS + 1} times")

    def _once(self, path: str, fields: Mapping[str, str], read: Callable[[BaseHTTPResponse], T]) -> T:
        try:
            pool, _, options = self._way
            method, target, sent = self._request(path, fields)
            response = pool.urlopen(method, target, **sent, **options)
            try:
                return read(response)
            finally:  # the connection is given back, or closed where the body was not read
                response.close()
                response.release_conn()
        except Exception as error:
            raise self._meaning(error) from None
        finally:
            self._watch.stop()

    def _meaning(self, error: Exception) -> Exception:
        """What ended an attempt, in our words."""
        if self._watch.stop():  # whatever the end of its connection looked like
            expected = f"a whole answer within {self._watch.limit_s:g} s (see source.timeout_s)"
            return self._failed(expected, "one that takes longer")
        theirs = (faults.HTTPError, HTTPException, OSError, requests.RequestException)
        return self._named(error) if isinstance(error, theirs) else error

    def _request(self, path: str, fields: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
        """Method, address, and headers and body of a request."""
        _, target, _ = self._way
        encoded = urlencode(fields)
        if len(fields.get("query", "")) < LONG_QUERY:
            return "GET", f"{target}{path}?{encoded}" if fields else target + path, {"headers": self._headers}
        form = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        return "POST", target + path, {"headers": form, "body": encoded}

    @cached_property
    def _way(self) -> tuple[Any, str, dict[str, Any]]:
        """What requests knows of connections, the address, proxies and certificates, the same for each query.

        Made anew each time it costs more than a small answer.
        """
        session = self._session
        prepared = session.prepare_request(requests.Request("GET", self.url))
        settings = session.merge_environment_settings(self.url, {}, True, session.verify, session.cert)
        proxies, verify, cert = settings["proxies"], settings["verify"], settings["cert"]
        adapter: Any = session.get_adapter(self.url)
        pool = adapter.get_connection_with_tls_context(prepared, verify, proxies, cert)
        adapter.cert_verify(pool, str(prepared.url), verify, cert)
        pool.ConnectionCls = _watched(pool.ConnectionCls, self._watch)
        never = dict.fromkeys(("redirect", "preload_content", "decode_content", "assert_same_host"), False)
        repeats = {"retries": adapter.max_retries, "timeout": Timeout(None, *timeouts(self._source))}
        target = adapter.request_url(prepared, proxies).rstrip("/")
        self._headers = dict(prepared.headers)
        return pool, target, {**repeats, **never}

    def _chunks(self, response: BaseHTTPResponse, most: int = MAX_BYTES) -> Iterator[bytes]:
        total = 0
        try:
            while chunk := response.read(CHUNK, decode_content=True):
                total += len(chunk)
                if total > most:
                    expected = f"an answer of at most {most // 1_000_000:,} MB"
                    raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
                yield chunk
        except ValueError as error:  # http.client takes a negative size of a chunk for a number of bytes to read
            raise PassingError(f"a damaged body ({self._line(str(error))})") from None

    def _named(self, error: BaseException) -> Exception:
        """What requests and urllib3 say in ten lines, in one."""
        causes: list[BaseException] = [error]
        for cause in causes:  # it grows: all that caused it, wherever requests and urllib3 keep it
            inner = (getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args)
            causes += [each for each in inner if isinstance(each, BaseException) and each not in causes]

        # The first that has something to say, without addresses.
        said = [getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) for cause in causes]
        names = [type(cause).__name__ for cause in causes if cause is error or isinstance(cause, faults.HTTPError)]
        words = self._line(str(next(filter(None, said), names[-1])))
        connect_s, read_s = timeouts(self._source)
        certificate = "a certificate that source.tls.ca, or the system, vouches for"
        pause = f"an answer that does not pause for {read_s:g} s (source.timeout_s)"
        meanings: list[tuple[Any, Exception]] = [
            (requests.RequestException, self._failed("an address that can be asked", words)),
            ((faults.SSLError, ssl.SSLError), self._refused("source.tls", certificate, words)),
            ((ConnectionRefusedError, faults.NameResolutionError), self._failed("a server that answers", words)),
            (faults.NewConnectionError, PassingError(words)),
            (faults.ConnectTimeoutError, self._failed("a connection", f"none within {connect_s:g} s")),
            ((faults.ReadTimeoutError, TimeoutError), self._failed(pause, "silence")),
            (faults.DecodeError, PassingError("a damaged gzip stream")),
            ((faults.ProtocolError, faults.ProxyError, HTTPException, OSError), PassingError(words)),
            (BaseException, self._failed("an answer", words)),
        ]
        return next(meaning for kinds, meaning in meanings if any(isinstance(cause, kinds) for cause in causes))

    def _complaint(self, response: BaseHTTPResponse, body: bytes) -> Exception:
        """What an answer that is none means: whose fault it is, and in whose words."""
        status, kind = response.status, _kind(response)
        said: dict[str, Any] = {}
        with suppress(PassingError):
            said = json_object(body if kind == "application/json" else b"")
        failed, fault = said.get("status") == "error", self._line(str(said.get("errorType", "")), 40)
        code = f"HTTP {status} ({fault})" if failed else f"HTTP {status}"
        page = body.decode("utf-8", "replace") if kind in ("text/plain", "application/json") else ""
        words = self._line(f"{code}: {self._line(str(said.get('error', '')) if failed else page) or response.reason}")
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
        """What the user can change: at `key`, or without one in the query."""
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=self._hide(found))

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._hide(found))

    def _line(self, text: str, limit: int = MAX_WORDS) -> str:
        """What a server said, in one line, without secrets, which it may repeat: they are hidden before it is cut."""
        return one_line(self._hide(text[:MAX_PAGE_WORDS]), limit)


def _raise(error: Exception) -> NoReturn:
    raise error


class _Watch:
    """Ends queries that trickle in: each attempt of a thread has `limit_s` seconds from its request to its last byte.

    One thread watches them all: one for each query would cost more than a small answer.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._until: dict[int, tuple[float, socket.socket]] = {}
        self._ended: set[int] = set()
        self._thread: threading.Thread | None = None

    def start(self, connection: socket.socket) -> None:
        """Watch the answer that comes to this thread over `connection`."""
        with self._lock:
            self._until[threading.get_ident()] = (time.monotonic() + self.limit_s, connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()

    def stop(self) -> bool:
        """The answer is there, or none will be; whether it was ended."""
        with self._lock:
            self._until.pop(threading.get_ident(), None)
            ended = threading.get_ident() in self._ended
            self._ended.discard(threading.get_ident())
            return ended

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        wait_s = self.limit_s
        while not self._closed.wait(wait_s):  # what begins meanwhile has more time than this
            with self._lock:
                now = time.monotonic()
                for thread, (until, connection) in [*self._until.items()]:
                    if until <= now:
                        del self._until[thread]
                        self._ended.add(thread)
                        with suppress(OSError):  # of TLS too: whoever waits for it wakes up
                            socket.socket.shutdown(connection, socket.SHUT_RDWR)
                wait_s = min((until for until, _ in self._until.values()), default=now + self.limit_s) - now


def _watched(kind: Any, watch: _Watch) -> Any:
    """Connections like `kind` whose answers are watched, headers too."""

    class Watched(kind):  # type: ignore[misc]  # a class of urllib3's, which one the address decides
        def getresponse(self) -> Any:
            watch.start(self.sock)
            return super().getresponse()

    return Watched


class _Repeats(Retry):
    """Repeats where Retry-After says nothing that can be read, too."""

    def parse_retry_after(self, retry_after: str) -> float:
        """Seconds to wait; none where that is unreadable."""
        try:
            return super().parse_retry_after(retry_after)
        except (faults.InvalidHeader, ValueError, OverflowError):
            return 0.0


def _kind(response: BaseHTTPResponse) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def timeouts(source: Source) -> tuple[float, float]:
    """Seconds to connect in, and between two parts of an answer."""
    return min(CONNECT_S, source.timeout_s), source.timeout_s + GRACE_S


class Session(requests.Session):
    """Sends a POST's parameters in its body, where a long query fits, and our headers to no redirect's target."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]  # all go on
        """Send one request, as the client library does in its own calls."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        options.setdefault("allow_redirects", False)
        return super().request(method, url, **options)


def open_session(source: Source) -> tuple[Session, list[str]]:
    """A session as `source` describes it, and the secrets in it, the longest first."""
    session = Session()
    # Repeat what passes (no connection, busy statuses), never a query that ran too long; a query changes nothing.
    never: dict[str, Any] = {"read": 0, "redirect": 0, "other": 0, "raise_on_status": False, "raise_on_redirect": False}
    passing: dict[str, Any] = {"allowed_methods": {"GET", "POST"}, "status_forcelist": _BUSY}
    repeats = _Repeats(REPEATS, backoff_factor=BACKOFF_S, retry_after_max=MAX_WAIT_S, **passing, **never)
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(2, source.threads, repeats, pool_block=True))
    session.headers.update({"Accept-Encoding": "gzip" if source.gzip else "identity", "User-Agent": "buildcompare"})
    own, secrets = _credentials(source)
    session.headers.update({**source.headers, **own})
    session.auth = lambda request: request  # without any requests would look for a password in ~/.netrc
    if source.tls is not None:
        ca = _pem(source.tls, "ca", "a file of certificates (PEM)", ssl.SSLContext.load_verify_locations)
        key = _pem(source.tls, "key", "a key", lambda context, file: None)  # read with its certificate
        wanted = "a certificate and its key (PEM, without a passphrase)"
        cert = _pem(source.tls, "cert", wanted, lambda c, file: c.load_cert_chain(file, key, password=lambda: b""))
        session.verify = ca or source.tls.verify
        session.cert = (cert, key) if cert and key else cert
    return session, secrets


def secrets_of(source: Source) -> list[str]:
    """The secrets that are sent to a server, the longest first: no answer of its may show them."""
    return _credentials(source)[1]


def identity(source: Source) -> str | None:
    """Who asks, as a slow hash that tells nobody a password; None where a secret is not at hand, empty for nobody."""
    try:
        told, _ = _credentials(source)
        cert = source.tls and source.tls.cert
        if cert:
            told["cert"] = read_text(resolve(cert), "a certificate", max_bytes=MAX_SECRET_BYTES)
    except InputError:
        return None
    return _slow_hash(json.dumps(told, sort_keys=True), source.url or "") if told else ""


@cache
def _slow_hash(text: str, salt: str) -> str:
    return hashlib.scrypt(text.encode(), salt=f"buildcompare {salt}".encode(), n=2**14, r=8, p=1, dklen=16).hex()


def _credentials(source: Source) -> tuple[dict[str, str], list[str]]:
    """The headers with secrets of `source`, and these secrets."""
    own = {name: _secret(f"headers_env.{name}", variable) for name, variable in source.headers_env.items()}
    secrets = [*own.values()]
    if source.auth is not None:
        named = source.auth.model_dump(exclude_none=True)  # a token, or a user and a password
        held = [_secret(f"auth.{key}", name, ascii_only=len(named) == 1) for key, name in named.items()]
        basic = base64.b64encode(":".join(held).encode()).decode()
        own["Authorization"] = f"Bearer {held[0]}" if len(held) == 1 else f"Basic {basic}"
        secrets += [basic, held[-1]]
    return own, secrets


def _secret(key: str, name: str, *, ascii_only: bool = True) -> str:
    """One line of text in an environment variable, or in a file where the key says so."""
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
    """The path of a file, once OpenSSL could read it: later its error would name neither file nor key."""
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
