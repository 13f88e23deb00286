"""A worker's beats as its state machine decides them, and as real workers tell them: listed while they live, gone when they have
stopped, and relieved of their leases when they are lost (BQ02 to BQ04, BQ31, BQ32, MQ30, MQ31)."""

import itertools
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from engine import Handlers, Queue, Worker, queues
from engine.worker.machine.events import Forked, StopAsked
from tests.engine.helpers.machine import Machine, exits, holding
from tests.engine.ops import Beat, Beaten, Count, NoteQueue, ReadWorkerUpdates, Sweep, Swept
from tests.engine.using import Workers, at_work, claim_operation, kill, some_handlers, stopped, wait_until


def beating(**more: Any) -> Machine:
    return Machine(concurrency=2, beat_ms=10_000, about={"name": "w"}, **more)


def operation(machine: Machine) -> Any:
    return machine.out["sweep"].operation


def beaten(machine: Machine, *, leads: bool = True, orphaned: bool = False, watch_in_ms: int = 0, version: int = 0) -> Machine:
    """The outstanding beat is answered, and what follows it: the note that the queue is in use."""
    machine.answer("sweep", Beaten(machine.srv_us, "ok", leads, orphaned, watch_in_ms, version))
    if "sweep" in machine.out and isinstance(operation(machine), NoteQueue):
        machine.answer("sweep", True)
    return machine


# -- the machine


def test_a_worker_beats_at_once_and_then_at_its_interval_with_what_it_has_in_hand() -> None:
    machine = beating()
    first = operation(machine)
    assert isinstance(first, Beat) and (first.counter, first.ttl_ms, first.lease_ms) == (1, 30_000, 9000)
    assert first.until_ms == machine.srv_us // 1000 + 30_000 and '"in_hand":0' in first.about
    beaten(machine.given(machine.job("a"))).sweep()
    beats: list[Beat] = []
    while machine.now_ms < 25_000:
        machine.wait(100)
        if "sweep" in machine.out:
            if isinstance(operation(machine), Beat):
                beats.append(operation(machine))
                beaten(machine)
            else:
                assert isinstance(operation(machine), Sweep)
                machine.sweep()
        if "renew" in machine.out:
            machine.extend("ok")
    assert [beat.counter for beat in beats] == [2, 3] and '"in_hand":1' in beats[0].about and '"jobs":["a"]' in beats[0].about


@pytest.mark.parametrize(("lease_ms", "beat_ms", "every_ms"), [(600_000, 10_000, 10_000), (9000, 10_000, 3000), (9000, 0, 3000)])
def test_it_renews_with_each_beat_where_a_third_of_its_leases_is_longer(lease_ms: int, beat_ms: int, every_ms: int) -> None:
    """Orphans are told by both: beats that are lost alone must not cost a worker its leases."""
    machine, _ = holding("a", deadline_ms=lease_ms, concurrency=2, lease_ms=lease_ms, beat_ms=beat_ms)
    renewed: list[int] = []
    while machine.now_ms < 4 * every_ms:
        machine.wait(100)
        if "renew" in machine.out:
            renewed.append(machine.now_ms)
            machine.extend("ok")
    assert {after - before for before, after in itertools.pairwise(renewed)} == {every_ms}


def test_it_takes_its_leave_when_it_has_nothing_left_and_waits_a_second_for_the_answer() -> None:
    for end in ("answered", "failed", "no answer"):
        machine = beaten(beating())
        machine.sweep()
        machine.give()
        if "wake" in machine.out:
            machine.wake(False)
        assert not exits(machine.on(StopAsked()))
        leave = operation(machine)
        assert isinstance(leave, Beat) and leave.until_ms == 0
        if end == "answered":
            assert exits(machine.answer("sweep", Beaten(machine.srv_us, "left", False, False)))
        elif end == "failed":
            assert exits(machine.fail("sweep")), "who waits for it is told by its silence"
        else:
            assert not exits(machine.wait(900)) and exits(machine.wait(200))


def test_without_an_interval_it_neither_beats_nor_leaves() -> None:
    machine = Machine()
    assert isinstance(operation(machine), Sweep)
    machine.sweep()
    assert exits(machine.given().on(StopAsked()))


def test_after_a_fork_it_also_answers_for_the_leases_of_its_former_incarnation() -> None:
    machine = beating()
    beaten(machine.given(machine.job("a"))).sweep()
    machine.on(Forked())
    for _ in range(1000):
        machine.wait(100)
        if "renew" in machine.out:
            machine.extend("ok")
        if "sweep" not in machine.out:
            continue
        if isinstance(operation(machine), Beat):
            break
        machine.sweep()
    assert operation(machine).incarnation == "0000000000000002" and operation(machine).others == ("0000000000000001",)


