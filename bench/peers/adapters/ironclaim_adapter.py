"""This engine: handlers in threads by default, in the worker's own thread when tuned."""

from __future__ import annotations

import recording

from engine import AsyncQueue, Handlers, Queue, Worker

ORDER = recording.ORDER


def _new(numbers: list[int]) -> list[dict[str, object]]:
    return [{"name": "job", "payload": {"number": number, **recording.PAYLOAD}} for number in numbers]


async def _produce_async() -> None:
    async with AsyncQueue(ORDER["queue"], url=ORDER["url"]) as queue:
        await recording.produce_async(lambda number: queue.enqueue("job", {"number": number, **recording.PAYLOAD}))


def _produce() -> None:
    with Queue(ORDER["queue"], url=ORDER["url"]) as queue:
        recording.produce(
            lambda number: queue.enqueue("job", {"number": number, **recording.PAYLOAD}),
            lambda numbers: queue.enqueue_many(_new(numbers)),
        )


def _work() -> None:
    handlers = Handlers()
    handlers("job", **recording.SETTINGS)(lambda job: recording.job(job.payload["number"], job.payload))
    Worker(Queue(ORDER["queue"], url=ORDER["url"]), handlers).run()


if ORDER["role"] == "work":
    _work()
elif ORDER["way"] == "in_flight":
    recording.run(_produce_async())
else:
    _produce()
