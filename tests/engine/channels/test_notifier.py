"""The notifiers of channels on a real server: nothing that is published goes unheard, whatever becomes of the connection."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from engine import Malformed
from engine.redis import dialer as notifying
from engine.redis.dialer import AsyncNotifier, Notifier
from engine.redis.endpoint import ConnectOptions, Endpoint
from tests.engine.using import DEADLINE_S, Relay, refused, wait_until

TOPIC = "dsps.c.{chx}"


class Listener:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._lock = threading.Lock()

    def notify(self) -> None:
        with self._lock:
            self.calls += 1

    def heard(self, more_than: int = 0) -> None:
        wait_until(lambda: self.calls > more_than, "a call")


def listeners(client: redis.Redis) -> int:
    """Connections that have subscribed."""
    return dict(client.pubsub_numsub(TOPIC))[TOPIC]


@pytest.fixture(autouse=True)
def nobody_else(client: redis.Redis) -> None:
    """What the test before has closed may still be on its way out, and a subscription that nobody needs stays for a while."""
    wait_until(lambda: not listeners(client), "the end of the listening of the test before")


@pytest.fixture
def made(nobody_else: None, ironclaim_url: str) -> Iterator[Notifier]:
    with closing(Notifier(Endpoint(ironclaim_url), TOPIC)) as notifier:
        yield notifier


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that nobody needs any more is closed soon."""
    monkeypatch.setattr(notifying, "LINGER_S", 0.05)
    monkeypatch.setattr(notifying, "PING_AFTER_S", 0.05)


def listening(notifier: Notifier) -> Listener:
    """One that hears all that is published from now on."""
    listener = Listener()
    notifier.listen(listener.notify)
    wait_until(lambda: notifier.live, "the confirmation")
    listener.heard()
    return listener


def patient(relay: Relay, **more: Any) -> Endpoint:
    """The server behind a relay, that is not waited for long."""
    return Endpoint(relay.url, options=ConnectOptions(timeout_ms=300), **more)


def kill_listeners(client: redis.Redis) -> None:
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


@pytest.mark.feature("DS12", model="dsps")
def test_it_calls_when_it_is_subscribed_and_at_each_publication(made: Notifier, client: redis.Redis) -> None:
    one, other = listening(made), Listener()
    made.listen(other.notify)
    for count in range(5):
        before = one.calls, other.calls
        assert client.publish(TOPIC, "new message") == 1, f"one connection for all, {count}"
        one.heard(before[0])
        other.heard(before[1])
    made.unlisten(other.notify)
    before, silent = one.calls, other.calls
    client.publish(TOPIC, "new message")
    one.heard(before)
    assert other.calls == silent


def test_nobody_is_called_before_the_server_has_confirmed(made: Notifier, client: redis.Redis) -> None:
    """A call says: from now on all is heard. One that came earlier would let a message in between wait for the next one."""
    live: list[bool] = []
    made.listen(lambda: live.append(made.live))
    wait_until(lambda: live, "a call")
    assert live == [True] and listeners(client) == 1


def test_a_cut_connection_calls_at_its_end_and_when_it_hears_again(made: Notifier, client: redis.Redis) -> None:
    said: list[bool] = []
    made.listen(lambda: said.append(made.live))
    # It is live a moment before it says so.
    wait_until(lambda: said == [True], "the confirmation")
    del said[:]
    kill_listeners(client)
    wait_until(lambda: len(said) >= 2 and made.live, "the next confirmation")
    assert said == [False, True] and listeners(client) == 1
    client.publish(TOPIC, "new message")
    wait_until(lambda: len(said) == 3, "a call")


@pytest.mark.slow
def test_a_connection_that_was_silently_cut_is_found(client: redis.Redis, relay: Relay) -> None:
    with closing(Notifier(patient(relay), TOPIC)) as made:
        listener = listening(made)
        relay.hush()
        before = listener.calls
        client.publish(TOPIC, "new message")
        # It ends, and hears again: one call each.
        listener.heard(before + 1)
        wait_until(lambda: made.live, "the next confirmation")


@pytest.mark.slow
def test_it_stays_when_nothing_is_published(made: Notifier, client: redis.Redis) -> None:
    """The answers to its pings are no messages, and no ends."""
    listener = listening(made)
    wait_until(lambda: client.info("commandstats").get("cmdstat_ping", {}).get("calls", 0) >= 2, "two pings")
    assert listener.calls == 1 and made.live


@pytest.mark.usefixtures("hasty")
def test_it_ends_some_time_after_the_last_one_and_begins_again(made: Notifier, client: redis.Redis) -> None:
    for _ in range(3):
        made.unlisten(listening(made).notify)
        wait_until(lambda: not listeners(client), "the end")
        assert not made.live


