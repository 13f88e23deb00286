"""Invariants of the raw keys at one instant. Each raises Found, by the name that shrinking keeps."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.children_invariants import check_children_keys
from chaos.simulate.cron_invariants import check_cron_keys
from chaos.simulate.limits_invariants import check_lanes
from chaos.simulate.state import State
from chaos.simulate.world import Found

_BAND = 1 << 49
_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def check_keys(state: State, book: Book, *, exact: bool) -> None:
    """All of them. `exact`: no script was cut off, so nothing stands in two places."""
    _places(state, exact)
    if exact:
        _tokens(state)
        check_lanes(state)
        check_children_keys(state)
        check_cron_keys(state)
    _ready(state)
    _scores(state, exact)
    _fences(state, book)
    for name in state.names("wake:"):
        if state.number(name) > 1:
            raise Found("marker", f"{name} holds {state.number(name)} markers")


def _places(state: State, exact: bool) -> None:
    """Every live job is in exactly one of lane, due, blocked, active and dead; what is there is a live job."""
    for job, envelope in state.jobs():
        places = state.places.get(job, [])
        if envelope.kind in "TR":
            if places and exact:
                raise Found("one place", f"{job} has ended and stands in {', '.join(places)}", (job,))
        elif not places:
            raise Found("one place", f"{job} lives and stands nowhere: it is lost", (job,))
        elif len(places) > 1 and exact:
            raise Found("one place", f"{job} stands in {' and '.join(places)}", (job,))
    if exact:
        for job, places in state.places.items():
            if state.job(job) is None:
                raise Found("one place", f"{job} stands in {places[0]} and there is no such job", (job,))


def _tokens(state: State) -> None:
    """Live tokens are those of `active`."""
    active = state.zset("active")
    for name in state.names("run:"):
        job = name[4:]
        if state.run(job).token and job not in active:
            raise Found("one token", f"{job} has the live token {state.run(job).token} and is not in active", (job,))
    for job in active:
        if not state.run(job).token:
            raise Found("one token", f"{job} is in active and has no live token", (job,))


def _ready(state: State) -> None:
    """A lane with jobs is among the ready ones of its class, or parked."""
    parked = state.table("parked")
    for name in state.names("lane:"):
        lane = name[5:]
        if lane not in state.zset("ready:" + lane.split("/")[0]) and lane not in parked:
            raise Found(
                "ready lane", f"lane {lane} holds {', '.join(state.views[name])} and is not ready", tuple(state.views[name])
            )


def _scores(state: State, exact: bool) -> None:
    """Rule 16: bands by priority, inside them the order of sequences; members of due begin with the sequence."""
    for name in state.changed:
        if name.startswith("lane:"):
            for job, score in state.zset(name).items():
                envelope = state.job(job)
                if envelope is None or envelope.kind != "J":
                    continue
                middle = (10 - envelope.priority) * _BAND + _BAND // 2
                wanted = middle - envelope.sequence if envelope.lifo else middle + envelope.sequence
                if score != wanted:
                    raise Found("score", f"{job} stands in its lane at {score:.0f}, its place is {wanted}", (job,))
        elif name == "due":
            for member in state.zset(name):
                envelope = state.job(member[10:])
                # An enqueue that was cut off has left its entry, and another call has made the job.
                left_over = not exact and len(state.places.get(member[10:], ())) > 1
                if not left_over and envelope is not None and envelope.kind == "J" and member[:10] != _digits(envelope.sequence):
                    raise Found("score", f"{member} in due does not begin with sequence {envelope.sequence}", (member[10:],))

    for name in state.changed:
        envelope = state.views.get(name) if name.startswith("job:") else None
        if envelope is not None and envelope.sequence >= 1 << 48:
            raise Found("score", f"{name[4:]} has sequence {envelope.sequence}, beyond 2^48", (name[4:],))


def _digits(sequence: int) -> str:
    return "".join(_DIGITS[sequence >> shift & 31] for shift in range(45, -1, -5))


def _fences(state: State, book: Book) -> None:
    """Rule 6: the fence of a job never goes down within an era."""
    for name in state.changed:
        if not name.startswith(("run:", "job:")):
            continue
        job = name[4:]
        envelope = state.job(job)
        if envelope is None or envelope.kind in "?R":
            continue
        fence = int(envelope.token.split(":")[0]) if envelope.kind == "T" else state.run(job).fence
        birth = (job, envelope.nonce)
        known = book.fences.get(birth, 0)
        if fence < known:
            raise Found("fence", f"{job} had fence {known} and has {fence}", (job,))
        book.fences[birth] = fence
