"""Judge one run: read, build the frames, check, measure, decide, write."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import verdict
from reports.errors import CannotJudge, one_line
from reports.folder import history_files, read_spec
from reports.interrupts import INTERRUPTS
from reports.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Progress for people."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def judge(run: Path, *, master: str = "local[*]", spark: SparkSession | None = None, say: Say = to_stderr) -> dict[str, Any]:
    """Judge the run in that folder. Returns the content of verdict.json, which is also written there.

    `spark` is a session to use instead of one of our own. What cannot be judged is unknown, with the reason as the only one.
    Raises CannotJudge when it is not a run's folder, or when the verdict cannot be written.
    """
    if not run.is_dir():
        raise CannotJudge(f"run folder {run} does not exist")
    if not (run / "spec.json").exists() and not (run / "history").exists():
        raise CannotJudge(f"{run} is not the folder of a run: it has neither spec.json nor history")
    verdict.withdraw(run)
    spec: dict[str, Any] = {}
    try:
        spec = read_spec(run)
        files = history_files(run)
        if spark is None:
            say("judge: starting Spark")
        with nullcontext(spark) if spark else spark_session(master) as session:
            decided = look(session, run, files, spec, say)
    except CannotJudge as error:
        decided = verdict.undecided(str(error), spec)
    except Exception as error:
        decided = verdict.undecided(f"the judge failed: {one_line(error)}", spec)
    INTERRUPTS.check()
    verdict.write(run, decided)
    return decided


def look(spark: SparkSession, run: Path, files: Sequence[Path], spec: dict[str, Any], say: Say) -> dict[str, Any]:
    """The part that needs Spark. Imported only here, so that a missing PySpark is one clear line."""
    from reports import findings, frames, load, measure

    size_mb = sum(file.stat().st_size for file in files) / 1e6
    say(f"judge: reading {len(files)} history files, {size_mb:.1f} MB")
    rows = load.read_rows(spark, files)
    try:
        facts = load.learn(rows, files, spec)
        built = frames.build(rows, facts)
        tables = tables_folder(run)
        findings.save(built.events, tables / "ops.parquet")
        say(f"judge: checking {sum(file.operations for file in facts.files.values())} operation rows")
        found = findings.examine(built, tables)
        say("judge: measuring")
        try:
            measured, trouble = measure.measures(built), ""
        except Exception as error:
            measured, trouble = verdict.NO_MEASURES, f"the measures crashed: {one_line(error)}"
        return verdict.decide(found, measured, spec, trouble)
    finally:
        spark.catalog.clearCache()


def tables_folder(run: Path) -> Path:
    """The folder of the run's tables, made and tried. Raises CannotJudge: Spark's own words for it are no line for people."""
    tables = run / "tables"
    try:
        tables.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=tables):
            pass
    except OSError as error:
        raise CannotJudge(f"tables of {run.name} cannot be written: {error.strerror or error}") from error
    return tables
