"""Checks each step of an episode: after a delivery the raw keys, after an event of a process what that process holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chaos.simulate.book import Birth, Book
from chaos.simulate.call_invariants import check_call, check_mark, token_of
from chaos.simulate.clear_invariants import check_obliterated
from chaos.simulate.due_invariants import check_back_off
from chaos.simulate.history_invariants import check_history
from chaos.simulate.incarnations import Incarnations
from chaos.simulate.keys_invariants import check_keys
from chaos.simulate.life_invariants import check_life
from chaos.simulate.line import Outcome, Process, describe_name
from chaos.simulate.places import places_of
from chaos.simulate.planned_actions import PlannedAction
from chaos.simulate.presence_invariants import check_presence
from chaos.simulate.profile import PIECE_WORDS
from chaos.simulate.revival_invariants import check_revivals
from chaos.simulate.server import Delivery, SimulatedServer
from chaos.simulate.state import EXPIRED, QueueKeys, State
from chaos.simulate.telling import jobs_of, results_of, tell
from chaos.simulate.timely import AFTERMATH_MS, Timely
from chaos.simulate.watching import SimulatedWatch
from chaos.simulate.worker import SimulatedWorker
from chaos.simulate.world import EPOCH_MS, MS, Found, World
from engine.errors import ScriptFault
from engine.ops.base import Operation
from engine.ops.claims import Claim, Claimed, Finish, FinishedAndClaimed, LeasedJob, ReapLost, Release, Retry, Sweep, Swept
from engine.ops.jobs import Enqueue, EnqueueMany, Lease
from engine.ops.workers import AcquireLock
from engine.queue.era import DataLoss
from engine.redis.exchange import Sent

#: Far beyond any episode that ends.
_STEPS_MAX = 20_000


class Judge:
    """The invariants of one episode."""

    def __init__(self, world: World, server: SimulatedServer, counts: Counter[str]) -> None:
        self.world = world
        self.book = Book()
        self._incarnations = Incarnations()
        self._server = server
        self._counts = counts
        self._profile = world.profile
        self._timely = Timely(world, server, self.book, self._incarnations)
        # The failed runs before each that has started.
        self._failures: dict[Lease, int] = {}
        self._memory_refusals = "memory" in self._profile.server
        self._kept: dict[str, Any] = {}
        # Jobs whose producer was told that this very call has made them, and whether it has to be told that some are gone.
        self._made: set[Birth] = set()
        self._owed = False
        #: What the producers watch over the era with.
        self.watch: SimulatedWatch | None = None

    def knows(self, incarnation: str, worker: SimulatedWorker) -> None:
        """Whose incarnation it is."""
        self._incarnations.add(incarnation, worker)

    def will_lose(self) -> None:
        """What the server writes from now on is lost."""
        self._kept = self.book.kept()

    def new_era(self, state: State) -> None:
        """A failover has taken the last writes back."""
        jobs, ends = self.book.created, self.book.ended
        self.book.goes_back(self._kept)
        if self.watch is not None and (jobs - self.book.created) & self._made:
            # A call that began before the failover before this one, and was answered after it, is in nobody's count.
            counted = self.watch.mark[1] > int(state.views.get("seq", "0"))
            self._counts["loss of a call that went over a failover"] += not counted
            self._owed = self._owed or counted
        self._counts["job taken back"] += len(jobs - self.book.created)
        self._counts["end taken back"] += len(ends - self.book.ended)
        self._timely.new_era()
        check_keys(state, self.book, exact=self._profile.exact)

    def loses(self, process: Process, loss: DataLoss) -> None:
        """A process is told that its server went back, which is true, and where jobs are said to be gone, some are."""
        self._counts[f"loss told {loss.missing}"] += 1
        self.world.note(process.name, "is told of a loss", loss.missing)
        jobs_gone = bool(self.book.ever_taken_back)
        if not self._server.era or (loss.missing == "sequence" and not jobs_gone):
            raise Found("false loss", f"{process.name} is told that it misses {loss.missing}, in era {self._server.era}")
        if not isinstance(process, SimulatedWorker):
            self._owed = False

    def over(self, state: State) -> None:
        """All has ended: each job whose producer was told that it is there has ended or is dead, or a failover has taken it."""
        book = self.book
        if self._owed and self.watch is not None and self.watch.met == self._server.replid:
            raise Found("loss untold", "jobs of the producer are gone, and it has met the new server and was not told")
        self._counts["job made again"] += len(book.ever_taken_back & book.created)
        self._counts["job ended again"] += len(book.ends_taken_back & book.ended)
        for birth in sorted(book.acknowledged - book.ended - book.taken_back):
            job, nonce = birth
            envelope = state.job(job)
            if job not in state.zset("dead") or (envelope is not None and envelope.kind == "J" and envelope.nonce != nonce):
                raise Found("acknowledged", f"the producer of {job} was told that it is there, and it has not ended", (job,))

    # -- after a delivery

    def delivered(self, delivery: Delivery) -> None:
        """All invariants after one delivery."""
        message = delivery.message
        copy = " copy" if message.copy else ""
        what = f"{describe_name(message.call)}#{message.number}{copy}"
        if delivery.error:
            self._refused(delivery, what)
        else:
            for result in results_of(delivery):
                self._counts[result] += 1
            jobs = jobs_of(delivery)
            self._counts["more than a piece"] += self._profile.pieces and len(jobs) > PIECE_WORDS
            self.world.note(message.line.name, what, tell(delivery), jobs)
        self._noted(delivery)
        ended = (delivery.after.job(name[4:]) for name in delivery.after.changed if name.startswith("job:"))
        self._counts["job expired"] += any(envelope is not None and envelope.outcome == EXPIRED for envelope in ended)
        self._counts["child that may read a result"] += bool(self.book.heirs)
        exact = self._profile.exact
        if exact and not delivery.error:
            check_call(delivery, self.book, self._profile)
            check_mark(delivery)
            check_presence(delivery, self.book, self._server.clients, self.world.now_ns, clock_runs=self._profile.clock_runs)
        else:
            check_life(delivery, self.book)
        check_revivals(delivery, self.book, exact=exact)
        self._counts["end in the history"] += check_history(delivery, self.book, exact=exact)
        check_keys(delivery.after, self.book, exact=exact)
        if isinstance(delivery.reply, Swept):
            silent_ms = self._profile.lease_ms
            if isinstance(delivery.operation, ReapLost):
                silent_ms = 0
            elif isinstance(delivery.operation, Sweep) and delivery.operation.orphans:
                silent_ms = self._profile.beats_for_ms
            self._live_leases(delivery, delivery.reply, silent_ms)
        self._dead_leases(delivery.after)
        self._timely.check(delivery.after)
        self._timely.orphans(delivery.after)
        self._timely.lost(delivery.after)
        self._timely.swept(delivery.after)
        self._timely.told()

    def _noted(self, delivery: Delivery) -> None:
        """A late message may write at a server that nobody has noted; its sequence is then taken for one that has come along."""
        noted = next(iter(delivery.after.members("era")), "").split(" ", 1)[0] == self._server.replid
        if self._owed and not noted and "seq" in delivery.after.changed:
            self._owed = False
            self._counts["loss hidden by a late write"] += 1

    def _refused(self, delivery: Delivery, what: str) -> None:
        self.world.note(delivery.message.line.name, what, delivery.error[:60], jobs_of(delivery))
        self._counts["refused for memory" if "OOM" in delivery.error else "cut off" if delivery.cut else "error"] += 1
        takes_memory = isinstance(delivery.operation, Enqueue | EnqueueMany | AcquireLock)
        if delivery.cut or (takes_memory and self._memory_refusals and "OOM" in delivery.error):
            return
        if (
            isinstance(delivery.operation, Enqueue | EnqueueMany)
            and self._profile.full_queue
            and "sequence exhausted" in delivery.error
        ):
            return
        rule = "memory" if "OOM" in delivery.error else "script error"
        raise Found(rule, f"{what} was answered {delivery.error}", jobs_of(delivery))

    def _live_leases(self, delivery: Delivery, reply: Swept, silent_ms: int) -> None:
        """Rule 11: who lives and can be heard keeps its leases, also when the server stood still. `silent_ms`: for how long it
        must not have been heard."""
        now_ns, silent_ns = self.world.now_ns, silent_ms * MS
        if self._profile.lease_ms < 9000:
            # Too short for a call that has to be sent again.
            return
        for lease, _ in reply.leases:
            worker = self._incarnations.get(lease.nonce.split(":")[0])
            if (
                worker is None
                or not worker.alive
                or lease not in worker.running
                or lease.job not in delivery.before.zset("active")
            ):
                continue
            since_ns = max(worker.trouble_ns, self._server.set_ns)
            if now_ns - since_ns > silent_ns + AFTERMATH_MS * MS:
                raise Found(
                    "live lease", f"the lease of {lease.job} is taken from {worker.name}, which lives and renews it", (lease.job,)
                )

    def _dead_leases(self, state: QueueKeys) -> None:
        """Rules 4 and 9: what a dead worker sent before its death, however late it arrives, does not keep a job for long."""
        lease_ms = self._profile.lease_ms
        for job, deadline_ms in state.zset("active").items():
            run = state.run(job)
            worker = self._incarnations.owner_of(run.token)
            if worker is None or worker.alive or self._server.set_ns > worker.born_ns:
                continue
            died_ms = EPOCH_MS + self._server.offset_ms + worker.died_ns // MS
            most_ms = lease_ms + (lease_ms // 3 if run.renewal else lease_ms * 4 // 5)
            if deadline_ms > died_ms + most_ms + 10:
                over_ms = deadline_ms - died_ms
                raise Found(
                    "ghost lease", f"{worker.name} is dead, and its lease of {job} ends {over_ms:.0f} ms after it", (job,)
                )

    # -- after an event of a process

    def sends(self, worker: SimulatedWorker, operation: Operation) -> None:
        """Rule 4: one claim is outstanding, and it is sent until it is answered."""
        claim = operation.claim if isinstance(operation, Finish) else operation
        if isinstance(claim, Claim):
            nonce = f"{claim.incarnation}:{claim.counter}"
            if worker.asked not in ("", nonce):
                raise Found("claim given up", f"{worker.name} claims anew while its claim {worker.asked} is unanswered")
            worker.asked = nonce
        if isinstance(operation, Finish):
            for lease in operation.leases:
                worker.untold.pop(lease, None)
            sent = {operation.leases[value.item]: value.data for value in operation.values}
            for lease in operation.leases:
                if sent.get(lease) != worker.returned.get(lease):
                    text = (
                        f"the handler of {lease.job} returned {worker.returned.get(lease)}, and its finish says {sent.get(lease)}"
                    )
                    raise Found("result bytes", text, (lease.job,))
        elif isinstance(operation, Retry):
            for failure in operation.failures:
                self._backs_off(failure.lease, failure.delay_ms)
        elif isinstance(operation, Release):
            for lease in operation.leases:
                worker.unstarted.pop(lease, None)

    def _backs_off(self, lease: Lease, delay_ms: int) -> None:
        birth = self.book.leases.get((lease.job, token_of(lease)))
        asked = self.book.asked.get(birth) if birth is not None else None
        if asked is not None:
            self._counts["growing wait"] += asked.options.backoff != "fixed" and self._failures[lease] > 0
            check_back_off(lease, asked.options, self._failures[lease], delay_ms)

    def hears(self, worker: SimulatedWorker, operation: Operation, outcome: Outcome) -> None:
        """What a call brought to a worker."""
        asks = isinstance(operation, Claim) or (isinstance(operation, Finish) and operation.claim is not None)
        if asks and (isinstance(outcome, Sent | ScriptFault)):
            worker.asked = ""
        reply = outcome.reply if isinstance(outcome, Sent) else None
        claimed = reply.claimed if isinstance(reply, FinishedAndClaimed) else reply
        if isinstance(claimed, Claimed):
            for job in claimed.jobs:
                worker.unstarted[job.lease] = (self.world.now_ns, job)

    def acted(self, worker: SimulatedWorker) -> None:
        """What a worker holds after an event."""
        profile, steps = self._profile, worker.steps
        assert steps is not None
        if len(worker.running) > worker.settings.places:
            raise Found("concurrency", f"{worker.name} runs {len(worker.running)} handlers, {worker.settings.places} may run")
        if steps.leased > worker.settings.places + profile.prefetch and not self.world.trouble_ns:
            raise Found("prefetch", f"{worker.name} has {steps.leased} jobs in hand")
        if self.world.steps > _STEPS_MAX:
            raise Found("busy loop", f"{self.world.steps} steps, and no end")
        self._timely.in_hand(worker)
        room = steps.leased < worker.settings.places and not worker.stopping
        if not room:
            worker.room_since_ns = None
        elif worker.room_since_ns is None:
            worker.room_since_ns = self.world.now_ns

    def starts(self, worker: SimulatedWorker, job: LeasedJob) -> None:
        """A handler starts: under a lease that lives (rule 9), once for each token, and one poisonous job at a time (rule 12)."""
        lease, token = job.lease, token_of(job.lease)
        self._counts["handler started"] += 1
        self._counts["routed job started"] += "@" in job.class_name
        self._counts["job of many places started"] += job.options.cost > 1
        if (lease.job, token) in self.book.started:
            raise Found("one start", f"{worker.name} starts {lease.job} twice under {token}", (lease.job,))
        self.book.started.add((lease.job, token))
        self._failures[lease] = job.failures
        if worker.place not in places_of(job.class_name):
            raise Found(
                "routed", f"{worker.name} starts {job.lease.job} of class {job.class_name}, which is not for it", (lease.job,)
            )
        state = self._server.state
        leased_ns = self.book.leased_ns.get((lease.job, token), 0)
        # The holder of a cancelled job hears of that at the next renewal.
        # So does the one that was taken for dead by its beats: the fence makes that safe.
        heard = (lease.job, token) in self.book.cancelled | self.book.orphaned
        known = (lease.job, token) in self.book.leased_ns and not heard
        if known and leased_ns >= self._server.era_ns and self._server.set_ns <= leased_ns:
            run = state.run(lease.job)
            if run.token != token or lease.job not in state.zset("active"):
                now = f"the token is {run.token}" if run.token else "nobody holds it"
                raise Found("start without lease", f"{worker.name} starts {lease.job} under {token}, and {now}", (lease.job,))
            if job.crashes and run.marked != token:
                raise Found("mark", f"{lease.job} has a crash behind it and starts without its mark", (lease.job,))
        others = [other.lease.job for other in worker.running.values() if other.crashes]
        if job.crashes and others:
            raise Found(
                "poison pair",
                f"{worker.name} runs {lease.job} beside {others[0]}, both with a crash behind them",
                (lease.job, others[0]),
            )

    def cleared(self, action: PlannedAction, result: object) -> None:
        """What the caller of an action that removes many jobs hears."""
        if action.clear is not None and self._profile.exact:
            does, _ = action.clear
            self._counts[f"{does} over"] += 1
            if does == "obliterate" and result is True:
                check_obliterated(self._server.state, self.book, f"producer.call{action.number}")

    def told(self, draft: Enqueue, nonce: bytes, told: str) -> None:
        """What a producer hears: `created` is true, and after `nothing was applied` nothing ever is."""
        self._counts[f"producer told {told}"] += 1
        job, birth = draft.job, (draft.job, nonce)
        if told in ("created", "repeated"):
            self.book.acknowledged.add(birth)
            if told == "created":
                self._made.add(birth)
            if birth not in self.book.created | self.book.taken_back:
                raise Found("told created", f"the producer of {job} was told that it is there, and it never was", (job,))
        elif told in ("duplicate", "refused", "unavailable", "orphan"):
            if birth in self.book.created:
                raise Found("told nothing", f"the producer of {job} was told {told}, and its job was made", (job,))
            self.book.nothing.add(birth)
