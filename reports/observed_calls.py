"""What checks look for in single rows: the few calls that show that a fault met the engine at work (H2), and late sends (H3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import SLOT_NS
from reports.file_facts import CALL_SLOT_NS, LAG_STEP_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Operation -> results of its items that make it a call: `finish stale`, say. A run has few of each, and extends once in a while.
OBSERVED = {"enqueue": ("repeated",), "claim": ("repeated",), "finish": ("repeated", "stale"), "extend": ("ok",)}


def observed_calls() -> Column:
    """The observed calls of a row with their instants; null for a row that is none."""
    f, results = F.col("f"), F.col("items.result")
    told = []
    for operation, wanted in OBSERVED.items():
        for result in wanted:
            # A claim says of the call that it repeats, also when nothing is left to repeat.
            some = F.array_contains(results, result) | ((F.col("result") == result) & F.lit(operation == "claim"))
            told.append(F.when((f == operation) & F.coalesce(some, F.lit(False)), F.lit(f"{operation} {result}")))
    ok = F.col("readable") & (F.col("type") == "ok") & f.isin(*OBSERVED)
    what = F.when(ok, F.array_compact(F.array(*told)))
    return F.when(F.size(what) > 0, F.struct(what.alias("what"), "first_send_ns", "done_ns", "last_send_ns"))


def call() -> Column:
    """When a call was sent that the server answered, and when it was answered, in parts of time; null for other rows."""
    answered = F.col("readable") & (F.col("kind") == "operation") & (F.col("type") == "ok") & (F.col("f") != "handle")
    sent, done = F.expr(f"coalesce(last_send_ns, first_send_ns) div {CALL_SLOT_NS}"), F.expr(f"done_ns div {CALL_SLOT_NS}")
    return F.when(answered & sent.isNotNull() & done.isNotNull(), F.struct(sent.alias("sent"), done.alias("done")))


def lag() -> Column:
    """How late an enqueue or a publish was sent, with when it was meant to be; null for rows of what was not late."""
    sent = F.col("readable") & (F.col("kind") == "operation") & F.col("f").isin("enqueue", "publish")
    slot, steps = F.expr(f"intended_ns div {SLOT_NS}"), F.expr(f"(first_send_ns - intended_ns) div {LAG_STEP_NS}")
    return F.when(sent & (steps > 0), F.struct(slot.alias("slot"), steps.alias("steps")))
