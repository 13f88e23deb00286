"""Which places handlers of a service have, by the histories and by a real server's limits."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.service.drill import Taken, all_the_while, taken
from chaos.watch import Token, Watch
from engine import Handlers, Job, Queue, Worker
from tests.engine.helpers.waiting import wait_until

WORKERS = {"worker-1": 2, "worker-2": 1}


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path)
    for name in WORKERS:
        made.follow(name)
    yield made
    made.close()


def run(watch: Watch, worker: str, *jobs: str) -> None:
    for job in jobs:
        watch.view(worker).running[Token(job, 1, "")] = 1


def test_all_places_are_taken_when_each_worker_runs_as_many_handlers_as_it_can(watch: Watch) -> None:
    run(watch, "worker-1", "a")
    run(watch, "worker-2", "b")
    assert taken(watch, WORKERS, ()) == Taken(frozenset({"worker-2"}), ())
    run(watch, "worker-1", "c")
    assert taken(watch, WORKERS, ()).full == ("handlers had all 3 places of the workers",)
    assert taken(watch, {}, ()).full == ()


def test_a_limit_is_full_of_work_only_while_handlers_run_what_holds_it(watch: Watch, ironclaim_url: str) -> None:
    over, handlers = threading.Event(), Handlers()

    @handlers("charge")
    def charge(job: Job) -> None:
        over.wait(60)

    with Queue("places", url=ironclaim_url) as queue:
        queue.set_limit(name="charge", concurrency=1)
        queue.enqueue("charge", None, id="first")
        queue.enqueue("charge", None, id="second")
        assert taken(watch, WORKERS, queue.limits()).full == ()
        thread = threading.Thread(target=Worker(queue, handlers, sweep_ms=100).run, kwargs={"burst": True})
        thread.start()
        wait_until(lambda: any(limit.full for limit in queue.limits()), "the limit is full")
        # As far as the histories say nobody runs it: then what keeps the place is not the service.
        assert taken(watch, WORKERS, queue.limits()).full == ()
        run(watch, "worker-1", "first")
        assert taken(watch, WORKERS, queue.limits()).full == ("the limit of name charge was full",)
        over.set()
        thread.join()


def test_what_was_full_at_both_instants_was_full_between_them() -> None:
    before, after = Taken(frozenset({"a", "b"}), ("x", "y")), Taken(frozenset({"b", "c"}), ("y", "z"))
    assert all_the_while(before, after) == Taken(frozenset({"b"}), ("y",))
