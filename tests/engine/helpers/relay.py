"""A TCP relay in front of a real server, that harms chosen calls: the driver's tests run over it.

A *call* is what a client sends in one piece that starts with EVALSHA; handshakes and everything else pass untouched. Each call
takes the next rule of the queue, or the standing rule; with neither it passes.
"""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Self

import hiredis

#: lose_reply: the server does it, the client's connection closes. hush_reply: the same, but the connection stays open, silent.
#: lose_request: the connection closes before the server hears of it. cut_request, cut_reply: half of the bytes, then closed.
#: hold_request: as lose_request, and `release_held` delivers the bytes later: a late copy. one_reply: the first reply of a
#: pipeline passes, then the connection closes.
Rule = Literal["pass", "lose_reply", "hush_reply", "lose_request", "hold_request", "cut_request", "cut_reply", "one_reply"]


class Relay:
    """Listens on a loopback port while it is up; `url` leads through it to the server at `server_port`."""

    def __init__(self, server_port: int) -> None:
        # Bound and never listening: nobody else gets the port while this relay is down, and who connects is refused.
        self._reserved = bound(0)
        self.port: int = self._reserved.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.standing: Rule = "pass"
        self.before_call: Callable[[bytes], None] = lambda data: None
        self.delay_s, self.calls, self._server_port = 0.0, 0, server_port
        self._rules, self._held = deque[Rule](), list[bytes]()
        self._lock, self._open, self._hushed = threading.Lock(), list[socket.socket](), set[socket.socket]()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        self._reserved.close()

    def next(self, *rules: Rule) -> None:
        """What happens to the next calls."""
        self._rules.extend(rules)

    def up(self) -> None:
        """Accept connections."""
        listener = bound(self.port)
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self) -> None:
        """Refuse new connections and close the open ones, as a server that died does."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # shutdown wakes the thread in accept; close alone would leave the port open until then.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.break_all()

    def break_all(self) -> None:
        """Close the connections that are open now; new ones are accepted."""
        with self._lock:
            ends, self._open = self._open, []
        _close(*ends)

    def lead_to(self, server_port: int) -> None:
        """Lead to another server from now on, as a fixed address does after a failover."""
        self.down()
        self._server_port = server_port
        self.up()

    def hush(self) -> None:
        """The connections that are open now stay so, and nothing comes through them any more, as when a network drops packets."""
        with self._lock:
            self._hushed.update(self._open)

    def release_held(self) -> list[bytes]:
        """Deliver the held requests to the server, each on a connection of its own; their replies."""
        replies: list[bytes] = []
        for data in self._held:
            with socket.create_connection(("127.0.0.1", self._server_port), timeout=60) as server:
                server.sendall(data)
                replies.append(server.recv(65536))
        self._held.clear()
        return replies

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [client, server]
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One connection. `harm` is what the reply that comes next shall suffer."""
        harm: list[Rule] = ["pass"]
        threading.Thread(target=self._replies, args=(client, server, harm), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if client in self._hushed:
                    continue
                rule: Rule = "pass"
                # What follows a large call in further pieces belongs to it.
                if data.startswith(b"*") and b"EVALSHA" in data[:32]:
                    harm[0] = rule = self._take_rule(data)
                if rule in ("lose_request", "hold_request"):
                    break
                if rule == "cut_request":
                    server.sendall(data[: len(data) // 2])
                    break
                server.sendall(data)
        _close(client, server)

    def _take_rule(self, data: bytes) -> Rule:
        with self._lock:
            self.calls += 1
            rule: Rule = self._rules.popleft() if self._rules else self.standing
        self.before_call(data)
        if self.delay_s:
            time.sleep(self.delay_s)
        if rule == "hold_request":
            self._held.append(data)
        return rule

    def _replies(self, client: socket.socket, server: socket.socket, harm: list[Rule]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if server in self._hushed:
                    continue
                if harm[0] == "lose_reply":
                    break
                if harm[0] == "one_reply":
                    length = first_reply(data)
                    client.sendall(data[:length])
                    if length is not None:
                        break
                    continue
                if harm[0] == "cut_reply":
                    client.sendall(data[: len(data) // 2])
                    break
                if harm[0] != "hush_reply":
                    client.sendall(data)
        _close(client, server)


def first_reply(data: bytes) -> int | None:
    """Length of the first whole reply, None when there is none yet."""
    reader = hiredis.Reader()
    for at in range(len(data)):
        reader.feed(data[at : at + 1])
        if reader.gets() is not False:
            return at + 1
    return None


def bound(port: int) -> socket.socket:
    """A socket at this port, or at a free one for 0, beside others that do not listen."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def _close(*ends: socket.socket) -> None:
    for end in ends:
        # shutdown first: it wakes the thread that reads from this end.
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
