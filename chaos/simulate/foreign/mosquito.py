"""Mosquito's keys: a hash of texts for each run, the name of its overseer while it runs, four structures in either layout."""

from __future__ import annotations

from chaos.foreign_keys import MosquitoKeys
from chaos.simulate.foreign.state import ForeignState, WireJob
from chaos.simulate.read_all import Key
from chaos.simulate.world import Found


class MosquitoFormat:
    """The keys of one queue."""

    due_unit_ms = 1

    def __init__(self, keys: MosquitoKeys) -> None:
        self._keys = keys
        self._jobs = keys.run("")
        self._names = {keys.waiting: "waiting", keys.pending: "active", keys.scheduled: "delayed", keys.dead: "dead"}

    def job(self, name: str, key: Key) -> tuple[str, WireJob] | None:
        """`job_run:<id>`."""
        if not name.startswith(self._jobs):
            return None
        return name.removeprefix(self._jobs), WireJob(
            key.value.get("of", ""), int(key.value.get("retry_count", 0)), "", key.value
        )

    def place(self, name: str) -> str:
        """By the names of its structures."""
        return self._names.get(name, "")

    def scored_ms(self, score: float) -> int:
        """Scores are times."""
        return int(score)

    def check(self, state: ForeignState) -> None:
        """Metadata of each hash; overseers of what runs, and of nothing else; times to live of those that have ended; queues that
        have jobs are listed."""
        for id, job in state.jobs.items():
            place = (state.places.get(id) or ["done"])[0]
            if not {"type", "enqueue_time", "retry_count"} <= set(job.fields):
                raise Found("format", f"the hash of {id} has the fields {', '.join(job.fields)}", (id,))
            overseer, nonce = job.fields.get("overseer_id"), state.run(id).token.split(":")
            if (place == "active") != (overseer is not None):
                raise Found("format", f"{id} is {place}, and its overseer is {overseer}", (id,))
            if place == "active" and len(nonce) == 3 and overseer != nonce[1]:
                raise Found("format", f"{id} is held by {nonce[1]}, and its overseer is {overseer}", (id,))
            if (place in ("done", "dead")) != (state.raw[self._keys.run(id)].expires_ms > 0):
                raise Found(
                    "format", f"{id} is {place}, and its hash expires at {state.raw[self._keys.run(id)].expires_ms}", (id,)
                )
        if (state.at("waiting") or state.at("delayed")) and self._keys.queue not in state.value(self._keys.queues, {}):
            raise Found("format", f"the queue has jobs, and it is not listed: {state.value(self._keys.queues)}")

    def lasts(self, name: str) -> bool:
        """The lists of queues and of overseers, how long runs took, and what the engine's queues share."""
        keys = self._keys
        shared = (keys.queues, keys.overseers, f"{keys.prefix}:ironclaim:ids", f"{keys.prefix}:ironclaim:layout")
        return name in shared or name.startswith((keys.overseer(""), keys.executor(""), keys.duration("")[:13]))
