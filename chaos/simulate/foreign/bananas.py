"""Bananas' keys: jobs as JSON, lists by route and priority, due times in seconds."""

from __future__ import annotations

import json

from chaos.simulate.foreign.state import ForeignState, WireJob
from chaos.simulate.read_all import Key
from chaos.simulate.world import Found

#: What a job's `status` may be where it stands; the engine leaves it `pending` while it runs.
_STATUS = {"waiting": ("pending",), "active": ("pending",), "delayed": ("scheduled", "pending"), "dead": ("failed",)}


class BananasFormat:
    """`root`: the prefix of the keyspace, with its colon."""

    due_unit_ms = 1_000

    def __init__(self, root: str) -> None:
        self._root = root
        self._names = {root + "queue:processing": "active", root + "queue:scheduled": "delayed", root + "queue:dead": "dead"}

    def job(self, name: str, key: Key) -> tuple[str, WireJob] | None:
        """`job:<id>`."""
        if not name.startswith(self._root + "job:"):
            return None
        fields = json.loads(key.value)
        return name.removeprefix(self._root + "job:"), WireJob(
            fields["payload"]["of"], fields["attempts"], fields["status"], fields
        )

    def place(self, name: str) -> str:
        """By the names of its structures; all other queues are lists of jobs that wait."""
        queue = name.startswith((self._root + "queue:", self._root + "route:"))
        return self._names.get(name) or ("waiting" if queue else "")

    def scored_ms(self, score: float) -> int:
        """Scores are in seconds."""
        return round(score * 1000)

    def check(self, state: ForeignState) -> None:
        """Statuses, and lists by priority; a result of each job that has ended."""
        for id, job in state.jobs.items():
            place = (state.places.get(id) or ["done"])[0]
            if place in _STATUS and job.status not in _STATUS[place]:
                raise Found("format", f"{id} is {place}, and its status is {job.status}", (id,))
            ended = {"done": "completed", "dead": "failed"}.get(place)
            if ended and job.status == ended:
                result = state.raw.get(f"{self._root}result:{id}")
                if result is not None and result.value.get("status") != ended:
                    raise Found("format", f"{id} is {ended}, and its result is {result.value}", (id,))
            if job.fields["id"] != id or job.fields["routing_key"] != "default":
                raise Found("format", f"{id} says of itself {job.fields}", (id,))
        for name, key in state.raw.items():
            if not name.startswith(state.prefix) and self.place(name) == "waiting":
                for id in key.value:
                    level = name.rpartition(":")[2]
                    if state.jobs[id].fields["priority"] != level:
                        raise Found("format", f"{id} waits in {name}, and its priority is another one", (id,))

    def lasts(self, name: str) -> bool:
        """Results."""
        return name.startswith(self._root + "result:")
