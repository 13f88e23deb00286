"""What the second witness says beside what the recorder says: each answered fetch and each message of it with the caller's call
that it belongs to.

A caller's call may ask the server several times until there is something to hand out. The calls of one subscriber in one process
follow each other, so an answer belongs to the first call that returned after it, if that call had begun before it was asked.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.facts import MS, Run
from reports.meaning import in_turn_ns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames

#: The schema version since which subscribers have a second witness.
SAID_SINCE = 8

#: What a row of `paired` is; of one instant they come in this order.
FETCH, MESSAGE, ACKNOWLEDGE, RETURN = range(4)

#: What one subscriber does in one process happens one after the other.
READER = ("proc", "channel", "subscriber")

#: A process that ends does not wait for calls that wait for messages: what is answered so shortly before its witness is closed
#: may not have been handed out any more.
CLOSING_NS = 1_000 * MS


def sinks(run: Run) -> dict[str, str]:
    """Process -> the file of its witness."""
    return {process.name: process.file for process in run.processes if process.role == "sink"}


def unwitnessed(run: Run) -> list[str]:
    """Processes that were given messages and have no witness."""
    fetched = {process.name for process in run.processes if (file := run.files.get(process.file)) and file.fetched}
    return sorted(fetched - set(sinks(run)))


def paired(frames: ChannelFrames) -> DataFrame:
    """Answered fetches, their messages, and acknowledgements (`turn` says which) of processes with a witness.

    at_ns: the instant of the answer, of an acknowledgement that of its first send; `call`: the call that returned next (number,
    begun_ns), null when none did; `acked_later`: the same process sent an acknowledgement for the subscriber afterwards. With
    proc, channel, subscriber and first_send_ns; of fetches lost; of messages message, item_clock, crc and position.
    """
    own = F.col("proc").isin(sorted(sinks(frames.run)))
    calls, done = frames.calls.where(own), F.col("done_ns").alias("at_ns")
    parts = [
        calls.where((F.col("f") == "fetch") & (F.col("type") == "ok")).select(
            *READER, "first_send_ns", "lost", done, F.lit(FETCH).alias("turn")
        ),
        frames.delivered.where(own & F.col("message").isNotNull()).select(
            *READER, *("first_send_ns", "message", "item_clock", "crc", "position"), done, F.lit(MESSAGE).alias("turn")
        ),
        calls.where(F.col("f") == "acknowledge").select(
            *READER, "first_send_ns", in_turn_ns(frames.run).alias("at_ns"), F.lit(ACKNOWLEDGE).alias("turn")
        ),
        frames.handed.select(*READER, done, F.lit(RETURN).alias("turn"), F.struct("number", "begun_ns").alias("call")),
    ]
    both = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    order = Window.partitionBy(*READER).orderBy("at_ns", "turn")
    onward = order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    later = F.coalesce(F.max(F.col("turn") == ACKNOWLEDGE).over(order.rowsBetween(1, Window.unboundedFollowing)), F.lit(False))
    found = {"call": F.first("call", ignorenulls=True).over(onward), "acked_later": later}
    return both.withColumns(found).where(F.col("turn") != RETURN)


def within() -> Column:
    """True when the call that returned next had begun by the time of the send."""
    return F.coalesce(F.col("call.begun_ns") <= F.col("first_send_ns"), F.lit(False))


def cut_off(run: Run) -> Column:
    """True for a delivery after which no call returned any more, and that is explained: its process was killed, or ended without
    waiting for it."""
    ended_ns = {name: run.files[file].closed_ns for name, file in sinks(run).items() if file in run.files}
    ends = [F.lit(part) for name, at in ended_ns.items() if at is not None for part in (name, F.lit(at).cast("bigint"))]
    closed_ns = F.try_element_at(F.create_map(*ends), F.col("proc")) if ends else F.lit(None).cast("bigint")
    ending = F.coalesce(F.col("at_ns") >= closed_ns - CLOSING_NS, F.lit(False))
    return F.col("call").isNull() & (F.col("proc").isin(sorted(run.killed)) | ending)
