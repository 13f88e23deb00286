"""What a job says of other queues, held against the queues of whoever makes it: the job itself is carried out by a worker, which
knows of no token. So what leads out of the caller's queues is refused when the job comes in, and nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from starlette.requests import Request

from engine.http.opening import queue_of
from engine.http.problems import Problem
from engine.http.security.access import access_of, noted
from engine.ops.jobs import reroute_place

#: Options that are jobs themselves, with options of their own.
CALLBACKS = ("on_success", "on_failure")


def refuse_reroutes(request: Request, field: str, given: object) -> None:
    """Raise Problem where `reroute_on`, as a caller has sent it, names a queue that the caller does not reach. What is no mapping
    of texts is left to the check of the option."""
    if isinstance(given, Mapping):
        _refuse(request, field, cast("Mapping[Any, Any]", given).items())


def refuse_shared(request: Request, of: str, id: object, options: Mapping[str, Any]) -> None:
    """Raise Problem for an id, or a text of `dedup`, that the format would hold against the jobs of all queues, where
    the caller does not reach all of them: a job of another queue would then count as a duplicate."""
    access = access_of(request)
    if access.queues and request.app.state.settings.shares_ids:
        for field, value in (("id", id), ("dedup", options.get("dedup"))):
            if value not in (None, ""):
                noted(request, refused=f"{of}{field} is of all queues in this format")
                own = ", ".join(access.queues)
                detail = f"{of}{field}: in this format it is of all queues, and {access.name} is for {own} alone."
                bound = f"left out by who is for some queues alone: {own}"
                raise Problem(403, detail, field=f"{of}{field}", value=str(value)[:80], bound=bound)


async def refuse_schedule(request: Request) -> None:
    """Raise Problem where the jobs of the schedule that the path names lead to a queue that the caller does not reach."""
    if access_of(request).queues:
        name = request.path_params["schedule"]
        found = await queue_of(request).schedules.get(name)
        if found is not None:
            # A schedule stores no callbacks.
            _refuse(request, f"schedule {name}: reroute_on", found.options.reroute_on)


def _refuse(request: Request, field: str, reroutes: Iterable[tuple[Any, Any]]) -> None:
    access = access_of(request)
    for _, target in reroutes:
        queue = reroute_place(target)[0] if isinstance(target, str) else ""
        if queue and not access.reaches(queue):
            noted(request, refused=f"{field} leads to the queue {queue[:128]}")
            own = ", ".join(access.queues)
            detail = f"{field}: {target[:80]} leads to the queue {queue[:80]}, and {access.name} is for {own} alone."
            raise Problem(403, detail, field=field, value=target[:80], bound=f"a queue that {access.name} is for: {own}")
