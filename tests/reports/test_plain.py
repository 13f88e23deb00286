"""Plain jobs are set apart only where no flag is about them: with and without it, any history has the same violations."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from record.history import ITEM_FIELDS
from reports.frames import ITEM_COLUMNS, ROW_COLUMNS
from reports.plain import KNOWN, Jobs, set_apart
from tests.given import Patch
from tests.reports.conftest import Judge
from tests.reports.good_run import healthy

JOBS = 240

#: Columns of the row of a caller who read a result.
READ = {"first_send_ns": 9, "done_ns": 10, "proc": "harness", "fence": None, "nonce": None}

#: Columns of items and of rows that an edit may change, and by how much.
NUMBERS = ("fence", "delay_ms", "due_ms", "deadline_ms", "claims", "failures", "crashes", "crc", "attempts", "backoff_least_ms")
INSTANTS = ("first_send_ns", "done_ns", "srv_us", "lease_ms")
TEXTS = {
    "nonce": "x:1", "result": "repeated", "outcome": "buried", "backoff": "linear", "unique": "k",
    "holder": "other", "schedule": "beat", "class": "other~heavy", "lane": "other/tenant",
}  # fmt: skip

Edit = Callable[[random.Random, list[dict[str, Any]]], None]


def one_of(draw: random.Random, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The first item of one of the rows."""
    return draw.choice(rows)["items"][0]


