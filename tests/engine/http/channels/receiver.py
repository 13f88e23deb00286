"""A real HTTP server that receives webhooks: notes each request and answers as it is told to."""

import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from tests.engine.helpers.waiting import DEADLINE_S


class Received(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float


class Answer(NamedTuple):
    """What the next request is answered."""

    status: int
    headers: Mapping[str, str] = {}


class Receiver:
    """Listens on a loopback port. `answers` are given in turn, then 204; `hold` keeps requests waiting until it is set."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.answers: deque[Answer] = deque()
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.received.append(Received(self.command, self.path, headers, body, time.monotonic()))
                outer.hold.wait(DEADLINE_S)
                answer = outer.answers.popleft() if outer.answers else Answer(204)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_PUT = do_POST = do_PATCH = do_GET = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
