"""Turns the reply of a storage into the result of a call: pure functions, for channels with one storage and
with several."""

from __future__ import annotations

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from engine.channel import contents
from engine.channel.session_state import SessionState
from engine.errors import (
    ChannelNotFound,
    EngineError,
    Malformed,
    OutcomeUnknown,
    PartlyPublished,
    ScriptFault,
    ServerUnavailable,
    SubscriptionNotFound,
)
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_distance
from engine.ops.channels import (
    Acknowledge,
    Acknowledged,
    AcknowledgeReply,
    FetchReply,
    Message,
    OldReply,
    Proof,
    Published,
    PublishReply,
    SubscribeReply,
    UnsubscribeReply,
)
from engine.redis.exchange import Sent

# -- Receipts: what a subscriber gets with its messages and hands in to acknowledge them and all before
# them. Two layers, byte for byte as the original has them (wire-models 2.1 and 6.1).
#
# Inside, one storage's: `{"clk":1,"xs":"2Ymqbw"}`, the clock of the last message and a checksum that binds it
# to channel and subscriber. Outside, what users see: base64 of `{"<storage>":"<inside>"}`, also with one
# storage. The checksum is no signature: it finds what was cut, changed or mixed up, not what was forged.

#: Longer than a receipt of ten storages.
_CHARS_MAX = 4_096
_BOUND = "a receipt that a fetch of this channel and subscriber gave"


def checksum(channel: str, subscriber: str, at: int) -> str:
    """The checksum of a clock: unpadded base64 of a big-endian crc32."""
    text = (
        b"dsps.storage.redis\0"
        + channel.encode()
        + b"\0"
        + subscriber.encode()
        + b"\0"
        + struct.pack(">q", at)
    )
    return base64.b64encode(struct.pack(">I", zlib.crc32(text))).decode().rstrip("=")


def inner(channel: str, subscriber: str, at: int) -> str:
    """One storage's receipt of a clock."""
    return f'{{"clk":{at},"xs":"{checksum(channel, subscriber, at)}"}}'


def read_inner(channel: str, subscriber: str, text: object) -> int:
    """The clock of one storage's receipt. Raises Malformed for what is none, or another channel's or
    subscriber's."""
    found = _json(text, text)
    at, given = found.get("clk"), found.get("xs")
    if isinstance(at, bool) or not isinstance(at, int) or not CLOCK_MIN <= at <= CLOCK_MAX:
        raise Malformed(
            "receipt",
            text,
            f"{_BOUND}, whose clk is a whole number from {CLOCK_MIN} to {CLOCK_MAX}",
        )
    if given != checksum(channel, subscriber, at):
        raise Malformed("receipt", text, f"{_BOUND}: its checksum is of something else")
    return at


def outer(parts: Mapping[str, str]) -> str:
    """What users see: storage -> its receipt, in the order of the storages' names."""
    text = json.dumps(dict(sorted(parts.items())), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(text.encode()).decode()


def read_outer(value: object) -> dict[str, str]:
    """Storage -> its receipt. Raises Malformed."""
    if not isinstance(value, str) or not 0 < len(value) <= _CHARS_MAX:
        raise Malformed("receipt", value, f"{_BOUND}: text of 1 to {_CHARS_MAX} characters")
    try:
        text = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Malformed("receipt", value, f"{_BOUND}: base64 ({error})") from error
    found = _json(text, value)
    if not all(isinstance(part, str) for part in found.values()):
        raise Malformed("receipt", value, f"{_BOUND}: texts by storage")
    return cast("dict[str, str]", found)


def _json(text: object, shown: object) -> dict[str, Any]:
    try:
        found: object = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError) as error:
        raise Malformed("receipt", shown, f"{_BOUND}: JSON ({error})") from error
    if not isinstance(found, dict):
        raise Malformed("receipt", shown, f"{_BOUND}: a JSON object")
    return cast("dict[str, Any]", found)


R = TypeVar("R")


class Page(NamedTuple):
    """The result of one fetch of one storage. `upto`: the clock that a receipt stands for, None where there
    is nothing to acknowledge. `proof`: what tells it from the same clock of another history. `turned_back`:
    the clock went back, and this object has not told this subscriber yet."""

    messages: tuple[Message, ...]
    upto: int | None
    proof: Proof | None
    more: bool
    searching: bool
    lost: int
    corrupt: int
    era: int
    era_changed: bool
    turned_back: bool

    @property
    def speaks(self) -> bool:
        """Whether to return it at once instead of waiting for more."""
        return bool(self.messages or self.lost or self.corrupt or self.turned_back)


