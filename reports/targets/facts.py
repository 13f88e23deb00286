"""A run of another job queue as plain values: its rows, the stages of its faults, and the instants that the checks use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from record.history import HistoryError, LoadedFile, load_folder
from reports.caching import kept
from reports.checks.h1_faults_bit import disordered, missing
from reports.errors import JudgeError
from reports.facts import MS, Stage
from reports.load import fit
from reports.targets.promise import Promise, promise_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]

#: A queue that has run a job to its end so shortly before the end of the wait still moves: what is left says nothing yet.
MOVING_MS = 3_000


@dataclass(frozen=True)
class TargetRun:
    """`healed_ns`: when the last fault was healed, 0 without faults; `ended_ns`: when it was looked what is left; `outage_ns`:
    for how long the network was cut or a worker stood still; `moving`: jobs still ran to their end just before that."""

    spec: Mapping[str, Any]
    promise: Promise
    rows: Sequence[Row]
    stages: Sequence[Stage]
    healed_ns: int
    ended_ns: int
    outage_ns: int
    moving: bool
    #: What is wrong with the history (H0), and which faults were not seen to bite (H1).
    holes: Sequence[str]
    unseen: Sequence[str]

    @property
    def faulty(self) -> bool:
        """Whether the plan has faults."""
        return bool(self.spec["plan"])

    def windows(self, *names: str) -> list[tuple[int, int]]:
        """From when to when each fault of these kinds was in force."""
        begun = {one.fault: one.t_ns for one in self.stages if one.stage == "inject" and one.name in names}
        return [(begun[one.fault], one.t_ns) for one in self.stages if one.stage == "heal" and one.fault in begun]

    @property
    def in_force(self) -> list[tuple[int, int]]:
        """From when to when each planned fault was in force; what it did to jobs may show until they were to be recovered."""
        return self.windows(*(str(one["name"]) for one in self.spec["plan"]))

    @property
    def waited_ms(self) -> int:
        """For how long what is left was waited for."""
        return (self.ended_ns - self.healed_ns) // MS


def read(run: Path, spec: Mapping[str, Any]) -> TargetRun:
    """The run in a folder. Raises JudgeError when a file cannot be read."""
    try:
        files = list(load_folder(run / "history"))
    except HistoryError as error:
        raise JudgeError(str(error)) from error
    return collect(spec, files)


def collect(spec: Mapping[str, Any], files: Sequence[LoadedFile]) -> TargetRun:
    """The run that these files tell of."""
    rows = [row for file in files for row in file.rows]
    stages = sorted((stage(row) for row in rows if row["kind"] == "fault"), key=lambda one: one.t_ns)
    planned = {str(one["fault"]) for one in spec["plan"]}
    healed_ns = max((one.t_ns for one in stages if one.stage == "heal" and one.fault in planned), default=0)
    final_ns = max((row["t_ns"] for row in rows if row["kind"] == "final"), default=0)
    ended_ns = final_ns or max((row["t_ns"] for row in rows), default=0)
    last_end_ns = max((row["t_ns"] for row in rows if row.get("f") == "handle" and row["type"] == "ok"), default=0)
    unseen = [f"the harness could not carry out the drill: {error}" for error in spec.get("harness_errors", ())]
    for fault in sorted(planned):
        of_fault = [one for one in stages if one.fault == fault]
        unseen += missing(fault, of_fault) + disordered(fault, of_fault)
    return TargetRun(
        spec=spec,
        promise=promise_of(spec),
        rows=rows,
        stages=stages,
        healed_ns=healed_ns,
        ended_ns=ended_ns,
        outage_ns=outage_ns(stages),
        moving=ended_ns - last_end_ns < MOVING_MS * MS,
        holes=[*holes(files), *([] if final_ns else ["nobody looked at what was left in the end"])],
        unseen=unseen,
    )


def stage(row: Row) -> Stage:
    """A fault row; its leases are the operations of the handlers that it names."""
    leases = tuple(f"{item['job']} {item['nonce']}" for item in row["items"] or ())
    fault, name, of, target, detail = (str(row[column] or "") for column in ("fault", "name", "stage", "target", "detail"))
    return Stage(fault, name, of, target, row["result"] == "ok", detail, row["t_ns"], leases)


def outage_ns(stages: Sequence[Stage]) -> int:
    """For how long some process was cut off or stood still, all faults together."""
    found = 0
    for fault in {one.fault for one in stages if one.name != "worker-kill"}:
        at_ns = {one.stage: one.t_ns for one in stages if one.fault == fault}
        found += max(0, at_ns.get("heal", 0) - at_ns.get("inject", 0)) if "heal" in at_ns else 0
    return found


def holes(files: Sequence[LoadedFile]) -> list[str]:
    """What is missing in the files: rows, whole files, or the end of the producer's."""
    found: list[str] = []
    present = {file.path.name: file for file in files}
    announced = [row for file in files for row in file.rows if row["kind"] == "process"]
    found += [f"{row['file']} was announced and is missing" for row in announced if row["file"] not in present]
    if not announced:
        found.append("manifest.jsonl is missing, or announces no process")
    for file in files:
        if file.corrupt_lines:
            found.append(f"{file.path.name} has {len(file.corrupt_lines)} lines that are no rows")
        numbers: dict[str, list[int]] = {}
        for row in file.rows:
            numbers.setdefault(str(row["proc"]), []).append(row["seq"])
        for proc, seen in numbers.items():
            if seen != list(range(len(seen))):
                found.append(f"rows of {proc} in {file.path.name} are missing or out of order")
    for row in announced:
        file = present.get(row["file"])
        if row["role"] == "producer" and file and not any(one["kind"] == "close" for one in file.rows):
            found.append(f"{row['file']} has no end: its process did not close it")
    return found


# The frames that the checks of a job queue read. Times are monotonic ns; a null column means that no row
# says so.

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
