"""taskiq with its list or its stream broker, without results; the worker is the library's own command."""

from __future__ import annotations

import os
import sys

import recording
from taskiq_redis import ListQueueBroker, RedisStreamBroker

ORDER = recording.ORDER
broker = (
    ListQueueBroker(ORDER["url"], queue_name=ORDER["queue"])
    if recording.SETTINGS["kind"] == "list"
    else RedisStreamBroker(ORDER["url"], queue_name=ORDER["queue"], consumer_id="0")
)
job = broker.task(task_name="job")(recording.job_async)


async def produce() -> None:
    await broker.startup()
    await recording.produce_async(lambda number: job.kiq(number, recording.PAYLOAD))


if __name__ == "__main__":
    if ORDER["role"] == "work":
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        command = ["-m", "taskiq", "worker", "taskiq_adapter:broker", "--workers", "1", "--log-level", "ERROR"]
        os.execv(sys.executable, [sys.executable, *command, *recording.SETTINGS["arguments"]])  # noqa: S606  the worker is this program
    else:
        recording.run(produce())
