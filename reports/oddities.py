"""Rows that no recorder of this schema writes. No check sees what they tell: they are as good as missing, and H0 names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.meaning import ENDS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Kinds of row, and operations, that `engine.history` documents.
KINDS = (
    "process",
    "open",
    "close",
    "connection",
    "configuration",
    "operation",
    "effect",
    "misuse",
    "fault",
    "phase",
    "clock",
    "final",
    "drop",
)
OPERATIONS = (
    "enqueue",
    "tick",
    "claim",
    "finish",
    "retry",
    "bury",
    "release",
    "drop",
    "extend",
    "mark",
    "promote",
    "reap",
    "handle",
    "publish",
    "subscribe",
    "unsubscribe",
    "fetch",
    "acknowledge",
)

#: Operations whose answered items are about a lease, and so carry its token. A reap may bury a job that nobody holds.
OF_LEASES = ("claim", *ENDS, "extend", "mark")


def oddities() -> list[Column]:
    """The aggregates of one file: names that nobody knows, and rows that lack what they are about."""
    readable, kind, f = F.col("readable"), F.col("kind"), F.col("f")
    operation = readable & (kind == "operation")
    return [
        F.sort_array(F.collect_set(F.when(readable & ~kind.isin(*KINDS), kind))).alias("unknown_kinds"),
        F.sort_array(F.collect_set(F.when(operation & ~f.isin(*OPERATIONS), f))).alias("unknown_operations"),
        F.count_if(readable & tokenless()).alias("tokenless"),
        F.count_if(operation & f.isin("enqueue", "publish") & F.col("intended_ns").isNull()).alias("unintended"),
    ]


def tokenless() -> Column:
    """True for an answered row about leases, or an effect, with an item that lacks its token. What was found corrupt has none."""

    def lacks(item: Column) -> Column:
        whole = item["fence"].isNotNull() & item["nonce"].isNotNull()
        return ~whole & ~F.coalesce(item["result"] == "corrupt", F.lit(False))

    answered = (F.col("kind") == "operation") & (F.col("type") == "ok") & F.col("f").isin(*OF_LEASES)
    about_leases = F.coalesce(answered, F.lit(False)) | (F.col("kind") == "effect")
    return about_leases & F.coalesce(F.exists("items", lacks), F.lit(False))
