"""Corruptions of what callers of `fetch` are handed: the server's answers are as they should be, and the client is broken."""

from __future__ import annotations

from reports.corrupt.channel_history import ChannelHistory, Visit
from reports.corrupt.channels import single
from reports.corrupt.kinds import channel_kind


def pair(visit: Visit) -> bool:
    """A visit that brought several messages."""
    return len(visit.items) >= 2


@channel_kind("P8")
def message_kept_back_from_the_caller(history: ChannelHistory) -> str:
    """A fetch brings two messages, and its caller gets one of them."""
    visit = history.visit(pair)
    visit.hands.pop()
    return visit.channel


@channel_kind("P8")
def call_that_never_returned(history: ChannelHistory) -> str:
    """A fetch brings a message, and the call of its caller does not return."""
    visit = history.visit()
    history.drop_handed(visit)
    return visit.channel


@channel_kind("P8")
def message_handed_out_twice(history: ChannelHistory) -> str:
    """The caller gets a message twice that the fetch brought once."""
    visit = history.visit()
    visit.hands.append(dict(visit.hands[0]))
    return visit.channel


@channel_kind("P8")
def handed_out_in_another_order(history: ChannelHistory) -> str:
    """The caller gets two messages in another order than the fetch brought them."""
    visit = history.visit(pair)
    visit.hands.reverse()
    return visit.channel


@channel_kind("P8")
def handed_out_with_another_content(history: ChannelHistory) -> str:
    """The caller gets a message with another content than the fetch brought."""
    visit = history.visit()
    visit.hands[0]["crc"] ^= 1
    return visit.channel


@channel_kind("P8")
def contents_exchanged_on_the_way_to_the_caller(history: ChannelHistory) -> str:
    """The caller gets two messages with each other's content."""
    visit = history.visit(pair)
    one, other = visit.hands[:2]
    one["crc"], other["crc"] = other["crc"], one["crc"]
    return visit.channel


@channel_kind("P8")
def handed_out_what_an_older_fetch_brought(history: ChannelHistory) -> str:
    """The caller gets a message once more that only the fetch of an earlier call had brought."""
    one, other = history.stretch([single, single])
    other.hands.insert(0, dict(one.hands[0]))
    return one.channel


@channel_kind("P8")
def acknowledged_before_it_was_handed_out(history: ChannelHistory) -> str:
    """A fetch acknowledges by itself what it then hands out."""
    visit = history.visit()
    done_ns = visit.acknowledge.done["done_ns"]
    visit.handed.update({"done_ns": done_ns + 10, "t_ns": max(visit.handed["t_ns"], done_ns + 10)})
    return visit.channel


@channel_kind("P8")
def handed_out_with_another_clock(history: ChannelHistory) -> str:
    """The caller gets a message with the clock of the next one."""
    visit = history.visit()
    visit.hands[0]["clock"] += 1
    return visit.channel


@channel_kind("P8")
def caller_told_of_another_loss(history: ChannelHistory) -> str:
    """The caller is told that messages were lost, and none was."""
    visit = history.visit()
    visit.handed["lost"] += 3
    return visit.channel
