"""dramatiq with its 8 threads; when tuned, it fetches more messages at once."""

from __future__ import annotations

import os
import time

import recording

os.environ.update({"dramatiq_queue_prefetch": str(recording.SETTINGS["prefetch"])} if "prefetch" in recording.SETTINGS else {})

import dramatiq
from dramatiq.brokers.redis import RedisBroker

ORDER = recording.ORDER
broker = RedisBroker(host=ORDER["host"], port=ORDER["port"])
dramatiq.set_broker(broker)
job = dramatiq.actor(recording.job, queue_name=ORDER["queue"])

if ORDER["role"] == "work":
    dramatiq.Worker(broker, worker_threads=8).start()
    while True:
        time.sleep(3600)
else:
    recording.produce(lambda number: job.send(number, recording.PAYLOAD))
