"""Which jobs a real worker takes: targets, routing keys, names, priorities; what holds it back: pauses, gates, settings."""

import asyncio
import threading
from typing import Any

import pytest

from engine import Malformed, Queue, Target, Worker
from engine.observer import Outcome
from tests.engine.using import Book, Call, WorkerUpdates, at_work, hurried, make_worker, refused, wait_until

#: What happens while a test waits was not found by a sweep or a heartbeat.
SLOW_SWEEP = {"lease_ms": 600_000, "sweep_ms": 600_000, "beat_ms": 600_000}


@pytest.fixture
def long_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by an idle worker whose block was over."""
    for module in ("machine.claiming", "worker"):
        monkeypatch.setattr(f"engine.worker.{module}.BLOCK_MS", 600_000)


class Hearing:
    """An observer that says when its worker was told what is set for it."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        if isinstance(outcome.reply, WorkerUpdates):
            self.told.set()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def put(queue: Queue, *ids: str, **options: Any) -> None:
    for id in ids:
        queue.enqueue("work", {}, id=id, **options)


def finished(queue: Queue, count: int) -> bool:
    return queue.counts().finished == count


@pytest.mark.feature("BQ13", "BQ14", "BQ15", "BQ16", "BQ17")
def test_jobs_go_to_the_workers_that_their_targets_ask_for(queue: Queue) -> None:
    book = Book()
    east = make_worker(queue, book, "east", stack="node", capabilities=["gpu", "email"], region="us-east")
    west = make_worker(queue, book, "west", stack="python", capabilities=["gpu"], region="us-west")
    wants: dict[str, tuple[Target, str]] = {
        "server": (Target(server="west"), "west"), "stack": (Target(stack=["python", "ruby"]), "west"),
        "region": (Target(region=["us-east"]), "east"), "all": (Target(capabilities=["gpu", "email"], mode="all"), "east"),
        "both": (Target(capabilities=["email", "sms"], region=["us-east", "us-west"]), "east"),
        "nobody": (Target(server="north"), ""),
    }  # fmt: skip
    for job, (target, _) in wants.items():
        queue.enqueue("work", {}, id=job, target=target)
    with at_work(east, west):
        wait_until(lambda: finished(queue, 5), "all that somebody may run")
        queue.enqueue("work", {}, id="any", target={"capabilities": ["gpu"]})
        wait_until(lambda: finished(queue, 6), "one of the two runs it")
    assert {job: who for who, job in book.ran if job != "any"} == {job: who for job, (_, who) in wants.items() if who}
    assert queue.counts().waiting == 1
    # Who comes later runs what has waited for it.
    with at_work(make_worker(queue, book, "north")):
        wait_until(lambda: book.by("north") == ["nobody"], "its own job")


@pytest.mark.feature("BN03", "BN04")
def test_routing_keys(queue: Queue) -> None:
    book = Book()
    for job, route in (("plain", None), ("gpu", "gpu"), ("mail", "mail"), ("other", "other")):
        queue.enqueue("work", {}, id=job, route=route)
    with at_work(make_worker(queue, book, "one"), make_worker(queue, book, "two", routes=["gpu", "mail"])):
        wait_until(lambda: finished(queue, 3), "three of four")
    assert (book.by("one"), sorted(book.by("two"))) == (["plain"], ["gpu", "mail"])
    assert queue.counts().waiting == 1


@pytest.mark.usefixtures("long_blocks")
def test_idle_workers_learn_at_once_of_a_class_that_nobody_has_ever_seen(queue: Queue) -> None:
    """Three workers block; the job is for the last of them, whoever takes the first marker."""
    book = Book()
    with at_work(*(make_worker(queue, book, name, **SLOW_SWEEP) for name in ("a", "b", "c"))):
        queue.enqueue("work", {}, id="first")
        wait_until(lambda: finished(queue, 1), "they are at work")
        for number, name in enumerate(("c", "a", "b")):
            queue.enqueue("work", {}, id=f"for-{name}", target=Target(server=name))
            wait_until(lambda name=name: book.by(name)[-1:] == [f"for-{name}"], f"job {number}")
        put(queue, *(f"again-{number}" for number in range(20)), target=Target(server="b"))
        wait_until(lambda: finished(queue, 24), "a class that is known wakes its worker as any other")


