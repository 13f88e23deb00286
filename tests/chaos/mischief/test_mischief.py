"""The process that meddles, beside a real queue: it leaves whole files, and rows by which the judge knows what it had in hand."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench import models
from chaos.mischief.clients import CLIENTS
from engine import NewJob
from tests.engine.helpers.waiting import wait_until, whole_lines


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in whole_lines(file)]


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param(one, marks=[] if one == "bull" else pytest.mark.slow) for one in sorted(CLIENTS)])
def test_it_tells_what_it_had_in_hand(model: str, ironclaim_url: str, tmp_path: Path) -> None:
    history, sink = tmp_path / "foreign-client-1.jsonl", tmp_path / "foreign-client-1.sink.jsonl"
    with models.queue(model, "q", url=ironclaim_url) as queue:
        sent = {one.job for one in queue.enqueue_many([NewJob("work", {"n": str(number)}) for number in range(200)])}
        command = [sys.executable, "-m", "chaos.mischief.client", "foreign-client-1", ironclaim_url, model, "q", "1"]
        process = subprocess.Popen([*command, str(history), str(sink)])
        try:
            wait_until(lambda: sink.exists() and len(rows_of(sink)) > 20, "it has run jobs", 120)
        finally:
            process.terminate()
            assert process.wait(120) == 0
        told = rows_of(history)
        assert [told[0]["kind"], told[-1]["kind"], rows_of(sink)[-1]["kind"]] == ["open", "close", "close"]
        done = [row for row in told if row.get("type") == "ok"]
        by_f = {f: [row["items"][0]["job"] for row in done if row["f"] == f] for f in ("claim", "handle", "finish", "drop")}
        assert set(by_f["claim"]) <= sent and by_f["claim"] == by_f["handle"]
        assert Counter(by_f["claim"]) == Counter(by_f["finish"] + by_f["drop"])
        assert [row["items"][0]["job"] for row in rows_of(sink)[1:-1]] == by_f["handle"]
        left = queue.counts().waiting + queue.counts().active
        assert left >= len(sent) - len(set(by_f["claim"])), "what it had not in hand is still there"
