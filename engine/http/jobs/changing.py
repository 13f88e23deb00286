"""Changes jobs that are there: cancels, lets run, discards."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.http.answers import JsonAnswer
from engine.http.bodies import json_object, only
from engine.http.describing import described
from engine.http.jobs import schemas
from engine.http.jobs.looking import unknown
from engine.http.opening import queue_of
from engine.http.problems import Problem
from engine.http.security.access import needs
from engine.ops.admin import Altered

_ANSWERS = {200: schemas.ALTERED}


@described("End a job that waits, is delayed or runs", answers=_ANSWERS)
@needs("operate", changes=True)
async def cancel(request: Request) -> Response:
    """409 where it is in another state."""
    return _answer(request, await queue_of(request).jobs.cancel(request.path_params["id"]))


@described("End the delay of a job", answers=_ANSWERS)
@needs("operate", changes=True)
async def run_now(request: Request) -> Response:
    """409 where it is not delayed."""
    return _answer(request, await queue_of(request).jobs.run_now(request.path_params["id"]))


@described("Let a dead job run again", answers=_ANSWERS)
@needs("operate", changes=True)
async def requeue(request: Request) -> Response:
    """409 where it is not dead, or another job has its unique key by now."""
    return _answer(request, await queue_of(request).dead.requeue(request.path_params["id"]))


@described("End a dead job for good", answers=_ANSWERS)
@needs("operate", changes=True)
async def discard(request: Request) -> Response:
    """409 where it is not dead."""
    return _answer(request, await queue_of(request).dead.discard(request.path_params["id"]))


@described(
    "Let dead jobs run again: all, or those that are meant",
    body=schemas.SELECTION,
    needs_body=False,
    answers={200: schemas.shown(requeued={"type": "integer"})},
)
@needs("operate", changes=True)
async def requeue_dead(request: Request) -> Response:
    """How many there were."""
    given = only(await json_object(request, may_be_empty=True), *schemas.SELECTION["properties"])
    return JsonAnswer({"requeued": await queue_of(request).dead.requeue_all(**given)})


def _answer(request: Request, altered: Altered) -> Response:
    """The answer to a change of one job. Raises Problem where it was not made."""
    if altered.done:
        return JsonAnswer({"id": altered.job, "state": altered.state})
    if altered.state == "gone":
        raise unknown(request)
    more: dict[str, Any] = {"state": altered.state} if altered.holder is None else {"holder": altered.holder}
    words = {
        "changed": f"The job is {altered.state}.",
        "held": f"The job {altered.holder} has its unique key by now.",
        "corrupt": "Nobody can read this job.",
    }
    raise Problem(409, words[altered.result], **more)
