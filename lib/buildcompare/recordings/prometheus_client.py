"""Ask a server that speaks Prometheus's query API. Secrets leave this module only inside requests."""

import base64
import hashlib
import http.client
import json
import math
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property, partial
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from pydantic_core import from_json
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3 import exceptions as faults
from urllib3.response import HTTPResponse
from urllib3.util import Retry, Timeout

from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.outside import everywhere, hiding, one_line
from buildcompare.config.params import Source, Tls
from buildcompare.config.project import read_text, resolve
from buildcompare.recordings import prometheus_answer as answers

REPEATS = 4
BACKOFF_S = 0.5
MAX_WAIT_S = 60  # longest pause that a server may request by Retry-After; the time-out bounds it too
CONNECT_S = 10.0
GRACE_S = 5.0  # seconds beyond the server's time-out, so that its message arrives first
PATIENCE = 2  # limit of an answer and its retries, in time-outs: a trickling answer would never end
MAX_SECRET_BYTES = 100_000  # bound on a file with a secret; servers refuse headers far shorter than this
MAX_BYTES = 1_000_000_000  # bound on one answer: 5,000 series of 1,081 points take about 170 MB
MAX_PAGE = 10_000_000  # bound on an answer without samples
MAX_PAGE_WORDS = 100_000  # most characters of an error page to search for secrets and quote
LONG_QUERY = 1_500
"""Queries of this many characters are sent in the body, because proxies refuse addresses of a few kilobytes."""
_BUSY = (429, 502, 504)  # temporary statuses: the request is repeated
_REFUSALS: tuple[tuple[Collection[int], str | None, str], ...] = (
    (range(300, 400), "source.url", "the query API itself"),
    ((401, 403, 407), "source.auth", "to be let in"),
    ((404,), "source.url", "the query API"),
    ((400, 413, 414, 422), None, "a query that the server accepts"),
)
"""Statuses caused by a setting or query -> the setting, and the expectation for the error."""

T = TypeVar("T")


