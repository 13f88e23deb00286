"""H0: histories with holes, and those that only look as if they had one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from record.history import ROW_FIELDS, SCHEMA_VERSION
from reports import collect, errors, folder, load
from reports.causes import Cause, of_doubt
from reports.checks import h1_faults_bit
from reports.checks.h0_history_whole import doubts
from reports.facts import STATES, Run, Snapshot
from tests.reports.good_run import cast, healthy
from tests.reports.story import Story, ns


def collect_facts(spark: SparkSession, run: Path) -> Run:
    files = folder.history_files(run)
    return load.collect_facts(load.read_history(spark, run, files), json.loads((run / "spec.json").read_text()))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A run without holes, converted: of its copies only the files that a test spoils are converted again."""
    run = healthy(tmp_path_factory.mktemp("sound") / "run").write()
    assert doubts(collect_facts(spark, run)) == []
    return run


def lines(run: Path, file: str) -> list[str]:
    return (run / "history" / file).read_text().splitlines(keepends=True)


def rewrite(run: Path, file: str, content: list[str]) -> None:
    (run / "history" / file).write_text("".join(content))


def change(run: Path, file: str, index: int, **columns: object) -> None:
    content = lines(run, file)
    content[index] = json.dumps({**json.loads(content[index]), **columns}) + "\n"
    rewrite(run, file, content)


Spoil = Callable[[Path], None]
W1 = "worker-1.jsonl"
OF_W1 = f"history file {W1}"


def left(edit: Callable[[list[str]], list[str]], file: str = W1) -> Spoil:
    """Only these of the lines of a file are left."""
    return lambda run: rewrite(run, file, edit(lines(run, file)))


def changed(index: int | str, file: str = W1, **columns: object) -> Spoil:
    """The row of this number, or the first that has this text, has other columns."""

    def spoil(run: Path) -> None:
        at = index if isinstance(index, int) else [index in line for line in lines(run, file)].index(True)
        change(run, file, at, **columns)

    return spoil


def spec_with(**fields: object) -> Spoil:
    """The spec says something else."""

    def spoil(run: Path) -> None:
        (run / "spec.json").write_text(json.dumps({**json.loads((run / "spec.json").read_text()), **fields}))

    return spoil


def without(operation: str, column: str) -> Spoil:
    """The items of the first answer of an operation lack a column."""

    def spoil(run: Path) -> None:
        rows = [json.loads(line) for line in lines(run, W1)]
        index = [(row.get("f"), row.get("type")) for row in rows].index((operation, "ok"))
        items = [{name: value for name, value in item.items() if name != column} for item in rows[index]["items"]]
        change(run, W1, index, items=items)

    return spoil


def moved(name: str, at: float) -> Spoil:
    """A snapshot was taken at another time."""

    def spoil(run: Path) -> None:
        for index, line in enumerate(lines(run, "harness.jsonl")):
            row = json.loads(line)
            if row["kind"] == "final" and row["name"] == name:
                change(run, "harness.jsonl", index, t_ns=ns(at))

    return spoil


NO_TOKEN = "has 1 rows about leases without a fence or a nonce"
UNCOMPARED = "it has no clock measure that could be compared with the harness's, and two are needed"
EXIT = "and its process was not killed"

