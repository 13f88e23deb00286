"""Invariants of classes, lanes and limits: what may be claimed, what is parked, what counts (rules 18 to 20 and 23)."""

from __future__ import annotations

from typing import NamedTuple

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import Envelope, State
from chaos.simulate.world import Found
from engine.ops.claims import Claim, Finish, Release

_BAND = 1 << 49
_VISIT = 10


class Definition(NamedTuple):
    """A limit as it is defined now."""

    slots: int
    rate: int
    per_ms: int
    window: str


def definition_of(state: State, limit: str) -> Definition | None:
    """The definition that a limit has, its own or that of every key."""
    limits = state.table("limits")
    text = limits.get(limit) or (limits.get("k:*") if limit.startswith("k:") else None)
    if not text:
        return None
    slots, rate, per_ms, window = text.split()
    return Definition(int(slots), int(rate), int(per_ms), window)


def has_room(state: State, limit: str, now_ms: int, cost: int = 1) -> bool:
    """Whether one more lease of this cost may count against a limit."""
    definition = definition_of(state, limit)
    if definition is None:
        return True
    if definition.slots and len(state.zset("held:" + limit)) >= definition.slots:
        return False
    if not definition.rate:
        return True
    start_ms = _start_ms(definition, now_ms)
    used = sum(score >= start_ms for score in state.zset("rate:" + limit).values())
    return used + min(cost, definition.rate) <= definition.rate


def _start_ms(definition: Definition, now_ms: int) -> int:
    if definition.window == "fixed":
        return now_ms - now_ms % definition.per_ms
    return now_ms - definition.per_ms + 1


def name_of(class_name: str) -> str:
    """What pauses and limits go by: a class without what its jobs want of a worker."""
    return class_name.partition("@")[0]


def is_paused(state: State, class_name: str, now_ms: int) -> bool:
    """Whether nothing of a class may be claimed."""
    paused = state.table("paused")
    untils = [int(paused[name].split()[0]) for name in ("*", name_of(class_name)) if name in paused]
    return any(until_ms == 0 or until_ms > now_ms for until_ms in untils)


def claimable(state: State, class_name: str, now_ms: int, *, keys: bool = True, cost: int = 0) -> list[str]:
    """Ids without a crash behind them that a claim of the class would find; `keys` False: were it not for the limits of keys. A
    job that uses up many units of a window holds up what comes after it, so there must be room for `cost`; 0: for any job."""
    cost = cost or most_cost(state)
    known = state.memo.get((class_name, now_ms, keys, cost))
    if known is None:
        known = state.memo[(class_name, now_ms, keys, cost)] = _claimable(state, class_name, now_ms, keys, cost)
    return known


def _claimable(state: State, class_name: str, now_ms: int, keys: bool, cost: int) -> list[str]:
    if is_paused(state, class_name, now_ms) or not has_room(state, "n:" + name_of(class_name), now_ms, cost):
        return []
    found: list[str] = []
    for lane in state.zset("ready:" + class_name):
        key = lane.partition("/")[2]
        if key and keys and not has_room(state, "k:" + key, now_ms, cost):
            continue
        found += [job for job in state.zset("lane:" + lane) if not state.run(job).crashes]
    return found


def most_cost(state: State) -> int:
    """The most units of a window that one of the jobs uses up."""
    known = state.memo.get("cost")
    if known is None:
        known = state.memo["cost"] = max((envelope.cost for _, envelope in state.jobs()), default=1)
    return known


