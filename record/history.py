"""The history on disk: the row schema, the writer that survives SIGKILL, and the loader.

The history is the only seam between running a scenario and judging it (rules 29 to 31 of the protocol). Every
process of a run appends JSON lines to a file of its own, one unbuffered write per call; `reports` reads them
later, perhaps on another machine. This module needs the standard library alone, so a judge never imports
redis.

Times that end in `_ns` are CLOCK_MONOTONIC nanoseconds: on Linux one clock for all processes of a machine.
`srv_us` and `*_ms` are times of the Redis server's clock, since 1970.

Files of a run (`runs/<id>/history/`):

- `manifest.jsonl`: one `process` row for each process, written **before** it starts, naming its file(s).
- `<proc>.jsonl`: the rows of one process. The first row is `open`; the last is `close`, unless the process
  was killed. Since version 9 `offset` rows measure its monotonic clock against the server's, for runs on
  several hosts.
- `<proc>.sink.jsonl`: the second witness, also opened and closed: `effect` rows, written inside the handlers;
  of channels `handed` rows (since version 8), written by the callers of `fetch`."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

SCHEMA_VERSION = 11

FieldType = Literal["int", "str", "list[str]", "items"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a history row: its name, JSON type, the row kinds that carry it, its meaning, and since
    which version."""

    name: str
    type: FieldType
    kinds: str
    meaning: str
    since: int = 1


