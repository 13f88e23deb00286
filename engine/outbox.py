"""Jobs that are enqueued by a transaction of an SQL database: exactly those of the transactions that are
committed.

    with connection:  # one transaction
        connection.execute("INSERT INTO orders ...")
        outbox.add(connection, send_receipt, order, mail="ada@example.org")

`add` writes the job into the table `ironclaim_outbox`. A relay, `ironclaim outbox` or `relay`, enqueues what
was committed and deletes the rows. It may be killed anywhere and come back any time later, and several may be
at it: each row becomes one job (docs/protocol.md, rule 23).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any, NamedTuple, ParamSpec, cast

from engine import validate
from engine.effects import AsyncConnection, Connection, Database, Dialect, arun, dialect_of, named, rows, run
from engine.errors import (
    EngineError,
    Malformed,
    PartlyEnqueued,
    ScriptFault,
    UnknownParent,
    UnsupportedFeature,
    counted,
    logger,
)
from engine.ops.admin import NoteQueue
from engine.ops.jobs import CloseWindows, Enqueue, Enqueued, Options
from engine.options import PLAIN, checked
from engine.queue import producing
from engine.queue.settings import QueueSettings, synchronous
from engine.queue.synchronous import Queue
from engine.tasks import Task
from engine.worker.process import stop_signals

log = logger("ironclaim.outbox")

P = ParamSpec("P")

#: The dedup key of a row's job: it keeps the id out for as long as the row may be sent again (rule 23). A
#: year bounds what a server keeps whose data were restored from a time before the relay had closed the
#: window.
WINDOW_MS = 366 * 86_400_000
_WINDOW = "outbox:{}"
#: How long a row is tried whose parents the queue does not know: another relay may be about to send them.
ORPHAN_S = 60.0
BATCH_MAX = 1_000
POLL_MS_MAX = 3_600_000
#: How often a relay looks for rows that no queue can have.
_STRAYS_S = 60.0
#: Of a row's `error`.
_ERROR_CHARS = 2_000
#: How long a relay pauses after a failure.
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.5, 10.0

#: How often a relay says that rows of other queues wait, which then are at least that old.
_OTHERS_S = 60

_COLUMNS = ("job", "queue", "name", "payload", "options")
_INSERT = f"INSERT INTO ironclaim_outbox ({', '.join(_COLUMNS)}) VALUES {{marks}} ON CONFLICT DO NOTHING"  # noqa: S608


def table(database: Database) -> str:
    """The statement that makes the table, for a migration of your own. Raises Malformed.

    `state` is `new`, `sent` (the job is enqueued, and its row about to be deleted), or `failed`: the relay
    cannot enqueue it, and `error` says why. Setting it back to `new` lets the relay try again.
    """
    return _table(named(database))


def _table(dialect: Dialect) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS ironclaim_outbox (number {dialect.number}, job TEXT NOT NULL, "
        "queue TEXT NOT NULL, "
        f"name TEXT NOT NULL, payload {dialect.data} NOT NULL, options TEXT NOT NULL DEFAULT '{{}}', "
        f"state TEXT NOT NULL DEFAULT 'new', error TEXT, added_at {dialect.now}, UNIQUE (queue, job))"
    )


def create_table(connection: Connection) -> None:
    """Make the table `ironclaim_outbox` where it is missing; the caller commits. Raises Malformed, and the
    database's errors."""
    run(connection, _table(dialect_of(connection)))


