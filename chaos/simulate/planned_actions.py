"""What the producers of an episode will do: calls that make jobs, and calls of the administration."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from chaos.simulate.places import WISHES
from chaos.simulate.profile import Profile
from engine.ops.admin import AdminAction, AdminOperation, HistoryRule, Limit, Pause, Resume, SetHistory, SetLimit
from engine.ops.jobs import Backoff
from engine.queue.producing import NewJob

Change = Literal["put", "enable", "disable", "remove"]
_CHANGES: tuple[Change, ...] = ("put", "put", "disable", "enable", "enable", "remove")
_BY_HAND: tuple[AdminAction, ...] = (
    "cancel",
    "cancel",
    "cancel",
    "remove",
    "requeue",
    "requeue",
    "discard",
    "run_now",
)
#: Only so many jobs have children: scripts look at a few of them at random, and here at all.
_PARENTS = 8
_SCHEDULES = ("daily", "nightly")
_LOCKS = ("door", "gate")
_BACKOFFS: tuple[Backoff, ...] = get_args(Backoff)
#: What is removed in bulk: jobs of a state that are older than so long and at most so many; what waits, with what is delayed or
#: without; everything, with what is in hand or without; or, by a sweep, what is over these bounds.
Clear = Literal["clean", "drain", "obliterate", "retention"]
#: How what was buried with a parent comes back: with that parent, or with all that is dead of a workflow.
Revival = Literal["requeue", "retry"]
_CLEARS: tuple[Clear, ...] = ("clean", "clean", "clean", "drain", "obliterate")
_STATES = ("waiting", "blocked", "delayed", "dead", "finished")


@dataclass(frozen=True, slots=True)
class Hold:
    """One holder of a lock: for how long it asks each time, and how long it waits before each renewal and, last, before it gives
    the lock back, which some never do."""

    name: str
    ttl_ms: int
    waits_ms: tuple[int, ...]
    gives_back: bool


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One call: its jobs, as one `enqueue` or one `enqueue_many`; or `asks`, an administration call that lacks only the time
    after which it is void; or `hand`, what is done to which job; or `revive`, how the dead around which job come back; or
    `schedule`: put, enable, disable or remove, of which name, and how often it ticks; or `clear`, what is removed, and how; or
    `lock`, which one is held, and how; or `read`, the job whose result is read. `number` names it in the trace."""

    at_ms: int
    number: int
    jobs: tuple[NewJob, ...] = ()
    many: bool = False
    asks: AdminOperation | None = None
    hand: tuple[AdminAction, str] | None = None
    revive: tuple[Revival, str] | None = None
    schedule: tuple[Change, str, int] | None = None
    clear: tuple[Clear, Mapping[str, Any]] | None = None
    lock: Hold | None = None
    read: str = ""

    def smaller(self) -> Iterator[PlannedAction]:
        """The same call with one job less."""
        if len(self.jobs) > 1:
            for at in range(len(self.jobs)):
                yield replace(self, jobs=self.jobs[:at] + self.jobs[at + 1 :])


def plan_actions(profile: Profile, chooser: random.Random) -> tuple[PlannedAction, ...]:
    """What the producers of an episode will do."""
    actions = _administration(profile, chooser)
    actions += _schedules(profile, chooser, len(actions))
    actions += _clears(profile, chooser, len(actions))
    first = len(actions)
    made: list[str] = []
    while len(made) < profile.jobs:
        at_ms = int(chooser.random() * profile.chaos_ms)
        if profile.revivals and len(made) < _PARENTS:
            # Parents are there before their children, so that they have some when they die.
            at_ms = 50 * len(made)
        elif chooser.random() < 0.3 and len(actions) > first:
            at_ms = actions[-1].at_ms + chooser.randrange(3)
        many = chooser.random() < profile.bulk
        names: list[str] = []
        for _ in range(chooser.randint(2, profile.bulk_most) if many else 1):
            # An id that is used again later is used twice in different calls only.
            old = [name for name in made if name not in names]
            if old and chooser.random() < profile.again:
                names.append(chooser.choice(old))
            else:
                made.append(f"j{len(made) + 1}")
                names.append(made[-1])
        jobs = tuple(_job(profile, name, f"{name} by call {len(actions)}", chooser) for name in names)
        if profile.with_parents and not many and chooser.random() < profile.with_parents:
            jobs = (_child(jobs[0], made, chooser),)
        actions.append(PlannedAction(at_ms, len(actions), jobs, many))
    actions += _by_hand(profile, actions, chooser)
    actions += _revivals(profile, made, len(actions), chooser)
    actions += _reads(profile, made, len(actions), chooser)
    return (*actions, *_locks(profile, len(actions), chooser))


