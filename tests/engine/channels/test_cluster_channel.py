"""Rules 1 and 27 for channels: one is one slot, and while this slot moves from node to node nothing is lost, doubled, reordered,
or taken for a loss of the clock. Bodies are not among the declared keys, so a script must not run while it sees half of them."""

import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from chaos.topology.embedded_cluster import EmbeddedCluster, SlotMove
from engine.models.dsps import CLOCK_MAX, DspsModel, clock_ahead, clock_distance
from engine.ops.base import Operation
from engine.ops.channels import Acknowledge, AskOld, Fetch, Publish, Subscribe, Unsubscribe
from tests.engine.channels.channel_desk import NEVER_MS, TTL_S, ids, message
from tests.engine.cluster_desk import NotNow, Router

START = CLOCK_MAX - 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    # No node is taken for dead because the machine stands still.
    with EmbeddedCluster(node_timeout_ms=60_000) as made:
        yield made


@pytest.fixture
def router(cluster: EmbeddedCluster) -> Iterator[Router]:
    made = Router(cluster.ports, cast("Any", DspsModel("chX")))
    yield made
    made.close()


class Traffic:
    """A publisher and a subscriber, each of which repeats what was not answered until it is. The wrap is on the way."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.model = DspsModel("chX")
        self.draw = random.Random(7)
        self.count = 0
        self.refused = 0
        self.clocks: dict[str, int] = {}
        self.got: list[str] = []
        self._open: dict[str, Operation] = {}
        self._upto: int | None = None

    def run(self, operation: Operation) -> Any:
        return self.router.run(self.model.call(operation))

    def step(self, _move: SlotMove | None = None) -> None:
        """Each of them tries a few times; what is read is read faster than it is published."""
        for _ in range(4):
            reads = ("subscriber", self._read)
            for who, turn in (("publisher", self._publish), reads, reads, ("others", self._come_and_go)):
                operation = self._open[who] = self._open.get(who) or turn()
                try:
                    self._answered(operation, self.run(operation))
                except NotNow:
                    self.refused += 1
                else:
                    del self._open[who]

    def _publish(self) -> Operation:
        first, self.count = self.count, self.count + self.draw.randint(1, 3)
        return Publish(tuple(message(f"m{number}") for number in range(first, self.count)), TTL_S, not_after_ms=NEVER_MS)

    def _read(self) -> Operation:
        return Fetch("s", 20, TTL_S) if self._upto is None else Acknowledge("s", self._upto, TTL_S)

    def _come_and_go(self) -> Operation:
        nonce = f"{self.draw.getrandbits(64):016x}"
        comes, goes = Subscribe("x", nonce, TTL_S, not_after_ms=NEVER_MS), Unsubscribe("x", nonce, not_after_ms=NEVER_MS)
        return self.draw.choice((comes, goes, AskOld("s", ("m0", "m1"))))

    def _answered(self, operation: Operation, reply: Any) -> None:
        assert not getattr(reply, "turned", False) and getattr(reply, "era", 0) == 0
        if isinstance(operation, Publish):
            for one, item in zip(operation.messages, reply.items, strict=True):
                assert item.result == "created", "what was refused had not been applied"
                self.clocks[one.id] = item.clock
        elif isinstance(operation, Fetch):
            self.got += ids(reply)
            self._upto = reply.upto if reply.items else None
            assert clock_distance(reply.cursor, reply.upto) == len(reply.items), "nothing is passed by"
        elif isinstance(operation, Acknowledge):
            assert reply.result == "OK"
            self._upto = None


def begun(cluster: EmbeddedCluster, router: Router) -> tuple[Traffic, Any, int]:
    """Traffic on an empty cluster, its keys and their slot."""
    traffic = Traffic(router)
    cluster.flush()
    return traffic, traffic.model.keys, cluster.slot_of(traffic.model.keys.clock)


@pytest.mark.slow
@pytest.mark.feature("DS23", model="dsps")
def test_a_channel_goes_on_while_its_slot_moves(cluster: EmbeddedCluster, router: Router) -> None:
    traffic, keys, slot = begun(cluster, router)
    assert {cluster.slot_of(key) for key in (keys.meta, keys.live, keys.body(1), keys.cursor("s"), keys.op("x"))} == {slot}
    owner = cluster.owner_of(slot)
    cluster.client(owner).set(keys.clock, START, ex=TTL_S)
    traffic.run(Subscribe("s", "0" * 16, TTL_S, not_after_ms=NEVER_MS))
    traffic.step()
    for target in ((owner + 1) % 3, (owner + 2) % 3, owner):
        cluster.move_slot(slot, target, portion=2, step=traffic.step)
    assert traffic.refused > 0, "it was met half way"
    while traffic.got != list(traffic.clocks):
        traffic.step()
    assert [traffic.clocks[name] for name in traffic.got] == [clock_ahead(START, step + 1) for step in range(len(traffic.got))]
    assert traffic.got == [f"m{number}" for number in range(traffic.count)] and traffic.count > 21, "the wrap is crossed"


@pytest.mark.parametrize("bodies_first", [True, False])
def test_a_body_at_the_other_node_is_not_taken_for_expired(cluster: EmbeddedCluster, router: Router, bodies_first: bool) -> None:
    traffic, keys, slot = begun(cluster, router)
    traffic.run(Subscribe("s", "0" * 16, TTL_S, not_after_ms=NEVER_MS))
    traffic.run(Publish((message("m1"),), TTL_S, not_after_ms=NEVER_MS))
    move = cluster.begin_move(slot, (cluster.owner_of(slot) + 1) % 3)
    body = keys.body(1).encode()
    move.move_keys([key for key in move.keys_left() if (key == body) == bodies_first])
    with pytest.raises(NotNow):
        traffic.run(Fetch("s", 64, TTL_S))
    move.move_keys(move.keys_left())
    move.finish()
    assert ids(traffic.run(Fetch("s", 64, TTL_S))) == ["m1"]