#: What makes the hole, and what is said of it.
HOLES: dict[str, tuple[Spoil, str]] = {
    "corrupt middle line": (left(lambda of: [*of[:5], of[5][:30] + "\n", *of[6:]]), f"{OF_W1} has 1 corrupt line"),
    "line of another type": (changed(5, first_send_ns="soon"), f"{OF_W1} has 1 corrupt line"),
    "row without a number": (changed(5, seq=None), f"{OF_W1} has 1 corrupt line"),
    "missing line": (left(lambda of: [*of[:5], *of[6:]]), "rows are missing"),
    "line over another": (left(lambda of: [*of[:5], of[6], *of[6:]]), "rows are missing"),
    "missing first line": (left(lambda of: of[1:]), f"{OF_W1} does not start with its open row"),
    "missing last line": (left(lambda of: of[:-1]), f"{OF_W1} has no close row, {EXIT}"),
    "torn last line": (left(lambda of: [*of[:-1], of[-1][:20]]), f"{OF_W1} ends in mid-line, {EXIT}"),
    "wrong count in close": (changed(-1, rows=3), "its close row says 3"),
    "emptied file": (left(lambda of: []), f"{OF_W1} is empty"),
    "missing file": (lambda run: (run / "history" / W1).unlink(), f"{OF_W1} is declared in the manifest and missing"),
    "missing manifest": (lambda run: (run / "history/manifest.jsonl").unlink(), "history file manifest.jsonl is missing"),
    "undeclared": (lambda run: rewrite(run, "worker-9.jsonl", lines(run, W1)), "worker-9.jsonl is not declared in the manifest"),
    "two boots": (changed(0, boot_id="another"), f"(boot another): {UNCOMPARED}"),
    # Count, smallest, greatest and sum of the numbers stay as they were.
    "lines over their neighbours": (left(lambda of: [*of[:5], *[of[6]] * 3, *of[8:]]), f"{OF_W1} has"),
    "operation without a type": (changed(5, type=None), f"{OF_W1} has 1 operation rows without f, op or a known type"),
    "no boot": (changed(0, boot_id=None), f"{OF_W1} has 1 open rows without a boot id"),
    "timeless snapshot": (changed(-2, "harness.jsonl", srv_us=None), "harness.jsonl has 1 final rows without the server's time"),
    "another era": (changed(1, replid="era-2"), "the server had 2 eras, and no fault of it was planned"),
    "another lease": (changed('"claim"', lease_ms=60_000), "claims asked for a lease of 60000 ms, the spec says 9000 ms"),
    "other workers": (spec_with(workers=8), "3 workers were started before the first enqueue, the spec says 8"),
    "claim without a fence": (without("claim", "fence"), f"{OF_W1} {NO_TOKEN}"),
    "finish without a nonce": (without("finish", "nonce"), f"{OF_W1} {NO_TOKEN}"),
    "effect without a token": (changed(1, "worker-1.sink.jsonl", items=[{"job": "quiet-0"}]), f"worker-1.sink.jsonl {NO_TOKEN}"),
    "unknown operation": (changed('"finish"', f="Finish"), f"{OF_W1} has operations named Finish, which nobody knows"),
    "unknown kind": (changed(5, kind="operatoin"), f"{OF_W1} has rows of kind operatoin, which nobody knows"),
    "absent consumer": (spec_with(consumers=1), "0 consumers inside Locust were started, the spec says 1"),
    "cut tail": (left(lambda of: of[:-3], "worker-2.jsonl"), "ms before 1-worker-kill, more than 3000 ms: rows are missing"),
    "late deadline": (moved("deadline", 56.5), "taken 20500 ms after the last heal, not within 20000 ms"),
    "early end": (moved("end", 51), "the snapshot at the end was taken 500 ms before the one at the deadline"),
    "end before the last enqueue": (moved("end", 40), "jobs were enqueued until 2501 ms after the snapshot at the end"),
}


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found_and_named(tmp_path: Path, sound: Path, spark: SparkSession, hole: str) -> None:
    spoil, words = HOLES[hole]
    run = shutil.copytree(sound, tmp_path / "run")
    spoil(run)
    (doubt,) = [doubt for doubt in doubts(collect_facts(spark, run)) if words in doubt]
    assert of_doubt("H0", doubt) == (Cause.SLOW if hole == "late deadline" else Cause.HOLES)


def test_a_killed_process_may_leave_its_last_line_torn_and_its_file_open(run: Path, spark: SparkSession) -> None:
    """Rule 32. Its sink is excused with it."""
    for file in ("worker-2.jsonl", "worker-2.sink.jsonl"):
        rewrite(run, file, [*lines(run, file), '{"v":1,"seq":99,"proc":"worker-2","t_ns":12'])
    assert doubts(collect_facts(spark, run)) == []