def test_a_worker_with_many_classes_starts_each_of_them(queue: Queue) -> None:
    """More than 15: they are claimed and waited for in turns, and none is forgotten."""
    book = Book()
    for number in range(40):
        queue.enqueue("work", {}, id=f"old{number}", route=f"r{number}")
    with at_work(make_worker(queue, book, "w", routes=[f"r{number}" for number in range(50)], sweep_ms=100)):
        wait_until(lambda: finished(queue, 40), "what was there")
        for number in range(50):
            queue.enqueue("work", {}, id=f"new{number}", route=f"r{number}")
        wait_until(lambda: finished(queue, 90), "what has come since")


def test_no_class_starves_while_another_one_is_busy(queue: Queue) -> None:
    book = Book()
    put(queue, *(f"busy{number}" for number in range(300)), route="busy")
    for number in range(5):
        queue.enqueue("work", {}, id=f"rare{number}", route=f"rare{number}")
    with at_work(make_worker(queue, book, "w", concurrency=1, routes=["busy", *(f"rare{n}" for n in range(5))])):
        wait_until(lambda: finished(queue, 305), "all")
    last = max(at for at, (_, job) in enumerate(book.ran) if job.startswith("rare"))
    assert last < 150, "they did not wait for the end of the others"


def test_a_burst_works_off_the_classes_that_the_worker_may_run(queue: Queue) -> None:
    book = Book()
    queue.enqueue("work", {}, id="gpu", route="gpu")
    queue.enqueue("work", {}, id="other", route="other")
    queue.enqueue("work", {}, id="plain")
    make_worker(queue, book, "w", routes=["gpu"]).run(burst=True)
    assert book.by("w") == ["gpu"]
    make_worker(queue, book, "v", routes=["none"]).run(burst=True)
    assert queue.counts().waiting == 2


@pytest.mark.feature("BN24")
def test_a_worker_for_some_names_leaves_the_others(queue: Queue) -> None:
    book = Book()
    for name in ("resize", "train", "mail"):
        queue.enqueue(name, {}, id=name)
    make_worker(queue, book, "w", "resize", "train", "mail", names=["train", "mail"]).run(burst=True)
    assert sorted(book.by("w")) == ["mail", "train"] and queue.counts().waiting == 1


@pytest.mark.feature("BN23")
@pytest.mark.usefixtures("long_blocks")
def test_a_worker_for_some_priorities_takes_them_from_behind_others_and_steals_no_marker(queue: Queue) -> None:
    book = Book()
    put(queue, *(f"good{number}" for number in range(5)), priority=9)
    put(queue, "low", priority=1)
    low = make_worker(queue, book, "low", priorities=(1, 3), **SLOW_SWEEP)
    with at_work(low):
        wait_until(lambda: book.by("low") == ["low"], "the job behind five better ones")
        queue.enqueue("work", {}, id="low2", priority=3)
        wait_until(lambda: book.by("low") == ["low", "low2"], "while the better ones still wait")
        with at_work(make_worker(queue, book, "all", **SLOW_SWEEP)):
            wait_until(lambda: len(book.by("all")) == 5, "the others")
            for number in range(10):
                queue.enqueue("work", {}, id=f"more{number}", priority=10)
                wait_until(lambda number=number: book.by("all")[-1] == f"more{number}", "whoever has heard of it first")
    assert book.by("low") == ["low", "low2"]


@pytest.mark.feature("BN21", "BN22", "BN26", "BL22")
@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_handlers_run_at_once_by_concurrency(queue: Queue, concurrency: int) -> None:
    """Thin mode is a concurrency of 1, for all priorities, better ones first."""
    book = Book(hold=True)
    for number in range(concurrency + 3):
        queue.enqueue("work", {}, id=f"j{number}", priority=1 + number)
    with at_work(make_worker(queue, book, "w", concurrency=concurrency)):
        wait_until(lambda: book.running == concurrency, "all places")
        book.release()
        wait_until(lambda: finished(queue, concurrency + 3), "the rest")
    assert book.most == concurrency
    if concurrency == 1:
        assert book.by("w") == ["j3", "j2", "j1", "j0"]


