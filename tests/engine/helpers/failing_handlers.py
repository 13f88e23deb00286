"""Handlers that say how their runs end, one of each way to run one; at module level, so that child processes find them."""

import asyncio
import threading
from typing import Any

from engine import BatchFailed, Bury, Discard, Handlers, Job, RetryLater

handlers = Handlers()
NAMES = {"thread": "plain", "inline": "inline", "coroutine": "coroutine", "process": "plain"}


def say(job: Job) -> None:
    if job.payload == "later" and job.claims < 3:
        raise RetryLater(1, charge=False)
    if job.payload == "bury":
        raise Bury("this will never work")
    if job.payload == "discard":
        raise Discard


handlers("plain")(say)
handlers("inline", inline=True)(say)


@handlers("coroutine")
async def coroutine(job: Job) -> None:
    say(job)


# -- with rules of what is retried


def is_key_error(failure: BaseException) -> bool:
    return isinstance(failure, KeyError)


def is_transient(failure: BaseException) -> bool:
    return "transient" in str(failure)


ruled = Handlers(bury_on=ValueError)
_RULES: Any = {"retry_on": (ConnectionError, is_transient), "bury_on": is_key_error}


def fail(job: Job) -> None:
    kinds = {"ValueError": ValueError, "KeyError": KeyError, "ConnectionError": ConnectionResetError, "TypeError": TypeError}
    raise kinds.get(job.payload, RuntimeError)("transient" if job.payload == "transient" else "no")


def fail_all(jobs: list[Job]) -> None:
    failures: dict[str, BaseException | str] = {}
    for job in jobs:
        try:
            fail(job)
        except Exception as failure:
            failures[job.id] = failure
    raise BatchFailed(failures)


#: Ends the sleep of a plain handler, which nobody can interrupt in a thread.
woken = threading.Event()


@ruled("plain", **_RULES)
def ruled_plain(job: Job) -> None:
    woken.wait(120) if job.payload == "sleep" else fail(job)


ruled("inline", inline=True, **_RULES)(fail)


@ruled("coroutine", **_RULES)
async def ruled_coroutine(job: Job) -> None:
    if job.payload == "sleep":
        await asyncio.sleep(60)
    else:
        fail(job)


ruled("plains", batch=9, **_RULES)(fail_all)
ruled("inlines", inline=True, batch=9, **_RULES)(fail_all)


@ruled("coroutines", batch=9, **_RULES)
async def ruled_coroutines(jobs: list[Job]) -> None:
    fail_all(jobs)


def nothing() -> None: ...
