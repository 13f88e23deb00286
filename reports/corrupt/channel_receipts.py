"""Corruptions of receipts, cursors and subscribers, and of what callers are handed: what comes again, is no good, or differs."""

from __future__ import annotations

from reports.corrupt.channel_history import ChannelHistory, Visit, ahead
from reports.corrupt.channels import single
from reports.corrupt.history import Row
from reports.corrupt.kinds import channel_kind

# --- P5: acknowledgements ----------------------------------------------------------------------------------------------------


@channel_kind("P5")
def acknowledged_and_delivered_again(history: ChannelHistory) -> str:
    """A message comes again after its acknowledgement."""
    one, other = history.stretch([single, single])
    other.items.insert(0, dict(one.items[0]))
    other.hands.insert(0, dict(one.hands[0]))
    return one.channel


@channel_kind("P5")
def receipt_of_a_part_of_its_fetch(history: ChannelHistory) -> str:
    """The receipt of a fetch leaves its last message out, which comes again."""
    one, other = history.stretch([lambda visit: len(visit.items) >= 2, single])
    before, last, hand = one.clock, dict(one.items[-1]), dict(one.hands[-1])
    part = one.items[-2]["clock"]
    for row in (one.acknowledge.sent, one.acknowledge.done):
        row["clock"] = part
    one.acknowledge.done["cursor"] = part
    for call in history.of(one.channel, "fetch"):
        if one.acknowledge.done["done_ns"] < call.done["done_ns"] <= other.fetch.done["done_ns"]:
            assert call.done["cursor"] == before
            call.done["cursor"] = part
    other.items.insert(0, last)
    other.hands.insert(0, hand)
    return one.channel


# --- P6: receipts and cursors ------------------------------------------------------------------------------------------------


def accepted(history: ChannelHistory, name: str) -> str:
    """Let a bad receipt of this kind be accepted."""
    windows = history.windows()

    def calm(row: Row) -> bool:
        return row["kind"] == "misuse" and row["name"] == name and not any(b <= row["t_ns"] <= e for b, e in windows)

    rows = [row for of in history.files.values() for row in of if calm(row)]
    alone = [row for row in rows if len(history.subscribers(row["channel"])) == 1]
    channel = history.channel_with(lambda wanted: any(row["channel"] == wanted for row in alone))
    next(row for row in rows if row["channel"] == channel)["result"] = "OK"
    return channel


@channel_kind("P6")
def tampered_receipt_accepted(history: ChannelHistory) -> str:
    """A receipt is accepted whose clock was changed."""
    return accepted(history, "tampered")


@channel_kind("P6")
def truncated_receipt_accepted(history: ChannelHistory) -> str:
    """A receipt is accepted of which a half is missing."""
    return accepted(history, "truncated")


@channel_kind("P6")
def receipt_of_another_subscriber_accepted(history: ChannelHistory) -> str:
    """A subscriber acknowledges with the receipt of another one."""
    return accepted(history, "foreign")


@channel_kind("P6")
def old_receipt_accepted(history: ChannelHistory) -> str:
    """A receipt is accepted that was acknowledged before."""
    return accepted(history, "old")


@channel_kind("P6")
def receipt_beyond_the_end_accepted(history: ChannelHistory) -> str:
    """A receipt is accepted for a clock that the channel has not reached."""
    return accepted(history, "beyond")


@channel_kind("P6")
def cursor_goes_back(history: ChannelHistory) -> str:
    """After an acknowledgement the cursor is found where it was before."""
    one, other = history.stretch([single, single])
    other.fetch.done["cursor"] = one.fetch.done["cursor"]
    return one.channel


@channel_kind("P6")
def cursor_moves_by_itself(history: ChannelHistory) -> str:
    """The cursor moves on though nobody has acknowledged anything."""
    visit, _ = history.stretch([single, single])
    history.drop_call(visit.acknowledge)
    return visit.channel


