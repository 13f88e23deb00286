"""The observer of a channel that writes history rows (rules 29 to 31), in the way of `record.recorder`: by
hand, since a JSON encoder costs more than the call itself, and each call's row before the call is sent.

Names and ids are checked at the channel's door to need no escaping; what came back from a server is escaped.
"""

from __future__ import annotations

import itertools
import json
import zlib
from typing import Any, cast

from engine.models.dsps import clock_after, clock_distance
from engine.observer import Intended, Outcome
from engine.ops.base import Call, Operation
from engine.ops.channels import (
    Acknowledge,
    AcknowledgeReply,
    Fetch,
    FetchReply,
    Publish,
    PublishReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
)
from record.history import HistoryFile, text
from record.recorder import Recorder

#: How the body of a message begins, and what stands between its id and its content (wire-models 6.1).
_HEAD, _BETWEEN = b'{"id":"', b'","content":'

#: Numbers of operations: one file may be written for several channels.
_NUMBERS = itertools.count()


class _Ticket:
    """The fields that an invoke row shares with its completion row."""

    __slots__ = ("crcs", "intended_ns", "row")

    def __init__(self, row: str, crcs: tuple[int, ...], intended_ns: int | None) -> None:
        self.row = row
        self.crcs = crcs
        self.intended_ns = intended_ns


