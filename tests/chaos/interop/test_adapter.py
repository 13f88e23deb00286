"""The adapter on a real server: what the original Bull does stands in the history as it happened, and is not changed by that."""

import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos.interop.node import adapter_command, adapter_environment
from engine.testing import start_guarded
from record.history import SCHEMA_VERSION, load_file
from tests.engine.helpers.waiting import wait_until

pytestmark = pytest.mark.nightly

Row = dict[str, Any]

#: What the producer of these tests sends: a job at once, one that fails once, one that is delayed, one that always fails.
JOBS = (
    ({"index": 0, "text": "naïve ☃"}, {}),
    ({"index": 1, "fail_first": 1}, {"attempts": 2, "backoff": {"type": "fixed", "delay": 80}}),
    ({"index": 2, "value": {"done": True}}, {"delay": 150}),
    ({"index": 3, "fail_first": 9}, {"attempts": 1}),
)


class Adapter:
    """Adapter processes that write their history into one folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._port = port
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, mode: str, proc: str, **settings: Any) -> subprocess.Popen[bytes]:
        common = {"queue": "mail", "port": self._port, "proc": proc, "history": str(self.folder / f"{proc}.jsonl")}
        environment = {**os.environ, **adapter_environment()}
        self._started[proc] = start_guarded(adapter_command(mode, {**common, **settings}), env=environment)
        return self._started[proc]

    def work(self, proc: str = "node-worker-1", **settings: Any) -> subprocess.Popen[bytes]:
        return self.start("consume", proc, sink=str(self.folder / f"{proc}.sink.jsonl"), **settings)

    def produce(self, jobs: tuple[tuple[Row, Row], ...] = JOBS) -> subprocess.Popen[bytes]:
        plan = self.folder / "plan"
        plan.write_text("".join(json.dumps({"at_ms": n * 50, "data": d, "opts": o}) + "\n" for n, (d, o) in enumerate(jobs)))
        return self.start("produce", "node-producer-1", plan=str(plan))

    def rows(self, stem: str) -> list[Row]:
        path = self.folder / f"{stem}.jsonl"
        return list(load_file(path).rows) if path.exists() else []

    def completed(self, stem: str, f: str) -> list[Row]:
        return [row for row in self.rows(stem) if row["f"] == f and row["type"] != "invoke"]

    def stop(self) -> None:
        for process in self._started.values():
            process.terminate()
        assert {process.wait(120) for process in self._started.values()} == {0}

    def kill(self) -> None:
        for process in self._started.values():
            process.kill()
            process.wait()


@pytest.fixture
def adapter(tmp_path: Path, port: int) -> Iterator[Adapter]:
    made = Adapter(tmp_path, port)
    yield made
    made.kill()


def all_ended(adapter: Adapter) -> bool:
    return len(adapter.completed("node-worker-1", "finish")) == 3 and bool(adapter.completed("node-worker-1", "bury"))


@pytest.fixture
def worked(adapter: Adapter) -> Adapter:
    """The four jobs were sent and have ended; both processes were asked to stop, and did."""
    adapter.work(concurrency=4)
    adapter.produce()
    wait_until(lambda: all_ended(adapter), "the end of all jobs")
    adapter.stop()
    return adapter


def test_files_are_whole_and_of_this_schema(worked: Adapter) -> None:
    for stem in ("node-producer-1", "node-worker-1", "node-worker-1.sink"):
        rows = worked.rows(stem)
        assert [row["seq"] for row in rows] == list(range(len(rows)))
        assert (rows[0]["kind"], rows[-1]["kind"], rows[-1]["rows"]) == ("open", "close", len(rows))
        assert {row["v"] for row in rows} == {SCHEMA_VERSION}
        assert {row["proc"] for row in rows} == {stem.removesuffix(".sink")}
        assert rows[0]["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_instants_are_of_the_clock_that_every_process_shares(adapter: Adapter) -> None:
    before_ns = time.monotonic_ns()
    adapter.work()
    assert before_ns < wait_until(lambda: adapter.rows("node-worker-1"), "its first row")[0]["t_ns"] < time.monotonic_ns()


def test_each_call_has_one_row_before_it_is_sent_and_one_after_its_answer(worked: Adapter) -> None:
    for stem in ("node-producer-1", "node-worker-1"):
        told: dict[str, list[Row]] = {}
        for row in worked.rows(stem):
            if row["kind"] == "operation":
                told.setdefault(row["op"], []).append(row)
        assert told
        for invoked, completed in told.values():
            assert (invoked["type"], completed["type"]) in {("invoke", "ok"), ("invoke", "fail")}
            assert invoked["f"] == completed["f"]
            assert invoked["first_send_ns"] == completed["first_send_ns"] <= invoked["t_ns"]
            assert completed["first_send_ns"] < completed["done_ns"] <= completed["t_ns"]


def test_a_call_is_bracketed_with_the_time_of_the_server(worked: Adapter, ironclaim_url: str) -> None:
    rows = [row for stem in ("node-producer-1", "node-worker-1") for row in worked.rows(stem)]
    calls = [row for row in rows if row["kind"] == "operation" and row["f"] != "handle" and row["type"] == "ok"]
    assert len(calls) > 8
    for row in calls:
        assert 0 <= row["srv_us"] - row["srv_from_us"] <= (row["done_ns"] - row["first_send_ns"]) / 1_000 + 1
    with redis.Redis.from_url(ironclaim_url) as client:
        seconds, _ = client.time()  # pyright: ignore
        assert client.info("commandstats")["cmdstat_time"]["calls"] >= 2 * len(calls)  # pyright: ignore
    assert all(abs(row["srv_us"] / 1e6 - seconds) < 60 for row in calls)


def test_enqueues_tell_ids_payloads_and_when_delayed_jobs_are_due(worked: Adapter, ironclaim_url: str) -> None:
    enqueued = worked.completed("node-producer-1", "enqueue")
    items = [item for row in enqueued for item in row["items"]]
    with redis.Redis.from_url(ironclaim_url) as client:
        stored = [client.hgetall(f"bull:mail:{item['job']}") for item in items]
    for item, job in zip(items, stored, strict=True):
        assert item["crc"] == zlib.crc32(job[b"data"])  # pyright: ignore
    assert [item["delay_ms"] for item in items] == [0, 0, 150, 0]
    assert items[2]["run_at_ms"] == int(stored[2][b"timestamp"]) + 150  # pyright: ignore
    assert all(row["intended_ns"] <= row["first_send_ns"] for row in enqueued)


def test_a_lease_is_the_lock_with_the_time_of_the_claim_for_a_fence(worked: Adapter) -> None:
    claims = [row for row in worked.completed("node-worker-1", "claim") if row["result"] == "leased"]
    assert len(claims) == 5
    for row in claims:
        (item,) = row["items"]
        assert (item["fence"], item["deadline_ms"]) == (row["srv_from_us"] // 1_000, item["fence"] + 5_000)
        assert (row["lease_ms"], row["incarnation"]) == (5_000, item["nonce"])
    assert [row["counter"] for row in claims] == sorted(row["counter"] for row in claims)
    fences = [row["items"][0]["fence"] for row in claims if row["items"][0]["job"] == "2"]
    assert fences == sorted(set(fences))


def test_failures_are_told_with_what_becomes_of_the_job(worked: Adapter) -> None:
    (retried,) = worked.completed("node-worker-1", "retry")
    (item,) = retried["items"]
    assert (item["job"], item["delay_ms"], item["result"], item["outcome"]) == ("2", 80, "ok", "retried")
    assert item["error"] == "Error: planned failure 1 of 1"
    (buried,) = worked.completed("node-worker-1", "bury")
    assert (buried["items"][0]["job"], buried["items"][0]["outcome"]) == ("4", "buried")
    handled = worked.completed("node-worker-1", "handle")
    assert sorted(row["type"] for row in handled) == ["fail", "fail", "ok", "ok", "ok"]


def test_effects_are_written_inside_the_handler_under_its_lease(worked: Adapter) -> None:
    effects = [item for row in worked.rows("node-worker-1.sink") if row["kind"] == "effect" for item in row["items"]]
    finished = [item for row in worked.completed("node-worker-1", "finish") for item in row["items"]]
    lease = ("job", "fence", "nonce")
    assert {tuple(item[name] for name in lease) for item in effects} == {tuple(item[name] for name in lease) for item in finished}
    assert all(isinstance(item["crc"], int) for item in effects)


def test_recording_leaves_bull_as_it_is(worked: Adapter, ironclaim_url: str) -> None:
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as client:
        assert client.smembers("bull:mail:completed") == {"1", "2", "3"}
        assert client.smembers("bull:mail:failed") == {"4"}
        assert client.hget("bull:mail:3", "returnvalue") == '{"done":true}'
        assert client.hget("bull:mail:2", "attemptsMade") == "1"
        assert not list(client.scan_iter("bull:mail:*:lock"))


def test_a_long_run_extends_its_lock(adapter: Adapter, port: int) -> None:
    adapter.work()
    adapter.produce((({"index": 0, "work_ms": 3_200}, {}),))
    wait_until(lambda: adapter.completed("node-worker-1", "finish"), "a finish")
    (extended,) = adapter.completed("node-worker-1", "extend")
    (claimed,) = [row for row in adapter.completed("node-worker-1", "claim") if row["result"] == "leased"]
    assert extended["items"][0]["result"] == "ok"
    assert extended["first_send_ns"] - claimed["first_send_ns"] > 2_400e6
    assert extended["items"][0]["deadline_ms"] > claimed["items"][0]["deadline_ms"] + 2_400


def at_work(adapter: Adapter, work_ms: int) -> subprocess.Popen[bytes]:
    """A worker with a job in hand that takes so long."""
    process = adapter.work()
    adapter.produce((({"index": 0, "work_ms": work_ms}, {}),))
    wait_until(lambda: [row for row in adapter.rows("node-worker-1") if row["f"] == "handle"], "a run")
    return process


def test_a_killed_worker_leaves_the_rows_of_what_it_had_in_hand(adapter: Adapter) -> None:
    process = at_work(adapter, 60_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    last = adapter.rows("node-worker-1")[-1]
    assert (last["f"], last["type"], last["items"][0]["job"]) == ("handle", "invoke", "1")


def test_a_worker_that_is_told_to_stop_finishes_what_it_runs(adapter: Adapter) -> None:
    process = at_work(adapter, 600)
    process.terminate()
    assert process.wait(120) == 0
    assert [row["items"][0]["result"] for row in adapter.completed("node-worker-1", "finish")] == ["ok"]
    assert adapter.rows("node-worker-1")[-1]["kind"] == "close"
