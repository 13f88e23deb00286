"""The live view of histories: growing files, torn lines, and what a worker holds and runs."""

import json
from pathlib import Path

import pytest

from chaos.tail import Tail
from chaos.watch import NEVER, Answer, ProcessView, Watch
from tests.chaos.histories import WorkerHistory, token

A, B, C = token("a", 10), token("b", 11), token("c", 12)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    watch = Watch(tmp_path)
    for name in ("worker-1", "worker-2"):
        watch.follow(name)
    return watch


@pytest.fixture
def worker(tmp_path: Path) -> WorkerHistory:
    return WorkerHistory(tmp_path, "worker-1")


@pytest.fixture
def other(tmp_path: Path) -> WorkerHistory:
    return WorkerHistory(tmp_path, "worker-2")


def seen(watch: Watch) -> ProcessView:
    """The worker as its history is now."""
    watch.poll()
    return watch.view("worker-1")


def test_a_file_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "late.jsonl")
    assert tail.read() == []
    (tmp_path / "late.jsonl").write_text('{"a":1}\n')
    assert tail.read() == [{"a": 1}] and tail.read() == []


def test_every_cut_of_a_file_gives_the_same_rows(tmp_path: Path) -> None:
    text = b'{"a":1}\n{"b":"\xc3\xa9"}\n{"c":3}\n'
    for cut in range(len(text) + 1):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(text[:cut])
        tail = Tail(path)
        # A torn last line waits for its rest.
        rows = tail.read() + tail.read()
        with path.open("ab") as file:
            file.write(text[cut:])
        assert rows + tail.read() == [{"a": 1}, {"b": "é"}, {"c": 3}] and tail.corrupt_lines == 0


def test_lines_that_are_no_objects_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"a":1}\nnonsense\n[1]\n{"b":2}\n')
    tail = Tail(path)
    assert tail.read() == [{"a": 1}, {"b": 2}] and tail.corrupt_lines == 2


def test_running_handlers_are_those_that_started_and_did_not_end(watch: Watch, worker: WorkerHistory) -> None:
    worker.claim(A, B, C)
    worker.start(A, B)
    assert set(seen(watch).running) == {A, B}
    worker.stop(A)
    assert set(seen(watch).running) == {B}


def test_a_lease_is_held_until_its_end_was_sent(watch: Watch, worker: WorkerHistory) -> None:
    worker.claim(A, B, C)
    worker.send("finish", A)
    watch.poll()
    assert watch.definitely_held("worker-1") == [B, C]
    worker.answer("finish", A, result="ok")
    worker.send("retry", B)
    worker.answer("retry", B, result="ok")
    assert list(seen(watch).in_hand) == watch.definitely_held("worker-1") == [C] and watch.finished() == 1


def test_an_end_whose_outcome_is_unknown_leaves_the_lease_open(watch: Watch, worker: WorkerHistory) -> None:
    worker.claim(A)
    worker.send("finish", A)
    worker.answer("finish", A, result="unknown", kind="info")
    assert list(seen(watch).in_hand) == [A] and watch.definitely_held("worker-1") == []
    assert watch.finished() == 0


def test_a_repeated_claim_is_one_lease(watch: Watch, worker: WorkerHistory) -> None:
    worker.claim(A)
    worker.claim(A, result="repeated")
    assert seen(watch).claimed == {"a": [10]}


def test_elsewhere_is_another_process_with_a_later_fence(watch: Watch, worker: WorkerHistory, other: WorkerHistory) -> None:
    worker.claim(A, B, C)
    worker.claim(token("a", 20))
    other.claim(token("b", 5, "2"))
    watch.poll()
    assert watch.claimed_elsewhere("worker-1", [A, B, C]) == []
    other.claim(token("b", 30, "2"))
    watch.poll()
    assert watch.claimed_elsewhere("worker-1", [A, B, C]) == [B]
    assert watch.started_elsewhere("worker-1", [A, B, C]) == []
    other.start(token("b", 30, "2"))
    watch.poll()
    assert watch.started_elsewhere("worker-1", [A, B, C]) == [B]


