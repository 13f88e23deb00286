"""The job that a handler gets: its payload and options, the number of the run, and what the handler can ask
for while it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from engine import validate
from engine.errors import LeaseLost, Malformed, UnsupportedFeature
from engine.ops.claims import LeasedJob
from engine.outcomes import SoftTimeout
from engine.parameters import TypedJob
from engine.serializers import BUILT_IN, Serializers
from engine.validate import Milliseconds
from engine.worker.machine.events import MoreTime, Progressed

#: Takes the messages of a running handler to its worker.
Say = Callable[[MoreTime | Progressed], None]

R = TypeVar("R")

_UNREAD = object()
_making_event = threading.Lock()


class ParentResults(Mapping[str, Any]):
    """The values that parents have returned, in the order in which they were needed."""

    def __init__(self, parents: tuple[str, ...], records: tuple[bytes, ...]) -> None:
        self._records = dict(zip(parents, records, strict=True))

    def __getitem__(self, parent: str) -> Any:
        """The value of a parent, by its id or its name. Raises KeyError, also for a name that several
        have."""
        if parent in self._records:
            return _value(self._records[parent])
        named = [record for found, record in self._records.items() if getattr(found, "name", "") == parent]
        if len(named) != 1:
            raise KeyError(
                f"{parent}: {len(named)} of the jobs that this one needed have that name, which must be one"
            )
        return _value(named[0])

    def of(self, task: TypedJob[R]) -> dict[str, R]:
        """What the parents that are jobs of this task have returned, by id, with the type that its function
        returns. Left out are those that did not finish, or whose result was not kept. Raises Malformed for a
        value that is not of that type, and where `needs` was given a mere text, whose task nobody knows."""
        found: dict[str, R] = {}
        unnamed = next((parent for parent in self._records if not getattr(parent, "name", "")), None)
        if unnamed is not None:
            refusal = Malformed(
                "needs",
                str(unnamed),
                "what task.new(...) or enqueue(...).job returned, as a text alone does not say of which task "
                "the job is; job.results[id] reads the result of any",
            )
            refusal.unfit = True
            raise refusal
        for parent, record in self._records.items():
            if getattr(parent, "name", "") == task.name and not record.startswith(b'{"ok":false'):
                value = _value(record)
                try:
                    found[parent] = task.parameters.read_result(value)
                except Malformed:
                    if value is not None:
                        raise
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<results of {', '.join(self)}>"


def _value(record: bytes) -> Any:
    found: Any = json.loads(record) if record else {}
    return found.get("value")


class Job:
    """One run of a job. A handler runs *at least* once (rule 34): write `id` down together with an effect
    that must not come twice. `fence` grows with every claim of the job. A system that stores what a run
    writes can refuse a smaller fence, which stops a zombie's late write. It does not stop the next run, and
    fences of different jobs do not compare."""

    __slots__ = (
        "_cancelled",
        "_leased",
        "_lost",
        "_lost_event",
        "_payload",
        "_queue",
        "_say",
        "_serializers",
        "_soft_over",
    )

    def __init__(
        self, leased: LeasedJob, say: Say | None = None, serializers: Serializers = BUILT_IN, queue: str = ""
    ) -> None:
        self._leased = leased
        self._queue = queue
        self._serializers = serializers
        self._say = say
        # Made on first use: most handlers need one of them at most.
        self._payload: Any = _UNREAD
        self._lost = self._cancelled = self._soft_over = False
        self._lost_event: threading.Event | None = None

    @property
    def payload(self) -> Any:
        """The payload, the same value each time. Raises ValueError where the bytes are no JSON, or were
        written by a serialiser that this worker does not know."""
        if self._payload is _UNREAD:
            self._payload = self._serializers.read(self._leased.options.serializer, self._leased.payload)
        return self._payload

    @property
    def lease_lost(self) -> threading.Event:
        """Set when the worker learns that the lease has ended: another worker may be running the job."""
        with _making_event:
            if self._lost_event is None:
                self._lost_event = threading.Event()
        # The flag is set before the event is looked for, so that one of the two sees the other.
        if self._lost:
            self._lost_event.set()
        return self._lost_event

    @property
    def cancelled_by_hand(self) -> bool:
        """Whether the lease has ended because the job was cancelled (rule 26): then no other worker runs it.
        The worker is told within a second. Where its control connection is away, its next renewal tells
        it, at most a third of a lease later."""
        return self._cancelled

    def lose(self, *, cancelled: bool) -> None:
        """Mark the lease as ended; called by the worker."""
        self._cancelled = cancelled
        self._lost = True
        if self._lost_event is not None:
            self._lost_event.set()

    def end_soon(self) -> SoftTimeout:
        """Note that the soft timeout is over; called by the worker. The exception that says so."""
        self._soft_over = True
        return SoftTimeout(f"not done within {self._leased.options.soft_timeout_ms} ms")

    def __repr__(self) -> str:
        return f"<Job {self.id} ({self.name}), fence {self.fence}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._leased.lease.job

    @property
    def queue(self) -> str:
        """The name of the queue that it was claimed from; '' for a Job that belongs to no worker."""
        return self._queue

    @property
    def name(self) -> str:
        """The job's name."""
        return self._leased.name

    @property
    def payload_bytes(self) -> bytes:
        """The payload as it was enqueued."""
        return self._leased.payload

    @property
    def fence(self) -> int:
        """The fence of this claim (rule 6)."""
        return self._leased.lease.fence

    @property
    def nonce(self) -> str:
        """The nonce of this claim: incarnation and counter of the worker."""
        return self._leased.lease.nonce

    @property
    def priority(self) -> int:
        """1 to 10."""
        return self._leased.options.priority

    @property
    def attempt(self) -> int:
        """Which attempt of the job this is, from 1 to `attempts`: since its enqueue or requeue, and without
        runs that ended in a crash, were given back or failed uncharged."""
        return self._leased.failures + 1

    @property
    def attempts(self) -> int:
        """How many runs may fail before the job is dead."""
        return self._leased.options.attempts

    @property
    def token(self) -> tuple[int, str]:
        """Fence and nonce of this claim, which identify the run."""
        return self._leased.lease.fence, self._leased.lease.nonce

    @property
    def timeout_ms(self) -> int:
        """The timeout of this run in ms; 0: none."""
        return self._leased.options.timeout_ms

    @property
    def soft_timeout_ms(self) -> int:
        """The soft timeout of this run in ms; 0: none."""
        return self._leased.options.soft_timeout_ms

    @property
    def enqueued_ms(self) -> int:
        """When the job was enqueued, by the server's clock."""
        return self._leased.enqueued_ms

    @property
    def timestamp_ms(self) -> int:
        """When the producer made the job, by its own clock; when it was enqueued, where that was not
        given."""
        return self._leased.options.timestamp_ms or self._leased.enqueued_ms

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the producer gave."""
        return dict(self._leased.options.headers)

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the jobs that this one needed, in the order given."""
        return self._leased.options.needs

    @property
    def results(self) -> ParentResults:
        """The results of the jobs that this one needed, by id; also by name for those that `needs` was given
        as NewJobs or as the ids that `enqueue` returned. A callback has the result of the job that has
        succeeded. None for one that returned nothing or did not finish. As JSON has them;
        `job.results.of(task)` has their types. Raises UnsupportedFeature where the format of the queue keeps
        none."""
        left = self._leased.left
        if self.parents and not left:
            raise UnsupportedFeature(
                f"job {self.id}: the format of its queue, or the version that enqueued it, keeps no "
                "results for it"
            )
        return ParentResults(self.parents, left[1:])

    @property
    def failure(self) -> str:
        """Of a callback of `on_failure`: what the job before it ended of, its last error, or a word such as
        `expired`; '' of any other job."""
        return self._leased.left[0] if self._leased.left else ""

    @property
    def claims(self) -> int:
        """Claims so far, this one included."""
        return self._leased.claims

    @property
    def failures(self) -> int:
        """Failed runs so far."""
        return self._leased.failures

    @property
    def crashes(self) -> int:
        """Leases of this job that expired so far."""
        return self._leased.crashes

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end: the worker knows that the lease of this run has ended, so that its
        result will be refused, or the soft timeout is over."""
        return self._lost or self._soft_over

    def progress(self, percent: float, message: str | None = None, data: object = None) -> None:
        """Tell how far the run has come, for `queue.results.progress`: `percent` from 0 to 100, and a text
        and any JSON value, of 16 KiB together. Does not wait. The worker sends it at once, or the newest of
        several when it is busy. It may never be noted if the handler ends meanwhile. Raises LeaseLost when
        the worker knows that the lease has ended, Malformed."""
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:  # pyright: ignore
            raise Malformed("percent", percent, "a number from 0 to 100")
        if message is not None and not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("message", message, "text", private=True)
        body = {"percent": percent, "message": message, "data": data}
        told = validate.json_bytes("progress", body, validate.PROGRESS_BYTES_MAX)
        self._check_lease()
        if self._say is not None:
            self._say(Progressed(self._leased.lease, told[1:]))

    def encode_result(self, result: object) -> bytes | None:
        """The handler's return value as it is stored; None: nothing is stored. Raises Malformed; called by
        the worker."""
        if result is None or not self._leased.options.result_ttl_ms:
            return None
        return validate.json_bytes("result", result, validate.RESULT_BYTES_MAX)

    def check_lease(self) -> None:
        """Raise LeaseLost when the worker knows that the lease has ended, SoftTimeout when the soft timeout
        is over: for handlers that can stop early."""
        self._check_lease()
        if self._soft_over:
            raise self.end_soon()

    def _check_lease(self) -> None:
        if self._lost:
            why = "was cancelled" if self._cancelled else f"the lease with fence {self.fence} has ended"
            raise LeaseLost(f"job {self.id}: {why}")

    def extend(self, for_ms: Milliseconds) -> None:
        """Let this run take `for_ms` from now on, instead of what is left of its `timeout_ms`; its
        `soft_timeout_ms`, if it is still to come, keeps the distance to that. Nothing changes for a job
        without either. Leases need no call: the worker renews them as long as the handler runs. Raises
        Malformed."""
        checked = validate.duration_ms("for_ms", for_ms, 1, validate.BACKOFF_MS_MAX)
        if self._say is not None and self._leased.options.is_timed:
            self._say(MoreTime(self._leased.lease, checked))
