"""Answers of the server: which ones count, which ones are problems, and what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

from ironclaim_client.errors import UnexpectedReply, refused
from ironclaim_client.retrying import TEMPORARY, Failure

#: What a server may ask for at most; a longer wait is for the caller to decide on.
RETRY_AFTER_MS_MAX = 60_000
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that counts: its status, and its body as JSON, None without one."""

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


def judged(response: httpx.Response) -> Reply | Failure:
    """What an answer is: a Reply, or a Failure after which the call may be sent again. Raises Refused and UnexpectedReply."""
    status, problem = response.status_code, _problem(response)
    if status in TEMPORARY or (status >= 500 and "retry-after" in response.headers):
        # A gateway says 503 too, but does not know what the server has done; the server's own answer is a problem.
        undone = status == 429 or (status == 503 and problem is not None)
        why = str((problem or {}).get("detail") or response.reason_phrase)
        return Failure(f"{status} {why}", undone, _retry_after_ms(response))
    if status >= 400:
        raise refused(status, problem or {})
    if not 200 <= status < 300:
        raise UnexpectedReply(f"the server sends elsewhere ({status}); only the address that was given is asked")
    try:
        return Reply(status, json.loads(response.content) if response.content else None)
    except ValueError:
        raise UnexpectedReply(f"the reply is no JSON but {response.headers.get('content-type', 'something')}") from None


def of_error(error: httpx.TransportError) -> Failure:
    """What it means that no answer came."""
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
    return Failure(str(error) or type(error).__name__, never_sent)


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    """The members of a body that is a problem. DSPS's own answers are objects with `code` and `error`, as plain JSON."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if response.status_code < 400 or kind not in (PROBLEM, "application/json"):
        return None
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    return object_of(body) or None


def _retry_after_ms(response: httpx.Response) -> int:
    """Seconds in the header, as ms; dates are not read, since clocks differ."""
    try:
        wanted_s = float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0
    return min(RETRY_AFTER_MS_MAX, round(wanted_s * 1_000)) if math.isfinite(wanted_s) and wanted_s > 0 else 0
