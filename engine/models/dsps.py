"""DSPS: a durable channel, with the keys, values, expiries and replies of the original, next to its clients.

Choices where the original loses data, or where its document and its server differ (wire-models 2.3 and 6.1):

- A subscriber whose unread messages have expired is not stuck. An index of living messages gives the next
  clock, and messages of foreign clients, which write no index, are found with bounded work. The reply
  includes the clock that the search reached, so the caller knows which messages were lost.
- Messages are delivered, and acknowledged, in the order of the circle of clocks, also across the wrap.
- A clock that is behind one that these scripts, a caller or a cursor have seen has not wrapped but gone back.
  It goes on after the latest known one, so no clock is assigned twice, and its **era** is one higher. Earlier
  messages stay; receipts of the former era are stale, if the caller passes their era.
- After a restore, publishers that have not seen the lost messages may bring the clock to its former value.
  The clock does not show it. So the last message of a fetch is compared when its receipt comes: another
  message with that clock has another expiry. If keys were moved with their remaining time to live, as a
  cluster may do with a slot, this counts as a restore, and unacknowledged messages are delivered again.
- Ids are checked before the clock moves (the original moves it back); a duplicate renews the expiry of the
  clock, as in the original.

`FINDINGS` lists the defects of the format that the engine cannot prevent. Runs on a cluster: a channel is one
slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from engine import validate
from engine.errors import Malformed, ScriptFault
from engine.models.model import FilledSlots, Finding
from engine.ops.admin import ListSubscribers, ReadClocks
from engine.ops.base import Call, Operation
from engine.ops.channels import (
    Acknowledge,
    AcknowledgeReply,
    AskOld,
    Fetch,
    FetchReply,
    Missing,
    OldReply,
    Publish,
    PublishedMessage,
    PublishReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
)
from engine.redis.scripts import load_model, scripts_folder
from engine.validate import settle

# -- The logical clock of a channel: whole numbers from -(2^53 - 1) to 2^53 - 1 in a circle, as DSPS defines
# it.
#
# Python compares clocks here alone (`clock_after` of `lua/dsps/modules/clock.lua` is the twin). After the
# largest comes the smallest, so `<` says nothing. Of two different clocks, the later one is less than half
# the circle ahead (as in RFC 1982). The circle has an odd number of clocks, so exactly one of two is later. A
# clock that is **behind** where somebody has seen it has not wrapped: it went back, by a restored backup or a
# lost key.

#: The largest clock, the largest whole number whose neighbours a double can tell apart; the smallest is its
#: negative.
CLOCK_MAX = 2**53 - 1
CLOCK_MIN = -CLOCK_MAX
#: How many clocks there are.
CLOCKS = 2 * CLOCK_MAX + 1


def read_clock(raw: bytes | str | int) -> int:
    """Read a clock from a server, in decimal digits. Raises ScriptFault."""
    try:
        value = int(raw)
    except ValueError as error:
        raise ScriptFault(f"no clock: {raw!r:.100}") from error
    if not CLOCK_MIN <= value <= CLOCK_MAX:
        raise ScriptFault(f"a clock outside of {CLOCK_MIN} to {CLOCK_MAX}: {value}")
    return value


def clock_ahead(clock: int, steps: int) -> int:
    """The clock that comes so many steps after this one; before it where `steps` is negative."""
    return (clock + steps - CLOCK_MIN) % CLOCKS + CLOCK_MIN


def clock_distance(start: int, end: int) -> int:
    """How many steps lead from `start` forward to `end`: 0 to CLOCKS - 1."""
    return (end - start) % CLOCKS


def clock_after(clock: int, other: int) -> bool:
    """Whether `clock` is later than `other`."""
    return 0 < clock_distance(other, clock) <= CLOCK_MAX


def latest_clock(clock: int, other: int | None) -> int:
    """The later one of two; None is earlier than everything."""
    return clock if other is None or not clock_after(other, clock) else other


# -- Settings of channels by their names, as the original has them: rules with regular expressions.

#: Ten years.
EXPIRE_MS_MAX = 10 * 366 * 86_400_000
#: What keys live longer than messages are promised to.
_MARGIN_MS = 15_000


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """Channels whose whole name matches `pattern`, a regular expression, keep messages for at least
    `expire_ms` after they were published; themselves and their subscribers as long after they were used last.
    Raises Malformed."""

    pattern: str = ".+"
    expire_ms: int = 1_800_000

    def __post_init__(self) -> None:
        settle(self, expire_ms=(0, EXPIRE_MS_MAX))
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise Malformed("pattern", self.pattern, f"a regular expression ({error})") from error


def checked(rules: object) -> tuple[ChannelRule, ...]:
    """At least one rule; the default one for None. Raises Malformed."""
    if rules is None:
        return (ChannelRule(),)
    bound = "a sequence of at least one ChannelRule"
    found = tuple(validate.items("rules", rules, bound))
    if not found or not all(isinstance(rule, ChannelRule) for rule in found):
        raise Malformed("rules", found, bound, private=True)
    return cast("tuple[ChannelRule, ...]", found)


def expire_ms(rules: Iterable[ChannelRule], channel: str) -> int:
    """How long messages of this channel are kept: the longest time of all rules that match. Raises Malformed
    when none does."""
    found = [rule.expire_ms for rule in rules if re.fullmatch(rule.pattern, channel)]
    if not found:
        raise Malformed("channel", channel, "a name that the pattern of one of the rules matches")
    return max(found)


def ttl_s(expire_ms: int) -> int:
    """The time to live of a channel's keys, in whole seconds: `expire_ms` with DSPS's margin, rounded up."""
    return -(-(expire_ms + _MARGIN_MS) // 1000)


# -- The keys of DSPS, each with its Redis type and content: those of a channel, and of revoked tokens. No
# other module spells them.
#
# The braces are the hash tag: one channel is one slot. Keys with `.ironclaim` are the engine's. Clients of
# the original never touch them: they search for no keys, and their names hold no dot. These keys expire with
# the clock, so that the end of one is not taken for a loss of the other.


@dataclass(frozen=True, slots=True)
class DspsKeys:
    """Key names of one channel. All of the original's are strings, clocks in decimal digits."""

    channel: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"c.{{{self.channel}}}.")

    @property
    def clock(self) -> str:
        """String: clock of the last message, 0 before the first one."""
        return f"{self.prefix}clock"

    def cursor(self, subscriber: str) -> str:
        """String: the clock that the subscriber has acknowledged last."""
        return f"{self.prefix}r.{subscriber}"

    @property
    def bodies(self) -> str:
        """The prefix of the keys of bodies."""
        return f"{self.prefix}m."

    def body(self, clock: int) -> str:
        """String: `{"id":"..","content":..}`."""
        return f"{self.bodies}{clock}"

    def mid(self, message: str) -> str:
        """String: the clock of a message, by its id."""
        return f"{self.prefix}mid.{message}"

    @property
    def wake_topic(self) -> str:
        """Pub/sub channel: `new message` after each publish. Its braces are literal, as in the keys."""
        return f"dsps.c.{{{self.channel}}}"

    @property
    def meta(self) -> str:
        """Hash: `last`, the latest clock that the engine's scripts have seen; `era`, how often it went back;
        `upto` and `known`: the index holds all living messages in (known, upto], and with known = `all` those
        before as well; `scan`, a running search for others: cursor, run id and goal; `longest_ms`, no message
        of the index lives longer; `ends`, pairs of a clock and the time (ms) by which all of the index up to
        it will have expired; `r.<subscriber>`, the era that a subscriber has received, 0 without it."""
        return f"{self.prefix}ironclaim"

    @property
    def live(self) -> str:
        """Zset, the index: clocks of living messages and of some that have expired since, scored by
        themselves."""
        return f"{self.prefix}ironclaim.live"

    def op(self, nonce: str) -> str:
        """String: the result of a subscribe or unsubscribe; for 20 s longer than a copy of it may come."""
        return f"{self.prefix}ironclaim.op.{nonce}"