@channel_kind("P6")
def acknowledged_what_nobody_was_given(history: ChannelHistory) -> str:
    """A receipt covers a message more than its fetch had brought, which never comes then."""
    one, other = history.stretch([single, single])
    clock = other.clock
    for row in (one.acknowledge.sent, one.acknowledge.done):
        row["clock"] = clock
    one.acknowledge.done["cursor"] = clock
    between = one.acknowledge.done["done_ns"], other.acknowledge.done["done_ns"]
    for call in history.of(one.channel, "fetch"):
        if between[0] < call.done["done_ns"] < between[1] and call is not other.fetch:
            history.drop_call(call)
    history.drop_call(other.fetch)
    history.drop_call(other.acknowledge)
    history.drop_handed(other)
    return one.channel


# --- P7: the order that subscribers see --------------------------------------------------------------------------------------


@channel_kind("P7")
def subscribers_get_other_orders(history: ChannelHistory) -> str:
    """One of several subscribers gets two messages in another order than the others."""
    visit = history.visit(lambda visit: len(visit.items) >= 3, shared=True)
    for items in (visit.items, visit.hands):
        items[0], items[1] = items[1], items[0]
    return visit.channel


@channel_kind("P7")
def made_anew_and_given_older_ones_in_another_order(history: ChannelHistory) -> str:
    """A subscriber is deleted and created three times around two messages, and gets the later one first."""

    def fits(visit: Visit) -> bool:
        sent_ns, done_ns = visit.acknowledge.sent["first_send_ns"], visit.handed["done_ns"]
        return len(visit.items) == 2 and sent_ns - done_ns > 1_000 and not is_reference(history, visit)

    visit = history.visit(fits, shared=True)
    first, hand = visit.items.pop(0), visit.hands.pop(0)
    begin_ns, end_ns = visit.handed["done_ns"], visit.acknowledge.sent["first_send_ns"]
    step, sent_ns = (end_ns - begin_ns) // 4, visit.fetch.sent["first_send_ns"]
    clock = visit.clock
    history.made_anew(visit, sent_ns - 800, sent_ns - 400, clock)
    visit.fetch.done["cursor"] = clock
    history.made_anew(visit, begin_ns + 10, begin_ns + step, clock)
    times = {"first_send_ns": begin_ns + step + 1, "done_ns": begin_ns + 2 * step, "t_ns": begin_ns + 2 * step}
    told = {"cursor": clock, "upto": first["clock"], "items": [first], "lost": 0}
    history.insert(visit.proc, visit.fetch.done, "fetch", begin_ns + step + 10, begin_ns + 2 * step - 10, **told)
    history.add(visit.proc, {**visit.handed, **times, "items": [hand]}, sink=True)
    history.made_anew(visit, begin_ns + 2 * step + 10, begin_ns + 3 * step, clock)
    return visit.channel


def is_reference(history: ChannelHistory, visit: Visit) -> bool:
    """True for the subscriber of its channel that got most messages: the others are compared with it."""
    got: dict[str, set[str]] = {}
    for call in history.of(visit.channel, "fetch"):
        got.setdefault(call.done["subscriber"], set()).update(item.get("message", "") for item in call.done["items"])
    return visit.subscriber == max((len(names), one) for one, names in got.items())[1]


@channel_kind("P6")
def new_subscriber_begins_behind_the_clock(history: ChannelHistory) -> str:
    """A subscriber that is created begins some messages before the channel's clock."""
    visit, _ = history.stretch([single, single])
    done_ns = visit.acknowledge.done["done_ns"]
    like = visit.fetch.done
    history.insert(visit.proc, like, "unsubscribe", done_ns + 100, done_ns + 200, result="deleted")
    told = {"result": "created", "clock": visit.clock, "cursor": ahead(visit.clock, -3)}
    history.insert(visit.proc, like, "subscribe", done_ns + 300, done_ns + 400, **told)
    return visit.channel


# Corruptions of what callers of `fetch` are handed: the server's answers are as they should be, and the
# client is broken.


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
