"""Presence in raw keys, in the state machine, and with real processes: a killed worker is noticed by its closed connection, and
one that lives is not (rule 39)."""

import os
import signal
import socket
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from engine import Queue
from engine.models.lanes import Lanes
from engine.redis.dialer import KEEP_ALIVE_S, identify
from engine.worker.machine.events import MS, ControlLost, Subscribed
from engine.worker.machine.sweeping import Presence
from tests.engine.desk import LEASE_MS, then
from tests.engine.helpers.machine import SERVER_MS, Machine
from tests.engine.helpers.processes import Mark, Workers
from tests.engine.ops import Beat, Beaten, ClientConnection, Connected, ListConnections, ListedConnections, ReapLost, Sweep, Swept
from tests.engine.using import Desk, Lease, NoteQueue, Operation, Relay, ServerClock, raw_client, wait_until, whole_lines

#: The server of the raw keys, and one before it.
RUN, OTHER = "a" * 40, "b" * 40
A, B, C = "a" * 16, "b" * 16, "c" * 16
#: So long that no lease of these tests runs out.
LONG_MS = 600_000
KILLS = 20


# -- raw keys


def names(desk: Desk, worker: str, connection: str, **more: Any) -> Beaten:
    """A beat that names this control connection."""
    return desk.run(replace(desk.beat_operation(worker, **more), connection=connection))


def held(desk: Desk, worker: str, *jobs: str) -> tuple[Lease, ...]:
    """Leases of a worker."""
    return tuple(job.lease for job in desk.enqueue(*jobs).claim(worker, limit=len(jobs)))


def listed(desk: Desk, worker: str, connection: str, *jobs: str) -> tuple[Lease, ...]:
    """Leases of a worker that has named its control connection."""
    names(desk, worker, connection)
    return held(desk, worker, *jobs)


def look(desk: Desk, run_id: str = RUN, worker: str = "s") -> tuple[Connected, ...]:
    """What a sweep asks its worker to look at."""
    return desk.run(replace(desk.sweep_operation(worker), run_id=run_id)).watched


def reap(desk: Desk, *lost: tuple[str, int], run_id: str = RUN, late_ms: int = 0, limit: int = 100, **more: Any) -> ReapLost:
    """The next reap of lost workers."""
    counter, workers = desk.sweep_operation().counter, tuple(Connected(*worker) for worker in lost)
    return ReapLost("s" * 16, counter, limit, desk.now_ms + 500 - late_ms, workers, run_id, **more)


def registered(desk: Desk) -> Any:
    """The control connections that workers have named."""
    return desk.redis.hgetall(desk.keys.connections)


def test_rule_39_a_beat_names_the_control_connection_of_its_worker(desk: Desk) -> None:
    first = desk.call(replace(desk.beat_operation("a"), connection=f"7 {RUN}", others=("f" * 16,)))
    assert desk.send(first).result == "ok"
    assert registered(desk) == {A.encode(): f"7 {RUN}".encode(), b"f" * 16: f"7 {RUN}".encode()}
    names(desk, "b", f"8 {RUN}")
    names(desk, "a", f"9 {RUN}")
    assert desk.send(first).result == "repeated", "a late copy names no connection anew"
    assert registered(desk)[A.encode()] == f"9 {RUN}".encode()
    names(desk, "a", "")
    assert A.encode() not in registered(desk), "who has lost its own has none"
    assert desk.run(replace(desk.beat_operation("b"), until_ms=0, connection=f"8 {RUN}")).result == "left"
    assert registered(desk) == {b"f" * 16: f"7 {RUN}".encode()}


def test_rule_39_one_sweep_a_second_hands_out_a_look_where_there_are_leases(desk: Desk) -> None:
    for worker, connection in {"a": f"7 {RUN}", "b": f"8 {RUN}", "c": f"9 {OTHER}"}.items():
        names(desk, worker, connection)
    desk.redis.hset(desk.keys.connections, "0" * 16, f"5 {RUN}")
    assert look(desk) == (), "nothing is leased, so nothing could be taken"
    held(desk, "a", "j1")
    assert look(desk, "") == (), "it cannot look"
    assert sorted(look(desk)) == [(A, 7), (B, 8)]
    assert desk.redis.hget(desk.keys.sweep, "looked_ms") == str(desk.now_ms).encode()
    assert "0" * 16 not in {name.decode() for name in registered(desk)}, "no worker has it any more"
    assert look(desk.tick(899), worker="t") == ()
    assert look(desk.tick(1), OTHER, worker="t") == ((C, 9),)
    assert len(look(desk.tick(-3_600_000))) == 2, "the clock stepped back"


