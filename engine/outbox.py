"""Jobs that are enqueued by a transaction of an SQL database: exactly those of the transactions that are committed.

    with connection:  # one transaction
        connection.execute("INSERT INTO orders ...")
        outbox.add(connection, send_receipt, order, mail="ada@example.org")

`add` writes the job into the table `ironclaim_outbox`. A relay, `ironclaim outbox` or `relay`, enqueues what was committed and
deletes the rows. It may be killed anywhere and come back any time later, and several may be at it: each row becomes one job
(docs/protocol.md, rule 23).
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any, NamedTuple, ParamSpec, cast

from engine import validate
from engine.errors import EngineError, Malformed, PartlyEnqueued, UnknownParent, UnsupportedFeature
from engine.options import PLAIN, checked
from engine.queue import producing
from engine.queue.faces import synchronous
from engine.queue.producing import Draft
from engine.queue.settings import QueueSettings
from engine.queue.synchronous.queue import Queue
from engine.sql import AsyncConnection, Connection, Database, Dialect, arun, dialect_of, named, rows, run
from engine.tasks import Task
from engine.wire.operations import CloseWindows, Enqueued, NoteQueue, Options
from engine.worker.signals import stop_signals

log = logging.getLogger("ironclaim.outbox")

P = ParamSpec("P")

#: The dedup key of a row's job: it keeps the id out for as long as the row may be sent again (rule 23). A year bounds what a
#: server keeps whose data were restored from a time before the relay had closed the window.
WINDOW_MS = 366 * 86_400_000
_WINDOW = "outbox:{}"
#: How long a row is tried whose parents the queue does not know: another relay may be about to send them.
ORPHAN_S = 60.0
BATCH_MAX = 1_000
POLL_MS_MAX = 3_600_000
#: How long a relay pauses after a failure.
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.5, 10.0

_COLUMNS = ("job", "queue", "name", "payload", "options")
_INSERT = f"INSERT INTO ironclaim_outbox ({', '.join(_COLUMNS)}) VALUES {{marks}} ON CONFLICT DO NOTHING"  # noqa: S608


def table(database: Database) -> str:
    """The statement that makes the table, for a migration of your own. Raises Malformed.

    `state` is `new`, `sent` (the job is enqueued, and its row about to be deleted), or `failed`: the relay cannot enqueue it, and
    `error` says why. Setting it back to `new` lets the relay try again.
    """
    return _table(named(database))


def _table(dialect: Dialect) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS ironclaim_outbox (number {dialect.number}, job TEXT NOT NULL, queue TEXT NOT NULL, "
        f"name TEXT NOT NULL, payload {dialect.data} NOT NULL, options TEXT NOT NULL DEFAULT '{{}}', "
        f"state TEXT NOT NULL DEFAULT 'new', error TEXT, added_at {dialect.now}, UNIQUE (queue, job))"
    )


def create_table(connection: Connection) -> None:
    """Make the table `ironclaim_outbox` where it is missing; the caller commits. Raises Malformed, and the database's errors."""
    run(connection, _table(dialect_of(connection)))