def revocation(jti: str) -> str:
    """String: when the token with this id would expire by itself, in seconds since 1970. It is revoked while
    the key is there. The braces are literal: each token has a slot of its own."""
    return f"jwt.{{{jti}}}.revoke"


FINDINGS = (
    Finding(
        "the original goes on after a lost clock from 1",
        ("P1", "P3", "P4"),
        "When the clock's key is lost and a client of the original publishes before one of this "
        "engine, the clock begins again "
        "at 1: unread bodies are overwritten, and subscribers with later cursors do not receive what "
        "it publishes.",
    ),
    Finding(
        "the original looks 64 clocks ahead",
        ("P1",),
        "A client of the original reads as many clocks after its cursor as it asks for messages, 64 "
        "unless told otherwise. Where "
        "more than that are without a message, because they expired unread or because the engine "
        "moved a restored server on "
        "behind the latest clock that was known, it receives nothing, with more to come, and no "
        "receipt. One fetch by the engine "
        "for that subscriber, and the acknowledgement of what it returns, move its cursor past the gap.",
    ),
    Finding(
        "the original acknowledges across the wrap with a receipt from before it",
        (),
        "Its client receives the messages after the wrap once more.",
    ),
    Finding(
        "receipts carry no era",
        ("P1", "P6"),
        "A receipt from before the clock went back may count as current, when another process than "
        "the fetching one sends it, "
        "or it comes late, or after a fetch of the message that has its clock now: it then "
        "acknowledges that message. And a "
        "current receipt that another process has fetched may be refused once, as one from before.",
    ),
)
_MISSING: Mapping[bytes, Missing] = {
    b"channel-not-found": "channel-not-found",
    b"subscription-not-found": "subscription-not-found",
}
_PUBLISHED: Mapping[bytes, Literal["created", "duplicate", "refused"]] = {
    b"c": "created",
    b"d": "duplicate",
    b"r": "refused",
}