def operation(draw: random.Random, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return draw.choice([row for row in rows if row["kind"] == "operation"])


def change_a_number(draw: random.Random, rows: list[dict[str, Any]]) -> None:
    item = one_of(draw, rows)
    name = draw.choice([name for name in NUMBERS if name in item])
    item[name] += draw.choice((-1_000_000, -1, 1, 7, 1_000_000))


def change_an_instant(draw: random.Random, rows: list[dict[str, Any]]) -> None:
    row = operation(draw, rows)
    name = draw.choice([name for name in INSTANTS if name in row])
    row[name] += draw.choice((-20_000_000_000, -30_000_000, 30_000_000, 20_000_000_000))


def change_a_text(draw: random.Random, rows: list[dict[str, Any]]) -> None:
    name = draw.choice(list(TEXTS))
    one_of(draw, rows)[name] = TEXTS[name]


def lose_a_value(draw: random.Random, rows: list[dict[str, Any]]) -> None:
    item = one_of(draw, rows)
    del item[draw.choice([name for name in item if name != "job"])]


EDITS: tuple[Edit, ...] = (
    *(change_a_number, change_an_instant, change_a_text, lose_a_value),
    lambda draw, rows: one_of(draw, rows).update({draw.choice(NUMBERS): draw.choice((0, 1, 2, 5_000, 2 * 10**12))}),
    lambda draw, rows: draw.choice(rows).update(lost=True),
    lambda draw, rows: draw.choice(rows).update(twice=True),
    lambda draw, rows: operation(draw, rows).update(type=draw.choice(("ok", "fail", "info", "invoke"))),
    lambda draw, rows: draw.choice(rows).update(proc=draw.choice(("worker-1", "worker-3", "producer-1"))),
)


def edited(folder: Path, seed: int) -> Path:
    """A run of which one row of most jobs was changed in a way that the seed draws."""
    story = healthy(folder)
    for number in range(JOBS):
        at = 37.0 + number / 60
        story.enqueue(f"e-{number}", at, attempts=3, backoff="fixed", backoff_least_ms=500)
        told = {"claims": 1, "failures": 0, "crashes": 0, "attempts": 3, "backoff": "fixed", "backoff_least_ms": 500}
        token = story.claim("worker-1", f"e-{number}", at + 0.01, told=told)
        story.start(token, at + 0.012, took=0.05)
        if number % 4 == 0:
            story.extend(token, at + 0.03)
        story.finish(token, at + 0.07, effect=at + 0.061)
    run, draw = story.write(), random.Random(seed)
    files = {one: [json.loads(row) for row in one.read_text().splitlines()] for one in sorted((run / "history").glob("*.jsonl"))}
    by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rows in files.values():
        for row in rows:
            for item in row.get("items") or ():
                if row["kind"] != "final" and item["job"].startswith("e-"):
                    by_job[item["job"]].append(row)
    for number in range(JOBS):
        if number % 8:
            draw.choice(EDITS)(draw, by_job[f"e-{number}"])
    for path, rows in files.items():
        kept = [row for row in rows if not row.pop("lost", False) for _ in range(1 + row.pop("twice", False))]
        whole = [json.dumps(row | {"seq": number} | rows_of(row, kept)) + "\n" for number, row in enumerate(kept)]
        path.write_text("".join(whole))
    return run


def rows_of(row: dict[str, Any], kept: list[dict[str, Any]]) -> dict[str, int]:
    """What the close row says of the number of rows."""
    return {"rows": len(kept)} if row["kind"] == "close" else {}


def violations(run: Path, judged: Judge, spark: SparkSession) -> list[tuple[str, ...]]:
    """Every violation, by check, subject, kind and words."""
    judged(run)
    rows = spark.read.parquet(str(run / "tables" / "violations.parquet")).collect()
    return sorted((row["check"], row["subject"], row["kind"], row["level"], row["detail"]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_plain_jobs_hide_no_violation(seed: int, tmp_path: Path, judged: Judge, spark: SparkSession, monkeypatch: Patch) -> None:
    run = edited(tmp_path / "run", seed)
    found = violations(run, judged, spark)
    kept = spark.read.parquet(*map(str, (run / "parquet").glob("*.events.parquet"))).where("item.job like 'e-%'").count()
    monkeypatch.setattr(Jobs, "plain", lambda jobs: np.array([], np.int64))
    assert violations(run, judged, spark) == found
    assert len({subject for _, subject, *_ in found}) > JOBS // 4 and kept > 4 * JOBS


@pytest.fixture
def events() -> Callable[..., pa.Table]:
    """Makes the events of one plain job; the columns that are given replace those of the row with that label."""
    columns = [*dict.fromkeys((*ROW_COLUMNS, *ITEM_COLUMNS, "position", "state", "answer", "snapshot", "era"))]
    token = {"job": "j", "proc": "w", "fence": 1_000, "nonce": "i:1"}
    token |= {"type": "ok", "kind": "operation", "era": "e", "position": 0}
    call, sent = {"sends": 1, "srv_us": 1_000_500}, {"first_send_ns": 1, "done_ns": 2}
    rows: dict[str, dict[str, Any]] = {
        "enqueue": {"f": "enqueue", "proc": "p", "result": "created", "crc": 7, "delay_ms": 0, **sent, **call},
        "claim": {"f": "claim", "result": "leased", "answer": "leased", "crc": 7, "first_send_ns": 3, "done_ns": 4, **call},
        "handle": {"f": "handle", "first_send_ns": 5, "done_ns": 6},
        "effect": {"kind": "effect", "type": None, "crc": 7},
        "finish": {"f": "finish", "result": "ok", "outcome": "finished", "first_send_ns": 7, "done_ns": 8, **call},
    }

    def schema() -> pa.Schema:
        integers = {field.name for field in ITEM_FIELDS if field.type == "int"}
        integers |= {"first_send_ns", "done_ns", "srv_us", "srv_from_us", "sends", "intended_ns", "lease_ms", "position"}
        return pa.schema([(name, pa.int64() if name in integers else pa.string()) for name in columns])

    def make(**changed: dict[str, Any] | None) -> pa.Table:
        found = [{**token, **row, **(changed.pop(label, {}) or {})} for label, row in rows.items()]
        found += [{**token, **row} for row in changed.values() if row]
        return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in found], schema())

    return make


def test_a_job_without_a_fault_is_one_row(events: Callable[..., pa.Table]) -> None:
    (row,) = pa.Table.from_batches(set_apart(events().to_batches())).to_pylist()
    told = ("plain", "job", "proc", "fence", "enqueue_sent_ns", "created_done_ns", "started_ns")
    told += ("finish_sent_ns", "accepted_done_ns")
    assert [row[name] for name in told] == [True, "j", "w", 1_000, 1, 2, 5, 7, 8]


def test_a_job_whose_result_was_read_is_still_plain(events: Callable[..., pa.Table]) -> None:
    result = {"result_crc": 9}
    made = events(effect=result, finish=result, more={"f": "result", **READ, **result})
    assert [row["plain"] for row in pa.Table.from_batches(set_apart(made.to_batches())).to_pylist()] == [True]


ODD = [
    *({"claim": {"fence": 999}}, {"handle": {"nonce": "i:2"}}, {"effect": {"proc": "v"}}, {"effect": {"crc": 8}}),
    *({"enqueue": {"crc": None}}, {"enqueue": {"sends": 2}}, {"enqueue": {"first_send_ns": 4}}),
    *({"enqueue": {"result": "repeated"}}, {"claim": {"claims": 2}}, {"claim": {"due_ms": 1_001}}),
    *({"claim": {"deadline_ms": 10_002, "lease_ms": 9_000}}, {"claim": {"attempts": 2}, "enqueue": {"attempts": 3}}),
    *({"enqueue": {"delay_ms": 1}}, {"handle": {"done_ns": 8}}, {"finish": {"outcome": "buried"}}),
    *({"finish": {"result": "stale"}}, {"finish": {"era": "f"}}),
    {"more": {"f": "mark", "result": "ok", "first_send_ns": 5, "done_ns": 6}},
    {"more": {"f": "extend", "result": "ok", "first_send_ns": 9, "done_ns": 9, "srv_us": 1, "deadline_ms": 1, "lease_ms": 1}},
    {"finish": {"result_crc": 9}, "effect": {"result_crc": 8}},
    {"finish": {"result_crc": 9}, "effect": {"result_crc": 9}, "more": {"f": "result", "result_crc": 8, **READ}},
    {"more": {"f": "result", **READ}},
    {"more": {"kind": "final", "type": None, "state": "dead", "snapshot": "end"}},
]


@pytest.mark.parametrize("changed", ODD)
def test_a_job_with_anything_odd_keeps_its_events(changed: dict[str, Any], events: Callable[..., pa.Table]) -> None:
    made = events(**changed)
    found = pa.Table.from_batches(set_apart(made.to_batches())).to_pylist()
    assert [row["plain"] for row in found] == [False] * len(made)


def test_a_value_in_a_column_that_no_condition_is_about_makes_a_job_eventful(events: Callable[..., pa.Table]) -> None:
    made = events()
    assert len(Jobs(made.append_column("new", pa.nulls(len(made), pa.int64()))).plain()) == 1
    assert len(Jobs(made.append_column("new", pa.array([1] * len(made)))).plain()) == 0


def test_every_column_that_is_known_is_one_of_the_events() -> None:
    assert {*ROW_COLUMNS, *ITEM_COLUMNS, "position", "state", "answer", "snapshot", "era"} >= KNOWN
