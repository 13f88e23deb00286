"""Rows that no recorder of this schema writes. Checks ignore them, which is as bad as missing rows, so H0 reports them."""

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
    "handed",
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

#: Operations whose answered items concern a lease and so carry its token. Reap is absent: it may bury a job without a lease.
OF_LEASES = ("claim", *ENDS, "extend", "mark")


def oddities() -> list[Column]:
    """The aggregates of one file: unknown kinds and operations, and rows that lack required fields."""
    readable, kind, f = F.col("readable"), F.col("kind"), F.col("f")
    operation = readable & (kind == "operation")
    return [
        F.sort_array(F.collect_set(F.when(readable & ~kind.isin(*KINDS), kind))).alias("unknown_kinds"),
        F.sort_array(F.collect_set(F.when(operation & ~f.isin(*OPERATIONS), f))).alias("unknown_operations"),
        F.count_if(readable & tokenless()).alias("tokenless"),
        F.count_if(operation & f.isin("enqueue", "publish") & F.col("intended_ns").isNull()).alias("unintended"),
    ]


def tokenless() -> Column:
    """True for an effect, or an answered row about leases, with an item that lacks its token. Corrupt items need none."""

    def lacks(item: Column) -> Column:
        whole = item["fence"].isNotNull() & item["nonce"].isNotNull()
        return ~whole & ~F.coalesce(item["result"] == "corrupt", F.lit(False))

    answered = (F.col("kind") == "operation") & (F.col("type") == "ok") & F.col("f").isin(*OF_LEASES)
    about_leases = F.coalesce(answered, F.lit(False)) | (F.col("kind") == "effect")
    return about_leases & F.coalesce(F.exists("items", lacks), F.lit(False))
