"""Invariants of time: what must happen soon when nothing is in the way, and all of it in the end (rules 13, 22 and 37)."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.children_invariants import freed
from chaos.simulate.incarnations import Incarnations
from chaos.simulate.limits_invariants import claimable
from chaos.simulate.member_invariants import orphaned
from chaos.simulate.places import places_of
from chaos.simulate.presence_invariants import unnoticed
from chaos.simulate.server import SimulatedServer
from chaos.simulate.state import QueueKeys, State
from chaos.simulate.worker import SimulatedWorker
from chaos.simulate.world import EPOCH_MS, MS, Found, World
from engine.ops.jobs import Lease
from engine.worker.machine.sweeping import AGAIN_MS, FOLLOW_MS

#: A process may still be busy for so long with what a fault has left behind: a timeout, a pause, a new connection.
AFTERMATH_MS = 4_000
#: Travel and timers.
_SLACK_MS = 60
#: A finish waits for others for 5 ms, and for its timer.
_LINGER_MS = 8
#: 200 ms until a job is given back, 50 ms until a handler counts as slow, and the mean time of a run.
_HOARD_MS = 1_000
#: Delayed jobs start within 100 ms of their due time (rule 13).
_DUE_MS = 100
#: Turns to look after the leader are given out so far ahead.
_TURNS_MS = 8_000
#: Who has a job that was cancelled hears of it within so long (rule 26).
_TOLD_MS = 1_000
#: A worker that is new has connected and beats.
_BORN_MS = 5_000


class Timely:
    """Watches how long work lies where it should not."""

    def __init__(self, world: World, server: SimulatedServer, book: Book, incarnations: Incarnations) -> None:
        self._world = world
        self._server = server
        self._book = book
        self._incarnations = incarnations
        # A follower waits so long with what it has heard of, which its leader may not know yet.
        self._follow_ms = FOLLOW_MS if world.profile.beat_ms else 0
        # Cancelled tokens that were seen, and since when those are cancelled whose holders have not heard of it.
        self._told_of: set[tuple[str, str]] = set()
        self._untold_ns: dict[tuple[str, str], int] = {}

    def check(self, state: State) -> None:
        """After a delivery: work that may be claimed is, due jobs are promoted, leases that have ended are taken."""
        world, book = self._world, self._book
        now_ns, now_ms = world.now_ns, self._server.now_ms()
        waiting = [job for name in state.names("ready:") for job in claimable(state, name[6:], now_ms)]
        over = [member[10:] for member, due_ms in state.zset("due").items() if due_ms < now_ms]
        over += [job for job, deadline_ms in state.zset("active").items() if deadline_ms < now_ms]
        over += [member for member, until_ms in state.zset("rest").items() if until_ms < now_ms]
        over += [f"{name} at {next_ms:.0f}" for name, next_ms in state.zset("cron").items() if next_ms < now_ms]
        free = freed(state)
        for known, found in ((book.claimable_ns, waiting), (book.overdue_ns, over), (book.freed_ns, free)):
            for job in [job for job in known if job not in found]:
                del known[job]
            for job in found:
                known.setdefault(job, now_ns)
        if not (waiting or over or free):
            return
        calm_ns = self._calm_since_ns()
        idle = self._idle_since_ns(calm_ns)
        if idle is None:
            return
        worker, idle_ns = idle
        sweep_ms = worker.settings.sweep_ms
        for job, since_ns in book.claimable_ns.items():
            envelope = state.job(job)
            takes = self._idle_since_ns(calm_ns, envelope.class_name if envelope is not None else "")
            waited_ms = (now_ns - max(since_ns, takes[1])) // MS if takes is not None else 0
            # What wants something of its worker has a class that this one may have to hear of first.
            sweeps = 2 if envelope is not None and "@" in envelope.class_name else 1
            if takes is not None and waited_ms > sweeps * sweep_ms + _SLACK_MS:
                raise Found("pickup", f"{job} can be claimed, {takes[0].name} is idle, and {waited_ms} ms pass", (job,))
        for job, since_ns in book.freed_ns.items():
            waited_ms = (now_ns - max(since_ns, idle_ns)) // MS
            if waited_ms > 2 * sweep_ms + _DUE_MS + _SLACK_MS:
                raise Found("blocked", f"{job} waits for nobody any more and is blocked for {waited_ms} ms", (job,))
        if not self._may_reap(state, now_ms):
            return
        for job, since_ns in book.overdue_ns.items():
            waited_ms = (now_ns - max(since_ns, idle_ns)) // MS
            if waited_ms > _DUE_MS + _SLACK_MS + self._follow_ms:
                raise Found("due", f"{job} is over its time, {worker.name} is idle, and {waited_ms} ms pass", (job,))

    def swept(self, state: QueueKeys) -> None:
        """After a delivery: somebody sweeps, and where the leader has died another one does (rule 13)."""
        profile, world, server = self._world.profile, self._world, self._server
        if not profile.clock_runs:
            return
        living = [
            worker
            for worker in self._incarnations.workers
            if worker.alive and not worker.stopping and worker.born_ns < world.now_ns - _BORN_MS * MS
        ]
        swept_ms = int(float(state.table("sweep").get("last_sweep_ms", 0)))
        silent_ms = server.now_ms() - swept_ms
        if living and world.now_ns > self._calm_since_ns() and silent_ms > AFTERMATH_MS:
            raise Found("unswept", f"{living[0].name} lives, and for {silent_ms} ms nobody has swept")

    def told(self) -> None:
        """After a delivery: who has a job that was cancelled hears of it within a second (rule 26)."""
        world = self._world
        for cancelled in sorted(self._book.cancelled - self._told_of):
            self._told_of.add(cancelled)
            self._untold_ns[cancelled] = world.now_ns
        for (job, token), since_ns in list(self._untold_ns.items()):
            fence, _, nonce = token.partition(":")
            worker = self._incarnations.owner_of(token)
            if worker is None or not worker.alive or not worker.holds(Lease(job, int(fence), nonce)):
                del self._untold_ns[job, token]
                continue
            waited_ms = (world.now_ns - max(since_ns, self._calm_since_ns())) // MS
            if waited_ms > _TOLD_MS:
                raise Found("told", f"{job} is cancelled, and for {waited_ms} ms {worker.name} has not heard of it", (job,))

    def new_era(self) -> None:
        """A failover has taken the last cancels back."""
        self._untold_ns.clear()

    def orphans(self, state: State) -> None:
        """After a delivery: the leases of workers that have stopped beating do not last until their ends."""
        profile, world, server = self._world.profile, self._world, self._server
        if not profile.beat_ms or not profile.clock_runs:
            return
        now_ms = server.now_ms()
        heard_ms = int(float(state.table("sweep").get("no_orphans_before_ms", 0)))
        calm_ms = EPOCH_MS + server.offset_ms + self._calm_since_ns() // MS
        if not any(
            worker.alive and not worker.stopping and worker.born_ns < world.now_ns - _BORN_MS * MS
            for worker in self._incarnations.workers
        ):
            return
        for job, deadline_ms in state.zset("active").items():
            worker = self._incarnations.owner_of(state.run(job).token)
            if worker is None or worker.alive or not orphaned(state, state.run(job).token.split(":")[1], now_ms):
                continue
            died_ms = EPOCH_MS + server.offset_ms + worker.died_ns // MS
            since_ms = max(died_ms, calm_ms, heard_ms, int(deadline_ms) - profile.lease_ms)
            most_ms = profile.beats_for_ms + profile.beat_ms + 2 * worker.settings.sweep_ms + _SLACK_MS
            if now_ms - since_ms > most_ms:
                text = f"{worker.name} is dead and known to be for {now_ms - since_ms} ms, and {job} is still leased to it"
                raise Found("orphan", text, (job,))

    def lost(self, state: State) -> None:
        """After a delivery: the leases of a worker whose connection is gone are taken soon (rule 39)."""
        world, clients = self._world, self._server.clients
        if not world.profile.presence:
            return
        unnamed = all(worker.proxied for worker in self._incarnations.workers if worker.alive)
        for job in state.zset("active"):
            token = state.run(job).token
            worker = self._incarnations.owner_of(token)
            if worker is None or worker.alive or not unnoticed(state, clients, token.split(":")[1], unnamed=unnamed):
                continue
            ended_ns = clients.ended_ns.get(state.table("connections")[token.split(":")[1]], 0)
            waited_ms = (world.now_ns - max(ended_ns, self._calm_since_ns())) // MS
            # Nobody looks, because nobody may take a lease, until living workers could renew after a stall (rule 11).
            waited_ms = min(waited_ms, self._server.now_ms() - self._no_reap_before_ms(state))
            # Where the leader may be unable to look, its followers do when it has not for two seconds, each in its turn.
            sweeps = 6 if world.profile.absent else 3
            if waited_ms > sweeps * worker.settings.sweep_ms + AGAIN_MS + _SLACK_MS:
                text = f"{worker.name} is dead, for {waited_ms} ms its connection is gone, and {job} is still leased to it"
                raise Found("unnoticed", text, (job,))

    def in_hand(self, worker: SimulatedWorker) -> None:
        """Rule 21, after an event of a worker: finishes linger for 5 ms, jobs that a slow worker has taken ahead go back."""
        now_ns = self._world.now_ns
        if worker.stopping or now_ns < self._calm_since_ns():
            return
        for lease, ended_ns in worker.untold.items():
            if not worker.works and now_ns - ended_ns > _LINGER_MS * MS:
                waited_ms = (now_ns - ended_ns) // MS
                raise Found(
                    "linger", f"{lease.job} has ended on {worker.name}, and {waited_ms} ms later no call says so", (lease.job,)
                )
        for lease, (since_ns, job) in worker.unstarted.items():
            if now_ns - since_ns > _HOARD_MS * MS and not job.crashes:
                waited_ms = (now_ns - since_ns) // MS
                raise Found("hoard", f"{worker.name} has kept {lease.job} for {waited_ms} ms without starting it", (lease.job,))

    def _calm_since_ns(self) -> int:
        trouble_ns = max(self._world.trouble_ns, self._server.set_ns)
        # The turns of the dead, in which nobody looks after the leader, may come before those of the living (rule 13).
        turns = [worker for worker in self._incarnations.workers if 0 < trouble_ns - worker.died_ns < _TURNS_MS * MS]
        lost_ms = len(turns) * self._world.profile.sweep_ms if self._world.profile.beat_ms else 0
        return trouble_ns + (AFTERMATH_MS + lost_ms) * MS

    def _idle_since_ns(self, calm_ns: int, class_name: str = "") -> tuple[SimulatedWorker, int] | None:
        """The worker that has had a free handler for longest, of those that may run a class."""
        places = places_of(class_name)
        best: tuple[SimulatedWorker, int] | None = None
        for worker in self._incarnations.workers:
            if worker.place in places and worker.alive and worker.room_since_ns is not None and not worker.stopping:
                since_ns = max(worker.room_since_ns, calm_ns)
                if best is None or since_ns < best[1]:
                    best = (worker, since_ns)
        return best

    def _may_reap(self, state: QueueKeys, now_ms: int) -> bool:
        return now_ms >= self._no_reap_before_ms(state)

    def _no_reap_before_ms(self, state: QueueKeys) -> int:
        return int(float(state.table("sweep").get("no_reap_before_ms", 0)))
