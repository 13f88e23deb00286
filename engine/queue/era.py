"""Notices that a server went back: that writes are gone which this process was told of, after a failover, a
restore, a restart without its data, or FLUSHALL.

It costs a healthy connection nothing but one more command of its handshake, which reads the latest entry of
`era`. Where that is another one than this process has seen, one more call asks what is missing, before
anything is written there. Beside that, replies of a living connection are looked at: a sequence that was
given before, or an entry of `era` that is gone.

Losses are suffixes: asynchronous replication and an append-only file lose the last writes and no others. So
producers go by the sequences of their jobs, and workers by the counters of their claims, which follow their
finishes.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import logger
from engine.models.model import Model
from engine.observer import ServerIdentity
from engine.ops.admin import EraNoted, NoteEra
from engine.ops.base import Call, frozen
from engine.ops.claims import Claim, Finish
from engine.ops.jobs import Enqueue, EnqueueMany
from engine.ops.workers import Beat

log = logger("ironclaim")

#: What a callback is, and what it returns is not used: a coroutine function is awaited.
OnDataLoss = Callable[["DataLoss"], Any]

#: Incarnations whose claims are remembered: a process has one for each worker, and a new one now and then.
_INCARNATIONS_MAX = 32
_NOBODY = ServerIdentity("", "", "")
_WORDS = {
    "sequence": "jobs that were acknowledged are gone",
    "claim": "the last claims are gone",
    "marker": "it is older than what was seen there",
}


@frozen
class DataLoss:
    """A server has less than this process was told. `before` and `after` are the server that it knew and the
    one that it found (equal where one server was emptied). `acknowledged` is the highest sequence of a job
    that this process was acknowledged, 0 = none; `found` the sequence up to which the data came along.
    `missing`: `sequence` where jobs of this process are gone, `claim` where claims of its workers are,
    `marker` where the entry of the era is gone: the data is older than what was seen. `srv_us` is the
    server's time."""

    queue: str
    before: ServerIdentity
    after: ServerIdentity
    acknowledged: int
    found: int
    missing: str
    srv_us: int


