"""The input and output of a worker's state machine: events and actions."""

from __future__ import annotations

from typing import Any, Literal

from engine.ops.base import Call, immutable
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.ops.workers import ClientConnection, ControlMessage
from engine.outcomes import FAILED, RunRequest

#: One call of each kind is in flight at a time.
#: work: claim, finish and claim, retry, bury, release, mark.
#: finish: finishes that would wait for the call on `work`.
#: renew: extend, so that neither a slow claim nor a busy handler delays a renewal (rule 14).
#: sweep: beat, sweep, updates, tick, count. wake: the blocking wait, on a connection of its own.
CallKind = Literal["work", "finish", "renew", "sweep", "wake"]
#: Nanoseconds in a millisecond.
MS = 1_000_000
#: Why a worker ends; of several workers the last of these counts.
#: empty: nothing was left to do. stopped: it was asked to.
#: grace over: it was asked to, and had jobs in hand when the grace was over.
#: recycled: it has run as many jobs or grown as large as it may. at once: it was told not to wait for its
#: handlers.
StopReason = Literal["empty", "stopped", "grace over", "recycled", "at once"]


@immutable
class Answered:
    """A call was answered. Its lease counts from `first_send_ns` unless the machine sent it before (rule
    9)."""

    kind: CallKind
    call: Call[Any]
    reply: object
    first_send_ns: int
    done_ns: int


@immutable
class Unanswered:
    """A call ended without a usable reply. `fault`: the server answered with an error outside the
    contract."""

    kind: CallKind
    call: Call[Any]
    first_send_ns: int
    fault: bool


@immutable
class HandlerEnded:
    """A handler returned (error None), with something to keep or without, or raised, and what that asks
    for."""

    lease: Lease
    error: str | None
    trace: str = ""
    request: RunRequest = FAILED
    result: bytes | None = None


@immutable
class BatchEnded:
    """A handler that had a batch has ended: how each of its jobs did, all of them."""

    ends: tuple[HandlerEnded, ...]


@immutable
class NotStarted:
    """The handlers of these leases were to start and will not, for there is nothing that could run them."""

    leases: tuple[Lease, ...]


@immutable
class StopAsked:
    """The worker shall stop: start nothing more, give back what has not started, wait for what runs, unless
    `at once`."""

    reason: StopReason = "stopped"


@immutable
class MoreTime:
    """A handler asks not to be timed out for so long from now on."""

    lease: Lease
    for_ms: int


@immutable
class PauseAsked:
    """The worker shall claim and start nothing until it is asked to go on (`paused` False); what runs goes
    on."""

    paused: bool


@immutable
class WatchAsked:
    """Whether this worker looks after the leader of an idle shard, for the others of its process do not."""

    on: bool


@immutable
class Progressed:
    """A handler reports its progress; `body` as in NoteProgress."""

    lease: Lease
    body: bytes


@immutable
class Forked:
    """The process is another one than the one that claimed (fork, restored machine): take a new incarnation
    (rule 4)."""


@immutable
class TimerFired:
    """The time that `wake_at_ns` named has come."""


@immutable
class Subscribed:
    """The control connection reads from now on; what was published before may have been missed. `connection`:
    how its server lists it, None where others could not learn from it that this process lives."""

    connection: ClientConnection | None = None


@immutable
class ControlLost:
    """The control connection has ended."""


Event = (
    Answered
    | Unanswered
    | HandlerEnded
    | BatchEnded
    | NotStarted
    | StopAsked
    | MoreTime
    | Progressed
    | PauseAsked
    | WatchAsked
    | ControlMessage
    | Subscribed
    | ControlLost
    | Forked
    | TimerFired
)


@immutable
class Send:
    """Send this call. `again`: a copy that was sent before is still unanswered."""

    kind: CallKind
    call: Call[Any]
    again: bool = False


@immutable
class Start:
    """Run this job's handler; `inline`: in the thread that runs the others that are inline, which is idle
    now. A handler that takes batches gets all jobs of `batch`, of which `job` is the first, and its end is
    told with BatchEnded."""

    job: LeasedJob
    inline: bool = False
    batch: tuple[LeasedJob, ...] = ()


@immutable
class LoseLease:
    """The lease of a job has ended, or nobody could say for a whole lease that it has not: tell its handler,
    if it was `started`.

    `starved_ms`: the machine was woken this much later than it had asked for, so no renewal was sent in time
    (rule 14). `cancelled`: somebody has cancelled the job, and a coroutine is cancelled, a child process
    killed (rule 26).
    """

    lease: Lease
    starved_ms: int = 0
    started: bool = True
    cancelled: bool = False


#: Why a handler is told to end: its timeout is over, or its soft one; or the grace of its worker is.
StopCause = Literal["timeout", "soft timeout", "stop"]


@immutable
class StopHandler:
    """The handler of this job has to end: cancel it or kill its process, where that can be done. At a soft
    timeout an exception is raised in it instead, and it may go on."""

    job: LeasedJob
    cause: StopCause = "timeout"


@immutable
class GiveUpHandler:
    """The handler did not stop: its run is recorded as failed. Its place is taken until it returns, as those
    of `stuck` are."""

    job: LeasedJob
    stuck: int


@immutable
class Exit:
    """End the worker: nothing is left to do."""

    reason: StopReason = "stopped"


Action = Send | Start | LoseLease | StopHandler | GiveUpHandler | Exit