class Client:
    """Ask one server: repeat requests that fail for a moment, name lasting faults, return arrays. Safe in threads.

    prometheus-api-client's `custom_query_range` drops the server's warnings and takes 3.5 to 9.5 times curl's time.
    """

    def __init__(self, source: Source, url: str) -> None:
        self.url = url
        self._session, secrets = open_session(source, url)
        self._hide = hiding(secrets)
        self._source = source
        self.stopped = threading.Event()
        """Once it is set, no request is repeated, and answers that arrive are given up."""

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
        if "victoriametrics" in ready:  # VictoriaMetrics reports a Prometheus version in its buildinfo
            match = re.search(rb'vm_app_version\{[^}]*short_version="([^"]+)"', self._page("/metrics"))
            version = match[1].decode("utf-8", "replace") if match else ""
            return {"kind": "victoriametrics", "version": self._line(version, 60)}
        kind = str(build.get("application") or ("prometheus" if "prometheus" in ready else "unknown"))
        return {"kind": self._line(kind, 60).casefold(), "version": self._line(str(build.get("version", "")), 60)}

    def query_range(self, query: str, start_s: float, end_s: float, step_s: float) -> answers.Answer:
        """Ask for every series of `query`; times in seconds since 1970, sent in whole milliseconds."""
        grid = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        # The server stops first, so that we get its message; `nocache` keeps VictoriaMetrics on our grid.
        limit = {"timeout": f"{max(1, round(self._source.timeout_s * 1000))}ms", "nocache": "1"}
        return self._repeated("/api/v1/query_range", {"query": query, **grid, **limit}, self._answer)

    def listing(self, path: str, fields: Mapping[str, str]) -> Any:
        """Return the data of an answer without samples, such as names of metrics or the labels of series."""

        def read(response: HTTPResponse) -> Any:
            body = b"".join(self._chunks(response, MAX_PAGE))
            if response.status != 200 or _kind(response) != "application/json":
                raise self._complaint(response, body)
            return everywhere(answers.json_object(body).get("data", ()), self._hide)

        return self._repeated(path, fields, read)

    def _answer(self, response: HTTPResponse) -> answers.Answer:
        if response.status != 200 or _kind(response) != "application/json":
            raise self._complaint(response, b"".join(self._chunks(response, MAX_PAGE)))
        try:
            return answers.read_answer(self._chunks(response), self._hide)
        except answers.RefusedAnswerError as error:
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
        """Repeat a request whose answer is damaged; urllib3 repeats refused connections and statuses."""
        started, most_s, attempt = time.monotonic(), PATIENCE * timeouts(self._source)[1], 0
        _limit.is_over = lambda: self.stopped.is_set() or time.monotonic() > started + most_s
        try:
            while True:
                attempt += 1
                try:
                    return self._once(path, fields, read)
                except answers.PassingError as error:
                    if attempt > REPEATS or _limit.is_over() or self.stopped.wait(BACKOFF_S * 2 ** (attempt - 1)):
                        raise self._failed("a whole answer", f"{error}, {attempt} times") from None
        except _TrickleError:
            expected = f"a whole answer within {most_s:g} s (see source.timeout_s)"
            raise self._failed(expected, f"none after {time.monotonic() - started:.3g} s") from None
        finally:
            del _limit.is_over  # requests of a user's client in this thread set their own limits

    @cached_property
    def _server(self) -> tuple[partial[Any], str]:
        """Function that sends requests, and the start of their addresses: a path, or through a proxy the whole URL.

        Both are prepared once: repeating it for each request takes more CPU time than the rest of a small query.
        """
        session = self._session
        adapter: Any = session.get_adapter(self.url)
        asked = session.prepare_request(requests.Request("GET", self.url))
        pool = adapter.get_connection_with_tls_context(asked, session.verify, session.proxies, session.cert)
        adapter.cert_verify(pool, self.url, session.verify, session.cert)
        connect_s, read_s = timeouts(self._source)
        send = partial(
            pool.urlopen,
            headers=dict(asked.headers),
            retries=adapter.max_retries,
            timeout=Timeout(connect=connect_s, read=read_s),
            **dict.fromkeys(("redirect", "assert_same_host", "preload_content", "decode_content"), False),
        )
        return send, adapter.request_url(asked, session.proxies).rstrip("/")

    def _once(self, path: str, fields: Mapping[str, str], read: Callable[[HTTPResponse], T]) -> T:
        try:
            (send, start), words = self._server, urlencode(fields)
            if len(fields.get("query", "")) < LONG_QUERY:
                answer = send("GET", f"{start}{path}?{words}")
            else:
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = send("POST", start + path, words, headers=send.keywords["headers"] | form)
            with answer:
                return read(answer)
        except (requests.RequestException, faults.HTTPError, HTTPException, OSError) as error:
            raise self._meaning(error) from None

    def _chunks(self, response: BaseHTTPResponse, most: int = MAX_BYTES) -> Iterator[bytes]:
        """Yield a body of at most `most` bytes as it arrives."""
        total = 0
        try:
            while chunk := response.read1(answers.BATCH, decode_content=True):
                total += len(chunk)
                if total > most:
                    expected = f"an answer of at most {most // 1_000_000:,} MB"
                    raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
                yield chunk
        except (faults.ProtocolError, HTTPException) as error:
            raise answers.PassingError(f"a damaged body ({self._words(error)})") from None

    def _meaning(self, error: Exception) -> Exception:
        """Translate an error of requests or urllib3, ten lines long, into one of ours."""
        causes, words = _causes(error), self._words(error)
        connect_s, read_s = timeouts(self._source)

        def has(*kinds: type[BaseException]) -> bool:
            return any(isinstance(cause, kinds) for cause in causes)

        if has(faults.SSLError, ssl.SSLError):
            return self._refused("source.tls", "a certificate that source.tls.ca, or the system, vouches for", words)
        if has(ConnectionRefusedError, faults.NameResolutionError):
            return self._failed("a server that answers", words)
        if has(faults.NewConnectionError):
            return answers.PassingError(words)
        if has(faults.ConnectTimeoutError):
            return self._failed("a connection", f"none within {connect_s:g} s")
        if has(faults.ReadTimeoutError, TimeoutError):
            return self._failed(f"an answer that does not pause for {read_s:g} s (source.timeout_s)", "silence")
        if has(requests.RequestException) and not has(faults.HTTPError, HTTPException, ConnectionError):
            return self._failed("an address that can be asked", words)
        return answers.PassingError("a damaged gzip stream" if has(faults.DecodeError) else words)

    def _words(self, error: BaseException) -> str:
        """Message of an error's cause from the system or OpenSSL, as other messages may contain addresses."""
        causes = _causes(error)
        messages = [getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) for cause in causes]
        names = [type(cause).__name__ for cause in causes if cause is error or isinstance(cause, faults.HTTPError)]
        return self._line(str(next(filter(None, messages), names[-1])))

    def _complaint(self, response: BaseHTTPResponse, body: bytes) -> Exception:
        """Turn an answer without samples into an error of the user or the server, with the server's message."""
        status, kind = response.status, _kind(response)
        try:
            data = answers.json_object(body) if kind == "application/json" else {}
        except answers.PassingError:
            data = {}
        failed, fault = data.get("status") == "error", self._line(str(data.get("errorType", "")), 40)
        code = f"HTTP {status} ({fault})" if failed else f"HTTP {status}"
        page = body.decode("utf-8", "replace") if kind in ("text/plain", "application/json") else ""
        words = self._line(f"{code}: {self._line(str(data.get('error', '')) if failed else page) or response.reason}")
        if status == 200 and not failed:
            words = f"an answer of the type {self._line(kind, 60) or 'none'}"
            return self._refused("source.url", "the query API (JSON)", words)
        if fault in ("bad_data", "execution") and status in (200, 400, 422):
            return self._refused(None, "a query that the server can answer", words)
        if 300 <= status < 400:
            words = f"a redirect ({code})"
        for statuses, key, expected in _REFUSALS:
            if status in statuses:
                return self._refused(key, expected, words)
        return answers.PassingError(words) if status == 503 and not failed else self._failed("an answer", words)

    def _refused(self, key: str | None, expected: str, found: str) -> InputError:
        """Make the error for a faulty setting `key`, or for a faulty query if there is no key."""
        return InputError(file=None, key=key, expected=f"{expected} at {self.url}", found=self._hide(found))

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(url=self.url, expected=expected, found=self._hide(found))

    def _line(self, text: str, limit: int = answers.MAX_WORDS) -> str:
        """A server's message in one line; secrets are hidden before cutting, so that no part of one remains."""
        return one_line(self._hide(text[:MAX_PAGE_WORDS]), limit)


