"""Handlers whose ends are looked for in a history, and one that tells its queue."""

from engine import Handlers, Job

handlers = Handlers()


@handlers("queue")
def queue_of(job: Job) -> str:
    return job.queue


@handlers("one")
def one(job: Job) -> int:
    if job.payload == 7:
        raise ValueError("seven")
    return job.payload


@handlers("many", batch=10)
def many(jobs: list[Job]) -> None:
    assert jobs
