"""A server that went back is noticed by producers and workers, and one that lost nothing is not reported. On real servers: a
replica promoted behind a fixed address, a restart without the data, with older data, with all of it, and FLUSHALL."""

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine import AsyncQueue, ConnectOptions, DataLoss, Queue, UnsupportedFeature, Worker, models
from engine.testing import EmbeddedServer
from tests.engine.helpers.processes import kill
from tests.engine.ops import Beat, NoteEra
from tests.engine.using import DEADLINE_S, Desk, Relay, at_work, raises, raw_client, refused, seen, some_handlers, wait_until

QUICK = ConnectOptions(idle_check_ms=0)


class Losses(list[DataLoss]):
    """What a queue has told, from any thread."""

    def only(self) -> DataLoss:
        """The one event; fails unless there is exactly one, also after a further round of calls."""
        wait_until(lambda: len(self) > 0, "a loss was told")
        assert len(self) == 1, self
        return self[0]


@contextmanager
def opened(url: str, **more: Any) -> Iterator[tuple[Queue, Losses]]:
    """A queue, and what it tells."""
    with Queue("q", url=url, connect=QUICK, **more) as queue:
        queue.on_data_loss((losses := Losses()).append)
        yield queue, losses


def enqueue(queue: Queue, count: int) -> None:
    for _ in range(count):
        assert queue.enqueue("work", {}).created


def silent(losses: Losses) -> bool:
    """Whether nothing was told: callbacks run in threads, and none of those is left."""
    wait_until(lambda: not any(thread.name == "ironclaim-loss" for thread in threading.enumerate()), "all callbacks have run")
    return not losses


class Primary:
    """A primary and its replica, behind one fixed address."""

    def __init__(self, primary: EmbeddedServer, replica: EmbeddedServer, front: Relay) -> None:
        self.primary, self.replica, self.front = primary, replica, front

    def cut(self) -> None:
        """From now on the replica gets nothing: it no longer asks, and is promoted as it is."""
        with raw_client(self.replica.url) as there:
            there.execute_command("REPLICAOF", "NO", "ONE")

    def in_step(self) -> None:
        with raw_client(self.primary.url) as client:
            wait_until(lambda: client.execute_command("WAIT", 1, 100) == 1, "the replica has all")


@pytest.fixture
def pair() -> Iterator[Primary]:
    quick = ("--repl-diskless-sync-delay", "0", "--repl-diskless-sync", "yes")
    with EmbeddedServer(flags=quick) as primary, EmbeddedServer(flags=("--replicaof", f"127.0.0.1 {primary.port}")) as replica:
        with raw_client(replica.url) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica has all")
        with Relay(primary.port) as front:
            yield Primary(primary, replica, front)


def test_a_failover_that_lost_acknowledged_jobs_is_told_once_also_when_others_have_enqueued_since(pair: Primary) -> None:
    with opened(pair.front.url) as (first, losses), opened(pair.front.url) as (second, late):
        enqueue(first, 5)
        enqueue(second, 1)
        pair.in_step()
        pair.cut()
        enqueue(first, 4)
        pair.front.lead_to(pair.replica.port)
        # Others come first, and the sequence is soon beyond what was acknowledged.
        with Queue("q", url=pair.replica.url) as other:
            enqueue(other, 20)
        enqueue(first, 2)
        loss = losses.only()
        assert (loss.queue, loss.acknowledged, loss.found, loss.missing) == ("q", 10, 6, "sequence")
        with raw_client(pair.primary.url) as old, raw_client(pair.replica.url) as new:
            assert (loss.before.run_id, loss.after.run_id) == (old.info("server")["run_id"], new.info("server")["run_id"])
            assert loss.after.replid == new.info("replication")["master_replid"] != loss.before.replid
            assert new.llen("ic:{q}:era") == 2
        # The second one has lost nothing: what it was acknowledged came along.
        enqueue(second, 1)
        first.close()
        enqueue(first, 1)
        assert silent(late) and losses.only() == loss and first.counts().data_losses == 1
        assert 'ironclaim_data_losses_total{queue="q"} 1' in first.metrics().splitlines()


