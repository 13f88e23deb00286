"""The file of a backup: a log of keys with their values, of which the last entry of a key counts.

    magic                 b"ironclaim backup 1
"
    frames, each:         kind (1 byte), length (4), CRC-32 of the content (4), content
      H, the first one    JSON: what was backed up, from where
      D                   zlib: entries, each: length of the key (4), when it expires (8, ms, 0 = never),
                          length of the value (4), and the key without the queue's prefix, and its value
                          as DUMP gives it (none = no such key)
      T, the last one     JSON: the instant, totals, and the SHA-256 of all bytes before this frame

Numbers are big-endian. A file without T is not whole. It is written under another name and gets its own when
it is whole and on disk. So a process that is killed leaves no file that looks like a backup. Reading and
writing take the memory of one frame.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, cast

from engine.errors import EngineError, ServerUnavailable
from engine.ops.base import ServerClock
from engine.queue.settings import QueueSettings
from engine.redis.dialer import read_replies
from engine.redis.driver import Connections, packed
from engine.redis.exchange import FAILURES, is_reply, message_of
from engine.redis.handshake import Handshake, parse_info

FORMAT = 1
_MAGIC = b"ironclaim backup %d\n" % FORMAT
_FRAME = struct.Struct(">cII")
_ENTRY = struct.Struct(">IQI")
#: Entries of so many bytes go into one frame, and at least one entry.
FRAME_BYTES = 1 << 20


class BadBackup(EngineError):
    """The file is no backup, is not whole, was damaged, or does not fit where it should be restored. Nothing
    was written, or the message says that the queue stays closed."""


class Entry(NamedTuple):
    """A key without the queue's prefix, when it expires (ms, 0 = never), and its value; b"" = there is no
    such key."""

    key: bytes
    expires_ms: int
    value: bytes


class ArchiveWriter:
    """Writes a backup. Leaving its `with` block without `finish` leaves no file."""

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._file: IO[bytes] = self._partial.open("wb")
        self._digest = hashlib.sha256()
        self._entries: list[bytes] = []
        self._size = 0
        #: Bytes that were written, and entries.
        self.bytes = 0
        self.entries = 0
        self._write(_MAGIC)
        self._frame(b"H", _json({"format": FORMAT, **header}))

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self._entries += (
            _ENTRY.pack(len(entry.key), entry.expires_ms, len(entry.value)),
            entry.key,
            entry.value,
        )
        self._size += len(entry.key) + len(entry.value) + _ENTRY.size
        self.entries += 1
        if self._size >= FRAME_BYTES:
            self._flush()

    def finish(self, totals: Mapping[str, object]) -> None:
        """Write what tells that it is whole, and give the file its name."""
        self._flush()
        self._frame(b"T", _json({**totals, "entries": self.entries, "sha256": self._digest.hexdigest()}))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._partial.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._entries:
            self._frame(b"D", zlib.compress(b"".join(self._entries), 1))
        self._entries, self._size = [], 0

    def _frame(self, kind: bytes, content: bytes) -> None:
        self._write(_FRAME.pack(kind, len(content), zlib.crc32(content)) + content)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.bytes += len(data)


class Archive:
    """A backup that was read through and is whole. `header` and `totals` are its first and its last frame."""

    def __init__(self, path: Path) -> None:
        """Raises BadBackup, and OSError."""
        self.path = path
        self.header: Mapping[str, Any] = {}
        self.totals: Mapping[str, Any] = {}
        for kind, content in _frames(path):
            if kind == b"H":
                self.header = json.loads(content)
            elif kind == b"T":
                self.totals = json.loads(content)

    def entries(self) -> Iterator[Entry]:
        """All entries, in their order. Raises BadBackup where the file has changed since."""
        for kind, content in _frames(self.path):
            if kind != b"D":
                continue
            data, at = zlib.decompress(content), 0
            while at < len(data):
                key_length, expires_ms, value_length = _ENTRY.unpack_from(data, at)
                at += _ENTRY.size
                yield Entry(
                    data[at : at + key_length],
                    expires_ms,
                    data[at + key_length : at + key_length + value_length],
                )
                at += key_length + value_length


def _frames(path: Path) -> Iterator[tuple[bytes, bytes]]:
    digest, last, size = hashlib.sha256(), b"", path.stat().st_size
    with path.open("rb") as file:

        def read(count: int, what: str) -> bytes:
            data = file.read(count)
            if len(data) < count:
                raise BadBackup(f"{path}: it ends in mid-{what}: the backup is not whole")
            return data

        magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            known = magic.startswith(b"ironclaim backup ")
            raise BadBackup(
                f"{path}: {'a backup of another version' if known else 'no backup'}, this one reads "
                f"version {FORMAT}"
            )
        digest.update(magic)
        while last != b"T":
            at = file.tell()
            head = read(_FRAME.size, "frame")
            kind, length, checksum = _FRAME.unpack(head)
            if kind not in (b"H", b"D", b"T") or (kind == b"H") != (last == b""):
                raise BadBackup(f"{path}: damaged at byte {at}: no frame of a backup")
            if length > size - file.tell():
                raise BadBackup(f"{path}: it ends in mid-frame: the backup is not whole")
            content = read(length, "frame")
            if zlib.crc32(content) != checksum:
                raise BadBackup(
                    f"{path}: damaged between the bytes {at} and {file.tell()}: the checksum differs"
                )
            if (
                kind == b"T"
                and cast("Mapping[str, Any]", json.loads(content))["sha256"] != digest.hexdigest()
            ):
                raise BadBackup(f"{path}: damaged: the checksum of the whole differs")
            digest.update(head + content)
            last = kind
            yield kind, content
        if file.read(1):
            raise BadBackup(f"{path}: damaged: it goes on behind its end")


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


# -- A connection on which a backup asks the server, in pipelines of plain commands.

#: How long a reply may take beyond what is usual: a large value, or a page of them.
_PATIENCE_MS = 60_000
#: Keys that one call looks at.
_SCAN_KEYS = 1_000


class ServerConnection:
    """One connection to the server of a queue. What fails on the way is raised as ServerUnavailable: nothing
    is sent again."""

    def __init__(self, queue: QueueSettings) -> None:
        handshake = Handshake((), ServerClock(), None, route=queue.endpoint.route)
        self._connections = Connections(queue.endpoint, handshake, patience_ms=_PATIENCE_MS)
        try:
            self._connection: Any = self._connections.take(queue.endpoint.slot)
        except FAILURES as error:
            raise ServerUnavailable(f"cannot connect: {message_of(error)}") from error

    def ask(self, *commands: tuple[object, ...]) -> list[Any]:
        """Send commands and return their replies. Raises ServerUnavailable, also for an error that the server
        answers."""
        replies = self.try_to(*commands)
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                raise ServerUnavailable(f"{words[0]}: the server answered {message_of(reply)}") from reply
        return replies

    def try_to(self, *commands: tuple[object, ...]) -> list[Any]:
        """As `ask`, but errors that the server answers are among the replies."""
        replies: list[Any] = []
        try:
            self._connection.send_packed_command(packed(self._connection, commands), check_health=False)
            read_replies(self._connection, len(commands), replies)
        except FAILURES as error:
            raise _broken(error) from error
        return replies

    def received(self) -> list[Any]:
        """What has come unasked, as a subscriber receives it."""
        found: list[Any] = []
        try:
            while self._connection.can_read(0):
                found.append(self._connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            raise _broken(error) from error
        return found

    def ping(self) -> list[Any]:
        """What a subscriber has received up to the answer to a PING: all that the server had to tell by
        then."""
        found: list[Any] = []
        try:
            self._connection.send_packed_command(packed(self._connection, (("PING",),)), check_health=False)
            while not found or not _is_pong(found[-1]):
                found.append(self._connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            raise _broken(error) from error
        return found[:-1]

    def scan(self, prefix: str) -> Iterator[list[bytes]]:
        """The names of the keys that begin so, without the prefix, in pages; one may come several times."""
        pattern, cursor = "".join(f"\\{at}" if at in "*?[]\\^" else at for at in prefix) + "*", b"0"
        while True:
            ((cursor, keys),) = self.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_KEYS))
            if keys:
                yield [key[len(prefix.encode()) :] for key in keys]
            if cursor == b"0":
                return

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        return parse_info(self.ask(("INFO", section))[0])

    def __enter__(self) -> ServerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.drop(self._connection)


def _is_pong(said: Any) -> bool:
    return said in (b"PONG", "PONG") or (isinstance(said, list) and said[:1] == [b"pong"])


def _broken(error: Exception) -> EngineError:
    what = "the server answered" if is_reply(error) else "the connection broke"
    return ServerUnavailable(f"{what}: {message_of(error)}; nothing is lost, begin again")