#: The table that documents a row. `*` = every row. Absent columns read as null.
ROW_FIELDS: tuple[Field, ...] = (
    Field("v", "int", "*", "schema version"),
    Field("seq", "int", "*", "line number in the file, from 0 without gaps"),
    Field(
        "kind",
        "str",
        "*",
        "process | open | close | connection | configuration | operation | effect | effects | handed | "
        "misuse | fault | phase | clock | "
        "offset | final | drop",
    ),
    Field(
        "proc", "str", "*", "process name, unique in the run; the file is <proc>.jsonl (or <proc>.sink.jsonl)"
    ),
    Field(
        "t_ns",
        "int",
        "*",
        "monotonic time of the write; for fault and phase rows the instant that the row is about",
    ),
    # process (manifest) and open
    Field("role", "str", "process open", "harness | producer | worker | sink | publisher | subscriber"),
    Field("file", "str", "process", "file name that the process will write, one row for each file"),
    Field("host", "str", "open", "host name"),
    Field(
        "boot_id",
        "str",
        "open",
        "kernel boot id: monotonic times of another boot or host compare by offset rows alone",
    ),
    Field("pid", "int", "open", "process id"),
    Field("version", "str", "open", "version of the engine"),
    # close
    Field("rows", "int", "close", "rows in the file, this one included"),
    Field("recorder_ns", "int", "close", "time that the recorder itself took in this process"),
    # connection
    Field("server_run_id", "str", "connection", "INFO run_id; of an app over HTTP: its url"),
    Field("replid", "str", "connection", "INFO master_replid: the era of the server"),
    Field("server_role", "str", "connection", "INFO role"),
    # configuration
    Field(
        "config", "str", "configuration", "effective configuration as a JSON object, again at every change"
    ),
    # operation
    Field(
        "f",
        "str",
        "operation",
        # A sweep is called a reap; of older versions a promotion was a call of its own.
        "enqueue | tick | claim | finish | retry | bury | release | drop | extend | mark | promote | "
        "reap | handle | "
        "result | publish | subscribe | unsubscribe | fetch | acknowledge",
    ),
    Field(
        "type",
        "str",
        "operation",
        "invoke | ok | fail | info: ok happened, fail did not, info or no completion may have",
    ),
    Field("op", "str", "operation", "operation id: the same in the invoke and the completion row"),
    Field(
        "call",
        "str",
        "operation",
        "call id: equal for the operations that travel in one script call (finish and claim)",
    ),
    Field("queue", "str", "operation", "queue name"),
    Field("sends", "int", "operation", "times the call was sent"),
    Field("errors", "list[str]", "operation", "the error of each send that got no usable reply, in order"),
    Field("intended_ns", "int", "operation drop", "when the caller meant to send (open-loop load)"),
    Field(
        "first_send_ns",
        "int",
        "operation misuse handed offset",
        "just before the first send; a handler's start, or a caller's call",
    ),
    Field("last_send_ns", "int", "operation", "just before the last send"),
    Field(
        "done_ns",
        "int",
        "operation misuse handed offset",
        "reply parsed or given up; a handler's end, or a caller's call",
    ),
    Field("srv_us", "int", "operation clock offset final", "server time of the reply"),
    Field(
        "srv_from_us",
        "int",
        "operation",
        "foreign clients, which learn no time from a reply: server time asked for just before the "
        "call; srv_us just after it",
        since=4,
    ),
    Field(
        "result",
        "str",
        "operation fault misuse",
        "claim: leased | empty | repeated | void | stale; mark: ok | repeated | stale; reap: how many "
        "became claimable; "
        "fault: ok | missing; "
        "subscribe: created | exists | refused; unsubscribe: deleted | missing | refused; "
        "acknowledge: OK | stale | unknown; "
        "fetch: ok, and as acknowledge channel-not-found | subscription-not-found; "
        "misuse: malformed | stale | not-found | OK | unknown",
    ),
    Field("error", "str", "operation", "why type is fail or info"),
    Field(
        "incarnation",
        "str",
        "operation",
        "claims: the worker incarnation, 16 hex digits; a reap for closed connections: those of the "
        "lost workers, "
        "with commas between",
    ),
    Field(
        "counter",
        "int",
        "operation",
        "claims: the claim counter of the incarnation; the job nonce is incarnation:counter",
    ),
    Field("lease_ms", "int", "operation", "claims and extends: the lease asked for"),
    Field(
        "items",
        "items",
        "operation effect effects handed fault final",
        "the jobs or messages of the row (fetch: in order of delivery), final: subscribers; see ITEM_FIELDS",
    ),
    # channels (engine.models.dsps says how clocks compare)
    Field("channel", "str", "operation misuse handed final", "name of the channel", since=5),
    Field("subscriber", "str", "operation misuse handed", "name of the subscriber", since=5),
    Field(
        "clock",
        "int",
        "operation misuse final",
        "the channel's in the reply; acknowledge, misuse: the one that the receipt names; final: the "
        "channel's at the end",
        since=5,
    ),
    Field("cursor", "int", "operation", "the subscriber's in the reply", since=5),
    Field("era", "int", "operation", "times the clock has gone back, as the reply says", since=5),
    Field("turned", "int", "operation", "1 = this very call found that the clock went back", since=5),
    Field(
        "upto",
        "int",
        "operation",
        "fetch: the clock up to which it delivered all that lives: the receipt's",
        since=5,
    ),
    Field(
        "lost",
        "int",
        "operation handed",
        "fetch: clocks after the cursor up to `upto` that had no message any more",
        since=5,
    ),
    Field("more", "int", "operation", "fetch: 1 = there are, or may be, further messages", since=5),
    Field("most", "int", "operation", "fetch: messages asked for at most", since=5),
    Field(
        "waited_ms",
        "int",
        "operation",
        "fetch: for how long the caller had waited for a message before this look was sent",
        since=5,
    ),
    Field("ttl_s", "int", "operation", "life that keys got, in whole seconds", since=5),
    # fault, phase, final, drop, misuse
    Field("fault", "str", "fault", "fault id, unique in the run"),
    Field(
        "name",
        "str",
        "fault phase final misuse",
        "kind of fault | phase name | snapshot name; misuse: the receipt was tampered | truncated | "
        "foreign | old | beyond",
    ),
    Field(
        "stage",
        "str",
        "fault",
        "inject | witness | heal | healed; before the inject of a restore: snapshot, when what it "
        "restores was saved",
    ),
    Field("target", "str", "fault", "names of the processes that the fault hits, joined by commas"),
    Field("detail", "str", "fault drop", "what was seen, for people"),
    Field("state", "str", "final", "waiting | delayed | active | dead | done"),
    Field(
        "count",
        "int",
        "final drop",
        "jobs in that state in this snapshot (over all its rows); jobs not sent in time",
    ),
    # clock
    Field("wall_ns", "int", "clock", "the machine's wall clock"),
)