@pytest.mark.feature("BQ31", "MQ23")
def test_who_leads_sweeps_when_something_falls_due_and_who_follows_a_little_later() -> None:
    for leads, at_ms in ((True, 30), (False, 200)):
        machine = beaten(beating(), leads=leads)
        if leads:
            machine.sweep(sleep_ms=1000)
        assert isinstance(machine.given(sleep_ms=30).sweeps_after(at_ms), Sweep)


def test_rule_13_who_follows_sweeps_for_nothing_but_what_its_claims_told_it() -> None:
    machine = beaten(beating(), leads=False, watch_in_ms=3000)
    assert isinstance(machine.given(sleep_ms=1000).sweeps_after(3000), Beat), "its turn has come"
    beaten(machine, leads=False, watch_in_ms=20_000)
    assert isinstance(machine.sweeps_after(10_000), Beat), "at the latest when its beat is due"


def test_rule_13_who_finds_the_leader_silent_sweeps_at_once_until_another_one_leads() -> None:
    machine, led = beaten(beating(), leads=False, watch_in_ms=1000), list[bool]()
    machine.steps.on_lead = led.append
    beaten(machine.given().after(1001), leads=True)
    for _ in range(3):
        assert isinstance(operation(machine), Sweep)
        machine.sweep()
        machine.wait(1001)
    machine.answer("sweep", Swept(machine.srv_us, 1000, leads=False))
    assert isinstance(operation(machine), Beat) and led == [True, False], "it has no turn yet"
    assert "sweep" not in beaten(machine, leads=False, watch_in_ms=5000).after(4990).out


def test_rule_13_who_cannot_tell_whether_it_leads_sweeps() -> None:
    machine = beating().failed("sweep").answered("sweep", True)
    assert isinstance(operation(machine), Sweep)
    assert isinstance(operation(machine.answered("sweep", Swept(machine.srv_us, 1000)).after(1001)), Beat)


def test_who_follows_and_does_not_block_for_the_news_asks_for_them_in_each_interval() -> None:
    """It is busy or paused: what is set for it must not wait for its next turn."""
    machine = beaten(beating(), leads=False, watch_in_ms=9_000)
    machine.give(machine.job("a"), machine.job("b"))
    assert "wake" not in machine.out
    for _ in range(3):
        assert isinstance(machine.sweeps_after(1000), Beat)
        beaten(machine, leads=False, watch_in_ms=9_000)
        machine.extend("ok", "ok") if "renew" in machine.out else None


def test_who_follows_hears_of_news_with_its_beats() -> None:
    assert operation(beaten(beating(), leads=False, watch_in_ms=1000, version=3)) == ReadWorkerUpdates(0, "w")


def test_who_hears_of_orphans_looks_for_them_until_none_is_left() -> None:
    machine = beaten(beating(), leads=False, orphaned=True)
    for at, more in enumerate((True, True, False)):
        assert operation(machine) == Sweep("0" * 15 + "1", 2 * at + 1, 100, 1000, 1000)
        machine.sweep()
        assert operation(machine) == Sweep("0" * 15 + "1", 2 * at + 2, 250, 1000, 0, orphans=True)
        machine.answered("sweep", Swept(machine.srv_us, 0 if more else 1000, ())).wait(1)
    assert "sweep" not in machine.out


def test_a_beat_that_fails_is_tried_again_within_a_second() -> None:
    machine = beating().failed("sweep")
    assert isinstance(operation(machine), NoteQueue)
    machine.failed("sweep").sweep()
    machine.wait(1001)
    assert isinstance(operation(machine), Beat) and operation(machine).counter == 2


# -- real workers


def running(queue: Queue, handlers: Handlers, **settings: Any) -> Any:
    return at_work(Worker(queue, handlers, sweep_ms=50, **settings))


@pytest.mark.feature("BQ02", "BQ03", "BQ04", "MQ30", "MQ22")
def test_a_worker_is_listed_with_what_it_has_in_hand_and_gone_when_it_has_stopped(queue: Queue) -> None:
    gate = threading.Event()
    handlers = some_handlers(lambda job: gate.wait(120), "hold")

    with running(queue, handlers, name="w1", beat_ms=100, attributes={"region": "eu"}):
        queue.enqueue("hold", {}, id="a")
        # A machine that stands still for longer than a heartbeat counts makes it look dead for a moment.
        busy = wait_until(lambda: [info for info in queue.workers.list() if info.in_hand and info.alive], "it tells of the job")
        info = busy[0]
        assert (info.name, info.host, info.pid) == ("w1", socket.gethostname(), os.getpid())
        assert (info.jobs, info.handlers, info.attributes, info.leads) == (("a",), ("hold",), {"region": "eu"}, True)
        assert info.beat_age_ms < 30_000 and info.lease_ms == 9000 and info.concurrency == 8
        assert abs(info.started_ms - queue.driver.server_now_ms()) < 300_000
        assert "q" in [found.name for found in queues(queue.url)]
        gate.set()
        wait_until(lambda: queue.counts().finished == 1, "it is finished")
    wait_until(lambda: queue.workers.list() == [], "the server has what it said when it left")


