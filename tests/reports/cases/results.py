"""Cases of J23 (results stay with their jobs)."""

from typing import Any

from tests.reports.cases.base import W1, W3
from tests.reports.cases.base import case_in_scenario as case
from tests.reports.cases.base import told_in_scenario as told
from tests.reports.story import Story, Token

#: For how long results are kept in the run of these cases.
RETENTION_MS = 10_000


def handled(story: Story, job: str, *, returned: int | None = 1, at: float = 46.0, worker: str = W1) -> Token:
    """A job that was handled, and whose finish is still to come, at 46.1 s."""
    token = story.leased(worker, job, at, enqueued=at - 0.1)
    story.start(token, at + 0.01, took=0.04)
    story.effect(token, at + 0.05, **({} if returned is None else {"result_crc": returned}))
    return token


def finished(story: Story, job: str, sent: int | None = 1, **read: Any) -> None:
    """A job whose finish has sent this, and a caller that reads it."""
    more: dict[str, Any] = {} if sent is None else {"result_crc": sent}
    story.end("finish", handled(story, job), at=46.1, **more)
    if read:
        story.read(job, 47.0, **read)


told("result-that-a-caller-gets", lambda story, job: finished(story, job, result_crc=1))
told("result-of-another-job", lambda story, job: finished(story, job, result_crc=2), ("J23", "wrong result"))
CHANGED, LOST = ("J23", "result changed"), ("J23", "result lost")
told("worker-that-sends-the-result-of-another-job", lambda story, job: finished(story, job, 2, result_crc=2), CHANGED)
told("worker-that-sends-no-result", lambda story, job: finished(story, job, None), ("J23", "result not sent"))
told("caller-that-gets-no-value-of-a-finished-job", lambda story, job: finished(story, job, result="finished"), LOST)
told("caller-that-hears-of-no-end", lambda story, job: finished(story, job, result=None), LOST)


@case()
def result_that_its_server_has_kept_for_as_long_as_it_must(story: Story, job: str) -> None:
    """It was kept from 46.1 s on; the worker heard of that 3 s later."""
    token = handled(story, job)
    story.operation(W1, "finish", 46.1, [token.item(result="ok", outcome="finished", result_crc=1)], took=3.0)
    story.read(job, 46.2 + RETENTION_MS / 1_000)


@case()
def caller_that_asks_too_early(story: Story, job: str) -> None:
    token = handled(story, job)
    story.read(job, 46.06, result=None)
    story.end("finish", token, at=46.1, result_crc=1)


@case()
def handler_that_returned_nothing(story: Story, job: str) -> None:
    story.end("finish", handled(story, job, returned=None), at=46.1)
    story.read(job, 47.0)


@case()
def result_of_a_finish_that_was_not_answered(story: Story, job: str) -> None:
    story.end("finish", handled(story, job), at=46.1, reply=None, result_crc=1)
    story.read(job, 47.0, result_crc=1)


@case(("J23", "wrong result"))
def result_of_a_refused_finish(story: Story, job: str) -> None:
    zombie = handled(story, job, at=42.0, worker=W3)
    story.reap(W1, zombie, 51.1)
    again = story.claim(W1, job, 51.2)
    story.start(again, 51.21, took=0.04)
    story.effect(again, 51.25, result_crc=2)
    story.end("finish", again, at=51.3, result_crc=2)
    story.end("finish", zombie, at=51.4, result="stale", result_crc=1)
    story.read(job, 52.0, result_crc=1)


@case()
def result_of_the_run_that_counts(story: Story, job: str) -> None:
    story.end("retry", handled(story, job), at=46.1, delay_ms=0)
    again = story.claim(W3, job, 46.2)
    story.effect(again, 46.3, result_crc=2)
    story.end("finish", again, at=46.4, result_crc=2)
    story.read(job, 47.0, result_crc=2)