def test_rule_39_a_beat_asks_a_follower_to_look_where_the_leader_does_not(desk: Desk) -> None:
    """The user of the leader may not, or it is of an older version."""
    assert names(desk, "a", "", ttl_ms=LONG_MS).leads

    def asked(connection: str = f"8 {RUN}") -> bool:
        reply = names(desk, "b", connection, ttl_ms=LONG_MS)
        assert not reply.leads
        return reply.looks

    assert not asked(), "nothing is leased, so nothing could be taken"
    held(desk, "a", "j1")
    assert not asked(""), "who has no connection cannot look"
    assert asked() and look(desk, worker="b") == ((B, 8),) and not asked()
    for passed_ms, late in ((950, False), (949, False), (1, True)):
        desk.tick(passed_ms)
        # The leader sweeps in its time, and cannot look.
        assert look(desk, "", worker="a") == () and names(desk, "a", "", ttl_ms=LONG_MS).leads
        assert asked() is late
    look(desk.tick(-3_600_000), "", worker="a")
    assert names(desk, "a", "", ttl_ms=LONG_MS).leads
    assert asked(), "the clock stepped back"
    assert not names(desk, "a", f"7 {RUN}", ttl_ms=LONG_MS).looks, "the leader sweeps anyway"


def test_rule_39_of_many_connections_a_look_has_a_page(desk: Desk) -> None:
    held(desk, "a", "j1")
    desk.redis.zadd(desk.keys.workers, {f"{number:016x}": desk.now_ms + 60_000 for number in range(1000)})
    desk.redis.hset(desk.keys.connections, mapping={f"{number:016x}": f"{number} {RUN}" for number in range(1000)})
    pages = [{worker.incarnation for worker in look(desk.tick(900))} for _ in range(12)]
    assert max(map(len, pages)) < 600 and len(set[str]().union(*pages)) == 1000


def test_rule_39_a_lost_worker_loses_its_leases_at_once_and_is_no_longer_listed(desk: Desk) -> None:
    leases, (kept,) = listed(desk, "a", f"7 {RUN}", "j1", "j2"), listed(desk, "b", f"8 {RUN}", "j3")
    assert desk.redis.get(desk.keys.leader) == A.encode()
    call = desk.call(reap(desk, (A, 7)))
    first, again = desk.send(call), desk.send(call)
    assert dict(first.leases) == dict.fromkeys(leases, 1)
    assert again == first, "an answer that was lost is repeated"
    assert desk.redis.zrange(desk.keys.active, 0, -1) == [b"j3"] and desk.redis.zrange(desk.keys.workers, 0, -1) == [B.encode()]
    assert registered(desk) == {B.encode(): f"8 {RUN}".encode()}
    assert desk.redis.exists(desk.keys.leader) == 0, "and leads no more"
    assert {job.lease.job for job in desk.claim("b", limit=5, crashed_max=5)} == {"j1", "j2"}, "they can be claimed"
    assert desk.run(desk.extend_operation(kept)).items[0][0] == "ok"
    assert desk.finish(leases[0])[0][0] == "stale", "if it lives after all, the fence keeps this safe"


def test_rule_39_a_worker_that_has_named_another_connection_or_none_keeps_its_leases(desk: Desk) -> None:
    listed(desk, "a", f"7 {RUN}", "j1")
    for connection in (f"9 {RUN}", f"7 {OTHER}", ""):
        names(desk, "a", connection)
        assert desk.run(reap(desk, (A, 7))).leases == ()
        assert A.encode() in desk.redis.zrange(desk.keys.workers, 0, -1)
    names(desk, "a", f"7 {RUN}")
    assert len(desk.run(reap(desk, (A, 7))).leases) == 1


def test_rule_39_a_reap_that_comes_late_or_after_a_stall_takes_nothing(desk: Desk) -> None:
    listed(desk, "a", f"7 {RUN}", "j1")
    assert desk.run(reap(desk, (A, 7), late_ms=501)).leases == ()
    desk.sweep()
    desk.later(LEASE_MS - 1000)
    assert look(desk) == () and desk.run(reap(desk, (A, 7))).leases == (), "the server stood still (rule 11)"
    assert desk.redis.zcard(desk.keys.active) == 1


