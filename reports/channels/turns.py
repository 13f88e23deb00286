"""The history of each channel's clock: its crossings of the wrap, and its eras, each of which begins when the clock went
back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.channels.plan import CLOCK_MAX, CLOCKS, NEAR, past_wrap, planned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from reports.channels.frames import ChannelFrames

#: Operations whose answers contain the clock of the channel.
TELLING = ("publish", "subscribe", "fetch")


@dataclass(frozen=True, slots=True)
class Era:
    """One era of a channel, from its answers: when it was first seen, and its lowest and highest clock as steps past the wrap.
    `crossed_ns`: when a clock beyond the wrap was first seen, if the era began before the wrap."""

    channel: str
    era: int
    first_ns: int
    lowest: int
    highest: int
    crossed_ns: int | None


def told_clocks(frames: ChannelFrames) -> DataFrame:
    """The answers with a channel's clock: channel, era, done_ns, and `steps`, the clock as steps past the wrap."""
    with_clock = (F.col("type") == "ok") & F.col("f").isin(*TELLING) & F.col("clock").isNotNull() & F.col("done_ns").isNotNull()
    answers = frames.calls.where(with_clock)
    era = F.coalesce("era", F.lit(0)).alias("era")
    return answers.select("channel", era, "done_ns", past_wrap_of(F.col("clock")).alias("steps"))


def eras(frames: ChannelFrames) -> dict[str, list[Era]]:
    """Channel -> its eras in order."""
    channels = planned(frames.run)
    beyond = F.col("steps").between(1, NEAR)
    rows = (
        told_clocks(frames)
        .groupBy("channel", "era")
        .agg(
            F.min("done_ns").alias("first_ns"),
            F.min("steps").alias("lowest"),
            F.max("steps").alias("highest"),
            F.min(F.when(beyond, F.col("done_ns"))).alias("beyond_ns"),
        )
        .orderBy("channel", "era")
    )
    found: dict[str, list[Era]] = {}
    for row in rows.collect():
        before, plan = found.setdefault(row["channel"], []), channels.get(row["channel"])
        start = before[-1].highest if before else past_wrap(plan.preset) if plan else row["lowest"]
        before.append(era_of(row, start))
    return found


def era_of(row: Row, start: int) -> Era:
    """One era, which began at `start`: the end of the previous era, or the preset clock of the spec. Its first answer may
    already be beyond the wrap."""
    came_from_before = -NEAR < min(start, row["lowest"]) <= 0
    crossed_ns = row["beyond_ns"] if came_from_before else None
    return Era(row["channel"], row["era"], row["first_ns"], row["lowest"], row["highest"], crossed_ns)


def past_wrap_of(clock: Column) -> Column:
    """`past_wrap` for a column; no intermediate value exceeds 64 bits."""
    steps = F.pmod(clock - F.lit(CLOCK_MAX), F.lit(CLOCKS))
    return F.when(steps > F.lit(CLOCK_MAX), steps - F.lit(CLOCKS)).otherwise(steps)
