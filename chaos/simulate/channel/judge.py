"""The invariants of channels, after each delivery on the raw keys and after each call on what its caller was told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chaos.simulate.channel.processes import STORAGE, Subscriber
from chaos.simulate.channel.state import CHANNEL, ChannelState
from chaos.simulate.line import describe_name
from chaos.simulate.server import Delivery, SimulatedServer
from chaos.simulate.world import Found, World
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, CLOCKS
from engine.ops.channels import (
    Acknowledge,
    Acknowledged,
    AcknowledgeReply,
    Fetch,
    Fetched,
    FetchReply,
    NewMessage,
    Publish,
    Published,
    PublishReply,
    Subscribe,
    SubscribeReply,
)

#: Far beyond any episode that ends.
_STEPS_MAX = 30_000


def _later(clock: int, other: int) -> bool:
    """Whether a clock comes after another one on the circle; the engine is not asked."""
    return 0 < (clock - other) % CLOCKS < CLOCKS / 2


class ChannelJudge:
    """The invariants of one episode."""

    def __init__(self, world: World[Any], server: SimulatedServer[ChannelState], counts: Counter[str]) -> None:
        self._world = world
        self._server = server
        self._counts = counts
        #: Clock and body of each message, in the order in which they were made; and those that a publisher was told of.
        self.messages: dict[str, tuple[int, bytes]] = {}
        self.known: set[str] = set()
        #: For each subscriber: how many messages there were when it was made; those that it was given; the clock up to which it
        #: was told that its acknowledgement holds.
        self.since: dict[str, int] = {}
        self.given: dict[str, set[str]] = {}
        self._final: dict[str, int] = {}

    # -- after a delivery

    def delivered(self, delivery: Delivery[ChannelState]) -> None:
        """All invariants after one delivery."""
        message, operation, reply = delivery.message, delivery.operation, delivery.reply
        what = f"{describe_name(message.call)}#{message.number}{' copy' if message.copy else ''}"
        ids = tuple(one.id for one in operation.messages) if isinstance(operation, Publish) else ()
        if delivery.error:
            self._refused(delivery, what, ids)
        self._world.note(message.line.name, what, delivery.error[:60] or _told(reply), ids)
        self._made(delivery)
        self._cursors(delivery)
        match operation, reply:
            case Publish(), PublishReply():
                self._published(delivery, operation, reply)
            case Fetch(), FetchReply(result="ok"):
                self._fetched(delivery, operation, reply)
            case Acknowledge(), AcknowledgeReply(result="OK" | "stale"):
                self._acknowledged(delivery, operation, reply)
            case Subscribe(), SubscribeReply():
                self._counts[f"subscribe {reply.result}"] += 1
            case _:
                pass
        if self._world.steps > _STEPS_MAX:
            raise Found("busy loop", f"{self._world.steps} steps, and no end")

    def _refused(self, delivery: Delivery[ChannelState], what: str, ids: tuple[str, ...]) -> None:
        memory = "OOM" in delivery.error
        self._counts["refused for memory" if memory else "cut off" if delivery.cut else "error"] += 1
        if not delivery.cut and not (memory and isinstance(delivery.operation, Publish | Subscribe)):
            raise Found("memory" if memory else "script error", f"{what} was answered {delivery.error}", ids)

    def _made(self, delivery: Delivery[ChannelState]) -> None:
        """A message is made once, by its own call and in time, and has the next clock of the circle."""
        before, after, operation = delivery.before, delivery.after, delivery.operation
        asked = {message.id: message for message in operation.messages} if isinstance(operation, Publish) else {}
        new = after.new_messages()
        clock = before.clock
        # On the circle, the clocks of one call follow that of the channel.
        for id, at in sorted(new.items(), key=lambda item: (item[1] - (clock or 0)) % CLOCKS):
            if id in self.messages:
                raise Found("published twice", f"{id} had the clock {self.messages[id][0]}, and has {at} now", (id,))
            if id not in asked:
                raise Found("published twice", f"{id} is made by a call that does not name it", (id,))
            assert isinstance(operation, Publish)
            if delivery.now_ms > operation.not_after_ms:
                late_ms = delivery.now_ms - operation.not_after_ms
                raise Found("late publish", f"{id} is made {late_ms} ms after its call was void", (id,))
            last = next(reversed(self.messages.values()))[0] if self.messages else clock or 0
            wanted = CLOCK_MIN if last == CLOCK_MAX else last + 1
            if at != wanted:
                raise Found("clock order", f"{id} has the clock {at}, and the one before it has {last}", (id,))
            self._counts["wrapped"] += wanted == CLOCK_MIN
            body = asked[id].body()
            if after.body(at) != body:
                raise Found("body", f"{id} is published as {body}, and {after.body(at)} is stored", (id,))
            self.messages[id] = (at, body)
        if self._world.profile.exact and self.messages and after.clock != next(reversed(self.messages.values()))[0]:
            raise Found("clock order", f"the clock is {after.clock}, and no message has it")
        if clock is not None and after.clock is not None and after.clock != clock and not _later(after.clock, clock):
            raise Found("clock order", f"the clock was {clock}, and is {after.clock}")

    def _cursors(self, delivery: Delivery[ChannelState]) -> None:
        """An acknowledgement is final: no cursor goes back; and none moves but by its own acknowledgement."""
        before, after, operation = delivery.before, delivery.after, delivery.operation
        for subscriber in {*before.cursors(), *after.cursors()}:
            was, now = before.cursor(subscriber), after.cursor(subscriber)
            if was == now:
                continue
            mine = getattr(operation, "subscriber", None) == subscriber
            if was is None and now is not None and isinstance(operation, Subscribe) and mine:
                if now != (before.clock or 0):
                    raise Found("cursor", f"{subscriber} is new at {now}, and the clock is {before.clock}")
                self.since[subscriber] = len(self.messages)
                self.given.setdefault(subscriber, set())
            elif was is None or now is None or not mine or not isinstance(operation, Acknowledge):
                raise Found("cursor", f"the cursor of {subscriber} moves from {was} to {now}, and it has acknowledged nothing")
            elif not _later(now, was):
                raise Found("final", f"the cursor of {subscriber} goes back from {was} to {now}")
            elif now != operation.clock or after.clock is None or _later(now, after.clock):
                raise Found(
                    "cursor", f"{subscriber} acknowledges {operation.clock}, its cursor is {now}, the clock {after.clock}"
                )

    def _published(self, delivery: Delivery[ChannelState], operation: Publish, reply: PublishReply) -> None:
        new = delivery.after.new_messages()
        for message, item in zip(operation.messages, reply.items, strict=True):
            self._counts[f"publish {item.result}"] += 1
            known = self.messages.get(message.id)
            wanted = "created" if message.id in new else "duplicate" if known is not None else "refused"
            if item.result != wanted or item.clock != (known[0] if known is not None else None):
                raise Found(
                    "publish reply", f"{message.id} is {known}, and its call is told {item.result} {item.clock}", (message.id,)
                )
            if item.result == "refused" and delivery.now_ms <= operation.not_after_ms:
                raise Found("publish reply", f"{message.id} is refused before its call is void", (message.id,))

    def _fetched(self, delivery: Delivery[ChannelState], operation: Fetch, reply: FetchReply) -> None:
        """What comes after the cursor, in the order of the circle, without a gap."""
        own, clock = delivery.after.cursor(operation.subscriber), delivery.after.clock
        assert own is not None and clock is not None
        wanted = [message for message in self.messages.values() if _later(message[0], own) and not _later(message[0], clock)]
        wanted.sort(key=lambda message: (message[0] - own) % CLOCKS)
        self._counts["fetch messages" if reply.items else "fetch nothing"] += 1
        least = min(len(wanted), operation.most)
        if list(reply.items) != wanted[: len(reply.items)] or (len(reply.items) < least and not reply.searching):
            clocks = [at for at, _ in reply.items]
            raise Found(
                "delivery",
                f"{operation.subscriber} is at {own} of {clock}, and is given {clocks}, not {[at for at, _ in wanted]}",
            )

    def _acknowledged(self, delivery: Delivery[ChannelState], operation: Acknowledge, reply: AcknowledgeReply) -> None:
        """A receipt that is ahead of the cursor holds, any other is stale: across the wrap, too."""
        was, clock = delivery.before.cursor(operation.subscriber), delivery.before.clock
        assert was is not None and clock is not None
        self._counts[f"acknowledge {reply.result}"] += 1
        holds = _later(operation.clock, was) and not _later(operation.clock, clock)
        if (reply.result == "OK") != holds:
            raise Found(
                "receipt", f"{operation.subscriber} is at {was} of {clock}; its receipt of {operation.clock} is {reply.result}"
            )

    # -- what callers are told

    def told(self, message: NewMessage, published: Published) -> None:
        """What a publisher is told is so."""
        self._counts[f"told {published.result}"] += 1
        self.known.add(message.id)
        known = self.messages.get(message.id)
        if known is None or known[0] != published.clock or (published.created and known[1] != message.body()):
            raise Found("told published", f"{message.id} is {known}, and its publisher is told {published}", (message.id,))

    def received(self, process: Subscriber, fetched: Fetched) -> None:
        """In order, and nothing that this subscriber knows to be acknowledged."""
        subscriber, final = process.subscriber, self._final.get(process.subscriber)
        before = final
        for message in fetched.messages:
            if final is not None and not _later(message.clock, final):
                raise Found(
                    "final", f"{subscriber} has acknowledged {final}, and is given {message.id}@{message.clock}", (message.id,)
                )
            if before is not None and not _later(message.clock, before):
                raise Found("delivery", f"{subscriber} is given {message.id}@{message.clock} after {before}", (message.id,))
            before = message.clock
            self.given[subscriber].add(message.id)

    def acknowledged(self, process: Subscriber, receipt: str, came: Acknowledged) -> None:
        """From now on no message comes again up to this receipt, if it holds."""
        self._counts["acknowledged" + " stale" * (came.result == "stale")] += 1
        at = replies.read_inner(CHANNEL, process.subscriber, replies.read_outer(receipt)[STORAGE])
        final = self._final.get(process.subscriber)
        if came.result == "OK" and (final is None or _later(at, final)):
            self._final[process.subscriber] = at

    # -- the end

    def open_at(self, state: ChannelState) -> list[str]:
        """Subscribers that have not acknowledged all that there is."""
        return [subscriber for subscriber in self.since if state.cursor(subscriber) != state.clock]

    def over(self) -> None:
        """All that publishers were told of was given to each subscriber that was there."""
        for subscriber, since in self.since.items():
            missed = [id for id in list(self.messages)[since:] if id in self.known and id not in self.given[subscriber]]
            if missed:
                raise Found("delivered", f"{subscriber} was never given {', '.join(missed)}", tuple(missed))
        for id in self.known - set(self.messages):
            raise Found("told published", f"the publisher of {id} was told that it is there, and it never was", (id,))


def _told(reply: Any) -> str:
    match reply:
        case PublishReply():
            return ", ".join(f"{item.result} {item.clock}" for item in reply.items)
        case FetchReply(result="ok"):
            return f"{reply.cursor} -> {[at for at, _ in reply.items]}" if reply.items else "nothing"
        case AcknowledgeReply() | SubscribeReply():
            return f"{reply.result}, cursor {reply.cursor}, clock {reply.clock}"
        case _:
            return getattr(reply, "result", "")
