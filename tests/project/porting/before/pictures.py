"""Pictures, with RQ: `rq worker --with-scheduler pictures mails` in one shell, `python pictures.py` in another."""

import os
import time
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry, get_current_job
from rq.job import Job

connection = Redis.from_url(os.environ["REDIS_URL"])
pictures = Queue("pictures", connection=connection)
mails = Queue("mails", connection=connection)


def resize(name, width):
    job = get_current_job()
    job.meta["stage"] = f"resized {name} to {width}"
    job.save_meta()
    return width * 3


def sheet():
    parents = get_current_job().dependency_ids
    return sum(Job.fetch(id, connection=connection).return_value() for id in parents)


def upload(name):
    tries = connection.incr(f"tries:{name}")
    if tries < 3:
        raise OSError("no route")
    return tries


def check(name):
    raise ValueError(f"{name} is no picture")


def send(to):
    connection.rpush("sent", to)


def outcome(job, timeout=120):
    result = job.latest_result(timeout=timeout)
    return result.return_value if result.type == result.Type.SUCCESSFUL else result.exc_string.splitlines()[-1]


def main():
    small = pictures.enqueue(resize, "cat", 100, job_id="cat-100", result_ttl=600)
    large = pictures.enqueue(resize, "cat", width=200, job_id="cat-200", job_timeout=30)
    both = pictures.enqueue(sheet, depends_on=[small, large])
    print("large:", outcome(large), "-", large.get_meta()["stage"])
    print("sheet:", outcome(both))
    retried = pictures.enqueue(upload, "cat", retry=Retry(max=2))
    while retried.get_status() not in ("finished", "failed"):
        time.sleep(0.05)
    print("uploaded at try", retried.return_value())
    bad = pictures.enqueue(check, "dog.txt", job_id="dog")
    print("check:", outcome(bad))
    print("failed:", [job.rsplit(":")[-1] for job in pictures.failed_job_registry.get_job_ids()])
    later = mails.enqueue_in(timedelta(seconds=1), send, "ada")
    never = mails.enqueue_in(timedelta(hours=1), send, "bob")
    never.cancel()
    outcome(later)
    print(
        "sent:", [to.decode() for to in connection.lrange("sent", 0, -1)], "- cancelled:", never.get_status().value == "canceled"
    )


if __name__ == "__main__":
    import pictures  # RQ's workers look for the functions in the module of this name, not in __main__.

    pictures.main()