def test_a_killed_process_is_excused_for_its_last_line_only(run: Path, spark: SparkSession) -> None:
    content = lines(run, "worker-2.jsonl")
    rewrite(run, "worker-2.jsonl", [content[0], content[1][:20] + "\n", *content[2:], '{"v":1,'])
    assert doubts(collect_facts(spark, run)) == ["history file worker-2.jsonl has 1 corrupt line"]


def test_a_newer_schema_is_not_read(run: Path, spark: SparkSession) -> None:
    newer = SCHEMA_VERSION + 1
    change(run, "worker-1.jsonl", 3, v=newer)
    message = rf"history file worker-1\.jsonl: schema version {newer}, this judge reads up to {SCHEMA_VERSION}"
    with pytest.raises(errors.JudgeError, match=message):
        collect_facts(spark, run)


def test_a_history_without_operations_is_in_doubt(run: Path, spark: SparkSession) -> None:
    for file in (run / "history").iterdir():
        content = [json.loads(line) for line in file.read_text().splitlines()]
        kept = [row for row in content if row["kind"] != "operation"]
        rows = [
            json.dumps({**row, "seq": seq, **({"rows": len(kept)} if row["kind"] == "close" else {})})
            for seq, row in enumerate(kept)
        ]
        file.write_text("\n".join(rows) + "\n")
    assert "the history holds no operation" in doubts(collect_facts(spark, run))


TAILS = [(b"", b""), (b"a\nb\n", b""), (b"a\nb", b"b"), (b"a", b"a"), (b"\n" + b"x" * 200_000, b"x" * 200_000)]


@pytest.mark.parametrize(("content", "tail"), TAILS)
def test_the_tail_is_what_follows_the_last_newline(tmp_path: Path, content: bytes, tail: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert folder.torn_tail(path) == tail


def test_a_snapshot_must_list_every_job_of_every_state_but_done() -> None:
    """`done` is bounded, and what it lists only adds to what is known."""
    whole: dict[str, tuple[int, int]] = dict.fromkeys(STATES, (3, 3))
    assert Snapshot(0, 0, {**whole, "done": (900, 100)}).gaps() == []
    assert Snapshot(0, 0, {**whole, "dead": (4, 3)}).gaps() == ["lists 3 of 4 jobs in state dead"]
    del whole["delayed"]
    assert Snapshot(0, 0, whole).gaps() == ["has no state delayed"]


def test_processes_that_write_while_they_are_frozen_are_in_doubt(story: Story, spark: SparkSession) -> None:
    """H1. And so is a drill that the harness could not carry out."""
    story.spec["harness_errors"] = ["unplanned exit of worker-1"]
    story.life("worker-3", "while-frozen", 29)
    assert h1_faults_bit.doubts(collect_facts(spark, story.write())) == [
        "the harness could not carry out the drill: unplanned exit of worker-1",
        "worker-3 wrote to worker-3.jsonl while it was frozen at 2-worker-freeze",
        "worker-3 wrote to worker-3.sink.jsonl while it was frozen at 2-worker-freeze",
    ]


def test_every_name_that_the_schema_documents_is_known() -> None:
    documented = {field.name: tuple(field.meaning.split(" | ")) for field in ROW_FIELDS if field.name in ("kind", "f")}
    assert documented == {"kind": collect.KINDS, "f": collect.OPERATIONS}


def test_consumers_inside_locust_are_not_counted_among_the_workers(tmp_path: Path, spark: SparkSession) -> None:
    story = Story(tmp_path / "run")
    story.spec["consumers"] = 1
    story.process("consumer-1", "worker")
    cast(story)
    story.life("consumer-1", "consumed", 1)
    found = doubts(collect_facts(spark, story.write()))
    assert not any("workers were started" in doubt or "consumers" in doubt for doubt in found)


def test_a_network_fault_is_no_reason_for_a_new_era_of_the_server(story: Story, spark: SparkSession) -> None:
    story.spec["plan"] = [*story.spec["plan"], {"fault": "3-net-down", "name": "net-down", "target": "worker-1,producer-1"}]
    story.row("worker-1", "connection", 49, server_run_id="r2", replid="era-2", server_role="master")
    assert doubts(collect_facts(spark, story.write())) == ["the server had 2 eras, and no fault of it was planned"]