def test_the_answer_to_a_late_end_is_kept(watch: Watch, worker: WorkerHistory) -> None:
    worker.claim(A)
    worker.send("finish", A)
    worker.answer("finish", A, result="stale", kind="fail")
    assert seen(watch).ended[A][:2] == ("finish", "stale")


def test_created_jobs_are_counted_once(watch: Watch, worker: WorkerHistory) -> None:
    for result in ("created", "repeated", "duplicate", "refused"):
        append(worker, kind="operation", f="enqueue", type="ok", items=[{"job": "a", "result": result}])
    watch.poll()
    assert watch.created() == 1


def test_open_and_close_are_seen(watch: Watch, worker: WorkerHistory) -> None:
    assert (seen(watch).opened, watch.view("worker-1").closed) == (True, False)
    worker.file.close()
    assert seen(watch).closed


def append(worker: WorkerHistory, **row: object) -> None:
    worker.file.append([json.dumps(row)[1:-1]])


def test_only_a_row_with_the_servers_time_is_an_answer(watch: Watch, worker: WorkerHistory) -> None:
    times = {"first_send_ns": 10, "last_send_ns": 20, "done_ns": 30}
    append(worker, kind="operation", f="extend", type="info", op="w-1.0", **times)
    append(worker, kind="operation", f="handle", type="ok", op="w-2.0", first_send_ns=50, done_ns=60)
    assert seen(watch).answered == NEVER
    append(worker, kind="operation", f="extend", type="ok", op="w-3.0", srv_us=1, **times)
    append(worker, kind="operation", f="claim", type="ok", op="w-4.0", srv_us=1, last_send_ns=15, done_ns=99)
    assert (seen(watch).answered, Answer(1_000_000, 3_500_000).took_ms) == (Answer(20, 30), 2.5)


def test_what_was_sent_is_unanswered_until_its_completion(watch: Watch, worker: WorkerHistory) -> None:
    append(worker, kind="operation", f="claim", type="invoke", op="w-1.1", first_send_ns=10, items=[])
    append(worker, kind="operation", f="handle", type="invoke", op="w-2.0", first_send_ns=11, items=[])
    assert seen(watch).unanswered == {"w-1.1": ("claim", 10)}
    append(worker, kind="operation", f="claim", type="info", op="w-1.1", items=[])
    assert seen(watch).unanswered == {}


REPEATED = [
    ("repeated", [{"job": "a", "fence": 1, "nonce": "n", "result": "leased"}], True),
    ("", [{"job": "a", "result": "ok"}, {"job": "b", "result": "repeated"}], True),
    ("leased", [{"job": "a", "fence": 1, "nonce": "n", "result": "leased"}], False),
]


@pytest.mark.parametrize(("result", "items", "repeated"), REPEATED)
def test_repeats_in_row_or_item_show(result: str, items: list, repeated: bool, watch: Watch, worker: WorkerHistory) -> None:
    row = {"srv_us": 1, "last_send_ns": 5, "done_ns": 7, "result": result, "items": items}
    append(worker, kind="operation", f="claim", type="ok", op="w-1.0", **row)
    assert seen(watch).repeated_ns == ({"claim": 7} if repeated else {})


def test_the_newest_connection_counts(watch: Watch, worker: WorkerHistory) -> None:
    for t_ns in (5, 9):
        worker.file.append(['"kind":"connection"'], t_ns=t_ns)
    assert seen(watch).connected_ns == 9


def test_a_renewal_counts_when_it_renewed_something(watch: Watch, worker: WorkerHistory) -> None:
    lease = {"job": "a", "fence": 1, "nonce": "n"}
    row = {"kind": "operation", "f": "extend", "type": "ok", "srv_us": 1, "done_ns": 30}
    append(worker, **row, op="w-1.0", last_send_ns=20, items=[{**lease, "result": "stale"}])
    assert seen(watch).renewed == NEVER
    append(worker, **row, op="w-2.0", last_send_ns=21, items=[{**lease, "result": "stale"}, {**lease, "result": "ok"}])
    assert seen(watch).renewed == Answer(21, 30)