class EraWatch:
    """What one process knows of the era of a queue. Safe from threads; its callers are the drivers, so it
    does not raise."""

    def __init__(self, queue: str, model: Model) -> None:
        self._queue = queue
        self._model = model
        self._lock = threading.Lock()
        #: The era and the highest sequence that was acknowledged in it.
        self.mark: tuple[object, int] = (object(), 0)
        #: What each handshake asks.
        self.commands: tuple[tuple[object, ...], ...] = (("LINDEX", model.keys.era, 0),)
        #: Whether the process has begun to use the queue.
        self.used = False
        #: The entry of the era that this process goes by, and the latest one that a handshake has met.
        self._known = self._head = b""
        #: The entry of the era at whose beginning a loss was last told, and whether replies have shown one
        #: that no handshake has met since.
        self._told = b""
        self._foretold = False
        self._server = self._latest = _NOBODY
        self._met: dict[str, ServerIdentity] = {}
        self._claims: dict[str, tuple[int, int, int]] = {}
        #: What is done with the reply of each kind of call; of no other one it is told.
        self.readers: Mapping[Any, Callable[[Any, Any, Any], None]] = {
            **{Enqueue: self._enqueued, EnqueueMany: self._enqueued_many},
            **{Claim: self._claimed, Finish: self._claimed, Beat: self._beaten, NoteEra: self._noted_by_call},
        }
        self._callbacks: list[tuple[OnDataLoss, asyncio.AbstractEventLoop | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> NoteEra | None:
        """The process begins to use the queue: the call that notes the server; None where another process has
        done it, or the server is not known."""
        with self._lock:
            self.used, self._server = True, self._latest
            if self._head.split(b" ", 1)[0] == self._server.replid.encode():
                self._known = self._head
            return (
                NoteEra(self._server.replid, "", "", 0) if self._server.replid and not self._known else None
            )

    def greeted(self, server: ServerIdentity, replies: list[Any]) -> tuple[tuple[object, ...], ...]:
        """A handshake has met this server, with these replies to `commands`; what it has to ask in
        addition."""
        head = replies[0]
        with self._lock:
            # A refusal: a node that does not have the queue, or a user who may not ask.
            if isinstance(head, Exception):
                return ()
            self._latest, self._head = server, head or b""
            if not self.used or not server.replid:  # anchor: an-unknown-server-is-asked
                return ()
            same = server.replid == self._server.replid
            # Where the first note was not answered there is nothing to compare on the same server.
            if same and (not self._known or head == self._known):
                self._server = server
                return ()
            self._met = {self._server.replid: self._server, server.replid: server}
            now_ns = time.monotonic_ns()
            claims = tuple(
                (name, at[0], now_ns < at[1] + at[2] * 1_000_000) for name, at in self._claims.items()
            )
            asked = NoteEra(server.replid, self._server.replid, self._known.decode(), self.mark[1], claims)
        return (self._model.call(asked).words(),)  # anchor: another-server-is-asked

    def concluded(self, raw: Any) -> None:
        """The reply to what `greeted` has asked. A refusal leaves it to the next handshake."""
        if not isinstance(raw, Exception):
            self._noted(NoteEra("", "", "", 0).parse(raw, None))

    def mark_of(self, call: Call[Any]) -> tuple[object, int]:
        """What a call that leaves now remembers."""
        del call
        return self.mark

    def answered(self, call: Call[Any], raw: Any, mark: Any) -> None:
        """A call has been answered; `mark` is what `mark_of` returned when it left."""
        operation = call.operation
        self.readers[type(operation)](operation, raw, mark)

    def call_back(self, callback: OnDataLoss) -> None:
        """Call this with each DataLoss."""
        self._callbacks.append((callback, _running_loop()))

    def _enqueued(self, operation: Enqueue, raw: Any, mark: tuple[object, int]) -> None:
        if len(raw) == 2:
            self._created(raw[1], raw[1], raw, mark)

    def _enqueued_many(self, operation: EnqueueMany, raw: Any, mark: tuple[object, int]) -> None:
        if len(raw) > 3:
            self._created(raw[3], raw[4], raw, mark)

    def _created(self, first: int, last: int, raw: Any, mark: tuple[object, int]) -> None:
        with self._lock:
            now = self.mark
            if mark[0] is not now[0]:
                return
            # Sequences only grow: this one was given before the call left.
            if first > mark[1]:
                if last > now[1]:
                    self.mark = (now[0], last)
                return
            loss = self._lost(self._server, first - 1, "sequence", raw[0], fresh=True)
            self.mark = (self.mark[0], last)
        self._tell(loss)

    def _claimed(self, operation: Claim | Finish, raw: Any, mark: object) -> None:
        claim = operation if isinstance(operation, Claim) else operation.claim
        if claim is None or raw[2] not in (b"leased", b"empty"):
            return
        with self._lock:
            self._claims.pop(claim.incarnation, None)
            self._claims[claim.incarnation] = (claim.counter, time.monotonic_ns(), claim.lease_ms)
            if len(self._claims) > _INCARNATIONS_MAX:
                del self._claims[next(iter(self._claims))]

    def _noted_by_call(self, operation: NoteEra, raw: Any, mark: object) -> None:
        self._noted(operation.parse(raw, None))

    def _beaten(self, operation: Beat, raw: Any, mark: tuple[object, int]) -> None:
        head = raw[6] if len(raw) > 6 else self._known
        with self._lock:
            # A beat that left before a loss was told shows that one.
            if not self._known or head == self._known or mark[0] is not self.mark[0]:
                return
            # Of another server: a process has come before this one, whose next handshake asks what is
            # missing.
            if head and head.split(b" ", 1)[0] != self._known.split(b" ", 1)[0]:
                return
            loss = self._lost(self._server, 0, "marker", raw[0])
        self._tell(loss)

    def _noted(self, noted: EraNoted) -> None:
        entry = noted.entry.encode()
        loss = None
        with self._lock:
            server = self._met.get(noted.entry.split(" ", 1)[0], self._latest)
            if noted.missing:
                loss = self._lost(server, noted.found, noted.missing, noted.srv_us, entry)
            self._known, self._server, self._foretold = entry, server, False
        self._tell(loss)

    def _lost(
        self,
        after: ServerIdentity,
        found: int,
        missing: str,
        srv_us: int,
        told: bytes = b"",
        *,
        fresh: bool = False,
    ) -> DataLoss | None:
        """The event, once for each: a loss that a reply has shown (`fresh`) is found again by the next beat
        and handshake, and by several at once. What is acknowledged from now on counts."""
        acknowledged = self.mark[1]
        again = not fresh and (self._foretold or self._told == told != b"")  # anchor: each-loss-is-told
        self._told, self._foretold = told or self._told, not told
        self.mark = (object(), 0)
        self._claims.clear()
        return (
            None
            if again
            else DataLoss(self._queue, self._server, after, acknowledged, found, missing, srv_us)
        )

    def _tell(self, loss: DataLoss | None) -> None:
        if loss is None:
            return
        log.warning(
            "queue %s: the server went back: %s. Acknowledged up to sequence %d, found up to %d; "
            "server %s, before %s",
            *(loss.queue, _WORDS[loss.missing], loss.acknowledged, loss.found),
            *(loss.after.run_id or "unknown", loss.before.run_id or "unknown"),
            extra={
                "queue": loss.queue,
                "acknowledged": loss.acknowledged,
                "found": loss.found,
                "missing": loss.missing,
            },
        )
        for callback, loop in tuple(self._callbacks):
            loop = loop if loop is not None and loop.is_running() else _running_loop()
            try:
                if loop is None:
                    threading.Thread(
                        target=_call_in_thread, args=(callback, loss), name="ironclaim-loss", daemon=True
                    ).start()
                else:
                    loop.call_soon_threadsafe(self._call_in_loop, loop, callback, loss)
            except RuntimeError:
                log.exception("queue %s: a callback of its data loss was not called", loss.queue)

    def _call_in_loop(self, loop: asyncio.AbstractEventLoop, callback: OnDataLoss, loss: DataLoss) -> None:
        task = loop.create_task(_call(callback, loss))
        # The loop itself keeps tasks by weak references only.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ShardsWatch(EraWatch):
    """The watch of a queue in several shards. Handshakes ask for shard 0. Of the others it notices, at the
    next job that is enqueued there, that a sequence of theirs is given again."""

    def __init__(self, queue: str, model: Model) -> None:
        super().__init__(queue, model)
        self._shards: dict[str, EraWatch] = {}

    def mark_of(self, call: Call[Any]) -> tuple[object, int]:
        """What a call that leaves now remembers: the mark of its shard."""
        watch = self._of(call)
        return self.mark if watch is self else watch.mark

    def answered(self, call: Call[Any], raw: Any, mark: Any) -> None:
        """A call has been answered; `mark` is what `mark_of` returned when it left."""
        watch = self._of(call)
        if watch is self:
            super().answered(call, raw, mark)
        else:
            watch._server = self._server
            watch.answered(call, raw, mark)

    def _of(self, call: Call[Any]) -> EraWatch:
        """The watch of the shard whose keys a call names."""
        shard = call.keys[0].partition("{")[2].partition("}")[0] if call.keys else ""
        if shard in ("", self._queue):
            return self
        watch = self._shards.get(shard)
        if watch is None:
            watch = self._shards.setdefault(shard, EraWatch(shard, self._model.sibling(shard)))
            watch._callbacks = self._callbacks
        return watch


async def _call(callback: OnDataLoss, loss: DataLoss) -> None:
    try:
        result = callback(loss)
        if inspect.isawaitable(result):
            await result
    except BaseException as failure:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The service ends its loop.
            raise
        log.error("queue %s: a callback of its data loss failed", loss.queue, exc_info=failure)


def _call_in_thread(callback: OnDataLoss, loss: DataLoss) -> None:
    asyncio.run(_call(callback, loss))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
