"""BridgeMQ's keys: a status beside each job, a lock with the worker's name, a counter of what runs."""

from __future__ import annotations

import json

from chaos.simulate.foreign.state import ForeignState, WireJob
from chaos.simulate.read_all import Key
from chaos.simulate.world import Found

_PLACES = {"jobs:waiting": "waiting", "jobs:active": "active", "jobs:delayed": "delayed", "jobs:deadletter": "dead"}


class BridgeFormat:
    """`root`: the prefix of the keyspace, with its colon."""

    due_unit_ms = 1

    def __init__(self, root: str) -> None:
        self._root = root
        self._names = {root + name: place for name, place in _PLACES.items()}

    def job(self, name: str, key: Key) -> tuple[str, WireJob] | None:
        """`jobs:data:<id>`."""
        if not name.startswith(self._root + "jobs:data:"):
            return None
        fields = json.loads(key.value)
        return name.removeprefix(self._root + "jobs:data:"), WireJob(fields["payload"]["of"], fields["attempts"], "", fields)

    def place(self, name: str) -> str:
        """By the names of its structures."""
        return self._names.get(name, "")

    def scored_ms(self, score: float) -> int:
        """Scores are times."""
        return int(score)

    def check(self, state: ForeignState) -> None:
        """Statuses; results of those that have ended; locks of their workers; counters of what runs."""
        for id, job in state.jobs.items():
            place = (state.places.get(id) or ["completed"])[0]
            status = state.value(f"{self._root}jobs:status:{id}")
            if status != place:
                raise Found("format", f"{id} is {place}, and its status is {status}", (id,))
            if place in ("completed", "dead"):
                result = json.loads(state.value(f"{self._root}jobs:result:{id}", "{}"))
                if result.get("success", place == "completed") is not (place == "completed"):
                    raise Found("format", f"{id} is {place}, and its result is {result}", (id,))
            lock = state.value(f"{self._root}jobs:lock:{id}")
            if lock is not None and (place != "active" or lock != state.table("run:" + id).get("held_as")):
                raise Found("format", f"{id} is {place}, and the worker {lock} has locked it", (id,))
            if job.fields["jobId"] != id:
                raise Found("format", f"{id} calls itself {job.fields['jobId']}", (id,))
        counted = self._root + "ratelimit:concurrent:"
        running = [state.jobs[id].fields["type"] for id in state.at("active")]
        for name in {counted + kind for kind in running} | {name for name in state.raw if name.startswith(counted)}:
            runs = running.count(name.removeprefix(counted))
            if int(state.value(name, "0")) != runs:
                raise Found("format", f"{runs} jobs run, and {name} says {state.value(name)}")

    def lasts(self, name: str) -> bool:
        """Data, status and results are never deleted before their time; the counter of what runs stays."""
        name = name.removeprefix(self._root)
        return name.startswith(("jobs:status:", "jobs:result:", "ratelimit:concurrent:"))
