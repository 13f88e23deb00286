"""The results of a channel's calls, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish: `created`, or `duplicate` when its id was there already; then that one's
    content counts. `clock`: its position in the channel. `era` counts how often the channel's clock has been
    found to have gone back, as a restored backup makes it; `era_changed`: it did since this object heard of
    it last, and messages may have been lost."""

    result: Literal["created", "duplicate"]
    clock: int
    era: int = 0
    era_changed: bool = False

    @property
    def created(self) -> bool:
        """False for a duplicate."""
        return self.result == "created"


@dataclass(frozen=True, slots=True)
class Subscribed:
    """`created`: False for a subscriber that was there, which stays as it is. `clock`: that of the channel;
    what is published after it, a new subscriber gets."""

    created: bool
    clock: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its id, its content as JSON values, its position in the channel. `spelled`: the content
    as its publisher has spelled it, where that is known: numbers keep all of their digits."""

    id: str
    content: Any
    clock: int
    spelled: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The next messages of a subscriber, in order. They come again until their `receipt` is acknowledged.

    `receipt` stands for these messages and all before them; None where there is nothing to acknowledge.
    `more_messages`: there are, or may be, further ones. `lost`: messages between the last acknowledged one
    and this receipt that have expired unread. `corrupt`: those that somebody wrote in another format; they
    are left out. `era_changed`: the channel's clock went back since this subscriber's last acknowledgement,
    as a restored backup makes it: what was published in between may be lost, what was acknowledged may come
    again. Where publishers who had not seen what is lost have made up for it before anybody told the server,
    only a `stale` acknowledgement tells it.
    """

    messages: tuple[Message, ...] = ()
    receipt: str | None = None
    more_messages: bool = False
    lost: int = 0
    era: int = 0
    era_changed: bool = False
    corrupt: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`OK`: these messages do not come again. `stale`: nothing was changed, for they were acknowledged
    before, or the channel has not come to them (any more), or has others instead; `era_changed` tells
    that it went back. Then fetch again."""

    result: Literal["OK", "stale"]
    era_changed: bool = False
