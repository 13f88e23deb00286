"""Cases of channels: what callers of `fetch` were handed, and what P8 must find for it."""

from collections.abc import Callable

from tests.reports.cases.channels import NEAR, R, Tell, case, everywhere, fetched, publish, read, told
from tests.reports.channel_story import Channel, ChannelStory, item_of
from tests.reports.good_channels import END_S, P1, S1, S2, S3


def two_fetched(handed: Callable[[list[dict]], list[dict]]) -> Tell:
    """A fetch brings two messages, and its caller gets what is made of them."""

    def tell(story: ChannelStory, one: Channel) -> None:
        publish(story, one, "a", "b")
        story.fetch(S2, one.name, R, 3, handed=handed([item_of(sent) for sent in one.kept]))
        story.acknowledge(S2, one.name, R, 3.1)

    return tell


told("one-is-not-handed-out", two_fetched(lambda items: items[:1]), ("P8", "kept back"))


@case(("P8", "kept back"))
def the_call_does_not_return(story: ChannelStory, one: Channel) -> None:
    """It raises, though a fetch of it brought a message; the next call gets it."""
    fetched(story, one, "a", returned=False)
    read(story, one, 4)


told("one-is-handed-out-twice", two_fetched(lambda items: [*items, items[1]]), ("P8", "handed twice"))


TURNED = two_fetched(lambda items: items[::-1])
told("they-are-handed-out-in-another-order", TURNED, ("P8", "other order"))
told("they-are-handed-out-in-another-order-at-the-wrap", TURNED, ("P8", "other order"), preset=NEAR)
MIXED_UP = two_fetched(lambda items: [{**a, "crc": b["crc"]} for a, b in zip(items, items[::-1], strict=True)])
told("they-are-handed-out-with-each-others-content", MIXED_UP, ("P8", "other content"))
LATER = two_fetched(lambda items: [items[0], {**items[1], "clock": items[1]["clock"] + 1}])
told("one-is-handed-out-with-another-clock", LATER, ("P8", "other clock"))


@case(("P8", "not fetched"))
def one_is_handed_out_that_came_before(story: ChannelStory, one: Channel) -> None:
    """The client still had it from the call before."""
    publish(story, one, "a", then_read=3)
    publish(story, one, "b", at=4)
    story.fetch(S2, one.name, R, 5, handed=[item_of(sent) for sent in one.kept])
    story.acknowledge(S2, one.name, R, 5.1)


@case(("P8", "not fetched"))
def handed_out_without_a_fetch(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", then_read=3)
    story.hand(S2, one.name, R, 4, 4.1, [item_of(one.kept[0])])


@case(("P8", "kept back"), ("P8", "not fetched"))
def fetched_between_two_calls(story: ChannelStory, one: Channel) -> None:
    """The client looks ahead, and hands out later what it got."""
    fetched(story, one, "a", returned=False)
    story.hand(S2, one.name, R, 4, 4.1, [item_of(one.kept[0])])
    story.acknowledge(S2, one.name, R, 4.2)


@case(("P8", "acknowledged first"))
def acknowledged_before_it_is_handed_out(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", returned=False)
    story.acknowledge(S2, one.name, R, 3.1)
    story.hand(S2, one.name, R, 2.9, 3.2, [item_of(one.kept[0])])


@case(("P8", "other loss"))
def another_loss_is_told(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", returned=False)
    story.hand(S2, one.name, R, 2.9, 3.1, [item_of(one.kept[0])], lost=1)
    story.acknowledge(S2, one.name, R, 3.2)


@everywhere()
def asked_several_times_until_there_is_something(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S2, one.name, R, 1)
    story.fetch(S2, one.name, R, 1.5)
    publish(story, one, "a", at=2)
    story.fetch(S2, one.name, R, 2.5, waited_ms=1_000)
    story.acknowledge(S2, one.name, R, 2.6)


@case()
def given_the_same_by_two_calls(story: ChannelStory, one: Channel) -> None:
    fetched(story, one, "a", "b", most=1)
    read(story, one, 4)


@case()
def answered_while_its_process_ends(story: ChannelStory, one: Channel) -> None:
    publish(story, one, "a", at=46)
    story.fetch(S2, one.name, R, END_S - 0.5, returned=False)


@case()
def cut_off_by_a_kill(story: ChannelStory, one: Channel) -> None:
    story.subscribe(S1, one.name, R, 1)
    story.publish(P1, one.name, "a", 2)
    story.fetch(S1, one.name, R, 9.5, returned=False)
    read(story, one, 13, proc=S3)


@case(("P8", "kept back"))
def lost_long_before_a_kill(story: ChannelStory, one: Channel) -> None:
    """A later call of the process that was killed has returned."""
    story.subscribe(S1, one.name, R, 1)
    story.publish(P1, one.name, "a", 2)
    story.fetch(S1, one.name, R, 3, returned=False)
    story.publish(P1, one.name, "b", 4)
    story.fetch(S1, one.name, R, 5)
    read(story, one, 13, proc=S3)