def test_a_failover_that_lost_nothing_is_not_reported(pair: Primary, caplog: pytest.LogCaptureFixture) -> None:
    with opened(pair.front.url) as (queue, losses):
        enqueue(queue, 5)
        pair.in_step()
        pair.cut()
        pair.front.lead_to(pair.replica.port)
        enqueue(queue, 5)
        assert silent(losses) and queue.counts().data_losses == 0
        with raw_client(pair.replica.url) as new:
            assert new.get("ic:{q}:seq") == "10" and new.llen("ic:{q}:era") == 2
    assert "went back" not in caplog.text


def test_a_worker_tells_of_claims_that_are_gone(pair: Primary) -> None:
    """Its queue object has enqueued nothing: what it was acknowledged is claims and finishes."""
    ran = list[str]()
    handlers = some_handlers(lambda job: ran.append(job.id))
    with Queue("q", url=pair.primary.url) as producer:
        enqueue(producer, 3)
        pair.in_step()
        with opened(pair.front.url) as (queue, losses), at_work(Worker(queue, handlers, sweep_ms=50)):
            wait_until(lambda: len(ran) == 3, "all have run")
            pair.in_step()
            pair.cut()
            enqueue(producer, 3)
            wait_until(lambda: len(ran) == 6, "those have run that will be lost")
            pair.front.lead_to(pair.replica.port)
            assert losses.only().missing == "claim"


@pytest.mark.parametrize("how", ["connection", "bulk", "handshake"])
def test_an_emptied_server_is_noticed(ironclaim_url: str, how: str, caplog: pytest.LogCaptureFixture, client: Any) -> None:
    with opened(ironclaim_url) as (queue, losses):
        enqueue(queue, 3)
        client.flushall()
        if how == "handshake":
            queue.close()
            queue.counts()
        elif how == "bulk":
            queue.enqueue_many([{"name": "work", "payload": 1}] * 2_500)
        else:
            enqueue(queue, 1)
        loss = losses.only()
        assert (loss.acknowledged, loss.found, loss.before) == (3, 0, loss.after)
        enqueue(queue, 1)
        queue.close()
        enqueue(queue, 1)
        assert losses.only() == loss and queue.counts().data_losses == 1
    warnings = [record for record in caplog.records if record.name == "ironclaim" and record.levelno == logging.WARNING]
    assert ["the server went back" in record.message for record in warnings] == [True]


def test_a_worker_hears_by_its_beats_that_the_server_was_emptied(ironclaim_url: str, client: Any) -> None:
    with opened(ironclaim_url) as (queue, losses), at_work(Worker(queue, some_handlers(), beat_ms=100)):
        wait_until(lambda: client.llen("ic:{q}:era") == 1, "the worker has noted the server")
        wait_until(lambda: client.zcard("ic:{q}:workers") == 1, "it beats")
        client.flushall()
        assert losses.only().missing in ("marker", "claim")


def test_a_beat_that_left_before_a_loss_was_told_does_not_tell_it_again(ironclaim_url: str, raw: Any) -> None:
    """Of several threads, each with a connection, one reads its reply last."""
    with opened(ironclaim_url) as (queue, losses):
        enqueue(queue, 1)
        beats: list[Any] = [queue.model.call(Beat("a" * 16, at, 30_000, 2**43, 1_000, 1_000, "{}")) for at in range(2)]
        era: Any = queue.era
        mark = era.mark_of(beats[0])
        raw.flushall()
        seen = raw.execute_command(*beats[0].words())
        queue.close()
        queue.counts()
        assert losses.only().missing != "marker"
        era.answered(beats[0], seen, mark)
        queue.driver.run(beats[1])
        assert not silent(losses) and len(losses) == 1
        # Nor do two handshakes at once tell the next one twice.
        raw.flushall()
        for answer in [raw.execute_command(*era.greeted(era._server, [b""])[0]) for _ in range(2)]:
            era.concluded(answer)
        wait_until(lambda: len(losses) > 1, "the next one is told")
        assert not silent(losses) and len(losses) == 2


