"""arq: ten jobs at once and a poll each half second by default; a poll each 5 ms when tuned."""

from __future__ import annotations

import asyncio

import recording
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

ORDER = recording.ORDER
SERVER = RedisSettings(host=ORDER["host"], port=ORDER["port"])


async def job(context: dict[str, object], number: int, payload: dict[str, object]) -> None:
    await recording.job_async(number, payload)


async def produce() -> None:
    pool = await create_pool(SERVER, default_queue_name=ORDER["queue"])
    await recording.produce_async(lambda number: pool.enqueue_job("job", number, recording.PAYLOAD))


if ORDER["role"] == "work":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker([func(job, name="job")], queue_name=ORDER["queue"], redis_settings=SERVER, **recording.SETTINGS).run()
else:
    recording.run(produce())
