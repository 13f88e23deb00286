"""Answers of the server: which ones count, which ones are problems, and what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx

from ironclaim_client.errors import OutcomeUnknown, UnexpectedReply, refused
from ironclaim_client.retrying import Call, Failure, is_temporary

#: What a server may ask for at most; a longer wait is for the caller to decide on.
RETRY_AFTER_MS_MAX = 60_000
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that counts: the call, its status, and its body as JSON, None without one."""

    call: Call
    status: int
    body: Any

    def member(self, name: str, kind: type[Any]) -> Any:
        """A member of the object that the body is. Raises UnexpectedReply."""
        return member(self.body, name, kind)


def object_of(body: object) -> Mapping[str, Any]:
    """A body that is an object; one without members where it is something else."""
    return cast("Mapping[str, Any]", body) if isinstance(body, dict) else {}


def member(body: object, name: str, kind: type[Any]) -> Any:
    """A member of an object. Raises UnexpectedReply where it is missing or something else."""
    found = object_of(body).get(name)
    if not isinstance(found, kind):
        raise UnexpectedReply(f"the reply has no {name}")
    return found


@contextmanager
def reading(call: Call) -> Generator[None]:
    """Raise OutcomeUnknown where the reply to a call that changes something is not the one that was
    expected."""
    try:
        yield
    except UnexpectedReply as error:
        if not call.changes:
            raise
        raise OutcomeUnknown(f"{call.shown}: {error}") from error


def judged(call: Call, response: httpx.Response) -> Reply | Failure:
    """What an answer is: a Reply, or a Failure after which the call may be sent again. Raises Refused and
    UnexpectedReply."""
    status, problem = response.status_code, _problem(response)
    if is_temporary(status):
        # A gateway says 503 too, but does not know what the server has done.
        undone = status == 429 or (status == 503 and _media_type(response) == PROBLEM)
        why = str((problem or {}).get("detail") or response.reason_phrase)
        return Failure(f"{status} {why}", undone, _retry_after_ms(response))
    if status >= 400:
        raise refused(status, problem or {})
    if not 200 <= status < 300:
        raise UnexpectedReply(
            f"the server sends elsewhere ({status}); only the address that was given is asked"
        )
    try:
        return Reply(call, status, json.loads(response.content) if response.content else None)
    except (ValueError, RecursionError):
        why = f"the reply is no JSON but {response.headers.get('content-type', 'something')}"
    if call.changes:
        # The server's own reply is lost, whoever wrote this one.
        return Failure(why, undone=False)
    raise UnexpectedReply(why)


def of_error(error: httpx.RequestError) -> Failure:
    """What it means that no answer came."""
    never_sent = isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError
    )
    return Failure(str(error) or type(error).__name__, never_sent)


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    """The members of a body that is a problem. DSPS's own answers are objects with `code` and `error`, as
    plain JSON."""
    if response.status_code < 400 or _media_type(response) not in (PROBLEM, "application/json"):
        return None
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return object_of(body) or None


def _media_type(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip()


def _retry_after_ms(response: httpx.Response) -> int:
    """Seconds in the header, as ms; dates are not read, since clocks differ."""
    try:
        wanted_s = float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0
    return min(RETRY_AFTER_MS_MAX, round(wanted_s * 1_000)) if math.isfinite(wanted_s) and wanted_s > 0 else 0
