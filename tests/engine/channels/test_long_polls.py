"""Fetches that wait, on real servers: woken by each publish, through cut, silent and refused connections, in threads, greenlets,
tasks and forked children."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncChannel, Channel, ConnectOptions, Fetched
from engine.channel.steps import WAIT_MS_MAX
from tests.engine.using import DEADLINE_S, Relay, wait_until

pytestmark = pytest.mark.usefixtures("late_looks")

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "dsps.c.{chx}"
HASTY = ConnectOptions(timeout_ms=400, idle_check_ms=0)


@pytest.fixture
def channel(ironclaim_url: str) -> Iterator[Channel]:
    with Channel("chx", url=ironclaim_url) as made:
        made.subscribe("sa")
        yield made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def hears(client: Any, count: int = 1) -> None:
    """Wait until so many connections have subscribed."""
    wait_until(lambda: dict(client.pubsub_numsub(TOPIC))[TOPIC] == count, "a subscription")


def looks(client: Any) -> int:
    """How often anybody has looked for messages, or done something else."""
    return client.info("commandstats")["cmdstat_evalsha"]["calls"]


def resting(client: Any, calls: int = 0) -> None:
    """Wait until the notifier is subscribed, there were so many calls, and none has been made any more for a moment."""
    hears(client)
    seen = -1

    def still() -> bool:
        nonlocal seen
        before, seen = seen, looks(client)
        return before == seen and seen >= calls

    wait_until(lambda: still() and time.sleep(0.02) is None and still(), "rest")


def waits(threads: ThreadPoolExecutor, channel: Channel, wait_ms: int = WAIT_MS_MAX) -> Future[Fetched]:
    return threads.submit(channel.fetch, "sa", wait_ms=wait_ms)


def woken(waiting: Future[Fetched]) -> Fetched:
    """What came long before the wait was over. The look from time to time is switched off, so a notifier has rung."""
    return waiting.result(DEADLINE_S)


def contents(fetched: Fetched) -> list[Any]:
    return [message.content for message in fetched.messages]


def takes(channel: Channel, waiting: Future[Fetched], content: object) -> None:
    """It is woken by this message, and acknowledges it."""
    fetched = woken(waiting)
    assert contents(fetched) == [content] and fetched.receipt is not None
    channel.acknowledge("sa", fetched.receipt)


@pytest.mark.feature("DS12", model="dsps")
def test_a_publish_of_anybody_ends_a_wait(channel: Channel, client: Any, threads: ThreadPoolExecutor, ironclaim_url: str) -> None:
    with Channel("chx", url=ironclaim_url) as other:
        for at in range(20):
            waiting = waits(threads, channel)
            resting(client)
            other.publish(f"m{at}", at)
            takes(channel, waiting, at)


def test_it_rests_while_nothing_is_published(channel: Channel, client: Any, threads: ThreadPoolExecutor) -> None:
    """One look before the notifier is subscribed, one when it does, and no more."""
    before = looks(client)
    assert waits(threads, channel, 600).result() == Fetched() and looks(client) <= before + 3


@pytest.mark.parametrize("wait_ms", [1, 40, 300])
def test_it_ends_when_the_time_is_over_and_not_before(channel: Channel, wait_ms: int) -> None:
    start_s = time.monotonic()
    assert channel.fetch("sa", wait_ms=wait_ms) == Fetched()
    assert wait_ms / 1000 - 0.01 <= time.monotonic() - start_s


def test_publishes_that_race_with_the_begin_of_the_wait_are_not_missed(ironclaim_url: str, threads: ThreadPoolExecutor) -> None:
    """Before the notifier was asked for, while it subscribes, and while the first look is under way."""
    for at in range(60):
        with Channel("chx", url=ironclaim_url) as made, Channel("chx", url=ironclaim_url) as other:
            made.subscribe("sa")
            other.subscribe("sb")
            waiting = waits(threads, made)
            time.sleep((at % 20) / 5_000)
            other.publish(f"m{at}", at)
            takes(made, waiting, at)


def test_a_cut_bell_misses_nothing(channel: Channel, client: Any, threads: ThreadPoolExecutor) -> None:
    """Nor one that is cut with all other connections, as when the server starts anew."""
    for at in range(10):
        waiting = waits(threads, channel)
        resting(client)
        for kind in ("normal", "pubsub")[at % 2 :]:
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        channel.publish(f"m{at}", at)
        takes(channel, waiting, at)


@pytest.mark.slow
def test_silently_cut_connections_lose_nothing(relay: Relay, client: Any, channel: Channel, threads: ThreadPoolExecutor) -> None:
    with Channel("chx", url=relay.url, connect=HASTY) as made:
        waiting = waits(threads, made)
        resting(client)
        relay.hush()
        channel.publish("m1", 1)
        assert contents(woken(waiting)) == [1]


def test_a_server_that_was_away_misses_nothing(relay: Relay, threads: ThreadPoolExecutor, client: Any, channel: Channel) -> None:
    with Channel("chx", url=relay.url) as made:
        waiting = waits(threads, made)
        resting(client)
        relay.down()
        channel.publish("m1", 1)
        relay.up()
        assert contents(woken(waiting)) == [1]


def test_who_may_not_subscribe_polls(ironclaim_url: str, client: Any, threads: ThreadPoolExecutor, channel: Channel) -> None:
    client.execute_command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "-subscribe", "allchannels")
    try:
        with Channel("chx", url=ironclaim_url.replace("://", "://deaf:pw@")) as deaf:
            waiting = waits(threads, deaf)
            wait_until(lambda: client.info("commandstats").get("cmdstat_subscribe", {}).get("rejected_calls", 0), "a refusal")
            channel.publish("m1", 1)
            assert contents(woken(waiting)) == [1]
    finally:
        client.execute_command("ACL", "DELUSER", "deaf")


def test_close_wakes_all_who_wait_and_the_channel_works_again(channel: Channel, client: Any, threads: ThreadPoolExecutor) -> None:
    for _ in range(2):
        before = looks(client)
        all = [waits(threads, channel) for _ in range(10)]
        # One that begins after the close would wait to its end.
        resting(client, before + len(all))
        channel.close()
        assert [woken(one) for one in all] == [Fetched()] * 10
        hears(client, 0)
        notifying = [one for one in threading.enumerate() if one.name.startswith("ironclaim-notifier")]
        wait_until(lambda: not any(one.is_alive() for one in notifying), "no thread outlives it")  # noqa: B023
    assert channel.publish("m1", 1).created and contents(channel.fetch("sa", wait_ms=1_000)) == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_on_its_own(channel: Channel, client: Any, threads: ThreadPoolExecutor) -> None:
    waiting = waits(threads, channel)
    resting(client)
    child = os.fork()
    if child == 0:
        try:
            channel.subscribe("child")
            os._exit(0 if contents(channel.fetch("child", wait_ms=WAIT_MS_MAX)) == [1] else 1)
        except BaseException:
            os._exit(2)
    hears(client, 2)
    wait_until(lambda: client.exists("c.{chx}.r.child"), "the child's cursor")
    channel.publish("m1", 1)
    assert os.waitpid(child, 0)[1] == 0 and contents(woken(waiting)) == [1]


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys, gevent, redis
import engine.channel.steps
from engine import Channel, ConnectOptions
# Whom no bell wakes looks again after ten minutes only, when nobody waits for it any more.
engine.channel.steps._LOOK_MS = engine.channel.steps.WAIT_MS_MAX = 600_000
url, patient = sys.argv[1], ConnectOptions(timeout_ms=300_000, connect_timeout_ms=300_000)
channel, other = (Channel("chx", url=url, connect=patient) for _ in range(2))
names = [f"s{at}" for at in range(200)]
for name in names:
    channel.subscribe(name)
def poll(name):
    found = []
    while len(found) < 3:
        fetched = channel.fetch(name, wait_ms=600_000)
        # On a busy machine two of them may come at once.
        found += [message.content for message in fetched.messages]
        channel.acknowledge(name, fetched.receipt)
    return found
all = [gevent.spawn(poll, name) for name in names]
server = redis.Redis.from_url(url)
for at in range(3):
    # While those of the last round are still under way there may be no bell.
    while not (bells := server.pubsub_numsub("dsps.c.{chx}")[0][1]):
        gevent.sleep(0.005)
    other.publish(f"m{at}", at)
gevent.joinall(all, timeout=400, raise_error=True)
print([one.value for one in all] == [[0, 1, 2]] * 200, bells)
"""


