"""Restores a backup of a queue into an empty one.

Nothing is open before all of it is there: until the last call the two keys that every script reads first hold
other types. So scripts stop before their first write (rule 1). A restore that was killed is simply run again:
it begins anew, and takes the queue over from a process that still writes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.backup.archive import Archive, BadBackup, Entry, ServerConnection
from engine.backup.taking import Progress
from engine.errors import EngineError, ScriptFault, UnsupportedFeature
from engine.ops.admin import EndRestore, LoadRestore, NoteQueue, RestoreEnded, RestoreLoaded
from engine.queue.synchronous import Queue

#: Keys and bytes of one call, which the server carries out at once.
_CALL_KEYS, _CALL_BYTES = 200, 1 << 20
_GIVE_BACK = 100
#: The keys that are restored last, by the call that opens the queue.
_LOCKS = (b"sweep", b"seq")


class NotEmpty(EngineError):
    """The queue that a backup should be restored into has keys already. Nothing was written."""


class Overtaken(EngineError):
    """Another process has begun to restore the same backup there, and goes on."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: how many entries were written, how many jobs had been leased at the backup's instant
    and are claimable again, and the last sequence."""

    queue: str
    file: str
    entries: int
    given_back: int
    sequence: int
    instant_ms: int


def restore(archive: Archive, queue: Queue, progress: Progress) -> Restored:
    """Restore a backup into an empty queue. Raises BadBackup, NotEmpty, Overtaken, UnsupportedFeature, and as
    calls do."""
    if "restore_load" not in queue.model.scripts:
        raise UnsupportedFeature(
            f"{queue.model.name} has no restore: its keyspace is shared with programs that know of none"
        )
    if archive.header.get("model") != queue.model.name:
        raise BadBackup(
            f"{archive.path}: of the model {archive.header.get('model')}, the queue is of {queue.model.name}"
        )
    return _Restoring(archive, queue, progress).run()


class _Restoring:
    def __init__(self, archive: Archive, queue: Queue, progress: Progress) -> None:
        self._archive = archive
        self._queue = queue
        self._progress = progress
        self._backup = str(archive.header["id"])
        self._owner = os.urandom(8).hex()
        self._written = self._bytes = 0
        self._locks = dict.fromkeys(_LOCKS, b"")

    def run(self) -> Restored:
        queue, backup, owner = self._queue, self._backup, self._owner
        first = next((entry.value for entry in self._archive.entries() if entry.value), b"")
        with ServerConnection(queue) as server:
            replid = server.info("replication").get("master_replid", "")
            there = self._first_key(server)
        if there is not None and not there.startswith(b"restore " + backup.encode() + b" "):
            raise self._not_empty(there.decode(errors="replace"))
        begun: RestoreLoaded = self._run(LoadRestore("begin", backup, owner, first))
        if begun.result == "busy":
            raise self._not_empty(begun.why)
        if begun.result == "unreadable":
            made = self._archive.header.get("server")
            raise BadBackup(
                f"{self._archive.path}: made on {made}, whose values this server does not read: {begun.why}"
            )
        page: list[Entry] = []
        size = 0
        for entry in self._archive.entries():
            if entry.key in self._locks:
                self._locks[entry.key] = entry.value
            if entry.key in self._locks or begun.result == "opening":
                continue
            page.append(entry)
            size += len(entry.key) + len(entry.value)
            if len(page) >= _CALL_KEYS or size >= _CALL_BYTES:
                self._load(page)
                page, size = [], 0
        self._load(page)
        totals = self._archive.totals
        last = int(totals["sequence"])
        ending = EndRestore(
            backup, owner, replid, _GIVE_BACK, last, self._locks[b"sweep"], self._locks[b"seq"]
        )
        while True:
            ended: RestoreEnded = self._run(ending)
            if ended.result == "other":
                raise self._overtaken()
            if ended.result == "ok":
                break
        # Only lists of queues would miss it, until it is used.
        with suppress(EngineError):
            self._run(NoteQueue(queue.driver.server_now_ms()))
        return Restored(
            queue.name,
            str(self._archive.path),
            self._written,
            ended.given_back,
            last,
            int(totals["instant_ms"]),
        )

    def _run(self, operation: Any) -> Any:
        return self._queue.driver.run(self._queue.model.call(operation))

    def _load(self, page: list[Entry]) -> None:
        if not page:
            return
        # The last one of a key counts, and one call writes each key once.
        latest = {entry.key: entry for entry in page}
        try:
            loaded: RestoreLoaded = self._run(
                LoadRestore("load", self._backup, self._owner, items=tuple(latest.values()))
            )
        except ScriptFault as fault:
            raise BadBackup(
                f"{self._archive.path}: the server does not take it: {fault}; the queue stays closed"
            ) from fault
        if loaded.result == "other":
            raise self._overtaken()
        self._written += len(latest)
        self._bytes += sum(len(entry.value) for entry in page)
        self._progress(self._written, self._bytes)

    def _first_key(self, server: ServerConnection) -> bytes | None:
        """The name of any key of the queue; who restores it where a restore has begun there."""
        keys = self._queue.model.keys
        (kind,) = server.ask(("TYPE", keys.seq))
        if kind in (b"list", "list"):
            return server.ask(("LINDEX", keys.seq, 0))[0]
        if (server.ask(("HGET", keys.stats, "restored"))[0] or b"").startswith(self._backup.encode() + b" "):
            return b"restored"
        page = next(server.scan(keys.prefix), None)
        return None if page is None else keys.prefix.encode() + page[0]

    def _not_empty(self, why: str) -> NotEmpty:
        if why == "restored":
            return NotEmpty(f"queue {self._queue.name}: this backup was restored there already")
        if why.startswith("restore "):
            return NotEmpty(f"queue {self._queue.name}: another backup is being restored there")
        advice = "stop what uses it and delete its keys, or restore under another name (--as)"
        return NotEmpty(f"queue {self._queue.name} is not empty, it has the key {why}: {advice}")

    def _overtaken(self) -> Overtaken:
        return Overtaken(
            f"queue {self._queue.name}: another process has begun to restore this backup, and goes on"
        )
