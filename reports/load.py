"""Open a recorded run: its tables as frames, and its small facts. The history itself is read by `reports.convert`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from record.history import SCHEMA_VERSION
from reports import convert
from reports.errors import JudgeError
from reports.facts import ClockLook, Drop, Phase, Process, Run, Snapshot, Stage, Usage
from reports.hosts import Host, hosts_of
from reports.lines import events_schema, rows_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from reports.file_facts import Collected

#: Bytes of history per shuffle partition, so that what a task holds fits in memory however long the run was.
PARTITION_BYTES = 64 * 1024 * 1024
PARTITIONS_MIN = 2

#: Below this size, compiling the queries takes longer than interpreting them.
COMPILE_BYTES = 64 * 1024 * 1024

#: A row of a history, or an item of one, without the columns that are null.
Line = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """The tables of all files of a run, and the facts of each file (see `reports.convert`). `bytes`: the size of the files."""

    spark: SparkSession
    tables: tuple[convert.Converted, ...]
    files: tuple[Collected, ...]
    hosts: tuple[Host, ...]
    bytes: int

    @property
    def rows(self) -> DataFrame:
        """The rows as they were written; opened only when asked for, because a run of jobs does without."""
        return opened(self.spark, [tables.rows for tables in self.tables], rows_schema())

    @property
    def events(self) -> DataFrame:
        """One row for each job of a row."""
        return opened(self.spark, [tables.events for tables in self.tables], events_schema())


def read_history(
    spark: SparkSession, run: Path, files: Sequence[Path], converting: Callable[[int], None] = lambda size: None
) -> History:
    """The history of a run, converted if need be; `converting` is called first then, with the number of bytes. Raises JudgeError
    when that fails."""
    hosts = hosts_of(files)
    converted = convert.convert(run, files, converting, hosts)
    size = sum(file.stat().st_size for file in files)
    return History(spark, tuple(tables for tables, _ in converted), tuple(facts for _, facts in converted), hosts, size)


def fit(spark: SparkSession, size: int) -> None:
    """Settings for a history of so many bytes."""
    spark.conf.set("spark.sql.shuffle.partitions", str(max(PARTITIONS_MIN, -(-size // PARTITION_BYTES))))
    compiled = str(size >= COMPILE_BYTES).lower()
    spark.conf.set("spark.sql.codegen.wholeStage", compiled)
    # To find what expressions share takes longer than to work it out twice.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", compiled)
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if size >= COMPILE_BYTES else "NO_CODEGEN")


def opened(spark: SparkSession, paths: Sequence[Path], schema: pa.Schema) -> DataFrame:
    """The tables as one frame. Its schema is given, so that no job has to look for it."""
    return spark.read.schema(from_arrow_schema(schema)).parquet(*(literal(path.resolve()) for path in paths))


def literal(path: Path) -> str:
    """The path with glob characters escaped, so that Spark takes it literally."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def collect_facts(history: History, spec: dict[str, Any], cpu: Mapping[str, tuple[Usage, ...]] | None = None) -> Run:
    """The small facts of a run. Raises JudgeError for rows of a newer schema."""
    for file in history.files:
        if (version := file.facts.version_max) > SCHEMA_VERSION:
            name = file.facts.name
            raise JudgeError(f"history file {name}: schema version {version}, this judge reads up to {SCHEMA_VERSION}")
    rare: dict[str, list[Line]] = defaultdict(list)
    for row in (row for file in history.files for row in file.rare):
        rare[row["kind"]].append(row)
    return Run(
        spec=spec,
        files={file.facts.name: file.facts for file in history.files},
        processes=tuple(Process(r.get("name", ""), r.get("role", ""), r.get("file", ""), r["t_ns"]) for r in rare["process"]),
        stages=tuple(sorted(map(stage, rare["fault"]), key=lambda s: s.t_ns)),
        phases=tuple(sorted((Phase(r.get("name", ""), r["t_ns"]) for r in rare["phase"]), key=lambda p: p.t_ns)),
        snapshots=snapshots(rare["final"]),
        drops=tuple(Drop(r.get("intended_ns", r["t_ns"]), r.get("count", 0)) for r in rare["drop"]),
        clocks=tuple(sorted(map(clock, rare["clock"]), key=lambda look: look.t_ns)),
        hosts=history.hosts,
        replids=frozenset(replid for file in history.files for replid in file.replids),
        incarnations={name: proc for file in history.files for name, proc in file.incarnations.items()},
        leases_ms=frozenset(lease_ms for file in history.files for lease_ms in file.leases_ms),
        configured=tuple((row["proc"], configuration(row)) for row in rare["configuration"]),
        cpu=cpu or {},
    )


def configuration(row: Line) -> dict[str, Any]:
    """What a configuration row says; nothing where it cannot be read."""
    try:
        told = json.loads(row.get("config", ""))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def stage(row: Line) -> Stage:
    """A fault row as a `Stage`. A result other than `ok` means not seen; stages without a result, such as an inject, count as
    done."""
    result, name = row.get("result"), row.get("stage", "")
    ok = result == "ok" or (result is None and name in ("inject", "heal"))
    leases = tuple(f"{item['job']} {item['fence']}/{item['nonce']}" for item in row.get("items") or () if item is not None)
    texts = (row.get("fault", ""), row.get("name", ""), name, row.get("target", ""))
    return Stage(*texts, ok, row.get("detail", ""), row["t_ns"], leases)


def clock(row: Line) -> ClockLook:
    """A clock row as a `ClockLook`."""
    srv_us = row.get("srv_us")
    return ClockLook(row["t_ns"], None if srv_us is None else srv_us * 1_000 - row["t_ns"])


def snapshots(rows: Iterable[Line]) -> dict[str, Snapshot]:
    """Final rows merged by snapshot. A state may span several rows, each of which repeats the state's total."""
    found: dict[str, Snapshot] = {}
    for row in rows:
        name, state, srv_us = row.get("name", ""), row.get("state", row.get("channel", "")), row.get("srv_us", 0)
        before = found.get(name) or Snapshot(row["t_ns"], srv_us, {})
        total, listed = before.states.get(state, (0, 0))
        states = {**before.states, state: (max(total, row.get("count", 0)), listed + row["item_count"])}
        found[name] = Snapshot(min(before.t_ns, row["t_ns"]), max(before.srv_us, srv_us), states)
    return found