class ChannelRecorder(Recorder):
    """Writes one channel's operations to the history file of a process, which several channels may share."""

    def __init__(self, file: HistoryFile, *, channel: str) -> None:
        super().__init__(file, queue="")
        self._channel = channel

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Write the invoke row of a call. Operations that only read are not recorded."""
        operation = call.operation
        told = _told(operation)
        if not told:
            return None
        crcs = (
            tuple(zlib.crc32(new.content) for new in operation.messages)
            if isinstance(operation, Publish)
            else ()
        )
        number = f"{self.file.proc}-{next(_NUMBERS)}"
        f = type(operation).__name__.lower()
        row = (
            f'"kind":"operation","f":"{f}","op":"{number}","call":"{number}",'
            f'"channel":"{self._channel}"{told}'
        )
        # Publishes of several callers do not share a call.
        assert not isinstance(intended_ns, tuple)
        ticket = _Ticket(row, crcs, intended_ns)
        times = f'{_intended(intended_ns)},"first_send_ns":{first_send_ns}'
        self.file.append(
            [f'{row},"type":"invoke"{_named(operation)}{times},"items":[{_new_messages(operation, crcs)}]']
        )
        return ticket

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """Write the completion row: it repeats the fields of the invoke row and adds the result."""
        if not isinstance(ticket, _Ticket):
            return
        operation = call.operation
        tail = (
            f'{_intended(ticket.intended_ns)},"first_send_ns":{outcome.first_send_ns},'
            f'"last_send_ns":{outcome.last_send_ns},'
            f'"done_ns":{outcome.done_ns},"sends":{outcome.sends},'
            f'"errors":[{",".join(map(text, outcome.errors))}]'
        )
        if outcome.reply is None:
            kind = "fail" if outcome.applied is False else "info"
            items = _new_messages(operation, ticket.crcs)
            body = f'"type":"{kind}","error":{text(outcome.error)}{_named(operation)}{tail},"items":[{items}]'
        else:
            kind, answer, items = _reply(operation, ticket.crcs, outcome.reply, outcome.definite)
            body = (
                f'"type":"{kind}"{answer}{tail},"srv_us":{getattr(outcome.reply, "srv_us", 0)},'
                f'"items":[{items}]'
            )
        self.file.append([f"{ticket.row},{body}"])
        self.measured(outcome)

    def misused(
        self, subscriber: str, name: str, *, clock: int | None, result: str, first_send_ns: int, done_ns: int
    ) -> None:
        """A receipt that was handed in to be refused: which one, the clock that it names, and what came of it
        (see the history's table). Where it reached a server its acknowledgement has rows of its own."""
        self.file.append(
            [
                f'"kind":"misuse","channel":"{self._channel}","subscriber":"{subscriber}","name":"{name}"'
                f'{_number("clock", clock)},"result":"{result}","first_send_ns":{first_send_ns},'
                f'"done_ns":{done_ns}'
            ]
        )


def _intended(intended_ns: int | None) -> str:
    return "" if intended_ns is None else f',"intended_ns":{intended_ns}'


def _told(operation: Operation) -> str:
    """The fields of an operation in both rows; empty for one that is not recorded."""
    match operation:
        case Publish():
            return f',"ttl_s":{operation.ttl_s}'
        case Fetch():
            waited = f',"waited_ms":{operation.waited_ms}' if operation.waited_ms else ""
            return (
                f',"subscriber":"{operation.subscriber}","most":{operation.most},'
                f'"ttl_s":{operation.ttl_s}{waited}'
            )
        case Subscribe() | Acknowledge():
            return f',"subscriber":"{operation.subscriber}","ttl_s":{operation.ttl_s}'
        case Unsubscribe():
            return f',"subscriber":"{operation.subscriber}"'
        case _:
            return ""


def _named(operation: Operation) -> str:
    """The clock that a caller names."""
    return f',"clock":{operation.clock}' if isinstance(operation, Acknowledge) else ""


def _new_messages(operation: Operation, crcs: tuple[int, ...]) -> str:
    if not isinstance(operation, Publish):
        return ""
    return ",".join(
        f'{{"message":"{new.id}","crc":{crc}}}' for new, crc in zip(operation.messages, crcs, strict=True)
    )


def _reply(
    operation: Operation, crcs: tuple[int, ...], reply: object, definite: bool
) -> tuple[str, str, str]:
    """(type, columns, items) of an answered operation. What a refusal means is decided by all sends (rule
    31)."""
    refused = "fail" if definite else "info"
    match reply:
        case PublishReply():
            kind = refused if all(item.result == "refused" for item in reply.items) else "ok"
            answer = _number("clock", reply.clock) + _era(reply)
            return kind, answer, _published(cast("Publish", operation), crcs, reply, definite)
        case FetchReply():
            if reply.result != "ok":
                return refused, f',"result":"{reply.result}"', ""
            columns = {"clock": reply.clock, "cursor": reply.cursor, "upto": reply.upto, "lost": _lost(reply)}
            more = ',"more":1' if reply.more or reply.searching else ""
            answer = (
                f',"result":"ok"{"".join(_number(*column) for column in columns.items())}{_era(reply)}{more}'
            )
            return "ok", answer, ",".join(_delivered(at, body) for at, body in reply.items)
        case AcknowledgeReply():
            kind = "ok" if reply.result in ("OK", "stale") else refused
            # A second copy finds the cursor where the first one, whose answer was lost, may have moved it.
            result = "unknown" if reply.result == "stale" and not definite else reply.result
            return (
                kind,
                f',"result":"{result}"{_named(operation)}{_number("cursor", reply.cursor)}{_era(reply)}',
                "",
            )
        case SubscribeReply():
            columns = _number("clock", reply.clock) + _number("cursor", reply.cursor)
            return (
                refused if reply.result == "refused" else "ok",
                f',"result":"{reply.result}"{columns}{_era(reply)}',
                "",
            )
        case UnsubscribeReply():
            return refused if reply.result == "refused" else "ok", f',"result":"{reply.result}"', ""
        case _:
            return "ok", "", ""


def _number(name: str, value: int | None) -> str:
    return "" if value is None else f',"{name}":{value}'


def _era(reply: PublishReply | FetchReply | AcknowledgeReply | SubscribeReply) -> str:
    return f',"era":{reply.era}' + (',"turned":1' if reply.turned else "")


def _lost(reply: FetchReply) -> int:
    """The clocks that the fetch has passed over because their messages have expired."""
    end = reply.items[-1][0] if reply.items else reply.upto
    if end is None or reply.cursor is None or not clock_after(end, reply.cursor):
        return 0
    return clock_distance(reply.cursor, end) - len(reply.items)


def _published(operation: Publish, crcs: tuple[int, ...], reply: PublishReply, definite: bool) -> str:
    return ",".join(
        f'{{"message":"{new.id}","crc":{crc}{_number("clock", item.clock)},'
        f'"result":"{"unknown" if item.result == "refused" and not definite else item.result}"}}'
        for new, crc, item in zip(operation.messages, crcs, reply.items, strict=True)
    )


def _delivered(at: int, body: bytes) -> str:
    """A message as the server has it: whose it is, and a sum of its content."""
    end = body.find(_BETWEEN)
    if body.startswith(_HEAD) and end > 0 and body.endswith(b"}"):
        name, content = body[len(_HEAD) : end].decode(errors="replace"), body[end + len(_BETWEEN) : -1]
        return f'{{"message":{text(name)},"clock":{at},"crc":{zlib.crc32(content)}}}'
    try:
        # Other clients may write the two fields in another order, and with spaces.
        found = json.loads(body)
        name, content = found["id"], json.dumps(found["content"], separators=(",", ":"), ensure_ascii=False)
    except (ValueError, LookupError, TypeError, RecursionError):
        return f'{{"clock":{at},"result":"corrupt"}}'
    return (
        f'{{"message":{text(str(name))},"clock":{at},"crc":{zlib.crc32(content.encode(errors="replace"))}}}'
    )
