"""Cases of channels: what happened on one of them, and what P1 to P7 must find for it: nothing, or violations that name it.

Each case has a channel of its own, named for it, with a reader whose process is S2. The restore of the run (snapshot at 40 s, put
back at 44 s, over at 45 s) hits all of them, so what is not about it happens before 36 s.
"""

from collections.abc import Callable
from typing import Any

from engine.models.dsps import CLOCK_MAX, clock_ahead
from tests.reports.channel_story import Channel, ChannelStory, Sent, crc_of
from tests.reports.good_channels import P1, P2, S2, S3
from tests.reports.story import ns

Tell = Callable[[ChannelStory, Channel], None]

#: Channel -> what happened on it, where its clock begins, and the (check, kind, level) of each violation that must be found.
CASES: dict[str, tuple[Tell, int, set[tuple[str, ...]]]] = {}

R = "reader"

#: Two steps before the wrap: the third message has the smallest clock.
NEAR = clock_ahead(CLOCK_MAX, -2)

LOST, GAP, BACK, AHEAD = ("P1", "lost"), ("P3", "gap"), ("P3", "back"), ("P6", "ahead")

#: So long lives a message that may expire at once, in seconds.
LIFE_S = 15.0


def told(name: str, tell: Tell, *expected: tuple[str, str] | tuple[str, str, str], preset: int = 0) -> None:
    """A case and what must be found for its channel: (check, kind), or (check, kind, level) where the level is not violated."""
    CASES[name] = (tell, preset, {(*found, "violated")[:3] for found in expected})


def case(*expected: tuple[str, str] | tuple[str, str, str], preset: int = 0) -> Callable[[Tell], Tell]:
    """A case that is called as its function."""

    def keep(tell: Tell) -> Tell:
        told(tell.__name__.replace("_", "-"), tell, *expected, preset=preset)
        return tell

    return keep


def everywhere(*expected: tuple[str, str]) -> Callable[[Tell], Tell]:
    """A case that is told twice: far from the wrap, and so that the wrap lies among its three messages."""

    def keep(tell: Tell) -> Tell:
        name = tell.__name__.replace("_", "-")
        told(name, tell, *expected)
        told(f"{name}-at-the-wrap", tell, *expected, preset=NEAR)
        return tell

    return keep


def publish(
    story: ChannelStory, one: Channel, *messages: str, at: float = 2.0, reader: bool = True, then_read: float | None = None
) -> list[int]:
    """Subscribe the reader, then publish messages one after the other; their clocks. `then_read`: when it reads them."""
    if reader and R not in one.cursors:
        story.subscribe(S2, one.name, R, at - 1)
    clocks = [story.publish(P1, one.name, message, at + index / 10)[0] for index, message in enumerate(messages)]
    if then_read is not None:
        read(story, one, then_read)
    return clocks


def fetched(story: ChannelStory, one: Channel, *messages: str, at: float = 3.0, **more: Any) -> list[Sent]:
    """Publish messages for the reader, which fetches them and acknowledges nothing; what was delivered."""
    publish(story, one, *messages)
    return story.fetch(S2, one.name, R, at, **more)


def publish_one(story: ChannelStory, one: Channel, **more: Any) -> None:
    """Subscribe the reader, then publish one message; `more` is what that says."""
    story.subscribe(S2, one.name, R, 1)
    story.publish(P1, one.name, "a", 2, **more)


def read(story: ChannelStory, one: Channel, at: float, *given: Sent, proc: str = S2, subscriber: str = R) -> None:
    """A fetch that delivers exactly these, or what there is; acknowledged up to where it ended."""
    got = story.fetch(proc, one.name, subscriber, at, items=given or None)
    story.acknowledge(proc, one.name, subscriber, at + 0.01, got[-1].clock if got else None)


def not_found(story: ChannelStory, one: Channel, at: float) -> None:
    """A fetch that the server refuses."""
    asked = {"subscriber": R, "result": "subscription-not-found"}
    story.call(S2, "fetch", one.name, at, reply="fail", asked=asked, told={})


