"""The calls of Bananas' own Python SDK, for programs that were written for it: `from ironclaim_client.bananas
import Client`.

They go over HTTP to the API of Bananas below `/api/v1`, whose jobs are in Bananas' keyspace, beside its own
programs. What is different: the address is that of the server and not of Redis; how long results are kept is
set where jobs run; a job is there once even where a reply is lost; a payload comes back only from a server
that shows payloads.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any

from ironclaim_client import checks, errors
from ironclaim_client.replies import Reply, member, object_of, reading
from ironclaim_client.retrying import Call, Retries
from ironclaim_client.synchronous.transport import Transport

_PATH = "/api/v1/jobs"
_EPOCH = datetime.fromtimestamp(0, UTC)


class BananasError(Exception):
    """The root of all errors here."""


class ConnectionError(BananasError):
    """The server is away, or does not say whether it has the job."""


class InvalidJobError(BananasError):
    """The job is not accepted; the message names what is wrong."""


class SerializationError(BananasError):
    """The payload is no JSON."""


class JobStatus(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    SCHEDULED = "scheduled"


class JobPriority(StrEnum):
    """Which jobs come first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the server describes it. `updated_at` is not told, so it is `created_at`."""

    id: str
    name: str
    payload: Any
    status: JobStatus
    priority: JobPriority
    description: str
    created_at: datetime
    updated_at: datetime
    scheduled_for: datetime | None
    attempts: int
    max_retries: int
    error: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job has ended. How long it ran is not told: `duration_ms` is 0."""

    job_id: str
    status: JobStatus
    result: Any = None
    error: str = ""
    completed_at: datetime = _EPOCH
    duration_ms: int = 0

    def is_success(self) -> bool:
        """Whether it has completed."""
        return self.status == JobStatus.COMPLETED

    def is_failed(self) -> bool:
        """Whether it has failed for good."""
        return self.status == JobStatus.FAILED


class Client:
    """A server of the API. `token` is shown to it. Every method raises ConnectionError, and BananasError for
    what is refused."""

    def __init__(self, url: str, *, token: str | None = None, retries: Retries | None = None) -> None:
        with _translated():
            self._transport = Transport(url, token, retries or Retries(), None)

    def submit_job(
        self,
        name: str,
        payload: Mapping[str, Any],
        priority: JobPriority,
        description: str = "",
        routing_key: str = "",
    ) -> str:
        """Submit a job; its id. Raises InvalidJobError, SerializationError."""
        return self._submit(name, payload, priority, description, routing_key)

    def submit_job_with_route(
        self,
        name: str,
        payload: Mapping[str, Any],
        priority: JobPriority,
        routing_key: str,
        description: str = "",
    ) -> str:
        """Submit a job for the workers of a routing key; its id. Raises as `submit_job` does."""
        return self._submit(name, payload, priority, description, routing_key)

    def submit_job_scheduled(
        self,
        name: str,
        payload: Mapping[str, Any],
        priority: JobPriority,
        scheduled_for: datetime,
        description: str = "",
        routing_key: str = "",
    ) -> str:
        """Submit a job that runs at that time, which without a zone is local; its id. Raises as `submit_job`
        does."""
        due = scheduled_for.astimezone(UTC).isoformat()
        return self._submit(name, payload, priority, description, routing_key, scheduled_for=due)

    def get_job(self, job_id: str) -> Job | None:
        """A job; None for one that is not known."""
        body = self._look(job_id)
        return None if body is None else _job(body)

    def get_result(self, job_id: str) -> JobResult | None:
        """How a job has ended; None for one that has not, or is not known."""
        body = self._look(job_id)
        return None if body is None else _result(body)

    def submit_and_wait(
        self,
        name: str,
        payload: Mapping[str, Any],
        priority: JobPriority,
        timeout: timedelta = timedelta(minutes=5),
        description: str = "",
        routing_key: str = "",
    ) -> JobResult | None:
        """Submit a job and wait for how it ends; None when it has not in time. Raises as `submit_job`
        does."""
        end_s = time.monotonic() + timeout.total_seconds()
        id = self._submit(name, payload, priority, description, routing_key)
        looks = 0
        # The API has no call that waits, so it is looked at, less often the longer it takes.
        while (found := self.get_result(id)) is None and (left_s := end_s - time.monotonic()) > 0:
            looks += 1
            time.sleep(min(left_s, self._transport.retries.pause_ms(looks, random.uniform(0.5, 1)) / 1_000))
        return found

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(
        self,
        name: str,
        payload: object,
        priority: JobPriority,
        description: str,
        routing_key: str,
        **more: str,
    ) -> str:
        """The id is made here, so that a repetition after a lost reply finds the job."""
        given = {"description": description, "routing_key": routing_key, **more}
        job = {"id": str(uuid.uuid4()), "name": name, "payload": payload, "priority": priority}
        try:
            body = json.dumps(
                {**job, **{key: text for key, text in given.items() if text}}, allow_nan=False
            ).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error)) from error
        with _translated():
            reply = self._transport.send(Call(method="POST", path=_PATH, body=body, changes=True))
            with reading(reply.call):
                return reply.member("id", str)

    def _look(self, job_id: str) -> Reply | None:
        with _translated():
            try:
                return self._transport.send(
                    Call(method="GET", path=f"{_PATH}/{checks.segment('job_id', job_id)}")
                )
            except errors.NotFound:
                return None


@contextmanager
def _translated() -> Generator[None]:
    """Raise the errors of the SDK for those of the client."""
    try:
        yield
    except (errors.ServerUnavailable, errors.OutcomeUnknown) as error:
        raise ConnectionError(str(error)) from error
    except errors.InvalidArgument as error:
        raise InvalidJobError(str(error)) from error
    except errors.Refused as error:
        raise (InvalidJobError if error.status in (400, 422) else BananasError)(str(error)) from error
    except errors.ClientError as error:
        raise BananasError(str(error)) from error


def _job(reply: Reply) -> Job:
    body = object_of(reply.body)
    created = _time(body.get("created_at")) or _EPOCH
    return Job(
        id=reply.member("id", str),
        name=reply.member("name", str),
        payload=body.get("payload"),
        status=JobStatus(reply.member("status", str)),
        priority=JobPriority(reply.member("priority", str)),
        description=body.get("description") or "",
        created_at=created,
        updated_at=created,
        scheduled_for=_time(body.get("scheduled_for")),
        attempts=body.get("attempts") or 0,
        max_retries=body.get("max_retries") or 0,
        error=body.get("error") or "",
        routing_key=body.get("routing_key") or "",
    )


def _result(reply: Reply) -> JobResult | None:
    body = object_of(reply.body)
    status = member(body, "status", str)
    if status not in (JobStatus.COMPLETED, JobStatus.FAILED):
        return None
    return JobResult(
        job_id=reply.member("id", str),
        status=JobStatus(status),
        result=body.get("result"),
        error=body.get("error") or "",
        completed_at=_time(body.get("completed_at")) or _EPOCH,
    )


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None
