"""Celery without results: two processes by default, the solo pool without gossip, mingle and heartbeat when tuned."""

from __future__ import annotations

import recording
from celery import Celery

ORDER = recording.ORDER
app = Celery(ORDER["queue"], broker=ORDER["url"])
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)
job = app.task(name="job", ignore_result=True)(recording.job)

if ORDER["role"] == "work":
    app.worker_main(["worker", "--loglevel=ERROR", *recording.SETTINGS["arguments"]])
else:
    recording.produce(lambda number: job.delay(number, recording.PAYLOAD))
