"""Takes a backup of one queue while it is worked: all its keys as they are at one instant.

First it copies each key, page by page, while the server tells which keys change (CLIENT TRACKING, in
broadcast), and copies those again, until few are left. Then the server holds back writes (CLIENT PAUSE ...
WRITE) for the milliseconds that the last of them take. The file holds all keys as of one instant if no key
has changed since its last copy. That is what the server says at the end, and if one has, the last step is
done again. So that nothing changed is seen, not believed; the pause makes it happen. It ends by itself: a
backup that is killed holds up nobody for longer than that.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.backup.archive import ArchiveWriter, Entry, ServerConnection
from engine.errors import EngineError, ServerUnavailable, UnsupportedFeature
from engine.queue.settings import QueueSettings
from engine.redis.exchange import message_of
from engine.version import __version__

_CHANNEL = "__redis__:invalidate"
#: Keys of one pipeline: at first, and at most. Adapted so that a page has some 4 MiB.
_PAGE_FIRST, _PAGE_MOST, _PAGE_BYTES = 64, 1_000, 4 << 20
#: Copying again ends when so few changed keys are left, or after so many rounds.
_FEW_KEYS, _ROUNDS_MAX = 500, 20
#: A key that changes again and again is copied in the pause only.
_COPIES_MAX = 2
#: How long writes are held back at most, at the first try; each further one may take twice as long.
PAUSE_MS, _TRIES_MAX = 1_000, 4

#: Is told how many keys and bytes were copied.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup: how many entries (a key that changed meanwhile has several) and bytes were written, the last
    sequence, the server's time at its instant, and for how many milliseconds writes were held back."""

    file: str
    queue: str
    entries: int
    bytes: int
    sequence: int
    instant_ms: int
    paused_ms: float


class BackupFailed(EngineError):
    """The backup could not be taken. Nothing was changed, and no file was made."""


def take(
    queue: QueueSettings, file: Path, progress: Progress, *, at_instant: Callable[[], None] = lambda: None
) -> Taken:
    """Back up a queue into a file. `at_instant` is called while the instant lasts, for tests. Raises
    UnsupportedFeature for an old keyspace, BackupFailed, ServerUnavailable, and OSError for the file."""
    if "restore_load" not in queue.model.scripts:
        raise UnsupportedFeature(
            f"{queue.model.name} has no backup: its keyspace is shared with programs that know of none"
        )
    with ServerConnection(queue) as data, ServerConnection(queue) as tracking:
        server = data.info("server")
        if server.get("run_id") != tracking.info("server").get("run_id"):
            raise BackupFailed(
                "the two connections lead to two servers: a failover is under way, begin again"
            )
        header = {
            **{
                "id": os.urandom(8).hex(),
                "model": queue.model.name,
                "queue": queue.name,
                "engine": __version__,
            },
            **{"server": _version(server), "run_id": server.get("run_id", "")},
        }
        with ArchiveWriter(file, header) as archive:
            return _Taking(queue, data, tracking, archive, progress).run(at_instant)


