"""Rules 1 and 2 on each keyspace: a script cut off anywhere loses and doubles nothing, a full memory expires no lease. What
becomes of the scenes on Lanes is in tests/engine/test_rules_scenes.py."""

from collections.abc import Iterator

import pytest

from engine.errors import ServerUnavailable
from tests.conformance.models import ALL, FOREIGN
from tests.engine.helpers.scenes import STEPS, check_outcome, cut_off_after, cuts, drain
from tests.engine.using import LEASE_MS, START_MS, Count, Desk, Extend, Failure, Lease, LeasedJob, Listing, Retry, lent
from tests.scenes import PLAIN, Scene

BY_HAND = ("discard", "requeue", "run_now")


def each() -> Iterator[object]:
    """What is done by hand is repeated until it is answered; of the other calls some are never heard of again. In the first tier
    a scene has one of both on each format, and the other one on the next."""
    for at, name in enumerate(sorted(FOREIGN, key=lambda name: (name.endswith("-live"), name))):
        for number, scene in enumerate(PLAIN):
            for resend in [True] if scene.script in BY_HAND else [True, False]:
                later = scene.script not in BY_HAND and (name.endswith("-live") or (at + number + resend) % 2)
                id = f"{name}-{scene.name}-{'sent again' if resend else 'never again'}"
                yield pytest.param(name, scene, resend, id=id, marks=[pytest.mark.slow] * bool(later))


class ForeignDesk(Desk):
    """Formats give some keys lengths of real time."""

    expires_from_ms, passes_for_all = START_MS - 10_000_000, True


#: A script is cut off in the same places whatever the names of the keys are: second layouts of a format are of the second tier.
@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * name.endswith("-live")) for name in ALL])
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[Desk]:
    """An empty desk of each model."""
    yield from lent((ForeignDesk if request.param in FOREIGN else Desk)(ironclaim_url, ALL[request.param]))


def leased(desk: Desk) -> tuple[Lease, ...]:
    return tuple(job.lease for job in desk.enqueue("j1", "j2", "j3").claim())


def states(desk: Desk) -> dict[str, set[str]]:
    """The jobs in each state."""
    return {name: {job for job, _ in found} for name, found in desk.run(Listing(0, 100)).states.items()}


@STEPS
@pytest.mark.parametrize(("desk", "scene", "resend"), [*each()], indirect=["desk"])
def test_rule_01_a_script_cut_off_anywhere_loses_and_doubles_nothing(desk: Desk, scene: Scene, resend: bool, step: int) -> None:
    operation, before = scene.begin(desk), states(desk)
    there = set().union(*(jobs for name, jobs in before.items() if name != "done"))
    for writes, reply in cuts(desk, scene, operation, step, resend):
        with cut_off_after(writes):
            finished, now = drain(desk, operation), states(desk)
            check_outcome(scene, operation, reply, there=there, dead_before=before["dead"], finished=finished, dead=now["dead"])
            assert not any(jobs for name, jobs in now.items() if name not in ("dead", "done"))
            assert desk.redis.zcard(desk.keys.active) == 0 and not list(desk.redis.scan_iter(desk.keys.held("*")))


def test_rule_01_what_is_left_of_an_enqueue_that_was_cut_off_keeps_its_id_and_says_that_it_is_gone(desk: Desk) -> None:
    """Without an entry nobody runs it until its own call is repeated: another call that names its id makes no second one."""
    states: set[str] = set()
    for writes in desk.each_cut(1):
        operation = desk.enqueue_operation("j1")
        desk.cut_off(operation, writes)
        other = desk.run(desk.enqueue_operation("j1", nonce=b"another-"))
        assert other.result in ("created", "duplicate"), writes
        if other.result == "duplicate":
            states.add(other.state)
            assert (desk.run(Count()).waiting == 1) == (other.state == "waiting") and other.state in ("waiting", "gone"), writes
        assert desk.run(operation).result in ("repeated", "duplicate"), writes
        assert drain(desk) == ["j1"], writes
    assert "waiting" in states


def test_rule_01_a_retry_cut_off_anywhere_charges_one_failure(desk: Desk) -> None:
    for writes in desk.each_cut(1):
        operation = Retry((Failure(desk.enqueue("j1", attempts=2).claim()[0].lease, "boom", 200),))
        desk.cut_off(operation, writes)
        assert desk.run(operation).items[0][1] == "retried", writes
        assert desk.tick(1_500).one("b").failures == 1, writes


def test_rule_01_a_job_whose_retry_was_cut_off_runs_before_a_sweep_and_is_nowhere_afterwards(desk: Desk) -> None:
    """The half of a retry that put the job among the delayed ones is all there is, and its time comes before the lease ends."""
    jobs: list[LeasedJob] = []
    for writes in desk.each_cut(1):
        desk.cut_off(Retry((Failure(desk.enqueue("j1", attempts=2).claim()[0].lease, "boom", 200),)), writes)
        desk.tick(1_500)
        if jobs := desk.claim("b"):
            assert desk.finish(jobs[0].lease)[0][0] == "ok", writes
            counts = desk.past(LEASE_MS + 1).run(Count())
            assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 0, 0), (writes, counts)
    assert jobs, "the whole script has put the job among the delayed ones"


def test_rule_02_under_memory_pressure_leases_go_on_and_enqueue_is_refused_whole(desk: Desk) -> None:
    first, second, third = leased(desk)
    with desk.full():
        for operation in (desk.enqueue_operation("late"), desk.enqueue_many_operation("late", "later")):
            desk.refuses(operation, "OOM", ServerUnavailable)
        assert desk.run(Extend((first,), 1, LEASE_MS, desk.now_ms + 3000)).items[0][0] == "ok"
        assert desk.finish(first) == [("ok", "finished")] and desk.retry(second) == ("ok", "retried")
        assert desk.release(third) == [("ok", "released")] and [job.lease.job for job in desk.claim("b")] == ["j3"]
        assert [lease.job for lease, _ in desk.tick(LEASE_MS + 1).sweep().leases] == ["j3"]
