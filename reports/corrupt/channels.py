"""Corruptions of messages on their way through a channel: lost, made up, out of order, with wrong clocks."""

from __future__ import annotations

from reports.channels.plan import CLOCK_MAX
from reports.corrupt.channel_history import ChannelHistory, Visit, after, ahead
from reports.corrupt.history import Row
from reports.corrupt.kinds import channel_kind
from reports.facts import MS


def single(visit: Visit) -> bool:
    """A visit that brought one message."""
    return len(visit.items) == 1


def strip(visit: Visit, *, lost: int) -> None:
    """Let a fetch bring nothing, and its receipt stand for as much as before."""
    visit.items.clear()
    visit.hands.clear()
    for row in (visit.fetch.done, visit.handed):
        row["lost"] = lost


# --- P1: messages that do not arrive -----------------------------------------------------------------------------------------


@channel_kind("P1")
def last_message_never_delivered(history: ChannelHistory) -> str:
    """The last message of a channel reaches nobody."""
    visit = history.visit(last=True)
    strip(visit, lost=1)
    return visit.channel


@channel_kind("P1")
def message_passed_over(history: ChannelHistory) -> str:
    """A fetch leaves a message out and counts it as expired, though it lives."""
    _, left_out, _ = history.stretch([single] * 3)
    strip(left_out, lost=1)
    return left_out.channel


@channel_kind("P1")
def message_passed_over_in_silence(history: ChannelHistory) -> str:
    """A fetch leaves a message out, and its receipt covers it."""
    _, left_out, _ = history.stretch([single] * 3)
    strip(left_out, lost=0)
    return left_out.channel


@channel_kind("P1")
def subscription_lost(history: ChannelHistory) -> str:
    """A subscriber that nobody deleted is not there any more, and is created anew."""
    visit = history.visit()
    done_ns, like = visit.acknowledge.done["done_ns"], visit.fetch.done
    refused = {"type": "fail", "result": "subscription-not-found"}
    history.insert(visit.proc, like, "fetch", done_ns + 100, done_ns + 200, **refused)
    made = {"result": "created", "clock": visit.clock, "cursor": visit.clock}
    history.insert(visit.proc, like, "subscribe", done_ns + 300, done_ns + 400, **made)
    return visit.channel


# --- P2: what nobody published -----------------------------------------------------------------------------------------------


@channel_kind("P2")
def message_that_nobody_published(history: ChannelHistory) -> str:
    """A message is delivered that no publisher has sent."""
    visit = history.visit(lambda visit: single(visit) and alone_in_its_publish(history, visit))
    history.drop_call(history.published(visit))
    return visit.channel


@channel_kind("P2")
def refused_message_delivered(history: ChannelHistory) -> str:
    """A publish is answered as not applied, and its message is delivered."""
    visit = history.visit(lambda visit: single(visit) and alone_in_its_publish(history, visit))
    answer = history.published(visit).done
    answer["type"] = "fail"
    answer["items"][0]["result"] = "refused"
    return visit.channel


@channel_kind("P2")
def content_damaged(history: ChannelHistory) -> str:
    """A message comes with another content than it was published with."""
    visit = history.visit()
    for item in (visit.items[0], visit.hands[0]):
        item["crc"] ^= 1
    return visit.channel


@channel_kind("P2")
def contents_swapped(history: ChannelHistory) -> str:
    """Two messages come with each other's content."""
    one, other = history.stretch([single, single])
    for first, second in ((one.items, other.items), (one.hands, other.hands)):
        first[0]["crc"], second[0]["crc"] = second[0]["crc"], first[0]["crc"]
    return one.channel


@channel_kind("P2")
def delivered_before_its_publish(history: ChannelHistory) -> str:
    """A message is delivered before its publisher has sent it."""
    visit = history.visit()
    call = history.published(visit)
    later(call.both, visit.fetch.done["done_ns"] - call.sent["first_send_ns"] + 5 * MS)
    return visit.channel


def later(rows: tuple[Row, ...], by_ns: int) -> None:
    """Let rows have happened later by so much."""
    for row in rows:
        for name in ("t_ns", "intended_ns", "first_send_ns", "last_send_ns", "done_ns"):
            if row.get(name) is not None:
                row[name] += by_ns


@channel_kind("P2")
def delivered_after_its_life(history: ChannelHistory) -> str:
    """A message is delivered five seconds after its life has ended."""
    visit = history.visit(lambda visit: single(visit) and visit.fetch.done["ttl_s"] < 60, shared=True)
    call = history.published(visit)
    later(call.both, -(int(call.done["ttl_s"]) + 5) * 1_000 * MS)
    return visit.channel


