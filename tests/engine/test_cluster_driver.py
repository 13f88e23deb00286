"""Rule 27 at the engine's own driver, which talks to one node: what a cluster tells it there is sent again and said clearly.
Rules 1 and 27: producers, workers and sweepers go on while the slot moves there and back: nothing lost or ended twice."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from chaos.topology.embedded_cluster import EmbeddedCluster, SlotMove
from engine import validate
from engine.errors import OutcomeUnknown, ServerUnavailable
from engine.models.lanes import Lanes
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, ConnectOptions, Endpoint
from engine.redis.exchange import Trouble, trouble_of_reply
from engine.redis.scripts import Script
from tests.engine.cluster_desk import NotNow, Router
from tests.engine.ops import Bury, Enqueue, Failure, Finish, Lease, Limit, Operation, Options, Pause, SetLimit, Sweep
from tests.engine.using import DEADLINE_S, LEASE_MS, PATIENCE_MS, Call, Claim, Count, refused, wait_until

#: Of calls that fail in the end.
SHORT_MS = 300


@pytest.fixture
def cluster(three_primaries: EmbeddedCluster) -> EmbeddedCluster:
    """An empty cluster with no move on its way."""
    three_primaries.end_moves(slot(three_primaries))
    three_primaries.flush()
    return three_primaries


MODEL = Lanes("driven")


def slot(cluster: EmbeddedCluster) -> int:
    return cluster.slot_of(MODEL.keys.prefix)


Drive = Callable[..., SyncDriver]


@pytest.fixture
def owner(cluster: EmbeddedCluster) -> int:
    """The node of the queue."""
    return cluster.owner_of(slot(cluster))


@pytest.fixture
def drive(cluster: EmbeddedCluster) -> Iterator[Drive]:
    """Makes a driver of a node, which is closed in the end."""
    with ExitStack() as made:

        def make(node: int, *scripts: Script, deadline_ms: int = DEADLINE_MS_MAX, pause: Any = time.sleep) -> SyncDriver:
            endpoint = Endpoint(cluster.urls[node], options=ConnectOptions(timeout_ms=PATIENCE_MS, deadline_ms=deadline_ms))
            return made.enter_context(closing(SyncDriver(endpoint, scripts or MODEL.scripts.values(), pause=pause)))

        yield make


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def enqueue(job: str) -> Enqueue:
    return Enqueue(job, "work", b"{}", b"nonce---", Options(), not_after_ms=now_ms() + 60_000)


@pytest.mark.parametrize("start", ["Script attempted", "Attempted"], ids=["redis", "valkey"])
def test_rule_27_a_script_that_missed_a_key_in_the_middle_may_have_been_applied_and_is_sent_again(start: str) -> None:
    message = f"ERR {start} to access a non local key in a cluster node script: 0a1b, on @user_script:12."
    assert trouble_of_reply(message) is Trouble.UNANSWERED


@pytest.mark.slow
def test_rule_27_a_node_without_the_queue_is_named_with_the_one_that_has_it(cluster: Any, owner: int, drive: Drive) -> None:
    said = f"nothing was applied, last error MOVED {slot(cluster)} 127.0.0.1:{cluster.ports[owner]}"
    refused(ServerUnavailable, said, drive((owner + 1) % 3, deadline_ms=SHORT_MS).run, MODEL.call(enqueue("j1")))


def test_rule_27_a_call_in_a_move_says_where_the_slot_goes_and_applies_nothing(cluster: Any, owner: int, drive: Drive) -> None:
    target, driver = (owner + 1) % 3, drive(owner, deadline_ms=SHORT_MS)
    cluster.begin_move(slot(cluster), target)
    said = f"nothing was applied, last error ASK {slot(cluster)} 127.0.0.1:{cluster.ports[target]}"
    refused(ServerUnavailable, said, driver.run, MODEL.call(enqueue("j1")))
    cluster.end_moves(slot(cluster))
    assert cluster.client(owner).dbsize() == 0


def test_rule_27_a_call_that_meets_a_move_goes_through_when_the_move_is_given_up(cluster: Any, owner: int, drive: Drive) -> None:
    driver = drive(owner, pause=lambda pause_s: cluster.end_moves(slot(cluster)))
    driver.run(MODEL.call(enqueue("j1")))
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    assert driver.run(MODEL.call(enqueue("j2"))).result == "created"


def test_rule_27_a_slot_that_nobody_serves_is_said_to_be_down(cluster: Any, owner: int, drive: Drive) -> None:
    driver = drive(owner, deadline_ms=SHORT_MS)
    assert driver.server_now_ms() > 0
    node = cluster.client(owner)
    node.execute_command("CLUSTER DELSLOTS", slot(cluster))
    try:
        refused(ServerUnavailable, "nothing was applied, last error CLUSTERDOWN", driver.run, MODEL.call(enqueue("j1")))
    finally:
        node.execute_command("CLUSTER ADDSLOTS", slot(cluster))


def test_rule_27_a_script_that_missed_a_key_after_writes_is_sent_again_to_the_end(cluster: Any, owner: int, drive: Drive) -> None:
    text = "#!lua\nredis.call('INCR', KEYS[1])\nreturn redis.call('GET', KEYS[1] .. 'absent')"
    script = Script("half_way", text, ("counter",), ())
    call = Call(script, (MODEL.keys.seq,), (), lambda raw: raw, Count())
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        """At the third its time is over, however long that took."""
        pauses.append(pause_s)
        if len(pauses) == 3 and in_flight._delivery is not None:
            in_flight._delivery.deadline_ms = 0

    driver = drive(owner, script, pause=pause)
    driver.run(call)
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    in_flight = driver.start(call)
    driver.carry([in_flight])
    refused(OutcomeUnknown, "access a non local key", in_flight.sent)
    assert int(cluster.client(owner).get(MODEL.keys.seq)) == 1 + 4


def test_rule_27_a_claim_that_meets_a_move_is_no_fault_of_its_script(cluster: Any, owner: int, drive: Drive) -> None:
    """The claim has every key that it declares, so it runs, and finds out by itself that the slot is on the move."""
    driver = drive(owner)
    driver.run(MODEL.call(enqueue("j1")))
    call = MODEL.call(Claim("c" * 16, 1, 10, 60_000, now_ms() + 40_000, "a worker", 1000, ("work",)))
    lacking = set(call.keys) - {key.decode() for key in cluster.begin_move(slot(cluster), (owner + 1) % 3).keys_left()}
    cluster.end_moves(slot(cluster))
    for key in lacking:
        furnish(cluster.client(owner), key)
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    driver.deadline_ms = SHORT_MS
    refused((ServerUnavailable, OutcomeUnknown), "", driver.run, call)
    driver.deadline_ms = DEADLINE_MS_MAX
    cluster.end_moves(slot(cluster))
    assert [job.lease.job for job in driver.run(call).jobs] == ["j1"]


def furnish(client: Any, key: str) -> None:
    """A key of the type that the scripts expect, with nothing in it that concerns them."""
    kind = key.removeprefix(MODEL.keys.prefix).split(":")[0]
    if kind == "claim":
        client.set(key, "0")
    elif kind in ("sweep", "stats", "parked"):
        client.hset(key, "other", "1")
    else:
        client.zadd(key, {"w:other": 4_102_444_800_000})


QUEUE = "live"
#: The lease of a job that is there from the start: no test lasts so long.
FURNITURE_MS = 3_600_000

#: Sends that must go out between two portions of a move: each stage then meets every kind of call.
SENDS_EACH_STAGE = 25
PORTIONS = 10
PAUSE_S = 0.002


class Client(threading.Thread):
    """One client: carries out the operations of its loop, each sent until it is answered."""

    def __init__(self, traffic: "Traffic", number: int) -> None:
        super().__init__(name=f"{type(self).__name__} {number}", daemon=True)
        self.traffic, self.number, self.sends = traffic, number, 0
        self.router = Router(traffic.cluster.ports, traffic.model)

    def answer(self, operation: Operation) -> Any:
        call = self.traffic.model.call(operation)
        while True:
            self.sends += 1
            try:
                return self.router.run(call)
            except NotNow:
                if self.traffic.given_up:
                    raise
                time.sleep(PAUSE_S)

    def run(self) -> None:
        try:
            self.loop()
        except Exception as error:
            self.traffic.errors.append(error)

    def loop(self) -> None:
        raise NotImplementedError


class Producer(Client):
    def loop(self) -> None:
        for count in itertools.count():
            if self.traffic.drains:
                return
            job, nonce = f"p{self.number}-{count}", f"{self.number}{count:07d}".encode()
            assert self.answer(some_job(job, nonce, 20 if count % 3 == 0 else 0)).created
            self.traffic.enqueued.add(job)


class Worker(Client):
    def loop(self) -> None:
        leases: tuple[Lease, ...] = ()
        for counter in itertools.count(1):
            claim = Claim(f"{self.number:016x}", counter, 5, LEASE_MS, now_ms() + LEASE_MS * 4 // 5, self.name, 1000, ("work",))
            reply = self.answer(Finish(leases, claim) if leases else claim)
            if leases:
                for lease, (result, _) in zip(leases, reply.finished.items, strict=True):
                    if result in ("ok", "repeated"):
                        self.traffic.finished.append((lease.job, lease.fence, lease.nonce))
                reply = reply.claimed
            leases = tuple(job.lease for job in reply.jobs)
            if not leases:
                if self.traffic.stopped:
                    return
                time.sleep(PAUSE_S)


class Sweeper(Client):
    def loop(self) -> None:
        for counter in itertools.count(1):
            self.answer(Sweep(f"{self.number:016x}", counter, 100, 1000, 1000))
            if self.traffic.stopped:
                return
            time.sleep(PAUSE_S)


class Traffic:
    """Two producers, two workers and a sweeper, and what was acknowledged to them."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster, self.model = cluster, Lanes(QUEUE)
        self.enqueued, self.finished, self.errors = set[str](), list[tuple[str, int, str]](), list[Exception]()
        self.drains = self.stopped = self.given_up = False
        self.clients: list[Client] = [Producer(self, 1), Producer(self, 2), Worker(self, 3), Worker(self, 4), Sweeper(self, 5)]

    def furnish(self) -> None:
        """A job in every state that the traffic leaves alone. A script runs on a half-moved slot only when every key that it
        declares is there, so without them most calls would only be refused."""
        client = Client(self, 9)
        client.answer(SetLimit("k:acme", Limit(concurrency=2), op_id="limit", not_after_ms=now_ms() + 10_000))
        client.answer(Pause("other", 600_000, op_id="pause", not_after_ms=now_ms() + 10_000))
        for job, delay_ms in (("dead", 0), ("leased", 0), ("delayed", 600_000)):
            assert client.answer(some_job(job, b"furnish-", delay_ms)).created
        claim = Claim(f"{9:016x}", 1, 2, FURNITURE_MS, now_ms() + 60_000, "furniture", 1000, ("work",))
        dead, _ = (job.lease for job in client.answer(claim).jobs)
        client.answer(Bury((Failure(dead, "no"),)))
        client.router.close()

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def goes_on(self) -> None:
        """Wait until every client has sent a while longer."""
        goals = {client: client.sends + SENDS_EACH_STAGE // len(self.clients) for client in self.clients}
        wait_until(lambda: self.errors or all(client.sends >= goal for client, goal in goals.items()), "every client goes on")
        assert not self.errors

    def missing(self) -> set[str]:
        return self.enqueued - {job for job, _, _ in self.finished}

    def drain(self) -> None:
        """Stop producing, and wait until the workers have finished everything."""
        self.drains = True
        for client in self.clients[:2]:
            client.join(DEADLINE_S)
        try:
            wait_until(lambda: self.errors or not self.missing(), "every job is finished")
        finally:
            left = sorted(self.missing())
            assert self.errors or not left, f"not finished: {len(left)} of {len(self.enqueued)}: {left[:10]}"

    def stop(self) -> None:
        self.drains = self.stopped = True
        for client in self.clients:
            client.join(DEADLINE_S)
        self.given_up = True
        for client in self.clients:
            client.join(DEADLINE_S)
            client.router.close()


def some_job(job: str, nonce: bytes, delay_ms: int) -> Enqueue:
    options = Options(delay_ms=delay_ms, key=("", "acme", "other")[len(job) % 3])
    return Enqueue(job, "work", validate.payload_bytes(job), nonce, options, not_after_ms=now_ms() + 60_000)


def portions(move: SlotMove, seed: int) -> Iterator[list[bytes]]:
    """The keys of the slot in a random order; those that come up meanwhile follow at the end."""
    keys = move.keys_left()
    random.Random(seed).shuffle(keys)
    # Indexes first in every other move: what points to jobs is then ahead of the jobs.
    if seed % 2:
        keys.sort(key=lambda key: b":job:" in key or b":run:" in key)
    size = len(keys) // PORTIONS + 1
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


@pytest.mark.slow
def test_rule_27_nothing_is_lost_or_finished_twice_while_the_slot_moves_there_and_back(three_primaries: EmbeddedCluster) -> None:
    cluster = three_primaries
    cluster.flush()
    traffic = Traffic(cluster)
    slot = cluster.slot_of(traffic.model.keys.prefix)
    home = cluster.owner_of(slot)
    traffic.furnish()
    traffic.start()
    try:
        for seed, target in enumerate([(home + 1) % 3, home] * 2):
            traffic.goes_on()
            move = cluster.begin_move(slot, target)
            traffic.goes_on()
            for keys in portions(move, seed):
                move.move_keys(keys)
                traffic.goes_on()
            move.finish()
            traffic.goes_on()
        traffic.drain()
    finally:
        traffic.stop()
    assert not traffic.errors and len(traffic.enqueued) > 50
    assert {job: count for job, count in Counter(job for job, _, _ in traffic.finished).items() if count != 1} == {}
    met = {what.split(": ", 1)[1].split(" ")[0] for client in traffic.clients for what in client.router.met}
    assert {"ok", "ASK", "MOVED"} < met, "the traffic never met the move"
    client: Any = cluster.client(cluster.owner_of(slot))
    left = {name: client.zcard(key) for name, key in (("active", traffic.model.keys.active), ("due", traffic.model.keys.due))}
    assert left == {"active": 1, "due": 1}, "what was there from the start"
