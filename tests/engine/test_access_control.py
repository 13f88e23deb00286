"""Servers with access control: the user of the README suffices, one without INFO is served, and a refusal names its command."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from engine import AsyncQueue, Channel, Queue, ServerUnavailable, UnsafeServer, Worker, queues
from engine.redis.handshake import Handshake, check_version, parse_hello
from record.history import HistoryFile, load_file
from record.recorder import Recorder
from tests.engine.using import ServerClock, raises, refused, some_handlers

README = Path(__file__).resolve().parents[2] / "README.md"
NO_DANGER = "~* &* +@all -@dangerous"
#: Makes a user with these rules; the url for it.
AsUser = Callable[[str], str]


def use_everything(url: str) -> None:
    """A service in small: jobs of all kinds, a worker, administration, events, locks, schedules and limits."""
    handlers = some_handlers(raises(ValueError("no")), "fail")

    @handlers("add")
    def add(job: Any) -> int:
        job.progress(50)
        return job.payload + 1

    with Queue("q", url=url) as queue:
        queue.events.on(100)
        queue.set_limit("add", concurrency=5, rate=1_000, per_ms=1_000)
        parent = queue.enqueue("add", 1, unique="u", delay_ms=5).job
        queue.enqueue("add", 2, needs=[parent], dedup="d", dedup_ms=1_000)
        queue.enqueue_many([{"name": "fail", "payload": number, "attempts": 1} for number in range(3)])
        queue.schedules.put("often", "add", 3, every_ms=60_000)
        queue.pause("add", length_ms=1)
        queue.resume("add")
        assert Worker(queue, handlers, sweep_ms=50).run(burst=True) == "empty" and queue.results.wait(parent).get() == 2
        (dead, *_) = queue.dead.list()
        assert queue.dead.requeue(dead.id).done and queue.jobs.cancel(dead.id).done
        assert queue.dead.requeue_all() == 2 and queue.counts().waiting == 2
        lock = queue.locks.acquire("nightly", ttl_ms=60_000)
        assert lock is not None and queue.locks.release(lock) and queue.stats() and queue.metrics() and queue.workers.list() == []
        assert [found.name for found in queues(url)] == ["q"] and next(queue.events.read("0", wait_ms=1_000)).job == parent
        queue.schedules.remove("often")
        queue.obliterate()


async def test_the_user_of_the_readme_has_what_a_queue_and_a_worker_need(as_user: AsUser) -> None:
    (rules,) = re.findall(r"^ACL SETUSER shop on >secret (.*)$", README.read_text(), re.MULTILINE)
    url = as_user(rules)
    use_everything(url)
    async with AsyncQueue("q", url=url) as queue:
        assert (await queue.enqueue("add", 1)).created


def test_without_info_everything_works_and_is_told(as_user: AsUser, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    url = as_user(NO_DANGER)
    with caplog.at_level(logging.WARNING, logger="ironclaim"):
        use_everything(url)
    (line,) = [one.getMessage() for one in caplog.records if "eviction policy" in one.getMessage()]
    assert "'info' command: the server's eviction policy (it must be noeviction) and its era are unknown" in line
    file = tmp_path / "p.jsonl"
    recorder = Recorder(HistoryFile(file, proc="p", role="producer"), queue="q")
    with Queue("q", url=url, observer=recorder) as queue:
        assert queue.enqueue("add", 1).created
    recorder.close()
    (row,) = [row for row in load_file(file).rows if row["kind"] == "connection"]
    assert (row["server_role"], row["server_run_id"], row["replid"]) == ("master", "", "")


def test_a_channel_works_without_info(as_user: AsUser) -> None:
    with Channel("news", url=as_user(NO_DANGER)) as channel:
        channel.subscribe("reader")
        assert channel.publish("m1", {"n": 1}).created
        assert [message.content for message in channel.fetch("reader", wait_ms=1_000).messages] == [{"n": 1}]


def test_without_info_no_replica_is_waited_for(as_user: AsUser) -> None:
    said = '^durability="replica" needs the command INFO'
    with Queue("q", url=as_user(NO_DANGER), durability="replica") as queue:
        refused(UnsafeServer, said, queue.enqueue, "add", 1)


@pytest.mark.parametrize("command", ["evalsha", "time", "script"])
def test_a_refusal_names_its_command(as_user: AsUser, command: str) -> None:
    with Queue("q", url=as_user(f"~* &* +@all -{command}")) as queue:
        refused(ServerUnavailable, f"'{command}", queue.enqueue, "add", 1)


def test_hello_is_read_in_both_protocols_and_the_oldest_version_is_good() -> None:
    fields: list[Any] = [b"server", b"redis", b"version", b"7.0.15", b"proto", 2, b"role", b"master", b"modules", []]
    wanted = {"server": "redis", "redis_version": "7.0.15", "role": "master"}
    assert parse_hello(fields) == wanted and parse_hello(dict(zip(fields[::2], fields[1::2], strict=True))) == wanted
    check_version(wanted)
    refusal, old = redis.ResponseError("NOPERM info"), [b"version", b"6.2.14"]
    answers = [refusal, refusal, refusal, old, [1, 0]]
    refused(UnsafeServer, "^redis_version: 6.2.14 is too old", Handshake((), ServerClock(), None).conclude, answers)
