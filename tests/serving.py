"""A server whose answers a test gives."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, str], bytes]
Answering = Callable[[str, dict[str, list[str]]], Answer]


def matrix(labels: Mapping[str, str], values: Sequence[Sequence[object]], **more: object) -> Answer:
    data = {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}
    body = json.dumps({"status": "success", "data": data, **more}).encode()
    return 200, {"Content-Type": "application/json"}, body


@contextmanager
def serving(
    answer: Answering, take: Callable[[str, str, bytes], Answer] | None = None, *, status_line: str = ""
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            self.send(*answer(asked.path, parse_qs(asked.query)))

        def do_POST(self) -> None:
            assert take is not None
            self.send(*take(self.command, self.path, self.rfile.read(int(self.headers["Content-Length"]))))

        do_PATCH = do_PUT = do_POST

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status, status_line or None)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client may go away at any time
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
