"""What the histories of a job queue's processes say so far: what was sent, and which handlers run and have run, where."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import redis

from chaos.watch import Token, Watch, apply


class TargetWatch(Watch):
    """Tokens carry the operation of a handler as their nonce: these queues have no leases that it could tell of."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Jobs whose enqueue was acknowledged, and those that a handler has run to its end.
        self.acknowledged: set[str] = set()
        self.ended: set[str] = set()
        #: Every start of a handler: job -> (instant, process).
        self.starts: dict[str, list[tuple[int, str]]] = {}
        #: The newest acknowledged enqueue of each process: when it was sent.
        self._acknowledged_ns: dict[str, int] = {}

    def follow(self, proc: str) -> None:
        """A process that is started again goes on in its file, and what the one before it ran is cut off."""
        if proc in self.views:
            self.views[proc].running.clear()
        else:
            super().follow(proc)

    def poll(self) -> None:
        for proc, tail in self._tails.items():
            for row in tail.read():
                apply(self.views[proc], row)
                self._note(proc, row)

    def left(self) -> set[str]:
        """Jobs that were acknowledged and have not run to their end."""
        return self.acknowledged - self.ended

    def started_since(self, tokens: Iterable[Token], t_ns: int, but: str = "") -> list[Token]:
        """Those of the jobs that a process other than `but` has started since then."""
        return [token for token in tokens if any(at > t_ns and proc != but for at, proc in self.starts.get(token.job, ()))]

    def last_start_ns(self, proc: str) -> int:
        """When a process started its newest handler; 0 = never."""
        return max((at for starts in self.starts.values() for at, by in starts if by == proc), default=0)

    def enqueued_since(self, proc: str, t_ns: int) -> bool:
        """Whether an enqueue of the process was acknowledged that it sent since then."""
        return self._acknowledged_ns.get(proc, 0) > t_ns

    def _note(self, proc: str, row: dict[str, Any]) -> None:
        if row.get("kind") != "operation":
            return
        jobs = [item["job"] for item in row.get("items") or ()]
        f, kind = row.get("f"), row.get("type")
        if f == "enqueue" and kind == "ok":
            self.acknowledged.update(jobs)
            self._acknowledged_ns[proc] = row["first_send_ns"]
        elif f == "handle" and kind == "ok":
            self.ended.update(jobs)
        elif f == "handle" and kind == "invoke":
            for job in jobs:
                self.starts.setdefault(job, []).append((row["first_send_ns"], proc))


MARK = re.compile(rb"job-mark:(\d+):")

#: Compressed data begins with one of these; a text of Base64 is at least 24 characters long.
ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")


def held(url: str) -> set[str]:
    """The jobs whose payload stands in some key."""
    with redis.Redis.from_url(url) as client:
        return {job for key in client.scan_iter(count=1_000) for value in values(client, key) for job in marked(value)}


def marked(value: bytes) -> set[str]:
    """The jobs whose marks are in a value."""
    found = {mark.decode() for mark in MARK.findall(value)}
    for place in (place for start in ZLIB for place in (value.find(start),) if place >= 0):
        try:
            found |= {mark.decode() for mark in MARK.findall(zlib.decompressobj().decompress(value[place:]))}
        except zlib.error:
            continue
    for text in BASE64.findall(value):
        try:
            found |= {mark.decode() for mark in MARK.findall(base64.b64decode(text[: len(text) // 4 * 4]))}
        except binascii.Error:
            continue
    return found


def values(client: Any, key: bytes) -> Iterator[bytes]:
    """All values that a key holds; none where it is gone meanwhile."""
    kind = client.type(key)
    if kind == b"string":
        yield client.get(key) or b""
    elif kind == b"hash":
        yield from client.hvals(key)
    elif kind == b"list":
        yield from client.lrange(key, 0, -1)
    elif kind == b"set":
        yield from client.sscan_iter(key)
    elif kind == b"zset":
        yield from (member for member, _ in client.zscan_iter(key))
    elif kind == b"stream":
        for _, fields in client.xrange(key):
            yield from fields.values()
