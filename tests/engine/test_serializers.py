"""Payloads that are not JSON: bytes untouched, serialisers of one's own, and workers that do not know them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncQueue, Handlers, Job, JobInfo, Malformed, NewJob, Queue, UnreadablePayload, Worker
from engine.command.main import main
from engine.http.jobs.jobs import job_view as view
from engine.http.page.job_views import payload_line, payload_text
from engine.queue.looks import payload_members
from tests.engine.helpers import backwards
from tests.engine.helpers.backwards import Backwards
from tests.engine.using import Workers, ids_of, raw_client, refused, run_texts

#: A protobuf message on the wire: field 1 is 150, field 2 a text with bytes that are no UTF-8.
PROTOBUF = bytes.fromhex("089601") + b"\x12\x03\xff\x00\xfe"


def seen_by(queue: Queue, **options: Any) -> dict[str, Any]:
    """What the handlers of "work" have seen, by job."""
    seen, handlers = dict[str, Any](), Handlers()

    @handlers("work", inline=True)
    def work(job: Job) -> None:
        seen[job.id] = (job.payload, job.payload_bytes)

    Worker(queue, handlers, sweep_ms=50, **options).run(burst=True)
    return seen


def stored(queue: Queue, url: str, job: str) -> bytes:
    with raw_client(url) as client:
        client.connection_pool.connection_kwargs["decode_responses"] = False
        client.connection_pool.disconnect()
        return client.get(queue.model.keys.job(job))  # type: ignore[return-value]


@pytest.mark.feature("BN36", "MQ26")
def test_bytes_arrive_untouched_whatever_the_queue_writes_else(queue: Queue, ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url, serializer=Backwards()) as other:
        queue.enqueue("work", PROTOBUF, id="one")
        other.enqueue_many([NewJob("work", bytearray(PROTOBUF), id="two", headers={"a": "b"}), NewJob("work", b"", id="three")])
    assert stored(queue, ironclaim_url, "one").endswith(PROTOBUF)
    assert seen_by(queue) == {"one": (PROTOBUF, PROTOBUF), "two": (PROTOBUF, PROTOBUF), "three": (b"", b"")}


@pytest.mark.feature("MQ26")
def test_a_serialiser_of_ones_own_is_named_in_the_job_and_read_by_any_worker(queue: Queue, ironclaim_url: str) -> None:
    value = {"a": [1, "ä"]}
    with Queue("q", url=ironclaim_url, serializer=Backwards()) as other:
        other.enqueue("work", value, id="one")
        other.enqueue("work", value, id="json", serializer="json")
    queue.enqueue("work", value, id="plain")
    raw = stored(queue, ironclaim_url, "one")
    assert b'{"serializer":"backwards"}' in raw and raw.endswith(Backwards().dumps(value))
    assert b"serializer" not in stored(queue, ironclaim_url, "json") + stored(queue, ironclaim_url, "plain")
    with Queue("q", url=ironclaim_url, serializers=[Backwards()]) as reader:
        seen = seen_by(reader)
        assert {job: payload for job, (payload, _) in seen.items()} == dict.fromkeys(("one", "json", "plain"), value)


@pytest.mark.feature("MQ26")
async def test_an_asyncio_producer_and_child_processes(workers: Workers, queue: Queue) -> None:
    async with AsyncQueue("q", url=workers.url, serializer=Backwards()) as other:
        await other.enqueue("tell", {"folder": str(workers.folder), "value": 1}, id="a")
    with Queue("q", url=workers.url, serializers=[Backwards()]) as reader:
        Worker(reader, backwards.handlers, sweep_ms=50, processes=1).run(burst=True)
    assert Path(workers.folder, "a").read_text() == "1"


@pytest.mark.feature("MQ26")
def test_a_job_of_a_serialiser_that_a_worker_does_not_know_fails(queue: Queue, ironclaim_url: str, client: Any) -> None:
    with Queue("q", url=ironclaim_url, serializer=Backwards()) as other:
        other.enqueue("work", 1, id="strange", attempts=1, priority=10)
    queue.enqueue("work", 2, id="next")
    assert seen_by(queue) == {"next": (2, b"2")} and ids_of(queue, "dead") == ["strange"]
    error = run_texts(client, queue.model.keys.run("strange")).get("error")
    assert error == "Malformed: serializer: 'backwards' is not allowed, it must be one that this queue knows: json, raw"


def test_what_a_queue_refuses(ironclaim_url: str) -> None:
    class Wrong(Backwards):
        name = "wrong"

        def dumps(self, value: Any) -> Any:
            if value == 0:
                raise KeyError("zero")
            return "text"

    with Queue("q", url=ironclaim_url, serializer=Wrong(), payload_bytes_max=10) as queue:
        for payload, options, message in (
            (0, {}, "payload: an int .* something that wrong can write .KeyError."),
            (1, {}, "payload: an int .* of which wrong makes bytes, not a str"),
            (b"x" * 11, {}, "payload: '11 bytes' .* at most 10 bytes"),
            ("text", {"serializer": "raw"}, "payload: a str of length 4 .* bytes, which travel raw"),
            (1, {"serializer": "unknown"}, "serializer: 'unknown' .* one that this queue knows: json, raw, wrong"),
            ("x" * 10, {"serializer": "json"}, "payload: '12 bytes'"),
        ):
            refused(Malformed, f"^{message}", queue.enqueue, "work", payload, **options)
            with pytest.raises(Malformed, match=rf"^jobs\[0\]\.{message}"):
                queue.enqueue_many([NewJob("work", payload, **options)])  # type: ignore[arg-type]
    mute = type("Mute", (), {"name": "mute", "dumps": str})()
    for serializer in (5, "json", type("Nameless", (), {"name": ""})(), mute, type("Json", (Backwards,), {"name": "json"})()):
        refused(Malformed, "^serializer: ", Queue, "q", url=ironclaim_url, serializer=serializer)
    with pytest.raises(Malformed, match="^serializer: 'backwards'"):
        Queue("q", url=ironclaim_url, serializer=Backwards(), serializers=[Backwards()])


def test_child_processes_need_serialisers_that_can_be_sent_to_them(ironclaim_url: str) -> None:
    stuck = Backwards()
    stuck.lock = threading.Lock()  # type: ignore[attr-defined]
    with Queue("q", url=ironclaim_url, serializer=stuck) as queue:
        refused(Malformed, "^serializer: .*pickle", Worker, queue, backwards.handlers, processes=1)
        Worker(queue, backwards.handlers)


class Broken:
    """Writes what it cannot read."""

    name = "broken"

    def dumps(self, value: object, /) -> bytes:
        return b"x"

    def loads(self, data: bytes, /) -> Any:
        raise SystemExit("no")


#: What is enqueued, what wrote it, what a reader with these serialisers has of it, and the members of an answer in JSON.
LOOKED_AT: tuple[tuple[str, Any, dict[str, Any], Any, dict[str, Any]], ...] = (
    ("digits", b"123", {}, b"123", {"payload_base64": "MTIz"}), ("null", b"null", {}, b"null", {"payload_base64": "bnVsbA=="}),
    ("binary", PROTOBUF, {}, PROTOBUF, {"payload_base64": "CJYBEgP/AP4="}), ("empty", b"", {}, b"", {"payload_base64": ""}),
    ("number", 123, {}, 123, {"payload": 123}), ("none", None, {}, None, {"payload": None}),
    ("own", {"a": [1, "ä"]}, {"serializer": "backwards"}, {"a": [1, "ä"]}, {"payload": {"a": [1, "ä"]}}),
    ("broken", 1, {"serializer": "broken"}, "SystemExit: no", {"payload_base64": "eA==", "payload_unreadable": "SystemExit: no"}),
)  # fmt: skip


def test_every_reader_of_a_payload_has_what_a_handler_has_or_says_why_not(queue: Queue, ironclaim_url: str, capsys: Any) -> None:
    with Queue("q", url=ironclaim_url, serializers=[Backwards(), Broken()]) as own:
        for id, payload, options, _, _ in LOOKED_AT:
            own.enqueue("work", payload, id=id, **options)
            own.schedules.put(id, "work", payload, every_ms=10**9, **options)
        infos = {job.id: job for job in own.jobs.list("waiting")}
        planned = {schedule.name: schedule for schedule in own.schedules.list()}
        for id, _, _, value, members in LOOKED_AT:
            for found in (own.jobs.get(id), infos[id], planned[id], own.schedules.get(id)):
                assert found is not None
                reason = found.payload.reason if isinstance(found.payload, UnreadablePayload) else None
                assert (found.payload if reason is None else reason) == value
                assert payload_members(found.payload, found.payload_bytes) == members
                assert type(found.payload) is type(value) or reason == value
            info = infos[id]
            assert isinstance(info, JobInfo)
            told = view(info, payloads=True)
            assert {name: part for name, part in told.items() if name.startswith("payload")} == members
            assert (payload_text(info), payload_line(info)) == {
                "digits": ("b'123'", "b'123'"),
                "own": ('{\n  "a": [\n    1,\n    "ä"\n  ]\n}', "{'a': [1, 'ä']}"),
                "number": ("123", "123"),
            }.get(id, (payload_text(info), payload_line(info)))
    # A reader that does not know them says so, and shows the others.
    for id, _, options, value, members in LOOKED_AT:
        info = queue.jobs.get(id)
        assert info is not None
        if options:
            assert isinstance(info.payload, UnreadablePayload) and info.payload.data == info.payload_bytes
            assert f"'{options['serializer']}' is not allowed" in info.payload.reason
        else:
            assert info.payload == value
        assert main(["jobs", "show", id, "--queue", "q", "--url", ironclaim_url, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown.get("payload", shown.get("payload_base64")) == (members if not options else shown).get(
            "payload", members.get("payload_base64", shown.get("payload_base64"))
        )
        assert ("payload_unreadable" in shown) == bool(options)
    queue.jobs.cancel("digits")
    ended = queue.jobs.get("digits")
    assert ended is not None and ended.payload == UnreadablePayload("it is not kept of a job that is cancelled", b"")
