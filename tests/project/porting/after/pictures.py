"""Pictures, with Ironclaim: `ironclaim worker pictures:pictures pictures:mails` in one shell, `python pictures.py` in another."""

import os
from typing import Any

from redis import Redis

from engine import Job, JobFailed, Queue

url = os.environ["REDIS_URL"]
connection = Redis.from_url(url, decode_responses=True)
pictures = Queue("pictures", url=url)
mails = Queue("mails", url=url)


@pictures.job("resize", attempts=1)
def resize(name: str, width: int) -> dict[str, Any]:
    return {"bytes": width * 3, "stage": f"resized {name} to {width}"}  # progress is gone when a job has finished


@pictures.job("sheet", attempts=1)
def sheet(job: Job) -> int:
    return sum(picture["bytes"] for picture in job.results.of(resize).values())


@pictures.job("upload", attempts=1, backoff_ms=0)
def upload(name: str) -> int:
    tries = connection.incr(f"tries:{name}")
    if tries < 3:
        raise OSError("no route")
    return tries


@pictures.job("check", attempts=1)
def check(name: str) -> None:
    raise ValueError(f"{name} is no picture")


@mails.job("send", attempts=1)
def send(to: str) -> None:
    connection.rpush("sent", to)


def outcome(queue, job, wait_ms=120_000):
    try:
        return queue.results.wait(job, wait_ms=wait_ms).get()
    except JobFailed as failed:
        return failed.error


def main():
    small = resize.with_options(id="cat-100", result_ttl_ms=600_000).new("cat", 100)
    large = resize.with_options(id="cat-200", timeout_ms=30_000).new("cat", width=200)
    both = sheet.with_options(needs=[small, large]).new()
    pictures.enqueue_many([small, large, both])
    resized = pictures.results.wait(large).get()
    print("large:", resized["bytes"], "-", resized["stage"])
    print("sheet:", outcome(pictures, both))
    retried = upload.with_options(attempts=3).enqueue("cat").job
    print("uploaded at try", outcome(pictures, retried))
    bad = check.with_options(id="dog").enqueue("dog.txt").job
    print("check:", outcome(pictures, bad))
    print("failed:", [job.id for job in pictures.dead.list()])
    later = send.with_options(delay_ms=1_000).enqueue("ada").job
    never = send.with_options(delay_ms=3_600_000).enqueue("bob").job
    cancelled = mails.jobs.cancel(never)
    outcome(mails, later)
    print("sent:", connection.lrange("sent", 0, -1), "- cancelled:", cancelled.done)


if __name__ == "__main__":
    main()
