"""The micro-benchmarks at a tiny size: every part has positive numbers, ends what it began, and leaves no process behind."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import engine
from bench.__main__ import PROGRAMS
from bench.__main__ import main as bench
from bench.micro import channels, claim_cost, drain, each_script, enqueue, floor_check, memory, pickup, place, scripts
from bench.micro.bare import BareEnqueue, NewSlot
from bench.micro.bare_publish import BarePublish
from bench.micro.drain_process import Order
from bench.micro.drain_process import drain as drain_here
from bench.micro.floor import Floor
from bench.micro.jobs import Claims, fill
from bench.micro.payload import NAME, PAYLOAD, compact
from bench.micro.runner import machine_card, one_line
from engine.testing import EmbeddedServer
from tests.bench.real_parts import TWO_CORES, silent

ROOT = Path(__file__).parents[2]

pytestmark = [TWO_CORES, pytest.mark.usefixtures("nothing_left")]


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers_in(inner)
    elif not isinstance(value, str):
        yield value


def check(found: dict[str, Any], *keys: str) -> None:
    assert set(found["ratios"]) == set(keys)
    values = list(numbers_in(found))
    assert values and all(math.isfinite(value) and value > 0 for value in values), found


def test_the_payload_has_200_bytes() -> None:
    assert len(compact(PAYLOAD)) == 200


def test_the_floor_ends_every_job(server: EmbeddedServer) -> None:
    plain = place.client(server)
    floor = Floor(plain, server.port)
    for batch in (1, 50):
        floor.fill(333)
        assert floor.left() == (333, 0)
        jobs, seconds = floor.drain(batch)
        assert (jobs, floor.left(), plain.dbsize()) == (333, (0, 0), 0) and seconds > 0
    floor.bulk(200)
    assert floor.left() == (200, 0)


def test_the_bare_loop_builds_the_same_jobs(server: EmbeddedServer) -> None:
    plain = place.client(server)
    with engine.Queue("bare", url=server.url) as queue:
        loop = BareEnqueue(queue, plain)
        queue.enqueue(NAME, PAYLOAD)
        loop.run(3)
        jobs = queue.driver.run(Claims(queue).call(10)).jobs
    assert len({job.lease.job for job in jobs}) == 4 and {len(job.lease.job) for job in jobs} == {12}
    ours, *theirs = jobs
    for job in theirs:
        assert (job.name, job.lane, job.payload, job.options) == (ours.name, ours.lane, ours.payload, ours.options)
    assert len({plain.strlen(key) for key in plain.keys("*job:*")}) == 1


def test_the_bare_loop_refuses_a_slot_that_it_does_not_know(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.micro.bare._OF_THE_JOB", {"job", "run", "id"})
    with engine.Queue("bare", url=server.url) as queue, pytest.raises(NewSlot, match="'not_after_ms'"):
        BareEnqueue(queue, place.client(server))


def test_enqueue() -> None:
    check(enqueue.measure(200, 1, silent), "enqueue", "bulk")


@pytest.mark.slow
def test_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "FLOOR_BATCHES", (drain.FLOOR_BATCH,))
    monkeypatch.setattr(drain, "PREFETCHES", (drain.PREFETCH,))
    found = drain.measure(200, 1, silent)
    check(found, "drain")
    assert len(found["jobs_per_s"]) == 4


def test_a_drain_that_lost_a_job_is_no_measurement(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.micro.drain_process._DEADLINE_S", 0.3)
    with engine.Queue("drain", url=server.url) as queue:
        fill(queue, 10)
    with pytest.raises(RuntimeError, match="not every one of 11"):
        drain_here(Order(server.url, "drain", 11, "threads", 10))


@pytest.mark.slow
def test_claim_cost() -> None:
    found = claim_cost.measure(5, 1, claim_cost.scenes((20, 200), (1, 12), 50, 20), silent)
    check(found, "claim_deep", "claim_blocked", "claim_lanes")
    assert [len(cells) for cells in found["redis_us_per_job"].values()] == [2, 5, 2]


def test_a_claim_of_what_may_not_be_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.Queue, "pause", lambda *_: None)
    scenes = claim_cost.scenes((), (), 50, 20)["claim_blocked"]
    title = "50 of a paused name"
    with pytest.raises(RuntimeError, match="may not take"):
        claim_cost.measure(2, 1, {"claim_blocked": {title: scenes[title]}}, silent)


@pytest.mark.slow
def test_pickup() -> None:
    found = pickup.measure(1, 20, silent)
    assert [len(slices) for slices in found["samples_ms"].values()] == [1, 1]
    check(found, "pickup_p50", "pickup_p99")
    assert found["interval"]["pickup_p50"][0] <= found["ratios"]["pickup_p50"] <= found["interval"]["pickup_p50"][1]


@pytest.mark.slow
def test_channels() -> None:
    size = channels.Size(publishes=200, batch_messages=200, repeat=1, slices=1, wakes=20, backlog=3_000)
    found = channels.measure(size, silent)
    assert found["ratios"]["fetch_calls"] == 1
    assert all(math.isfinite(value) and value > 0 for name, value in found["ratios"].items() if name != "wake_ms")
    rows = found["catching_up"]["rows"]
    assert {row["messages"] for title, row in rows.items() if "3,000 unread" in title} == {3_000}
    assert {row["messages"] for title, row in rows.items() if "expired" in title} == {64}


def test_the_bare_loop_publishes_the_same_messages(server: EmbeddedServer) -> None:
    plain = place.client(server)
    with engine.Channel("bare", url=server.url) as channel:
        channel.subscribe("s")
        loop = BarePublish(channel, plain)
        channel.publish("ours", PAYLOAD)
        loop.run(3)
        ours, *theirs = channel.fetch("s").messages
    assert [message.content for message in theirs] == [ours.content] * 3
    assert len({message.id for message in theirs}) == 3
    assert [plain.get(f"c.{{bare}}.mid.{message.id}") for message in theirs] == [b"2", b"3", b"4"]


@pytest.mark.slow
def test_memory_and_a_server_that_is_missing() -> None:
    found = memory.measure({"valkey": place.servers()["valkey"], "redis": None}, 2_000, silent)
    assert found["bytes_per_job"]["redis"] is found["ratios"]["bytes_redis"] is None
    states = found["bytes_per_job"]["valkey"]
    assert 200 < states["waiting"] == found["ratios"]["bytes_valkey"] < states["active"] < 2_000
    assert 50 < states["tombstone"] < states["finished"] < states["waiting"]


@pytest.mark.slow
def test_each_script_by_itself(tmp_path: Path) -> None:
    found = scripts.measure(2, tmp_path / "scripts.json", silent)["scripts"]
    assert set(found) == set(each_script.CALLS)
    assert all(row["redis_us"] > 0 for row in found.values()) and all(row["us"] > 0 for row in found.values())


def test_the_floor_is_held_against_another_program(tmp_path: Path) -> None:
    other = tmp_path / "floor.py"
    rows = [{"case": "enqueue bulk of 100, somehow", "jobs_per_s": 1}, {"case": "drain, batch 50, somehow", "jobs_per_s": 2}]
    other.write_text("import json\n" + "".join(f"print(json.dumps({row!r}))\n" for row in rows))
    found = floor_check.compare(other, 100, 1, silent)
    assert found["jobs_per_s"]["bulk"]["theirs"] == [1] and found["jobs_per_s"]["drain"]["theirs"] == [2]
    assert found["ours_over_theirs"]["drain"] > 1.1 and not found["close"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stopped_benchmark_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{PROGRAMS[name][0]}.main", interrupted)
    assert (bench([name]), capsys.readouterr()) == (130, ("", f"bench {name}: interrupted\n"))


def test_the_card_names_what_the_numbers_depend_on() -> None:
    card = machine_card(place.servers() | {"other": None})
    assert card["cores"] == os.cpu_count() and card["cpu"] and len(card["load"]) == 3
    assert card["packages"]["redis"] and card["packages"]["hiredis"] and card["servers"]["valkey"].startswith("Valkey ")
    assert "no other" in one_line(card) and card["python"] in one_line(card)


@pytest.mark.slow
def test_a_whole_run_writes_json_and_a_figure_and_ends_in_the_ratios(tmp_path: Path) -> None:
    # redis-server is not on this PATH, so its number is unknown and the exit code says so
    command = [sys.executable, "-m", "bench.micro", "--quick", "--only", "memory", "--folder", str(tmp_path)]
    path = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True, timeout=300)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert last.startswith("ratios: enqueue=- bulk=- ") and " bytes_redis=unknown " in last
    whole = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert whole["numbers"]["bytes_redis"] is None and whole["numbers"]["bytes_valkey"] > 200
    assert whole["verdicts"]["bytes_redis"] == "unknown" and whole["machine"]["load"]
    assert next(tmp_path.glob("*.png")).read_bytes().startswith(b"\x89PNG")
