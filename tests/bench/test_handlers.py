"""The handlers do what the payload says: wait, fail the first runs, write one effect per successful run."""

from collections import Counter
from pathlib import Path

import engine
from bench import handlers, workload
from engine.testing import EmbeddedServer
from tests.bench.real_parts import Processes, completions, rows_of, wait_until


def payload(**changes: int) -> dict:
    return {"index": 0, "work_ms": 1, "fail_first": 0, "pad": "", **changes}


def test_failures_effects_and_deaths(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    with engine.Queue("bench", url=server.url) as queue:
        for job, fail_first in {"fine": 0, "fails-once": 1, "fails-twice": 2, "fails-always": 3}.items():
            queue.enqueue("report", payload(fail_first=fail_first), id=job, attempts=3, backoff_ms=10)
        queue.enqueue("email", payload(work_ms=200), id="slow")
        # Every name of the workload has a handler.
        names = {queue.enqueue(name, payload(), id=f"any-{name}").job for name in workload.NAMES}
        worker = processes.worker(server.url)
        wait_until(
            lambda: (now := queue.counts()).dead == 1 and now.finished == 4 + len(names), "all but one finished, that dead"
        )
        processes.stop(worker, log="worker-1.log")

    sink = rows_of(tmp_path / "worker-1.sink.jsonl")
    items = [item for row in sink if row["kind"] == "effect" for item in row["items"]]
    effects = Counter(item["job"] for item in items)
    assert effects == Counter({"fine": 1, "fails-once": 1, "fails-twice": 1, "slow": 1, **dict.fromkeys(names, 1)})
    assert sink[0]["kind"] == "open" and sink[0]["proc"] == "worker-1"
    assert (sink[-1]["kind"], sink[-1]["rows"]) == ("close", len(sink))

    returned = {(item["job"], item["fence"]): item["result_crc"] for item in items}
    finishes = [row for row in completions(tmp_path / "worker-1.jsonl", "finish") if row["type"] == "ok"]
    sent = {(item["job"], item["fence"]): item["result_crc"] for row in finishes for item in row["items"]}
    assert sent == returned and len(set(sent.values())) == 4 + len(names)

    runs = completions(tmp_path / "worker-1.jsonl", "handle")
    ran = Counter(item["job"] for row in runs for item in row["items"])
    assert ran == Counter({"fine": 1, "fails-once": 2, "fails-twice": 3, "fails-always": 3, "slow": 1, **dict.fromkeys(names, 1)})
    slow = next(row for row in runs if row["items"][0]["job"] == "slow")
    assert slow["done_ns"] - slow["first_send_ns"] >= 200_000_000
    failed = [item["error"] for row in runs for item in row["items"] if item["job"] == "fails-once" and item.get("error")]
    assert len(failed) == 1 and "planned failure 1 of 1" in failed[0]


def test_no_sink_unless_the_environment_names_one(tmp_path: Path) -> None:
    assert handlers.open_sink({}) is None and handlers.open_sink({"IRONCLAIM_SINK": ""}) is None
    path = tmp_path / "worker-7.sink.jsonl"
    sink = handlers.open_sink({"IRONCLAIM_SINK": str(path)})
    assert sink is not None
    sink.close()
    # there from the start, so that a worker killed before its first effect leaves the file that the manifest names
    assert [(row["kind"], row["proc"]) for row in rows_of(path)] == [("open", "worker-7"), ("close", "worker-7")]
