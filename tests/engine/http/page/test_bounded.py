"""What a view costs the server: at most three calls, and no more commands with 200,000 waiting jobs than with few."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine import Queue
from tests.engine.http.serving import asking, coming

#: Commands that the scripts of one view may give, whatever the queue holds: some for each of 500 lanes or 250 jobs.
COMMANDS_MAX = 6_000
#: Views that hold waiting names against what workers have handlers for.
_OF_ALL = ("/queues/q", "/queues/q/summary")
_WAITING = "state=waiting&name=n1"
VIEWS = (
    *("/queues", *_OF_ALL, "/queues/q/jobs"),
    *(f"/queues/q/jobs?{query}" for query in (_WAITING, "state=waiting&text=nothing&newest=1", "state=waiting&cursor=250")),
    *("/queues/q/jobs/some", "/queues/q/jobs/some/events?since=1", "/queues/q/dead", f"/queues/q/bulk?action=cancel&{_WAITING}"),
    f"/queues/q/bulk/count?action=cancel&{_WAITING}&cursor=250&seen=250",
    *("/queues/q/schedules", "/queues/q/workers", "/queues/q/limits", "/api/queues/q"),
)


@pytest.fixture(params=[(3_000, 1_200), pytest.param((200_000, 10_000), marks=pytest.mark.slow)], ids=["some", "many"])
def crowded(request: pytest.FixtureRequest, queue: Queue) -> tuple[int, int]:
    """How many jobs wait, in how many lanes."""
    jobs, lanes = request.param
    for start in range(0, jobs, 50_000):
        numbers = range(start, min(start + 50_000, jobs))
        queue.enqueue_many(
            {"name": f"n{at % 4}", "payload": at, "id": "some" if at == 0 else None, "key": f"k{at % lanes}"} for at in numbers
        )
    return jobs, lanes


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[httpx.Client]:
    """Of a page that may change things."""
    with asking(ironclaim_url, allow_changes=True) as made:
        made.timeout = httpx.Timeout(300)
        yield made


def test_each_view_is_few_calls_of_bounded_cost(crowded: tuple[int, int], client: httpx.Client, raw: Any) -> None:
    # The first request connects and loads the scripts.
    for path in ("/queues", "/queues/q/workers"):
        assert client.get(path).status_code == 200
    for path in VIEWS:
        raw.config_resetstat()
        assert client.get(path).status_code == 200, path
        stats = {name.removeprefix("cmdstat_"): found["calls"] for name, found in raw.info("commandstats").items()}
        calls = stats["zrange"] if path == "/queues" else stats["xread" if path.endswith("since=1") else "evalsha"]
        commands = sum(count for name, count in stats.items() if name not in ("config|resetstat", "info"))
        assert 1 <= calls <= (3 if path in _OF_ALL else 2) and commands <= COMMANDS_MAX, (path, calls, commands)


@pytest.mark.slow
def test_live_numbers_take_two_calls_a_sample_for_all_lanes(crowded: tuple[int, int], client: httpx.Client, raw: Any) -> None:
    assert client.get("/queues/q/workers").status_code == 200
    raw.config_resetstat()
    samples: list[dict[str, int]] = []
    with client.stream("GET", "/queues/q/live") as answer:
        answer_lines = answer.iter_lines()
        while not samples or samples[-1]["least"]:
            samples += _samples(answer_lines, 1)
        calls, taken = _calls_and_samples(raw, answer_lines, samples)
    assert samples[0]["least"] and samples[0]["waiting"] < crowded[0] and samples[-1]["waiting"] == crowded[0]
    assert calls <= 2 * (taken + 1)


@pytest.mark.slow
def test_who_looks_at_the_same_queue_shares_the_samples(queue: Queue, client: httpx.Client, raw: Any) -> None:
    queue.enqueue("work", 1)
    with client.stream("GET", "/queues/q/live") as first, client.stream("GET", "/queues/q/live") as second:
        lines = [stream.iter_lines() for stream in (first, second)]
        for found in lines:
            _samples(found, 1)
        since_ms = _now_ms(raw)
        raw.config_resetstat()
        came = [_samples(found, 6, since_ms) for found in lines]
        calls, taken = _calls_and_samples(raw, lines[0], came[0])
    assert {sample["at_ms"] for sample in came[0]} & {sample["at_ms"] for sample in came[1]}
    # Each with samples of its own would make twice as many.
    assert taken >= 5 and calls <= 2 * (taken + 1) and came[0][-1]["waiting"] == 1


def _calls_and_samples(raw: Any, lines: Iterator[str], samples: list[dict[str, int]]) -> tuple[int, int]:
    """The calls that the server has counted, and the samples that were taken for them: those read, and those that nobody has read
    yet, which a busy machine may have several of. They are added to `samples`."""
    calls, now_ms = raw.info("commandstats")["cmdstat_evalsha"]["calls"], _now_ms(raw)
    while samples[-1]["at_ms"] <= now_ms:
        samples += _samples(lines, 1)
    return calls, sum(sample["at_ms"] <= now_ms for sample in samples)


def _now_ms(raw: Any) -> int:
    seconds, micros = raw.time()
    return seconds * 1000 + micros // 1000


def _samples(lines: Iterator[str], count: int, since_ms: int = 0) -> list[dict[str, int]]:
    """So many more samples of a stream that were taken after this."""
    found: list[dict[str, int]] = []
    for line in coming(lines, "data: ["):
        found += [sample for sample in json.loads(line.removeprefix("data: ")) if sample["at_ms"] > since_ms]
        if len(found) >= count:
            break
    return found
