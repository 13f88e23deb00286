"""Bull's keys: nine fields of each hash, lists by their names, a lock for each active job."""

from __future__ import annotations

import json
from math import floor

from chaos.simulate.foreign.state import ForeignState, WireJob
from chaos.simulate.read_all import Key
from chaos.simulate.world import Found

_FIELDS = {"data", "opts", "progress", "delay", "timestamp", "attempts", "attemptsMade", "stacktrace", "returnvalue"}
_PLACES = {
    "wait": "waiting",
    "paused": "waiting",
    "active": "active",
    "delayed": "delayed",
    "failed": "dead",
    "completed": "done",
}
#: A score is the time times this, plus the low bits of the id.
_STEPS = 4096


class BullFormat:
    """`root`: the prefix of the queue's keys, with its colon."""

    due_unit_ms = 1

    def __init__(self, root: str) -> None:
        self._root = root
        self._names = {root + name: place for name, place in _PLACES.items()}

    def job(self, name: str, key: Key) -> tuple[str, WireJob] | None:
        """A hash under the id."""
        if key.kind != "hash":
            return None
        text = json.loads(key.value["data"])["of"] if "data" in key.value else ""
        return name.removeprefix(self._root), WireJob(text, int(key.value.get("attemptsMade", 0)), "", key.value)

    def place(self, name: str) -> str:
        """By the names of Bull's structures."""
        return self._names.get(name, "")

    def scored_ms(self, score: float) -> int:
        """The time stands above the low bits of the id."""
        return floor(score / _STEPS)

    def check(self, state: ForeignState) -> None:
        """The fields of each hash; the low bits of each score; a list of as many failures as there were; locks of the engine."""
        for id, job in state.jobs.items():
            if set(job.fields) != _FIELDS:
                raise Found("format", f"the hash of {id} has the fields {', '.join(sorted(job.fields))}", (id,))
            # A job that has crashed too often is buried with the reason, which is no failed run.
            more = len(json.loads(job.fields["stacktrace"])) - job.failures
            if more and (more != 1 or "dead" not in state.places.get(id, ())):
                raise Found(
                    "format", f"{id} has failed {job.failures} times, and its stacktrace is {job.fields['stacktrace']}", (id,)
                )
        for id, score in state.value(self._root + "delayed", {}).items():
            low = int(id) % _STEPS if id.isdigit() else 0
            # Beyond 2^53 a double has no room for all of those bits.
            if score % _STEPS > low:
                raise Found("format", f"the score of {id} has the low bits {score % _STEPS:.0f}", (id,))
        for id in state.at("active"):
            lock = state.value(f"{self._root}{id}:lock")
            if lock is not None and lock != state.run(id).token:
                raise Found("format", f"{id} is locked by {lock}, and its token is {state.run(id).token}", (id,))

    def lasts(self, name: str) -> bool:
        """The sets of jobs that have ended, and the counter of ids."""
        return name in (self._root + "completed", self._root + "id")
