"""Every row that the observers write, whole: each call with each of its answers, what handlers and sinks tell, and the table that
documents the columns."""

import itertools
import runpy
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.observer import Outcome, ServerIdentity
from engine.ops import channels as ops
from engine.ops import claims
from record import channels, history
from record.recorder import Recorder, Sink, Ticket
from tests.engine.helpers.schema import check_rows, raw_rows
from tests.engine.ops import Call, Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease, Operation, Options, Tick, Ticked
from tests.golden import same

A, B = Lease("a", 5, "n:1"), Lease("b", 6, "n:2")
RICH = Options(
    priority=7, delay_ms=50, attempts=4, backoff_ms=2_000, jitter=0.25, key="k", unique="u", dedup="d", needs=("p",),
    on_parent_failure="ignore", target="w", expires_ms=9, lifo=True, timeout_ms=8,
)  # fmt: skip
PLAIN = Options()
LATER = Options(run_at_ms=70_000, backoff="custom")
CAPPED = Options(run_at_ms=1, backoff_max_ms=5)
JOB = claims.LeasedJob(A, 900, "work", "work", "work", b"{}", RICH, 100, 0, 1, 2, 3)
CLAIM = claims.Claim("inc", 3, 5, 9_000, 1_000, "w", 10, ("work",))
FAILED = (claims.Failure(A, "ValueError: the number 7", 20, charge=False), claims.Failure(B, "no type", 30))
MESSAGES = (ops.NewMessage("a", b"1"), ops.NewMessage("b", b'"two"'))
NONCE = "0" * 16


def new(job: str, options: Options = PLAIN) -> Enqueue:
    return Enqueue(job, "work", b"{}", b"n" * 16, options, not_after_ms=50_000)


def jobs() -> Iterator[tuple[Operation, Any]]:
    """Calls of a queue, each with an answer."""
    holders = (("created", ""), ("duplicate", "other"), ("duplicate", "a"), ("refused", ""), ("orphan", ""), ("moved", ""))
    for result, holder in holders:
        yield new("a", RICH), Enqueued(7, "a", result, holder=holder)  # type: ignore[arg-type]
    three = EnqueueMany((new("", LATER), new("b", CAPPED), new("c")))
    for results in (("created", "created", "created"), ("refused", "moved", "moved"), ("refused", "created", "duplicate")):
        yield three, EnqueuedMany(7, tuple(Enqueued(7, job, result) for job, result in zip("123", results, strict=True)))  # type: ignore[arg-type]
    tick = Tick("inc", 1, "beat", "1", 1_000, (1_000, 2_000), 3_000, 0, "skip")
    for result, made in (("ticked", ("cron:beat:1000",)), ("repeated", ("7", "8")), ("moved", ()), ("stale", ())):
        yield tick, Ticked(7, result, made, 1)  # type: ignore[arg-type]
    nothing = (("empty", (), ()), ("void", (), ()), ("stale", (), ()))
    for result, held, corrupt in (("leased", (JOB,), ("x",)), ("repeated", (JOB,), ()), *nothing):
        yield CLAIM, claims.Claimed(7, result, 0, held, corrupt)  # type: ignore[arg-type]
    ended = claims.Ended(7, (("ok", "finished"), ("stale", "")))
    yield claims.Finish((A, B), values=(claims.Value(1, b"[]", 1, 1),)), ended
    both = claims.FinishedAndClaimed(7, ended, claims.Claimed(7, "leased", 0, (JOB,)))
    yield claims.Finish((A, B), CLAIM, (claims.Value(0, b"1", 1, 1),)), both
    yield claims.Retry(FAILED), claims.Ended(7, (("ok", "retried"), ("void", "")))
    yield claims.Bury(FAILED), claims.Ended(7, (("ok", "buried"), ("repeated", "buried")))
    yield claims.Drop((A,), ("skipped",)), claims.Ended(7, (("ok", "skipped"),))
    yield claims.Release((A,)), claims.Ended(7, (("ok", "released"),))
    yield claims.Extend((A, B), 1, 9_000, 1_000), claims.Extended(7, (("ok", 99), ("stale", 0)))
    yield claims.Mark(A), claims.Marked(7, "ok")
    swept = claims.Swept(7, 0, ((A, 1), (B, 2)), ("b", "c"), ("d",), 4)
    yield claims.Sweep("inc", 1, 10, 1_000, 1_000), swept
    yield claims.ReapLost("inc", 1, 10, 1_000, (), ""), swept
    yield tick, Ticked(7, "ticked", ("7",), 1)
    yield claims.Sweep("inc", 1, 10, 1_000, 1_000), object()


