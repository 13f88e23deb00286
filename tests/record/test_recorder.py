"""The observer that writes history rows: what each call leaves behind, and when (rules 29 to 31)."""

import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Job, OutcomeUnknown, Queue, ServerUnavailable, Worker
from engine.redis.gathering import CallMaker, GatheredEnqueue, merged
from record.history import HistoryFile
from record.recorder import Recorder, Sink, result_crc
from tests.engine.desk import write_run
from tests.engine.helpers.producing import claim, claim_operation, hurry, refused, some_handlers
from tests.engine.helpers.relay import Relay
from tests.engine.helpers.schema import checked_rows, raw_rows
from tests.engine.helpers.waiting import wait_until
from tests.engine.ops import Bury, Drop, Enqueue, Extend, Failure, Finish, Lease, Mark, Operation, Options, Release, Retry, Sweep

NASTY = 'quote " backslash \\ line\nend tab\t nul\0 sep\u2028 surrogate \ud800 euro €'
#: What the worker makes of it: a lone surrogate cannot travel.
SENDABLE = NASTY.replace("\ud800", "?")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.jsonl"


def reaped(queue: Queue, worker: str = "a") -> None:
    """Let a worker sweep until a lease has run out."""
    counters = itertools.count(1)
    wait_until(lambda: run(queue, Sweep(worker * 16, next(counters), 10, 1000, 1000)).leases, "the lease is reaped")


@pytest.fixture
def queue(relay: Relay, path: Path) -> Iterator[Queue]:
    """A recorded queue through the relay; the history is closed and held against its schema at the end."""
    recorder = Recorder(HistoryFile(path, proc="p", role="producer"), queue="q")
    # Nothing here loses a reply but the relay, which closes the connection: no call is sent twice because the machine is busy.
    made = hurry(Queue("q", url=relay.url, observer=recorder), timeout_ms=60_000)
    made.counts()
    yield made
    made.close()
    recorder.close()
    rows = checked_rows(path)
    assert rows[-1]["kind"] == "close" and rows[-1]["rows"] == len(rows) and rows[-1]["recorder_ns"] > 0


def run(queue: Queue, operation: Operation) -> Any:
    return queue.driver.run(queue.model.call(operation))


def operations(path: Path, f: str = "", type: str = "") -> list[dict[str, Any]]:
    found = [row for row in raw_rows(path) if row["kind"] == "operation"]
    return [row for row in found if f in ("", row["f"]) and type in ("", row["type"])]


def leased(queue: Queue, *jobs: str, **options: Any) -> tuple[Lease, ...]:
    for job in jobs:
        queue.enqueue("work", {"job": job}, id=job, attempts=1)
    return tuple(job.lease for job in claim(queue, **options).jobs)


def test_a_connection_names_the_server_and_questions_are_not_recorded(queue: Queue, path: Path, client: Any) -> None:
    server, replication = client.info("server"), client.info("replication")
    (row,) = [row for row in raw_rows(path) if row["kind"] == "connection"]
    assert row["server_run_id"] == server["run_id"] and row["replid"] == replication["master_replid"]
    assert row["server_role"] == "master"
    queue.snapshot()
    assert operations(path) == []


def test_an_enqueue(queue: Queue, path: Path) -> None:
    enqueued = queue.enqueue("work", {"a": 1}, id="j", priority=7, delay_ms=50, intended_ns=123)
    invoke, done = operations(path)
    item = {"job": "j", "name": "work", "class": "work", "lane": "work", "priority": 7, "delay_ms": 50}
    item |= {"crc": zlib.crc32(b'{"a":1}'), "attempts": 3, "backoff": "fixed", "backoff_least_ms": 1000}
    assert invoke["items"] == [item] and done["items"] == [{**item, "result": "created"}]
    assert (invoke["type"], done["type"], done["result"]) == ("invoke", "ok", "created")
    assert (done["sends"], done["errors"], done["srv_us"]) == (1, [], enqueued.srv_us)
    assert invoke["intended_ns"] == done["intended_ns"] == 123
    assert invoke["first_send_ns"] == done["first_send_ns"] <= done["last_send_ns"] <= done["done_ns"] <= done["t_ns"]


def test_jobs_of_several_callers_in_one_call_each_have_the_instant_they_were_meant_for(queue: Queue, path: Path) -> None:
    """One of them says nothing, and the job of one is there already."""
    queue.enqueue("work", {}, id="b")
    maker, options = CallMaker(queue.model.call, merges=True), Options()

    def gathered(job: str, nonce: bytes, intended_ns: int | None) -> GatheredEnqueue:
        return GatheredEnqueue(Enqueue(job, "work", b"{}", nonce, options), intended_ns)

    three = [gathered("a", b"nonce--1", 300), gathered("b", b"nonce--2", 100), gathered("c", b"nonce--3", None)]
    (merged_call,) = merged(three, queue.driver.not_after_ms(), maker)
    queue.driver.carry([queue.driver.start(merged_call.call, merged_call.intended_ns)])
    invoke, done = operations(path)[-2:]
    for row in (invoke, done):
        assert row["intended_ns"] == 100
        assert [(item["job"], item.get("intended_ns")) for item in row["items"]] == [("a", 300), ("b", 100), ("c", None)]
    assert [item["result"] for item in done["items"]] == ["created", "duplicate", "created"]
    twice = merged([*three, *three], queue.driver.not_after_ms(), maker)
    assert [[job.job for job in call.jobs] for call in twice] == [["a", "b", "c"]] * 2, "no id comes twice in a call"


