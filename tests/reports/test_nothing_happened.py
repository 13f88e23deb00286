"""The flags of every check, and which of them hold where nothing happened: on frames without rows, of a run of jobs and of one of
channels. What nobody did is told as unknown."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from reports import findings, frames
from reports.channels import frames as channel_frames
from reports.checks import CHECKS
from reports.facts import Drop, Process, Run
from reports.lines import events_schema, rows_schema
from tests.golden import same
from tests.reports.test_doubts import CHANNELS, FEATURES, S, faulty, stages, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from reports.checks.base import Check, Flag
    from reports.findings import AnyFrames

QUOTED = re.compile(r"'([^']*)'")
STRAY = ("inject", "witness", "heal", "stray", "noticed")
DROPS = tuple(Drop(90 * S + ns, 1) for ns in range(10))


def of_jobs() -> Run:
    """A run with all features, with a kill of a worker that held jobs, leases that were ended, and a lost server."""
    kill = [replace(one, leases=("a 1/n", "b 1/n")) for one in stages("1-worker-kill", "worker-2", 10, 10.01, 11, 12)]
    ended = [replace(one, leases=("c 1/n",)) for one in stages("2-lease-expired", "worker-1", 15, 15.1, 15.2, 15.3)]
    lost = [replace(one, ok=False) for one in stages("3-server-kill", "servers", 19, 19.1, 19.2, 19.3, 19.4, names=STRAY)]
    return replace(told(faulty(*kill, *ended, *lost), **FEATURES), drops=DROPS)


def of_channels() -> Run:
    """A run of two channels, one across the wrap, with each fault that H2 wants something of."""
    hit = dict.fromkeys(("net-reply-lost", "net-request-lost", "net-latency", "server-restart", "snapshot-restore"), "producer-1")
    hit |= {"subscriber-kill": "worker-1", "server-kill": "servers"}
    found = [one for at, name in enumerate(hit) for one in stages(f"{at}-{name}", hit[name], *range(10 * at, 10 * at + 4))]
    found += stages("7-net-reply-lost", "publisher-1", 70, 71, 72, 73)
    found.append(replace(found[-5], stage="stray", ok=False))
    plan = [{"fault": one.fault, "name": one.name, "target": one.target} for one in found]
    named = [{"name": "c", "fan_out": 2, "preset_clock": 2**53 - 5}, {"name": "d", "fan_out": 1}]
    run = replace(CHANNELS, processes=(*CHANNELS.processes, Process("publisher-1", "publisher", "")))
    return replace(told(run, plan=plan, loss=[], channels=named), stages=tuple(found), drops=DROPS)


@pytest.fixture(scope="module")
def empty(spark: SparkSession) -> list[AnyFrames]:
    """The frames of both runs, without rows."""

    def nothing(schema: StructType) -> DataFrame:
        """A relation without rows, which whatever reads it is made of before anything else is planned."""
        return spark.createDataFrame(to_arrow_schema(schema).empty_table(), schema)

    def emptied(made: object) -> dict[str, DataFrame]:
        found = ((one.name, getattr(made, one.name)) for one in fields(made))  # type: ignore[arg-type]
        return {name: nothing(frame.schema) for name, frame in found if hasattr(frame, "schema")}

    with pytest.MonkeyPatch.context() as patch:
        for module in (frames, channel_frames):
            patch.setattr(module, "kept", lambda frame: frame)
        patch.setattr(frames, "stored", lambda frame, *_: frame)
        jobs = frames.of_jobs(nothing(from_arrow_schema(events_schema())), of_jobs(), Path())
        channels = channel_frames.build(nothing(from_arrow_schema(rows_schema())), of_channels())
    jobs = replace(jobs, **emptied(jobs), eventful=replace(jobs.eventful, **emptied(jobs.eventful)))
    return [jobs, replace(channels, **emptied(channels))]


def judging(run: Run) -> list[Check]:
    """Checks with frames of their own: conditions on rows of shared frames cannot hold, and are told with their cases."""
    own = "channels" if run.of_channels else "more"
    return [one for one in CHECKS if one.judges(run) and getattr(one, own).__name__ != "<lambda>"]


def said_of(flag: Flag) -> str:
    """What a flag says of itself."""
    level = flag.level if isinstance(flag.level, str) else "level by row"
    more = f"{', absence' * flag.absence}{', timed' * flag.timed}{', loss' * (flag.loss is not None)}"
    # Of its sentence the parts that are the same for all rows, with a question mark for each of the others.
    column = str(flag.detail).removeprefix("Column<'").removesuffix("'>")
    return f"{flag.kind}: {level}, of {flag.subject}{more}: {''.join(re.findall(QUOTED, column)) or column}"


def test_what_nobody_did_is_told_and_is_no_violation(empty: list[AnyFrames], monkeypatch: pytest.MonkeyPatch) -> None:
    flags, flags_of = list[str](), findings.flags_of

    def noted(check: Check, made: AnyFrames) -> list[tuple[DataFrame, Flag]]:
        found = flags_of(check, made)
        flags.extend(f"{check.id} {said_of(flag)}" for _, flag in found)
        return found

    monkeypatch.setattr(findings, "flags_of", noted)
    rows = findings.united([findings.violations(made, judging(made.run)) for made in empty]).collect()
    # Conditions on rows of shared frames alone are told with their cases: none of them could hold here.
    for made in empty:
        for check in (one for one in CHECKS if one.judges(made.run) and one not in judging(made.run)):
            noted(check, made)
    found = sorted(f"{row['check']} {row['kind']} {row['level']}: {row['subject']} {row['detail']}" for row in rows)
    same("reports/nothing_happened.txt", "\n".join([*flags, "", *found, ""]))
