"""The rows that a channel's calls leave behind, by operation and reply."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.observer import Outcome
from engine.ops import channels as ops
from engine.ops.base import Call
from record.channels import ChannelRecorder
from record.history import HistoryFile
from tests.engine.helpers.schema import check_rows, raw_rows

A, B = ops.NewMessage("a", b'{"n":1}'), ops.NewMessage("b", b'"\xe2\x82\xac"')
PUBLISH = ops.Publish((A, B), 60, not_after_ms=1_000)


def tell(path: Path, operation: Any, reply: Any, **more: Any) -> list[dict[str, Any]]:
    """The rows of one call; `more` says how it ended."""
    recorder = ChannelRecorder(HistoryFile(path, proc="p", role="publisher"), channel="orders")
    call = Call(None, (), (), lambda raw: raw, operation)
    told = {"error": "", "definite": True, "applied": reply is not None, "sends": 1, "errors": (), **more}
    ticket = recorder.invoked(call, 10, 5)
    recorder.completed(call, ticket, Outcome(reply, first_send_ns=10, last_send_ns=11, done_ns=12, **told))
    recorder.close()
    rows = raw_rows(path)
    check_rows(rows)
    return [row for row in rows if row["kind"] == "operation"]


def published(*results: tuple[str, int | None]) -> ops.PublishReply:
    return ops.PublishReply(7, CLOCK_MIN, 2, True, tuple(ops.PublishedMessage(result, at) for result, at in results))  # type: ignore[arg-type]


def test_a_publish_tells_its_messages_before_it_is_sent_and_their_clocks_after(tmp_path: Path) -> None:
    invoke, done = tell(tmp_path / "p.jsonl", PUBLISH, published(("duplicate", CLOCK_MAX), ("created", CLOCK_MIN)))
    sums = [zlib.crc32(A.content), zlib.crc32(B.content)]
    assert invoke["items"] == [{"message": "a", "crc": sums[0]}, {"message": "b", "crc": sums[1]}]
    assert (invoke["type"], invoke["first_send_ns"], invoke["intended_ns"], "done_ns" in invoke) == ("invoke", 10, 5, False)
    assert (done["op"], done["f"], done["type"], done["channel"]) == (invoke["op"], "publish", "ok", "orders")
    assert (done["clock"], done["era"], done["turned"], done["ttl_s"], done["srv_us"]) == (CLOCK_MIN, 2, 1, 60, 7)
    items = [(item["message"], item["clock"], item["result"], item["crc"]) for item in done["items"]]
    assert items == [("a", CLOCK_MAX, "duplicate", sums[0]), ("b", CLOCK_MIN, "created", sums[1])]


@pytest.mark.parametrize(("definite", "told"), [(True, ("fail", "refused")), (False, ("info", "unknown"))])
def test_a_refusal_after_an_unanswered_send_says_nothing(definite: bool, told: tuple[str, str], tmp_path: Path) -> None:
    reply = published(("refused", None), ("refused", None))
    _, done = tell(tmp_path / "p.jsonl", PUBLISH, reply, definite=definite, sends=2)
    assert (done["type"], done["items"][0]["result"], "clock" in done["items"][0]) == (*told, False)


@pytest.mark.parametrize(("applied", "kind"), [(None, "info"), (False, "fail")])
def test_a_call_without_an_answer_repeats_what_was_sent(applied: bool | None, kind: str, tmp_path: Path) -> None:
    invoke, done = tell(tmp_path / "p.jsonl", PUBLISH, None, applied=applied, error="it is gone")
    assert (done["type"], done["error"], done["items"]) == (kind, "it is gone", invoke["items"])


def fetched(path: Path, **more: Any) -> dict[str, Any]:
    reply = {"clock": CLOCK_MIN + 9, "cursor": CLOCK_MAX - 1, "era": 0, **more}
    return tell(path, ops.Fetch("s", 64, 60, waited_ms=30), ops.FetchReply(7, "ok", **reply))[1]


def test_a_fetch_across_the_wrap_tells_messages_in_order_and_what_was_lost_between(tmp_path: Path) -> None:
    items = ((CLOCK_MAX, b'{"id":"a","content":{"n":1}}'), (CLOCK_MIN + 1, b'{"id":"b","content":"\xe2\x82\xac"}'))
    row = fetched(tmp_path / "p.jsonl", items=items, upto=CLOCK_MIN + 1, more=True)
    assert [(item["message"], item["clock"]) for item in row["items"]] == [("a", CLOCK_MAX), ("b", CLOCK_MIN + 1)]
    assert [item["crc"] for item in row["items"]] == [zlib.crc32(A.content), zlib.crc32(B.content)]
    assert (row["lost"], row["more"], row["waited_ms"], row["most"]) == (1, 1, 30, 64)
    assert (row["clock"], row["cursor"], row["upto"], row["era"]) == (CLOCK_MIN + 9, CLOCK_MAX - 1, CLOCK_MIN + 1, 0)


@pytest.mark.parametrize(("upto", "lost"), [(CLOCK_MIN + 3, 5), (CLOCK_MAX - 1, 0), (None, 0)])
def test_what_a_fetch_without_messages_has_lost(upto: int | None, lost: int, tmp_path: Path) -> None:
    row = fetched(tmp_path / "p.jsonl", upto=upto)
    assert (row["lost"], row["items"], "more" in row) == (lost, [], False)


def test_bodies_that_others_have_written_in_their_own_way_or_that_nobody_can_read(tmp_path: Path) -> None:
    bodies = (b'{"content": {"n": 1}, "id": "a"}', b"not json", b'{"id":"c"}', b'{"id":"q\\"","content":"\xe2\x82\xac"}')
    row = fetched(tmp_path / "p.jsonl", items=tuple((at, body) for at, body in enumerate(bodies, CLOCK_MIN)), upto=CLOCK_MIN + 3)
    assert [item.get("result") for item in row["items"]] == [None, "corrupt", "corrupt", None]
    assert (row["items"][0]["message"], row["items"][0]["crc"]) == ("a", zlib.crc32(A.content))


def test_a_subscription_that_is_not_found_did_not_happen(tmp_path: Path) -> None:
    _, done = tell(tmp_path / "p.jsonl", ops.Fetch("s", 64, 60), ops.FetchReply(7, "subscription-not-found"))
    assert (done["type"], done["result"], done["items"]) == ("fail", "subscription-not-found", [])


@pytest.mark.parametrize(("definite", "result"), [(True, "stale"), (False, "unknown")])
def test_an_acknowledgement_tells_the_clocks_of_its_receipt_and_cursor(definite: bool, result: str, tmp_path: Path) -> None:
    reply = ops.AcknowledgeReply(7, "stale", clock=9, cursor=6, era=1)
    invoke, done = tell(tmp_path / "p.jsonl", ops.Acknowledge("s", 5, 60), reply, definite=definite)
    assert (invoke["clock"], invoke["subscriber"], done["clock"], done["cursor"], done["era"]) == (5, "s", 5, 6, 1)
    assert (done["type"], done["result"]) == ("ok", result)


def test_subscribing_and_its_end(tmp_path: Path) -> None:
    nonce = "0" * 16
    subscribe, exists = ops.Subscribe("s", nonce, 60, not_after_ms=1), ops.SubscribeReply(7, "exists", 9, 6, 0, False)
    _, made = tell(tmp_path / "a.jsonl", subscribe, exists)
    assert (made["f"], made["type"], made["result"], made["clock"], made["cursor"]) == ("subscribe", "ok", "exists", 9, 6)
    _, gone = tell(tmp_path / "b.jsonl", ops.Unsubscribe("s", nonce, not_after_ms=1), ops.UnsubscribeReply(7, "missing"))
    assert (gone["f"], gone["type"], gone["result"], gone["subscriber"]) == ("unsubscribe", "ok", "missing", "s")


def test_a_question_leaves_no_row(tmp_path: Path) -> None:
    assert tell(tmp_path / "p.jsonl", ops.AskOld("s", ("a",)), None) == []


def test_a_receipt_handed_in_to_be_refused_has_a_row_of_its_own(tmp_path: Path) -> None:
    recorder = ChannelRecorder(HistoryFile(tmp_path / "p.jsonl", proc="p", role="subscriber"), channel="orders")
    recorder.misused("s", "tampered", clock=CLOCK_MIN, result="malformed", first_send_ns=1, done_ns=2)
    recorder.misused("s", "truncated", clock=None, result="malformed", first_send_ns=3, done_ns=4)
    recorder.close()
    rows = raw_rows(tmp_path / "p.jsonl")
    check_rows(rows)
    told = [(row["name"], row.get("clock"), row["result"]) for row in rows[1:3]]
    assert told == [("tampered", CLOCK_MIN, "malformed"), ("truncated", None, "malformed")]


def test_numbers_of_operations_are_told_apart_in_a_file_of_several_channels(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "p.jsonl", proc="p", role="publisher")
    for name in ("orders", "news"):
        ChannelRecorder(file, channel=name).invoked(Call(None, (), (), lambda raw: raw, PUBLISH), 1, None)
    file.close()
    rows = [row for row in raw_rows(tmp_path / "p.jsonl") if row["kind"] == "operation"]
    assert len({row["op"] for row in rows}) == len(rows) == 2