@pytest.mark.slow
def test_hundreds_of_greenlets_wait_in_one_process_on_one_bell(ironclaim_url: str, tmp_path: Path) -> None:
    pytest.importorskip("gevent")
    program = tmp_path / "greenlets.py"
    program.write_text(GREENLETS)
    command, env = [sys.executable, str(program), ironclaim_url], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "1"]), done.stderr


# -- asyncio


async def until_hears(client: Any, count: int = 1) -> None:
    await asyncio.to_thread(hears, client, count)


def poll(channel: AsyncChannel) -> asyncio.Task[Fetched]:
    return asyncio.create_task(channel.fetch("sa", wait_ms=WAIT_MS_MAX))


async def cancelled(waiting: asyncio.Task[Fetched]) -> bool:
    """Whether a poll that is cancelled ends with that at once."""
    waiting.cancel()
    await asyncio.wait([waiting], timeout=DEADLINE_S)
    return waiting.cancelled()


async def test_asyncio_tasks_wait_on_one_bell_and_more_than_run_calls_at_once(client: Any, ironclaim_url: str) -> None:
    async with AsyncChannel("chx", url=ironclaim_url) as made:
        names = [f"s{at}" for at in range(100)]
        for name in names:
            await made.subscribe(name)

        async def polls(name: str) -> list[Any]:
            found: list[Any] = []
            while len(found) < 5:
                fetched = await made.fetch(name, wait_ms=WAIT_MS_MAX, max_messages=2)
                found += contents(fetched)
                assert fetched.receipt is not None
                await made.acknowledge(name, fetched.receipt)
            return found

        tasks = [asyncio.create_task(polls(name)) for name in names]
        await until_hears(client)
        for at in range(5):
            await made.publish(f"m{at}", at)
        assert await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S) == [[0, 1, 2, 3, 4]] * 100
    await until_hears(client, 0)


