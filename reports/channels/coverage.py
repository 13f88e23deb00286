"""The requirements of H2 for a channel run: every planned wrap was crossed, one around each kind of fault; every channel
reached all its subscribers; some messages were redelivered; some woke a long poll; and each fault hit the engine at work.

| fault | what must have happened |
|---|---|
| net-reply-lost | a publish of a target was answered as its own duplicate (other targets: a call was sent again) |
| net-request-lost | a call of a target was sent again and answered |
| net-latency | a call of a target was sent and answered while the network was slow, and took at least the added latency |
| net-down | a process that was cut off connected again and had a call answered (`reports.checks.h2_coverage`) |
| subscriber-kill | another process got messages for a subscriber of the killed one |
| server-restart | publishes and fetches were answered by the new server |
| snapshot-restore | the era was higher afterwards |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.channels.plan import planned
from reports.facts import MS, Run
from reports.windows import Window, windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames

#: A wrap counts as crossed around a fault from this long before its inject until this long after its heal was seen.
AROUND_NS = 5_000 * MS

#: Latency in ms that a slow network adds to a call, as in `reports.checks.h2_coverage`.
SLOW_MS = 90


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement: an aggregate of a frame that is true when the required situation occurred."""

    who: str
    words: str
    seen: Column


def doubts(run: Run) -> list[str]:
    """The check needs a spec in which a channel is set to cross the wrap."""
    return [] if any(one.wraps for one in planned(run).values()) else ["no channel was set to cross the wrap"]


def unmet(frames: ChannelFrames) -> list[DataFrame]:
    """The requirements that were not met, as rows with columns `who` and `words`."""
    run = frames.run
    crossed = crossings(frames)
    given = frames.firsts.groupBy("channel").agg(F.count_distinct("subscriber").alias("subscribers"))
    return [
        lacking(crossed, wraps(run) + around_faults(run)),
        lacking(given, fan_outs(run)),
        lacking(frames.firsts, [Need("every subscriber", "was given each message once only", some(F.col("times") > 1))]),
        lacking(woken(frames), [Need("every long poll", "ended without a message that woke it", some(F.lit(True)))]),
        lacking(frames.published, [need for window in windows(run) for need in of_publishes(run, window)]),
        lacking(frames.calls, [need for window in windows(run) for need in of_calls(run, window)]),
        *(taken_over(frames, window) for window in windows(run) if window.name == "subscriber-kill"),
    ]


def lacking(frame: DataFrame, needs: Sequence[Need]) -> DataFrame:
    """The requirements that a frame does not meet, in one pass over it."""
    found = (F.struct(F.lit(need.who).alias("who"), F.lit(need.words).alias("words"), need.seen.alias("seen")) for need in needs)
    kind = "array<struct<who:string,words:string,seen:boolean>>"
    rows = frame.agg(F.count("*").alias("n"), F.array(*found).cast(kind).alias("needs"))
    return rows.select(F.explode("needs").alias("need")).select("need.*").where(~F.col("seen")).drop("seen")


def some(condition: Column) -> Column:
    """True when the condition holds for some row; never null."""
    return F.coalesce(F.max(condition), F.lit(False))


def crossings(frames: ChannelFrames) -> DataFrame:
    """One row per channel that crossed: when the publish of its first message beyond the wrap was answered."""
    steps = [F.lit(part) for one in planned(frames.run).values() if one.wraps for part in (one.name, F.lit(one.steps_to_wrap))]
    if not steps:
        return frames.published.select("channel", F.lit(0).alias("crossed_ns")).limit(0)
    beyond = F.col("item_at") > F.try_element_at(F.create_map(*steps), F.col("channel"))
    answered = frames.published.where((F.col("type") == "ok") & F.col("item_clock").isNotNull() & beyond.isNotNull())
    found = answered.groupBy("channel").agg(
        some(~beyond).alias("before"), F.min(F.when(beyond, F.col("done_ns"))).alias("crossed_ns")
    )
    return found.where(F.col("before") & F.col("crossed_ns").isNotNull())


def wraps(run: Run) -> list[Need]:
    """Requirements: each channel that was set to cross the wrap has crossed it."""
    names = [one.name for one in planned(run).values() if one.wraps]
    return [Need(name, "did not cross the wrap", some(F.col("channel") == name)) for name in names]


