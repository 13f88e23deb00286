"""Rule 8: with durability "replica" a call is answered when a replica has what it wrote, and else its outcome is unknown."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from engine import AsyncQueue, ConnectOptions, OutcomeUnknown, PartlyEnqueued, Queue, Worker
from engine.testing import EmbeddedServer
from tests.engine.using import DEFAULT_DEADLINE_S, raw_client, refused, some_handlers, wait_until

#: For calls that nobody answers.
FAST = ConnectOptions(timeout_ms=120_000, deadline_ms=700)
#: For calls that are answered: no busy machine makes one of them go out twice.
PATIENT: dict[str, Any] = {"replica_wait_ms": 60_000, "connect": ConnectOptions(timeout_ms=120_000, deadline_ms=15_000)}


class Pair:
    """A server and its replica, whose stream can be cut: the replica stands still."""

    def __init__(self, primary: EmbeddedServer, replica: EmbeddedServer) -> None:
        self.primary, self.replica = primary, replica

    def cut(self) -> None:
        self.replica.process.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        self.replica.process.send_signal(signal.SIGCONT)

    def in_step(self) -> bool:
        with raw_client(self.primary.url) as client:
            return client.execute_command("WAIT", 1, 100) == 1


@pytest.fixture(scope="module")
def both_servers() -> Iterator[Pair]:
    quick = ("--repl-diskless-sync-delay", "0", "--repl-diskless-sync", "yes")
    with EmbeddedServer(flags=quick) as primary, EmbeddedServer(flags=("--replicaof", f"127.0.0.1 {primary.port}")) as replica:
        with raw_client(replica.url) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica has all")
        yield Pair(primary, replica)


@pytest.fixture
def pair(both_servers: Pair) -> Iterator[Pair]:
    with raw_client(both_servers.primary.url) as client:
        client.flushall()
    wait_until(both_servers.in_step, "the replica is in step")
    yield both_servers
    both_servers.mend()


def replicated(pair: Pair, **more: Any) -> Queue:
    return Queue("q", url=pair.primary.url, durability="replica", **{"replica_wait_ms": 100, "connect": FAST, **more})


def test_rule_08_an_answered_call_is_at_the_replica(pair: Pair) -> None:
    with replicated(pair, **PATIENT) as queue, raw_client(pair.replica.url) as there:
        for number in range(20):
            assert queue.enqueue("work", {}, id=f"j{number}").result == "created"
            assert there.exists(queue.model.keys.job(f"j{number}")) == 1
        results = queue.enqueue_many([{"name": "work", "payload": 1, "id": f"m{number}"} for number in range(3000)])
        assert {result.result for result in results} == {"created"}
        assert there.zcard(queue.model.keys.lane("work")) == 3020


@pytest.mark.slow
def test_rule_08_with_the_stream_cut_the_outcome_is_unknown_and_a_repeat_cannot_lie(pair: Pair) -> None:
    """A repeat has nothing left to write: without a write of its own its WAIT, on a new connection, would be content."""
    pair.cut()
    with replicated(pair) as queue, replicated(pair, **PATIENT) as patient:
        for _ in range(2):
            started_s = time.monotonic()
            refused(OutcomeUnknown, "no replica within 100 ms", queue.enqueue, "work", {}, id="j")
            assert time.monotonic() - started_s < DEFAULT_DEADLINE_S
            queue.close()
        assert patient.counts().waiting == 1, "it reads without waiting"
        jobs = [{"name": "work", "payload": 1, "id": f"m{number}"} for number in range(2)]
        assert not isinstance(refused(OutcomeUnknown, "", queue.enqueue_many, jobs), PartlyEnqueued)
        pair.mend()
        wait_until(pair.in_step, "the replica is in step")
        assert {result.created for result in patient.enqueue_many(jobs)} == {False}, "they are there, by the call before"


def test_rule_08_a_call_waits_for_a_replica_that_comes_back_within_its_deadline(pair: Pair) -> None:
    pair.cut()
    with replicated(pair, connect=ConnectOptions(deadline_ms=15_000)) as queue, raw_client(pair.primary.url) as client:

        def sent_again() -> bool:
            return client.info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"] > 1

        def mend() -> None:
            try:
                wait_until(sent_again, "it is sent again")
            finally:
                pair.mend()

        queue.counts()
        client.config_resetstat()
        with ThreadPoolExecutor(1) as back:
            back.submit(mend)
            # The replica comes back while the call is under way again, or just before: the answer is that of the last attempt.
            assert queue.enqueue("work", {}, id="j").result in ("created", "repeated")
        assert client.exists(queue.model.keys.witness) == 1
    with raw_client(pair.replica.url) as there:
        assert there.exists("ic:{q}:job:j") == 1


async def test_rule_08_for_asyncio_too(pair: Pair) -> None:
    async with (
        AsyncQueue("q", url=pair.primary.url, durability="replica", **PATIENT) as patient,
        AsyncQueue("q", url=pair.primary.url, durability="replica", replica_wait_ms=100, connect=FAST) as queue,
    ):
        assert (await patient.enqueue("work", {}, id="a")).result == "created"
        pair.cut()
        with pytest.raises(OutcomeUnknown, match="no replica"):
            await queue.enqueue("work", {}, id="b")
        assert (await patient.counts()).waiting == 2


def test_rule_08_a_worker_finishes_what_a_failover_does_not_undo(pair: Pair) -> None:
    """Its claims and finishes wait too. After the last answer the replica becomes the server: every job is finished there."""
    ran: list[str] = []
    with replicated(pair, connect=ConnectOptions()) as queue:
        for number in range(10):
            queue.enqueue("work", {}, id=f"j{number}")
        Worker(queue, some_handlers(lambda job: ran.append(job.id)), sweep_ms=50).run(burst=True)
        assert sorted(ran) == [f"j{number}" for number in range(10)]
        with redis.Redis(port=pair.replica.port) as there:
            assert there.zcard(queue.model.keys.done) == 10 and there.zcard(queue.model.keys.active) == 0
