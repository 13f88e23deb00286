"""Events as server-sent events: each comes once and in order to all who listen, whatever happens to their connections."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine import AsyncQueue, Queue
from engine.http.jobs import events
from engine.http.settings import HttpSettings
from engine.models.lanes_keys import LanesKeys
from engine.resharding import Resharding
from tests.engine.http.serving import coming, rest_of, served
from tests.engine.using import STREAM_S, Relay, refused, wait_until

EVENTS = "/api/queues/q/events"


@contextlib.contextmanager
def listening(base: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of the stream, from when the server has begun it."""
    with httpx.stream("GET", f"{base}{EVENTS}", headers=headers, timeout=STREAM_S) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry: ")
        yield (json.loads(line.removeprefix("data: ")) for line in coming(lines, 'data: {"'))


@contextlib.contextmanager
def begun(url: str) -> Iterator[Iterator[str]]:
    """The lines of the stream of an application, behind the first."""
    with served(HttpSettings(url=url)) as base, httpx.stream("GET", f"{base}{EVENTS}", timeout=STREAM_S) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        yield lines


@pytest.mark.feature("BN34")
def test_all_who_listen_get_each_event_in_order_by_one_reader(ironclaim_url: str, queue: Queue, raw: Any) -> None:
    with served(HttpSettings(url=ironclaim_url, allow_changes=True)) as base, contextlib.ExitStack() as stack:
        assert httpx.put(f"{base}{EVENTS}", json={"keep": 1_000}, timeout=STREAM_S).status_code == 204
        streams = [stack.enter_context(listening(base)) for _ in range(20)]
        queue.enqueue_many([{"name": "a", "payload": at, "id": f"j{at}"} for at in range(10)])
        for stream in streams:
            found = [next(stream) for _ in range(10)]
            told = [(event["kind"], event["job"], event["name"]) for event in found]
            assert told == [("created", f"j{at}", "a") for at in range(10)]
        wait_until(lambda: [one["cmd"] for one in raw.client_list()].count("xread") == 1, "one client reads for all")
        assert httpx.delete(f"{base}{EVENTS}", timeout=STREAM_S).status_code == 204


def test_who_comes_back_gets_what_it_has_missed_and_nothing_twice(ironclaim_url: str, queue: Queue, raw: Any) -> None:
    """Also where all has happened in one millisecond, as it has here: beside an entry of tomorrow a server counts on in its."""
    queue.events.on()
    tomorrow = f"{(int(time.time()) + 86_400) * 1_000}-1"
    raw.xadd(LanesKeys("q").events, {"kind": "created", "job": "j0", "name": "a"}, id=tomorrow)
    with served(HttpSettings(url=ironclaim_url)) as base:
        with listening(base) as stream:
            queue.enqueue("a", 1, id="j1")
            seen = next(stream)
        queue.enqueue_many([{"name": "a", "payload": 1, "id": f"k{at}"} for at in range(250)])
        with listening(base, **{"Last-Event-ID": seen["id"]}) as stream:
            found = [next(stream)["job"] for _ in range(250)]
            queue.enqueue("a", 1, id="j2")
            last = next(stream)
            assert [*found, last["job"]] == [*(f"k{at}" for at in range(250)), "j2"]
        assert last["id"] == tomorrow.replace("-1", "-253")
        for wrong in ("x", "1-2-3", "$", "9" * 50):
            answer = httpx.get(f"{base}{EVENTS}", headers={"Last-Event-ID": wrong}, timeout=STREAM_S)
            assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")


