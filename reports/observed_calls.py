"""Aggregates of single rows for checks: the few calls that prove that a fault affected the engine (H2), and late sends (H3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import SLOT_NS
from reports.file_facts import CALL_SLOT_NS, LAG_STEP_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Operation -> item results to observe, such as `finish stale`. A run has few of these.
OBSERVED = {"enqueue": ("repeated",), "claim": ("repeated",), "finish": ("repeated", "stale"), "extend": ("ok",)}


def observed_calls() -> Column:
    """The observed calls of a row with their instants; null for a row that is none."""
    f, results = F.col("f"), F.col("items.result")
    told = []
    for operation, wanted in OBSERVED.items():
        for result in wanted:
            # A repeated claim has its result on the row, not on the items, because there may be no item left to repeat.
            some = F.array_contains(results, result) | ((F.col("result") == result) & F.lit(operation == "claim"))
            told.append(F.when((f == operation) & F.coalesce(some, F.lit(False)), F.lit(f"{operation} {result}")))
    ok = F.col("readable") & (F.col("type") == "ok") & f.isin(*OBSERVED)
    what = F.when(ok, F.array_compact(F.array(*told)))
    return F.when(F.size(what) > 0, F.struct(what.alias("what"), "first_send_ns", "done_ns", "last_send_ns"))


def call() -> Column:
    """Send and answer time of an answered call, in units of `CALL_SLOT_NS`; null for other rows."""
    answered = F.col("readable") & (F.col("kind") == "operation") & (F.col("type") == "ok") & (F.col("f") != "handle")
    sent, done = F.expr(f"coalesce(last_send_ns, first_send_ns) div {CALL_SLOT_NS}"), F.expr(f"done_ns div {CALL_SLOT_NS}")
    return F.when(answered & sent.isNotNull() & done.isNotNull(), F.struct(sent.alias("sent"), done.alias("done")))


def lag() -> Column:
    """The intended slot and the lag, in steps of `LAG_STEP_NS`, of an enqueue or publish; null for rows that were not late."""
    sent = F.col("readable") & (F.col("kind") == "operation") & F.col("f").isin("enqueue", "publish")
    slot, steps = F.expr(f"intended_ns div {SLOT_NS}"), F.expr(f"(first_send_ns - intended_ns) div {LAG_STEP_NS}")
    return F.when(sent & (steps > 0), F.struct(slot.alias("slot"), steps.alias("steps")))
