"""Mosquito's programs change a job in several commands. Here the engine acts between any two of them, or a program dies there: a
table of every program, every cut and every act of the engine, with what becomes of the job."""

import json
import re
from collections.abc import Callable, Iterator

import pytest

from engine.models.foreign.mosquito import FINDINGS
from tests.engine.models import crystal_programs as programs
from tests.engine.models.crystal import Crystal
from tests.engine.models.crystal_programs import OVERSEER, Program
from tests.engine.models.mosquito_desk import KIND, A, MosquitoDesk
from tests.engine.using import LEASE_MS, LeasedJob, Release


class Scene:
    """One job, its programs and the engine's workers, under the desk's clock. Each entry of `ours` and `theirs` is a run."""

    def __init__(self, url: str, **settings: int) -> None:
        self.desk = MosquitoDesk(url, "live", **settings)
        self.ours: list[str] = []
        self.theirs: list[str] = []
        self.payloads: list[str] = []
        self.held: list[LeasedJob] = []
        #: How many runs have not done the job's work: failed, lost with their worker, or ended early by their own side.
        self.failed = 0
        self.id = ""
        #: Whether the overseer of the programs, and the engine's worker "a", still send heartbeats.
        self.living: set[str] = {OVERSEER, A}

    def begin(self, *, where: str) -> None:
        """An empty keyspace, and in it the job of a Crystal producer."""
        self.desk.begin()
        self.ours, self.theirs, self.payloads, self.held, self.failed, self.living = [], [], [], [], 0, {OVERSEER, A}
        self.id = "1795849944105:172"
        theirs = self.desk.theirs
        if where == "scheduled":
            theirs.schedule(KIND, self.desk.now_ms, id=self.id, n="1")
        elif where != "nowhere":
            theirs.enqueue(KIND, id=self.id, n="1")
        if where == "waiting twice":
            # What two coordinators make of one due job.
            theirs.push(self.desk.there.waiting, self.id)
        if where in ("ours", "ours, of a dead worker"):
            self.claim()
        if where == "ours, of a dead worker":
            self.living = {OVERSEER}
            self.desk.tick(-200_000)
            self.desk.theirs.redis.zadd(self.desk.there.overseers, {A: self.desk.now_ms // 1000})
            self.desk.tick(200_000)
        if where == "theirs, of a dead overseer":
            assert theirs.take() == self.id
            theirs.redis.hset(self.desk.there.run(self.id), "overseer_id", "died")
        if where == "theirs, without an overseer":
            assert theirs.take() == self.id
        self.hear()

    def hear(self) -> None:
        """The heartbeats of the living."""
        self.desk.theirs.redis.zadd(self.desk.there.overseers, dict.fromkeys(self.living, self.desk.now_ms // 1000))

    def sweep(self) -> None:
        self.hear()
        self.desk.sweep()

    def claim(self) -> None:
        """A worker starts what it is given."""
        for job in self.desk.take():
            self.ours.append(job.lease.job)
            self.payloads.append(json.loads(job.payload)["n"])
            self.held.append(job)

    def finish(self) -> None:
        for job in self.held:
            self.desk.finish(job.lease)
        self.held = []

    def fail(self, delay_ms: int) -> None:
        """The handlers fail. A failure of a lease that is over does not count."""
        for job in self.held:
            self.failed += self.desk.retry(job.lease, delay_ms)[0] == "ok"
        self.held = []

    def drain(self, rounds: int = 9) -> None:
        """Living workers of the engine alone, for rounds of 6 s: nine are longer than every back-off and every lease."""
        for _ in range(rounds):
            for _ in range(2):
                self.desk.tick(LEASE_MS // 3)
                self.sweep()
            self.claim()
            self.finish()
            if not self.leases() and not any(self.desk.entries(which) for which in ("waiting", "pending", "scheduled")):
                return

    def leases(self) -> int:
        return self.desk.redis.zcard(self.desk.queue.model.keys.active)

    def verdict(self) -> str:
        """What became of the job: '' where it did its work once, and is gone or dead as its last run has left it."""
        assert self.leases() == 0, "a lease that nobody ends"
        places = [which for which in ("waiting", "pending", "scheduled", "dead") if self.id in self.desk.entries(which)]
        done = len(self.ours) + len(self.theirs) - self.failed
        if places in ([], ["dead"]):
            return {0: "lost", 1: ""}.get(done, "again")
        return f"stays in {places}"


@pytest.fixture
def scene(ironclaim_url: str) -> Iterator[Scene]:
    made = Scene(ironclaim_url)
    yield made
    made.desk.close()


# -- what the engine does at a cut


def nothing(_: Scene) -> None:
    """The program is alone."""


def sweep(scene: Scene) -> None:
    """Three sweeps, a second apart: a job that two of them find without a runner comes back."""
    for _ in range(3):
        scene.desk.tick(1_000)
        scene.sweep()


def hold(scene: Scene) -> None:
    """A worker claims, and ends the run only when the program has ended."""
    scene.claim()


def finish(scene: Scene) -> None:
    scene.claim()
    scene.finish()


def retry(scene: Scene) -> None:
    scene.claim()
    scene.fail(2_000)


def retry_at_once(scene: Scene) -> None:
    scene.claim()
    scene.fail(0)


def release(scene: Scene) -> None:
    """A worker that stops."""
    scene.claim()
    for job in scene.held:
        if scene.desk.run(Release((job.lease,))).items[0][0] == "ok":
            scene.ours.pop()
    scene.held = []


def release_and_hold(scene: Scene) -> None:
    """A worker that stops, and another one that goes on."""
    release(scene)
    scene.claim()


def lose(scene: Scene) -> None:
    """A worker that dies, whose lease runs out."""
    scene.claim()
    scene.failed += len(scene.held)
    scene.held = []
    for _ in range(4):
        scene.desk.tick(LEASE_MS // 3 + 1)
        scene.sweep()


ACTS = (nothing, sweep, hold, finish, retry, retry_at_once, release, release_and_hold, lose)

#: Each program, and where the job is when it begins.
PROGRAMS: tuple[tuple[Program, str], ...] = (
    (programs.enqueue, "nowhere"), (programs.schedule, "nowhere"), (programs.promote, "scheduled"),
    (programs.succeed_v2, "waiting"), (programs.succeed_head, "waiting"), (programs.succeed_v2, "waiting twice"),
    (programs.succeed_head, "waiting twice"), (programs.fail_v2, "waiting"), (programs.fail_head, "waiting"),
    (programs.banish_v2, "waiting"), (programs.preempt_head, "waiting"), (programs.clean_up, "ours"),
    (programs.clean_up, "ours, of a dead worker"), (programs.clean_up, "theirs, of a dead overseer"),
    (programs.clean_up, "theirs, without an overseer"),
)  # fmt: skip


#: Acts at two cuts: a job that is given back is claimed once more between the next two commands.
PAIRS = ((release, hold), (retry_at_once, hold), (retry_at_once, finish))

#: Programs whose run does not do the job's work.
FAILING = (programs.fail_v2, programs.fail_head, programs.preempt_head)

IDS = [f"{program.__name__}-{where}" for program, where in PROGRAMS]


def walk(scene: Scene, program: Program, acts: dict[int, Callable[[Scene], None]]) -> bool:
    """Run a program to its end, and before its command number n `acts[n]`. False where it has fewer commands."""
    left, cut, steps = dict(acts), 0, program(scene.desk.theirs, scene.id, scene.theirs)
    while True:
        if cut in left:
            left.pop(cut)(scene)
        if next(steps, steps) is steps:
            break
        cut += 1
    if program in FAILING:
        scene.failed += len(scene.theirs)
    scene.finish()
    scene.drain()
    return not left


def cells(scene: Scene, program: Program, where: str, step: int) -> Iterator[tuple[str, str]]:
    """Each cell of the table, or of every row each third one, beginning with another one in the next row: the acts with their
    cuts, and the verdict."""
    for row, acts in enumerate([*((act,) for act in ACTS), *PAIRS], PROGRAMS.index((program, where))):
        for cut in range(row % step, 20, step):
            scene.begin(where=where)
            if not walk(scene, program, dict(enumerate(acts, cut))):
                break
            yield ", ".join(f"{act.__name__} {at}" for at, act in enumerate(acts, cut)), scene.verdict()


STAYS = "stays in ['pending']"

#: What the format cannot prevent: pattern of the cells, and their verdicts. Each is one of the model's FINDINGS.
DECLARED: dict[tuple[Program, str], tuple[str, tuple[str, ...]]] = {
    # A runner runs each entry, whoever has the other one; and when its run has left `pending` nothing shows yet that it is over.
    (programs.succeed_v2, "waiting twice"): (r".*(hold|finish) [03]", ("again",)),
    (programs.succeed_head, "waiting twice"): (r".*(hold|finish) [05]", ("again",)),
    # An overseer adopts a job that names none: it read the hash after the engine had given the job back, and wrote after the next
    # claim.
    (programs.clean_up, "ours"): (r"(release|retry_at_once) 2, hold 3", (STAYS,)),
    # The worker was taken for dead while its run went on: as with every lease, the job runs again.
    (programs.clean_up, "ours, of a dead worker"): (r".*", ("again", STAYS)),
    # A runner of v2 may still have it: without `adopt_after_ms` nobody takes it away.
    (programs.clean_up, "theirs, without an overseer"): (r".*", (STAYS,)),
}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["every third cell", "each cell"])
@pytest.mark.parametrize(("program", "where"), PROGRAMS, ids=IDS)
def test_nothing_that_the_engine_does_meanwhile_costs_a_job(scene: Scene, program: Program, where: str, step: int) -> None:
    verdicts = dict(cells(scene, program, where, step))
    assert len(verdicts) > 20 // step, "a program that has no commands proves nothing"
    cell, allowed = DECLARED.get((program, where), ("", ()))
    assert {name: told for name, told in verdicts.items() if told and not (re.fullmatch(cell, name) and told in allowed)} == {}
    assert not cell or any(verdicts.values()), "declared, but it does not happen"


#: The verdict where a program dies before its command of this number, 0 being the first, and after its last one. A job that its
#: producer has not enqueued yet counts as lost here. With `adopt_after_ms` none stays; the second value is the verdict then.
COMES_BACK = (STAYS, "")
DEATHS: dict[tuple[Program, str], list[str | tuple[str, str]]] = {
    (programs.enqueue, "nowhere"): ["lost", "lost", "", ""], (programs.schedule, "nowhere"): ["lost", "lost", ""],
    (programs.promote, "scheduled"): ["", "", "lost", "lost", "", ""],
    (programs.succeed_v2, "waiting"): ["", COMES_BACK, COMES_BACK, "", ""],
    (programs.succeed_head, "waiting"): ["", COMES_BACK, COMES_BACK, "", "again", "", ""],
    (programs.fail_v2, "waiting"): ["", COMES_BACK, COMES_BACK, COMES_BACK, "lost", ""],
    (programs.fail_head, "waiting"): ["", COMES_BACK, COMES_BACK, "", "", "lost", "", ""],
    (programs.banish_v2, "waiting"): ["", COMES_BACK, COMES_BACK, (STAYS, "again"), "", "", ""],
    (programs.preempt_head, "waiting"): ["", COMES_BACK, COMES_BACK, "", "", "lost", "", ""],
    (programs.clean_up, "ours, of a dead worker"): ["", "", "", "", "", "", "", ""],
    (programs.clean_up, "theirs, of a dead overseer"): ["", "", "", "", COMES_BACK, "lost", "", ""],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("adopt_after_ms", [0, 60_000])
def test_finding_a_program_of_theirs_that_dies_in_a_move_loses_the_job(ironclaim_url: str, adopt_after_ms: int) -> None:
    scene = Scene(ironclaim_url, adopt_after_ms=adopt_after_ms)
    for (program, where), expected in DEATHS.items():
        verdicts = []
        for cut in range(len(expected)):
            scene.begin(where=where)
            steps = program(scene.desk.theirs, scene.id, scene.theirs)
            assert not any(next(steps, steps) is steps for _ in range(cut)), "it has fewer commands"
            # A worker of the engine that was taken for dead is dead.
            scene.failed += len(scene.held) + len(scene.theirs) * (program in FAILING)
            scene.held, scene.living = [], {A}
            # Longer than the 100 s after which an overseer without a heartbeat is dead, and than `adopt_after_ms`.
            scene.drain(rounds=22)
            verdicts.append(scene.verdict())
        told = [one if isinstance(one, str) else one[adopt_after_ms > 0] for one in expected]
        assert verdicts == told, f"{program.__name__}, {where}"
    scene.desk.close()


def twins(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """Two jobs for which a producer has drawn one id, in one ms: it overwrites the first one's hash."""
    for n in ("1", "2"):
        their.store(KIND, id=id, n=n)
        yield
        their.push(their.keys.waiting, id)
        yield


@pytest.mark.parametrize("act", [nothing, hold, finish])
def test_finding_the_originals_ids_collide(scene: Scene, act: Callable[[Scene], None]) -> None:
    assert any(finding.name == "the original's ids collide" for finding in FINDINGS)
    for cut, payload in enumerate(["2", "2", "1", "2", "2"] if act is not nothing else ["2"] * 5):
        scene.begin(where="nowhere")
        assert walk(scene, twins, {cut: act})
        assert scene.payloads == [payload], "one of the two runs, and once"
        assert scene.verdict() == ""
        aside = scene.desk.theirs.redis.hgetall(f"{scene.desk.keys.prefix}aside")
        assert list(aside) == [scene.id], "the second entry is counted and recorded"  # type: ignore[arg-type]
