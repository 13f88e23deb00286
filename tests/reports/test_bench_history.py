"""Grown histories are as valid as the run that they are made of, and of the size and shape that was asked for. What is planted in
the run is found in them, and nothing else."""

import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.bench import planted
from reports.bench.grow import SHAPES, grow
from reports.bench.pattern import Moves, compiled
from reports.corrupt.history import History
from reports.errors import JudgeError
from tests.golden import same
from tests.reports.conftest import Judge
from tests.reports.good_run import healthy
from tests.reports.story import Story

#: The story has 300 rows, and thirty in its calm span.
ROWS = 1_200


#: What each machine and each start has of its own.
OWN = re.compile(r'("(?:pid|recorder_ns)":)\d+|("(?:host|boot_id)":")[^"]*')


def story(folder: Path) -> Story:
    """A valid run with a schedule, and a unique key that keeps a job out, in its calm span."""
    made = healthy(folder)
    made.spec |= {"schedules": [{"name": "beat", "every_ms": 500}], "unique_keys": True}
    made.enqueue("holder", 4.0, unique="only")
    made.enqueue("kept-out", 4.005, unique="only", result="duplicate", holder="holder")
    made.run("worker-1", "holder", 4.01)
    made.enqueue("hopeless", 5.0, attempts=1, backoff="fixed", backoff_least_ms=0)
    token = made.claim(
        "worker-2", "hopeless", 5.01, told={"attempts": 1, "backoff": "fixed", "backoff_least_ms": 0, "failures": 0}
    )
    made.start(token, 5.02, took=0.01, end="fail")
    made.end("bury", token, at=5.04)
    for snapshot in (made.at_deadline, made.at_end):
        snapshot["dead"].append(("hopeless", 0))
    return made


