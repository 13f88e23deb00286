"""What the load sends depends on what was answered so far."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import redis

from bench.production import Destination, Production
from bench.workload import Workload
from chaos.foreign_keys import BridgeKeys
from engine.testing import EmbeddedServer


def test_a_parent_that_was_refused_keeps_no_job_waiting() -> None:
    """A server without memory refuses it, and on Bridge a job that needs it would wait for ever."""
    with EmbeddedServer() as server, redis.Redis(port=server.port, decode_responses=True) as client:
        failures: list[str] = []
        production = Production(
            Workload(seed=1, rate_per_s=100),
            Destination("bench", server.url, model="bridge"),
            part=0,
            parts=1,
            report=lambda name, response_ms, failure: failures.append(str(failure)) if failure else None,
        )
        job = next(job for job in Workload(seed=1, rate_per_s=100).jobs() if len(job.needs) == 2)
        there, refused = (replace(job, id=parent, needs=(), fail_first=0, unique=None) for parent in job.needs)
        production._send(there, 0)
        client.config_set("maxmemory", 1)
        production._send(refused, 0)
        client.config_set("maxmemory", 0)
        production._send(job, 0)
        (failure,) = failures
        assert "OOM" in failure
        data: Any = client.get(next(client.scan_iter(f"*{BridgeKeys('').data(job.id)}")))
        assert json.loads(data)["dependsOn"] == [there.id]
