"""What can go wrong, one class for each thing that a caller would do differently about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """The root of all of them."""


class InvalidArgument(ClientError, ValueError):
    """An argument is wrong, and nothing was sent. `field`, `value` and `bound` say which and what it must
    be. The message has the type and the length of what is no number, because urls, tokens and payloads may be
    secret, and errors are logged."""

    def __init__(self, field: str, value: object, bound: str) -> None:
        super().__init__(f"{field}: {_outlined(value)} must be {bound}")
        self.field, self.value, self.bound = field, value, bound


def _outlined(value: object) -> str:
    if value is None or type(value) in (bool, int, float):
        return repr(value)[:80]
    name = type(value).__name__
    size = f" of length {len(value)}" if isinstance(value, str | bytes) else ""
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}{size}"


class Refused(ClientError):
    """The server has understood the request and does not carry it out: its answer, by the members of RFC
    9457.

    `field`, `value` and `bound` name what is wrong in the request, where something is; `code` is the word by
    which a channel's server names the reason, '' without one.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        def text(name: str) -> str:
            found = problem.get(name)
            return found if isinstance(found, str) else ""

        self.status, self.problem = status, dict(problem)
        self.title, self.detail, self.code = text("title"), text("detail"), text("code")
        self.field, self.bound = text("field"), text("bound")
        self.value: Any = problem.get("value")
        super().__init__(f"{status}: {self.detail or self.title or text('error') or 'refused'}")


class NotPermitted(Refused):
    """The token is missing, is not known, or may not do this (401, 403)."""


class NotFound(Refused):
    """There is no such queue, job, channel or subscriber, or the token may not know of it (404)."""


class UnexpectedReply(ClientError):
    """What answered does not speak the protocol: to a call that only looks a proxy's page, or a body that is
    no JSON; to any call a redirection, which is not followed, so that nothing was done."""


class ServerUnavailable(ClientError):
    """The server could not be reached in time, or said that it cannot serve now. Nothing was done."""


class OutcomeUnknown(ClientError):
    """The request may have been carried out: its reply was lost, and so were those of its repetitions; or
    what came in its place tells nothing, such as a gateway's page, a failure of the server, or a body that is
    no JSON."""


class JobFailed(ClientError):
    """The job that was waited for has ended without a result; `state` is dead, cancelled, discarded,
    skipped or expired, `error` what it died of."""

    def __init__(self, id: str, state: str, error: str) -> None:
        super().__init__(f"job {id} is {state}" + (f": {error}" if error else ""))
        self.id, self.state, self.error = id, state, error


class TimedOut(ClientError, TimeoutError):
    """The job that was waited for has not ended in time; it goes on."""


def refused(status: int, problem: Mapping[str, Any]) -> Refused:
    """The error of an answer that refuses."""
    kind = NotFound if status == 404 else NotPermitted if status in (401, 403) else Refused
    return kind(status, problem)