def test_rule_39_a_reap_goes_on_page_by_page(desk: Desk) -> None:
    jobs = [f"j{number:03}" for number in range(130)]
    listed(desk, "b", f"8 {RUN}", "i")
    listed(desk, "a", f"7 {RUN}", *jobs)
    pages, start = list[list[str]](), ("", "")
    while start is not None:
        # The first page ends with a lease that stays, among others of its time.
        reply = desk.run(reap(desk, (A, 7), start_ms=start[0], start_id=start[1], limit=100 if len(pages) > 1 else 1))
        pages.append([lease.job for lease, _ in reply.leases])
        start = reply.goes_on
        assert (A.encode() in registered(desk)) is (start is not None), "it is listed until the last page"
    assert sorted(job for page in pages for job in page) == jobs and [*map(len, pages)] == [0, 1, 50, 50, 29]


def test_rule_12_a_lease_of_a_lost_worker_is_charged_as_any_other_crash(desk: Desk) -> None:
    listed(desk, "a", f"7 {RUN}", "j1")
    assert desk.run(reap(desk, (A, 7))).leases[0][1] == 1
    names(desk, "b", f"8 {RUN}")
    again = desk.one("b", crashed_max=1).lease
    assert desk.run(reap(desk, (B, 8))).leases == ((again, 1),), "it was not marked"


# -- the state machine

OWN = ClientConnection(1, "127.0.0.1:1111", RUN)
WATCHED = (Connected(A, 1), Connected(B, 2), Connected(C, 3))
Seen = tuple[int, ...]


class Looker(Machine):
    """A worker that leads and has a control connection; what is on its sweep slot is answered by hand."""

    def __init__(self, own: ClientConnection = OWN) -> None:
        super().__init__(beat_ms=10_000)
        assert self.until(Beat).connection == ""
        self.answered("sweep", Beaten(self.srv_us, "ok", True, False)).on(Subscribed(own))

    def until(self, kind: type[Operation]) -> Any:
        """The next operation of this kind on the sweep slot; what comes before it is answered."""
        for _ in range(100):
            operation = self.out["sweep"].operation if "sweep" in self.out else None
            if isinstance(operation, kind):
                return operation
            if operation is None:
                self.wait(50)
            elif isinstance(operation, Sweep):
                self.swept()
            else:
                assert isinstance(operation, Beat | NoteQueue), f"{operation} and not {kind.__name__}"
                self.answer("sweep", Beaten(self.srv_us, "ok", True, False) if isinstance(operation, Beat) else None)
        raise AssertionError(f"no {kind.__name__}")

    def swept(self, *watched: Connected) -> None:
        """A sweep is over; whether it asks for a look."""
        self.answer("sweep", Swept(self.srv_us, 1000, leads=True, watched=watched))

    def sweeps(self, *watched: Connected) -> Sweep:
        """The next sweep, which is over at once."""
        operation = self.until(Sweep)
        self.swept(*watched)
        return operation

    def asked(self, *watched: Connected) -> ListConnections:
        """The look that the next sweep asks for."""
        assert self.sweeps(*(watched or WATCHED)).run_id == RUN
        return self.until(ListConnections)

    def looked(self, *client_ids: int, own: str = OWN.address, took_ms: int = 0) -> Self:
        """The look found these clients."""
        self.now_ms += took_ms
        addresses = {client_id: own if client_id == 1 else f"127.0.0.1:{client_id}" for client_id in client_ids}
        return self.answered("sweep", ListedConnections(addresses))

    def reaps(self) -> ReapLost:
        """What follows is a reap."""
        operation = self.out["sweep"].operation
        assert isinstance(operation, ReapLost)
        return operation

    def reaps_after_two_looks(self, *client_ids: int) -> ReapLost:
        """Both have found these."""
        return self.looked(*client_ids).upto(ListConnections).looked(*client_ids).reaps()

    def reaps_nobody(self) -> None:
        """Sweeps follow, and nothing else."""
        for _ in range(3):
            self.sweeps()

    def reconnects(self) -> Self:
        return self.told(Subscribed(ClientConnection(9, "127.0.0.1:9", RUN)))

    sweeping, asking, upto = map(then, ("sweeps", "asked", "until"))