def around_faults(run: Run) -> list[Need]:
    """Requirements: around each kind of fault some channel has crossed the wrap."""
    needs: list[Need] = []
    for kind in dict.fromkeys(str(entry.get("name")) for entry in run.plan):
        spans = [
            F.col("crossed_ns").between(one.inject_ns - AROUND_NS, one.healed_ns + AROUND_NS)
            for one in windows(run)
            if one.name == kind
        ]
        needs.append(Need(kind, "had no channel cross the wrap around it", some(reduce(or_, spans, F.lit(False)))))
    return needs


def fan_outs(run: Run) -> list[Need]:
    """Requirements: every channel has delivered to at least `fan_out` subscribers."""
    words = "reached fewer than {} subscribers"
    reached = F.col("subscribers")
    return [
        Need(one.name, words.format(one.fan_out), some((F.col("channel") == one.name) & (reached >= one.fan_out)))
        for one in planned(run).values()
    ]


def woken(frames: ChannelFrames) -> DataFrame:
    """Messages that were published while the fetch that delivered them was waiting."""
    waited = frames.delivered.where(F.col("waited_ms") > 0)
    known = frames.messages.select("channel", "message", "sent_ns")
    return waited.join(known, ["channel", "message"]).where(F.col("sent_ns") > F.col("first_send_ns") - F.col("waited_ms") * MS)


def publishers(run: Run, window: Window) -> bool:
    """True when a fault hits a process that publishes."""
    names = {process.name for process in run.processes if process.role == "publisher"}
    return bool(names.intersection(window.targets))


def across(window: Window) -> Column:
    """True for an answered call of a target that was in flight at some time while the fault was in force."""
    hit = F.col("proc").isin(*window.targets) & (F.col("type") == "ok")
    return hit & (F.col("first_send_ns") <= window.heal_ns) & F.col("done_ns").between(window.inject_ns, window.next_ns)


def of_publishes(run: Run, window: Window) -> list[Need]:
    """Requirements for a fault that only publishes can meet."""
    if window.name != "net-reply-lost" or not publishers(run, window):
        return []
    own = across(window) & (F.col("sends") > 1) & (F.col("item_result") == "duplicate")
    return [Need(window.fault, "proves nothing: no publish was answered as its own duplicate", some(own))]


def of_calls(run: Run, window: Window) -> list[Need]:
    """Requirements for a fault that any call can meet."""
    fault, again = window.fault, across(window) & (F.col("sends") > 1)
    inside = across(window) & (F.col("first_send_ns") >= window.inject_ns) & (F.col("done_ns") <= window.heal_ns)
    took_ns = F.col("done_ns") - F.coalesce("last_send_ns", "first_send_ns")
    after = (F.col("type") == "ok") & (F.col("first_send_ns") > window.heal_ns)
    era = F.when(F.col("type") == "ok", F.col("era"))
    later, earlier = F.max(F.when(after, era)), F.max(F.when(F.col("done_ns") < window.inject_ns, era))
    match window.name:
        case "net-request-lost":
            return [Need(fault, "proves nothing: no call was sent again and answered", some(again))]
        case "net-reply-lost" if not publishers(run, window):
            return [Need(fault, "proves nothing: no call was sent again and answered", some(again))]
        case "net-latency":
            slow = inside & (took_ns >= SLOW_MS * MS)
            return [Need(fault, "proves nothing: no call was sent and answered while the network was slow", some(slow))]
        case "server-restart":
            return [
                Need(fault, f"proves nothing: no {f} was answered after it", some(after & (F.col("f") == f)))
                for f in ("publish", "fetch")
            ]
        case "snapshot-restore":
            return [Need(fault, "proves nothing: no era was higher after it", F.coalesce(later > earlier, F.lit(False)))]
        case _:
            return []


def taken_over(frames: ChannelFrames, window: Window) -> DataFrame:
    """A kill after which no other process got messages for a subscriber of the killed one."""
    names = ["channel", "subscriber"]
    hit = F.col("proc").isin(*window.targets)
    theirs = frames.calls.where(hit & (F.col("f") == "fetch")).select(*names).distinct()
    later = frames.delivered.where(~hit & (F.col("first_send_ns") > window.inject_ns)).join(theirs, names, "left_semi")
    words = "proves nothing: nobody got messages in place of the killed process"
    return lacking(later, [Need(window.fault, words, some(F.lit(True)))])
