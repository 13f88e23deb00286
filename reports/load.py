"""Turn the history files into the frame of rows and the small facts. The only module that reads the history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from engine.history import SCHEMA_VERSION
from reports.errors import JudgeError
from reports.facts import SLOT_NS, Drop, Phase, Process, Run, Snapshot, Stage, Usage
from reports.file_facts import FileFacts, ObservedCall
from reports.folder import is_object, torn_tail
from reports.observed_calls import call, lag, observed_calls
from reports.oddities import oddities
from reports.schema import CORRUPT, row_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

#: Bytes of history per shuffle partition, so that sorting fits in memory however long the run was.
PARTITION_BYTES = 64 * 1024 * 1024
PARTITIONS_MIN = 4

#: Below this size, compiling the queries takes longer than interpreting them.
COMPILE_BYTES = 16 * 1024 * 1024

#: Cached rows are compressed from this size on; below it, compressing takes longer than it saves.
PACK_BYTES = 512 * 1024 * 1024

#: The time order of the rows of a file is checked between blocks of this many lines.
BLOCK_ROWS = 1_024

#: Fields of `FileFacts` that are lists of names.
UNKNOWN = ("unknown_kinds", "unknown_operations")

#: Columns that every readable row has.
NEEDED = ("v", "seq", "kind", "proc", "t_ns")


def read_rows(spark: SparkSession, files: Iterable[Path]) -> DataFrame:
    """Every line of every file as a row of `engine.history`; `source` is its file, `readable` whether it parsed and has all
    `NEEDED` columns."""
    paths = [literal(file.resolve()) for file in files]
    size = sum(file.stat().st_size for file in files)
    spark.conf.set("spark.sql.shuffle.partitions", str(max(PARTITIONS_MIN, -(-size // PARTITION_BYTES))))
    spark.conf.set("spark.sql.codegen.wholeStage", str(size >= COMPILE_BYTES).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if size >= COMPILE_BYTES else "NO_CODEGEN")
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", str(size >= PACK_BYTES).lower())
    reader = spark.read.schema(row_type()).option("columnNameOfCorruptRecord", CORRUPT)
    rows = reader.option("lineSep", "\n").option("encoding", "UTF-8").json(paths)
    whole = reduce(and_, (F.col(name).isNotNull() for name in NEEDED), F.col(CORRUPT).isNull())
    return rows.select("*", F.col("_metadata.file_name").alias("source"), whole.alias("readable")).persist()


def literal(path: Path) -> str:
    """The path with glob characters escaped, so that Spark takes it literally."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def collect_facts(
    rows: DataFrame, files: Iterable[Path], spec: dict[str, Any], cpu: Mapping[str, tuple[Usage, ...]] | None = None
) -> Run:
    """The small facts of a run, in one pass. Raises JudgeError for rows of a newer schema."""
    summaries = {row["source"]: row for row in rows.groupBy("source").agg(*summary_columns()).collect()}
    facts = {path.name: file_facts(path, summaries.get(path.name)) for path in files}
    for name, file in facts.items():
        if file.version_max > SCHEMA_VERSION:
            raise JudgeError(f"history file {name}: schema version {file.version_max}, this judge reads up to {SCHEMA_VERSION}")
    found = list(summaries.values())
    return Run(
        spec=spec,
        files=facts,
        processes=tuple(Process(r["name"], r["role"], r["file"], r["t_ns"]) for row in found for r in row["processes"]),
        stages=tuple(sorted((stage(r) for row in found for r in row["faults"]), key=lambda s: s.t_ns)),
        phases=tuple(sorted((Phase(r["name"], r["t_ns"]) for row in found for r in row["phases"]), key=lambda p: p.t_ns)),
        snapshots=snapshots(r for row in found for r in row["finals"]),
        drops=tuple(Drop(r["t_ns"], r["count"] or 0) for row in found for r in row["drops"]),
        boot_ids=frozenset(boot for row in found for boot in row["boot_ids"]),
        replids=frozenset(replid for row in found for replid in row["replids"]),
        incarnations={inc["incarnation"]: inc["proc"] for row in found for inc in row["incarnations"]},
        leases_ms=frozenset(lease_ms for row in found for lease_ms in row["leases_ms"]),
        cpu=cpu or {},
    )