def check_lanes(state: State) -> None:
    """Lanes that are not ready wait where something brings them back; held slots are those of leases; one holder a unique key."""
    parked, classes = state.table("parked"), state.table("classes")
    for name in state.names("lane:"):
        if name[5:].split("/")[0] not in classes:
            raise Found("class", f"{name} holds jobs, and its class is forgotten", tuple(state.zset(name)))
    for lane, waits in parked.items():
        class_name = lane.split("/")[0]
        if lane in state.zset("ready:" + class_name):
            raise Found("parked", f"lane {lane} is ready and parked at once")
        place, member = ("rest", "l:" + lane) if waits == "rest" else ("parked:" + waits, lane)
        if member not in state.zset(place):
            raise Found("parked", f"lane {lane} waits for {waits}, and nothing will bring it back")
        definition = definition_of(state, waits)
        if waits != "rest" and definition is None and "rests_from_ms" in state.table("sweep"):
            # It was forgotten with all definitions of an obliterated queue; the next sweep brings its lanes back.
            continue
        if waits != "rest" and (definition is None or len(state.zset("held:" + waits)) < definition.slots):
            raise Found("parked", f"lane {lane} waits for {waits}, which has a free slot")
    _held(state)
    _unique(state)


def _held(state: State) -> None:
    active = state.zset("active")
    for name in state.names("held:"):
        for job, deadline_ms in state.zset(name).items():
            if job not in active or name[5:] not in state.run(job).limits:
                raise Found("held", f"{job} counts against {name[5:]} and is not leased under it", (job,))
            if deadline_ms != active[job]:
                raise Found("held", f"{job} counts against {name[5:]} until another time than its lease ends", (job,))


def _unique(state: State) -> None:
    holders: dict[str, str] = {}
    dead = state.zset("dead")
    for job, envelope in state.jobs():
        if envelope.kind != "J" or not envelope.unique or job in dead:
            continue
        other = holders.setdefault(envelope.unique, job)
        if other != job:
            raise Found("unique", f"{other} and {job} live, both with the unique key {envelope.unique}", (other, job))
    for name in state.names("unique:"):
        holder = state.views[name]
        envelope = state.job(holder)
        # A holder whose envelope has rotted does not tell its key any more; the key is taken over.
        ended = envelope is None or envelope.kind in "TR" or (envelope.kind == "J" and holder in dead)
        if ended:
            raise Found("unique left", f"{holder} has ended and still holds {name}", (holder,))
    for key, job in holders.items():
        if state.views.get("unique:" + key) != job:
            raise Found("unique", f"{job} lives and does not hold its unique key {key}", (job,))


def check_limits(delivery: Delivery, fresh: list[str], book: Book, *, clock_runs: bool) -> None:
    """What a claim leased keeps to the limits and the pauses."""
    before, after, now_ms = delivery.before, delivery.after, delivery.now_ms
    if isinstance(delivery.operation, Release):
        _given_back(delivery, book)
    counted: dict[str, list[str]] = {}
    for job in fresh:
        envelope = after.job(job)
        if envelope is None or envelope.kind != "J":
            continue
        if is_paused(before, envelope.class_name, now_ms):
            raise Found("paused", f"{job} is leased while {envelope.class_name} is paused", (job,))
        for limit in limits_of(envelope):
            if definition_of(before, limit) is not None:
                counted.setdefault(limit, []).append(job)
    for limit, jobs in counted.items():
        definition = definition_of(before, limit)
        assert definition is not None
        # A limit that has had only a rate until now counts no slots of the leases from then.
        slotted = book.slotted.setdefault(limit, set())
        if definition.slots:
            slotted.update(after.run(job).token for job in jobs)
        leased = [job for job in after.zset("active") if limit in after.run(job).limits and after.run(job).token in slotted]
        missing = [job for job in jobs if limit not in after.run(job).limits]
        if missing or (definition.slots and any(job not in after.zset("held:" + limit) for job in jobs)):
            raise Found("limit", f"{jobs[0]} is leased and does not count against {limit}", (jobs[0],))
        if definition.slots and max(len(leased), len(after.zset("held:" + limit))) > definition.slots:
            raise Found("limit", f"{len(leased)} leases count against {limit}, {definition.slots} may", tuple(leased))
        if definition.rate:
            _rate(book, limit, definition, jobs, now_ms, after, clock_runs)