def rows(run: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of a run by file."""
    return {path.name: [json.loads(line) for line in path.read_bytes().splitlines()] for path in run.glob("history/*.jsonl")}


def test_the_files_of_grown_histories_are_as_ever(tmp_path: Path) -> None:
    """A line for each file: its rows, the jobs in them, its last instant, and the sum of all that is not of this machine."""
    lines = list[str]()
    made = story(tmp_path / "run")
    lane: dict[str, Any] = {"class": "other"}
    made.enqueue("of-another-lane", 4.3, **lane)
    made.run("worker-2", "of-another-lane", 4.31)
    for at in (0.5, 4.2):
        made.operation("worker-1", "claim", at, [])
    # It was under way when the span would have ended, so that the span begins earlier.
    made.operation("worker-1", "tick", 8.9985, [{"job": "cron:beat:8500", "schedule": "beat", "result": "created"}])
    History(made.write(), random.Random(1)).write(tmp_path / "ordered")
    for shape in SHAPES:
        lines.append(f"{shape}: {grow(tmp_path / 'ordered', ROWS * (1 + (shape == 'skewed')), tmp_path / shape, shape=shape)}")
        for path in sorted((tmp_path / shape).glob("*/*.jsonl")):
            text = OWN.sub(r"\g<1>\g<2>", path.read_text())
            found = [json.loads(line) for line in path.read_text().splitlines()]
            jobs = {item.get("job") for row in found for item in row.get("items") or ()}
            lines.append(f"{path.name}: {len(found)} of {len(jobs)} until {found[-1]['t_ns']}: {zlib.crc32(text.encode()):08x}")
            assert path.parent.name == "samples" or [row["seq"] for row in found] == [*range(len(found))]
    same("reports/grown.txt", "\n".join([*lines, ""]))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_grown_history_is_as_valid_as_its_run(tmp_path: Path, judged: Judge, shape: str) -> None:
    run, out = healthy(tmp_path / "run").write(), tmp_path / "grown"
    assert grow(run, ROWS, out, shape=shape).rows == sum(map(len, rows(out).values())) >= ROWS
    verdict = judged(out)
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])


@pytest.mark.slow
def test_schedules_keys_and_dead_jobs_stay_consistent(tmp_path: Path, judged: Judge) -> None:
    made = story(tmp_path / "run")
    for number in range(120):
        tick_ms = number * 500
        item = {"job": f"cron:beat:{tick_ms}", "schedule": "beat", "tick_ms": tick_ms, "result": "created"}
        made.operation("worker-1", "tick", 0.7 + number / 2, [item], srv_us=(tick_ms + 1) * 1_000)
        made.run("worker-1", item["job"], 0.71 + number / 2)
    # A caller reads results long after the load.
    for tick_ms in (500, 1_000, 1_500, 2_000):
        made.operation("harness", "result", 61.5, [{"job": f"cron:beat:{tick_ms}", "result_crc": 1}])
    run, out = tmp_path / "ordered", tmp_path / "grown"
    # A worker writes its rows in the order of their times.
    History(made.write(), random.Random(1)).write(run)
    assert judged(run)["reasons"] == []
    grow(run, 5_000, out)
    assert judged(out)["reasons"] == []
    dead = [row for row in rows(out)["harness.jsonl"] if row["kind"] == "final" and row["state"] == "dead"]
    assert all(row["count"] == len(row["items"]) > 10 for row in dead)


@pytest.mark.slow
def test_what_is_planted_is_found_and_nothing_else(tmp_path: Path, run: Path, judged: Judge) -> None:
    broken = healthy(tmp_path / "broken")
    broken.enqueue("lost", 40.0)
    broken.end("finish", broken.run("worker-1", "twice", 40.5), at=41.0)
    ending = broken.write()
    judged(ending)
    expected = planted.findings(ending)
    assert {("J4", "lost"), ("J5", "twice")} <= {(check, subject) for check, subject, *_ in expected}
    grow(run, ROWS, tmp_path / "grown", ending=ending)
    judged(tmp_path / "grown")
    compared = planted.Compared(expected, planted.findings(tmp_path / "grown"))
    assert (compared.missing, compared.extra) == ([], [])
    # What nobody planted is seen, and so is what is missing.
    other = planted.Compared(expected - {next(iter(expected))}, expected)
    assert len(other.extra) == 1 and str(other) == f"planted={len(expected) - 1}/{len(expected) - 1} extra=1"


def test_numbers_move_and_texts_do_not() -> None:
    line = (
        b'{"v":7,"seq":9,"t_ns":100,"f":"claim","op":"w-1","counter":5,"srv_us":2000,"error":"100% of \\"t_ns\\":7",'
        b'"items":[{"job":"a>b","fence":2,"nonce":"ab:5","due_ms":0,"needs":["c","d"],"holder":"cron:beat:500","delay_ms":3}]}\n'
    )
    offsets = np.zeros(len(Moves), dtype=np.int64)
    for move, by in ((Moves.SEQ, 50), (Moves.NS, 10**9), (Moves.US, 10**6), (Moves.MS, 10**3), (Moves.CLAIM, 7), (Moves.COPY, 4)):
        offsets[move] = by
    row = json.loads(compiled([line, line], copies=True).render(offsets).splitlines()[1])
    assert (row["seq"], row["t_ns"], row["op"], row["counter"], row["srv_us"]) == (51, 10**9 + 100, "copy4.w-1", 12, 1_002_000)
    assert row["error"] == '100% of "t_ns":7'
    assert row["items"] == [
        {"job": "copy4.a>b", "fence": 1_002, "nonce": "ab:12", "due_ms": 0, "needs": ["copy4.c", "copy4.d"]}
        | {"holder": "cron:beat:1500", "delay_ms": 3}
    ]
    earlier = json.loads(compiled([line], copies=False, since_ms=501).render(offsets))
    assert earlier["items"][0]["holder"] == "cron:beat:500", "a tick of the beginning that the end asks about does not move"
    same = compiled([line], copies=False).render(np.zeros(len(Moves), dtype=np.int64))
    assert same == line.replace(b'"seq":9', b'"seq":0')


def test_a_run_that_cannot_be_grown_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="is not a whole recorded run"):
        grow(tmp_path / "nothing", ROWS, tmp_path / "out")
    with pytest.raises(JudgeError, match="shape 'round' does not exist; choose from real, one-job"):
        grow(tmp_path, ROWS, tmp_path / "out", shape="round")
    empty = Story(tmp_path / "empty")
    empty.process("harness", "harness")
    with pytest.raises(JudgeError, match="has no load"):
        grow(empty.write(), ROWS, tmp_path / "out")
