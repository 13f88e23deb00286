"""What must hold in the raw keys of a queue after every call: where lanes are, what counts against limits, which unique keys are
taken."""

from typing import Any

from engine.models.envelope import read_run_fields
from tests.engine.desk import TOMBSTONE, Desk

BAND = 2**49


def members(desk: Desk, key: str) -> list[str]:
    return [member.decode() for member in desk.redis.zrange(key, 0, -1)]


def zsets(desk: Desk, keys: list[str]) -> list[dict[str, float]]:
    """Members and scores of many zsets, in one go."""
    with desk.redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.zrange(key, 0, -1, withscores=True)
        return [{member.decode(): score for member, score in found} for found in pipe.execute()]


def hash_of(desk: Desk, key: str) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in desk.redis.hgetall(key).items()}


def names_of(desk: Desk, key: str) -> list[str]:
    """What stands for the star in the keys of this pattern."""
    at = len(key) - 1
    return sorted(found.decode()[at:] for found in desk.redis.scan_iter(key, count=1000))


def ended_of(desk: Desk) -> set[str]:
    """Jobs with a tombstone."""
    jobs = names_of(desk, desk.keys.job("*"))
    raws: Any = desk.redis.mget([desk.keys.job(job) for job in jobs]) if jobs else []
    return {job for job, raw in zip(jobs, raws, strict=True) if raw[:1] == TOMBSTONE}


def ready(desk: Desk, class_name: str = "main") -> list[str]:
    return members(desk, desk.keys.ready(class_name))


def parked(desk: Desk) -> dict[str, str]:
    return hash_of(desk, desk.keys.parked)


def markers(desk: Desk) -> list[str]:
    """Classes with a marker."""
    return names_of(desk, desk.keys.wake("*"))


def take_markers(desk: Desk) -> list[str]:
    """Classes with a marker, which is taken away as a worker would."""
    found = markers(desk)
    for name in found:
        assert desk.redis.llen(desk.keys.wake(name)) == 1, "more than one marker"
        desk.redis.delete(desk.keys.wake(name))
    return found


def check(desk: Desk, *, room: bool = False, cut: bool = False, held: bool = True, bands: bool = True) -> None:
    """Assert all of it. `room`: also that no lane waits for a slot while there is one. `cut`: a script was cut off, so a lane may
    be in two places, and a lease that nobody has may count against less than it would. `held`: also that slots and leases agree,
    which they do not where a limit had no slots when a job was claimed. `bands`: also that lanes stand in those of their jobs;
    where a job was taken out by hand, its lane stays where it was until the next claim."""
    places, now_parked = lanes_by_place(desk), parked(desk)
    for lane in names_of(desk, desk.keys.lane("*")):
        where = places.get(lane, set())
        assert "ready" in where or lane in now_parked, lane
        assert cut or not ("ready" in where and lane in now_parked), (lane, where, now_parked[lane])
        if lane in now_parked:
            assert now_parked[lane] in where, (lane, where, now_parked[lane])
    if bands:
        check_bands(desk, [lane for lane, where in places.items() if "ready" in where])
    if held and not cut:
        check_held(desk)
    if room:
        limits, definition = sorted(set(now_parked.values()) - {"rest"}), hash_of(desk, desk.keys.limits)
        for limit, found in zip(limits, zsets(desk, [desk.keys.held(limit) for limit in limits]), strict=True):
            slots = int((definition.get(limit) or definition["k:*"]).split()[0])
            assert len(found) >= slots, (limit, "lanes wait while there is room")


def lanes_by_place(desk: Desk) -> dict[str, set[str]]:
    """For each lane: `ready`, `rest`, or the limits whose slots it waits for."""
    places: dict[str, set[str]] = {}
    for class_name in names_of(desk, desk.keys.ready("*")):
        for lane in ready(desk, class_name):
            assert lane.split("/")[0] == class_name
            places.setdefault(lane, set()).add("ready")
    for member in members(desk, desk.keys.rest):
        if member.startswith("l:"):
            places.setdefault(member[2:], set()).add("rest")
    limits = names_of(desk, desk.keys.parked_by("*"))
    for limit, lanes in zip(limits, zsets(desk, [desk.keys.parked_by(limit) for limit in limits]), strict=True):
        for lane in lanes:
            places.setdefault(lane, set()).add(limit)
    return places


def check_bands(desk: Desk, lanes: list[str]) -> None:
    """A ready lane stands in the band of its first job (an empty one anywhere: a claim drops it)."""
    with desk.redis.pipeline(transaction=False) as pipe:
        for lane in lanes:
            pipe.zrange(desk.keys.lane(lane), 0, 0, withscores=True)
            pipe.zscore(desk.keys.ready(lane.split("/")[0]), lane)
        replies = pipe.execute()
    for lane, head, score in zip(lanes, replies[::2], replies[1::2], strict=True):
        if head:
            assert int(score) // BAND == int(head[0][1]) // BAND, lane


def check_held(desk: Desk) -> None:
    """`held` names exactly the leases that count against a limit with slots, with the same deadline as `active`."""
    active: dict[bytes, float] = dict(desk.redis.zrange(desk.keys.active, 0, -1, withscores=True))
    counted: dict[str, dict[str, float]] = {}
    with desk.redis.pipeline(transaction=False) as pipe:
        for job in active:
            pipe.get(desk.keys.run(job.decode()))
        for (job, deadline_ms), run in zip(active.items(), pipe.execute(), strict=True):
            for limit in read_run_fields(run).get("limits", b"").decode().split() if run else ():
                counted.setdefault(limit, {})[job.decode()] = deadline_ms
    limits = names_of(desk, desk.keys.held("*"))
    for limit, found in zip(limits, zsets(desk, [desk.keys.held(limit) for limit in limits]), strict=True):
        assert found == counted.get(limit, {}), limit
