"""A proxy on the loopback that delays every round trip to a server, or holds requests until a gate opens."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def latency_proxy(url: str, delay_s: float = 0.0, *, gate: threading.Event | None = None) -> Iterator[str]:
    """An address from which `url` is reached `delay_s` later on every round trip, and not before `gate` is set."""
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
            threading.Thread(target=_connect, args=(client, onward, delay_s, gate), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        closing.set()
        if gate is not None:
            gate.set()
        with contextlib.suppress(OSError), socket.create_connection(listener.getsockname(), timeout=1):
            pass  # wakes the thread that accepts
        thread.join(5)
        listener.close()


def _connect(client: socket.socket, onward: socket.socket, delay_s: float, gate: threading.Event | None) -> None:
    """Pass bytes both ways until both have ended."""
    with client, onward:
        for one in (client, onward):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_forward, args=(onward, client, 0.0), daemon=True)
        back.start()
        _forward(client, onward, delay_s, gate)
        back.join()


def _forward(source: socket.socket, target: socket.socket, delay_s: float, gate: threading.Event | None = None) -> None:
    """Pass bytes on after the delay; a request is one packet, so nothing queues behind it."""
    time.sleep(delay_s)  # the handshake
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            time.sleep(delay_s)
            if gate is not None:
                gate.wait()
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