def test_who_takes_nothing_is_told_that_it_is_behind(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEHIND_MAX", 5)
    queue.events.on()
    with begun(ironclaim_url) as lines:
        queue.enqueue_many([{"name": "a", "payload": at} for at in range(100)])
        assert "event: behind" in rest_of(lines), "the stream ends with it"


def test_a_silent_stream_has_comments(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SILENCE_S", 0.05)
    queue.events.on()
    with begun(ironclaim_url) as lines:
        assert list(itertools.islice(coming(lines, ":"), 2)) == [": ", ": "]
        queue.enqueue("a", 1, id="j1")
        assert '"job": "j1"' in next(coming(lines, "data: ")), "an event comes in between"


def test_a_listener_takes_what_is_after_the_last_event_that_was_seen() -> None:
    listener = events.Listener()
    for place in ((5, 9), (7, 1), (7, 2), (7, 10), (8, 0)):
        listener.tell(place, f"{place[0]}-{place[1]} ".encode())
    assert listener.take((7, 2)) == b"7-10 8-0 " and not listener.waiting
    behind = [listener.tell((9, at), b"") or listener.behind for at in range(1_001)]
    assert behind == [False] * 1_000 + [True]


async def test_who_reads_is_forgotten_with_the_last_one_that_listens(ironclaim_url: str) -> None:
    readers = events.Readers()
    async with AsyncQueue("q", url=ironclaim_url) as queue, readers.listening(queue) as (first, _):
        async with readers.listening(queue) as (second, _):
            assert second is first
        assert [*readers._by_queue] == [queue]
    assert not readers._by_queue


@pytest.mark.parametrize("path", [EVENTS, "/queues/q/live"])
def test_a_stream_ends_when_its_queue_is_divided(
    path: str, ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SILENCE_S", 0.05)
    with served(HttpSettings(url=ironclaim_url)) as base, httpx.stream("GET", f"{base}{path}", timeout=STREAM_S) as answer:
        lines = answer.iter_lines()
        assert next(lines) and Resharding(queue, 2).run().done
        rest_of(lines)
        assert httpx.head(f"{base}{EVENTS}", timeout=STREAM_S).status_code == 501


async def test_many_listeners_are_woken_some_at_a_time(ironclaim_url: str) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue, contextlib.AsyncExitStack() as stack:
        reader = events.Reader(queue)
        async with reader.listening():
            ending = reader._task
        listeners = [await stack.enter_async_context(reader.listening()) for _ in range(3 * events.WOKEN_MAX)]
        assert reader._task is not ending
        resting = [asyncio.create_task(listener.rest()) for listener in listeners]
        await asyncio.sleep(0)
        reader.tell((1, 0), b"an event")
        # How many have something to do after each turn of the loop.
        found = [0]
        while found[-1] < len(resting):
            await asyncio.sleep(0)
            found.append(sum(task.done() for task in resting))
    assert all(after - before <= events.WOKEN_MAX for before, after in itertools.pairwise(found))


def test_a_server_that_was_away_is_read_on(relay: Relay, queue: Queue) -> None:
    queue.events.on()
    with served(HttpSettings(url=relay.url)) as base, listening(base) as stream:
        queue.enqueue("a", 1, id="j1")
        assert next(stream)["job"] == "j1"
        relay.down()
        relay.up()
        queue.enqueue("a", 1, id="j2")
        assert next(stream)["job"] == "j2"


@pytest.mark.slow
def test_clients_that_have_gone_make_room(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("a", 1, id="j1")
    with served(HttpSettings(url=ironclaim_url, waiting_max=1)) as base:

        def begins() -> bool:
            with httpx.stream("GET", f"{base}{EVENTS}", timeout=STREAM_S) as answer:
                return answer.status_code == 200

        for _ in range(3):
            assert wait_until(begins, "the place of the one before is free")
            refused(httpx.ReadTimeout, None, wait_until, lambda: polls(base), "a place is free")


def polls(base: str) -> bool:
    """Whether a long poll may wait: False where there is no place; ReadTimeout where it waits, and its client goes away."""
    timeout = httpx.Timeout(STREAM_S, read=0.5)
    return httpx.get(f"{base}/api/queues/q/jobs/j1/result?wait_ms=60000", timeout=timeout).status_code != 503


def test_an_end_of_the_application_ends_streams_and_long_polls(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("a", 1, id="j1")
    with contextlib.ExitStack() as stack:
        with served(HttpSettings(url=ironclaim_url)) as base:
            lines = stack.enter_context(httpx.stream("GET", f"{base}{EVENTS}", timeout=STREAM_S)).iter_lines()
            assert next(lines).startswith("retry: ")
        assert not any(rest_of(lines)), "it has ended, and the server with it"
