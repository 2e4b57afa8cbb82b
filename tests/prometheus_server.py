"""Real servers, filled with samples of known truth, and a proxy in front of them that can fail in every way."""

import http.client
import math
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from programs import victoriametrics_program

STEP_S = 5
BASE_START, NEW_START = 1_733_911_200, 1_733_925_600  # 2024-12-11T10:00:00Z and 14:00:00Z
LENGTH_S = 1_800
LONG_START = 1_733_788_800  # 2024-12-10T00:00:00Z
LONG_S = 20 * 3_600
BOUNDS = (0.005, 0.01, 0.1, 1.0, 10.0, math.inf)
HANDLERS = {"createPost": (0.02, 40), "getUser": (0.004, 100), "searchPosts": (0.3, 7)}
METHODS = {"PostStore.Save": (0.008, 50), "UserStore.Get": (0.002, 300)}
INSTANCES = ("app-0:8067", "app-1:8067")
HISTOGRAMS = ("mattermost_api_time", "mattermost_db_store_time")


@dataclass(frozen=True)
class Truth:
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def add(self, name: str, times: np.ndarray, values: np.ndarray, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        if key in self.samples:
            before = self.samples[key]
            times, values = np.concatenate([before[0], times]), np.concatenate([before[1], values])
        self.samples[key] = (times, values)

    def at(self, name: str, times: np.ndarray, **labels: str) -> np.ndarray:
        written, values = self.samples[name, tuple(sorted(labels.items()))]
        index = np.searchsorted(written, times)
        assert np.array_equal(written[index], times)
        return values[index]

    def text(self) -> str:
        lines, family = [], ""
        for (name, labels), (times, values) in sorted(self.samples.items()):
            stem, _, end = name.rpartition("_")
            kind = {"total": "counter", **dict.fromkeys(("bucket", "count", "sum"), "histogram")}.get(end, "gauge")
            stem = name if kind == "gauge" else stem
            if stem != family:
                lines.append(f"# TYPE {stem} {kind}")
            family, shown = stem, ",".join(f'{key}="{value}"' for key, value in labels)
            lines += [f"{name}{{{shown}}} {_number(v)} {t:.3f}" for t, v in zip(times, values, strict=True)]
        return "\n".join([*lines, "# EOF", ""])


def _number(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(float(value)).replace("nan", "NaN"))


def make_truth() -> Truth:
    truth = Truth()
    rng = np.random.default_rng(4)
    for start, slower in ((BASE_START, 1.0), (NEW_START, 1.25)):
        times = start + np.arange(0.0, LENGTH_S + 1, STEP_S)
        for instance in INSTANCES:
            for metric, label, table in zip(HISTOGRAMS, ("handler", "method"), (HANDLERS, METHODS), strict=True):
                for name, (seconds, calls) in table.items():
                    _histogram(truth, rng, times, metric, seconds * slower, calls, instance=instance, **{label: name})
            requests = 1e6 + np.cumsum(rng.integers(80, 120, times.size)).astype(float)
            if start == NEW_START and instance == INSTANCES[0]:
                requests[200:] -= requests[200] - 3  # a restart: the counter starts again
            truth.add("mattermost_http_requests_total", times, requests, instance=instance)
            cpu = 100 + np.cumsum(rng.uniform(1, 2, times.size))
            truth.add("mattermost_process_cpu_seconds_total", times, cpu, instance=instance)
            users = np.minimum(np.arange(times.size) * 20.0, 4000) / 2
            truth.add("mattermost_http_websockets_total", times, users, instance=instance)
            for gauge in ("go_goroutines", "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"):
                truth.add(gauge, times, rng.uniform(1e3, 1e9, times.size), instance=instance)
    times = BASE_START + np.arange(0.0, LENGTH_S + 1, STEP_S)
    odd = rng.normal(0, 1, times.size) * 10.0 ** rng.integers(-300, 300, times.size)
    odd[[3, 5, 8]] = np.nan, np.inf, -np.inf
    odd[10:13] = 5e-324, 1.7976931348623157e308, -0.0
    truth.add("odd", times, odd)
    long_times = LONG_START + np.arange(0.0, LONG_S + 1, STEP_S)
    truth.add("long", long_times, rng.normal(0, 1, long_times.size))
    kept = (times < BASE_START + 300) | (times >= BASE_START + 1_200)
    five = (times <= BASE_START + 600) | (times > BASE_START + 900)
    truth.add("scraped_total", times[five], 1e3 + 7.0 * np.arange(times.size)[five])
    truth.add("gappy", times[kept], np.arange(float(kept.sum())))
    return truth


def _histogram(
    truth: Truth, rng: np.random.Generator, times: np.ndarray, metric: str, seconds: float, calls: float, **labels: str
) -> None:
    drawn = rng.exponential(seconds, (times.size, 200))
    counts = rng.poisson(calls, times.size).astype(float)
    shares = np.stack([(drawn <= bound).mean(axis=1) for bound in BOUNDS], axis=1)
    buckets = 1e6 + np.cumsum(np.round(shares * counts[:, None]), axis=0)
    for i, bound in enumerate(BOUNDS):
        truth.add(f"{metric}_bucket", times, buckets[:, i], le="+Inf" if math.isinf(bound) else str(bound), **labels)
    truth.add(f"{metric}_count", times, buckets[:, -1], **labels)
    truth.add(f"{metric}_sum", times, 1e6 + np.cumsum(counts * drawn.mean(axis=1)), **labels)


@dataclass(frozen=True)
class Prometheus:
    url: str
    truth: Truth
    kind: str

    def gives(self, values: np.ndarray, written: np.ndarray) -> bool:
        if self.kind == "victoriametrics":  # docs/prometheus.md
            return bool(np.allclose(values, written, rtol=1e-11, atol=0))
        return np.array_equal(values, written)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def needed(name: str, package: str = "prometheus") -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on the PATH (Debian: the package {package})")
    return found


KINDS = ("prometheus", "victoriametrics")
MAX_SAMPLES = 30_000
"""Of one query: little enough for a test to ask for too many."""
LIMITS = {
    "prometheus": (f"--query.max-samples={MAX_SAMPLES}",),
    "victoriametrics": (f"-search.maxSamplesPerQuery={MAX_SAMPLES}", "-search.maxQueryLen=1MB"),
}


Servers = Callable[[str], Prometheus]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    truth, running = make_truth(), {}

    def start(kind: str) -> Prometheus:
        if kind not in running:
            url = stack.enter_context(START[kind](tmp_path_factory.mktemp(kind), [truth.text()], LIMITS[kind]))
            running[kind] = Prometheus(url, truth, kind)
        return running[kind]

    with ExitStack() as stack:
        yield start


@pytest.fixture(scope="session", params=KINDS)
def prometheus(request: pytest.FixtureRequest, servers: Servers) -> Prometheus:
    return servers(request.param)


@contextmanager
def run_prometheus(folder: Path, samples: Sequence[str], options: Sequence[str] = ()) -> Iterator[str]:
    server, promtool = needed("prometheus"), needed("promtool")
    (folder / "prom.yml").write_text("global: {}\n")
    data = folder / "data"
    for text in samples:
        (folder / "samples.om").write_text(text)
        subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", folder / "samples.om", data],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
    port = free_port()
    blocks = [
        f"--storage.tsdb.{each}" for each in ("retention.time=100y", "min-block-duration=2h", "max-block-duration=2h")
    ]
    files = [f"--config.file={folder / 'prom.yml'}", f"--storage.tsdb.path={data}", *blocks]
    command = [server, *files, f"--web.listen-address=127.0.0.1:{port}", *options]
    with running(command, folder / "log", f"http://127.0.0.1:{port}/-/ready"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def run_victoriametrics(folder: Path, samples: Sequence[str], options: Sequence[str] = ()) -> Iterator[str]:
    port = free_port()
    # Several workers add numbers up in another order each time: other last bits.
    fixed = "-retentionPeriod=100y -search.latencyOffset=0 -search.disableCache=true -search.maxWorkersPerQuery=1"
    place = [f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}"]
    command = [str(victoriametrics_program()), *place, *fixed.split(), *options]
    url = f"http://127.0.0.1:{port}"
    with running(command, folder / "log", f"{url}/-/ready", GOMAXPROCS="1"):  # fewer orders to add up in
        asked = [("/api/v1/import/prometheus", text) for text in samples] + [("/internal/force_flush", "")]
        for path, body in asked:
            with urllib.request.urlopen(urllib.request.Request(url + path, body.encode()), timeout=120) as answer:
                assert answer.status in (200, 204)
        yield url


START = {"prometheus": run_prometheus, "victoriametrics": run_victoriametrics}


@contextmanager
def running(
    command: list[str], log: Path, ready: str, cwd: Path | None = None, without: tuple[str, ...] = (), **variables: str
) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**kept, **variables}, cwd=cwd, start_new_session=True
        )
    try:
        until = time.monotonic() + 60
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, f"not ready after 60 s: {log.read_text()}"
            with suppress(OSError), urllib.request.urlopen(ready, timeout=2):
                break
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # a loaded machine; nothing of it is needed any more
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@dataclass
class Exchange:
    """One answer on its way to the client; a fault changes it or sends it itself."""

    handler: BaseHTTPRequestHandler
    asked: dict[str, str]
    status: int
    headers: dict[str, str]
    body: bytes
    sent: bool = False


