"""saq: ten jobs at once; a job that a killed worker held is given up unless it asks for retries."""

from __future__ import annotations

import recording
from saq import Queue, Worker

ORDER = recording.ORDER


async def job(context: object, *, number: int, payload: dict[str, object]) -> None:
    await recording.job_async(number, payload)


async def main() -> None:
    queue = Queue.from_url(ORDER["url"], name=ORDER["queue"])
    await queue.connect()
    if ORDER["role"] == "work":
        await Worker(queue, [("job", job)], **recording.SETTINGS).start()
    else:
        await recording.produce_async(lambda number: queue.enqueue("job", number=number, payload=recording.PAYLOAD))


recording.run(main())