def summary_columns() -> list[Column]:
    """The aggregates of one file. Rows are collected into lists only for kinds of which a run has few."""
    kind, seq, t_ns = (F.when(F.col("readable"), F.col(name)) for name in ("kind", "seq", "t_ns"))
    offer = F.col("f").isin("enqueue", "publish")

    def of_kind(name: str, *columns: str | Column) -> Column:
        return F.collect_list(F.when(kind == name, F.struct(*columns)))

    return [
        F.count(F.lit(1)).alias("n"),
        F.count_if(~F.col("readable")).alias("corrupt"),
        F.min(seq).alias("seq_min"),
        F.max(seq).alias("seq_max"),
        F.sum(seq).alias("seq_sum"),
        F.sum(seq.cast("decimal(19,0)") * seq.cast("decimal(18,0)")).alias("seq_square_sum"),
        F.max("v").alias("version_max"),
        F.min_by(kind, seq).alias("first_kind"),
        F.max_by(kind, seq).alias("last_kind"),
        F.min(F.when(kind == "open", t_ns)).alias("opened_ns"),
        F.max(F.when(kind == "close", t_ns)).alias("closed_ns"),
        F.max(F.when(kind == "close", F.col("rows"))).alias("close_rows"),
        F.max(F.when(kind == "close", F.col("recorder_ns"))).alias("recorder_ns"),
        F.collect_set("boot_id").alias("boot_ids"),
        F.collect_set("replid").alias("replids"),
        F.collect_set(F.when(F.col("incarnation").isNotNull(), F.struct("incarnation", "proc"))).alias("incarnations"),
        of_kind("process", "name", "role", "file", "t_ns").alias("processes"),
        of_kind("fault", "fault", "name", "stage", "target", "result", "detail", "t_ns", "items").alias("faults"),
        of_kind("phase", "name", "t_ns").alias("phases"),
        of_kind(
            "final",
            "name",
            F.coalesce("state", "channel").alias("state"),
            "count",
            F.size("items").alias("listed"),
            "t_ns",
            "srv_us",
        ).alias("finals"),
        of_kind("drop", F.coalesce("intended_ns", "t_ns").alias("t_ns"), "count").alias("drops"),
        F.count_if(kind == "operation").alias("operations"),
        F.count_if((kind == "operation") & ~named()).alias("nameless"),
        F.count_if((kind == "open") & (F.coalesce("boot_id", F.lit("")) == "")).alias("bootless"),
        F.count_if((kind == "final") & F.col("srv_us").isNull()).alias("timeless"),
        *oddities(),
        F.min(F.when(offer, t_ns)).alias("enqueue_first_ns"),
        F.max(F.when(offer, t_ns)).alias("enqueue_last_ns"),
        F.max(t_ns).alias("last_ns"),
        F.collect_set(place(kind)).alias("places"),
        F.count_if((kind == "operation") & disordered()).alias("disordered"),
        F.collect_list(F.when(kind == "connection", t_ns)).alias("connected_ns"),
        F.collect_list(observed_calls()).alias("observed_calls"),
        F.collect_set(call()).alias("calls"),
        F.collect_set(lag()).alias("lags"),
        F.collect_set(F.when(F.col("f") == "claim", F.col("lease_ms"))).alias("leases_ms"),
        (answers("claim", "invoke") > answers("claim", "ok", "fail")).alias("claims_unanswered"),
        succeeded("enqueue", "created", "repeated").alias("created"),
        succeeded("claim", "leased", "repeated").alias("leased"),
        succeeded("finish", "ok", "repeated").alias("finished"),
        succeeded("publish", "created", "duplicate").alias("published"),
        F.coalesce(F.max(F.col("readable") & (F.col("f") == "handle")), F.lit(False)).alias("handled"),
        some_ok((F.col("f") == "fetch") & (F.size("items") > 0)).alias("fetched"),
        some_ok((F.col("f") == "acknowledge") & (F.col("result") == "OK")).alias("acknowledged"),
    ]


def place(kind: Column) -> Column:
    """The time slot and block of a row, and whether the row is an answer. Null for fault and phase rows, whose t_ns is not the
    time of writing."""
    slot, block = F.expr(f"t_ns div {SLOT_NS}"), F.expr(f"seq div {BLOCK_ROWS}")
    written = kind.isNotNull() & ~kind.isin("fault", "phase")
    return F.when(written, F.struct(slot.alias("slot"), block.alias("block"), F.col("srv_us").isNotNull().alias("answered")))


def disordered() -> Column:
    """True for a row whose instants are out of order: first send, last send, completion, write of the row."""
    first_ns, done_ns = F.col("first_send_ns"), F.col("done_ns")
    last_ns = F.coalesce("last_send_ns", "first_send_ns")
    wrong = (first_ns > last_ns, last_ns > done_ns, F.greatest(last_ns, done_ns) > F.col("t_ns"))
    return reduce(or_, (F.coalesce(one, F.lit(False)) for one in wrong))


