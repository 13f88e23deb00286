"""The jobs of one queue."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from ironclaim_client import checks, jobs
from ironclaim_client.asynchronous.transport import AsyncTransport
from ironclaim_client.errors import Refused, ServerUnavailable, TimedOut
from ironclaim_client.jobs import Jobs
from ironclaim_client.values import Enqueued, NewJob, Result


class AsyncQueue:
    """A queue of the server. Every method raises InvalidArgument before anything is sent, Refused with the
    server's reason, ServerUnavailable when nothing was done, and OutcomeUnknown when that cannot be said.
    Cancelling a call closes its connection.
    """

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self.name = name
        self._calls = Jobs(name)
        self._transport = transport

    async def enqueue(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Enqueued:
        """Put one job into the queue; it is there once, however often the network makes the client send it.

        `options` are those of the server's engine: priority, delay_ms, attempts, key and so on. With an `id`
        or an `idempotency_key` of your own the same call may be made again after OutcomeUnknown: the job is
        there once.
        """
        reply = await self._transport.send(self._calls.enqueue(name, payload, id, idempotency_key, options))
        return jobs.enqueued(reply)

    async def enqueue_many(
        self, new_jobs: Iterable[NewJob], *, idempotency_key: str | None = None
    ) -> list[Enqueued | Refused]:
        """Put up to 1,000 jobs into the queue, each there once; what came of each, in their order. Raises
        Refused where one of them is malformed: then none is there."""
        listed = list(new_jobs)
        reply = await self._transport.send(self._calls.enqueue_many(listed, idempotency_key))
        return jobs.enqueued_many(reply, len(listed))

    async def job(self, id: str) -> dict[str, Any]:
        """A job as the server describes it. Raises NotFound."""
        reply = await self._transport.send(self._calls.job(id))
        reply.member("id", str)
        return reply.body

    async def result(self, id: str, *, wait_ms: int | timedelta = 0) -> Result:
        """How a job stands; with `wait_ms` (at most 60,000) as soon as it has ended, or after that time.
        Raises NotFound."""
        wait = checks.duration_ms("wait_ms", wait_ms, checks.POLL_MS_MAX)
        return jobs.result(id, await self._transport.send(self._calls.result(id, wait)))

    async def wait(self, id: str, *, timeout_ms: int | timedelta = 60_000) -> Any:
        """What the handler of a job has returned, once it has. A server that is away is waited for too.

        Raises JobFailed, TimedOut, NotFound, NotPermitted where the token may not see the result, and
        ServerUnavailable when the server is away at the end, up to `deadline_ms` later.
        """
        retries = self._transport.retries
        end_s = time.monotonic() + checks.duration_ms("timeout_ms", timeout_ms, checks.WAIT_MS_MAX) / 1_000
        failures = 0
        while True:
            began_s = time.monotonic()
            poll_ms = max(0, min(retries.poll_ms, round((end_s - began_s) * 1_000)))
            try:
                found = await self.result(id, wait_ms=poll_ms)
            except ServerUnavailable:
                if time.monotonic() >= end_s:
                    raise
            else:
                if found.ended:
                    return jobs.value_of(found)
                if time.monotonic() >= end_s:
                    raise TimedOut(f"job {id} is {found.state}")
            # A server that is away, or that does not wait, is not asked again at once.
            early = (time.monotonic() - began_s) * 1_000 < poll_ms / 2
            failures = failures + 1 if early else 0
            if failures:
                await asyncio.sleep(retries.pause_ms(failures, random.random()) / 1_000)

    async def call(
        self, name: str, payload: object = None, *, timeout_ms: int | timedelta = 60_000, **options: Any
    ) -> Any:
        """Enqueue a job and wait for what its handler returns. Raises as both do."""
        checks.duration_ms("timeout_ms", timeout_ms, checks.WAIT_MS_MAX)
        return await self.wait((await self.enqueue(name, payload, **options)).id, timeout_ms=timeout_ms)

    async def cancel(self, id: str) -> None:
        """Cancel a job; one that is cancelled already stays so. Raises NotFound, and Refused for one that has
        ended otherwise."""
        try:
            await self._transport.send(self._calls.cancel(id))
        except Refused as error:
            if not jobs.is_cancelled(error):
                raise

    async def requeue(self, id: str) -> None:
        """Let a dead job run again. It is sent once: after OutcomeUnknown, look at the job. Raises NotFound,
        and Refused for one that is not dead."""
        await self._transport.send(self._calls.requeue(id))