@channel_kind("P2")
def message_that_nobody_can_read(history: ChannelHistory) -> str:
    """A stored message is not in the format any more."""
    visit = history.visit()
    visit.items[0] = {"clock": visit.clock, "result": "corrupt"}
    visit.fetch.done["items"] = visit.items
    visit.hands.clear()
    return visit.channel


# --- P3: order and gaps ------------------------------------------------------------------------------------------------------


@channel_kind("P3")
def clocks_left_out(history: ChannelHistory) -> str:
    """The channel's clock goes on by ten. A gap of one or two may be of publishes that were never answered."""
    visit, _ = history.stretch([single, single])
    at = visit.clock
    history.renumber(visit.channel, lambda clock: ahead(clock, 9) if after(clock, at) else clock)
    return visit.channel


@channel_kind("P3")
def clock_jumps_at_the_wrap(history: ChannelHistory) -> str:
    """Beyond the wrap the clock does not begin with the smallest one, but a million later."""
    entries = {str(entry["name"]): int(entry["preset_clock"]) for entry in history.spec["channels"] if entry["preset_clock"]}
    channel = history.channel_with(lambda name: name in entries and len(history.subscribers(name)) == 1)
    history.renumber(channel, lambda clock: ahead(clock, 1_000_000) if after(clock, CLOCK_MAX) else clock)
    return channel


@channel_kind("P3")
def messages_change_places(history: ChannelHistory) -> str:
    """A fetch brings two messages in the wrong order."""
    visit = history.visit(lambda visit: len(visit.items) >= 3)
    for items in (visit.items, visit.hands):
        items[0], items[1] = items[1], items[0]
    return visit.channel


@channel_kind("P3")
def clock_said_to_have_gone_back(history: ChannelHistory) -> str:
    """The era of a channel rises before any server was restored."""
    first_ns = min(row["t_ns"] for row in history.harness if row.get("name") == "snapshot-restore")
    channel = history.channel_with(lambda name: bool(history.entry(name)["preset_clock"]) and len(history.subscribers(name)) == 1)
    for call in history.of(channel):
        if first_ns - 20_000 * MS < call.done["done_ns"] < first_ns and call.done.get("era") == 0:
            call.done["era"] = 1
    return channel


# --- P4: clocks --------------------------------------------------------------------------------------------------------------


@channel_kind("P4")
def one_clock_for_two_messages(history: ChannelHistory) -> str:
    """A publish is answered with the clock that the message before it has."""
    one, other = history.stretch([single, single])
    answered_with(history, other, one.clock)
    return one.channel


@channel_kind("P4")
def two_clocks_for_one_message(history: ChannelHistory) -> str:
    """A publish is answered with another clock than its message is delivered at."""
    visit = history.visit()
    answered_with(history, visit, ahead(visit.clock, 1_000_000))
    return visit.channel


@channel_kind("P4")
def clock_that_is_none(history: ChannelHistory) -> str:
    """A publish is answered with a clock beyond the largest one."""
    visit = history.visit()
    answered_with(history, visit, CLOCK_MAX + 9)
    return visit.channel


def answered_with(history: ChannelHistory, visit: Visit, clock: int) -> None:
    """Let the publish of the first message of a visit be answered with this clock."""
    message = visit.items[0]["message"]
    item = next(item for item in history.published(visit).done["items"] if item["message"] == message)
    item["clock"] = clock


@channel_kind("P4")
def clock_before_that_of_an_earlier_publish(history: ChannelHistory) -> str:
    """A message gets a clock before that of one whose publish was answered before it was sent."""
    one, other = history.stretch([lambda visit: single(visit) and alone_in_its_publish(history, visit)] * 2)
    first, second = history.published(one), history.published(other)
    later(second.both, first.sent["first_send_ns"] - second.done["t_ns"] - MS)
    return one.channel


def alone_in_its_publish(history: ChannelHistory, visit: Visit) -> bool:
    """True when the first message of a visit was published by a call of its own."""
    return len(history.published(visit).done["items"]) == 1


@channel_kind("P4")
def stored_twice_when_published_twice(history: ChannelHistory) -> str:
    """A message that is published again is stored and delivered again."""
    one, other = history.stretch([single, single])
    name, crc = one.items[0]["message"], one.items[0]["crc"]
    message = other.items[0]["message"]
    rows = [*history.published(other).both, *(call.done for call in history.of(other.channel, "fetch")), other.handed]
    for item in (item for row in rows for item in row["items"] if item.get("message") == message):
        item.update({"message": name, "crc": crc})
    return one.channel