def test_rule_39_what_two_looks_in_a_row_have_missed_is_reaped() -> None:
    machine = Looker()
    assert machine.until(Beat).connection == f"1 {RUN}" and machine.asked().client_ids == (1, 2, 3)
    looked_ms = machine.now_ms
    machine.looked(1, 3).until(ListConnections)
    assert machine.sent_ms["sweep"] - looked_ms == 600
    machine.looked(1, 3, took_ms=250 - (machine.now_ms - machine.sent_ms["sweep"]))
    assert (operation := machine.reaps()).lost == (WATCHED[1],)
    assert (operation.run_id, operation.limit) == (RUN, 250)
    assert operation.not_after_ms - SERVER_MS - machine.now_ms == 500
    further = machine.answered("sweep", Swept(machine.srv_us, 0, goes_on=("17", "j9"))).reaps()
    assert (further.start_ms, further.start_id, further.not_after_ms) == ("17", "j9", operation.not_after_ms)
    assert further.counter > operation.counter
    machine.answered("sweep", Swept(machine.srv_us, 0)).reaps_nobody()


@pytest.mark.parametrize(("first", "then", "took_ms", "own"), [
    pytest.param((1, 3), (1, 2, 3), 0, "", id="back again"), pytest.param((1,), (), 0, "", id="most are gone"),
    pytest.param((2, 3), (), 0, "", id="its own is gone"), pytest.param((), (), 0, "", id="all are gone"),
    pytest.param((1, 3), (1,), 0, "", id="then most are gone"), pytest.param((1, 3), (1, 2), 0, "", id="another one"),
    pytest.param((1, 3), (1, 3), 251, "", id="a slow answer"),
    pytest.param((1, 3), (), 0, "10.0.0.9:5", id="another server, which has a client with the same id"),
])  # fmt: skip
def test_rule_39_looks_that_say_nothing_about_one_worker_reap_nobody(first: Seen, then: Seen, took_ms: int, own: str) -> None:
    machine = Looker()
    machine.asking().looked(*first, own=own or OWN.address)
    if then:
        machine.upto(ListConnections).looked(*then, took_ms=took_ms)
    if then == (1, 2):
        # There is nothing to take from nobody.
        assert not isinstance(machine.until(Sweep), ReapLost)
    machine.reaps_nobody()


def test_rule_39_a_worker_behind_a_proxy_names_no_connection_and_looks_after_those_that_do() -> None:
    """It counts itself among those that are there, so one that is named, and missing, is not most of all."""
    machine = Looker(OWN._replace(direct=False))
    assert machine.until(Beat).connection == "" and machine.asked(WATCHED[1]).client_ids == (1, 2)
    assert machine.reaps_after_two_looks(1).lost == (WATCHED[1],)
    machine.answered("sweep", Swept(machine.srv_us, 0)).asking(*WATCHED[1:]).looked(1).reaps_nobody()


def test_rule_39_nobody_looks_at_its_own_connection_alone() -> None:
    machine = Looker()
    machine.sweeping(WATCHED[0]).reaps_nobody()


def test_rule_39_two_incarnations_with_one_connection_are_one_that_is_gone() -> None:
    machine, former = Looker(), Connected("d" * 16, 2)
    assert machine.asking(WATCHED[0], WATCHED[1], former).reaps_after_two_looks(1).lost == (WATCHED[1], former)


def test_rule_39_a_lost_connection_and_a_new_one_are_named_at_once() -> None:
    machine = Looker()
    machine.until(Sweep)
    began_ms = machine.now_ms
    machine.told(ControlLost()).swept(*WATCHED)
    assert machine.until(Beat).connection == "" and machine.now_ms == began_ms
    assert machine.answered("sweep", Beaten(machine.srv_us, "ok", True, False)).sweeps().run_id == "", "it cannot look"
    assert machine.reconnects().until(Beat).connection == f"9 {RUN}"


