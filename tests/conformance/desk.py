"""The desk of tests/engine for a queue of any model. Ids are the model's own, so jobs have labels in tests, which they carry."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from engine.models import Spec
from engine.ops.admin import AdminAction, Alter, Altered, Clean, Era, SetEvents
from engine.ops.claims import Bury, Claim, Failure, Finish, LeasedJob, Value
from engine.ops.jobs import Lease
from engine.ops.looks import Inspect, Listing
from engine.queue.looks import JobInfo, job_info, state_of
from tests.engine.desk import LEASE_MS, START_MS, Desk

STATES = ("waiting", "delayed", "active", "dead", "finished")


class ModelDesk(Desk):
    """One queue of a model under a clock that the test moves. Formats give some keys lengths of real time: those go by
    themselves."""

    expires_from_ms = START_MS - 10_000_000

    def __init__(self, url: str, spec: Spec) -> None:
        super().__init__(url, spec)
        self.spec = spec
        #: The job of each label.
        self.ids: dict[str, str] = {}

    def begin(self) -> Self:
        self.ids.clear()
        return super().begin()

    def claim_operation(self, worker: str = "a", limit: int = 10, lease_ms: int = LEASE_MS, **more: Any) -> Claim:
        """As it is there, with an incarnation as workers have it: 16 hex digits, by which a wire tells our locks from others."""
        operation = super().claim_operation(worker, limit, lease_ms, **more)
        return replace(operation, incarnation=f"{ord(worker):02x}" * 8)

    def put(self, *labels: str, name: str = "main", **options: Any) -> Self:
        """Enqueue jobs as a service does, one for each label."""
        for label in labels:
            enqueued = self.queue.enqueue(name, {"label": label}, **options)
            assert enqueued.result == "created"
            self.ids[label] = enqueued.job
        return self

    def take(self, worker: str = "a", limit: int = 10, **more: Any) -> dict[str, LeasedJob]:
        """Claim: the jobs by their labels, in their order."""
        return {label_of(job): job for job in self.claim(worker, limit, **more)}

    def put_and_claim(self, label: str, *, worker: str = "a", **options: Any) -> LeasedJob:
        """A job that a worker has now, the only one that waited."""
        return self.put(label, **options).one(worker)

    def labels(self, jobs: Iterable[str]) -> list[str]:
        """What these jobs are called."""
        known = {job: label for label, job in self.ids.items()}
        return [known.get(job, job) for job in jobs]

    def listed(self) -> dict[str, list[str]]:
        """The labels in each state."""
        return {name: self.labels(job for job, _ in found) for name, found in self.run(Listing(0, 100)).states.items()}

    def state(self, label: str) -> str:
        reply = self.run(Inspect((self.ids.get(label, label),), whole=False))
        return state_of(reply.items[0], reply.srv_us)

    def info(self, label: str) -> JobInfo:
        reply = self.run(Inspect((self.ids[label],)))
        return job_info(self.queue.model, self.queue.serializers, self.ids[label], reply.items[0], reply.srv_us)

    def alter_operation(self, action: AdminAction, state: str, *labels: str) -> Alter:
        return Alter(action, tuple(self.ids.get(label, label) for label in labels), state, **self.identity())

    def alter(self, action: AdminAction, state: str, *labels: str) -> tuple[Altered, ...]:
        """What came of it, sent once."""
        reply = self.run(self.alter_operation(action, state, *labels))
        assert reply.result == "done"
        return reply.items

    def clean_operation(
        self, state: str, older_than_ms: int = 0, *, era: Era | None = None, offset: int = 0, most: int = 1000
    ) -> Clean:
        return Clean(state, older_than_ms, era, offset, 500, most, **self.identity())

    def keep_events(self, keep: int = 100) -> Self:
        return self.did(SetEvents(keep, **self.identity()))

    def bury(self, *labels: str) -> list[Lease]:
        """Let these jobs die, which wait now; their leases."""
        found = self.take("g", 100)
        assert set(found) == set(labels)
        self.run(Bury(tuple(Failure(found[label].lease, f"{label} is bad") for label in labels)))
        return [found[label].lease for label in labels]

    def finish_with(self, lease: Lease, data: bytes) -> list[tuple[str, str]]:
        """Finish a job with what its handler returned."""
        return list(self.run(Finish((lease,), None, (Value(0, data, 60_000, 5),))).items)

    def one_of_each(self) -> Self:
        """One job in each state, labelled with it."""
        self.put("dead").bury("dead")
        assert self.finish(self.put("finished").take()["finished"].lease) == [("ok", "finished")]
        self.put("active").take()
        return self.put("delayed", delay_ms=5_000).put("waiting")

    def wakes(self) -> int:
        """Take the markers that wake idle workers; how many there were."""
        keys = [*self.redis.scan_iter(f"{self.keys.prefix}wake*")]
        count = sum(self.redis.llen(key) for key in keys)  # type: ignore[misc]
        if keys:
            self.redis.delete(*keys)
        return count

    def wire(self) -> dict[str, Any]:
        """The dump without the engine's own keys: what foreign clients see of the queue. What the queues of a Mosquito keyspace
        share does not count: the registry of workers, and how long jobs of a name took."""
        shared = r":ironclaim:|^mosquito:(overseers$|overseer:|executor:|job:.*:duration$)"
        return {key: value for key, value in self.dump().items() if not re.search(shared, key)}


@contextmanager
def about(what: str) -> Iterator[None]:
    """Who fails says which case it was."""
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise


def label_of(job: LeasedJob) -> str:
    return json.loads(job.payload)["label"]