def answers(operation: str, *types: str) -> Column:
    """Number of readable rows of an operation with one of these types."""
    return F.count_if(F.col("readable") & (F.col("f") == operation) & F.col("type").isin(*types))


def named() -> Column:
    """True for an operation row with f, op and a known type."""
    known = F.coalesce(F.col("type").isin("invoke", "ok", "fail", "info"), F.lit(False))
    return known & F.col("f").isNotNull() & F.col("op").isNotNull()


def succeeded(operation: str, *results: str) -> Column:
    """True when the operation was answered ok for at least one job."""
    some = F.exists(
        "items", lambda item: item["result"].isin(*results) | (item["fence"].isNotNull() & F.lit(operation == "claim"))
    )
    return some_ok((F.col("f") == operation) & some)


def some_ok(condition: Column) -> Column:
    """True when an operation for which the condition holds was answered ok."""
    done = F.col("readable") & (F.col("kind") == "operation") & (F.col("type") == "ok") & condition
    return F.coalesce(F.max(done), F.lit(False))


def file_facts(path: Path, summary: Row | None) -> FileFacts:
    """The facts of one file, from its aggregates and its last bytes."""
    tail = torn_tail(path)
    torn_corrupt = bool(tail) and not is_object(tail)
    if summary is None:
        return FileFacts(path.name, torn=bool(tail), torn_corrupt=torn_corrupt)
    special = {
        "recorder_ns",
        "seq_sum",
        "seq_square_sum",
        "version_max",
        "connected_ns",
        "observed_calls",
        "calls",
        "lags",
        *UNKNOWN,
    }
    names = set(FileFacts.__dataclass_fields__) & set(summary.asDict()) - special
    return FileFacts(
        path.name,
        rows=summary["n"],
        torn=bool(tail),
        torn_corrupt=torn_corrupt,
        seq_sum=summary["seq_sum"] or 0,
        seq_square_sum=int(summary["seq_square_sum"] or 0),
        version_max=summary["version_max"] or 0,
        recorder_ns=summary["recorder_ns"] or 0,
        slots=frozenset(place["slot"] for place in summary["places"]),
        answered_slots=frozenset(place["slot"] for place in summary["places"] if place["answered"]),
        slots_back=slots_back((place["block"], place["slot"]) for place in summary["places"]),
        connected_ns=tuple(sorted(summary["connected_ns"])),
        observed_calls=tuple(
            ObservedCall(what, row["first_send_ns"], row["done_ns"], row["last_send_ns"] or 0)
            for row in summary["observed_calls"]
            for what in row["what"]
        ),
        calls=frozenset((row["sent"], row["done"]) for row in summary["calls"]),
        lags=frozenset((row["slot"], row["steps"]) for row in summary["lags"]),
        **{name: tuple(summary[name]) for name in UNKNOWN},
        **{name: summary[name] for name in names},
    )


def slots_back(places: Iterable[tuple[int, int]]) -> int:
    """The largest number of slots by which a row is older than a row of an earlier block."""
    back, latest, before, at = 0, 0, 0, -1
    for block, slot in sorted(places):
        if block > at:
            at, before = block, max(before, latest)
        latest = max(latest, slot)
        back = max(back, before - slot)
    return back


def stage(row: Row) -> Stage:
    """A fault row as a `Stage`. A result other than `ok` means not seen; stages without a result, such as an inject, count as
    done."""
    ok = row["result"] == "ok" or (row["result"] is None and row["stage"] in ("inject", "heal"))
    leases = tuple(f"{item['job']} {item['fence']}/{item['nonce']}" for item in row["items"] or () if item is not None)
    return Stage(row["fault"], row["name"], row["stage"], row["target"], ok, row["detail"] or "", row["t_ns"], leases)


def snapshots(rows: Iterable[Row]) -> dict[str, Snapshot]:
    """Final rows merged by snapshot. A state may span several rows, each of which repeats the state's total."""
    found: dict[str, Snapshot] = {}
    for row in rows:
        name, state, srv_us = row["name"], row["state"], row["srv_us"] or 0
        before = found.get(name) or Snapshot(row["t_ns"], srv_us, {})
        total, listed = before.states.get(state, (0, 0))
        states = {**before.states, state: (max(total, row["count"] or 0), listed + max(0, row["listed"] or 0))}
        found[name] = Snapshot(min(before.t_ns, row["t_ns"]), max(before.srv_us, srv_us), states)
    return found
