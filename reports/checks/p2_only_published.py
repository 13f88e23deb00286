"""P2: only published messages are delivered: no unknown id, no changed content, none before it was sent, none long after its life
has ended, and none that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to
from reports.facts import MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames

#: A message whose life has ended so long before a fetch was sent must not be in it: the clocks of server and machine may differ.
LATE_NS = 2_000 * MS


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Deliveries compared with the publishes of their messages."""
    known = frames.messages.select("channel", "message", "sent_ns", "dead_ns", "crcs")
    named = frames.delivered.join(known, ["channel", "message"], "left").withColumn("who", to())
    message, unknown = F.col("message"), F.col("sent_ns").isNull()
    corrupt = F.coalesce(F.col("item_result") == "corrupt", F.lit(False))
    other = ~F.array_contains("crcs", F.col("crc"))
    early = F.col("done_ns") < F.col("sent_ns")
    over = F.col("first_send_ns") > F.col("dead_ns") + LATE_NS
    seconds = F.round((F.col("first_send_ns") - F.col("dead_ns")) / 1e9, 1)
    found = {
        "unreadable": (corrupt, sentence("was given clock ", F.col("item_clock"), ", which nobody can read"), False),
        "ghost": (~corrupt & unknown, sentence("was given ", message, ", which nobody published"), True),
        "other content": (other, sentence("was given ", message, " with other content"), True),
        "before its publish": (early, sentence("was given ", message, " before anybody published it"), True),
        "after its life": (over, sentence("was given ", message, " ", seconds, " s after its life had ended"), True),
    }
    thin = Flag("thin", F.col("n") == 0, F.lit("was given nothing"), absence=False, level="unknown", subject="who")
    counted = frames.delivered.agg(F.count("*").alias("n")).withColumn("who", F.lit("every subscriber"))
    flags = [Flag(kind, *flag, subject="who") for kind, flag in found.items()]
    return [*((named, flag) for flag in flags), (counted, thin)]


CHECK = Check("P2", "only what was published is delivered", lambda run: [], channels=channels)
