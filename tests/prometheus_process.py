"""Debian's Prometheus as a process, filled from a file of samples, and a long way to it: for tests and benchmarks."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 30
"""The longest that a server may take until it is ready."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def filled_prometheus(
    folder: Path, samples: Path, *flags: str, server: str = "prometheus", promtool: str = "promtool"
) -> Iterator[str]:
    """The address of a server over `samples` (OpenMetrics with times); its data and log go into `folder`."""
    data = folder / "data"
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", samples, data],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (folder / "prom.yml").write_text("global: {}\n")
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                server,
                f"--config.file={folder / 'prom.yml'}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=100y",
                "--storage.tsdb.min-block-duration=2h",
                "--storage.tsdb.max-block-duration=2h",
                f"--web.listen-address=127.0.0.1:{port}",
                *flags,
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/-/ready", process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"not ready after {START_S} s: {log.read_text()}")


@contextlib.contextmanager
def far_away(url: str, delay_s: float) -> Iterator[str]:
    """An address from which `url` is reached with `delay_s` added to every round trip, the handshake included."""
    host, _, port = url.removeprefix("http://").partition(":")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    closing = threading.Event()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if closing.is_set():
                client.close()
                return
            onward = socket.create_connection((host, int(port)))
            threading.Thread(target=_connect, args=(client, onward, delay_s), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        closing.set()
        with contextlib.suppress(OSError), socket.create_connection(listener.getsockname(), timeout=1):
            pass  # wakes the thread that accepts
        thread.join(5)
        listener.close()


def _connect(client: socket.socket, onward: socket.socket, delay_s: float) -> None:
    """Pass bytes both ways until both have ended."""
    with client, onward:
        for one in (client, onward):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_forward, args=(onward, client, 0.0), daemon=True)
        back.start()
        _forward(client, onward, delay_s)
        back.join()


def _forward(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Pass bytes on, late; a request is one packet, so nothing queues behind the wait."""
    time.sleep(delay_s)  # the handshake
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            time.sleep(delay_s)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
