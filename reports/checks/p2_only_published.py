"""P2: only published messages are delivered: no unknown id, no changed content, none before it was sent, and none that cannot
be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Deliveries compared with the publishes of their messages."""
    known = frames.messages.select("channel", "message", "sent_ns", "crcs")
    named = frames.delivered.join(known, ["channel", "message"], "left").withColumn("who", to())
    message, unknown = F.col("message"), F.col("sent_ns").isNull()
    corrupt = F.coalesce(F.col("item_result") == "corrupt", F.lit(False))
    other = ~F.array_contains("crcs", F.col("crc"))
    late = F.col("done_ns") < F.col("sent_ns")
    found = {
        "unreadable": (corrupt, sentence("was given clock ", F.col("item_clock"), ", which nobody can read"), False),
        "ghost": (~corrupt & unknown, sentence("was given ", message, ", which nobody published"), True),
        "other content": (other, sentence("was given ", message, " with other content"), True),
        "before its publish": (late, sentence("was given ", message, " before anybody published it"), True),
    }
    thin = Flag("thin", F.col("n") == 0, F.lit("was given nothing"), absence=False, level="unknown", subject="who")
    counted = frames.delivered.agg(F.count(F.lit(1)).alias("n")).withColumn("who", F.lit("every subscriber"))
    flags = [Flag(kind, *flag, subject="who") for kind, flag in found.items()]
    return [*((named, flag) for flag in flags), (counted, thin)]


CHECK = Check("P2", "only what was published is delivered", lambda run: [], channels=channels)
