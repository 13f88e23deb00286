"""The foreign clients of the mischief runs, beside a queue of the engine: what each act does to the wire, and what the engine
makes of it."""

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from bench import models
from chaos.mischief.clients import CLIENTS, ForeignClient
from chaos.planting import planted
from chaos.scenarios.mischief import MUTANTS
from engine import Handlers, Job, Queue, Worker
from tests.engine.helpers.waiting import wait_until

FORMATS = sorted(CLIENTS)


@pytest.fixture(params=FORMATS)
def model(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def queue(model: str, ironclaim_url: str) -> Iterator[Queue]:
    with models.queue(model, "q", url=ironclaim_url) as made:
        yield made


@pytest.fixture
def client(model: str, ironclaim_url: str) -> Iterator[ForeignClient]:
    made = CLIENTS[model](ironclaim_url, "q", "foreign-client-1")
    yield made
    made.redis.close()


def put(queue: Queue, **options: Any) -> str:
    return queue.enqueue("work", {"n": "1"}, **options).job


def work(queue: Queue) -> list[str]:
    """Run what waits or is due with workers of the engine; the ids that ran."""
    ran: list[str] = []
    handlers = Handlers()

    @handlers("work")
    def run(job: Job) -> None:
        ran.append(job.id)

    Worker(queue, handlers, sweep_ms=50, lease_ms=60_000).run(burst=True)
    return ran


def test_it_takes_and_ends_a_job_as_the_original_does(queue: Queue, client: ForeignClient) -> None:
    job = put(queue)
    assert client.waiting() == [job] and client.payload(job) == '{"n":"1"}'
    assert client.take() == job and client.active() == [job] and client.waiting() == []
    assert client.finish(job) and client.active() == [] and client.take() == ""
    assert work(queue) == [] and queue.counts().active == 0


def test_what_it_has_deleted_is_nowhere(queue: Queue, client: ForeignClient) -> None:
    if not client.deletes:
        with pytest.raises(NotImplementedError):
            client.delete("j")
        return
    job = put(queue)
    assert client.take() == job
    client.delete(job)
    assert client.payload(job) == "" and work(queue) == []
    assert (queue.counts().waiting, queue.counts().active) == (0, 0)


def test_a_job_that_it_moves_runs_once(queue: Queue, client: ForeignClient) -> None:
    first, second = put(queue), put(queue)
    client.move()
    assert sorted(client.waiting()) == sorted([first, second])
    assert sorted(work(queue)) == sorted([first, second])


def test_a_job_that_it_promotes_twice_runs_once(queue: Queue, client: ForeignClient) -> None:
    job = put(queue, delay_ms=1)
    wait_until(client.due, "it is due", 120)
    copy = client.copy(job)
    client.promote(job, copy)
    if client.doubles:
        client.promote(job, copy)
        assert client.waiting().count(job) == len(client.waiting())
    assert client.due() == [] and work(queue) == [job]


def test_a_promotion_that_ends_after_the_job_does_not_run_it_again(queue: Queue, client: ForeignClient) -> None:
    job = put(queue)
    copy = client.copy(job)
    assert work(queue) == [job]
    client.promote(job, copy)
    assert work(queue) == []


def test_it_knows_what_is_delayed_and_not_due(queue: Queue, client: ForeignClient) -> None:
    rests, waits = put(queue, delay_ms=60_000), put(queue)
    assert client.rests(rests) and not client.rests(waits)


@pytest.mark.parametrize("model", ["bananas"], indirect=True)
def test_a_written_back_copy_keeps_the_bytes_of_the_payload(queue: Queue, client: ForeignClient) -> None:
    job = put(queue)
    before = json.loads(client.copy(job))
    client.promote(job, client.copy(job))
    assert json.loads(client.copy(job)) == before | {"status": "pending"}
    assert zlib.crc32(client.payload(job).encode()) == zlib.crc32(b'{"n":"1"}')


def test_each_mutant_changes_one_file() -> None:
    for mutant in MUTANTS.values():
        (text,) = planted(mutant.edits).values()
        assert all(edit.new in text for edit in mutant.edits)
