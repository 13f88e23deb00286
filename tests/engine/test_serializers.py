"""Payloads that are not JSON: bytes untouched, serialisers of one's own, and workers that do not know them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncQueue, Handlers, Job, Malformed, NewJob, Queue, Worker
from tests.engine.desk import run_texts
from tests.engine.helpers import backwards
from tests.engine.helpers.backwards import Backwards
from tests.engine.helpers.processes import Workers
from tests.engine.helpers.producing import ids_of, raw_client

#: A protobuf message on the wire: field 1 is 150, field 2 a text with bytes that are no UTF-8.
PROTOBUF = bytes.fromhex("089601") + b"\x12\x03\xff\x00\xfe"


def seen_by(queue: Queue, **options: Any) -> dict[str, Any]:
    """What the handlers of "work" have seen, by job."""
    seen: dict[str, Any] = {}
    handlers = Handlers()

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
def test_a_serialiser_of_ones_own_is_named_in_the_job_and_read_by_workers_with_another_default(
    queue: Queue, ironclaim_url: str
) -> None:
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
def test_an_asyncio_producer_and_child_processes(workers: Workers, queue: Queue) -> None:
    async def send() -> None:
        async with AsyncQueue("q", url=workers.url, serializer=Backwards()) as other:
            await other.enqueue("tell", {"folder": str(workers.folder), "value": 1}, id="a")

    asyncio.run(send())
    with Queue("q", url=workers.url, serializers=[Backwards()]) as reader:
        Worker(reader, backwards.handlers, sweep_ms=50, processes=1).run(burst=True)
    assert Path(workers.folder, "a").read_text() == "1"


@pytest.mark.feature("MQ26")
def test_a_job_of_a_serialiser_that_a_worker_does_not_know_fails_and_the_worker_goes_on(queue: Queue, ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url, serializer=Backwards()) as other:
        other.enqueue("work", 1, id="strange", attempts=1, priority=10)
    queue.enqueue("work", 2, id="next")
    assert seen_by(queue) == {"next": (2, b"2")} and ids_of(queue, "dead") == ["strange"]
    with raw_client(ironclaim_url) as client:
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
            (0, {}, "payload: 0 .* something that wrong can write .*zero"),
            (1, {}, "payload: 1 .* of which wrong makes bytes, not a str"),
            (b"x" * 11, {}, "payload: '11 bytes' .* at most 10 bytes"),
            ("text", {"serializer": "raw"}, "payload: 'text' .* bytes, which travel raw"),
            (1, {"serializer": "unknown"}, "serializer: 'unknown' .* one that this queue knows: json, raw, wrong"),
            ("x" * 10, {"serializer": "json"}, "payload: '12 bytes'"),
        ):
            with pytest.raises(Malformed, match=f"^{message}"):
                queue.enqueue("work", payload, **options)  # type: ignore[arg-type]
            with pytest.raises(Malformed, match=rf"^jobs\[0\]\.{message}"):
                queue.enqueue_many([NewJob("work", payload, **options)])  # type: ignore[arg-type]
    for serializer in (5, "json", type("Nameless", (), {"name": ""})(), type("Json", (Backwards,), {"name": "json"})()):
        with pytest.raises(Malformed, match="^serializer: "):
            Queue("q", url=ironclaim_url, serializer=serializer)  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="^serializer: 'backwards'"):
        Queue("q", url=ironclaim_url, serializer=Backwards(), serializers=[Backwards()])


def test_child_processes_need_serialisers_that_can_be_sent_to_them(ironclaim_url: str) -> None:
    stuck = Backwards()
    stuck.lock = threading.Lock()  # type: ignore[attr-defined]
    with Queue("q", url=ironclaim_url, serializer=stuck) as queue:
        with pytest.raises(Malformed, match="^serializer: .*pickle"):
            Worker(queue, backwards.handlers, processes=1)
        Worker(queue, backwards.handlers)
