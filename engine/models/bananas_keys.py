"""The keys of a Bananas keyspace, each with its Redis type and content; `lua/bananas/modules/wire.lua` has the same names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BananasKeys:
    """Key names of one keyspace; `root` is their prefix with its colon. `layout`: `document`; `live` has other lists of the
    default route, and other keys of schedules; `routed` only the latter."""

    root: str = "bananas:"
    layout: str = "document"

    def job(self, id: str) -> str:
        """String: the job as JSON, with times as RFC 3339; to live 24 h once it has completed, 7 days once it is dead."""
        return f"{self.root}job:{id}"

    def waiting(self, route: str, level: str) -> str:
        """List: ids that wait, put in at the left, taken from the right; `level` is high, normal or low."""
        if self.layout == "live" and route == "default":
            return f"{self.root}queue:{level}"
        return f"{self.root}route:{route}:queue:{level}"

    def result(self, id: str) -> str:
        """Hash: status, completed_at (RFC 3339), duration_ms, result (JSON) or error; to live 1 h, of a dead job 24 h."""
        return f"{self.root}result:{id}"

    def notify(self, id: str) -> str:
        """Channel: `ready`, when the result is there."""
        return f"{self.root}result:notify:{id}"

    def cron_lock(self, schedule: str) -> str:
        """String: token of the scheduler that runs a tick; the originals set an expiry of 60 s, the document one of 5 minutes."""
        return f"{self.root}{'cron:lock' if self.layout == 'document' else 'schedule_lock'}:{schedule}"

    def cron_state(self, schedule: str) -> str:
        """Hash: last_run, next_run, last_success (RFC 3339), last_error, run_count."""
        return f"{self.root}{'cron:state' if self.layout == 'document' else 'schedules'}:{schedule}"

    def taken_from(self, id: str) -> str:
        """String, the engine's: the list that a job was taken from, if that was not the one of its route; for 7 days."""
        return f"{self.root}ironclaim:from:{id}"

    @property
    def processing(self) -> str:
        """List: ids of active jobs, of all routes."""
        return f"{self.root}queue:processing"

    @property
    def dead(self) -> str:
        """List: ids of dead jobs, the last one at the left."""
        return f"{self.root}queue:dead"

    @property
    def scheduled(self) -> str:
        """Zset: id by the unix time in seconds at which it is due; whole in this engine and Go, with fractions in others."""
        return f"{self.root}queue:scheduled"

    @property
    def routes(self) -> str:
        """Set, the engine's: the known routing keys but the default one."""
        return f"{self.root}ironclaim:routes"

    @property
    def seq(self) -> str:
        """String, the engine's: a number that orders delayed jobs of one millisecond, and names jobs that have no id."""
        return f"{self.root}ironclaim:seq"

    @property
    def done(self) -> str:
        """Zset, the engine's: id by the time (ms) at which one of its workers finished it; the last 1,000. The format has no
        such list."""
        return f"{self.root}ironclaim:done"

    @property
    def adopting(self) -> str:
        """Zset, the engine's: id by the time (ms) when it was first seen in `queue:processing` without a lease of the
        engine."""
        return f"{self.root}ironclaim:adopting"

    @property
    def purge(self) -> str:
        """String, the engine's: the position from which a deletion goes on; for an hour."""
        return f"{self.root}ironclaim:purge"