def _kind(response: BaseHTTPResponse) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().casefold()


def _causes(error: BaseException) -> list[BaseException]:
    """The error and everything that caused it."""
    causes = [error]
    for cause in causes:  # the loop extends the list, as causes are in several attributes
        inner = (getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args)
        causes += [each for each in inner if isinstance(each, BaseException) and each not in causes]
    return causes


def timeouts(source: Source) -> tuple[float, float]:
    """Time limits in seconds: to connect, and between two parts of an answer."""
    return min(CONNECT_S, source.timeout_s), source.timeout_s + GRACE_S


# ---- The session -----------------------------------------------------------------------------------------------------


class Session(requests.Session):
    """Send a POST's parameters in its body, where long queries fit; follow no redirect, which would get our headers."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]  # all go on
        """Send one request, also for prometheus-api-client."""
        if method.upper() == "POST" and options.get("data") is None:
            options["data"] = options.pop("params", None)
        return super().request(method, url, **{"allow_redirects": False, **options})


class _TrickleError(Exception):
    """An answer takes longer than its total time limit."""


_limit = threading.local()
"""`is_over` tells whether the time of this thread's query is used up."""


class _Response(http.client.HTTPResponse):
    """An answer with a total time limit, because a trickling answer never reaches a socket's time-out."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        raw: Any = self.fp.raw
        read, until = raw.readinto, time.monotonic() + PATIENCE * (sock.gettimeout() or math.inf)
        is_over = getattr(_limit, "is_over", lambda: time.monotonic() > until)

        def read_in_time(buffer: memoryview) -> int:
            if is_over():
                raise _TrickleError
            return int(read(buffer))

        raw.readinto = read_in_time


class _Adapter(HTTPAdapter):
    """Open connections whose answers are `_Response`."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the pool of connections to a server."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        if pool.ConnectionCls.response_class is not _Response:
            pool.ConnectionCls = type("Limited", (pool.ConnectionCls,), {"response_class": _Response})
        return pool


class _Repeats(Retry):
    """Retries that also work with an unreadable Retry-After."""

    def parse_retry_after(self, retry_after: str) -> float:
        """Seconds to wait; 0 if unreadable."""
        try:
            return super().parse_retry_after(retry_after)
        except (faults.InvalidHeader, ValueError, OverflowError):
            return 0.0


def open_session(source: Source, url: str) -> tuple[Session, list[str]]:
    """A session for `url` as `source` describes it, and the secrets in it, the longest first."""
    session = Session()
    # Repeat after temporary faults (no connection, busy server), not after queries that ran too long.
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
        key = _pem(source.tls, "key", "a key", lambda context, file: None)  # read with its certificate
        wanted = "a certificate and its key (PEM, without a passphrase)"
        cert = _pem(source.tls, "cert", wanted, lambda c, file: c.load_cert_chain(file, key, password=lambda: b""))
        session.verify = ca or source.tls.verify
        session.cert = (cert, key) if cert and key else cert
    # Read the environment once, not for each request, and never a password in ~/.netrc.
    settings = session.merge_environment_settings(url, {}, None, session.verify, None)
    session.proxies, session.verify, session.trust_env = settings["proxies"], settings["verify"], False
    return session, secrets


def identity(source: Source) -> str | None:
    """Slow hash of the credentials, which reveals no password; None if a secret is missing, empty without any."""
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
    """The headers of `source` that hold secrets, and these secrets."""
    headers = {name: _secret(f"headers_env.{name}", variable) for name, variable in source.headers_env.items()}
    secrets = [*headers.values()]
    if source.auth is not None:
        named = source.auth.model_dump(exclude_none=True)  # a token, or a user and a password
        login = [_secret(f"auth.{key}", name, ascii_only=len(named) == 1) for key, name in named.items()]
        basic = base64.b64encode(":".join(login).encode()).decode()
        headers["Authorization"] = f"Bearer {login[0]}" if len(login) == 1 else f"Basic {basic}"
        secrets += [basic, login[-1]]
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
    """The path of a file that OpenSSL can read; a later error would name neither file nor key."""
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
