"""What stands in the keys of a Bull queue at one instant, read as they are: neither by the engine nor by Bull."""

from __future__ import annotations

import redis

from chaos import rows
from record.history import HistoryFile

#: Scores of `delayed` are times in ms by this, and 12 bits of the job's id.
SCORE_UNIT = 0x1000

#: For a job in `active`: the end of its lock; it has none when it was never locked or the lock has run out.
LOCKS = """
local left = {}
for place, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do left[place] = redis.call('PTTL', ARGV[1] .. id .. ':lock') end
return left
"""

States = dict[str, list[tuple[str, int]]]


class BullKeys:
    """A look at the keys of one queue."""

    def __init__(self, url: str, queue: str, prefix: str = "bull") -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, single_connection_client=True)
        self._root = f"{prefix}:{queue}:"

    def close(self) -> None:
        self._client.close()

    def look(self) -> tuple[States, int]:
        """Jobs by state, each with the time that it waits for (0 = none), and the server's time in us; all at one instant."""
        root = self._root
        with self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            for key in ("wait", "paused", "active"):
                pipe.lrange(root + key, 0, -1)
            pipe.eval(LOCKS, 1, root + "active", root)
            pipe.zrange(root + "delayed", 0, -1, withscores=True)
            for key in ("completed", "failed"):
                pipe.smembers(root + key)
            (seconds, us), wait, paused, active, left_ms, delayed, completed, failed = pipe.execute()
        srv_us = int(seconds) * 1_000_000 + int(us)
        states: States = {
            "waiting": [(job, 0) for job in [*wait, *paused]],
            "active": [(job, srv_us // 1_000 + max(0, left)) for job, left in zip(active, left_ms, strict=True)],
            "delayed": [(job, int(score // SCORE_UNIT)) for job, score in delayed],
            "done": [(job, 0) for job in sorted(completed)],
            "dead": [(job, 0) for job in sorted(failed)],
            "blocked": [],
        }
        return states, srv_us

    def drained(self) -> bool:
        """True when no job is left that still has to run."""
        states, _ = self.look()
        return not any(states[name] for name in ("waiting", "active", "delayed"))

    def snapshot(self, harness: HistoryFile, name: str, t_ns: int) -> None:
        """Write a final snapshot into the history of the harness."""
        states, srv_us = self.look()
        for state, jobs in states.items():
            harness.append(rows.final(name, state=state, count=len(jobs), jobs=jobs, srv_us=srv_us), t_ns=t_ns)
