"""Handlers that say how their runs end, one of each way to run one; at module level, so that child processes find them."""

from __future__ import annotations

from engine import Bury, Discard, Handlers, Job, RetryLater

handlers = Handlers()
NAMES = {"thread": "plain", "inline": "inline", "coroutine": "coroutine", "process": "plain"}


def say(job: Job) -> None:
    if job.payload == "later" and job.claims < 3:
        raise RetryLater(1, charge=False)
    if job.payload == "bury":
        raise Bury("this will never work")
    if job.payload == "discard":
        raise Discard


@handlers("plain")
def plain(job: Job) -> None:
    say(job)


@handlers("inline", inline=True)
def inline(job: Job) -> None:
    say(job)


@handlers("coroutine")
async def coroutine(job: Job) -> None:
    say(job)
