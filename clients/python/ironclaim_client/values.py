"""What is asked and answered, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job for `enqueue_many`. `options` are those of `enqueue`."""

    name: str
    payload: Any = None
    id: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job is there. `created` is False when it was there before: `id` is then that of the one that is
    there."""

    id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Result:
    """How a job stands, and whether it has `ended`: `value` is what its handler has returned, in the state
    `finished`, and `error` what it died of."""

    id: str
    state: str
    ended: bool
    value: Any = None
    error: str = ""
    ended_ms: int = 0
    """When, by the server's clock in ms since 1970; 0 where nobody knows."""
    took_ms: int | None = None
    """How long its handler ran; None where that is not known."""
    hidden: bool = False
    """The token may not see what the handler has returned."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a channel."""

    id: str
    content: Any


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a poll has brought. The messages come again until `receipt` is acknowledged; it is '' where there
    is nothing to acknowledge. `more`: there are further ones, so that the next poll need not wait."""

    messages: tuple[Message, ...]
    receipt: str
    more: bool


#: A poll without messages.
NOTHING = Delivery((), "", False)