def messages() -> Iterator[tuple[Operation, Any]]:
    """Calls of a channel, each with an answer."""
    publish = ops.Publish(MESSAGES, 60, not_after_ms=1)
    for results in (("created", "duplicate"), ("refused", "created"), ("refused", "refused")):
        told = tuple(ops.PublishedMessage(result, None if result == "refused" else 3) for result in results)  # type: ignore[arg-type]
        yield publish, ops.PublishReply(7, 3, 1, results[0] == "created", told)
    bodies = (b'{"id":"a","content":1}', b'{"content": "\xe2\x82\xac", "id": "b"}', b'{"id":"c"}', b'{"id":"d","content":')
    bodies += (b'{"id":"q\\"","content":"\xe2\x82\xac"}',)
    items = tuple(enumerate(bodies, CLOCK_MIN))
    common = {"clock": CLOCK_MIN + 9, "cursor": CLOCK_MAX - 1}
    empty = ({"upto": CLOCK_MIN, "searching": True, "turned": True}, {"upto": CLOCK_MAX - 1}, {"upto": CLOCK_MAX - 2}, {})
    for more in ({"items": items, "more": True}, *empty):
        yield ops.Fetch("s", 64, 60, waited_ms=3), ops.FetchReply(7, "ok", **common, **more)  # type: ignore[arg-type]
    yield ops.Fetch("s", 64, 60), ops.FetchReply(7, "subscription-not-found")
    for result in ("OK", "stale", "subscription-not-found"):
        yield ops.Acknowledge("s", 5, 60), ops.AcknowledgeReply(7, result, 9, 6, 2)  # type: ignore[arg-type]
    for result in ("created", "exists", "refused"):
        yield ops.Subscribe("s", NONCE, 60, not_after_ms=1), ops.SubscribeReply(7, result, 9, None, 0, False)  # type: ignore[arg-type]
    for result in ("deleted", "refused"):
        yield ops.Unsubscribe("s", NONCE, not_after_ms=1), ops.UnsubscribeReply(7, result)  # type: ignore[arg-type]
    yield ops.AskOld("s", ("a",)), None


def told(recorder: Recorder, calls: Iterator[tuple[Operation, Any]]) -> None:
    """Record each call, once answered, once after a send that was not, and without an answer."""
    for operation, reply in calls:
        call: Call[Any] = Call(None, (), (), lambda raw: raw, operation)
        for number, (definite, sends) in enumerate(((True, 1), (False, 2))):
            each = (300, None, 100) if isinstance(operation, EnqueueMany) and number else 5 if number else None
            ticket = recorder.invoked(call, 10, each)
            outcome = Outcome(reply, "", definite, True, sends, ("lost",) * number, 10, 11 + number, 15 - number)
            recorder.completed(call, ticket, outcome)
    for applied in (None, False):
        ticket = recorder.invoked(call, 10, None)
        recorder.completed(call, ticket, Outcome(None, "it is gone", True, applied, 1, ("gone", 'in "words"'), 10, 11, 12))


@pytest.fixture
def file(tmp_path: Path) -> history.HistoryFile:
    """A file whose clock goes on by 1,000 each time that it is asked."""
    return history.HistoryFile(tmp_path / "p.jsonl", proc="p", role="worker", clock_ns=itertools.count(1_000, 1_000).__next__)


def rows_are(name: str, file: history.HistoryFile) -> None:
    """Fail where the rows are not documented, or not those that are kept. The first one is of this machine."""
    check_rows(raw_rows(file.path))
    first, *rows = file.path.read_text().splitlines(keepends=True)
    assert '"kind":"open"' in first
    same(f"reports/{name}", "".join(rows))