# -- what holds a worker back


@pytest.mark.feature("BL21")
def test_a_paused_worker_ends_what_runs_and_starts_nothing(queue: Queue) -> None:
    book = Book(hold=True)
    worker = make_worker(queue, book, "w", concurrency=1, prefetch=8)
    put(queue, "j0", "j1", "j2", "j3")
    with at_work(worker):
        wait_until(lambda: book.running == 1, "one runs")
        worker.pause()
        wait_until(lambda: queue.counts().active == 1, "what has not started goes back")
        book.release()
        wait_until(lambda: finished(queue, 1), "what runs goes on")
        # Another worker is not touched, and is told of what waits.
        with at_work(make_worker(queue, book, "other")):
            wait_until(lambda: len(book.by("other")) == 3, "the others run elsewhere")
        queue.enqueue("work", {}, id="later")
        worker.resume()
        wait_until(lambda: book.by("w") == ["j0", "later"], "it goes on")


@pytest.mark.feature("MQ34")
@pytest.mark.usefixtures("long_blocks")
def test_a_closed_gate_holds_claims_and_is_asked_again(queue: Queue, client: Any) -> None:
    book, asked, opens = Book(), threading.Event(), threading.Event()

    def gate() -> bool:
        asked.set()
        return opens.is_set()

    queue.enqueue("work", {}, id="j")
    with at_work(make_worker(queue, book, "w", gate=gate, **SLOW_SWEEP)):
        assert asked.wait(120)
        asked.clear()
        assert asked.wait(120), "again, within a bounded time"
        assert (book.ran, queue.counts().active) == ([], 0)
        opens.set()
        wait_until(lambda: finished(queue, 1), "the gate is open")
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "no claim is on its way")
        opens.clear()
        queue.enqueue("work", {}, id="k")
        asked.clear()
        assert asked.wait(120)
        # The marker that it has taken is there for others, at the latest after a sweep.
        with at_work(make_worker(queue, book, "other")):
            wait_until(lambda: book.by("other") == ["k"], "it runs elsewhere")


@pytest.mark.feature("MQ34")
def test_a_gate_bounds_how_many_are_claimed_and_one_that_raises_is_closed(queue: Queue) -> None:
    book, said = Book(hold=True), [2]

    def gate() -> int:
        return said[0] if said[0] >= 0 else 1 // 0

    put(queue, *(f"j{number}" for number in range(6)))
    with at_work(make_worker(queue, book, "w", concurrency=8, gate=gate)):
        wait_until(lambda: book.running >= 2, "two a claim")
        said[0] = -1
        book.release()
        wait_until(lambda: queue.counts().active == 0, "what it has ends, whatever the gate says")
        left = queue.counts().waiting
        said[0] = 1
        wait_until(lambda: finished(queue, 6), "it goes on")
    assert left <= 4


@pytest.mark.feature("MQ33", "MQ35")
def test_so_many_handlers_at_once_as_are_set_from_afar(queue: Queue, client: Any) -> None:
    book = Book(hold=True)
    queue.workers.set_concurrency("w", 2)
    put(queue, *(f"j{number}" for number in range(6)))
    with at_work(make_worker(queue, book, "w", concurrency=4, sweep_ms=50)):
        # It may have begun with more before it heard of it.
        wait_until(lambda: book.running >= 2, "it works")
        queue.workers.set_concurrency("w", 1)
        queue.workers.set_concurrency(None, 3)
        # Whoever is idle has heard of it when the marker was taken, and this one sweeps.
        client.config_resetstat()
        wait_until(lambda: client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] > 20, "sweeps")
        book.release()
        wait_until(lambda: finished(queue, 6), "those that ran")
        again, hearing = Book(hold=True), Hearing()
        observer: Any = hearing
        observed = Queue(queue.name, url=queue.url, observer=observer)
        with observed, at_work(make_worker(observed, again, "other", concurrency=4, sweep_ms=50, names=None)):
            assert hearing.told.wait(120)
            book.most = 0
            # Else it may run nearly all of them before the other one has three.
            book.hold()
            put(queue, *(f"k{number}" for number in range(20)))
            wait_until(lambda: (book.running, again.running) == (1, 3), "the number of its own, and the number for all")
            book.release()
            again.release()
            wait_until(lambda: finished(queue, 26), "the rest")
            assert (book.most, again.most) == (1, 3)
            queue.workers.set_concurrency("w", None)
            queue.workers.set_concurrency(None, None)
    assert list(client.hkeys(queue.model.keys.settings)) == ["version"]