def add(connection: Connection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    """Enqueue a call of a task with these arguments when the transaction of this connection is committed; the
    id of the job.

    The options are those of the task: `outbox.add(connection, task.with_options(priority=9), ...)`. A delay
    begins when the relay enqueues the job, within about its `poll_ms`. `dedup` is refused, because the outbox
    has a dedup key of its own for each job. An id of your own has at most 121 characters; a second row of it
    is left out. Hooks before the enqueue are called now, and those after it never. Raises Malformed where the
    arguments do not fit, UnsupportedFeature for a queue in a format of another library, and what the database
    raises.
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
    """The columns of the row that `add` writes, by their names. With a driver that `add` does not know,
    insert them into `ironclaim_outbox` in the transaction. Raises as `add` does."""
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
    """Enqueue the jobs of committed rows, until SIGTERM, SIGINT or `stop`; with `burst` until there are none.
    Returns how many rows it has sent.

    `connect` makes a connection of its own for the relay, which is closed at the end and made anew when it
    has failed. Rows of other queues than these stay. At most `batch` rows are sent at once, in the order of
    their numbers. Where there is nothing to do, the table is looked at every `poll_ms`. Rows that cannot be
    enqueued are set aside, as `failed`, and hold up no other one. A server that cannot be reached holds up
    the rows of its own queues alone.

    Any number of relays may run. On PostgreSQL they divide the rows (SELECT ... FOR UPDATE SKIP LOCKED). On
    sqlite two of them send the same rows, and each row still becomes one job. No lock is held while Redis is
    waited for, because it would keep out all writers of the database. Raises Malformed, and whatever goes
    wrong at the first look; later failures are logged, and it goes on.
    """
    given = [queues] if isinstance(queues, QueueSettings) else list(queues)
    by_name: dict[str, Queue] = {}
    for queue in cast("list[object]", given):
        if not isinstance(queue, QueueSettings) or queue.name in by_name:
            bound = "Queues or AsyncQueues with different names"
            if isinstance(queue, QueueSettings):
                bound += f": two are the queue {queue.name}; let one module import that of the other"
            raise Malformed("queues", queue, bound, private=isinstance(queue, str))
        _refuse_foreign(queue)
        by_name[queue.name] = synchronous(queue)
    if not by_name:
        raise Malformed("queues", given, "at least one Queue or AsyncQueue")
    most = validate.integer("batch", batch, 1, BATCH_MAX)
    poll_s = validate.integer("poll_ms", poll_ms, 1, POLL_MS_MAX) / 1000
    burst = validate.truth("burst", burst)
    stop = threading.Event() if stop is None else stop
    with stop_signals(lambda reason: stop.set()):
        return _Relay(connect, by_name, most).run(stop, poll_s, burst)


class _Row(NamedTuple):
    """A row, as a relay reads it: what is no text in UTF-8 stays bytes, or None, which no check lets pass."""

    number: int
    sent: bool
    job: Any
    name: str | bytes | None
    options: str | bytes | None
    payload: str | bytes | None


class _Aside(NamedTuple):
    """A row that is to be set aside, and why."""

    row: _Row
    why: str


class _Relay:
    """One relay with its connection."""

    def __init__(self, connect: Callable[[], Connection], queues: Mapping[str, Queue], batch: int) -> None:
        self._connect = connect
        self._queues = queues
        self._batch = batch
        self._connection: Connection | None = None
        self._sent = 0
        # Queues that their server has noted.
        self._noted: set[str] = set()
        # Whether it has once seen the table: what goes wrong before that is not likely to pass.
        self._looked = False
        # Rows whose parents are unknown: number -> when that was first seen, monotonic seconds.
        self._orphans: dict[int, float] = {}
        # The number that the next look begins after, by queue: that of the last row of a batch that could not
        # be moved on.
        self._after: dict[str, int] = {}
        # When rows that no queue can have are looked for next, monotonic seconds.
        self._strays_s = 0.0
        # When rows of queues that other relays have to send are counted next, monotonic seconds; at the start
        # also young ones.
        self._others_s = 0.0
        # Rows that stay though nobody can do anything with them, and of which that was said.
        self._told: set[int] = set()

    def run(self, stop: threading.Event, poll_s: float, burst: bool) -> int:
        """Work until it is told to stop."""
        pause_s = _PAUSE_FIRST_S
        try:
            while not stop.is_set():
                moved, failure = self._rounds()
                if failure is not None:
                    if not self._looked and _no_table(failure):
                        bound = "there: outbox.create_table(connection) makes it, outbox.table(...) says how"
                        said = "ironclaim_outbox is missing"
                        raise Malformed("table", "ironclaim_outbox", bound, said=said) from failure
                    if burst or not self._looked:
                        raise failure
                    log.warning(
                        "the outbox waits %.1f s after a failure: %s", pause_s, failure, exc_info=failure
                    )
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

    def _rounds(self) -> tuple[int, Exception | None]:
        """A round of each queue. Returns how many rows were moved on, and the first failure: that of one
        queue stops no other."""
        moved, first = 0, None
        for queue in self._queues.values():
            try:
                moved += self._round(queue)
            except Exception as failure:
                first = first or failure
                self._disconnect()
        return moved, first

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
        connection = self._connection
        dialect = dialect_of(connection)
        if queue.name not in self._noted and queue.model.now_ms is None:
            queue.driver.run(queue.model.call(NoteQueue(queue.driver.server_now_ms())))
            self._noted.add(queue.name)
        queue.driver.server_now_ms()
        # Fixed before the look at the rows. Whoever was frozen in between is refused as late, or meets the
        # window, which is not closed before the row was seen as sent, and stays for longer than this after
        # that (rule 23).
        not_after_ms = queue.driver.not_after_ms()
        aside = self._strays(connection, dialect)
        self._tell_others(connection, dialect)
        found = self._look(connection, dialect, queue.name)
        drafts, bad = _drafts(queue, found)
        accepted, refused, failure = self._enqueue(queue, drafts, not_after_ms) if drafts else ([], [], None)
        # Before the bad rows, so that its neighbours are known to be sent whatever becomes of a bad one.
        _change(connection, dialect, "UPDATE ironclaim_outbox SET state = 'sent'", accepted)
        connection.commit()
        self._sent += len(accepted)
        # Not before the commit: a row that is not known to be sent may be sent again, and needs its window.
        unreadable = {each.row.number for each in bad}
        done = [*(row for row in found if row.sent and row.number not in unreadable), *accepted]
        if done:
            done = self._closed(queue, done)
            _change(connection, dialect, "DELETE FROM ironclaim_outbox", done)
            connection.commit()
        moved = len(done) + sum(
            [self._set_aside(connection, dialect, queue.name, each) for each in (*aside, *bad, *refused)]
        )
        more = self._passed(queue.name, found, moved)
        if failure is not None:
            raise failure
        return moved + more

    def _passed(self, queue: str, found: Sequence[_Row], moved: int) -> bool:
        """Whether the next look goes on behind these rows: none of them could be moved on, and they are all
        that one look has."""
        more = not moved and len(found) == self._batch
        self._after[queue] = found[-1].number if more else 0
        return more

    def _look(self, connection: Connection, dialect: Dialect, queue: str) -> list[_Row]:
        """The first rows of a queue that are new, or sent and still there. PostgreSQL keeps them from other
        relays until the transaction ends."""
        where = f"queue = {dialect.mark} AND number > {dialect.mark} AND state IN ('new', 'sent')"
        found = self._rows(
            connection, dialect, f"{where} ORDER BY number LIMIT {self._batch}{dialect.locking}", queue
        )
        self._looked = True
        if not found or not dialect.locking:
            connection.rollback()
        return found

    def _rows(self, connection: Connection, dialect: Dialect, where: str, queue: str) -> list[_Row]:
        texts = ", ".join(
            (
                f"{dialect.is_text.format(column=name)} AS is_{name}, "
                f"{dialect.text_bytes.format(column=name)} AS {name}_bytes"
            )
            for name in ("job", "name", "options")
        )
        payload = f"{dialect.data_bytes.format(column='payload')} AS payload_bytes"
        query = (
            f"SELECT number, state = 'sent' AS is_sent, {texts}, {payload} "  # noqa: S608
            f"FROM ironclaim_outbox WHERE {where}"
        )
        return [
            _Row(row[0], bool(row[1]), _text(*row[2:4]), _text(*row[4:6]), _text(*row[6:8]), row[8])
            for row in rows(connection, query, (queue, self._after.get(queue, 0)))
        ]

    def _strays(self, connection: Connection, dialect: Dialect) -> list[_Aside]:
        """Rows of a queue that can be nobody's, from time to time: no relay would ever look at them."""
        if time.monotonic() < self._strays_s:
            return []
        query = (
            "SELECT number, state = 'sent' AS is_sent, "  # noqa: S608
            f"{dialect.text_bytes.format(column='queue')} AS queue_bytes FROM ironclaim_outbox "
            f"WHERE state IN ('new', 'sent') AND {dialect.no_name.format(column='queue')} LIMIT {self._batch}"
        )
        found: list[_Aside] = []
        for number, sent, name in rows(connection, query, ()):
            why = str(Malformed("queue", _text(True, name), validate.shape(validate.QUEUE)))
            found.append(_Aside(_Row(number, bool(sent), None, None, None, None), why))
        connection.rollback()
        self._strays_s = time.monotonic() + (_STRAYS_S if len(found) < self._batch else 0)
        return found

    def _tell_others(self, connection: Connection, dialect: Dialect) -> None:
        """Log of which other queues rows wait, from time to time: perhaps no relay sends them."""
        if time.monotonic() < self._others_s:
            return
        name, no_name = dialect.text_bytes.format(column="queue"), dialect.no_name.format(column="queue")
        older = dialect.older.format(column="added_at", mark=dialect.mark)
        query = (
            f"SELECT {name} AS queue_bytes, COUNT(*) AS waiting FROM ironclaim_outbox WHERE state = 'new' "  # noqa: S608
            f"AND queue NOT IN {dialect.marks(len(self._queues))} AND NOT ({no_name}) AND {older} "
            "GROUP BY queue"
        )
        age_s = _OTHERS_S if self._others_s else 0
        for other, waiting in rows(connection, query, (*self._queues, age_s)):
            log.warning(
                "%s for queue %s, which this relay does not send", counted(waiting, "row"), _text(True, other)
            )
        connection.rollback()
        self._others_s = time.monotonic() + _OTHERS_S

    def _closed(self, queue: Queue, done: Sequence[_Row]) -> list[_Row]:
        """Let the windows of jobs end. Returns the rows of which that is done: others stay."""
        closed: list[_Row] = []
        for part in (done, *([row] for row in done)):
            try:
                windows = tuple((_WINDOW.format(row.job), row.job) for row in part)
                queue.driver.run(queue.model.call(CloseWindows(windows)))
                closed += part
            except ScriptFault as fault:
                if len(part) == 1 and self._first_of(part[0]):
                    log.error(
                        "row %d of the outbox (job %s) is sent, and stays: %s",
                        part[0].number,
                        part[0].job,
                        fault,
                    )
                continue
            if part is done:
                break
        return closed

    def _first_of(self, row: _Row) -> bool:
        """Whether nothing was said of this row yet."""
        told = row.number in self._told
        self._told.add(row.number)
        return not told

    def _set_aside(self, connection: Connection, dialect: Dialect, queue: str, aside: _Aside) -> bool:
        """Set a row aside in a transaction of its own. Whether that is done: one that the database does not
        let be changed stays, and holds up nobody."""
        row = aside.row
        # Every database stores ASCII without NUL, whatever was in the row.
        why = aside.why.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")[:_ERROR_CHARS]
        update = (
            f"UPDATE ironclaim_outbox SET state = 'failed', error = {dialect.mark} "  # noqa: S608
            f"WHERE number = {dialect.mark} AND state = {dialect.mark}"
        )
        try:
            changed = run(connection, update, (why, row.number, "sent" if row.sent else "new"))
            connection.commit()
        except Exception as failure:
            connection.rollback()
            if self._first_of(row):
                log.error(
                    "row %d of the outbox cannot be sent (%s), nor be set aside: %s", row.number, why, failure
                )
            return False
        log.error("row %d of the outbox (job %a, queue %s) is set aside: %s", row.number, row.job, queue, why)
        return changed > 0

    def _enqueue(
        self, queue: Queue, drafts: Sequence[tuple[_Row, Enqueue]], not_after_ms: int
    ) -> tuple[list[_Row], list[_Aside], EngineError | None]:
        """Enqueue rows. Returns the rows whose job is there; those to be set aside, with the reason; and the
        first failure that is not about one row. The others stay as they are."""
        aside: list[_Aside] = []
        accepted: list[_Row] = []
        faults: list[tuple[_Row, ScriptFault]] = []
        failure: EngineError | None = None
        for (row, _), result in zip(
            drafts, _send(queue, [draft for _, draft in drafts], not_after_ms), strict=True
        ):
            if isinstance(result, UnknownParent):
                if time.monotonic() - self._orphans.setdefault(row.number, time.monotonic()) >= ORPHAN_S:
                    aside.append(_Aside(row, str(result)))
            elif isinstance(result, ScriptFault):
                faults.append((row, result))
            elif isinstance(result, EngineError):
                failure = failure or result
            elif not result.refused:
                accepted.append(row)
        # Where others get through, the fault is the row's: a key of this job, say, that somebody else has
        # written.
        if accepted:
            aside += [_Aside(row, str(fault)) for row, fault in faults]
        elif faults:
            failure = failure or faults[0][1]
        for row in (*accepted, *(each.row for each in aside)):
            self._orphans.pop(row.number, None)
        return accepted, aside, failure


def _no_table(failure: Exception) -> bool:
    """Whether the database says that the table is not there."""
    text = str(failure)
    return "ironclaim_outbox" in text and ("no such table" in text or "does not exist" in text)


def _drafts(queue: Queue, found: Sequence[_Row]) -> tuple[list[tuple[_Row, Enqueue]], list[_Aside]]:
    """The jobs of new rows, and the rows that are none. Of rows that were sent only the id is still
    needed."""
    drafts: list[tuple[_Row, Enqueue]] = []
    bad: list[_Aside] = []
    for row in found:
        try:
            if row.sent:
                queue.model.check_id(row.job)
            else:
                drafts.append((row, _draft(queue, row.job, row.name, row.payload, row.options)))
        except Exception as error:
            # Whatever it is: the next row has nothing to do with it.
            bad.append(_Aside(row, str(error) or type(error).__name__))
    return drafts, bad


def _ends(result: Enqueued | EngineError) -> bool:
    """Whether this is a failure that says nothing of a single job."""
    return isinstance(result, EngineError) and not isinstance(result, UnknownParent | ScriptFault)


def _send(queue: Queue, drafts: Sequence[Enqueue], not_after_ms: int) -> list[Enqueued | EngineError]:
    """Enqueue jobs; a result for each. Those that need others go one by one, because each may be refused for
    its own reason. So do those of a call that has met a fault, because the fault may be that of one of
    them."""
    results: list[Enqueued | EngineError] = []
    for needing, group in groupby(drafts, key=lambda draft: bool(draft.options.needs)):
        run = list(group)
        for part in [[draft] for draft in run] if needing else [run]:
            made = list(_send_part(queue, part, not_after_ms))
            if len(part) > 1 and any(isinstance(it, ScriptFault) for it in made):
                for at, draft in enumerate(part):
                    # Also what was not sent behind the fault.
                    if isinstance(made[at], EngineError):
                        (made[at],) = _send_part(queue, [draft], not_after_ms)
                        if _ends(made[at]):
                            break
            results += made
            failed = next((it for it in results if isinstance(it, EngineError) and _ends(it)), None)
            if failed is not None:
                return results + [failed] * (len(drafts) - len(results))
    return results


def _send_part(
    queue: Queue, drafts: Sequence[Enqueue], not_after_ms: int
) -> Sequence[Enqueued | EngineError]:
    """As `_send`, in one pipeline. A call that comes after `not_after_ms` is refused, and never tried with a
    later one."""
    nonce = os.urandom(8)
    steps = producing.enqueue_many([replace(draft, nonce=nonce) for draft in drafts])
    answers: Any = None
    try:
        while True:
            asked = cast("Sequence[Enqueue]", steps.send(answers))
            answers = queue.driver.send_many(
                [queue.model.call(operation.stamped(not_after_ms)) for operation in asked]
            )
    except StopIteration as end:
        return end.value
    except PartlyEnqueued as partly:
        return partly.results
    except EngineError as error:
        return [error] * len(drafts)


def _change(connection: Connection, dialect: Dialect, what: str, changed: Sequence[_Row]) -> None:
    if changed:
        run(
            connection,
            f"{what} WHERE number IN {dialect.marks(len(changed))}",
            [row.number for row in changed],
        )


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
        raise Malformed(
            "dedup", draft.options.dedup, "left out: the outbox has a dedup key of its own for each job"
        )
    stored = _stored(draft.options)
    _draft(queue, draft.job, draft.name, draft.payload, stored)
    return draft.job, queue.name, draft.name, draft.payload, stored


def _draft(queue: QueueSettings, job: object, name: object, payload: object, stored: object) -> Enqueue:
    """The job of a row, checked to the last byte of its call. Raises Malformed for a row that is none."""
    options: Any = _read("options", stored)
    if not isinstance(options, dict):
        raise Malformed("options", stored, "a JSON object with options of jobs")
    job = queue.model.check_id(job)
    given = {**cast("dict[str, object]", options), "dedup": _WINDOW.format(job), "dedup_ms": WINDOW_MS}
    try:
        made = checked(given, queue.model.defaults, queue.model.names.options)
    except Malformed as error:
        if error.field == "dedup":
            raise Malformed(
                "id", job, f"text of at most {128 - len(_WINDOW.format(''))} characters in the outbox"
            ) from None
        raise
    if payload is None:
        raise Malformed("payload", payload, "bytes")
    given_bytes: Any = payload.encode() if isinstance(payload, str) else payload
    data = bytes(given_bytes)
    if len(data) > queue.payload_bytes_max:
        raise Malformed("payload", f"{len(data)} bytes", f"at most {queue.payload_bytes_max} bytes")
    if not made.serializer:
        _read("payload", data)
    draft = Enqueue(job, queue.model.names.job_name(name), data, bytes(8), made)
    queue.model.check(draft.job, draft.name, draft.payload, draft.options)
    try:
        queue.model.call(draft)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Malformed("options", stored, f"options that can be stored ({error})") from error
    return draft


def _read(field: str, value: object) -> Any:
    """What JSON in UTF-8 says. Raises Malformed, also for what only some programs write into JSON."""
    bound = "JSON in UTF-8"
    if not isinstance(value, str | bytes) or (field == "options" and isinstance(value, bytes)):
        raise Malformed(field, value, f"text with {bound}", private=True)
    try:
        return validate.json_value(value)
    except (ValueError, RecursionError) as error:
        raise Malformed(field, value, f"{bound} ({error})", private=True) from error


def _text(is_text: object, data: object) -> str | bytes | None:
    """A column as the text that it holds, or its bytes where that is none in UTF-8."""
    found: Any = data
    if found is None:
        return None
    try:
        return bytes(found).decode() if is_text else bytes(found)
    except UnicodeDecodeError:
        return bytes(found)


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
    """Raise UnsupportedFeature for a queue whose format cannot close windows, and for one with shards,
    because windows do not move to new shards."""
    if queue.shards:
        raise UnsupportedFeature(f"queue {queue.name} has shards: only whole queues have an outbox")
    try:
        queue.model.refuse(CloseWindows(()))
    except UnsupportedFeature:
        raise UnsupportedFeature(
            f"{queue.model.name} has no outbox: only queues in the engine's own format have one"
        ) from None
