"""huey with one worker thread; it keeps nothing of a job that runs."""

from __future__ import annotations

import logging

import recording
from huey import RedisHuey

ORDER = recording.ORDER
huey = RedisHuey(ORDER["queue"], host=ORDER["host"], port=ORDER["port"], results=False)
job = huey.task(name="job")(recording.job)

if ORDER["role"] == "work":
    logging.getLogger("huey").setLevel(logging.ERROR)
    huey.create_consumer(workers=1, periodic=False).run()
else:
    recording.produce(lambda number: job(number, recording.PAYLOAD))
