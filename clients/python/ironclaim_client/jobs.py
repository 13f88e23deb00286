"""The job API: what is asked for each call, and what its answer says; see the server's `GET
/openapi.json`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ironclaim_client import checks
from ironclaim_client.errors import (
    InvalidArgument,
    JobFailed,
    NotPermitted,
    Refused,
    UnexpectedReply,
    refused,
)
from ironclaim_client.replies import Reply, member, object_of, reading
from ironclaim_client.retrying import Call
from ironclaim_client.values import Enqueued, NewJob, Result

#: As many as the server takes in one request.
JOBS_MAX = 1_000


class Jobs:
    """The calls of one queue."""

    def __init__(self, queue: str) -> None:
        self.path = f"/api/queues/{checks.segment('queue', queue)}/jobs"

    def enqueue(
        self, name: str, payload: object, id: str | None, key: str | None, options: Mapping[str, Any]
    ) -> Call:
        """The key of a call is its own unless one is given: a repetition after a lost reply finds the job
        that it has made."""
        if key is not None and id is not None:
            raise InvalidArgument(
                "idempotency_key", key, "left out where an id is given, which is the key then"
            )
        body = checks.json_bytes("payload", body_of(name, payload, id, options))
        return Call(
            method="POST",
            path=self.path,
            body=body,
            headers={} if id is not None else key_header(key),
            changes=True,
        )

    def enqueue_many(self, jobs: Sequence[NewJob], key: str | None) -> Call:
        """Jobs without an id get theirs from the key of the call, and so are found by a repetition after a
        lost reply."""
        checks.whole("jobs", len(jobs), 1, JOBS_MAX)
        bodies = [body_of(job.name, job.payload, job.id, job.options) for job in jobs]
        body = checks.json_bytes("jobs", {"jobs": bodies})
        return Call(
            method="POST", path=f"{self.path}/batch", body=body, headers=key_header(key), changes=True
        )

    def job(self, id: str) -> Call:
        """A look at a job."""
        return Call(method="GET", path=f"{self.path}/{checks.segment('id', id)}")

    def result(self, id: str, wait_ms: int) -> Call:
        """A look at how a job stands, answered once it has ended or the time is over."""
        params = {"wait_ms": str(wait_ms)} if wait_ms else {}
        return Call(
            method="GET",
            path=f"{self.path}/{checks.segment('id', id)}/result",
            params=params,
            wait_ms=wait_ms,
        )

    def cancel(self, id: str) -> Call:
        """A job that is cancelled twice is cancelled."""
        return Call(method="POST", path=f"{self.path}/{checks.segment('id', id)}/cancel", changes=True)

    def requeue(self, id: str) -> Call:
        """A repetition could find the job dead again and requeue it once more, so there is none."""
        return Call(
            method="POST", path=f"{self.path}/{checks.segment('id', id)}/requeue", changes=True, once=True
        )


def key_header(key: str | None) -> dict[str, str]:
    """The header with a key, by default one that nobody else makes."""
    return {"Idempotency-Key": uuid.uuid4().hex if key is None else checks.header("idempotency_key", key)}


def body_of(name: str, payload: object, id: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A job as JSON has it. Options that are None are left to the server."""
    checks.named("name", name)
    taken = {"name", "payload", "id"} & options.keys()
    if taken:
        raise InvalidArgument(
            "options", sorted(taken)[0], "options of a job; name, payload and id are given beside them"
        )
    given = {option: value for option, value in options.items() if value is not None}
    return {"name": name, "payload": payload, **({} if id is None else {"id": id}), **given}


def enqueued(reply: Reply) -> Enqueued:
    """What came of a job. Raises OutcomeUnknown where the reply does not say."""
    with reading(reply.call):
        return _enqueued(reply.body)


def enqueued_many(reply: Reply, count: int) -> list[Enqueued | Refused]:
    """What came of each, in their order. Raises OutcomeUnknown where the reply does not say."""
    with reading(reply.call):
        items: list[Any] = reply.member("jobs", list)
        if len(items) != count:
            raise UnexpectedReply(f"the reply tells of {len(items)} jobs, {count} were sent")
        return [_one_of_many(item) for item in items]


def _enqueued(body: object) -> Enqueued:
    return Enqueued(member(body, "id", str), member(body, "created", bool))


def _one_of_many(item: Any) -> Enqueued | Refused:
    if "problem" in object_of(item):
        problem: dict[str, Any] = member(item, "problem", dict)
        status = problem.get("status")
        return refused(status if isinstance(status, int) else 422, problem)
    return _enqueued(item)


def result(id: str, reply: Reply) -> Result:
    """How the job stands; the server answers 202 for one that has not ended."""
    body = object_of(reply.body)
    return Result(
        id,
        reply.member("state", str),
        reply.status == 200,
        value=body.get("result"),
        error=str(body.get("error") or ""),
        ended_ms=body.get("ended_ms") or 0,
        took_ms=body.get("took_ms"),
        hidden=bool(body.get("hidden")),
    )


def value_of(found: Result) -> Any:
    """What the handler of a job that has ended has returned. Raises JobFailed where it has not, and
    NotPermitted where the token may not see it."""
    if found.state != "finished":
        raise JobFailed(found.id, found.state, found.error)
    if found.hidden:
        raise NotPermitted(
            403, {"detail": f"the job {found.id} has finished, and this token may not see its result"}
        )
    return found.value


def is_cancelled(error: Refused) -> bool:
    """Whether a job was not cancelled because it is already, as by a call whose reply was lost."""
    return error.status == 409 and error.problem.get("state") == "cancelled"