def test_rule_39_a_beat_that_names_a_new_connection_and_fails_is_sent_again_before_the_next_look() -> None:
    machine = Looker()
    machine.sweeps()
    began_ms = machine.now_ms
    machine.reconnects()
    for _ in range(2):
        assert machine.until(Beat).connection == f"9 {RUN}"
        machine.fail("sweep")
    assert machine.until(Beat).connection == f"9 {RUN}" and machine.now_ms - began_ms < 600
    for _ in range(5):
        machine.fail("sweep")
        began_ms = machine.now_ms
        machine.until(Beat)
    assert 1000 <= machine.now_ms - began_ms <= 1100, "and then not more often than any other call"


def test_rule_39_a_follower_that_is_asked_to_look_sweeps_once() -> None:
    machine = Looker()
    machine.sweeping().reconnects().upto(Beat).answer("sweep", Beaten(machine.srv_us, "ok", False, False, looks=True))
    operation = machine.out["sweep"].operation
    assert isinstance(operation, Sweep) and operation.run_id == RUN
    machine.answer("sweep", Swept(machine.srv_us, 1000, leads=False, watched=WATCHED))
    assert isinstance(machine.out["sweep"].operation, ListConnections)


@pytest.mark.parametrize(("fails", "fault"), [(1, True), (3, False)], ids=["refused", "again and again"])
def test_rule_39_a_server_that_refuses_a_look_or_answers_none_again_and_again_is_not_asked_again(fails: int, fault: bool) -> None:
    machine = Looker()
    machine.asking().failed("sweep").asking().looked(1, 2, 3)
    for _ in range(fails):
        machine.asking().fail("sweep", fault=fault)
    assert machine.sweeps().run_id == ""
    assert machine.reconnects().until(Sweep).run_id == RUN, "a new connection may be to a server that allows it and answers"


def test_rule_39_who_lives_and_lost_a_lease_does_not_name_that_connection_for_a_while() -> None:
    """The server may have lost the connection that the worker still holds: it would be taken for lost again and again."""
    presence = Presence(ServerClock())
    presence.connected(ClientConnection(7, "127.0.0.1:7", RUN))
    presence.doubted(1_000 * MS)
    assert presence.connection(10_999 * MS) == "" and presence.connection(11_000 * MS) == f"7 {RUN}"
    presence.doubted(30_000 * MS)
    presence.connected(ClientConnection(8, "127.0.0.1:8", RUN))
    assert presence.connection(30_000 * MS) == f"8 {RUN}", "a new one is there for certain"


def test_rule_39_the_kernel_asks_a_silent_control_connection_for_a_sign_of_life(desk: Desk) -> None:
    connection = desk.redis.connection_pool.get_connection()
    sock: Any = connection._sock
    assert identify(connection) is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    kept = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in KEEP_ALIVE_S}
    idle_s, interval_s, count = kept["TCP_KEEPIDLE"], kept["TCP_KEEPINTVL"], kept["TCP_KEEPCNT"]
    assert 2 * 1_000 * (idle_s + interval_s * count) == 10_000, "it finds out in half of the time of a doubt"
    desk.redis.connection_pool.release(connection)


# -- real processes


def start(workers: Workers, queue: Queue, count: int, *options: str, present: int | None = None) -> dict[str, Any]:
    """So many workers that are listed, and of which so many have named their connections."""
    found = {f"w{at}": workers.start("--lease-ms", str(LONG_MS), *options, name=f"w{at}") for at in range(count)}
    wait_until(lambda: len(queue.workers.list()) == count, "all are listed")
    with raw_client(workers.url) as client:
        wanted = count if present is None else present
        wait_until(lambda: client.hlen(queue.model.keys.connections) == wanted, "their connections are known")
    return found


def hold(workers: Workers, queue: Queue, job: str) -> int:
    """The pid of the worker that runs a job which holds."""
    queue.enqueue("hold", {"folder": str(workers.folder)}, id=job, crashes_max=100)
    return wait_until(lambda: workers.marks("start", job), f"{job} runs")[-1].pid


def kill(workers: Workers, job: str, pid: int) -> list[Mark]:
    """The worker that runs this job is killed, and another one runs it."""
    os.kill(pid, signal.SIGKILL)
    return wait_until(lambda: [mark for mark in workers.marks("start", job) if mark.pid != pid], "it runs again")


def watch(client: Any, queue: Queue, times: int, field: str = "looked_ms") -> None:
    """Wait until somebody has looked, or swept, so often."""
    for _ in range(times):
        before = client.hget(queue.model.keys.sweep, field)
        wait_until(lambda before=before: client.hget(queue.model.keys.sweep, field) != before, f"{field} changes")