def test_each_shard_of_a_queue_has_sequences_of_its_own(ironclaim_url: str, client: Any) -> None:
    with opened(ironclaim_url, shards=4) as (queue, losses):
        for number in range(60):
            assert queue.enqueue("work", {}, id=f"j{number}").created
        assert silent(losses), "other shards begin to count anew, and nothing is lost by that"
        emptied = list(client.scan_iter("ic:{q#*}:seq"))
        assert len(emptied) == 3
        client.set(emptied[0], 0)
        for number in range(60, 120):
            queue.enqueue("work", {}, id=f"j{number}")
        loss = losses.only()
        assert (loss.missing, loss.queue) == ("sequence", emptied[0].partition("{")[2].partition("}")[0])
        assert loss.acknowledged > loss.found == 0


def test_what_people_do_to_a_queue_and_to_connections_is_no_loss(ironclaim_url: str, client: Any) -> None:
    with opened(ironclaim_url) as (queue, losses):
        enqueue(queue, 3)
        for _ in range(3):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            enqueue(queue, 1)
        assert queue.drain() == 6
        enqueue(queue, 1)
        assert queue.clean("waiting") == 1 and queue.obliterate()
        enqueue(queue, 1)
        queue.close()
        enqueue(queue, 1)
        with Queue("q", url=ironclaim_url) as other:
            enqueue(other, 1)
        enqueue(queue, 1)
        assert silent(losses) and queue.counts().data_losses == 0 and client.get("ic:{q}:seq") == "11"


@pytest.mark.parametrize(("servers", "missing"), [(15, "marker"), (16, "")])
def test_a_server_that_was_trimmed_from_the_list_is_no_loss(desk: Desk, servers: int, missing: str) -> None:
    """The list has room for 16 servers. In one that is full, the one that a process knows may have been trimmed."""
    for number in range(servers):
        desk.redis.lpush(desk.keys.era, f"{number:040x} 0 {desk.now_ms - 1_000 + number}")
    operation = NoteEra(f"{servers - 1:040x}", "f" * 40, f"{'f' * 40} 0 {desk.now_ms - 90_000}", 0)
    # Two processes find the same loss.
    assert (desk.did(operation).run(operation).missing, desk.redis.llen(desk.keys.era)) == (missing, servers)
    assert (desk.redis.hget(desk.keys.stats, "data_losses") or b"0") == (b"1" if missing else b"0")


def test_an_era_before_the_one_that_a_process_knew_is_no_concern_of_its(desk: Desk) -> None:
    """A restored snapshot does not have the entry that the process knew, so the times tell."""
    desk.redis.set(desk.keys.seq, 10)
    desk.redis.rpush(desk.keys.era, f"{'a' * 40} 10 {desk.now_ms}", f"{'b' * 40} 5 {desk.now_ms - 1_000}")
    noted = desk.run(NoteEra("a" * 40, "f" * 40, f"{'f' * 40} 0 {desk.now_ms - 500}", 9))
    assert (noted.found, noted.missing) == (10, "marker")


def test_looking_at_a_queue_writes_nothing(queue: Queue, client: Any) -> None:
    queue.counts()
    queue.close()
    queue.metrics()
    assert client.dbsize() == 0