def test_the_rows_of_a_queue(file: history.HistoryFile) -> None:
    recorder, other = Recorder(file, queue="q"), Recorder(file, queue="q").of("other")
    recorder.connected(ServerIdentity("run", "era", "master"))
    recorder.configured({"b": 1, "a": "x"})
    told(recorder, jobs())
    told(other, iter([(new("z"), Enqueued(7, "z", "created"))]))
    private = Recorder(file, queue="q", private=True)
    retried = claims.Ended(7, (("ok", "retried"), ("ok", "retried")))
    told(private, iter([(claims.Retry(FAILED), retried), (claims.Mark(A), claims.Marked(7, "stale"))]))
    for one, error in ((recorder, None), (recorder, "KeyError: 'x'"), (private, "KeyError: 'x'"), (private, "said so")):
        one.handler_ended(JOB, one.handler_started(JOB, 20), 20, 30, error)
    recorder.close()
    rows_are("rows_of_a_queue.jsonl", file)


def test_the_rows_of_a_channel(file: history.HistoryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_NUMBERS", itertools.count())
    recorder = channels.ChannelRecorder(file, channel="orders")
    told(recorder, messages())
    publish = ops.Publish(MESSAGES, 60, not_after_ms=1)
    told(recorder, iter([(publish, None), (ops.Acknowledge("s", 5, 60), None)]))
    told(channels.ChannelRecorder(file, channel="news"), iter([(publish, None)]))
    recorder.misused("s", "tampered", clock=CLOCK_MIN, result="malformed", first_send_ns=1, done_ns=2)
    recorder.misused("s", "truncated", clock=None, result="malformed", first_send_ns=3, done_ns=4)
    recorder.close()
    rows_are("rows_of_a_channel.jsonl", file)


def test_the_rows_of_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 9)
    sink = Sink(tmp_path / "w.sink.jsonl", proc="w")
    job: Any = SimpleNamespace(id="a", fence=5, nonce="n:1", payload_bytes=b"{}")
    for result in (None, {"ä": [1]}, 0):
        sink.write(job, result)
    sink.clock()
    sink.close()
    first, *rows, last = raw_rows(tmp_path / "w.sink.jsonl")
    token = {"job": "a", "fence": 5, "nonce": "n:1", "crc": zlib.crc32(b"{}")}
    crcs = [{}, {"result_crc": zlib.crc32('{"ä":[1]}'.encode())}, {"result_crc": zlib.crc32(b"0")}]
    told = [{"kind": "effect", "items": [token | crc]} for crc in crcs] + [{"kind": "clock", "wall_ns": 9}]
    assert [{name: row[name] for name in row if name not in ("v", "seq", "proc", "t_ns")} for row in rows] == told
    assert (first["role"], first["version"], first["proc"], last["kind"]) == ("sink", engine.__version__, "w", "close")


def test_a_call_that_left_no_ticket_leaves_no_row_nor_measure(file: history.HistoryFile) -> None:
    """A question, and a call whose invocation could not be written: its ticket is none, or another recorder's."""
    question: Call[Any] = Call(None, (), (), lambda raw: raw, ops.AskOld("s", ("a",)))
    outcome = Outcome(Enqueued(7, "a", "created"), "", True, True, 1, (), 10, 11, 12)
    of_queue, of_channel = Recorder(file, queue="q"), channels.ChannelRecorder(file, channel="orders")
    for recorder, other in ((of_queue, channels._Ticket("row", (), None)), (of_channel, Ticket([], None))):
        assert recorder.invoked(question, 10, None) is None
        for ticket in (None, "a ticket", other):
            recorder.completed(question, ticket, outcome)
    assert [row["kind"] for row in raw_rows(file.path)] == ["open"]


def test_the_columns_of_a_history_are_those_that_are_documented() -> None:
    # They are declared again here, where a recorder of lines sees it.
    tables = [runpy.run_path(str(history.__file__))[name] for name in ("ROW_FIELDS", "ITEM_FIELDS")]
    lines = [f"{one.name} {one.type} {one.kinds} {one.since} {one.meaning}\n" for table in tables for one in table]
    same("reports/columns.txt", "".join(lines))
