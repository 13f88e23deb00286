"""RQ: a process for each job by default, all in the worker's own process when tuned."""

from __future__ import annotations

import recording
from redis import Redis
from rq import Queue, SimpleWorker, Worker

ORDER = recording.ORDER
connection = Redis(host=ORDER["host"], port=ORDER["port"])
queue = Queue(ORDER["queue"], connection=connection)

if ORDER["role"] == "work":
    kind = SimpleWorker if recording.SETTINGS.get("simple") else Worker
    kind([queue], connection=connection).work(logging_level="ERROR")
else:
    recording.produce(
        lambda number: queue.enqueue(recording.job, number, recording.PAYLOAD),
        lambda numbers: queue.enqueue_many(
            [Queue.prepare_data(recording.job, (number, recording.PAYLOAD)) for number in numbers]
        ),
    )