@pytest.mark.feature("BL21")
@pytest.mark.usefixtures("long_blocks")
def test_one_worker_is_paused_from_afar(queue: Queue, client: Any) -> None:
    book = Book()
    other = make_worker(queue, book, "v", **{**SLOW_SWEEP, "beat_ms": 100})
    with at_work(make_worker(queue, book, "w", **SLOW_SWEEP), other):
        queue.enqueue("work", {}, id="first")
        wait_until(lambda: finished(queue, 1), "they are at work")
        wait_until(lambda: client.info("clients")["blocked_clients"] == 2, "both are idle")
        queue.workers.pause("w")
        # Idle workers hear of it at once: they have learnt it when nobody blocks for this version any more.
        key = queue.model.keys.news(0)
        wait_until(lambda: client.llen(key) == 1, "the marker has found nobody")
        for number in range(10):
            queue.enqueue("work", {}, id=f"j{number}")
            wait_until(lambda number=number: finished(queue, 2 + number), "the other one runs it")
        assert {who for who, job in book.ran if job != "first"} == {"v"}
        queue.workers.pause("v")
        # Else it might take the marker with it into its pause.
        wait_until(lambda: ("v", True) in [(info.name, info.paused) for info in queue.workers.list()], "it has heard of it")
        queue.enqueue("work", {}, id="waits")
        queue.workers.resume("w")
        wait_until(lambda: book.by("w")[-1:] == ["waits"], "it goes on")
        queue.workers.pause("w", length_ms=300)
        queue.enqueue("work", {}, id="later")
        wait_until(lambda: book.by("w")[-1:] == ["later"], "a pause with a length ends")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_settings_by_both_faces(ironclaim_url: str, kind: str, client: Any) -> None:
    with asyncio.Runner() as runner:
        queue = hurried(kind, runner, "q", ironclaim_url)

        def call(name: str, *arguments: Any, **more: Any) -> None:
            getattr(queue.workers, name)(*arguments, **more)

        call("set_concurrency", "w", 1000)
        call("set_concurrency", None, 1)
        call("pause", "w", length_ms=0)
        call("pause", "v")
        call("resume", "v")
        assert client.hgetall(queue.model.keys.settings) == {"version": "5", "c:w": "1000", "c:*": "1", "p:w": "0 0"}
        for name, arguments, field in (
            ("set_concurrency", ("w", 0), "concurrency"), ("set_concurrency", ("w", 1001), "concurrency"),
            ("set_concurrency", ("a b", 1), "worker name"), ("pause", ("",), "worker name"), ("resume", (None,), "worker name"),
        ):  # fmt: skip
            assert refused(Malformed, None, call, name, *arguments).field == field
        refused(Malformed, "^length_ms: ", call, "pause", "w", length_ms=-1)
        queue.close()


def test_pauses_and_gates_do_not_stop_renewals(queue: Queue) -> None:
    book = Book(hold=True)
    # With a lease so long it renews at each beat.
    worker = make_worker(queue, book, "w", lease_ms=600_000, beat_ms=200)
    queue.enqueue("work", {}, id="j")
    with at_work(worker):
        wait_until(lambda: book.running == 1, "it runs")
        worker.pause()
        first = dict(queue.snapshot().states["active"])["j"]
        wait_until(lambda: dict(queue.snapshot().states["active"])["j"] > first, "its lease is renewed")
        book.release()
        wait_until(lambda: finished(queue, 1), "it ends")


def test_a_worker_says_what_it_cannot_be(queue: Queue) -> None:
    with pytest.raises(Malformed, match=r"^names: .*some of the names with handlers: a, b"):
        Worker(queue, Book().handlers("w", "a", "b"), names=["c"])