#: One entry of `items`.
ITEM_FIELDS: tuple[Field, ...] = (
    Field("job", "str", "*", "job id; none in rows of channels"),
    Field(
        "fence",
        "int",
        "claim end mark reap handle effect",
        "fence of the token (rule 6); none where a script buried the job",
    ),
    Field("nonce", "str", "claim end mark reap handle effect", "nonce of the token: incarnation:counter"),
    Field(
        "result",
        "str",
        "operation",
        "enqueue: created | repeated | duplicate | orphan (a job that it needs is unknown) | refused "
        "| unknown; "
        "tick: created | repeated | moved (another one fired it) | skipped | unknown; claim: leased | "
        "repeated; "
        "finish, retry, bury, release, drop, extend: ok | repeated | stale | void | unknown; mark: ok "
        "| repeated | stale; "
        "reap: reaped | buried (it had crashed too often); claim, promote, reap: corrupt (buried, "
        "nobody could read it); "
        "result: finished | dead | cancelled | discarded | skipped | expired; "
        "publish: created | duplicate | refused | unknown; fetch: corrupt (nobody could read it)",
    ),
    Field(
        "outcome",
        "str",
        "end reap",
        "how the lease ended: finished | retried | buried | released, or by a drop: discarded | "
        "skipped | rerouted",
    ),
    Field("name", "str", "enqueue claim handle", "job name"),
    Field("class", "str", "enqueue claim", "class of Lanes"),
    Field("lane", "str", "enqueue claim", "lane of Lanes"),
    Field("priority", "int", "enqueue claim", "1 to 10, 10 first"),
    Field("lifo", "int", "claim", "1 = it goes in front of those of its priority in its lane", since=11),
    Field("attempts", "int", "enqueue claim", "runs that may fail before the job is dead", since=7),
    Field(
        "backoff",
        "str",
        "enqueue claim",
        "how the wait after a failed run grows; none where the job lists or bounds it",
        since=7,
    ),
    Field(
        "backoff_least_ms",
        "int",
        "enqueue claim",
        "the shortest wait after the first failed run, its jitter taken off",
        since=7,
    ),
    Field("unique", "str", "enqueue", "unique key (rule 23)", since=2),
    Field("dedup", "str", "enqueue", "key of a window in which there is one such job (rule 23)", since=7),
    Field(
        "holder",
        "str",
        "enqueue",
        "duplicates of another job: the job that has the unique key or opened the window",
        since=2,
    ),
    Field("needs", "list[str]", "enqueue", "ids of the jobs that it needs (rule 25)", since=2),
    Field("on_parent_failure", "str", "enqueue", "with needs: bury | ignore", since=7),
    Field("wants", "str", "enqueue", "what it wants of a worker, as JSON (rule 18)", since=4),
    Field("schedule", "str", "tick", "the schedule whose tick made the job (rule 24)", since=2),
    Field("tick_ms", "int", "tick", "server time of the tick", since=2),
    Field("delay_ms", "int", "enqueue retry", "delay asked for; with run_at_ms the delay until then, about"),
    Field("charge", "int", "retry", "0 = the run counts as no failed one; none where it counts", since=11),
    Field("timeout_ms", "int", "handle", "how long the run may take; none where there is no bound", since=11),
    Field("run_at_ms", "int", "enqueue", "server time asked for instead of a delay", since=3),
    Field(
        "intended_ns",
        "int",
        "enqueue",
        "when its caller meant to send it, in a call that carries jobs of several",
        since=6,
    ),
    Field(
        "expires_ms",
        "int",
        "enqueue",
        "how long after the enqueue the job ends if nobody has started it (rule 38)",
        since=7,
    ),
    Field("due_ms", "int", "claim final", "server time from which the job may run; 0 = at once"),
    Field("enqueued_ms", "int", "claim", "server time of the enqueue"),
    Field("deadline_ms", "int", "claim extend", "server time at which the lease ends"),
    Field("claims", "int", "claim", "claims of the job so far, this one included"),
    Field("failures", "int", "claim", "failed runs so far"),
    Field(
        "crashes",
        "int",
        "claim reap",
        "leases that ran out and were charged so far: the first, and those marked (rule 12)",
    ),
    Field(
        "crc",
        "int",
        "enqueue claim effect publish fetch handed",
        "crc32 of the bytes of the payload, or of a message's content",
    ),
    Field(
        "result_crc",
        "int",
        "finish effect result",
        "crc32 of a result as compact JSON: effect: what the handler returned; finish: what its "
        "worker sent; result: what a "
        "caller was given, none where there is no value",
        since=8,
    ),
    Field("error", "str", "retry bury handle", "what the handler raised"),
    Field(
        "times",
        "int",
        "effects",
        "how often the job took effect, as its service counts in its own database after the run",
        since=10,
    ),
    Field("message", "str", "publish fetch handed", "message id", since=5),
    Field("clock", "int", "publish fetch handed", "the message's clock; none while nobody has told", since=5),
    Field("subscriber", "str", "final", "name of the subscriber", since=5),
    Field("cursor", "int", "final", "the subscriber's at the end", since=5),
)


class HistoryError(Exception):
    """A history file cannot be used; the message says which file, which line and why."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Rows of one file, and what was wrong with it: a torn last line, numbers of lines that are not JSON
    objects."""

    path: Path
    rows: tuple[dict[str, Any], ...]
    torn: bool
    corrupt_lines: tuple[int, ...]


