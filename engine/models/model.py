"""The interface of a model: the mapping of one queue to one data model in Redis, as queues and workers use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.models.lanes_keys import LanesKeys
from engine.models.names import Names
from engine.ops.base import Operation
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options
from engine.wire.call import Call
from engine.wire.scripts import Script


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a wire format that the engine cannot prevent: its name, the checks that may show it (`J4`), and a
    description."""

    name: str
    checks: tuple[str, ...]
    text: str


class Model(Protocol):
    """A bound model. `now_ms`: the time that a test sets, on queues made for tests."""

    now_ms: int | None

    @property
    def name(self) -> str:
        """The name of the model: lanes, bridge, bananas, bull or mosquito."""
        ...

    @property
    def names(self) -> Names:
        """What the names and ids of its queues and jobs may be."""
        ...

    @property
    def keys(self) -> LanesKeys:
        """The names of the engine's own keys."""
        ...

    @property
    def scripts(self) -> Mapping[str, Script]:
        """The scripts that each connection loads."""
        ...

    @property
    def FINDINGS(self) -> tuple[Finding, ...]:  # noqa: N802  a constant of the models
        """The defects of the wire format that the engine cannot prevent."""
        ...

    @property
    def defaults(self) -> Options:
        """The options of a job without explicit ones: the defaults of the wire format."""
        ...

    @property
    def routes_at_claim(self) -> bool:
        """Whether each claim checks the routing of each job, so that a class is just a name."""
        ...

    @property
    def merges_enqueues(self) -> bool:
        """Whether one call may carry the jobs of several enqueues, each with a nonce of its own."""
        ...

    @property
    def hear_ms(self) -> int:
        """How often a wait for the end of a job polls, in ms: the longest delay until an end is seen."""
        ...

    @property
    def check(self) -> Callable[[str, str, bytes, Options], None] | None:
        """Raises UnsupportedFeature, or Malformed, for a job (id, name, payload, options) that the wire format cannot hold.
        None if the format holds every job and has all operations."""
        ...

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks."""
        ...

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        ...

    def control(self, worker: str) -> tuple[str, ...]:
        """The pub/sub channels on which scripts tell a worker of this name what it would else learn from its next calls (rule
        26); none where the format's scripts publish nothing."""
        ...

    def sibling(self, queue: str) -> Model:
        """The same model of another queue."""
        ...

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from its body; `counters` are claims, failures and crashes. Raises ScriptFault for one that cannot be read."""
        ...

    @property
    def draws_ids(self) -> bool:
        """Whether an id of `new_id` is the identity of its enqueue, without a nonce (rule 3)."""
        ...

    def new_id(self) -> str:
        """A new id for a job without one; '' if the server assigns it."""
        ...

    def new_ids(self) -> Iterator[str]:
        """Like `new_id`, for many jobs."""
        ...

    def check_id(self, value: object) -> str:
        """Return a caller's id if it is valid. Raises Malformed."""
        ...

    def schedule_id(self, schedule: str, moment: str) -> str:
        """The id of the job that a schedule makes: `moment` is its tick, or `now-...` for `run_now`."""
        ...

    def template(self, job: Enqueue) -> bytes:
        """The job that each tick of a schedule enqueues, encoded as the schedule stores it."""
        ...

    def read_template(self, raw: bytes) -> LeasedJob:
        """Decode the bytes that `template` returned. Raises ScriptFault."""
        ...


class Spec(Protocol):
    """The settings of a model, without a queue: what `Queue(model=...)` takes."""

    @property
    def prefix(self) -> str:
        """The default prefix of the keys."""
        ...

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        ...
