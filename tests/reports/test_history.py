"""H0: histories with holes, and those that only look as if they had one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from record.history import ROW_FIELDS, SCHEMA_VERSION
from reports import collect, load
from reports.causes import Cause, of_doubt
from reports.checks import h1_faults_bit
from reports.checks.h0_history_whole import doubts
from reports.errors import JudgeError
from reports.facts import STATES, Run, Snapshot
from reports.folder import history_files, torn_tail
from tests.reports.good_run import cast, healthy
from tests.reports.story import Story, ns


def collect_facts(spark: SparkSession, run: Path) -> Run:
    files = history_files(run)
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


def corrupt_middle_line(run: Path) -> None:
    content = lines(run, "worker-1.jsonl")
    rewrite(run, "worker-1.jsonl", [*content[:5], content[5][:30] + "\n", *content[6:]])


def line_of_another_type(run: Path) -> None:
    change(run, "worker-1.jsonl", 5, first_send_ns="soon")


def row_without_a_number(run: Path) -> None:
    change(run, "worker-1.jsonl", 5, seq=None)


def missing_line(run: Path) -> None:
    content = lines(run, "worker-1.jsonl")
    rewrite(run, "worker-1.jsonl", [*content[:5], *content[6:]])


def line_over_another(run: Path) -> None:
    content = lines(run, "worker-1.jsonl")
    rewrite(run, "worker-1.jsonl", [*content[:5], content[6], *content[6:]])


def missing_first_line(run: Path) -> None:
    rewrite(run, "worker-1.jsonl", lines(run, "worker-1.jsonl")[1:])


def missing_last_line(run: Path) -> None:
    rewrite(run, "worker-1.jsonl", lines(run, "worker-1.jsonl")[:-1])


def torn_last_line(run: Path) -> None:
    content = lines(run, "worker-1.jsonl")
    rewrite(run, "worker-1.jsonl", [*content[:-1], content[-1][:20]])


def wrong_count_in_close(run: Path) -> None:
    change(run, "worker-1.jsonl", -1, rows=3)


def emptied_file(run: Path) -> None:
    rewrite(run, "worker-1.jsonl", [])


def missing_file(run: Path) -> None:
    (run / "history" / "worker-1.jsonl").unlink()


def missing_manifest(run: Path) -> None:
    (run / "history" / "manifest.jsonl").unlink()


def undeclared_file(run: Path) -> None:
    rewrite(run, "worker-9.jsonl", lines(run, "worker-1.jsonl"))


def two_boots(run: Path) -> None:
    change(run, "worker-1.jsonl", 0, boot_id="another")


def lines_over_their_neighbours(run: Path) -> None:
    """Count, smallest, greatest and sum of the numbers stay as they were."""
    content = lines(run, "worker-1.jsonl")
    rewrite(run, "worker-1.jsonl", [*content[:5], *[content[6]] * 3, *content[8:]])


def operation_without_a_type(run: Path) -> None:
    change(run, "worker-1.jsonl", 5, type=None)


def no_boot(run: Path) -> None:
    change(run, "worker-1.jsonl", 0, boot_id=None)


def snapshot_without_the_servers_time(run: Path) -> None:
    change(run, "harness.jsonl", -2, srv_us=None)


def another_era(run: Path) -> None:
    change(run, "worker-1.jsonl", 1, replid="era-2")


def another_lease(run: Path) -> None:
    index = next(index for index, line in enumerate(lines(run, "worker-1.jsonl")) if '"claim"' in line)
    change(run, "worker-1.jsonl", index, lease_ms=60_000)


def another_number_of_workers(run: Path) -> None:
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "workers": 8}))


def claim_without_a_fence(run: Path) -> None:
    without(run, "claim", "fence")


def finish_without_a_nonce(run: Path) -> None:
    without(run, "finish", "nonce")


def without(run: Path, operation: str, column: str) -> None:
    """Take a column away from the items of the first answer of an operation."""
    rows = [json.loads(line) for line in lines(run, "worker-1.jsonl")]
    index = next(index for index, row in enumerate(rows) if (row.get("f"), row.get("type")) == (operation, "ok"))
    items = [{name: value for name, value in item.items() if name != column} for item in rows[index]["items"]]
    change(run, "worker-1.jsonl", index, items=items)


def effect_without_a_token(run: Path) -> None:
    change(run, "worker-1.sink.jsonl", 1, items=[{"job": "quiet-0"}])


def operation_of_another_name(run: Path) -> None:
    index = next(index for index, line in enumerate(lines(run, "worker-1.jsonl")) if '"finish"' in line)
    change(run, "worker-1.jsonl", index, f="Finish")


def row_of_another_kind(run: Path) -> None:
    change(run, "worker-1.jsonl", 5, kind="operatoin")


def consumer_that_is_not_there(run: Path) -> None:
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "consumers": 1}))


def cut_tail_of_a_killed_process(run: Path) -> None:
    rewrite(run, "worker-2.jsonl", lines(run, "worker-2.jsonl")[:-3])


def snapshots_moved(run: Path, name: str, at: float) -> None:
    for index, line in enumerate(lines(run, "harness.jsonl")):
        row = json.loads(line)
        if row["kind"] == "final" and row["name"] == name:
            change(run, "harness.jsonl", index, t_ns=ns(at))


def late_deadline(run: Path) -> None:
    snapshots_moved(run, "deadline", 56.5)


def early_end(run: Path) -> None:
    snapshots_moved(run, "end", 51)


def end_before_the_last_enqueue(run: Path) -> None:
    snapshots_moved(run, "end", 40)


HOLES: list[tuple[Callable[[Path], None], str]] = [
    (corrupt_middle_line, "history file worker-1.jsonl has 1 corrupt line"),
    (line_of_another_type, "history file worker-1.jsonl has 1 corrupt line"),
    (row_without_a_number, "history file worker-1.jsonl has 1 corrupt line"),
    (missing_line, "rows are missing"),
    (line_over_another, "rows are missing"),
    (missing_first_line, "history file worker-1.jsonl does not start with its open row"),
    (missing_last_line, "history file worker-1.jsonl has no close row, and its process was not killed"),
    (torn_last_line, "history file worker-1.jsonl ends in mid-line, and its process was not killed"),
    (wrong_count_in_close, "its close row says 3"),
    (emptied_file, "history file worker-1.jsonl is empty"),
    (missing_file, "history file worker-1.jsonl is declared in the manifest and missing"),
    (missing_manifest, "history file manifest.jsonl is missing"),
    (undeclared_file, "history file worker-9.jsonl is not declared in the manifest"),
    (two_boots, "(boot another): it has no clock measure that could be compared with the harness's, and two are needed"),
    (lines_over_their_neighbours, "history file worker-1.jsonl has"),
    (operation_without_a_type, "history file worker-1.jsonl has 1 operation rows without f, op or a known type"),
    (no_boot, "history file worker-1.jsonl has 1 open rows without a boot id"),
    (snapshot_without_the_servers_time, "history file harness.jsonl has 1 final rows without the server's time"),
    (another_era, "the server had 2 eras, and no fault of it was planned"),
    (another_lease, "claims asked for a lease of 60000 ms, the spec says 9000 ms"),
    (another_number_of_workers, "3 workers were started before the first enqueue, the spec says 8"),
    (claim_without_a_fence, "history file worker-1.jsonl has 1 rows about leases without a fence or a nonce"),
    (finish_without_a_nonce, "history file worker-1.jsonl has 1 rows about leases without a fence or a nonce"),
    (effect_without_a_token, "history file worker-1.sink.jsonl has 1 rows about leases without a fence or a nonce"),
    (operation_of_another_name, "history file worker-1.jsonl has operations named Finish, which nobody knows"),
    (row_of_another_kind, "history file worker-1.jsonl has rows of kind operatoin, which nobody knows"),
    (consumer_that_is_not_there, "0 consumers inside Locust were started, the spec says 1"),
    (cut_tail_of_a_killed_process, "ms before 1-worker-kill, more than 3000 ms: rows are missing"),
    (late_deadline, "taken 20500 ms after the last heal, not within 20000 ms"),
    (early_end, "the snapshot at the end was taken 500 ms before the one at the deadline"),
    (end_before_the_last_enqueue, "jobs were enqueued until 2501 ms after the snapshot at the end"),
]


@pytest.mark.parametrize(("spoil", "words"), HOLES, ids=[spoil.__name__ for spoil, _ in HOLES])
def test_a_hole_is_found_and_named(
    tmp_path: Path, sound: Path, spark: SparkSession, spoil: Callable[[Path], None], words: str
) -> None:
    run = shutil.copytree(sound, tmp_path / "run")
    spoil(run)
    (doubt,) = [doubt for doubt in doubts(collect_facts(spark, run)) if words in doubt]
    assert of_doubt("H0", doubt) == (Cause.SLOW if spoil is late_deadline else Cause.HOLES)


def test_a_killed_process_may_leave_its_last_line_torn_and_its_file_open(run: Path, spark: SparkSession) -> None:
    """Rule 32. Its sink is excused with it."""
    for file in ("worker-2.jsonl", "worker-2.sink.jsonl"):
        content = lines(run, file)
        rewrite(run, file, [*content, '{"v":1,"seq":99,"proc":"worker-2","t_ns":12'])
    assert doubts(collect_facts(spark, run)) == []


def test_a_killed_process_is_excused_for_its_last_line_only(run: Path, spark: SparkSession) -> None:
    content = lines(run, "worker-2.jsonl")
    rewrite(run, "worker-2.jsonl", [content[0], content[1][:20] + "\n", *content[2:], '{"v":1,'])
    assert doubts(collect_facts(spark, run)) == ["history file worker-2.jsonl has 1 corrupt line"]


def test_a_newer_schema_is_not_read(run: Path, spark: SparkSession) -> None:
    newer = SCHEMA_VERSION + 1
    change(run, "worker-1.jsonl", 3, v=newer)
    message = rf"history file worker-1\.jsonl: schema version {newer}, this judge reads up to {SCHEMA_VERSION}"
    with pytest.raises(JudgeError, match=message):
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


@pytest.mark.parametrize(
    ("content", "tail"), [(b"", b""), (b"a\nb\n", b""), (b"a\nb", b"b"), (b"a", b"a"), (b"\n" + b"x" * 200_000, b"x" * 200_000)]
)
def test_the_tail_is_what_follows_the_last_newline(tmp_path: Path, content: bytes, tail: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert torn_tail(path) == tail


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
