"""Jobs that go on elsewhere after an error (rule 27): first the enqueue at the target under the id `<id>>reroute`, then the end
here. Pure code, a part of the step machine."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from engine.operations import Enqueue, Failure, Lease, LeasedJob

#: The same as that of a producer: how long the enqueue may be sent.
SEND_MS = 10_000


class Reroute(NamedTuple):
    """A job, what its run ended with, and where it goes: a name, or a queue, a colon and a name."""

    job: LeasedJob
    failure: Failure
    target: str

    @property
    def queue(self) -> str:
        """The other queue, '' for the job's own."""
        queue, colon, _ = self.target.partition(":")
        return queue if colon else ""


class Rerouting:
    """One at a time, in their order. The first stays first until the server has answered for it."""

    def __init__(self) -> None:
        self._waiting: deque[Reroute] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, job: LeasedJob, failure: Failure, target: str) -> None:
        """This one goes elsewhere."""
        self._waiting.append(Reroute(job, failure, target))

    @property
    def first(self) -> Reroute:
        """The next one."""
        return self._waiting[0]

    def enqueue(self, now_ms: int) -> Enqueue:
        """Of the first one, at this server time. Its nonce is made of the token of the lease: what another lease has sent is
        there already, and this one a duplicate. The rules come along but for the reroute, so that no two names play ping-pong."""
        job, _, target = self.first
        lease = job.lease
        token = f"{lease.job} {lease.fence} {lease.nonce}".encode()
        options = replace(job.options, unique="", needs=(), on_parent_failure="bury", reroute_on=())
        name = target.partition(":")[2] or target
        nonce = hashlib.blake2b(token, digest_size=8).digest()
        return Enqueue(f"{lease.job}>reroute", name, job.payload, nonce, now_ms + SEND_MS, options)

    def answered(self) -> Reroute:
        """The first one is there, or can never be."""
        return self._waiting.popleft()

    def leases(self) -> list[Lease]:
        """To be renewed while they wait."""
        return [reroute.job.lease for reroute in self._waiting]
