"""A long way to a server: a proxy on the loopback that adds to every round trip."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


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