def load_file(path: Path) -> LoadedFile:
    """Read one history file. Older versions gain null columns; a newer version than this code knows is an
    error.

    Raises HistoryError naming the file when it cannot be read or was written by a newer schema.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise HistoryError(f"history file {path.name}: {error.strerror}") from error
    torn = lines[-1] != b""
    rows: list[dict[str, Any]] = []
    corrupt: list[int] = []
    for number, line in enumerate(lines[:-1]):
        try:
            rows.append(upgrade(json.loads(line), path.name))
        except (ValueError, TypeError, RecursionError):
            corrupt.append(number)
    return LoadedFile(path, tuple(rows), torn, tuple(corrupt))


def upgrade(row: Any, file_name: str) -> dict[str, Any]:
    """Bring a row of any known version to the present one: columns that it lacks become None.

    Raises TypeError for what is no row, HistoryError for a version that this code does not know.
    """
    if not isinstance(row, dict):
        raise TypeError("a history row is an object")
    columns = cast("dict[str, Any]", row)
    version = columns.get("v")
    if not isinstance(version, int):
        raise TypeError("a history row is an object with an integer v")
    if version > SCHEMA_VERSION:
        raise HistoryError(
            f"history file {file_name}: schema version {version}, this code reads up to {SCHEMA_VERSION}"
        )
    full: dict[str, Any] = {field.name: None for field in ROW_FIELDS}
    full.update(columns)
    return full


def load_folder(folder: Path) -> Iterator[LoadedFile]:
    """Every `*.jsonl` of a run's history folder, by name."""
    for path in sorted(folder.glob("*.jsonl")):
        yield load_file(path)


def text(value: str) -> str:
    """A JSON string literal, for the row formatters."""
    return json.dumps(value)


class HistoryFile:
    """An append-only file of history rows: one `write(2)` per call, nothing buffered, safe from many threads.

    A row is handed over as the inside of a JSON object without its first four columns. When the disk refuses
    (full, gone), the file is **broken**: one line goes to stderr, nothing is written any more, and the
    missing close row makes the verdict unknown. Recording never fails a job. With `alone` the file is locked
    as long as this process has it. Raises BlockingIOError where another one has, because rows of two would
    have the same numbers.
    """

    def __init__(
        self,
        path: Path,
        *,
        proc: str,
        role: str,
        version: str = "",
        clock_ns: Callable[[], int] = time.monotonic_ns,
        alone: bool = False,
    ) -> None:
        self.path = path
        self.proc = proc
        self.broken = False
        self.recorder_ns = 0
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._seq = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if alone:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise
        self.append(
            [
                f'"kind":"open","role":{text(role)},"host":{text(socket.gethostname())},'
                f'"boot_id":{text(boot_id())},"pid":{os.getpid()},"version":{text(version)}'
            ]
        )

    def append(self, bodies: Iterable[str], *, t_ns: int | None = None) -> None:
        """Write rows in one system call. Each body starts with `"kind":...`; v, seq, proc and t_ns are put
        before it."""
        if self.broken:
            return
        started_ns = self._clock_ns()
        t_ns = started_ns if t_ns is None else t_ns
        with self._lock:
            self._write(bodies, t_ns, started_ns)

    def _write(self, bodies: Iterable[str], t_ns: int, started_ns: int) -> None:
        """The write itself, under the lock."""
        if self.broken:
            return
        lines: list[str] = []
        for body in bodies:
            lines.append(
                f'{{"v":{SCHEMA_VERSION},"seq":{self._seq},"proc":"{self.proc}","t_ns":{t_ns},{body}}}\n'
            )
            self._seq += 1
        data = "".join(lines).encode()
        try:
            complete = os.write(self._descriptor, data) == len(data)
            reason = "short write"
        except OSError as error:
            complete, reason = False, error.strerror or str(error)
        if not complete:
            self.broken = True
            os.write(
                2,
                (
                    f"history file {self.path.name}: {reason}; recording stopped, the verdict will be "
                    "unknown\n"
                ).encode(),
            )
        self.recorder_ns += self._clock_ns() - started_ns

    def close(self) -> None:
        """Write the closing row and close the file. A second call does nothing."""
        if self._descriptor < 0:
            return
        with self._lock:
            if self._descriptor < 0:
                return
            now_ns = self._clock_ns()
            self._write(
                [f'"kind":"close","rows":{self._seq + 1},"recorder_ns":{self.recorder_ns}'], now_ns, now_ns
            )
            os.close(self._descriptor)
            self._descriptor = -1
            # Rows of threads that are still about come after the end of this file's story.
            self.broken = True

    def abandon(self) -> None:
        """In a forked child, where the file is its parent's: write no more rows, and no closing one. It takes
        no lock, because a thread of the parent may have held it."""
        self.broken = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def boot_id() -> str:
    """The kernel's boot id, or an empty string where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
