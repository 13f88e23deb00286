"""Rules 1 and 27: every script on a cluster of three primaries while the queue's slot moves: no job lost, none ended twice."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from engine.models.lanes import Lanes
from tests.engine.cluster_desk import ClusterDesk, NotNow
from tests.engine.helpers.scenes import accepted_by, created_by, drain
from tests.engine.using import LEASE_MS, Bury, Call, EnqueueMany, Extend, Failure, Finish, Lease, Operation, Release, Retry
from tests.scenes import MOVING, Scene, busy

# -- orders in which the keys move

#: The keys in the order in which they move, and how many of them before the call is first sent.
Order = Callable[[list[str], Call[Any]], tuple[list[str], int]]


def kind_of(key: str) -> str:
    """`job`, `run`, or `index` for what is neither."""
    name = key.split("}:", 1)[1].split(":", 1)[0]
    return name if name in ("job", "run") else "index"


def by_kind(kinds: tuple[str, ...], keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
    """The keys of each kind together, sent first when those of the first kind have moved."""
    return sorted(keys, key=lambda key: (kinds.index(kind_of(key)), key)), sum(kind_of(key) == kinds[0] for key in keys)


def declared(first: bool, keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
    """The keys that the call declares, before or after those that the script builds from the prefix; sent in between: the
    script then runs at one node while all others of its keys are at the other."""
    return sorted(keys, key=lambda key: ((key in call.keys) != first, key)), sum((key in call.keys) == first for key in keys)


def shuffled(seed: int, keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
    """Any order, sent from any stage on."""
    dice = random.Random(seed)
    return dice.sample(sorted(keys), len(keys)), dice.randrange(len(keys) + 1)


def shuffled_halves(seed: int, first: bool, keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
    """As `declared`, with some of the undeclared keys on the same side as the declared ones."""
    dice = random.Random(seed)
    ours = {key for key in sorted(keys) if key in call.keys or dice.random() < 0.5}
    ordered = sorted(dice.sample(sorted(keys), len(keys)), key=lambda key: (key in ours) != first)
    return ordered, len(ours) if first else len(keys) - len(ours)


ORDERS: dict[str, Order] = {
    "jobs first": partial(by_kind, ("job", "run", "index")), "runs first": partial(by_kind, ("run", "index", "job")),
    "index first": partial(by_kind, ("index", "run", "job")), "declared first": partial(declared, True),
    "declared last": partial(declared, False), "from the start": lambda keys, call: (declared(True, keys, call)[0], 0),
    **{f"seed {seed}": partial(shuffled, seed) for seed in (1, 2)},
    **{f"declared first, seed {seed}": partial(shuffled_halves, seed, True) for seed in (3, 4)},
    **{f"declared last, seed {seed}": partial(shuffled_halves, seed, False) for seed in (5, 6)},
}  # fmt: skip

#: The others see what these two see of an edited script but for the rarest of half-moved keys. Scenes of one script take turns.
FIRST_TIER = ("declared first", "index first")


def moves() -> Iterator[Any]:
    """Each scene in each order. Of the first tier is one for each, and both of the one scene of a script that writes."""
    scenes = Counter(scene.script for scene in MOVING)
    turns: Counter[str] = Counter()
    for scene in MOVING:
        turn = FIRST_TIER[turns[scene.script] % 2]
        turns[scene.script] += 1
        first = FIRST_TIER if scenes[scene.script] == 1 and scene.writes else (turn,)
        for order in ORDERS:
            yield pytest.param(scene, order, id=f"{scene.id}-{order}", marks=() if order in first else pytest.mark.slow)


# -- fixtures


@pytest.fixture(scope="module")
def shared_desk(three_primaries: Any) -> Iterator[ClusterDesk]:
    with contextlib.closing(ClusterDesk(three_primaries, Lanes("desk"))) as made:
        yield made


@pytest.fixture
def desk(shared_desk: ClusterDesk) -> ClusterDesk:
    """An empty desk."""
    shared_desk.reset()
    return shared_desk


# -- what must hold


def check_ended(desk: ClusterDesk, jobs: set[str], accepted: Mapping[str, int]) -> None:
    """Each job is finished once or dead, and nothing is left that waits, is leased or counts against a limit."""
    places = desk.where()
    ends = {job: (accepted.get(job, 0), places.get(job, set())) for job in jobs}
    assert {job: ended for job, ended in ends.items() if ended not in ((1, {"ended"}), (0, {"dead"}))} == {}, desk.router.met
    assert {name: left for kind in ("lane:", "due", "active", "held:") for name, left in desk.members(kind).items() if left} == {}


@pytest.mark.parametrize(("scene", "order"), list(moves()))
def test_rule_01_a_script_loses_and_doubles_nothing_while_its_slot_moves(desk: ClusterDesk, scene: Scene, order: str) -> None:
    """The call is sent at every stage of the move: in the orders with a name until it is answered, in those of a seed all the
    way, as late copies of it would be."""
    copies, operation = "seed" in order, scene.begin(desk)
    call = desk.call(operation)
    assert call.script is not None and call.script.name == scene.script
    before = desk.where()
    move = desk.cluster.begin_move(desk.slot, (desk.cluster.owner_of(desk.slot) + 1) % 3)
    answers: list[Any] = []

    def attempt() -> None:
        with contextlib.suppress(NotNow):
            answers.append(desk.router.run(call))

    keys, first_send = ORDERS[order]([key.decode() for key in move.keys_left()], call)
    for moved in range(len(keys) + 1):
        if moved >= first_send and (not answers or copies):
            attempt()
        move.move_keys(key.encode() for key in keys[moved : moved + 1])
    move.finish()
    desk.look_again()
    if not answers or copies:
        attempt()
    assert answers

    places, jobs = desk.where(), set(before) | created_by(operation, answers[-1])
    assert {job: at for job in jobs if len(at := places.get(job, set())) != 1} == {}, desk.router.met
    by_hand = {job for job in scene.gone if places[job] == {"ended"}}
    accepted = accepted_by(operation, answers[-1])
    accepted.update(drain(desk))
    check_ended(desk, {job for job in jobs - by_hand if before.get(job) != {"ended"}}, accepted)
    assert not by_hand & set(accepted) and bool(by_hand) == bool(scene.gone)


# -- all of it at once


class Mix:
    """A producer, two workers and a sweeper, each with one call outstanding that it sends again until it is answered; all that
    they do comes from one seed."""

    def __init__(self, desk: ClusterDesk, seed: int) -> None:
        self.desk, self.dice, self.created = desk, random.Random(seed), dict[str, bool]()
        self.accepted, self.outstanding = Counter[str](), dict[str, Call[Any]]()
        self.leases: dict[str, tuple[Lease, ...]] = {"a": (), "b": ()}
        self.sent: list[Call[Any]] = []

    def stage(self) -> None:
        """Let time pass, and each of them send once; now and then a late copy of any call arrives as well."""
        desk, dice = self.desk, self.dice
        desk.tick(dice.choice((0, 1, 50, LEASE_MS // 6)))
        for client in dice.sample(("producer", "a", "b", "sweeper"), 4):
            if client not in self.outstanding:
                self.outstanding[client] = desk.call(self._next(client))
                self.sent.append(self.outstanding[client])
            with contextlib.suppress(NotNow):
                self._answered(client, desk.send(self.outstanding[client]))
        if dice.random() < 0.3:
            with contextlib.suppress(NotNow):
                desk.send(dice.choice(self.sent))

    def settle(self) -> None:
        """Send what is outstanding until it is answered."""
        for client, call in list(self.outstanding.items()):
            self._answered(client, self.desk.send(call))

    def _next(self, client: str) -> Operation:
        desk, dice = self.desk, self.dice
        if client == "producer":
            options: dict[str, Any] = {"delay_ms": dice.choice((0, 0, 20)), "key": dice.choice(("", "acme", "other"))}
            names = [f"j{len(self.created) + count}" for count in range(dice.randrange(1, 4))]
            jobs = [desk.enqueue_operation(name, **options) for name in names]
            return EnqueueMany(tuple(jobs)) if len(jobs) > 1 else jobs[0]
        if client == "sweeper":
            return dice.choice((desk.sweep_operation, desk.sweep_operation))()
        leases = self.leases[client]
        if not leases:
            return desk.claim_operation(client, limit=3)
        failures = tuple(Failure(lease, "boom", 100) for lease in leases)
        kinds = (Finish(leases), Release(leases), Retry(failures), Bury(failures[:1]), desk.extend_operation(*leases))
        return dice.choice((*kinds, Finish(leases, desk.claim_operation(client, limit=3))))

    def _answered(self, client: str, reply: Any) -> None:
        operation = self.outstanding.pop(client).operation
        if client == "producer":
            # Time runs on while a call waits for the move: it may be refused in the end (rule 3), and then no job is there.
            self.created.update({each.job: each.created for each in getattr(reply, "items", (reply,))})
        self.accepted.update(accepted_by(operation, reply))
        if client in self.leases and not isinstance(operation, Extend):
            self.leases[client] = tuple(job.lease for job in getattr(getattr(reply, "claimed", reply), "jobs", ()))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_rule_01_many_calls_and_late_copies_lose_and_double_nothing_while_the_slot_moves(desk: ClusterDesk, seed: int) -> None:
    busy(desk)
    there, mix = set(desk.where()) - {"finished"}, Mix(desk, seed)
    for _ in range(2):
        for _ in range(10):
            mix.stage()
        move = desk.cluster.begin_move(desk.slot, (desk.cluster.owner_of(desk.slot) + 1) % 3)
        mix.stage()
        while keys := sorted(move.keys_left()):
            # Indexes first in every other seed: what points to jobs is then ahead of the jobs.
            indexes = [key for key in keys if kind_of(key.decode()) == "index"]
            move.move_keys([mix.dice.choice(indexes if indexes and seed % 2 else keys)])
            mix.stage()
        move.finish()
        desk.look_again()
    mix.settle()
    mix.accepted.update(drain(desk))
    assert sum(mix.created.values()) > 10
    refused = {job for job, created in mix.created.items() if not created}
    assert refused & set(desk.where()) == set()
    check_ended(desk, there | set(mix.created) - refused, mix.accepted)