async def test_asyncio_a_cancelled_wait_ends_at_once_and_hurts_nobody(client: Any, ironclaim_url: str) -> None:
    async with AsyncChannel("chx", url=ironclaim_url) as made:
        await made.subscribe("sa")
        waiting, other = poll(made), poll(made)
        await asyncio.to_thread(resting, client)
        assert await cancelled(waiting)
        await made.publish("m1", 1)
        assert contents(await asyncio.wait_for(other, DEADLINE_S)) == [1]


async def test_asyncio_a_wait_that_is_cancelled_at_any_moment_ends_at_once(ironclaim_url: str) -> None:
    """While it connects, greets, sends, reads, rests: no layer below may keep the cancellation to itself."""
    for at in range(100):
        async with AsyncChannel("chx", url=ironclaim_url) as made:
            await made.subscribe("sa")
            waiting = poll(made)
            for _ in range(at % 50):
                await asyncio.sleep(0)
            assert await cancelled(waiting), f"after {at % 50} turns of the loop"


async def test_asyncio_close_wakes_those_who_wait(client: Any, ironclaim_url: str) -> None:
    made = AsyncChannel("chx", url=ironclaim_url)
    await made.subscribe("sa")
    waiting = poll(made)
    await until_hears(client)
    await made.close()
    assert await asyncio.wait_for(waiting, DEADLINE_S) == Fetched()


@pytest.mark.slow
async def test_asyncio_cut_bells_and_silent_ones_miss_nothing(relay: Relay, client: Any, ironclaim_url: str) -> None:
    async with AsyncChannel("chx", url=relay.url, connect=HASTY) as made, AsyncChannel("chx", url=ironclaim_url) as other:
        await made.subscribe("sa")
        for at, harm in enumerate((lambda: client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"), relay.hush)):
            waiting = poll(made)
            await asyncio.to_thread(resting, client)
            await asyncio.to_thread(harm)
            await other.publish(f"m{at}", at)
            fetched = await asyncio.wait_for(waiting, DEADLINE_S)
            assert contents(fetched) == [at] and fetched.receipt is not None
            await made.acknowledge("sa", fetched.receipt)