def ended_pid() -> int:
    """The id of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(120)
    return ended.pid


@pytest.mark.parametrize(("name", "host", "pid", "warned"), [
    ("w1", "elsewhere", os.getpid, True), ("w1", socket.gethostname(), os.getppid, True),
    ("w1", socket.gethostname(), ended_pid, False), ("w1", socket.gethostname(), os.getpid, False),
    ("w2", "elsewhere", os.getpid, False),
])  # fmt: skip
def test_a_worker_warns_of_another_of_its_name(queue: Queue, caplog: Any, name: str, host: str, pid: Any, warned: bool) -> None:
    """Not of one that has just ended on this host, though its beats still count."""
    number, now_ms = pid(), queue.driver.server_now_ms()
    told = json.dumps({"name": name, "host": host, "pid": number})
    queue.driver.run(queue.model.call(Beat("a" * 16, 1, 30_000, now_ms + 30_000, 9_000, 1_000, told)))
    with caplog.at_level(logging.WARNING, logger="ironclaim.worker"):
        assert Worker(queue, some_handlers(), name="w1", sweep_ms=50).run(burst=True) == "empty"
        said = [one.getMessage() for one in caplog.records if "another one of this name" in one.getMessage()]
    wanted = rf"worker w1: there is another one of this name, on host {re.escape(host)} with process id {number}, heard of \d+ s"
    wanted += " ago; "
    assert [re.match(wanted, line) is not None for line in said] == [True] * warned


def test_workers_are_called_by_host_and_process_unless_told(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "shop web" + "x" * 100)
    named = f"worker-shop-web{'x' * 56}-{os.getpid()}"
    with running(queue, some_handlers()):
        assert [info.name for info in wait_until(queue.workers.list, "it is listed")] == [named]


@pytest.mark.feature("BQ32", "MQ31")
def test_the_leases_of_a_lost_worker_run_elsewhere_long_before_they_end(queue: Queue) -> None:
    """An hour's lease, and a worker whose beats have stopped: its only one counts for 300 ms."""
    ran: list[str] = []
    queue.enqueue("work", {}, id="a")
    # It counts for the 300 ms from its arrival on, however late that is.
    beat = Beat("0" * 15 + "1", 1, 300, queue.driver.server_now_ms() + 60_000, 3_600_000, 1000, "{}")
    queue.driver.run(queue.model.call(beat))
    claim = claim_operation(queue, lease_ms=3_600_000, incarnation=beat.incarnation)
    assert len(queue.driver.run(queue.model.call(claim)).jobs) == 1
    with running(queue, some_handlers(lambda job: ran.append(job.id)), beat_ms=100):
        wait_until(lambda: ran == ["a"], "it has run here")
        wait_until(lambda: queue.counts().finished == 1, "it is finished")
        assert beat.incarnation not in [info.incarnation for info in queue.workers.list()]


@pytest.mark.feature("BL18")
def test_a_worker_that_starts_looks_for_lost_leases_at_once_and_then_at_each_sweep(queue: Queue) -> None:
    ran: list[str] = []
    for job in ("a", "b"):
        queue.enqueue("work", {}, id=job)
        assert len(queue.driver.run(queue.model.call(claim_operation(queue, limit=1, lease_ms=100))).jobs) == 1
        if job == "a":
            wait_until(lambda: queue.driver.run(queue.model.call(Count())).active == 1, "it is leased")
    with running(queue, some_handlers(lambda job: ran.append(job.id)), lease_ms=400):
        # On a busy machine one may run again, since its lease here is short, too.
        wait_until(lambda: {*ran} == {"a", "b"}, "both have run here")


def test_processes_have_one_leader_and_a_killed_one_leaves_the_list_with_its_beats(queue: Queue, workers: Workers) -> None:
    first, second = workers.start(name="w1"), workers.start(name="w2")
    wait_until(lambda: len(queue.workers.list()) == 2, "both are listed")
    listed = {info.name: info for info in queue.workers.list()}
    assert {info.pid for info in listed.values()} == {first.pid, second.pid}
    assert sum(info.leads for info in listed.values()) == 1 and stopped(first) == 0
    wait_until(lambda: [info.name for info in queue.workers.list()] == ["w2"], "the first one has left")
    kill(second)
    assert (found := queue.workers.get("w2")) is not None and found.alive, "nobody can know yet"
