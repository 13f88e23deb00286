"""The frames that the checks of a job queue read. Times are monotonic ns; a null column means that no row says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from reports.caching import kept
from reports.load import fit
from reports.targets.facts import Row, TargetRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NS, TEXT = pa.int64(), pa.string()
SENT = pa.schema({"job": TEXT, "op": TEXT, "sent_ns": NS, "acknowledged_ns": NS, "proc": TEXT})
RUNS = pa.schema({"job": TEXT, "op": TEXT, "start_ns": NS, "end_ns": NS, "proc": TEXT})
HELD = pa.schema({"job": TEXT})
CUTS = pa.schema({"job": TEXT, "op": TEXT, "fault": TEXT, "cut_ns": NS})


@dataclass(frozen=True)
class TargetFrames:
    """`jobs`: one row per job that was sent or ran. `cuts`: one row per run that a SIGKILL cut off, with when the job was next
    started (`again_ns`), whether it has run to its end, and whether the server's keys still held it in the end."""

    run: TargetRun
    jobs: DataFrame
    cuts: DataFrame


def build(spark: SparkSession, run: TargetRun) -> TargetFrames:
    """The frames of a run, which has few jobs."""
    fit(spark, 0)
    sent = frame(spark, operations(run.rows, "enqueue"), SENT)
    runs = frame(spark, operations(run.rows, "handle"), RUNS)
    held = frame(spark, ((item["job"],) for item in finals(run.rows)), HELD)
    cuts = frame(spark, cut_off(run), CUTS)
    jobs = kept(of_jobs(sent, runs, held, cuts))
    return TargetFrames(run, jobs, kept(of_cuts(cuts, runs, jobs)))


def frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Rows as a frame that Spark needs no job to read."""
    found = list(rows)
    columns = [pa.array([row[place] for row in found], kind) for place, kind in enumerate(schema.types)]
    return spark.createDataFrame(pa.table(columns, schema=schema))


def of_jobs(sent: DataFrame, runs: DataFrame, held: DataFrame, cuts: DataFrame) -> DataFrame:
    """One row per job: when it was sent and acknowledged, how often it was started and ran to its end."""
    calls = sent.groupBy("job").agg(
        F.min("sent_ns").alias("sent_ns"), F.min("acknowledged_ns").alias("acknowledged_ns"), F.count("*").alias("calls")
    )
    ran = runs.groupBy("job").agg(
        F.count("*").alias("starts"),
        F.count("end_ns").alias("ends"),
        F.min("start_ns").alias("first_start_ns"),
        F.sort_array(F.collect_list(F.when(F.col("end_ns").isNotNull(), F.struct("end_ns", "proc")))).alias("ran"),
    )
    marked = held.distinct().withColumn("held", F.lit(True))
    hit = cuts.groupBy("job").agg(F.first("fault").alias("cut_by"))
    joined = calls.join(ran, "job", "full").join(marked, "job", "left").join(hit, "job", "left")
    return joined.fillna({"starts": 0, "ends": 0, "held": False})


def of_cuts(cuts: DataFrame, runs: DataFrame, jobs: DataFrame) -> DataFrame:
    """One row per run that was cut off."""
    later = runs.select("job", F.col("op").alias("next_op"), "start_ns")
    after = (F.col("start_ns") > F.col("cut_ns")) & (F.col("next_op") != F.col("op"))
    again = cuts.join(later, "job", "left").groupBy("job", "op", "fault", "cut_ns")
    found = again.agg(F.min(F.when(after, F.col("start_ns"))).alias("again_ns"))
    return found.join(jobs.select("job", "ends", "held", "acknowledged_ns"), "job", "left")


def operations(rows: Iterable[Row], f: str) -> Iterable[Sequence[Any]]:
    """Job, operation, sent, done, and process of each operation; done is null for one that did not end well."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        if row["kind"] == "operation" and row["f"] == f:
            for item in row["items"] or ():
                one = found.setdefault(row["op"], [item["job"], row["op"], row["first_send_ns"], None, row["proc"]])
                one[3] = row["done_ns"] if row["type"] == "ok" else one[3]
    return found.values()


def finals(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    """The jobs that the server's keys held in the end."""
    return (item for row in rows if row["kind"] == "final" for item in row["items"] or ())


def cut_off(run: TargetRun) -> Iterable[tuple[str, str, str, int]]:
    """The runs that a SIGKILL cut off, each with its instant."""
    killed_ns = {one.fault: one.t_ns for one in run.stages if one.stage == "inject"}
    for one in run.stages:
        if one.name == "worker-kill" and one.stage == "witness":
            for lease in one.leases:
                job, _, op = lease.partition(" ")
                yield job, op, one.fault, killed_ns.get(one.fault, one.t_ns)
