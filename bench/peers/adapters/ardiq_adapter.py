"""ardiq: its loop and its connections are written in Rust."""

from __future__ import annotations

import recording
from ardiq import Ardiq

ORDER = recording.ORDER
app = Ardiq(redis_url=ORDER["url"], queue_name=ORDER["queue"], **recording.SETTINGS)


@app.task
async def job(number: int, payload: dict[str, object]) -> None:
    await recording.job_async(number, payload)


async def main() -> None:
    if ORDER["role"] == "work":
        await app.run()
        return
    await recording.produce_async(
        lambda number: job.enqueue(number, recording.PAYLOAD),
        lambda numbers: app.enqueue_many([job.prepare(number, recording.PAYLOAD) for number in numbers]),
    )


recording.run(main())