class _Taking:
    def __init__(
        self,
        queue: QueueSettings,
        data: ServerConnection,
        tracking: ServerConnection,
        archive: ArchiveWriter,
        progress: Progress,
    ) -> None:
        self._queue = queue
        self._prefix = queue.model.keys.prefix.encode()
        self._data = data
        self._tracking = tracking
        self._archive = archive
        self._progress = progress
        self._changed: set[bytes] = set()
        self._page = _PAGE_FIRST

    def run(self, at_instant: Callable[[], None]) -> Taken:
        self._listen()
        copied = 0
        for page in self._data.scan(self._queue.model.keys.prefix):
            copied += len(page)
            self._copy(page, self._archive.add)
        if not copied and not self._changed:
            raise BackupFailed(f"there is no queue {self._queue.name}: the server has no key of it")
        copies: Counter[bytes] = Counter()
        for _ in range(_ROUNDS_MAX):
            self._note_changed_keys(self._tracking.ping())
            again = [key for key in self._changed if copies[key] < _COPIES_MAX]
            if len(again) <= _FEW_KEYS:
                break
            copies.update(again)
            self._copy(again, self._archive.add)
        for attempt in range(_TRIES_MAX):
            taken = self._copy_last(PAUSE_MS << attempt, at_instant)
            if taken is not None:
                return taken
        more = (
            ""
            if self._paused_by_us
            else ": the user may not run CLIENT PAUSE, which would hold the writes back"
        )
        raise BackupFailed(f"the queue changed during each of {_TRIES_MAX} last steps{more}")

    def _listen(self) -> None:
        """Receive each key that changes from now on."""
        tracking, data = self._tracking, self._data
        (number,) = tracking.ask(("CLIENT", "ID"))
        tracking.ask(("SUBSCRIBE", _CHANNEL))
        data.ask(("CLIENT", "TRACKING", "ON", "REDIRECT", number, "BCAST", "PREFIX", self._prefix))

    def _copy(self, keys: Iterable[bytes], add: Callable[[Entry], None]) -> None:
        """Add these keys as they are now. What changes after that is received later."""
        todo = list(keys)
        while todo:
            page, todo = todo[: self._page], todo[self._page :]
            self._note_changed_keys(self._tracking.received())
            self._changed.difference_update(page)
            size = 0
            replies = self._data.ask(*(words for key in page for words in self._words(key)))
            for key, value, expires_ms in zip(page, replies[::2], replies[1::2], strict=True):
                add(Entry(key, max(0, expires_ms), value or b""))
                size += len(value or b"")
            fits = self._page if size <= 0 else max(1, self._page * _PAGE_BYTES // size)
            self._page = max(1, min(_PAGE_MOST, 2 * self._page, fits))
            self._progress(self._archive.entries, self._archive.bytes)

    def _words(self, key: bytes) -> tuple[tuple[object, ...], ...]:
        return ("DUMP", self._prefix + key), ("PEXPIRETIME", self._prefix + key)

    def _copy_last(self, pause_ms: int, at_instant: Callable[[], None]) -> Taken | None:
        """Copy what is left while writes are held back; None if a key has changed since the first of these
        copies."""
        # Compressed and written when the writes go on again.
        last: list[Entry] = []
        with self._writes_held_back(pause_ms) as since_s:
            self._note_changed_keys(self._tracking.ping())
            self._copy(self._changed, last.append)
            (sequence,) = self._data.ask(("GET", self._queue.model.keys.seq))
            ((seconds, micros),) = self._data.ask(("TIME",))
            at_instant()
            self._note_changed_keys(self._tracking.ping())
            paused_ms = round((time.monotonic() - since_s) * 1000, 1)
        for entry in last:
            self._archive.add(entry)
        if self._changed:
            return None
        number, instant_ms = int(sequence or 0), int(seconds) * 1000 + int(micros) // 1000
        self._archive.finish({"instant_ms": instant_ms, "sequence": number, "paused_ms": paused_ms})
        archive = self._archive
        return Taken(
            str(archive.path), self._queue.name, archive.entries, archive.bytes, number, instant_ms, paused_ms
        )

    @contextmanager
    def _writes_held_back(self, pause_ms: int) -> Generator[float]:
        since_s = time.monotonic()
        (reply,) = self._data.try_to(("CLIENT", "PAUSE", pause_ms, "WRITE"))
        self._paused_by_us = not isinstance(reply, Exception)
        if isinstance(reply, Exception) and not message_of(reply).startswith("NOPERM"):
            raise ServerUnavailable(f"CLIENT PAUSE: the server answered {message_of(reply)}")
        try:
            yield since_s
        finally:
            if self._paused_by_us:
                with suppress(ServerUnavailable):
                    self._data.ask(("CLIENT", "UNPAUSE"))

    def _note_changed_keys(self, messages: list[Any]) -> None:
        for message in messages:
            words = cast("list[Any]", message) if isinstance(message, list) else []
            if words[:1] != [b"message"]:
                continue
            if words[2] is None:
                raise BackupFailed("the server was emptied meanwhile")
            self._changed.update(key[len(self._prefix) :] for key in words[2] if key.startswith(self._prefix))


def _version(server: dict[str, str]) -> str:
    return (
        f"valkey {server['valkey_version']}"
        if "valkey_version" in server
        else f"redis {server.get('redis_version', '')}"
    )