def test_close_ends_it_at_once(made: Notifier, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until it would ask whether anybody is there."""
    monkeypatch.setattr(notifying, "PING_AFTER_S", 60.0)
    listening(made)
    made.close()
    assert not made.live
    wait_until(lambda: not listeners(client), "the end")
    assert not [thread for thread in threading.enumerate() if thread.name.endswith(TOPIC) and not _ends(thread)]


def _ends(thread: threading.Thread) -> bool:
    thread.join(DEADLINE_S)
    return not thread.is_alive()


def test_a_server_that_refuses_it_is_asked_until_it_does_not(made: Notifier, client: redis.Redis, ironclaim_url: str) -> None:
    client.execute_command("ACL", "SETUSER", "poller", "on", ">pw", "~*", "+@all", "resetchannels")
    refused, listener = Notifier(Endpoint(ironclaim_url.replace("://", "://poller:pw@")), TOPIC), Listener()
    try:
        refused.listen(listener.notify)
        wait_until(lambda: client.info("commandstats").get("cmdstat_subscribe", {}).get("rejected_calls", 0) >= 2, "tries")
        assert not refused.live and listener.calls == 0
        client.execute_command("ACL", "SETUSER", "poller", "allchannels")
        listener.heard()
        assert refused.live
    finally:
        refused.close()
        client.execute_command("ACL", "DELUSER", "poller")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_its_own_and_leaves_its_parents_alone(made: Notifier, client: redis.Redis) -> None:
    listener, child = listening(made), os.fork()
    if child == 0:
        # Only this thread is here: whatever the parent's was doing is of no use.
        try:
            own, silent = Listener(), not made.live
            made.listen(own.notify)
            own.heard()
            os._exit(0 if silent and made.live and listener.calls <= 1 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    before = listener.calls
    client.publish(TOPIC, "new message")
    listener.heard(before)
    assert made.live


# -- asyncio


async def until(condition: Any, what: str) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, f"not in time: {what}"
        await asyncio.sleep(0.005)


def test_asyncio_rings_as_threads_do(client: redis.Redis, ironclaim_url: str) -> None:
    async def story() -> None:
        made, said = AsyncNotifier(Endpoint(ironclaim_url, asynchronous=True), TOPIC), list[bool]()
        made.listen(listener := lambda: said.append(made.live))
        await until(lambda: said == [True], "the confirmation")
        client.publish(TOPIC, "new message")
        await until(lambda: said == [True, True], "a call")
        kill_listeners(client)
        await until(lambda: said == [True, True, False, True], "the next confirmation")
        client.publish(TOPIC, "new message")
        await until(lambda: len(said) == 5, "a call")
        made.unlisten(listener)
        client.publish(TOPIC, "new message")
        (thread,) = [one for one in threading.enumerate() if one.name == f"ironclaim-notifier-{TOPIC}"]
        await made.close()
        assert not thread.is_alive() and not made.live and len(said) == 5 and len(asyncio.all_tasks()) == 1

    asyncio.run(story())
    wait_until(lambda: not listeners(client), "the end")


@pytest.mark.slow
async def test_asyncio_finds_a_connection_that_was_silently_cut(relay: Relay) -> None:
    made, said = AsyncNotifier(patient(relay, asynchronous=True), TOPIC), list[bool]()
    made.listen(lambda: said.append(made.live))
    await until(lambda: made.live, "the confirmation")
    relay.hush()
    before = len(said)
    await until(lambda: False in said[before:] and said[-1], "the end, and the next confirmation")
    await made.close()


@pytest.mark.usefixtures("hasty")
async def test_asyncio_ends_it_some_time_after_the_last_one(client: redis.Redis, ironclaim_url: str) -> None:
    made, listener = AsyncNotifier(Endpoint(ironclaim_url, asynchronous=True), TOPIC), Listener()
    for _ in range(2):
        made.listen(listener.notify)
        await until(lambda: made.live, "the confirmation")
        made.unlisten(listener.notify)
        await until(lambda: not made.live and not listeners(client), "the end")


def test_asyncio_serves_one_loop_after_the_other_and_not_two_at_once(client: redis.Redis, ironclaim_url: str) -> None:
    made = AsyncNotifier(Endpoint(ironclaim_url, asynchronous=True), TOPIC)

    async def hears(then: Any = None) -> None:
        made.listen((listener := Listener()).notify)
        await until(lambda: made.live and listener.calls, "the confirmation")
        if then is not None:
            await asyncio.to_thread(then)
            assert made.live
        await made.close()

    def another_loop() -> None:
        refused(Malformed, "event loop", asyncio.run, hears())

    asyncio.run(hears())
    asyncio.run(hears(another_loop))


@pytest.mark.usefixtures("hasty")
def test_a_loop_that_has_ended_with_a_listener_keeps_no_connection(client: redis.Redis, ironclaim_url: str) -> None:
    made = AsyncNotifier(Endpoint(ironclaim_url, asynchronous=True), TOPIC)

    async def listens() -> None:
        made.listen(Listener().notify)

    async def hears() -> None:
        made.listen(Listener().notify)
        await until(lambda: made.live, "the confirmation")

    asyncio.run(listens())
    asyncio.run(hears())
    wait_until(lambda: listeners(client) == 1, "the subscription")
    client.publish(TOPIC, "new message")
    wait_until(lambda: not listeners(client), "the end")


async def test_what_an_earlier_listening_was_told_says_nothing_now(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, first = AsyncNotifier(Endpoint(ironclaim_url, asynchronous=True), TOPIC), Listener()
    made.listen(first.notify)
    await until(lambda: made.live, "the confirmation")
    stale = made._ring  # pyright: ignore[reportPrivateUsage]
    assert stale is not None
    stale()
    # Before the loop has turned, the connection is lost, and another one listens.
    made.unlisten(first.notify)
    made._notifier.close()  # pyright: ignore[reportPrivateUsage]
    # The server does not answer for now.
    monkeypatch.setattr(notifying.Subscription, "start", lambda self: None)
    made.listen(Listener().notify)
    assert not made.live
    await asyncio.sleep(0)
    assert not made.live, "it would miss what is published now"
    await made.close()