def test_every_operation_leaves_its_rows(queue: Queue, path: Path) -> None:
    """The fixture holds all of them against the schema."""
    first, second, third, fourth, fifth, sixth, seventh = leased(queue, *"abcdefg", lease_ms=60_000)
    run(queue, Extend((first,), 1, 60_000, queue.driver.server_now_ms() + 60_000))
    run(queue, Retry((Failure(second, SENDABLE, 77),)))
    run(queue, Bury((Failure(third, SENDABLE),)))
    assert run(queue, Mark(fourth)).result == "ok"
    run(queue, Release((fourth,)))
    run(queue, Finish((first,)))
    run(queue, Sweep("a" * 16, 1, 10, 1000, 1000))
    run(queue, Finish((fifth, Lease("none", 1, "n:1"))))
    run(queue, Drop((sixth, seventh, Lease("none", 1, "n:1")), ("skipped", "discarded", "rerouted")))
    rows = {row["f"]: row for row in operations(path) if row["type"] != "invoke"}
    assert set(rows) == {"enqueue", "claim", "extend", "retry", "bury", "release", "finish", "drop", "mark", "reap"}
    assert len(operations(path, type="invoke")) == len(operations(path)) / 2
    claimed = rows["claim"]
    assert (claimed["result"], claimed["counter"], claimed["lease_ms"]) == ("leased", int(first.nonce.split(":")[1]), 60_000)
    item = claimed["items"][0]
    assert (item["fence"], item["nonce"], item["crc"]) == (first.fence, first.nonce, zlib.crc32(b'{"job":"a"}'))
    assert item["deadline_ms"] == claimed["srv_us"] // 1000 + 60_000
    assert rows["extend"]["items"][0]["deadline_ms"] >= item["deadline_ms"]
    assert [(item["job"], item["result"], item["outcome"]) for item in rows["retry"]["items"]] == [("b", "ok", "buried")]
    assert rows["bury"]["items"][0]["error"] == SENDABLE
    dropped = [(item["job"], item["result"], item["outcome"]) for item in rows["drop"]["items"]]
    assert dropped == [("f", "ok", "skipped"), ("g", "ok", "discarded"), ("none", "stale", "")]
    # One stale token inside a batch is one stale item (rule 33).
    assert [(item["job"], item["result"]) for item in rows["finish"]["items"]] == [("e", "ok"), ("none", "stale")]


def test_rules_12_and_17_what_scripts_bury_by_themselves_are_rows(queue: Queue, path: Path, client: Any) -> None:
    """A job that is dead without a row that says why would be a job that was lost."""
    queue.enqueue("work", {}, id="poison", attempts=1)
    (first,) = claim(queue, lease_ms=300).jobs
    queue.enqueue("work", {}, id="later")
    reaped(queue)
    write_run(client, queue.model.keys.run("poison"), crashes=2)
    client.set(queue.model.keys.job("later"), b"nonsense")
    (again,) = claim(queue, lease_ms=300).jobs
    run(queue, Mark(again.lease))
    reaped(queue, "b")
    token = {"job": "poison", "fence": again.lease.fence, "nonce": again.lease.nonce}
    assert operations(path, "reap", "ok")[-1]["items"] == [{**token, "crashes": 3, "result": "buried", "outcome": "buried"}]
    corrupt = [row["f"] for row in operations(path, type="ok") if {"job": "later", "result": "corrupt"} in row["items"]]
    assert corrupt == ["claim"] and first.lease != again.lease


def worked(queue: Queue, folder: Path, work: Callable[[Job, Sink], Any]) -> None:
    """Let a worker run all jobs, whose handler gets the sink as well."""
    sink = Sink(folder / "p.sink.jsonl", proc="p")
    Worker(queue, some_handlers(lambda job: work(job, sink)), name="p", concurrency=1, sweep_ms=50).run(burst=True)
    sink.close()


