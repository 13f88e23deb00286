"""The job API: what is asked for each call, and what its answer says; see the server's `GET /openapi.json`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ironclaim_client import checks
from ironclaim_client.errors import InvalidArgument, JobFailed, Refused, UnexpectedReply, refused
from ironclaim_client.replies import Reply, member, object_of
from ironclaim_client.retrying import Call
from ironclaim_client.values import Enqueued, NewJob, Result

#: As many as the server takes in one request.
JOBS_MAX = 1_000


class Jobs:
    """The calls of one queue."""

    def __init__(self, queue: str) -> None:
        self.path = f"/api/queues/{checks.segment('queue', queue)}/jobs"

    def enqueue(self, name: str, payload: object, id: str | None, key: str | None, options: Mapping[str, Any]) -> Call:
        """The key of a call is its own unless one is given: a repetition after a lost reply finds the job that it has made."""
        if key is not None and id is not None:
            raise InvalidArgument("idempotency_key", key, "left out where an id is given, which is the key then")
        sent = {} if id is not None else {"Idempotency-Key": new_key() if key is None else checks.header("idempotency_key", key)}
        body = checks.json_bytes("payload", body_of(name, payload, id, options))
        return Call(method="POST", path=self.path, body=body, headers=sent, changes=True)

    def enqueue_many(self, jobs: Sequence[NewJob]) -> Call:
        """Jobs without an id get one here, so that a repetition after a lost reply finds them."""
        checks.whole("jobs", len(jobs), 1, JOBS_MAX)
        bodies = [body_of(job.name, job.payload, new_key() if job.id is None else job.id, job.options) for job in jobs]
        return Call(method="POST", path=f"{self.path}/batch", body=checks.json_bytes("jobs", {"jobs": bodies}), changes=True)

    def job(self, id: str) -> Call:
        """A look at a job."""
        return Call(method="GET", path=f"{self.path}/{checks.segment('id', id)}")

    def result(self, id: str, wait_ms: int) -> Call:
        """A look at how a job stands, answered once it has ended or the time is over."""
        params = {"wait_ms": str(wait_ms)} if wait_ms else {}
        return Call(method="GET", path=f"{self.path}/{checks.segment('id', id)}/result", params=params, wait_ms=wait_ms)

    def cancel(self, id: str) -> Call:
        """A job that is cancelled twice is cancelled."""
        return self._act(id, "cancel")

    def run_now(self, id: str) -> Call:
        """A job that is brought forward twice is brought forward."""
        return self._act(id, "run-now")

    def requeue(self, id: str) -> Call:
        """A repetition could find the job dead again and requeue it once more, so there is none."""
        return self._act(id, "requeue", once=True)

    def discard(self, id: str) -> Call:
        """A job that is discarded twice is discarded."""
        return self._act(id, "discard")

    def _act(self, id: str, action: str, *, once: bool = False) -> Call:
        return Call(method="POST", path=f"{self.path}/{checks.segment('id', id)}/{action}", changes=True, once=once)


def new_key() -> str:
    """A key that nobody else makes."""
    return uuid.uuid4().hex


def body_of(name: str, payload: object, id: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A job as JSON has it. Options that are None are left to the server."""
    checks.named("name", name)
    taken = {"name", "payload", "id"} & options.keys()
    if taken:
        raise InvalidArgument("options", sorted(taken)[0], "options of a job; name, payload and id are given beside them")
    given = {option: value for option, value in options.items() if value is not None}
    return {"name": name, "payload": payload, **({} if id is None else {"id": id}), **given}


def enqueued(body: object) -> Enqueued:
    """What came of a job."""
    return Enqueued(member(body, "id", str), member(body, "created", bool))


def enqueued_many(reply: Reply, count: int) -> list[Enqueued | Refused]:
    """What came of each, in their order."""
    items: list[Any] = reply.member("jobs", list)
    if len(items) != count:
        raise UnexpectedReply(f"the reply tells of {len(items)} jobs, {count} were sent")
    return [_one_of_many(item) for item in items]


def _one_of_many(item: Any) -> Enqueued | Refused:
    if "problem" in object_of(item):
        problem: dict[str, Any] = member(item, "problem", dict)
        status = problem.get("status")
        return refused(status if isinstance(status, int) else 422, problem)
    return enqueued(item)


def result(id: str, reply: Reply) -> Result:
    """How the job stands; the server answers 202 for one that has not ended."""
    body = object_of(reply.body)
    return Result(id, reply.member("state", str), reply.status == 200, body.get("result"), str(body.get("error") or ""))


def value_of(found: Result) -> Any:
    """What the handler of a job that has ended has returned. Raises JobFailed where it has not."""
    if found.state != "finished":
        raise JobFailed(found.id, found.state, found.error)
    return found.value