def reply_of(sent: Sent, kind: type[R]) -> R:
    """The reply. Raises ScriptFault for one of another kind."""
    reply = sent.reply
    if not isinstance(reply, kind):
        raise ScriptFault(f"a reply of type {type(reply).__name__} where {kind.__name__} was expected")
    return reply


def published(session: SessionState, sent: Sent) -> list[Published | EngineError]:
    """The result of each message of a call."""
    reply = reply_of(sent, PublishReply)
    era_changed = session.learn(sent) or reply.turned
    found: list[Published | EngineError] = []
    for item in reply.items:
        if item.result == "refused" or item.clock is None:
            found.append(_refused("publish", sent))
        else:
            found.append(Published(item.result, item.clock, reply.era, era_changed))
    return found


def concluded(results: Sequence[Published | EngineError], count: int) -> list[Published]:
    """The results of all messages; those that were not sent have none. Raises the failure of all, else
    PartlyPublished."""
    answered = [result for result in results if isinstance(result, Published)]
    failures = [result for result in results if not isinstance(result, Published)]
    if not failures:
        return answered
    if not answered and (
        len(failures) == count or all(isinstance(failure, ServerUnavailable) for failure in failures)
    ):
        raise failures[0]
    rest = [ServerUnavailable("publish: not sent, after a call before it failed")] * (count - len(results))
    raise PartlyPublished(
        f"{len(answered)} of {count} messages are published: {failures[0]}", [*results, *rest]
    )


def subscribed(session: SessionState, sent: Sent) -> SubscribeReply:
    """The reply to a subscribe. Raises OutcomeUnknown, ServerUnavailable."""
    reply = reply_of(sent, SubscribeReply)
    session.learn(sent)
    if reply.result == "refused":
        raise _refused("subscribe", sent)
    return reply


def unsubscribed(sent: Sent) -> bool:
    """Whether the subscriber was there. Raises OutcomeUnknown, ServerUnavailable."""
    reply = reply_of(sent, UnsubscribeReply)
    if reply.result == "refused":
        raise _refused("unsubscribe", sent)
    return reply.result == "deleted"


def page(session: SessionState, subscriber: str, sent: Sent) -> Page | None:
    """The result of a fetch; None where the channel or the subscriber is missing: `missing` says which."""
    reply = reply_of(sent, FetchReply)
    session.learn(sent)
    if reply.result != "ok":
        return None
    if reply.cursor is None:
        raise ScriptFault("a fetch without a cursor")
    before = session.fetched(subscriber, reply)
    # Also where the server has told it to a copy of this call whose answer was lost.
    era_changed = reply.era_changed or before not in (None, reply.era)
    read = [(at, body, contents.read(body)) for at, body in reply.items]
    messages = tuple(
        Message(*found, at, contents.spelled(found[0], body)) for at, body, found in read if found is not None
    )
    # By the order of delivery: the largest of a page across the wrap is not its last (wire-models 2.3).
    upto = reply.items[-1][0] if reply.items else reply.upto
    if upto == reply.cursor:
        upto = None
    proof = None if upto is None else Proof(upto, reply.proof_ms)
    passed = 0 if upto is None else clock_distance(reply.cursor, upto)
    return Page(
        messages,
        upto,
        proof,
        reply.more or reply.searching,
        reply.searching,
        passed - len(read),
        len(read) - len(messages),
        reply.era,
        era_changed,
        era_changed and before != reply.era,
    )


def acknowledged(session: SessionState, operation: Acknowledge, sent: Sent) -> Acknowledged | None:
    """The result of an acknowledgement; None where the channel or the subscriber is missing."""
    reply = reply_of(sent, AcknowledgeReply)
    session.learn(sent)
    session.acknowledged(operation, reply)
    if reply.result != "OK" and reply.result != "stale":
        return None
    other_era = operation.era is not None and operation.era != reply.era
    return Acknowledged(reply.result, reply.turned or reply.beyond or other_era)


def missing(channel: str, subscriber: str, reply: Any) -> EngineError:
    """The error for a reply that found none."""
    assert isinstance(reply, FetchReply | AcknowledgeReply | OldReply)
    return (
        ChannelNotFound(channel)
        if reply.result == "channel-not-found"
        else SubscriptionNotFound(channel, subscriber)
    )


def _refused(what: str, sent: Sent) -> EngineError:
    """The error of a call that came too late, twice."""
    if sent.definite:
        return ServerUnavailable(f"{what}: the call came too late, nothing was applied")
    return OutcomeUnknown(f"{what}: refused as late after an unanswered send")
