"""A channel run that is valid: every wrap is crossed, one around each fault; a subscriber is killed, replies are lost, and a
snapshot is restored."""

from pathlib import Path

from engine.models.dsps import CLOCK_MAX, clock_ahead
from tests.reports.channel_story import ChannelStory

P1, P2, S1, S2, S3 = "publisher-1", "publisher-2", "subscriber-1", "subscriber-2", "subscriber-3"

KILL, LOST, RESTORE = "1-subscriber-kill", "2-net-reply-lost", "3-snapshot-restore"

#: When the snapshot is complete, when it is put back, and from when on only the new server answers.
SAVED_S, RESTORED_S, HEALED_S = 40.0, 44.0, 45.0

END_S = 60.0


def cast(story: ChannelStory, *, witness: bool = True) -> None:
    """The processes of the run."""
    story.cpu = {P1: 0.07, P2: 0.07}
    story.process("harness", "harness")
    for name in (P1, P2):
        story.process(name, "publisher")
    for name in (S1, S2):
        story.process(name, "subscriber", sink=witness)
    story.process(S3, "subscriber", at=12.0, sink=witness)
    story.phases(lead_in=0.0, drain=50.0, end=END_S)


def faults(story: ChannelStory) -> None:
    """The three faults, each witnessed and healed."""
    story.spec["plan"] = [
        {"fault": KILL, "name": "subscriber-kill", "target": S1},
        {"fault": LOST, "name": "net-reply-lost", "target": P2},
        {"fault": RESTORE, "name": "snapshot-restore", "target": "servers"},
    ]
    story.left_open.add(S1)
    story.fault(RESTORE, "servers", "snapshot", SAVED_S)
    story.stages(KILL, S1, 10.0, 10.01, 12.0, 12.5, detail="{} seen")
    story.stages(LOST, P2, 20.0, 23.0, 23.1, 23.5, detail="{} seen")
    story.stages(RESTORE, "servers", RESTORED_S, RESTORED_S + 0.5, HEALED_S, HEALED_S + 0.5, detail="{} seen")


def turn(story: ChannelStory, channel: str, subscriber: str, message: str, at: float, *, by: str = S2, proc: str = P1) -> None:
    """A message is published, fetched by one who waits for it, and acknowledged."""
    story.publish(proc, channel, message, at)
    story.fetch(by, channel, subscriber, at + 0.002, waited_ms=100)
    story.acknowledge(by, channel, subscriber, at + 0.004)


def killed(story: ChannelStory) -> None:
    """S1 is killed after two messages were answered, one of each side of the wrap, and before they are handed out; S3 gets them
    again."""
    story.channel("wrap-kill", preset=clock_ahead(CLOCK_MAX, -2))
    story.subscribe(S1, "wrap-kill", "reader", 0.5)
    turn(story, "wrap-kill", "reader", "k1", 2.0, by=S1)
    story.publish(P1, "wrap-kill", ["k2", "k3"], 9.0)
    story.fetch(S1, "wrap-kill", "reader", 9.5, returned=False)
    story.subscribe(S3, "wrap-kill", "reader", 12.1)
    story.fetch(S3, "wrap-kill", "reader", 12.2)
    story.acknowledge(S3, "wrap-kill", "reader", 12.3)


def reply_lost(story: ChannelStory) -> None:
    """The reply to a publish is lost at the wrap; the second copy says that it is there already. And so is one to an
    acknowledgement, of which the second copy says that it is stale."""
    story.channel("wrap-lost", preset=clock_ahead(CLOCK_MAX, -1))
    story.subscribe(S2, "wrap-lost", "reader", 0.5)
    turn(story, "wrap-lost", "reader", "l1", 2.0)
    story.publish(P2, "wrap-lost", "l2", 19.99, took=3.4, sends=3, results=["duplicate"])
    story.fetch(S2, "wrap-lost", "reader", 21.0)
    cursor = story.channels["wrap-lost"].clock
    story.acknowledge(S2, "wrap-lost", "reader", 21.1, sends=2, result="unknown", told={"cursor": cursor})
    story.channels["wrap-lost"].cursors["reader"] = cursor
    turn(story, "wrap-lost", "reader", "l3", 24.0, proc=P2)


def restored(story: ChannelStory) -> None:
    """The server comes back as it was at 40 s: what came later is gone, cursors and all, and the clock goes on after it."""
    held = story.channel("wrap-back", preset=clock_ahead(CLOCK_MAX, -2))
    story.subscribe(S2, "wrap-back", "reader", 0.5)
    turn(story, "wrap-back", "reader", "r1", 2.0)
    turn(story, "wrap-back", "reader", "r2", 35.0)
    saved = held.clock
    turn(story, "wrap-back", "reader", "r3", 42.0)
    story.restore("wrap-back", saved, highest=held.clock)
    for proc in (P1, P2, S2, S3):
        story.row(proc, "connection", RESTORED_S + 0.6, server_run_id="r2", replid="era-1", server_role="master")
    turn(story, "wrap-back", "reader", "r4", 46.0)


def many(story: ChannelStory) -> None:
    """A channel with three subscribers; every kind of bad receipt is tried and refused."""
    story.channel("fan-3", fan_out=3)
    for number in (1, 2, 3):
        story.subscribe(S2, "fan-3", f"s{number}", 0.6)
    for index in range(4):
        story.publish(P1, "fan-3", f"f{index}", 3.0 + index)
        for number in (1, 2, 3):
            story.fetch(S2, "fan-3", f"s{number}", 3.1 + index + number / 10)
            story.acknowledge(S2, "fan-3", f"s{number}", 3.15 + index + number / 10)
    for index, (name, result) in enumerate(
        {"tampered": "malformed", "truncated": "malformed", "foreign": "malformed", "old": "stale", "beyond": "stale"}.items()
    ):
        story.misuse(S2, "fan-3", "s1", name, 8.0 + index / 10, result=result)


def healthy(folder: Path, *, witness: bool = True) -> ChannelStory:
    """All of it; without a second witness of what callers were handed, as older runs have it."""
    story = ChannelStory(folder)
    cast(story, witness=witness)
    faults(story)
    for tell in (killed, reply_lost, restored, many):
        tell(story)
    return story