def limits_of(envelope: Envelope) -> list[str]:
    """The limits that may count a job."""
    key = envelope.lane.partition("/")[2]
    return ["n:" + name_of(envelope.class_name)] + (["k:" + key] if key else [])


def _rate(book: Book, limit: str, definition: Definition, jobs: list[str], now_ms: int, after: State, clock_runs: bool) -> None:
    claims = book.rates.setdefault(limit, {})
    for job in jobs:
        envelope = after.job(job)
        claims[after.run(job).token] = (now_ms, min(envelope.cost if envelope is not None else 1, definition.rate))
    start_ms = _start_ms(definition, now_ms)
    used = sum(cost for at_ms, cost in claims.values() if at_ms >= start_ms)
    if clock_runs and used > definition.rate:
        raise Found(
            "rate", f"{used} places within {definition.per_ms} ms are taken of {limit}, {definition.rate} may be", tuple(jobs)
        )


def _given_back(delivery: Delivery, book: Book) -> None:
    for lease in getattr(delivery.operation, "leases", ()):
        token = f"{lease.fence}:{lease.nonce}"
        if delivery.before.run(lease.job).token != token or delivery.after.run(lease.job).token == token:
            continue
        for limit, claims in book.rates.items():
            place, window = f"{lease.job}:{lease.fence}", delivery.after.zset("rate:" + limit)
            if claims.pop(token, None) is not None and (place in window or place + ":2" in window):
                raise Found(
                    "rate", f"{lease.job} was given back unstarted and still counts in the window of {limit}", (lease.job,)
                )


def check_turns(delivery: Delivery, fresh: list[str]) -> None:
    """Rules 18 and 19: bands are strict across the lanes of a class, lanes of a band take turns, a visit is 10 jobs at most."""
    claim = delivery.operation.claim if isinstance(delivery.operation, Finish) else delivery.operation
    if not fresh or not isinstance(claim, Claim):
        return
    before, after, now_ms = delivery.before, delivery.after, delivery.now_ms
    taken: dict[str, list[Envelope]] = {}
    for job in fresh:
        envelope = after.job(job)
        if envelope is not None and envelope.kind == "J":
            taken.setdefault(envelope.lane, []).append(envelope)
    worst = min(envelope.priority for envelopes in taken.values() for envelope in envelopes)
    for class_name in claim.classes:
        for job in claimable(after, class_name, now_ms):
            envelope = after.job(job)
            if envelope is not None and envelope.kind == "J" and envelope.priority > worst:
                raise Found("band", f"a job of priority {worst} is leased before {job} of {envelope.priority}", (job,))
        _turns(before, after, class_name, taken)


def _turns(before: State, after: State, class_name: str, taken: dict[str, list[Envelope]]) -> None:
    ready, was_ready = after.zset("ready:" + class_name), before.zset("ready:" + class_name)
    left_out = [lane for lane in ready if lane in was_ready and lane not in taken and _plain(after, lane)]
    for lane in left_out:
        for other, envelopes in taken.items():
            if other.split("/")[0] != class_name:
                continue
            same = 10 - envelopes[-1].priority == int(ready[lane] // _BAND)
            if same and other in ready and ready[other] // _BAND == ready[lane] // _BAND and ready[other] <= ready[lane]:
                raise Found("turns", f"lane {other} was served and stands before lane {lane}, which was not")
            if same and len(envelopes) > _VISIT and was_ready[lane] // _BAND == ready[lane] // _BAND:
                raise Found("turns", f"one claim takes {len(envelopes)} jobs of lane {other} and none of lane {lane}")


def _plain(state: State, lane: str) -> bool:
    """Whether a claim that comes to this lane takes its first job."""
    jobs = state.zset("lane:" + lane)
    key = lane.partition("/")[2]
    return bool(jobs) and not any(state.run(job).crashes for job in jobs) and not (key and definition_of(state, "k:" + key))
