"""An HTTP relay in front of the real application, that harms chosen requests, and serves pages of its own beside it.

It forwards whole requests and whole replies, so that a rule harms exactly one of them.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

#: lose_request: the connection closes before the server hears of it. lose_reply: the server does it, and the connection closes.
#: cut_reply: half of its body, then closed. gateway: the server does it, and a page of a gateway says 502. busy: a gateway
#: says 503 by itself. elsewhere: a redirection to another address.
Rule = Literal["pass", "lose_request", "lose_reply", "cut_reply", "gateway", "busy", "elsewhere"]
#: What a client gets over by itself, first what keeps the server from doing anything.
HARM: tuple[Rule, ...] = ("lose_request", "busy", "lose_reply", "cut_reply", "gateway")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came, and the rule that it met."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    rule: Rule


@dataclass
class HttpRelay:
    """`url` leads through it. `pages`: path -> media type and bytes, served by the relay itself."""

    target: str
    pages: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    _rules: list[tuple[str, Rule]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, *rules: Rule, of: str = "") -> None:
        """What happens to the next requests whose line, such as `POST /api/queues/q/jobs`, contains `of`."""
        self._rules.extend((of, rule) for rule in rules)

    def take(self, line: str) -> Rule:
        with self._lock:
            for index, (of, rule) in enumerate(self._rules):
                if of in line:
                    del self._rules[index]
                    return rule
        return "pass"

    def requests(self, of: str) -> list[Seen]:
        """The requests so far whose line contains `of`."""
        return [seen for seen in self.seen if of in f"{seen.method} {seen.path}"]


@contextlib.contextmanager
def relay(target: str, pages: Mapping[str, tuple[str, bytes]] | None = None) -> Generator[HttpRelay]:
    """A relay to the application at `target`, which is gone afterwards."""
    state = HttpRelay(target, pages or {})

    class Handler(_Handler):
        relay = state

    server = _Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        # The threads of open connections end with the process; none is waited for.
        server.socket.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone, or an application: the connection closes, which is all that a relay can say."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    relay: HttpRelay

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path = self.path.partition("?")[0]
        if self.command == "GET" and path in self.relay.pages:
            kind, page = self.relay.pages[path]
            return self._answer(200, {"Content-Type": kind}, page)
        rule = self.relay.take(f"{self.command} {self.path}")
        self.relay.seen.append(Seen(self.command, self.path, dict(self.headers), body, rule))
        if rule == "lose_request":
            self.close_connection = True
            return None
        if rule == "busy":
            return self._answer(503, {"Content-Type": "text/html"}, b"<h1>busy</h1>")
        if rule == "elsewhere":
            return self._answer(307, {"Location": f"{self.relay.url}/elsewhere"}, b"")
        status, headers, reply = self._forwarded(body)
        if rule == "gateway":
            return self._answer(502, {"Content-Type": "text/html"}, b"<h1>bad gateway</h1>")
        if rule == "lose_reply":
            self.close_connection = True
            return None
        return self._answer(status, headers, reply, len(reply) // 2 if rule == "cut_reply" else None)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        server = http.client.HTTPConnection(urlsplit(self.relay.target).netloc, timeout=120)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body)
            reply = server.getresponse()
            kept = {
                name: value for name, value in reply.getheaders() if name.lower() not in ("transfer-encoding", "content-length")
            }
            return reply.status, kept, reply.read()
        finally:
            server.close()

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "connection":
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else body[:sent])
        if sent is not None:
            self.close_connection = True
