"""H3: rows in their order, the dead that write, the load's own lateness and CPU."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reports import folder, load
from reports.checks.h3_recorder_sound import doubts
from reports.facts import Run, Usage
from reports.samples import cpu_usage
from tests.reports.conftest import Checked
from tests.reports.story import Story, ns

S = 1_000_000_000


def collect_facts(spark: SparkSession, run: Path) -> Run:
    files = folder.history_files(run)
    return load.collect_facts(load.read_history(spark, run, files), json.loads((run / "spec.json").read_text()), cpu_usage(run))


def test_killed_processes_that_go_on_writing_are_in_doubt(story: Story, spark: SparkSession) -> None:
    story.row("worker-2", "connection", 11, server_run_id="r", replid="era-1", server_role="master")
    story.files["worker-2.sink"].close()
    assert doubts(collect_facts(spark, story.write())) == [
        "worker-2 wrote to worker-2.jsonl 990 ms after it was seen dead at 1-worker-kill",
        "worker-2 closed worker-2.sink.jsonl, and 1-worker-kill says that it was killed",
    ]


def test_rows_whose_instants_contradict_each_other_are_in_doubt(story: Story, spark: SparkSession) -> None:
    sent_last = {"first_send_ns": ns(30), "last_send_ns": ns(29), "done_ns": ns(30)}
    done_first = {"first_send_ns": ns(30), "done_ns": ns(29)}
    written_first = {"first_send_ns": ns(30), "last_send_ns": ns(30), "done_ns": ns(30.1)}
    for index, times in enumerate((sent_last, done_first, written_first)):
        story.row("worker-1", "operation", 30, f="promote", type="ok", op=f"worker-1-p{index}", items=[], **times)
    words = "history file worker-1.jsonl has 3 operation rows whose instants are not in their order"
    assert doubts(collect_facts(spark, story.write())) == [words]


def test_shares_of_cpu_come_from_the_samples(tmp_path: Path) -> None:
    """Of one process at a time; lines that cannot be read are passed over."""
    (tmp_path / "samples").mkdir()
    rows = [(1, 7, 0.5, None), (2, 7, 1.0, None), (3, 8, 0.0, 1.0), (4, 8, 0.25, 1.5), (5, 8, 0.5, 0.5)]
    told = [
        {"t_ns": at * S, "proc": "producer-1", "pid": pid, "cpu_user_s": used, "cpu_system_s": 0.0, "cpu_wait_s": waited}
        for at, pid, used, waited in rows
    ]
    lines = [json.dumps(row) for row in told]
    (tmp_path / "samples" / "processes.jsonl").write_text("\n".join([*lines[:2], "{", "[]", '{"proc": "x"}', *lines[2:]]))
    usages = (Usage(1 * S, 2 * S, 0.5), Usage(3 * S, 4 * S, 0.25, 0.5), Usage(4 * S, 5 * S, 0.25, 0.0))
    assert cpu_usage(tmp_path) == {"producer-1": usages}, "a thread that has ended takes its waiting with it"
    assert cpu_usage(tmp_path / "nowhere") == {}


def test_enqueues_that_do_not_say_when_they_were_meant_to_be_sent_are_in_doubt(story: Story, spark: SparkSession) -> None:
    story.enqueue("whenever", 40, intended_ns=None)
    story.run("worker-1", "whenever", 40.1)
    words = "producer-1 wrote 2 rows of enqueues that do not say when they were meant to be sent"
    assert doubts(collect_facts(spark, story.write())) == [words]


def late(story: Story, at: float, jobs: int, lag_s: float) -> None:
    """Jobs that were meant to be sent earlier."""
    for index in range(jobs):
        story.enqueue(f"late-{at}-{index}", at + index / 100 + lag_s, intended_ns=ns(at + index / 100))
        story.run("worker-1", f"late-{at}-{index}", at + index / 100 + lag_s + 0.01)


@pytest.mark.slow
def test_load_that_catches_up_after_a_fault_is_no_doubt(story: Story, checked: Checked) -> None:
    """The last one was seen to have healed at 36.5 s: late without a calm second until 40.5 s is due to it."""
    for at in (37.4, 38.2, 39.0, 39.8):
        late(story, at, 20, 0.5)
    assert checked(story.write(), "H3")["H3"] == ("valid", "")


@pytest.mark.slow
def test_load_that_never_catches_up_after_a_fault_is_in_doubt(story: Story, checked: Checked) -> None:
    """Also where the calibration saw a machine that allows for more than usual: three times the 60 ms."""
    story.spec["calibration"] = {"lag_ms": 60.0}
    for at in (37.4, 38.2, 39.0, 39.8, 40.6, 41.4):
        late(story, at, 20, 0.2)
    words = "the producers sent with a lag of 200.0 ms at p99 outside faults, more than 180 ms"
    assert checked(story.write(), "H3")["H3"] == ("unknown", words)


@pytest.mark.slow
def test_load_that_is_not_sent_outside_faults_is_in_doubt(story: Story, checked: Checked) -> None:
    """What was dropped in the windows of the faults, and as long as the load caught up, does not count."""
    for at, count in ((12.0, 500), (37.0, 500), (40.0, 4), (41.0, 6)):
        story.row("producer-1", "drop", 42, intended_ns=ns(at), count=count)
    words = "the producers did not send 10 of 45 jobs outside faults, more than 1%"
    assert checked(story.write(), "H3")["H3"] == ("unknown", words)


@pytest.mark.slow
def test_a_few_jobs_that_were_not_sent_are_no_doubt(story: Story, checked: Checked) -> None:
    story.row("producer-1", "drop", 12, count=1_000_000)
    story.row("producer-1", "drop", 40, intended_ns=ns(40), count=9)
    assert checked(story.write(), "H3")["H3"] == ("valid", "")


@pytest.mark.slow
def test_a_completion_that_was_written_twice_is_no_token_that_was_handed_out_twice(story: Story, checked: Checked) -> None:
    """Verbatim, but for its number: the recorder did that. And so it did where two completions differ in what they are about."""
    token = story.leased("worker-1", "told-twice", 40.1, enqueued=40)
    story.row("worker-1", **{"kind": "operation", "at": 40.101, **rows_of(story, "worker-1")[-1]})
    story.finish(token, 40.17, start=40.11, took=0.05, effect=40.16)
    finish = rows_of(story, "worker-1")[-1]
    story.row("worker-1", **{"kind": "operation", "at": 40.171, **finish, "items": [token.item(result="stale")]})
    found = checked(story.write(), "H3", "J2")
    assert found["H3"][0] == "unknown" and found["H3"][1].startswith("2 found, the first: told-twice has two completions of ")
    assert found["J2"] == ("valid", "")


@pytest.mark.slow
def test_one_finish_may_end_two_leases_of_a_job(story: Story, checked: Checked) -> None:
    zombie = story.leased("worker-1", "both", 3)
    owner = story.claim("worker-1", "both", 12.2)
    story.effect(owner, 12.3)
    items = [zombie.item(result="stale"), owner.item(result="ok", outcome="finished")]
    story.operation("worker-1", "finish", 12.4, items)
    assert checked(story.write(), "H3")["H3"] == ("valid", "")


def rows_of(story: Story, stem: str) -> list[dict]:
    """What was written to a file, without what its writer adds."""
    rows = [json.loads(line) for line in story.files[stem].path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in ("v", "seq", "proc", "t_ns")} for row in rows]


@pytest.mark.slow
def test_two_completions_of_an_operation_are_in_doubt(story: Story, checked: Checked) -> None:
    """And what rests on absent rows is unproven, as rows do not belong together."""
    columns = {"type": "info", "f": "finish", "op": "worker-1-twice", "items": [{"job": "quiet-0", "fence": 1, "nonce": "a"}]}
    for at in (30, 31):
        story.row("worker-1", "operation", at, first_send_ns=ns(30), done_ns=ns(at), **columns)
    story.enqueue("gone", 2)
    found = checked(story.write(), "H3", "J4")
    assert found["H3"] == ("unknown", "quiet-0 has two completions of operation worker-1-twice of worker-1")
    assert found["J4"][0] == "unknown" and found["J4"][1].startswith("missing rows may explain it: gone ")
