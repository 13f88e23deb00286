"""Several queues in one process: strict, weighted and by chance, on a real server; whose turn it is, by hand."""

import itertools
import random
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Malformed, Queue, ServerUnavailable, Worker, WorkerGroup
from engine.worker.machine.concurrency import Sharing
from tests.engine.using import Book, at_work, refused, wait_until

NAMES = ("critical", "normal", "low")


@pytest.fixture
def queues(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    # The others do not take the place of a queue whose claim is answered late.
    monkeypatch.setattr("engine.worker.machine.concurrency.PATIENCE_S", 600.0)
    made = tuple(Queue(name, url=ironclaim_url) for name in NAMES)
    yield made
    for queue in made:
        queue.close()


def fill(queues: tuple[Queue, ...], count: int) -> tuple[Queue, ...]:
    for queue in queues:
        queue.enqueue_many([{"name": "work", "payload": {}, "id": f"{queue.name}-{number}"} for number in range(count)])
    return queues


def finished(queues: tuple[Queue, ...]) -> int:
    return sum(queue.counts().finished for queue in queues)


def kinds(book: Book) -> list[str]:
    return [job.partition("-")[0] for _, job in book.ran]


@pytest.mark.feature("BL34", "MQ20", "MQ33")
@pytest.mark.parametrize("concurrency", [1, 4])
def test_strict(queues: tuple[Queue, ...], concurrency: int) -> None:
    """A queue is worked off before the next one, and one that gets work again comes first again."""
    book = Book()
    group = WorkerGroup(fill(queues, 40), book.handlers("w", "work"), concurrency=concurrency)
    with at_work(group):
        wait_until(lambda: len(book.ran) >= 90, "the last queue's turn")
        queues[0].enqueue("work", {}, id="critical-again")
        wait_until(lambda: finished(queues) == 121, "all")
    # By their claims: a thread that stands still writes its job into the book late. Two claims may share a millisecond.
    claimed_ms = {name: [book.fences[f"{name}-{number}"] for number in range(40)] for name in NAMES}
    assert max(claimed_ms["critical"]) <= min(claimed_ms["normal"]) and max(claimed_ms["normal"]) <= min(claimed_ms["low"])
    assert len(book.ran) == 121 and book.most <= concurrency


@pytest.mark.feature("MQ33")
def test_weighted(queues: tuple[Queue, ...]) -> None:
    book = Book()
    group = WorkerGroup(fill(queues, 300), book.handlers("w", "work"), strategy="weighted", weights=[6, 3, 1], concurrency=4)
    with at_work(group):
        wait_until(lambda: len(book.ran) >= 320, "while all have work")
    counts = Counter(kinds(book)[20:320])
    # So wide because a thread that stands still writes its jobs late; equal parts were 100 each.
    assert abs(counts["critical"] - 180) <= 40 and abs(counts["normal"] - 90) <= 40 and abs(counts["low"] - 30) <= 40, counts


@pytest.mark.feature("MQ33")
def test_shuffle(queues: tuple[Queue, ...]) -> None:
    book = Book()
    with at_work(WorkerGroup(fill(queues, 300), book.handlers("w", "work"), strategy="shuffle", concurrency=2)):
        wait_until(lambda: len(book.ran) >= 450, "while all have work")
    counts = Counter(kinds(book)[:450])
    # Six standard deviations of a fair draw.
    assert all(abs(counts[name] - 150) <= 60 for name in NAMES), counts
    assert max(len(list(run)) for _, run in itertools.groupby(kinds(book)[:450])) < 40, "they take turns"


@pytest.mark.feature("MQ21")
def test_a_worker_runs_from_some_queues_alone(queues: tuple[Queue, ...]) -> None:
    book = Book()
    fill(queues, 5)
    assert WorkerGroup([queues[0], queues[2]], book.handlers("w", "work")).run(burst=True) == "empty"
    assert Counter(kinds(book)) == {"critical": 5, "low": 5} and queues[1].counts().waiting == 5


def test_places_are_shared_and_a_queue_that_waits_gets_the_next_one(queues: tuple[Queue, ...]) -> None:
    book = Book(hold=True)
    fill(queues[2:], 60)
    group = WorkerGroup(queues, book.handlers("w", "work"), concurrency=3)
    with at_work(group):
        wait_until(lambda: book.running == 3, "one queue may have all places")
        queues[0].enqueue("work", {}, id="critical-0")
        share: Any = group.workers[0]._share  # pyright: ignore[reportPrivateUsage]
        wait_until(lambda: share.wants_jobs, "its worker has heard of it")
        book.release()
        wait_until(lambda: finished(queues) == 61, "all")
    assert kinds(book)[:3] == ["low"] * 3 and "critical" in kinds(book)[3:45], "it did not wait for the end of the other queue"
    assert book.most == 3


def test_a_group_tells_that_the_grace_of_one_of_its_workers_was_over(queues: tuple[Queue, ...]) -> None:
    book = Book(hold=True)
    fill(queues[2:3], 1)
    group = WorkerGroup(queues, book.handlers("w", "work"), grace_ms=100)
    with ThreadPoolExecutor() as threads, ExitStack() as ends:
        ends.callback(lambda: (group.stop(), book.release()))
        reason = threads.submit(group.run)
        wait_until(lambda: book.running == 1, "one of them holds a job")
        group.stop()
        assert reason.result(120) == "grace over"


def test_a_group_ends_when_one_of_its_workers_fails(queues: tuple[Queue, ...], closed_port: int) -> None:
    with Queue("gone", url=f"redis://127.0.0.1:{closed_port}") as gone:
        gone.driver.deadline_ms = 100
        refused(ServerUnavailable, None, WorkerGroup([queues[0], gone], Book().handlers("w", "work")).run)
        gone.shards = 2
        refused(ServerUnavailable, None, Worker(gone, Book().handlers("w", "work")).run)


def test_a_group_runs_with_no_worker_that_runs_by_itself(queues: tuple[Queue, ...], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ironclaim.worker")
    book = Book()
    group = WorkerGroup(queues, book.handlers("w", "work"))
    with ThreadPoolExecutor() as threads, ExitStack() as ends:
        alone = threads.submit(group.workers[0].run)
        ends.callback(group.stop)
        fill(queues[:1], 1)
        wait_until(lambda: bool(book.ran), "one runs by itself")
        refused(Malformed, "a worker that does not run already", group.run)
        assert alone.result(120) == "stopped", "it hears that the group has ended"
    assert sum(": queue critical, " in record.getMessage() for record in caplog.records) == 1, "it began once"


def test_a_queue_stands_once_in_a_group(queues: tuple[Queue, ...]) -> None:
    with Queue(queues[0].name, url=queues[0].url) as again:
        said = f"two are the queue {again.name}; let one module import that of the other"
        refused(Malformed, said, WorkerGroup, [queues[0], again], Book().handlers("w", "work"))


@pytest.mark.parametrize("kind", ["worker", "group"])
def test_a_signal_that_does_not_wake_the_main_thread_is_heard(queues: tuple[Queue, ...], kind: str) -> None:
    """One that comes just before that thread blocks interrupts nothing. One in another thread is the same to it."""
    handlers, heard, seen = Book().handlers("w", "work"), threading.Event(), list[bool]()
    served = queues[:1] if kind == "worker" else queues
    works = Worker(queues[0], handlers, lease_ms=600_000, sweep_ms=600_000) if kind == "worker" else WorkerGroup(queues, handlers)

    def signal_here() -> None:
        try:
            wait_until(lambda: all(queue.workers.list() for queue in served), "it works")
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            seen.append(heard.wait(60))
        finally:
            works.stop()

    thread = threading.Thread(target=signal_here)
    thread.start()
    works.run()
    heard.set()
    thread.join()
    assert seen == [True]


# -- whose turn it is


def test_a_queue_whose_claims_are_not_answered_asks_for_one_place() -> None:
    """Each such claim holds the places that it asked for until its deadline."""
    gone, other = Sharing(8, [1, 1], "weighted").shares
    other.report(0, asking=False, wants_jobs=False)
    assert gone.allow(8, 0) == 8
    # It has failed.
    gone.report(0, asking=False, wants_jobs=True)
    assert gone.allow(8, 0) == 1
    gone.report(0, asking=False, wants_jobs=True)
    assert gone.allow(8, 0) == 1
    gone.answered(0)
    gone.report(0, asking=False, wants_jobs=True)
    assert gone.allow(8, 0) == 8


WEIGHTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(st.sampled_from(["strict", "weighted", "shuffle"]), st.integers(1, 5), WEIGHTS, st.integers(0, 2**32))
def test_places_are_never_overdrawn_and_somebody_may_claim(strategy: Any, places: int, weights: list[int], seed: int) -> None:
    """Machines that ask, are answered and end jobs in any order; those that are poked ask."""
    dice = random.Random(seed)
    sharing = Sharing(places, weights, strategy, dice.random)
    waiting, held = [dice.randrange(30) for _ in weights], [0] * len(weights)
    asked, poked = [0] * len(weights), set(range(len(weights)))
    for share in sharing.shares:
        share.poke = lambda number=share.number: poked.add(number)

    def ask(number: int) -> None:
        if asked[number]:
            return
        asked[number] = sharing.shares[number].allow(places, held[number])
        tell(number)

    def tell(number: int) -> None:
        sharing.shares[number].report(held[number], asking=asked[number] > 0, wants_jobs=asked[number] > 0 or waiting[number] > 0)
        assert sum(held) + sum(asked) <= places

    for _ in range(2000):
        if poked:
            ask(poked.pop())
            continue
        moves = [("answer", n) for n in range(len(weights)) if asked[n]] + [("end", n) for n in range(len(weights)) if held[n]]
        if not moves:
            break
        move, number = dice.choice(moves)
        if move == "answer":
            jobs = min(asked[number], waiting[number])
            sharing.shares[number].answered(jobs)
            waiting[number] -= jobs
            held[number] += jobs
            asked[number] = 0
        else:
            held[number] -= 1
        if waiting[number]:
            ask(number)
        else:
            tell(number)
    assert (waiting, held, asked) == ([0] * len(weights),) * 3, "nothing is left, and nobody waits for ever"


def test_queues_of_one_server_wait_with_one_block(queues: tuple[Queue, ...], client: Any) -> None:
    """An idle group costs the server one block in five seconds; each queue's jobs end it."""
    book = Book()
    group = WorkerGroup(queues, book.handlers("w", "work"), concurrency=2)
    # Tests before this one may have left connections that the server has yet to close.
    before = client.info("clients")["connected_clients"]
    with at_work(group):
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "all wait together")
        for number, queue in enumerate(queues):
            queue.enqueue("work", {}, id=f"{queue.name}-{number}")
            wait_until(lambda number=number: len(book.ran) == number + 1, "it ran")
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "all wait together again")
        wait_until(lambda: client.info("clients")["connected_clients"] <= before + 12, "there are few connections")