def test_a_finish_says_which_result_it_sent_and_a_sink_which_one_was_returned(queue: Queue, path: Path, tmp_path: Path) -> None:
    def work(job: Job, sink: Sink) -> Any:
        sink.write(job, job.payload)
        return job.payload

    results: dict[str, Any] = {"a": {"ä": [1, None]}, "b": "text", "c": None}
    for job, payload in results.items():
        queue.enqueue("work", payload, id=job)
    worked(queue, tmp_path, work)
    crcs = {"a": zlib.crc32('{"ä":[1,null]}'.encode()), "b": zlib.crc32(b'"text"'), "c": None}
    for kind in ("invoke", "ok"):
        sent = {item["job"]: item.get("result_crc") for row in operations(path, "finish", type=kind) for item in row["items"]}
        assert sent == crcs
    effects = raw_rows(tmp_path / "p.sink.jsonl")[1:-1]
    assert {item["job"]: item.get("result_crc") for row in effects for item in row["items"]} == crcs
    read = {job: queue.results.wait(job) for job in "ab"}
    assert {job: result_crc(found.value) for job, found in read.items()} == {job: crcs[job] for job in "ab"}


def test_the_invocation_is_on_disk_before_the_server_hears_of_it(queue: Queue, relay: Relay, path: Path) -> None:
    """Rule 30: seen at the moment when the bytes of the command arrive, for a plain and for a fused call."""
    seen: list[list[dict[str, Any]]] = []
    relay.before_call = lambda data: seen.append(operations(path))
    (lease,) = leased(queue, "a")
    run(queue, Finish((lease,), claim_operation(queue)))
    assert [[row["f"] for row in rows[-2:]] for rows in seen] == [["enqueue"], ["enqueue", "claim"], ["finish", "claim"]]
    assert all(rows[-1]["type"] == "invoke" for rows in seen) and seen[0][-1]["items"][0]["job"] == "a"


def test_sends_and_their_errors_are_told(queue: Queue, relay: Relay, path: Path) -> None:
    relay.next("lose_request", "lose_reply")
    queue.enqueue("work", {}, id="j")
    row = operations(path)[-1]
    assert (row["type"], row["result"], row["sends"], len(row["errors"])) == ("ok", "repeated", 3, 2)
    assert row["last_send_ns"] > row["first_send_ns"]


@pytest.mark.parametrize(("harm", "type", "result"), [(False, "fail", "stale"), (True, "info", "unknown")])
def test_rule_31_a_refusal_is_fail_only_when_no_copy_is_unanswered(
    queue: Queue, relay: Relay, path: Path, harm: bool, type: str, result: str
) -> None:
    """And an answer that a token is stale says so only then."""
    (lease,) = leased(queue, "a", lease_ms=300)
    reaped(queue)
    late = Enqueue("j", "main", b"{}", b"nonce---", Options(), not_after_ms=queue.driver.server_now_ms() - 1000)
    for operation in (late, Finish((lease,))):
        if harm:
            relay.next("lose_request")
        run(queue, operation)
    refusal, finish = (operations(path, f)[-1] for f in ("enqueue", "finish"))
    assert (refusal["type"], refusal["result"]) == (type, "refused") and [item["result"] for item in finish["items"]] == [result]


def test_rule_31_without_an_answer_only_what_was_never_sent_is_fail(queue: Queue, relay: Relay, path: Path) -> None:
    queue.driver.deadline_ms = 100
    relay.standing = "lose_request"
    refused(OutcomeUnknown, None, queue.enqueue, "work", {}, id="lost")
    relay.down()
    queue.driver.close()
    refused(ServerUnavailable, None, queue.enqueue, "work", {}, id="never")
    unknown, unsent = operations(path, type="info"), operations(path, type="fail")
    assert [row["items"][0]["job"] for row in (*unknown, *unsent)] == ["lost", "never"]
    assert unknown[0]["sends"] >= 1 and unsent[0]["sends"] == 0 and unsent[0]["error"] and unsent[0]["errors"]


def test_handlers_and_their_sink(queue: Queue, path: Path, tmp_path: Path) -> None:
    """Start and end of each run are rows; the sink is the second witness."""

    def work(job: Job, sink: Sink) -> None:
        sink.write(job)
        if job.payload == "bad":
            raise ValueError(NASTY)

    queue.enqueue("work", "good", id="g")
    queue.enqueue("work", "bad", id="b", attempts=1)
    worked(queue, tmp_path, work)
    rows = {(row["items"][0]["job"], row["type"]): row for row in operations(path, "handle")}
    assert set(rows) == {("g", "invoke"), ("g", "ok"), ("b", "invoke"), ("b", "fail")}
    assert rows["b", "fail"]["items"][0]["error"] == f"ValueError: {SENDABLE}"
    effects = checked_rows(tmp_path / "p.sink.jsonl")
    tokens = {item["job"]: item for row in operations(path, "claim", "ok") for item in row["items"]}
    for row in effects[1:-1]:
        (item,) = row["items"]
        assert all(item[column] == tokens[item["job"]][column] for column in ("fence", "nonce", "crc"))
    (configuration,) = [row for row in raw_rows(path) if row["kind"] == "configuration"]
    assert json.loads(configuration["config"])["concurrency"] == 1
