"""Operations on a channel of DSPS and on its list of revoked tokens, and their replies. Clocks are those of
`engine.models.dsps`.

Those on a channel have two fields. `ttl_s`: the life of written or renewed keys, in whole seconds. `seen`:
the latest clock of the channel that the caller knows, or None. A server behind `seen` has gone back: it
continues after `seen`, with an `era` one higher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from engine.ops.base import DeadlineBound, Operation, immutable

#: Why a channel or a subscriber was not found, in the words of the original.
Missing = Literal["channel-not-found", "subscription-not-found"]


class Proof(NamedTuple):
    """What tells a channel's history from another with the same clocks, as before and after a restore: the
    clock that a fetch ended with, and when the message there expires by the server's time (-1: never, -2:
    there is none any more)."""

    clock: int
    ends_ms: int


@immutable
class NewMessage:
    """One message to publish: its id, and its content as compact JSON in the spelling of the wire."""

    id: str
    content: bytes

    def body(self) -> bytes:
        """What is stored and delivered."""
        return b'{"id":"%b","content":%b}' % (self.id.encode(), self.content)


@immutable
class Publish(DeadlineBound, script="publish"):
    """Publish messages in this order, each once within its life: an id that is known is a duplicate. All in
    one script.

    A copy that arrives after `not_after_ms` (server time) publishes nothing that is not there already (rule
    3).
    """

    messages: tuple[NewMessage, ...]
    ttl_s: int
    seen: int | None = None


@immutable
class PublishedMessage:
    """What came of one message. `clock`: the one it has, whoever has published it first; None for `refused`
    (a copy too late)."""

    result: Literal["created", "duplicate", "refused"]
    clock: int | None


@immutable
class PublishReply:
    """`clock`: that of the channel afterwards. `turned`: this call has found that the clock went back."""

    srv_us: int
    clock: int | None
    era: int
    turned: bool
    items: tuple[PublishedMessage, ...]

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return any(item.result == "refused" for item in self.items)


@immutable
class Subscribe(DeadlineBound, script="subscribe", slots={"op": "nonce"}):
    """Create a subscriber whose first message is the next one that is published; one that is there stays as
    it is. `nonce` (16 hex digits) makes a late copy harmless after the subscriber has been deleted again."""

    subscriber: str
    nonce: str
    ttl_s: int
    seen: int | None = None


@immutable
class SubscribeReply:
    """`cursor`: that of the subscriber, wherever it is."""

    srv_us: int
    result: Literal["created", "exists", "refused"]
    clock: int | None
    cursor: int | None
    era: int
    turned: bool

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"


@immutable
class Unsubscribe(DeadlineBound, script="unsubscribe", slots={"op": "nonce"}):
    """Delete a subscriber. `nonce` as in Subscribe."""

    subscriber: str
    nonce: str


@immutable
class UnsubscribeReply:
    """`missing`: there was none, which is a success as well."""

    srv_us: int
    result: Literal["deleted", "missing", "refused"]

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"


@immutable
class Fetch(Operation, script="fetch"):
    """The messages after the subscriber's cursor, at most `most` and about 1 MiB; moves no cursor. Renews the
    life of the clock and of this cursor. `waited_ms`: for how long the caller had waited for a message when
    this look was made. It changes nothing and tells an observer which looks came of a wait."""

    subscriber: str
    most: int
    ttl_s: int
    seen: int | None = None
    waited_ms: int = 0


@immutable
class FetchReply:
    """`items`: (clock, body) in order, the bodies as they are stored. Every message in (`cursor`, `upto`]
    that is alive is among them.

    `more`: there are, or may be, further ones after `upto`. `searching`: the bounded work of this call was
    used up before it could say; the next call goes on where it stopped. `era_changed`: the clock went back
    since this subscriber's last acknowledgement. `proof_ms`: when the last of the items expires, without
    items what is at `upto`; see Proof. `early_ms`: so much earlier than by the engine's calls the clock was
    to end, because another service keeps it for a shorter time.
    """

    srv_us: int
    result: Literal["ok"] | Missing
    clock: int | None = None
    cursor: int | None = None
    era: int = 0
    turned: bool = False
    era_changed: bool = False
    upto: int | None = None
    more: bool = False
    searching: bool = False
    items: tuple[tuple[int, bytes], ...] = ()
    proof_ms: int = -2
    early_ms: int = 0


@immutable
class Acknowledge(Operation, script="acknowledge", slots={"to": "clock", "given_era": "era"}):
    """Move the cursor to a clock that lies in (cursor, clock of the channel]; else it is `stale` and changes
    nothing, no life either. `era`: the one in which the receipt was given, None where that is not known: one
    of another era is stale. `proof`: that of the fetch that gave it, None where that is not known: it is
    stale where another message is there, or none although the one that was would live."""

    subscriber: str
    clock: int
    ttl_s: int
    era: int | None = None
    seen: int | None = None
    proof: Proof | None = None


@immutable
class AcknowledgeReply:
    """`cursor`: that of the subscriber afterwards. `beyond`: stale because the channel has not reached that
    clock, or not in this era, or not with the messages that were given. It went back."""

    srv_us: int
    result: Literal["OK", "stale"] | Missing
    clock: int | None = None
    cursor: int | None = None
    era: int = 0
    turned: bool = False
    beyond: bool = False


@immutable
class AskOld(Operation, script="old", label="look at messages"):
    """Which of these messages the subscriber will not be given (any more). Changes nothing."""

    subscriber: str
    messages: tuple[str, ...]


@immutable
class OldReply:
    """One answer for each message, in order; False for one that is not known (any more)."""

    srv_us: int
    result: Literal["ok"] | Missing
    clock: int | None = None
    cursor: int | None = None
    old: tuple[bool, ...] = ()


# -- The list of revoked JSON Web Tokens, as the DSPS server keeps it: one key for each token that is
# revoked.


@immutable
class Revoke(Operation):
    """Refuse a token by its id (`jti`), as long as anybody might take it: `expires_s` since 1970, its
    `exp`."""

    jti: str
    expires_s: int

    def parse(self, raw: object, decode: object) -> bool:
        """Whether this has put it on the list, or let it stay there for longer."""
        return bool(raw)


@immutable
class AskRevoked(Operation, label="look up a token"):
    """Whether a token is revoked."""

    jti: str

    def parse(self, raw: object, decode: object) -> bool:
        """Whether it is on the list."""
        return raw is not None


# -- The results of a channel's calls, as plain values.


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish: `created`, or `duplicate` when its id was there already; then that one's
    content counts. `clock`: its position in the channel. `era` counts how often the channel's clock has been
    found to have gone back, as a restored backup makes it. `era_changed`: it did since this object was
    told of it last, and messages may have been lost."""

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
    as a restored backup makes it. What was published in between may be lost, what was acknowledged may come
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
    before, or the channel has not come to them (any more), or has others instead. `era_changed` tells
    that it went back. Then fetch again."""

    result: Literal["OK", "stale"]
    era_changed: bool = False
