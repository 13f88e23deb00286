"""An HTTP relay in front of the real application, that harms chosen requests, and serves pages of its own beside it.

It forwards whole requests and whole replies, so that a rule harms exactly one of them.
"""

import contextlib
import http.client
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

#: lose_request: the connection closes before the server hears of it. busy, limited: a gateway says 503, or 429, by itself. away:
#: the server says 503, because its Redis is away. elsewhere: a redirection to another address. With all others the server does
#: it, and lose_reply: the connection closes; cut_reply: half of its body, then closed; silent: nothing ever comes; gateway,
#: late, fault: a page says 502, 504, 500; page: a page comes as if it were the reply; strange: the reply is JSON of something
#: else; garbled: the reply is said to be compressed.
_NotDone = Literal["lose_request", "busy", "limited", "away", "elsewhere"]
_Done = Literal["lose_reply", "cut_reply", "silent", "gateway", "late", "fault", "page", "strange", "garbled"]
Rule = Literal["pass", _NotDone, _Done]
_HTML, _PROBLEM = {"Content-Type": "text/html"}, {"Content-Type": "application/problem+json"}
#: What comes in place of the server's answer, before and after it has carried the request out: status, headers, body.
_BEFORE: Mapping[Rule, tuple[int, Mapping[str, str], bytes]] = {
    "busy": (503, _HTML, b"<h1>busy</h1>"),
    "limited": (429, _HTML, b"<h1>too many</h1>"),
    "away": (503, _PROBLEM, b'{"title": "Service Unavailable", "status": 503, "detail": "away"}'),
}
_AFTER: Mapping[Rule, tuple[int, Mapping[str, str], bytes]] = {
    **{"gateway": (502, _HTML, b"<h1>bad gateway</h1>"), "late": (504, _HTML, b"<h1>gateway time-out</h1>")},
    **{"fault": (500, _HTML, b"<h1>it failed</h1>"), "page": (200, _HTML, b"<h1>welcome</h1>")},
    "strange": (200, {"Content-Type": "application/json"}, b'{"hello": "world"}'),
}
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
    """`url` leads through it. `pages`: path -> media type and bytes, served by the relay itself. `keeps`: connections are kept
    for further requests. On one that was kept and closes a browser sends its request again by itself."""

    target: str
    pages: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    url: str = ""
    keeps: bool = True
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
        if rule in _BEFORE:
            return self._answer(*_BEFORE[rule])
        if rule == "elsewhere":
            return self._answer(307, {"Location": f"{self.relay.url}/elsewhere"}, b"")
        status, headers, reply = self._forwarded(body)
        if rule in _AFTER:
            return self._answer(*_AFTER[rule])
        if rule == "garbled":
            headers["Content-Encoding"] = "gzip"
        if rule == "silent":
            # Nothing comes from the client any more, until it closes the connection.
            self.connection.recv(1)
        if rule in ("lose_reply", "silent"):
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
            dropped = ("transfer-encoding", "content-length")
            kept = {name: value for name, value in reply.getheaders() if name.lower() not in dropped}
            return reply.status, kept, reply.read()
        finally:
            server.close()

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "connection":
                self.send_header(name, value)
        if not self.relay.keeps:
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else body[:sent])
        if sent is not None:
            self.close_connection = True
