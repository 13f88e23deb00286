"""streaq: sixteen jobs at once by default."""

from __future__ import annotations

import recording
from streaq import Worker

ORDER = recording.ORDER
worker: Worker[None] = Worker(redis_url=ORDER["url"], queue_name=ORDER["queue"], **recording.SETTINGS)


@worker.task
async def job(number: int, payload: dict[str, object]) -> None:
    await recording.job_async(number, payload)


async def enqueue(number: int) -> None:
    await job.enqueue(number, recording.PAYLOAD)


async def produce() -> None:
    async with worker:
        await recording.produce_async(
            enqueue, lambda numbers: worker.enqueue_many([job.enqueue(number, recording.PAYLOAD) for number in numbers])
        )


if ORDER["role"] == "work":
    worker.run_sync()
else:
    recording.run(produce())