def alive(queue: Queue) -> int:
    return sum(info.alive for info in queue.workers.list())


def registrations(client: Any, queue: Queue) -> dict[int, int]:
    """Client ids of the control connections, by the pid of their workers."""
    named: Any = client.hgetall(queue.model.keys.connections)
    pids = {info.incarnation: info.pid for info in queue.workers.list()}
    return {pids[name]: int(value.split()[0]) for name, value in named.items() if pids.get(name)}


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rule_39_the_jobs_of_a_killed_worker_run_elsewhere_long_before_their_leases_end(
    queue: Queue, workers: Workers, kills: int, client: Any
) -> None:
    """Whether the one that leads is killed or one that follows."""
    start(workers, queue, 1 + kills)
    killed: list[int] = []
    for number in range(kills):
        killed.append(hold(workers, queue, f"j{number}"))
        assert kill(workers, f"j{number}", killed[-1])[0].pid not in killed
        if number < kills - 1:
            workers.start("--lease-ms", str(LONG_MS), name="next")
            wait_until(lambda: alive(queue) == client.hlen(queue.model.keys.connections) == 3, "three are known")

    def told() -> bool:
        rows = [row for path in workers.folder.glob("*.jsonl") for row in whole_lines(path) if '"f":"reap"' in row]
        return any('"incarnation":"' in row and '"result":"reaped"' in row for row in rows)

    wait_until(told, "the history tells it from other reaps")


@pytest.mark.slow
def test_rule_39_workers_whose_connections_are_cut_name_new_ones_and_keep_their_leases(
    queue: Queue, workers: Workers, client: Any
) -> None:
    start(workers, queue, 3)
    pid = hold(workers, queue, "j1")
    for _ in range(3):
        before = registrations(client, queue)
        client.execute_command("CLIENT", "KILL", "ID", before[pid])
        wait_until(lambda b=before: registrations(client, queue).get(pid, b[pid]) != b[pid], "it has named a new one")
        watch(client, queue, 1)
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    wait_until(lambda: (now := registrations(client, queue)).keys() == before.keys()
               and not {*now.values()} & {*before.values()}, "all have named new ones")  # fmt: skip
    watch(client, queue, 2)
    workers.open_gate()
    wait_until(lambda: workers.marks("end", "j1"), "it ends")
    assert [mark.pid for mark in workers.marks("start", "j1")] == [pid]


@pytest.mark.slow
def test_rule_39_a_worker_that_stands_still_keeps_its_connection_and_its_leases(
    queue: Queue, workers: Workers, client: Any
) -> None:
    start(workers, queue, 3)
    pid = hold(workers, queue, "j1")
    os.kill(pid, signal.SIGSTOP)
    try:
        watch(client, queue, 4)
        assert client.zrange(queue.model.keys.active, 0, -1) == ["j1"]
    finally:
        os.kill(pid, signal.SIGCONT)
    workers.open_gate()
    wait_until(lambda: workers.marks("end", "j1"), "it ends")
    assert len(workers.marks("start", "j1")) == 1


