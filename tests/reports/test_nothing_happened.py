"""The flags of every check, and which of them hold where nothing happened: on frames without rows, of a run of jobs and of one of
channels. What nobody did is told as unknown. Then on rows on both sides of each bound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from reports import findings, frames
from reports.channels import frames as channel_frames
from reports.checks import CHECKS
from reports.checks.base import flagged
from reports.checks.j20_handlers_agree import in_time_for_sure
from reports.facts import MS, Drop, Process, Run
from reports.lines import events_schema, rows_schema
from tests.golden import FOLDER, same
from tests.reports.test_doubts import CHANNELS, FEATURES, S, every_file, faulty, filed, stages, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reports.checks.base import Base, Check, Flag
    from reports.findings import AnyFrames

#: The checks that hold the rows of a frame against each other.
ALL_ROWS = ("J9", "J11", "J12", "J13", "J14", "J15", "J17", "J19", "J22", "J25")
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


def end(done_ns: int, fence: int = 1) -> dict[str, Any]:
    return {"done_ns": done_ns, "era": "e", "fence": fence, "nonce": "n", "op": f"{done_ns}", "position": 0}


def claim(sent_ns: int, done_ns: int, era: str = "e") -> dict[str, Any]:
    return {"first_send_ns": sent_ns, "done_ns": done_ns, "era": era}


#: What the cases of bounds are written with.
NAMES = {"BOTH": (False, True), "MS": MS, "S": S, "LOST": 10 * S, "FIRST": 10 * S - MS, "LAST": 11 * S + 2 * MS}
NAMES |= {"HEALED": 19_200 * MS, "END": 66 * S, "end": end, "claim": claim}
#: What a row has in a column about which nothing is known.
EMPTY: dict[str, Any] = {"boolean": False, "array": [], "claim_srv_ms": 1, "needs": None}


def rows_of(case: dict[str, Any], schema: StructType, number: int) -> Iterator[dict[str, Any]]:
    """The rows of a case, each called by its choice of values; a list by its place among them."""
    choices = {name: value if isinstance(value, tuple) else (value,) for name, value in case.items()}
    for chosen in product(*(enumerate(values) for values in choices.values())):
        row: dict[str, Any] = {one.name: EMPTY.get(one.name, EMPTY.get(one.dataType.typeName())) for one in schema}
        words = [f"{number}"]
        for name, (place, value) in zip(choices, chosen, strict=True):
            words += [f"{name} {place if isinstance(value, list) else value}"] * (len(choices[name]) > 1)
            *within, last = name.split(".")
            inner = row
            for part in within:
                inner[part] = inner = inner.get(part) or {}
            inner[last] = value
        yield {**row, "job": row["job"] or ", ".join(words)}


class Cases:
    """The cases of a kept text, each in a line of its own, and what is told of them between the lines."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self._name, self._spark = name, spark
        self._lines = [line for line in (FOLDER / name).read_text("utf-8").splitlines() if not line.startswith("  ")]
        self._told: dict[int, list[str]] = {}
        self._places: dict[str, int] = {}

    def frame(self, of: str, like: DataFrame) -> DataFrame:
        """The rows of the cases of this word."""
        # As text the schema has no column that must not be null.
        schema: Any = StructType.fromDDL(like.schema.simpleString())
        cases = {at: eval(line.split(" ", 2)[2], NAMES) for at, line in enumerate(self._lines) if line.startswith(f"$ {of} ")}
        rows = {at: [*rows_of(case, schema, at)] for at, case in cases.items()}
        self._places |= {row["job"]: at for at, some in rows.items() for row in some}
        table = pa.Table.from_pylist([row for some in rows.values() for row in some], to_arrow_schema(schema))
        return self._spark.createDataFrame(table, schema)

    def tell(self, found: DataFrame) -> None:
        """What was found of the rows of cases; of all others behind the last line."""
        for row in sorted(found.collect()):
            words, loss = row["subject"].partition(", ")[2] or row["subject"], f" by {row['loss']}" if row["loss"] else ""
            line = f"  {words}: {row['check']} {row['kind']} {row['level']}{loss}: {row['detail']}"
            self._told.setdefault(self._places.get(row["subject"], len(self._lines) - 1), []).append(line)

    def same(self) -> None:
        """Fail where anything else was told than is kept."""
        same(self._name, "".join(f"{line}\n" for at, case in enumerate(self._lines) for line in (case, *self._told.get(at, ()))))


def test_a_row_is_found_on_one_side_of_each_bound(empty: list[AnyFrames], spark: SparkSession) -> None:
    jobs: Any = empty[0]
    run = replace(filed(jobs.run, "worker-1", claims_unanswered=True), spec={**jobs.run.spec, "early_ms": 2})
    cases = Cases("reports/bounds.txt", spark)
    bases: dict[Base, DataFrame] = {"tokens": jobs.eventful.tokens, "jobs": jobs.eventful.jobs, "in_hand": jobs.in_hand}
    found: list[DataFrame] = []
    for base, frame in bases.items():
        flags = [(check.id, flag) for check in CHECKS if check.judges(run) for flag in check.flags(run).get(base, ())]
        found.append(flagged(cases.frame(base, frame), flags))
    cases.tell(findings.united(found))
    cases.same()


def test_rows_are_found_together_on_one_side_of_each_bound(empty: list[AnyFrames], spark: SparkSession) -> None:
    jobs: Any = empty[0]
    cases = Cases("reports/bounds_of_all.txt", spark)
    leases, eventful = cases.frame("leases", jobs.tokens), cases.frame("eventful", jobs.eventful.jobs)
    made = replace(jobs, tokens=leases, jobs=cases.frame("jobs", jobs.jobs), eventful=replace(jobs.eventful, jobs=eventful))
    made = replace(made, run=replace(jobs.run, spec={**jobs.run.spec, "concurrency": 2, "pickup_bound_ms": 100}))
    cases.tell(findings.violations(made, [one for one in CHECKS if one.id in ALL_ROWS]).drop("absence", "timed"))
    cases.same()


@pytest.mark.parametrize(("version", "level"), [(10, "unknown"), (11, "violated")])
def test_what_a_service_asked_for_is_known_since_version_11(empty: list[AnyFrames], version: int, level: str) -> None:
    jobs: Any = empty[0]
    run = told(every_file(jobs.run, version_max=version), scenario="service")
    _, (_, later) = next(check for check in CHECKS if check.id == "J9").more(replace(jobs, run=run))
    assert str(later.level) == level and f"isNull(timeout_ns), {str(version == 11).lower()})" in str(in_time_for_sure(run))