@pytest.mark.parametrize("kept", ["nothing", "snapshot", "everything"])
def test_a_restart_tells_of_what_it_has_lost(tmp_path: Any, closed_port: int, kept: str) -> None:
    """kill -9, and the same port again: empty, with the RDB file of before the last jobs, with the append-only file of all."""
    port = closed_port
    always = ("--appendonly", "yes", "--appendfsync", "always") if kept == "everything" else ()
    first = EmbeddedServer(port=port, folder=tmp_path, flags=always)
    first.__enter__()
    with opened(f"redis://127.0.0.1:{port}/0") as (queue, losses):
        enqueue(queue, 4)
        if kept == "snapshot":
            with raw_client(first.url) as client:
                client.save()
            shutil.copy(tmp_path / "dump.rdb", tmp_path / "kept.rdb")
        enqueue(queue, 3)
        kill(first.process)
        first.stop()
        if kept == "snapshot":
            shutil.copy(tmp_path / "kept.rdb", tmp_path / "dump.rdb")
        with EmbeddedServer(port=port, folder=tmp_path, flags=always) as second:
            enqueue(queue, 2)
            if kept == "everything":
                assert silent(losses)
            else:
                loss = losses.only()
                assert (loss.acknowledged, loss.found) == (7, 4 if kept == "snapshot" else 0)
                assert loss.before.run_id != loss.after.run_id
            with raw_client(second.url) as client:
                assert client.get("ic:{q}:seq") == {"nothing": "2", "snapshot": "6", "everything": "9"}[kept]


def test_each_of_several_losses_in_a_row_is_told(closed_port: int) -> None:
    """The handshake with the next server that lacks something tells it anew, whoever met the one before."""
    with opened(f"redis://127.0.0.1:{closed_port}/0") as (queue, losses):
        for count in (2, 3, 4):
            with EmbeddedServer(port=closed_port) as server:
                enqueue(queue, count)
                with raw_client(server.url) as client:
                    assert client.llen("ic:{q}:era") == 1 and client.get("ic:{q}:seq") == str(count)
        wait_until(lambda: len(losses) > 1, "both losses were told")
        found = sorted((loss.acknowledged, loss.found, loss.missing) for loss in losses)
        assert found == [(2, 0, "sequence"), (3, 0, "sequence")]


async def test_callbacks_break_no_call_and_coroutines_run_in_their_loop(ironclaim_url: str, caplog: Any, client: Any) -> None:
    told: list[tuple[DataLoss, Any]] = []
    async with asyncio.timeout(DEADLINE_S), AsyncQueue("q", url=ironclaim_url) as queue:
        queue.on_data_loss(raises(RuntimeError("no")))

        @queue.on_data_loss
        async def good(loss: DataLoss) -> None:
            await asyncio.sleep(0)
            told.append((loss, asyncio.get_running_loop()))

        await queue.enqueue("work", {})
        client.flushall()
        assert (await queue.enqueue("work", {})).created
        await seen(lambda: told)
        assert told[0][0].acknowledged == 1 and told[0][1] is asyncio.get_running_loop()
    assert "a callback of its data loss failed" in caplog.text


def test_a_callback_that_raises_breaks_no_call_of_a_blocking_queue(ironclaim_url: str, client: Any) -> None:
    with opened(ironclaim_url) as (queue, losses):
        queue.on_data_loss(lambda loss: 1 / 0)
        enqueue(queue, 1)
        client.flushall()
        enqueue(queue, 1)
        assert losses.only().queue == "q"


def test_old_keyspaces_say_that_they_cannot_tell(ironclaim_url: str) -> None:
    for model in (models.Bull(), models.Bridge(), models.Mosquito()):
        with Queue("q", model, url=ironclaim_url) as queue:
            refused(UnsupportedFeature, "no sequence", queue.on_data_loss, print)


async def test_a_new_connection_of_an_asyncio_queue_asks_what_is_missing(ironclaim_url: str, client: Any) -> None:
    told = Losses()
    async with asyncio.timeout(DEADLINE_S), AsyncQueue("q", url=ironclaim_url) as queue:
        queue.on_data_loss(told.append)
        await asyncio.gather(*(queue.enqueue("work", {}) for _ in range(20)))
        client.flushall()
        await queue.close()
        # Before the first write: others may have enqueued more than was lost.
        await queue.counts()
        await seen(lambda: told)
        await queue.enqueue_many([{"name": "work", "payload": 1}] * 30)
        await queue.close()
        await queue.enqueue("work", {})
    (loss,) = told
    assert (loss.acknowledged, loss.found, loss.missing) == (20, 0, "sequence")
