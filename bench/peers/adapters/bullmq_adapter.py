"""BullMQ's Python library: one job at once by default."""

from __future__ import annotations

import asyncio

import recording
from bullmq import Queue, Worker

ORDER = recording.ORDER
OPTIONS = {"removeOnComplete": True}


def data_of(number: int) -> dict[str, object]:
    return {"number": number, **recording.PAYLOAD}


async def process(job: object, token: str) -> None:
    await recording.job_async(job.data["number"], job.data)


async def main() -> None:
    if ORDER["role"] == "work":
        Worker(ORDER["queue"], process, {"connection": ORDER["url"], **recording.SETTINGS})
        await asyncio.Event().wait()
    queue = Queue(ORDER["queue"], {"connection": ORDER["url"]})
    await recording.produce_async(
        lambda number: queue.add("job", data_of(number), OPTIONS),
        lambda numbers: queue.addBulk([{"name": "job", "data": data_of(number), "opts": OPTIONS} for number in numbers]),
    )
    await queue.close()


recording.run(main())