@everywhere()
def all_arrive_in_order(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c", then_read=3)
    publish(story, one, "d", at=4, then_read=3.999)


@everywhere(LOST, GAP)
def one_in_the_middle_is_left_out(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c")
    kept = one.kept
    one.kept = [kept[0], kept[2]]
    read(story, one, 3)


@everywhere(LOST)
def the_last_one_never_comes(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c")
    one.kept.pop()
    read(story, one, 3)
    read(story, one, 4)


@everywhere(LOST, AHEAD)
def the_cursor_moves_with_the_fetch(story: ChannelStory, one: Channel) -> None:
    """And its reply was lost with the process that asked."""
    fetched(story, one, "a", "b", "c", reply=None)
    one.cursors[R] = one.clock
    read(story, one, 4)


@everywhere()
def a_fetch_without_an_answer_is_asked_again(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", "c", reply=None)
    read(story, one, 4, proc=S3)


@everywhere()
def over_and_reported_as_lost(story: ChannelStory, one: Channel) -> None:
    one.expire_ms = 0
    fetched(story, one, "a", "b", at=10, most=1)
    publish(story, one, "c", at=1.0 + LIFE_S)
    story.expire(one.name, "a", "b")
    read(story, one, 3 + LIFE_S)


@everywhere()
def over_and_nothing_else_there(story: ChannelStory, one: Channel) -> None:
    """The receipt of a fetch without messages skips what is gone."""
    one.expire_ms = 0
    fetched(story, one, "a", "b", "c", at=10, most=0)
    story.expire(one.name)
    read(story, one, 3 + LIFE_S)
    publish(story, one, "d", at=20, then_read=21)


@everywhere(LOST)
def reported_as_lost_while_it_lives(story: ChannelStory, one: Channel) -> None:
    one.expire_ms = 0
    publish(story, one, "a", "b", "c")
    story.expire(one.name)
    read(story, one, 1.9 + LIFE_S)
    read(story, one, 2.5 + LIFE_S)


@everywhere(LOST)
def over_and_not_reported(story: ChannelStory, one: Channel) -> None:
    one.expire_ms = 0
    fetched(story, one, "a", "b", "c", at=10, most=0)
    story.expire(one.name, "a")
    story.fetch(S2, one.name, R, 3 + LIFE_S, told={"lost": 0})


@case()
def deleted_before_it_had_read(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a")
    story.unsubscribe(S2, one.name, R, 3)


@case()
def subscribed_too_late(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", reader=False)
    story.subscribe(S2, one.name, R, 3)
    publish(story, one, "b", at=4, then_read=5)


@case(LOST)
def published_when_the_subscribe_was_answered(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, R, 3, took=1)
    publish(story, one, "a", at=4)
    one.kept.clear()
    read(story, one, 5)


@case(LOST)
def deleted_and_created_again_before_it_was_published(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    story.unsubscribe(S2, one.name, R, 4)
    story.subscribe(S2, one.name, R, 5)
    publish(story, one, "b", at=6)
    one.kept.clear()
    read(story, one, 7)


@case()
def published_without_an_answer_and_not_there(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a")
    story.publish(P1, one.name, "maybe", 3, applied=False, reply="info")
    read(story, one, 4)


@case()
def published_without_an_answer_and_there(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a")
    story.publish(P1, one.name, "maybe", 3, reply=None)
    publish(story, one, "b", at=4, then_read=5)


@case(("P1", "unread", "unknown"))
def not_read_to_the_end(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    publish(story, one, "b", at=50)


@case()
def away_for_good_as_planned(story: ChannelStory, one: Channel) -> None:
    one.more["vanished"] = [R]
    publish(story, one, "a", then_read=3)
    publish(story, one, "b", at=50)


@case(("P1", "subscription lost"))
def not_found_before_its_life_was_over(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    not_found(story, one, 10)


@case()
def not_found_after_its_life(story: ChannelStory, one: Channel) -> None:
    one.expire_ms = 0
    publish(story, one, "a", then_read=3)
    publish(story, one, "b", at=10)
    not_found(story, one, 4 + LIFE_S)
    del one.cursors[R]
    story.subscribe(S2, one.name, R, 5 + LIFE_S)
    publish(story, one, "c", at=6 + LIFE_S, then_read=7 + LIFE_S)


@case(("P2", "ghost"), ("P4", "shared clock"), ("P4", "several clocks"), BACK)
def nobody_published_it(story: ChannelStory, one: Channel) -> None:
    clock = publish(story, one, "a")[0]
    read(story, one, 3, *one.kept, Sent("ghost", clock), Sent("ghost", clock_ahead(clock, 1)))


@case(("P2", "ghost"))
def its_publish_was_refused(story: ChannelStory, one: Channel) -> None:
    clock = publish(story, one, "a")[0]
    story.publish(P1, one.name, "refused", 3, applied=False, reply="fail")
    read(story, one, 4, *one.kept, Sent("refused", clock_ahead(clock, 1)))


@case(("P2", "other content"))
def its_content_is_another(story: ChannelStory, one: Channel) -> None:
    clock = publish(story, one, "a")[0]
    story.fetch(S2, one.name, R, 3, told={"items": [{"message": "a", "clock": clock, "crc": 1}]})


@case(("P2", "before its publish"))
def it_came_before_it_was_published(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, R, 1)
    read(story, one, 2, Sent("a", clock_ahead(one.clock, 1)))
    publish(story, one, "a", at=3)


@case(("P2", "unreadable"), LOST)
def nobody_can_read_it(story: ChannelStory, one: Channel) -> None:
    clock = publish(story, one, "a")[0]
    story.fetch(S2, one.name, R, 3, told={"items": [{"clock": clock, "result": "corrupt"}]})


@case(("P2", "after its life"))
def it_came_after_its_life(story: ChannelStory, one: Channel) -> None:
    publish_one(story, one, told={"ttl_s": 20})
    read(story, one, 24.14)


@case()
def it_came_at_the_end_of_its_life(story: ChannelStory, one: Channel) -> None:
    """And once more: a second publish, whose answer says that it is there, does not prolong its life."""
    publish_one(story, one, told={"ttl_s": 20})
    story.publish(P1, one.name, "a", 12, told={"ttl_s": 20})
    read(story, one, 23.9)


@case()
def one_of_its_publishes_has_no_answer(story: ChannelStory, one: Channel) -> None:
    """It may have been published anew when its first life had ended."""
    publish_one(story, one, told={"ttl_s": 20})
    story.publish(P1, one.name, "a", 23, reply=None)
    read(story, one, 26)


@everywhere(BACK, GAP)
def two_change_places(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c")
    first, second, third = one.kept
    story.fetch(S2, one.name, R, 3, items=[first, third, second])


@everywhere()
def the_same_again_before_its_acknowledgement(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", "c", most=2)
    story.fetch(S2, one.name, R, 4)
    read(story, one, 5)


@everywhere(("P3", "gap"))
def a_clock_is_left_out(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a")
    one.clock = clock_ahead(one.clock, 1)
    publish(story, one, "b", at=3, then_read=4)


@case(("P4", "shared clock"), LOST)
def two_messages_with_one_clock(story: ChannelStory, one: Channel) -> None:
    """Clocks that went through a text of fourteen digits stand still."""
    clock = publish(story, one, "a")[0]
    read(story, one, 3)
    one.clock = clock_ahead(clock, -1)
    publish(story, one, "b", at=4)
    one.kept.pop()
    read(story, one, 5)


@case(("P4", "several clocks"))
def one_message_with_two_clocks(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    one.kept.clear()
    publish(story, one, "a", at=4, then_read=5)


@everywhere(("P4", "behind"))
def a_later_publish_has_an_earlier_clock(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, R, 1)
    first, second = clock_ahead(one.clock, 1), clock_ahead(one.clock, 2)
    story.publish(P1, one.name, "b", 2, clocks=[second])
    story.publish(P1, one.name, "a", 3, clocks=[first])
    one.kept = [Sent("a", first), Sent("b", second)]
    read(story, one, 4)


@everywhere()
def two_publishes_at_the_same_time(story: ChannelStory, one: Channel) -> None:
    """The one that was sent later comes first."""
    story.subscribe(S2, one.name, R, 1)
    first, second = clock_ahead(one.clock, 1), clock_ahead(one.clock, 2)
    story.publish(P1, one.name, "b", 2, took=0.5, clocks=[second])
    story.publish(P2, one.name, "a", 2.4, clocks=[first])
    one.kept = [Sent("a", first), Sent("b", second)]
    read(story, one, 4)


@everywhere()
def a_duplicate_has_its_first_clock(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b")
    story.publish(P1, one.name, "a", 3)
    read(story, one, 4)


@case()
def published_again_after_its_life(story: ChannelStory, one: Channel) -> None:
    one.expire_ms = 0
    publish(story, one, "a", then_read=3)
    story.fetch(S2, one.name, R, 10)
    one.kept.clear()
    publish(story, one, "a", at=3 + LIFE_S, then_read=4 + LIFE_S)


@case(("P4", "no clock"), ("P3", "gap"))
def a_clock_that_is_none(story: ChannelStory, one: Channel) -> None:
    """`9.007199254741e+15`, read as a whole number."""
    one.clock = one.preset = CLOCK_MAX - 1
    publish(story, one, "a")
    one.kept.append(Sent("b", CLOCK_MAX + 9))
    story.publish(P1, one.name, "b", 3, clocks=[CLOCK_MAX + 9])
    story.fetch(S2, one.name, R, 4, items=one.kept)


@everywhere(("P5", "again"))
def acknowledged_and_again(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c", then_read=3)
    story.fetch(S2, one.name, R, 4, items=one.kept[2:], told={"cursor": one.cursors[R]})


@case(("P5", "cut receipt"), preset=NEAR)
def its_receipt_has_the_largest_clock_of_the_batch(story: ChannelStory, one: Channel) -> None:
    """Which is not the last one where the batch spans the wrap: the tail comes again."""
    fetched(story, one, "a", "b", "c", "d")
    story.acknowledge(S2, one.name, R, 3.1, CLOCK_MAX)
    story.fetch(S2, one.name, R, 4)


@everywhere()
def acknowledged_without_an_answer_and_again(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", "c")
    story.acknowledge(S2, one.name, R, 3.1, 0, result="stale", reply="info")
    read(story, one, 4)


@everywhere()
def sent_before_the_acknowledgement_was_answered(story: ChannelStory, one: Channel) -> None:
    got = fetched(story, one, "a", "b", "c")
    story.fetch(S3, one.name, R, 3.9, took=0.5)
    story.acknowledge(S2, one.name, R, 4, got[-1].clock)


@case(("P6", "accepted"))
def a_tampered_receipt_is_accepted(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    story.misuse(S2, one.name, R, "tampered", 4, result="OK")


@case()
def an_old_receipt_is_stale(story: ChannelStory, one: Channel) -> None:
    clock = publish(story, one, "a", "b")[0]
    story.fetch(S2, one.name, R, 3, most=1)
    story.acknowledge(S2, one.name, R, 3.1, clock)
    story.acknowledge(S2, one.name, R, 3.2, clock)
    story.misuse(S2, one.name, R, "old", 3.3, result="stale")
    read(story, one, 4)


@everywhere(("P6", "back"))
def a_cursor_goes_back(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", "c", then_read=3)
    story.fetch(S2, one.name, R, 4, told={"cursor": one.kept[0].clock})


@everywhere(("P6", "begins elsewhere"))
def a_new_subscriber_begins_behind_the_clock(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", then_read=3)
    one.cursors["second"] = one.kept[0].clock
    story.subscribe(S2, one.name, "second", 4, told={"result": "created"})
    read(story, one, 5, subscriber="second")


@everywhere()
def a_copy_of_a_subscribe_finds_the_cursor_further_on(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", then_read=3)
    one.cursors["second"] = one.kept[0].clock
    story.subscribe(S2, one.name, "second", 4, sends=2, told={"result": "created"})
    read(story, one, 5, subscriber="second")


@everywhere(("P6", "no receipt"), LOST, GAP)
def acknowledged_what_nobody_gave_it(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", "c", most=1)
    story.acknowledge(S2, one.name, R, 3.1, one.kept[1].clock)
    read(story, one, 4)


@everywhere(("P6", "no receipt"), LOST, GAP)
def acknowledged_what_nobody_gave_it_and_found_there(story: ChannelStory, one: Channel) -> None:
    """A fetch that finds nothing after the cursor gives no receipt for it."""
    fetched(story, one, "a", "b", most=1)
    story.acknowledge(S2, one.name, R, 3.1, one.kept[1].clock)
    story.fetch(S2, one.name, R, 4)
    publish(story, one, "c", at=5, then_read=6)


@case()
def an_old_receipt_that_a_restore_made_good_again(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=30, then_read=43)
    story.misuse(S2, one.name, R, "old", 43.5, result="OK")


@everywhere(("P7", "other order"), BACK)
def two_subscribers_disagree(story: ChannelStory, one: Channel) -> None:
    """The order is that of who got most."""
    publish(story, one, "a")
    story.subscribe(S2, one.name, "second", 2.05)
    publish(story, one, "b", "c", at=2.1, then_read=3)
    story.fetch(S2, one.name, "second", 4, items=[one.kept[2], one.kept[1]])


@everywhere()
def two_subscribers_agree(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, "second", 0.8)
    publish(story, one, "a", "b", then_read=3)
    publish(story, one, "c", at=4)
    read(story, one, 5, subscriber="second")
    read(story, one, 6)


@everywhere()
def gone_with_the_restore(story: ChannelStory, one: Channel) -> None:
    """Published after the snapshot, read by nobody, and gone; what came before it is delivered once more."""
    publish(story, one, "a", at=30)
    saved = one.clock
    read(story, one, 42)
    story.publish(P1, one.name, "b", 43)
    story.restore(one.name, saved, highest=one.clock)
    one.cursors[R] = clock_ahead(saved, -1)
    story.fetch(S2, one.name, R, 45.5)
    publish(story, one, "c", at=46, then_read=47)


@case(LOST)
def gone_with_the_restore_though_it_is_in_the_snapshot(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=30)
    story.restore(one.name, clock_ahead(one.clock, -1), highest=one.clock)
    publish(story, one, "b", at=46, then_read=47)


@case()
def published_anew_after_the_restore(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=43, then_read=43.5)
    one.kept.clear()
    one.era += 1
    publish(story, one, "b", "a", at=46, then_read=47)


@case(("P4", "shared clock", "possible"))
def its_clock_is_given_to_another_after_the_restore(story: ChannelStory, one: Channel) -> None:
    """By a publisher who had not heard of it."""
    clock = publish(story, one, "a", at=43)[0]
    read(story, one, 43.5)
    one.kept.clear()
    one.clock = one.cursors[R] = clock_ahead(clock, -1)
    story.publish(P2, one.name, "b", 46)
    read(story, one, 47)


@case(("P4", "shared clock", "possible"))
def sent_before_the_restore_and_again_after_it(story: ChannelStory, one: Channel) -> None:
    """One call: its first copy was applied and read, and then undone; its second one met the restored server."""
    story.subscribe(S2, one.name, R, 1)
    lost = clock_ahead(one.clock, 1)
    told = {"last_send_ns": ns(46.5), "clock": clock_ahead(lost, 1)}
    story.publish(P2, one.name, "a", 42, took=4.6, sends=2, clocks=[clock_ahead(lost, 1)], told=told)
    read(story, one, 43.5)
    one.clock = one.cursors[R] = clock_ahead(lost, -1)
    one.kept.clear()
    publish(story, one, "b", at=46)
    one.kept.append(Sent("a", clock_ahead(lost, 1)))
    one.clock = clock_ahead(lost, 1)
    read(story, one, 47)


def undone_and_published_anew_behind_another(story: ChannelStory, one: Channel, highest_ahead: int) -> None:
    """The first copy of a call was applied, a fast reader saw its two clocks, and a restore undid them; its second copy comes
    after another publish. The channel goes on `highest_ahead` clocks behind the last one that was seen. The slow reader gets
    what is before the two clocks and what is behind them in one reply."""
    publish(story, one, "a", at=30)
    story.subscribe(S2, one.name, "fast", 30.5)
    saved = one.clock
    second_copy = [clock_ahead(saved, 4 + highest_ahead), clock_ahead(saved, 5 + highest_ahead)]
    told = {"last_send_ns": ns(46.5), "clock": second_copy[1]}
    story.publish(P2, one.name, ["b", "c"], 42, took=4.6, sends=2, clocks=second_copy, told=told)
    story.fetch(S2, one.name, "fast", 43.5)
    story.restore(one.name, saved, highest=clock_ahead(one.clock, highest_ahead))
    publish(story, one, "d", at=46)
    one.kept += [Sent(message, clock) for message, clock in zip("bc", second_copy, strict=True)]
    one.clock = second_copy[1]
    read(story, one, 47)
    read(story, one, 47.5, subscriber="fast")


@everywhere()
def clocks_that_a_restore_undid_are_passed_over(story: ChannelStory, one: Channel) -> None:
    undone_and_published_anew_behind_another(story, one, 0)


@everywhere(GAP)
def clocks_that_nobody_had_seen_are_passed_over(story: ChannelStory, one: Channel) -> None:
    undone_and_published_anew_behind_another(story, one, 1)


@case(("P5", "again"))
def acknowledged_and_again_after_the_restore(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=43)
    publish(story, one, "b", at=46, then_read=47)
    story.fetch(S2, one.name, R, 48, items=one.kept[1:])


@everywhere(AHEAD)
def the_cursor_moves_by_itself_behind_a_dead_reader(story: ChannelStory, one: Channel) -> None:
    """What it had in hand was not acknowledged, and does not come again: the reader that died with it had got it."""
    fetched(story, one, "a", "b", "c")
    one.cursors[R] = one.clock
    read(story, one, 4, proc=S3)


@everywhere(AHEAD)
def a_stale_acknowledgement_moves_the_cursor(story: ChannelStory, one: Channel) -> None:
    first, *_ = publish(story, one, "a", "b", "c")
    story.fetch(S2, one.name, R, 3, most=1)
    story.acknowledge(S2, one.name, R, 3.1, first)
    story.fetch(S2, one.name, R, 3.2)
    story.acknowledge(S2, one.name, R, 3.3, first)
    one.cursors[R] = one.clock
    read(story, one, 4)


@everywhere()
def an_acknowledgement_without_an_answer_has_moved_the_cursor(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", "c")
    story.acknowledge(S2, one.name, R, 3.1, reply=None)
    publish(story, one, "d", at=4)
    read(story, one, 5, proc=S3)


@case(("P1", "unheard of", "unknown"))
def subscribed_without_an_answer_after_some_messages(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", reader=False)
    story.subscribe(S2, one.name, R, 3, reply=None)
    publish(story, one, "c", at=4, then_read=5)


@case(("P3", "era"), preset=NEAR)
def the_wrap_is_taken_for_a_clock_that_went_back(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", "b", then_read=3)
    one.era += 1
    publish(story, one, "c", at=4, then_read=5)


@case(("P4", "several clocks"))
def without_an_answer_long_before_the_restore_and_at_two_clocks(story: ChannelStory, one: Channel) -> None:
    """No restore has undone what was void before its snapshot."""
    publish_one(story, one, reply=None)
    publish(story, one, "b", at=3)
    one.clock = clock_ahead(one.clock, 1)
    story.publish(P1, one.name, "a", 20, clocks=[one.clock], results=["created"])
    one.kept.append(Sent("a", one.clock))
    read(story, one, 21)


@case(("P1", "subscription lost"))
def not_found_after_the_restore_though_it_is_in_the_snapshot(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=30)
    not_found(story, one, 46)
    del one.cursors[R]
    story.subscribe(S2, one.name, R, 46.1)
    publish(story, one, "b", at=47, then_read=48)


@case()
def subscribed_after_the_snapshot_and_gone_with_it(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, R, 42)
    not_found(story, one, 46)
    del one.cursors[R]
    story.subscribe(S2, one.name, R, 46.1)
    publish(story, one, "b", at=47, then_read=48)


@case(LOST)
def expired_sooner_than_the_spec_says(story: ChannelStory, one: Channel) -> None:
    """As the engine has asked for it: its own word is no excuse."""
    story.subscribe(S2, one.name, R, 1)
    asked = {"intended_ns": ns(2), "items": [{"message": "a", "crc": crc_of("a")}], "ttl_s": 2}
    one.clock = clock_ahead(one.clock, 1)
    told = {"clock": one.clock, "items": [{**asked["items"][0], "clock": one.clock, "result": "created"}]}
    story.call(P1, "publish", one.name, 2, asked=asked, told=told)
    publish(story, one, "b", at=9, then_read=10)