def _child(job: NewJob, made: list[str], chooser: random.Random) -> NewJob:
    parents = [name for name in made[:_PARENTS] if name != job.id]
    needs = chooser.sample(parents, min(len(parents), chooser.randint(1, 3)))
    job.options["needs"] = needs
    job.options["on_parent_failure"] = chooser.choice(("bury", "ignore"))
    return job


def _by_hand(profile: Profile, actions: list[PlannedAction], chooser: random.Random) -> list[PlannedAction]:
    made = [(action.at_ms, job) for action in actions for job in action.jobs]
    found: list[PlannedAction] = []
    for number in range(profile.hands):
        at_ms, job = chooser.choice(made)
        does = chooser.choice(_BY_HAND)
        # The dead are older.
        later_ms = chooser.randint(500, 12_000) if does in ("requeue", "discard") else chooser.randint(0, 4000)
        found.append(PlannedAction(at_ms + later_ms, len(actions) + number, hand=(does, str(job.id))))
    return found


def _revivals(profile: Profile, made: list[str], first: int, chooser: random.Random) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    job = ""
    for at in range(profile.revivals):
        how: Revival = chooser.choice(("requeue", "requeue", "retry"))
        # Often somebody does so soon again.
        if at and chooser.random() < 0.5:
            at_ms = actions[-1].at_ms + chooser.choice((50, 300, 1500))
        else:
            at_ms, job = int((0.2 + chooser.random()) * profile.chaos_ms), chooser.choice(made[:_PARENTS])
        actions.append(PlannedAction(at_ms, first + at, revive=(how, job)))
    return actions


def _reads(profile: Profile, made: list[str], first: int, chooser: random.Random) -> list[PlannedAction]:
    times_ms = [int(chooser.random() * (profile.chaos_ms + 5000)) for _ in range(profile.reads)]
    return [PlannedAction(at_ms, first + at, read=chooser.choice(made)) for at, at_ms in enumerate(times_ms)]


def _locks(profile: Profile, first: int, chooser: random.Random) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    for at in range(profile.locks):
        ttl_ms = chooser.choice((50, 400, 3000))
        # Some are too late to renew it.
        waits_ms = tuple(int(ttl_ms * chooser.choice((0.1, 0.5, 0.9, 1.02, 1.5))) for _ in range(chooser.randint(1, 4)))
        hold = Hold(chooser.choice(_LOCKS), ttl_ms, waits_ms, chooser.random() < 0.7)
        actions.append(PlannedAction(int(chooser.random() * profile.chaos_ms), first + at, lock=hold))
    return actions


def _schedules(profile: Profile, chooser: random.Random, first: int) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    for at in range(profile.schedules):
        name = chooser.choice(_SCHEDULES)
        change: Change = "put" if at < 2 else chooser.choice(_CHANGES)
        at_ms = int(chooser.random() * profile.chaos_ms / (4 if at < 2 else 1))
        actions.append(PlannedAction(at_ms, first + at, schedule=(change, name, chooser.choice((700, 1500, 4000)))))
    return actions


def _clears(profile: Profile, chooser: random.Random, first: int) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    for at in range(profile.clears + profile.bounds):
        does: Clear = chooser.choice(_CLEARS) if at < profile.clears else "retention"
        how: dict[str, Any] = {}
        match does:
            case "clean":
                how = {"state": chooser.choice(_STATES), "older_than_ms": chooser.choice((0, 0, 2000))}
                how["limit"] = chooser.choice((1, 100))
            case "drain":
                how = {"delayed": chooser.random() < 0.5}
            case "obliterate":
                how = {"force": chooser.random() < 0.4}
            case "retention":
                most, age_ms = chooser.choice((0, 1, 3)), chooser.choice((500, 4000, 60_000))
                how = {"done_max": most, "done_age_ms": age_ms, "dead_max": most, "dead_age_ms": age_ms}
        actions.append(PlannedAction(int(chooser.random() * profile.chaos_ms), first + at, clear=(does, how)))
    return actions


def remove_schedules(names: tuple[str, ...], first_number: int) -> tuple[PlannedAction, ...]:
    """No schedule ticks any more in the end."""
    return tuple(PlannedAction(0, first_number + at, schedule=("remove", name, 0)) for at, name in enumerate(names))


def resume_all(profile: Profile, first_number: int) -> tuple[PlannedAction, ...]:
    """Whatever is paused in the end is resumed."""
    names = ("*", *profile.names)
    return tuple(
        PlannedAction(0, first_number + at, asks=Resume(name, op_id=_op_id(first_number + at))) for at, name in enumerate(names)
    )