Fault = Callable[[Exchange], None]


@dataclass
class Proxy:
    """A proxy whose next answers to queries (or, with `everywhere`, to anything) have `faults`, the last for good."""

    url: str
    faults: list[Fault | None] = field(default_factory=list)
    everywhere: bool = False
    allowed: Callable[[Mapping[str, str]], bool] = lambda headers: True
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def next(self, path: str) -> Fault | None:
        if not self.faults or not (self.everywhere or path.startswith("/api/v1/query")):
            return None
        return self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]


@contextmanager
def proxying(
    target: str, *faults: Fault, everywhere: bool = False, tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Proxy]:
    lock = threading.Lock()
    made = Proxy("", [*faults], everywhere)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._forward(b"")

        def do_POST(self) -> None:
            self._forward(self.rfile.read(int(self.headers["Content-Length"])))

        def _forward(self, body: bytes) -> None:
            with lock:
                made.seen.append((self.command, self.path, dict(self.headers), body))
                fault = made.next(self.path)
            host, _, target_port = target.removeprefix("http://").partition(":")
            onward = http.client.HTTPConnection(host, int(target_port), timeout=60)
            onward.request(self.command, self.path, body, dict(self.headers))
            answer = onward.getresponse()
            asked = dict(urllib.parse.parse_qsl(f"{self.path.partition('?')[2]}&{body.decode('latin-1')}"))
            headers = {"Content-Type": answer.headers["Content-Type"]}
            exchange = Exchange(self, asked, answer.status, headers, answer.read())
            if answer.headers.get("Content-Encoding"):
                exchange.headers["Content-Encoding"] = answer.headers["Content-Encoding"]
            onward.close()
            if not made.allowed(dict(self.headers)):
                exchange.status, exchange.headers, exchange.body = 401, {"Content-Type": "text/plain"}, b"Unauthorized"
            if fault is not None:
                fault(exchange)
            if not exchange.sent:
                send_head(exchange)
                self.wfile.write(exchange.body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: object) -> None:
            pass  # clients that go away are what is tested here

        def finish_request(self, request: object, address: object) -> None:
            if tls is not None:
                request = tls.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
            try:
                super().finish_request(request, address)  # type: ignore[arg-type]
            finally:
                if isinstance(request, ssl.SSLSocket):
                    request.close()

    server = Server(("127.0.0.1", port), Handler)
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def proxy(prometheus: Prometheus) -> Iterator[Proxy]:
    with proxying(prometheus.url) as proxy:
        yield proxy


def send_head(exchange: Exchange, **headers: str) -> None:
    exchange.handler.send_response(exchange.status)
    for name, value in {**exchange.headers, **(headers or {"Content-Length": str(len(exchange.body))})}.items():
        exchange.handler.send_header(name, value)
    exchange.handler.end_headers()


def cut_off(exchange: Exchange, *, abruptly: bool) -> None:
    handler = exchange.handler
    send_head(exchange)
    handler.wfile.write(exchange.body[: len(exchange.body) // 2])
    handler.wfile.flush()
    if abruptly:
        time.sleep(0.05)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
    handler.close_connection = True
    exchange.sent = True


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = needed("openssl", "openssl")
    folder = tmp_path_factory.mktemp("certificates")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=30)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "36500", "-subj", "/CN=test authority",
        "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    run("req", *new, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=127.0.0.1")
    (folder / "more").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    run("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "36500",
        "-extfile", "more", "-out", "cert.pem")  # fmt: skip
    return folder


def tls_front(certificates: Path, *, client: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates / "ca.pem")
    return context