@pytest.mark.slow
def test_rule_39_followers_notice_a_killed_worker_where_the_leader_cannot_look(
    queue: Queue, workers: Workers, client: Any
) -> None:
    workers.start("--lease-ms", str(LONG_MS), "--presence", "off", "--concurrency", "1", name="leader")
    wait_until(lambda: any(info.leads for info in queue.workers.list()), "it leads")
    for name in ("a", "b"):
        # They follow for as long as it sweeps at all, and beat often, by which they hear that they have to look.
        workers.start("--lease-ms", str(LONG_MS), "--sweep-ms", str(LONG_MS // 4), "--beat-ms", "1000", name=name)
    wait_until(lambda: client.hlen(queue.model.keys.connections) == 2, "their connections are known")
    leader = client.get(queue.model.keys.leader)
    seen = {info.pid for info in queue.workers.list() if info.incarnation != leader}
    # The leader has room for one of two jobs.
    kill(workers, *next((job, pid) for job in ("j1", "j2") if (pid := hold(workers, queue, job)) in seen))
    assert client.get(queue.model.keys.leader) == leader, "it has led all the time"


@pytest.mark.slow
def test_rule_39_workers_behind_a_proxy_notice_one_that_is_connected_directly(
    queue: Queue, tmp_path: Path, workers: Workers, relay: Relay, client: Any
) -> None:
    # Nor would they notice it soon by missing beats.
    options = ("--lease-ms", str(LONG_MS), "--beat-ms", str(LONG_MS))
    workers.start(*options, name="direct")
    wait_until(lambda: client.hlen(queue.model.keys.connections) == 1, "its connection is known")
    with Workers(tmp_path, relay.url) as proxied:
        pid = hold(workers, queue, "j1")
        for name in ("a", "b"):
            proxied.start(*options, name=name)
        wait_until(lambda: alive(queue) == 3, "there are three")
        kill(workers, "j1", pid)
        assert client.hlen(queue.model.keys.connections) == 0, "only that one was named"


def left_to_its_lease(queue: Queue, workers: Workers, client: Any) -> None:
    """A worker that is killed keeps its lease while the others sweep on."""
    os.kill(hold(workers, queue, "j1"), signal.SIGKILL)
    # Sweeps are at most a second apart.
    watch(client, queue, 5, "last_sweep_ms")
    assert client.zrange(queue.model.keys.active, 0, -1) == ["j1"] and len(workers.marks("start", "j1")) == 1


@pytest.mark.slow
def test_presence_can_be_switched_off(queue: Queue, workers: Workers, client: Any) -> None:
    start(workers, queue, 2, "--presence", "off", present=0)
    left_to_its_lease(queue, workers, client)
    assert client.hget(queue.model.keys.sweep, "looked_ms") is None


@pytest.mark.slow
def test_presence_is_off_behind_a_proxy(queue: Queue, tmp_path: Path, relay: Relay, client: Any) -> None:
    """The proxy's connection need not end with the process. They look after others, and nobody has named a connection."""
    with Workers(tmp_path, relay.url) as workers:
        found = start(workers, queue, 2, present=0)
        left_to_its_lease(queue, workers, client)
        assert all("a proxy is in between" in workers.output(name) for name in found)


@pytest.mark.slow
@pytest.mark.parametrize(("refused", "present"), [("-client|list", 2), ("-client|info", 0), ("-info", 0)])
def test_presence_is_off_where_the_user_may_not_look(
    queue: Queue, tmp_path: Path, as_user: Any, refused: str, present: int, client: Any
) -> None:
    with Workers(tmp_path, as_user(f"~* &* +@all {refused}")) as workers:
        found = start(workers, queue, 2, present=present)
        left_to_its_lease(queue, workers, client)
        assert any("NOPERM" in workers.output(name) for name in found)


@pytest.mark.slow
def test_all_shards_of_a_process_name_its_one_connection(ironclaim_url: str, workers: Workers, client: Any) -> None:
    whole: Any = Queue("s", url=ironclaim_url, shards=3)
    with whole as queue:
        queue.enqueue("mark", {"folder": str(workers.folder)})
        workers.start("--shards", "3", queue="s")
        keys = [Lanes(name).keys.connections for name in queue.look_up().names("s")]
        wait_until(lambda: all(client.hlen(key) == 1 for key in keys), "each shard knows it")
        assert len({value for key in keys for value in client.hvals(key)}) == 1


@pytest.mark.nightly
def test_rule_39_twenty_kills(queue: Queue, workers: Workers, capsys: pytest.CaptureFixture[str]) -> None:
    """How long it takes until the job of a killed worker runs elsewhere: measured, and printed."""
    start(workers, queue, 3)
    took_s: list[float] = []
    for number in range(KILLS):
        pid, killed_ns = hold(workers, queue, f"j{number}"), time.monotonic_ns()
        again = kill(workers, f"j{number}", pid)
        took_s.append((again[0].at_ns - killed_ns) / 1e9)
        workers.open_gate(again[0].pid)
        wait_until(lambda n=number: workers.marks("end", f"j{n}"), "it ends")
        (workers.folder / f"open-{again[0].pid}").unlink()
        workers.start("--lease-ms", str(LONG_MS), name=f"x{number}")
        wait_until(lambda: alive(queue) == 3, "there are three again")
    with capsys.disabled():
        print(f"\n{KILLS} kills: recovered after {statistics.median(took_s):.2f} s (median), {max(took_s):.2f} s at most")
    assert max(took_s) < LONG_MS / 1000