def _administration(profile: Profile, chooser: random.Random) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    windows = {kind: (chooser.choice((400, 1000, 2500)), chooser.choice(("fixed", "sliding"))) for kind in "nk"}
    targets = [f"n:{name}" for name in profile.names] + [f"k:{key}" for key in profile.keys] + ["k:*"] * bool(profile.keys)
    for at in range(profile.limits):
        at_ms = int(chooser.random() * profile.chaos_ms / (4 if at < 3 else 1))
        target = chooser.choice(targets)
        limit = None if at >= 3 and chooser.random() < 0.3 else _limit(profile, chooser, *windows[target[0]])
        actions.append(PlannedAction(at_ms, len(actions), asks=SetLimit(target, limit, op_id=_op_id(len(actions)))))
    for _ in range(profile.pauses):
        at_ms = int(chooser.random() * profile.chaos_ms)
        name = chooser.choice(("*", *profile.names))
        length_ms = chooser.choice((0, 500, 4000))
        actions.append(PlannedAction(at_ms, len(actions), asks=Pause(name, length_ms, op_id=_op_id(len(actions)))))
        if chooser.random() < 0.7:
            later_ms = at_ms + chooser.randint(1, 4000)
            actions.append(PlannedAction(later_ms, len(actions), asks=Resume(name, op_id=_op_id(len(actions)))))
    for at in range(profile.histories):
        # The first one comes before the jobs, or nearly so.
        at_ms = int(chooser.random() * profile.chaos_ms) if at else chooser.randrange(10)
        rule = HistoryRule(0) if at and chooser.random() < 0.2 else _history(profile, chooser)
        actions.append(PlannedAction(at_ms, len(actions), asks=SetHistory(rule, op_id=_op_id(len(actions)))))
    return actions


def _history(profile: Profile, chooser: random.Random) -> HistoryRule:
    names = (chooser.choice(profile.names),) if chooser.random() < 0.2 else ()
    return HistoryRule(chooser.choice((1000, 1000, 3)), chooser.choice((0, 0, 3000)), chooser.choice((0, 40)), names)


def _limit(profile: Profile, chooser: random.Random, per_ms: int, window: Any) -> Limit:
    slots = chooser.randint(1, 3)
    if not profile.rated:
        return Limit(concurrency=slots)
    return Limit(slots if chooser.random() < 0.3 else 0, chooser.randint(1, 4), per_ms, window)


def _op_id(number: int) -> str:
    return f"{number:016x}"


def _job(profile: Profile, name: str, text: str, chooser: random.Random) -> NewJob:
    """`text` is of this job alone: its payload is no other's."""
    draw = chooser.random()
    does = "crash" if draw < profile.poison else "fail" if draw < profile.poison + profile.failing / 2 else "ok"
    if does == "ok" and draw < profile.poison + profile.failing:
        does = "flake"
    more: dict[str, Any] = {}
    if profile.dropped and chooser.random() < profile.dropped:
        does = chooser.choice(("skip", "reroute", "discard"))
        more |= {"skip_on": ["Spoilt"]} if does == "skip" else {"reroute_on": {"Elsewhere": profile.names[-1]}}
    if profile.routed and chooser.random() < profile.routed:
        more |= chooser.choice(WISHES).options
    if profile.costly and chooser.random() < profile.costly:
        more["cost"] = chooser.randint(2, 4)
    if profile.backoffs:
        more["backoff"] = kind = chooser.choice(_BACKOFFS)
        more |= {"backoff_delays_ms": [30, 700, 200]} if kind == "custom" else {}
        more |= {"backoff_max_ms": 1500} if kind == "geometric" else {"jitter": 0.3} if kind == "linear" else {}
    payload: dict[str, Any] = {"does": does, "of": text}
    if chooser.random() < profile.big:
        payload["bytes"] = "x" * chooser.randint(100_000, 190_000)
    dedup = f"d{chooser.randint(1, 3)}" if chooser.random() < profile.dedup else None
    delay_ms = chooser.randint(1, 8000) if chooser.random() < profile.delayed else 0
    if profile.expiring and chooser.random() < profile.expiring:
        more["expires_ms"] = delay_ms + chooser.choice((1, 300, 2000, 6000))
    return NewJob(
        chooser.choice(profile.names),
        payload,
        id=name,
        delay_ms=delay_ms,
        priority=chooser.choice((5, 5, 5, 5, 1, 9)),
        lifo=chooser.random() < 0.15,
        attempts=chooser.choice((1, 2, 3, 3)),
        backoff_ms=chooser.choice((0, 50, 800)),
        crashes_max=chooser.choice((2, 3, 3)),
        key=chooser.choice(profile.keys) if profile.keys and chooser.random() < profile.keyed else None,
        unique=f"u{chooser.randint(1, 3)}" if chooser.random() < profile.unique else None,
        dedup=dedup,
        dedup_ms=chooser.randint(100, 8000) if dedup else 0,
        result_ttl_ms=chooser.choice(profile.result_ttls_ms),
        error_ttl_ms=30_000,
        **more,
    )
