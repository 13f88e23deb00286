"""One episode: an empty queue, some processes, faults for a while; then nothing is in the way any more and all must end well."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from chaos.simulate.chance import Chance
from chaos.simulate.judge import Judge
from chaos.simulate.plan import Plan, Result
from chaos.simulate.planned_actions import PlannedAction, plan_actions, remove_schedules, resume_all
from chaos.simulate.presence import plan_cuts
from chaos.simulate.producer import Producer
from chaos.simulate.profile import PIECE_WORDS, Profile
from chaos.simulate.read_state import READ_STATE
from chaos.simulate.server import Reading, Scripts, SimulatedServer
from chaos.simulate.state import EMPTY, open_state
from chaos.simulate.wire import Wire
from chaos.simulate.worker import SimulatedWorker
from chaos.simulate.world import MS, Found, TimeIsUp, World
from engine.models.lanes import Lanes
from engine.ops.admin import MakeTestQueue
from engine.options import checked
from engine.redis import scripts

QUEUE = "sim"
#: A dead worker's place is taken after this.
_RESTART_MS = 700
#: Rule 37: what was claimable before the last heal has started this long after it, beyond one lease.
_RECOVERY_MS = 6_000
#: Windows of rates are shorter, and so is the time between sweeps.
_MENDING_MS = 4_000
#: An obliteration that was cut off leaves a pause of this length, and when it was to end is known for as long.
_PAUSE_MS = 60_000
#: Tombstones, records and the like live no longer than this.
_LEFTOVERS_MS = 120_000
#: No job is delayed for longer.
_DELAY_MS_MAX = 10_000
#: No clock is ever further from its start than this.
_CLOCK_MS_MAX = 40_000_000
#: Full at 2^48: this many sequences are left.
_SEQUENCES_LEFT = 4

JobsPlan = Plan[Profile, PlannedAction]


def plan_of(seed: int, profile: Profile) -> JobsPlan:
    """The plan that a seed makes of a profile."""
    return Plan(seed, profile, plan_actions(profile, random.Random(seed)))


class Scene(NamedTuple):
    """Where an episode is played: a server, a model, its scripts, and how its keys are read."""

    wire: Wire
    model: Any
    scripts: Scripts
    reading: Reading[Any]


class Stage:
    """A server and the scripts of Lanes: where episodes are played, one after the other."""

    def __init__(self, wire: Wire, model: Lanes) -> None:
        self.wire = wire
        self._model = model
        self._scenes: dict[bool, Scene] = {}

    def _scene(self, *, pieces: bool) -> Scene:
        """The model and its scripts; with `pieces` those that work through their lists in pieces of four words."""
        if pieces not in self._scenes:
            with patch.object(scripts, "PIECE_WORDS", PIECE_WORDS) if pieces else nullcontext():
                model = self._model.sibling(self._model.keys.queue)
            model.now_ms = 0
            reading = Reading(model.keys.prefix, READ_STATE, EMPTY, open_state)
            self._scenes[pieces] = Scene(self.wire, model, Scripts(self.wire, model.scripts, reading), reading)
        return self._scenes[pieces]

    def plan(self, seed: int, profile: Profile) -> JobsPlan:
        """The plan that a seed makes of a profile."""
        return plan_of(seed, profile)

    def play(self, plan: JobsPlan) -> Result:
        """One episode."""
        return Episode(self._scene(pieces=plan.profile.pieces), plan).play()


class Episode:
    """An episode of Lanes. Other models have judges and ends of their own."""

    def __init__(self, scene: Scene, plan: JobsPlan) -> None:
        self._plan = plan
        self._profile = plan.profile
        self._chance = Chance(plan.seed, plan.faults)
        self._counts: Counter[str] = Counter()
        self._world = World(plan.profile, self._chance, plan.until_ns)
        wire, self._model, scripts, reading = scene
        self._server = SimulatedServer(self._world, wire, self._model, scripts, reading, self._counts)
        self._judge = self._new_judge()
        self._server.observer = self._server.eras = self._judge
        self._alive: list[SimulatedWorker] = []
        self._born = 0
        self._stopping = False
        self._healed_ns = 0
        self._resumes = 0

    def _new_judge(self) -> Any:
        """The judge of this episode."""
        return Judge(self._world, self._server, self._counts)

    def play(self) -> Result:
        """Play it."""
        found: Found | None = None
        with self._world.clock_of_calls():
            try:
                self._act()
            except Found as broken:
                found = broken
            except TimeIsUp:
                pass
        return Result(self._world.steps, self._world.rows, self._chance.struck, found, self._counts)

    def _act(self) -> None:
        world, profile = self._world, self._profile
        self._server.prepare(self._model.call(MakeTestQueue()))
        if profile.full_queue:
            self._server.set_raw(("SET", self._model.keys.seq, (1 << 48) - _SEQUENCES_LEFT))
        self._server.read()
        for place in range(profile.workers):
            self._hire(place)
        producer = Producer(world, self._server, self._judge, self._plan.actions)
        self._judge.watch = producer.watch
        self._plan_mishaps()
        plan_cuts(world, self._server.controls)
        chaos_end_ns = world.now_ns + profile.chaos_ms * MS
        world.run(chaos_end_ns, lambda: False)
        self._chance.healed = True
        self._server.settle()
        for process in self._alive:
            process.thaw()
            process.cut_until_ns = min(process.cut_until_ns, world.now_ns)
        self._wait_for_the_end(producer)
        self._part()

    def _plan_mishaps(self) -> None:
        """What happens to keys and processes at a time, not at a message: envelopes that rot, and workers that are stopped."""
        world, profile = self._world, self._profile
        for number in range(20):
            at_ns = world.now_ns + int(world.chance.draw("mishaps", number, 1) * profile.chaos_ms) * MS
            if profile.corrupt and world.chance.fault("rot", number, {"rot": profile.corrupt}):
                world.at(at_ns, self._rot, number)
            if profile.stops and number < 5 and world.chance.fault("stop", number, {"stop": profile.stops}):
                world.at(at_ns, self._stop_one, number)

    def _rot(self, number: int) -> None:
        """The envelope of a job that waits becomes unreadable."""
        state = self._server.state
        waiting = [job for job, places in state.places.items() if places[0].startswith(("lane:", "due"))]
        waiting = [job for job in waiting if (known := state.job(job)) is not None and known.kind == "J"]
        if not waiting:
            return
        job = waiting[int(self._chance.draw("rot", number, 5) * len(waiting))]
        self._server.set_raw(("SET", self._model.keys.job(job), b"\x07rotten"))
        self._counts["envelope rotten"] += 1
        self._world.note("disk", "rot", "the envelope is unreadable", (job,), fault=True)

    def _stop_one(self, number: int) -> None:
        candidates = [worker for worker in self._alive if not worker.stopping]
        if candidates:
            worker = candidates[int(self._chance.draw("stop", number, 5) * len(candidates))]
            self._world.note(worker.name, "is asked to stop", fault=True)
            worker.stop()

    def _hire(self, place: int) -> None:
        if self._stopping:
            return
        self._born += 1
        self._alive.append(SimulatedWorker(self._world, self._server, self._judge, f"w{self._born}", place, self._leaves))

    def _leaves(self, worker: SimulatedWorker) -> None:
        self._alive.remove(worker)
        self._healed_ns = self._world.now_ns
        if not self._stopping:
            delay_ms = _RESTART_MS * (0.5 + self._chance.draw("restart", self._born))
            self._world.at(self._world.now_ns + int(delay_ms * MS), self._hire, worker.place)

    # -- the end

    def _wait_for_the_end(self, producer: Producer) -> None:
        """Faults have stopped. Rule 37: at T = lease + 6 s after the last heal nothing is left over from before; by and by all
        jobs end. A handler that kills its process starts the time anew."""
        world, profile = self._world, self._profile
        self._healed_ns = world.now_ns
        # Messages that are still late, and calls that their drivers still repeat.
        world.disturbed(world.now_ns)
        bound_ns = (profile.lease_ms + _RECOVERY_MS) * MS
        most_ms = 2 * bound_ns // MS + self._work_ms() + _LEFTOVERS_MS
        give_up_ns = world.now_ns + most_ms * MS
        while not self._all_over(producer):
            world.run(min(give_up_ns, world.now_ns + 500 * MS), self._over(producer))
            heal_ns = max(self._healed_ns, world.trouble_ns, self._server.set_ns)
            if world.now_ns > heal_ns + bound_ns:
                self._left_over(heal_ns)
            self._wait_no_hours()
            if not producer.open and self._server.state.table("paused"):
                # Not before the last call that pauses is over.
                self._resumes += 1
                producer.does(resume_all(profile, 1000 * self._resumes))
            elif not producer.open and self._server.state.zset("cron"):
                self._resumes += 1
                producer.does(remove_schedules(tuple(self._server.state.zset("cron")), 1000 * self._resumes))
            if world.now_ns >= give_up_ns:
                left = self._living()
                raise Found(
                    "liveness", f"{', '.join(left) or 'a producer'} has not ended {most_ms} ms after the last fault", left
                )

    def _wait_no_hours(self) -> None:
        """Due times are left alone when the clock steps back (rule 10), by an hour perhaps."""
        state = self._server.state
        if self._profile.clock_runs or state.zset("active") or state.names("lane:"):
            return
        self._wait_no_longer(min(state.zset("due").values(), default=0))

    def _wait_no_longer(self, next_due_ms: float) -> None:
        ahead_ms = next_due_ms - self._server.now_ms()
        if ahead_ms > _DELAY_MS_MAX:
            self._server.correct_clock(int(ahead_ms) - _DELAY_MS_MAX)

    def _work_ms(self) -> int:
        """All runs that the jobs may need, one after the other."""
        jobs = [(job, checked(job.options)) for action in self._plan.actions for job in action.jobs]
        runs = sum(options.attempts * (self._profile.handler_ms[1] + options.backoff_ms + 100) for _, options in jobs)
        crashes = sum(options.crashes_max for job, options in jobs if "crash" in str(job.payload))
        again = 2 if self._profile.dropped else 1
        return int(again * runs / 2) + crashes * 2 * self._profile.lease_ms

    def _over(self, producer: Producer) -> Callable[[], bool]:
        return lambda: self._all_over(producer)

    def _all_over(self, producer: Producer) -> bool:
        state = self._server.state
        return (
            not producer.open
            and not state.table("paused")
            and not state.zset("cron")
            and not state.zset("blocked")
            and not state.zset("active")
            and not state.zset("due")
            and not state.names("lane:")
        )

    def _living(self) -> tuple[str, ...]:
        """Jobs that have not ended."""
        state = self._server.state
        return tuple(job for job, envelope in state.jobs() if envelope.kind not in "TR" and job not in state.zset("dead"))

    def _left_over(self, heal_ns: int) -> None:
        """What was claimable or overdue before the last heal and still is."""
        book = self._judge.book
        for job, since_ns in {**book.claimable_ns, **book.overdue_ns, **book.freed_ns}.items():
            if since_ns < heal_ns:
                late_ms = (self._world.now_ns - heal_ns) // MS
                raise Found("liveness", f"{job} is where it was before the last fault, {late_ms} ms ago", (job,))

    def _part(self) -> None:
        """All workers stop; what is left is what may be: the dead, the last finished ones, and what counts and configures."""
        world = self._world
        # Sweeps mend what is left: ends of windows, limits that nothing waits for any more, workers that have died.
        ends_ms = max(self._server.state.zset("rest").values(), default=0) - self._server.now_ms()
        mending_ms = int(_MENDING_MS + max(0, min(ends_ms, _PAUSE_MS))) + self._profile.beats_for_ms
        world.run(world.now_ns + mending_ms * MS, lambda: False)
        self._stopping = True
        for worker in list(self._alive):
            worker.stop()
        end_ns = world.now_ns + 40_000 * MS
        world.run(end_ns, lambda: not self._alive)
        if self._alive:
            raise Found("stop", f"{self._alive[0].name} has not left 40 s after it was told to")
        world.run(world.now_ns + _LEFTOVERS_MS * MS, lambda: False)
        # Where the clock was set back, keys expire by the time that it showed before.
        self._server.read(self._server.now_ms() + (0 if self._profile.clock_runs else _CLOCK_MS_MAX))
        self._judge.over(self._server.state)
        self._nothing_left()

    def _nothing_left(self) -> None:
        state = self._server.state
        dead = state.zset("dead")
        for name in state.raw:
            kind, _, rest = name.partition(":")
            if kind in ("job", "run") and rest in dead:
                continue
            if kind == "unique" and not self._profile.exact:
                # Of an enqueue that was cut off before its job was there; the next one with this key takes it over.
                continue
            if kind == "result" and rest in dead and state.views[name][1] > 0:
                # The error of one that cannot be read is kept for a day.
                continue
            if kind == "lost" or (kind == "lacks" and rest in dead):
                # What a job died for want of, and the way from its parent to it, are kept for 90 days.
                continue
            if name not in _LASTING and kind not in ("wake", "took", "lock"):
                jobs = (rest,) if kind in ("job", "run") else ()
                raise Found("leak", f"{name} is left when all has ended", jobs)


#: Keys that outlive all jobs.
_LASTING = frozenset(
    {"sweep", "seq", "classes", "routed", "settings", "stats", "dead", "done", "limits", "retention", "era", "history"}
)