class DspsModel(FilledSlots):
    """The mapping for one channel. `lua`: another folder of scripts."""

    name = "dsps"
    FINDINGS = FINDINGS

    def __init__(self, channel: str, lua: Path | None = None) -> None:
        self.keys = keys = DspsKeys(channel)
        super().__init__(
            keys,
            load_model(lua or scripts_folder(), self.name),
            {"bodies": keys.bodies, "mids": keys.mid(""), "wake_topic": keys.wake_topic},
        )

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation."""
        match operation:
            case Publish(messages=messages):
                groups = (
                    ([self.keys.mid(message.id) for message in messages],),
                    ([message.body() for message in messages],),
                )
                return self.bound(operation, "", *groups)
            case Acknowledge():
                at, proof_ms = operation.proof or (operation.clock, "")
                return self.bound(operation, proof=self.keys.body(at), proof_ms=proof_ms)
            case AskOld(messages=messages):
                return self.bound(
                    operation, key_groups=([self.keys.mid(id) for id in messages],), argument_groups=()
                )
            case _:
                return self.bound(operation)

    def read_reply(self, operation: Operation, raw: Any) -> object:
        """Parse the reply as its script documents it."""
        return _parsed(operation, raw)


def _parsed(operation: Operation, raw: Any) -> object:
    srv_us = raw[0]
    if not isinstance(srv_us, int):
        raise TypeError("it does not begin with the server's time")
    if isinstance(operation, Fetch | Acknowledge | AskOld) and raw[1] in _MISSING:
        return _missing(operation, srv_us, _MISSING[raw[1]])
    match operation:
        case Publish():
            items = tuple(_published(word) for word in raw[4])
            if len(items) != len(operation.messages):
                raise ValueError(f"{len(items)} items for {len(operation.messages)} messages")
            return PublishReply(srv_us, _clock(raw[1]), raw[2], bool(raw[3]), items)
        case Subscribe():
            result = cast("Any", _word(raw[1], "created", "exists", "refused"))
            return SubscribeReply(srv_us, result, _clock(raw[2]), _clock(raw[3]), raw[4], bool(raw[5]))
        case Unsubscribe():
            return UnsubscribeReply(srv_us, cast("Any", _word(raw[1], "deleted", "missing", "refused")))
        case Fetch():
            _word(raw[1], "ok")
            found, (turned, era_changed) = raw[11], map(bool, raw[5:7])
            items = tuple((read_clock(found[at]), found[at + 1]) for at in range(0, len(found), 2))
            place = (read_clock(raw[2]), read_clock(raw[3]), raw[4])
            upto, more, searching = read_clock(raw[7]), bool(raw[8]), bool(raw[9])
            return FetchReply(
                srv_us,
                "ok",
                *place,
                turned,
                era_changed,
                upto,
                more,
                searching,
                items,
                int(raw[10]),
                *map(int, raw[12:13]),
            )
        case Acknowledge():
            result = cast("Any", _word(raw[1], "OK", "stale"))
            place = (read_clock(raw[2]), read_clock(raw[3]), raw[4])
            return AcknowledgeReply(srv_us, result, *place, bool(raw[5]), bool(raw[6]))
        case AskOld():
            _word(raw[1], "ok")
            if len(raw[4]) != len(operation.messages):
                raise ValueError(f"{len(raw[4])} answers for {len(operation.messages)} messages")
            return OldReply(srv_us, "ok", read_clock(raw[2]), read_clock(raw[3]), tuple(map(bool, raw[4])))
        case _:
            raise TypeError(f"{type(operation).__name__} is no operation of a channel")


def _missing(operation: Fetch | Acknowledge | AskOld, srv_us: int, what: Missing) -> object:
    if isinstance(operation, Fetch):
        return FetchReply(srv_us, what)
    return AcknowledgeReply(srv_us, what) if isinstance(operation, Acknowledge) else OldReply(srv_us, what)


def _published(word: bytes) -> PublishedMessage:
    return PublishedMessage(_PUBLISHED[word[:1]], _clock(word[1:] or None))


def _clock(raw: bytes | None) -> int | None:
    return None if raw is None else read_clock(raw)


def _word(raw: bytes, *allowed: str) -> str:
    word = raw.decode()
    if word not in allowed:
        raise ValueError(f"{word} is none of {allowed}")
    return word


# -- How far subscribers are behind their channels, for monitoring: found by a scan of the server's keys, some
# thousands a call.
#
# DSPS keeps no list of channels or subscribers, so there is nothing else to ask. Neither call changes a key,
# nor the life of one: a subscriber that nobody is does not live on because somebody looks.

#: Keys that one call looks at: some milliseconds of the server.
SCANNED = 5_000


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Pairs of channel and subscriber; `cursor` is where the next call goes on, 0 at the end."""

    found: tuple[tuple[str, str], ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class Lag:
    """A subscriber and how many messages were published since the one that it has acknowledged last, those
    that have expired among them. None: its cursor or the clock of its channel is gone or damaged."""

    channel: str
    subscriber: str
    messages: int | None


def subscribers(cursor: int, channel: str | None = None) -> Call[Subscribers]:
    """The call that looks for subscribers of a channel, or of all."""
    pattern = DspsKeys(channel or "*").cursor("*")
    words = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
    return Call(None, (pattern,), words, _subscribers, ListSubscribers(cursor))


def lags(pairs: Iterable[tuple[str, str]]) -> Call[tuple[Lag, ...]]:
    """The call that reads the clocks of these channels and the cursors of these subscribers, of one
    server."""
    known = tuple(pairs)
    channels = tuple(dict.fromkeys(channel for channel, _ in known))
    keys = (
        *(DspsKeys(channel).clock for channel in channels),
        *(DspsKeys(name).cursor(who) for name, who in known),
    )

    def parse(raw: Sequence[bytes | None]) -> tuple[Lag, ...]:
        clocks = dict(zip(channels, map(_clock_or_none, raw[: len(channels)]), strict=True))
        cursors = map(_clock_or_none, raw[len(channels) :])
        return tuple(
            Lag(name, who, behind(at, clocks[name])) for (name, who), at in zip(known, cursors, strict=True)
        )

    return Call(None, keys, ("MGET", *keys), parse, ReadClocks())


def behind(cursor: int | None, end: int | None) -> int | None:
    """How many messages a cursor is behind its channel; None where one is not known, or the clock went back
    behind the cursor."""
    if cursor is None or end is None or clock_after(cursor, end):
        return None
    return clock_distance(cursor, end)


def _subscribers(raw: tuple[bytes, Sequence[bytes]]) -> Subscribers:
    cursor, keys = raw
    found: list[tuple[str, str]] = []
    for key in keys:
        # The name of a subscriber holds no dot, that of a channel may.
        channel, mark, subscriber = key.decode(errors="replace").removeprefix("c.{").rpartition("}.r.")
        if mark:
            found.append((channel, subscriber))
    return Subscribers(tuple(sorted(set(found))), int(cursor))


def _clock_or_none(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else read_clock(raw)
    except ScriptFault:
        return None
