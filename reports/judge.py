"""Judge one run: read, build the frames, check, measure, decide, write."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import evidence, page, slo, slo_file, verdict
from reports.causes import Cause
from reports.errors import JudgeError, one_line
from reports.facts import of_channels
from reports.folder import history_files, read_spec
from reports.interrupts import INTERRUPTS
from reports.samples import cpu_usage
from reports.session import LOCAL, spark_session
from reports.targets import page as target_page
from reports.targets.promise import of_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reports.frames import AnyFrames

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a progress line to stderr."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def judge(
    run: Path,
    *,
    master: str = LOCAL,
    conf: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    say: Say = to_stderr,
    objectives: Path | None = None,
) -> dict[str, Any]:
    """Judge the run in that folder. Returns the content of verdict.json, which is also written there.

    `conf`: further Spark settings. `spark`: a session to use instead of starting one. `objectives`: a file to use instead of the
    run's own slo.toml. A run that cannot be judged is unknown, with that one reason. Raises JudgeError when the folder is not
    that of a run, or when the verdict cannot be written.
    """
    require_run(run)
    withdraw(run)
    spec: dict[str, Any] = {}
    wanted: list[slo_file.Objective] = []
    try:
        spec = read_spec(run)
        wanted = slo_file.objectives_of(run, objectives, channels=of_channels(spec))
        files = history_files(run)
        if spark is None:
            say("judge: starting Spark")
        with nullcontext(spark) if spark else spark_session(master, conf) as session:
            decided, frames = evaluate(session, run, files, spec, say)
            publish(run, decided, frames, wanted, say)
            return decided
    except JudgeError as error:
        decided = verdict.undecided(str(error), spec)
    except Exception as error:
        decided = verdict.undecided(f"the judge failed: {one_line(error)}", spec, Cause.CRASHED)
    publish(run, decided, None, wanted, say)
    return decided


def require_run(run: Path) -> None:
    """Raise JudgeError when the folder is not that of a run."""
    if not run.is_dir():
        raise JudgeError(f"run folder {run} does not exist")
    if not (run / "spec.json").exists() and not (run / "history").exists():
        raise JudgeError(f"{run} is not the folder of a run: it has neither spec.json nor history")


def withdraw(run: Path) -> None:
    """Remove the files of an earlier judgement, the verdict first. Raises JudgeError when one cannot be removed."""
    verdict.withdraw(run)
    try:
        page.withdraw(run)
    except OSError as error:
        raise JudgeError(f"the older page of {run.name} cannot be removed: {error.strerror or error}") from error


def publish(run: Path, decided: dict[str, Any], frames: AnyFrames | None, wanted: Sequence[slo_file.Objective], say: Say) -> None:
    """Write the verdict with its evidence and objectives, then the page; a failure of the page does not change the verdict.
    Raises JudgeError when the verdict cannot be written."""
    decided["slo"] = slo.judged(wanted, decided)
    if frames is not None:
        evidence.collect(run, decided, frames.run, say)
    INTERRUPTS.check()
    verdict.write_junit(run, decided)
    verdict.write(run, decided)
    try:
        if of_target(decided["spec"]):
            target_page.write_report(run, decided)
        else:
            page.write_report(run, decided, frames)
    except Exception as error:
        say(f"judge: the page of {run.name} cannot be written: {one_line(error)}")
    INTERRUPTS.check()


def evaluate(
    spark: SparkSession, run: Path, files: Sequence[Path], spec: dict[str, Any], say: Say
) -> tuple[dict[str, Any], AnyFrames | None]:
    """The verdict and the frames that it was decided on. PySpark is imported only here, so that its absence is reported as one
    line."""
    from reports import findings, frames, load, measure, windows
    from reports.channels import measure as channel_measure

    if of_target(spec):
        from reports.targets import judge as target_judge

        return target_judge.evaluate(spark, run, spec, say), None
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    say(f"judge: reading {len(files)} history files, {size_mb:.1f} MB")
    begun_s: list[float] = []

    def converting(size: int) -> None:
        begun_s.append(time.monotonic())
        say(f"judge: converting {size / 1e6:.1f} MB to Parquet")

    history = load.read_history(spark, run, files, converting)
    if begun_s:
        say(f"judge: converted in {time.monotonic() - begun_s[0]:.1f} s")
    facts = load.collect_facts(history, spec, cpu_usage(run))
    tables = tables_folder(run)
    built = frames.build(history, facts, tables)
    say(f"judge: checking {sum(file.operations for file in facts.files.values())} operation rows")
    found = findings.examine(built, tables, say=say)
    say("judge: measuring")
    try:
        of_jobs = isinstance(built, frames.Frames)
        measured, trouble = measure.measures(built) if of_jobs else channel_measure.measures(built), ""
    except Exception as error:
        measured, trouble = verdict.NO_MEASURES, f"the measures crashed: {one_line(error)}"
    return verdict.decide(found, measured, spec, trouble, windows.findings(spec)), built


def tables_folder(run: Path) -> Path:
    """Create the folder of the run's tables and test that it is writable. Raises JudgeError if not: Spark's own error for this
    is unreadable."""
    tables = run / "tables"
    try:
        tables.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=tables):
            pass
    except OSError as error:
        raise JudgeError(f"tables of {run.name} cannot be written: {error.strerror or error}") from error
    return tables
