"""A producer over HTTP: every send of a job is in its history, and what came of it is said as the engine says it."""

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import engine
from bench.http_queue import HttpQueue
from engine.http.settings import HttpSettings
from ironclaim_client.errors import Refused, ServerUnavailable
from record.history import HistoryFile, load_file
from record.recorder import Recorder
from tests.clients.relay import HttpRelay, relay
from tests.engine.http.serving import served


class Sender:
    """A producer of queue `bench`, before it two relays to an app each, and its history."""

    def __init__(self, server_url: str, path: Path, stack: ExitStack) -> None:
        settings = HttpSettings(url=server_url, allow_changes=True)
        self.relays: list[HttpRelay] = [stack.enter_context(relay(stack.enter_context(served(settings)))) for _ in range(2)]
        self.queue = stack.enter_context(engine.Queue("bench", url=server_url))
        self._path = path
        self._file = HistoryFile(path, proc="producer-1", role="producer")
        self._sends = HttpQueue("bench", [one.url for one in self.relays], Recorder(self._file, queue="bench"), 4)
        stack.callback(self._file.close)
        stack.callback(self._sends.close)

    def enqueue(self, id: str, **options: Any) -> Any:
        return self._sends.enqueue("email", {"to": "é"}, id=id, intended_ns=1, **options)

    def rows(self, *kinds: str) -> list[dict[str, Any]]:
        return [row for row in load_file(self._path).rows if row["kind"] in kinds]


@pytest.fixture
def sender(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    # A busy machine may take its time for an answer that nothing has lost.
    monkeypatch.setattr("bench.http_queue.ATTEMPT_MS", 15_000)
    monkeypatch.setattr("bench.http_queue.DEADLINE_MS", 60_000)
    with ExitStack() as stack:
        yield Sender(ironclaim_url, tmp_path / "producer-1.jsonl", stack)


def test_a_job_is_there_as_the_history_says(sender: Sender) -> None:
    target = engine.Target(capabilities=["heavy"])
    assert sender.enqueue("b1-1", delay_ms=60_000, priority=3, unique="u", needs=(), target=target, key=None).created
    job = sender.queue.jobs.get("b1-1")
    assert job is not None and (job.state, job.priority, job.payload) == ("delayed", 3, {"to": "é"})
    invoke, ok = sender.rows("operation")
    assert (invoke["type"], ok["type"], ok["result"], ok["sends"]) == ("invoke", "ok", "created", 1)
    assert invoke["intended_ns"] == 1 and ok["srv_us"] == 1_000 * job.enqueued_ms
    (item,) = ok["items"]
    assert item["crc"] == zlib.crc32('{"to":"é"}'.encode())
    assert (item["job"], item["delay_ms"], item["unique"], item["wants"]) == ("b1-1", 60_000, "u", '{"capabilities":["heavy"]}')


@pytest.mark.parametrize("rule", ["lose_request", "lose_reply", "cut_reply", "gateway"])
def test_what_was_not_answered_is_sent_again_to_the_other_app_and_is_there_once(sender: Sender, rule: Any) -> None:
    sender.relays[0].next(rule, of="POST")
    assert sender.enqueue("b1-1").created
    done = sender.rows("operation")[-1]
    assert (done["type"], done["sends"], len(done["errors"])) == ("ok", 2, 1)
    # The server knows whether the first one has arrived.
    assert done["result"] == ("created" if rule == "lose_request" else "repeated")
    assert [len(one.requests("POST")) for one in sender.relays] == [1, 1]
    assert {seen.headers["Idempotency-Key"] for one in sender.relays for seen in one.requests("POST")} == {"b1-1"}
    assert sender.queue.counts().waiting == 1


def test_a_job_that_is_there_or_is_kept_out_is_no_repeat(sender: Sender) -> None:
    sender.enqueue("b1-1", unique="u")
    assert sender.enqueue("b1-1").result == "duplicate"
    kept_out = sender.enqueue("b1-2", unique="u")
    assert (kept_out.result, kept_out.holder) == ("duplicate", "b1-1")
    assert [row["items"][0].get("holder") for row in sender.rows("operation") if row["type"] == "ok"] == [None, None, "b1-1"]


def test_one_that_is_kept_out_after_a_send_without_an_answer_may_still_come(sender: Sender) -> None:
    sender.enqueue("b1-1", unique="u")
    sender.relays[1].next("lose_request", of="POST")
    with pytest.raises(engine.OutcomeUnknown, match="b1-1 is there instead"):
        sender.enqueue("b1-2", unique="u")
    row = sender.rows("operation")[-1]
    assert (row["type"], row["srv_us"], row["sends"]) == ("info", None, 2)


def test_a_refusal_did_not_happen(sender: Sender) -> None:
    with pytest.raises(Refused, match="needs b1-0"):
        sender.enqueue("b1-1", needs=("b1-0",))
    assert sender.rows("operation")[-1]["type"] == "fail" and sender.queue.counts().waiting == 0


def test_a_connection_is_noticed_by_its_first_answer(sender: Sender) -> None:
    sender.relays[0].next("lose_request", of="POST")
    for at in range(3):
        sender.enqueue(f"b1-{at}")
    told = [row["server_run_id"] for row in sender.rows("connection")]
    assert sorted(set(told)) == sorted(one.url for one in sender.relays) and told[0] == sender.relays[1].url
    assert {row["replid"] for row in sender.rows("connection")} == {None}


def test_nobody_there_is_nothing_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.http_queue.DEADLINE_MS", 50)
    file = HistoryFile(tmp_path / "producer-1.jsonl", proc="producer-1", role="producer")
    queue = HttpQueue("bench", ["http://127.0.0.1:1"], Recorder(file, queue="bench"), 1)
    with pytest.raises(ServerUnavailable):
        queue.enqueue("email", {}, id="b1-1", intended_ns=1)
    row = load_file(file.path).rows[-1]
    assert row["type"] == "fail" and row["sends"] == len(row["errors"]) >= 1
    queue.close()
    file.close()