def add(connection: Connection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    """Enqueue a call of a task with these arguments when the transaction of this connection is committed; the id of the job.

    The options are those of the task: `outbox.add(connection, task.with_options(priority=9), ...)`. A delay begins when the relay
    enqueues the job, within about its `poll_ms`. `dedup` is refused, because the outbox has a dedup key of its own for each job.
    An id of your own has at most 121 characters; a second row of it is left out. Hooks before the enqueue are called now, and
    those after it never. Raises Malformed where the arguments do not fit, UnsupportedFeature for a queue in a format of another
    library, and what the database raises.
    """
    dialect = dialect_of(connection)
    values = _new_row(task, args, kwargs)
    run(connection, _INSERT.format(marks=dialect.marks(len(values))), values)
    return values[0]


async def aadd(connection: AsyncConnection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    """As `add`, through a connection whose calls are awaited: a psycopg.AsyncConnection."""
    dialect = dialect_of(connection, asynchronous=True)
    values = _new_row(task, args, kwargs)
    await arun(connection, _INSERT.format(marks=dialect.marks(len(values))), values)
    return values[0]


def row(task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
    """The columns of the row that `add` writes, by their names: for a driver that it does not know, which inserts them into
    `ironclaim_outbox` in the transaction. Raises as `add` does."""
    return dict(zip(_COLUMNS, _new_row(task, args, kwargs), strict=True))


def relay(
    connect: Callable[[], Connection],
    queues: QueueSettings | Iterable[QueueSettings],
    *,
    batch: int = 200,
    poll_ms: int = 500,
    burst: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Enqueue the jobs of committed rows, until SIGTERM, SIGINT or `stop`; with `burst` until there are none. Returns how many
    rows it has sent.

    `connect` makes a connection of its own for the relay, which is closed at the end and made anew when it has failed. Rows of
    other queues than these stay. `batch` rows at most are sent at once, in the order of their numbers; where there is nothing to
    do the table is looked at every `poll_ms`. Rows that cannot be enqueued are set aside, as `failed`.

    Any number of relays may run. On PostgreSQL they divide the rows (SELECT ... FOR UPDATE SKIP LOCKED). On sqlite two of them
    send the same rows, of which each still becomes one job: no lock is held while Redis is waited for, because it would keep
    out everybody who writes to the database. Raises Malformed, and whatever goes wrong at the first look; later failures
    are logged, and it goes on.
    """
    given = [queues] if isinstance(queues, QueueSettings) else list(queues)
    by_name: dict[str, Queue] = {}
    for queue in cast("list[object]", given):
        if not isinstance(queue, QueueSettings) or queue.name in by_name:
            raise Malformed("queues", queue, "Queues or AsyncQueues with different names")
        _refuse_foreign(queue)
        by_name[queue.name] = synchronous(queue)
    if not by_name:
        raise Malformed("queues", given, "at least one Queue or AsyncQueue")
    most = validate.integer("batch", batch, 1, BATCH_MAX)
    poll_s = validate.integer("poll_ms", poll_ms, 1, POLL_MS_MAX) / 1000
    stop = threading.Event() if stop is None else stop
    with stop_signals(lambda reason: stop.set()):
        return _Relay(connect, by_name, most).run(stop, poll_s, burst)


class _Row(NamedTuple):
    """A row, as a relay reads it."""

    number: int
    state: str
    job: str
    name: str
    payload: bytes
    options: str


class _Relay:
    """One relay with its connection."""

    def __init__(self, connect: Callable[[], Connection], queues: Mapping[str, Queue], batch: int) -> None:
        self._connect = connect
        self._queues = queues
        self._batch = batch
        self._connection: Connection | None = None
        self._sent = 0
        # Whether it has once seen the table: what goes wrong before that is not likely to pass.
        self._looked = False
        # Rows whose parents are unknown: number -> when that was first seen, monotonic seconds.
        self._orphans: dict[int, float] = {}

    def run(self, stop: threading.Event, poll_s: float, burst: bool) -> int:
        """Work until it is told to stop."""
        pause_s = _PAUSE_FIRST_S
        try:
            while not stop.is_set():
                try:
                    moved = sum([self._round(queue) for queue in self._queues.values()])
                except Exception as failure:
                    if burst or not self._looked:
                        raise
                    log.warning("the outbox waits %.1f s after a failure: %s", pause_s, failure, exc_info=failure)
                    self._disconnect()
                    stop.wait(pause_s)
                    pause_s = min(_PAUSE_MOST_S, pause_s * 2)
                    continue
                pause_s = _PAUSE_FIRST_S
                if not moved:
                    if burst:
                        break
                    stop.wait(poll_s)
        finally:
            self._disconnect()
        return self._sent

    def _disconnect(self) -> None:
        """Close the connection; what it has not committed never was."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as failure:
                log.debug("closing the connection: %s", failure)

    def _round(self, queue: Queue) -> int:
        """Move rows of a queue on; how many. Raises what goes wrong, after what could be done is done."""
        if self._connection is None:
            self._connection = self._connect()
            for each in self._queues.values():
                if each.model.now_ms is None:
                    each.driver.run(each.model.call(NoteQueue(each.driver.server_now_ms())))
        connection = self._connection
        dialect = dialect_of(connection)
        queue.driver.server_now_ms()
        # Fixed before the look at the rows: whoever was frozen in between is refused as late, or meets the window, which is not
        # closed before the row was seen as sent, and stays for longer than this after that (rule 23).
        not_after_ms = queue.driver.not_after_ms()
        found = self._look(connection, dialect, queue.name)
        new = [row for row in found if row.state == "new"]
        accepted, aside, failure = self._enqueue(queue, new, not_after_ms) if new else ([], [], None)
        for row, why in aside:
            log.error("row %d of the outbox (job %s, queue %s) is set aside: %s", row.number, row.job, queue.name, why)
            update = f"UPDATE ironclaim_outbox SET state = 'failed', error = {dialect.mark} WHERE number = {dialect.mark}"  # noqa: S608
            run(connection, update, (why, row.number))
        _change(connection, dialect, "UPDATE ironclaim_outbox SET state = 'sent'", accepted)
        connection.commit()
        self._sent += len(accepted)
        # Not before the commit: a row that is not known to be sent may be sent again, and needs its window.
        done = [*(row for row in found if row.state == "sent"), *accepted]
        if done:
            windows = tuple((_WINDOW.format(row.job), row.job) for row in done)
            queue.driver.run(queue.model.call(CloseWindows(windows)))
            _change(connection, dialect, "DELETE FROM ironclaim_outbox", done)
            connection.commit()
        if failure is not None:
            raise failure
        return len(done) + len(aside)

    def _look(self, connection: Connection, dialect: Dialect, queue: str) -> list[_Row]:
        """The first rows of a queue that are new, or sent and still there. PostgreSQL keeps them from other relays until the
        transaction ends."""
        query = (
            f"SELECT number, state, job, name, payload, options FROM ironclaim_outbox WHERE queue = {dialect.mark} "  # noqa: S608
            f"AND state IN ('new', 'sent') ORDER BY number LIMIT {self._batch}{dialect.locking}"
        )
        found = [_Row(row[0], row[1], row[2], row[3], _bytes(row[4]), row[5]) for row in rows(connection, query, (queue,))]
        self._looked = True
        if not found or not dialect.locking:
            connection.rollback()
        return found

    def _enqueue(
        self, queue: Queue, new: Sequence[_Row], not_after_ms: int
    ) -> tuple[list[_Row], list[tuple[_Row, str]], EngineError | None]:
        """Enqueue rows. Returns those whose job is there, those that are to be set aside with the reason, and the first failure
        that says nothing of a single row. The others stay as they are."""
        aside: list[tuple[_Row, str]] = []
        drafts: list[tuple[_Row, Draft]] = []
        for row in new:
            try:
                drafts.append((row, _draft(queue, row.job, row.name, row.payload, row.options)))
            except (Malformed, UnsupportedFeature, TypeError, ValueError) as error:
                aside.append((row, str(error)))
        accepted: list[_Row] = []
        failure: EngineError | None = None
        for (row, _), result in zip(drafts, _send(queue, [draft for _, draft in drafts], not_after_ms), strict=True):
            if isinstance(result, UnknownParent):
                if time.monotonic() - self._orphans.setdefault(row.number, time.monotonic()) >= ORPHAN_S:
                    aside.append((row, str(result)))
            elif isinstance(result, EngineError):
                failure = failure or result
            elif not result.refused:
                accepted.append(row)
        for row in (*accepted, *(row for row, _ in aside)):
            self._orphans.pop(row.number, None)
        return accepted, aside, failure


def _send(queue: Queue, drafts: Sequence[Draft], not_after_ms: int) -> list[Enqueued | EngineError]:
    """Enqueue jobs; a result for each. Those that need others go one by one, since each may be refused for its own reason."""
    results: list[Enqueued | EngineError] = []
    for needing, group in groupby(drafts, key=lambda draft: bool(draft.options.needs)):
        run = list(group)
        for part in [[draft] for draft in run] if needing else [run]:
            results += _send_part(queue, part, not_after_ms)
            failed = next((it for it in results if isinstance(it, EngineError) and not isinstance(it, UnknownParent)), None)
            if failed is not None:
                return results + [failed] * (len(drafts) - len(results))
    return results


def _send_part(queue: Queue, drafts: Sequence[Draft], not_after_ms: int) -> Sequence[Enqueued | EngineError]:
    """As `_send`, in one pipeline. A call that comes after `not_after_ms` is refused, and never tried with a later one."""
    pipelines = producing.enqueue_many(drafts, os.urandom(8), lambda: not_after_ms, queue.model.call)
    answers: Any = None
    try:
        while True:
            answers = queue.driver.send_many(pipelines.send(answers))
    except StopIteration as end:
        return end.value
    except PartlyEnqueued as partly:
        return partly.results
    except EngineError as error:
        return [error] * len(drafts)


def _change(connection: Connection, dialect: Dialect, what: str, changed: Sequence[_Row]) -> None:
    if changed:
        run(connection, f"{what} WHERE number IN {dialect.marks(len(changed))}", [row.number for row in changed])


def _new_row(task: Task[..., Any], args: Any, kwargs: Any) -> tuple[str, str, str, bytes, str]:
    """The columns of a new row, checked as the relay will."""
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Malformed("task", task, "what queue.job has made of a function")
    queue = task.queue
    _refuse_foreign(queue)
    draft, _ = queue._drafted(task, task.payload(*args, **kwargs), None, {})  # pyright: ignore[reportPrivateUsage]
    for field in ("on_success", "on_failure"):
        if getattr(draft.options, field) is not None:
            raise Malformed(field, task.options[field], "left out: a job of the outbox has no callbacks")
    if draft.options.dedup:
        raise Malformed("dedup", draft.options.dedup, "left out: the outbox has a dedup key of its own for each job")
    stored = _stored(draft.options)
    _draft(queue, draft.job, draft.name, draft.payload, stored)
    return draft.job, queue.name, draft.name, draft.payload, stored


def _draft(queue: QueueSettings, job: object, name: object, payload: bytes, stored: str) -> Draft:
    """The job of a row. Raises Malformed and ValueError for a row that is none."""
    options: Any = json.loads(stored)
    if not isinstance(options, dict):
        raise Malformed("options", stored, "a JSON object with options of jobs")
    job = queue.model.check_id(job)
    given = {**cast("dict[str, object]", options), "dedup": _WINDOW.format(job), "dedup_ms": WINDOW_MS}
    try:
        made = checked(given, queue.model.defaults, queue.model.names.options)
    except Malformed as error:
        if error.field == "dedup":
            raise Malformed("id", job, f"text of at most {128 - len(_WINDOW.format(''))} characters in the outbox") from None
        raise
    return Draft(job, queue.model.names.job_name(name), payload, made)


def _bytes(value: object) -> bytes:
    """A payload as the driver gives it; sqlite keeps text where somebody has written text."""
    data: Any = value
    return bytes(data) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()


def _stored(options: Options) -> str:
    """The options of a job as JSON, as callers write them: those that are not the default."""
    found: dict[str, object] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value != getattr(PLAIN, field.name):
            found[field.name] = _READABLE.get(field.name, _as_it_is)(value)
    return json.dumps(found, separators=(",", ":"))


def _as_it_is(value: Any) -> Any:
    return value


#: Options that the engine keeps in another form than callers write them in.
_READABLE: Mapping[str, Callable[[Any], Any]] = {"headers": dict, "reroute_on": dict, "target": json.loads}


def _refuse_foreign(queue: QueueSettings) -> None:
    """Raise UnsupportedFeature for a queue whose format has no windows that can be closed, and for one with shards, whose windows
    do not move with it."""
    if queue.shards:
        raise UnsupportedFeature(f"queue {queue.name} has shards: only whole queues have an outbox")
    try:
        queue.model.refuse(CloseWindows(()))
    except UnsupportedFeature:
        raise UnsupportedFeature(f"{queue.model.name} has no outbox: only queues in the engine's own format have one") from None
