"""Where operations go in a queue with shards: what they declare, and that a queue with shards answers each call of its users as a
whole one does, on a real server."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, fields, is_dataclass
from typing import Any, cast, get_args

import pytest

from engine import AsyncQueue, Handlers, NewJob, Queue, UnsupportedFeature, Worker
from engine.options import PLAIN
from engine.queue.sharding import Layout, first_record
from tests.conformance.declared import every_operation
from tests.engine.ops import AdminOperation, Limit, Operation, Pause, Route, SetLimit, SetRetention, immutable
from tests.engine.using import Blocking, Enqueue, Inspect, Page, at_work, hurried, raises, refused

SHARDS = 4
NAMES = Layout(1, SHARDS).names("parts")
PARTS = ("jobs", "dead", "workflows", "results", "schedules", "workers", "locks", "events", "history")

# -- what operations declare


def test_every_operation_declares_a_route_that_can_be_gone() -> None:
    for kind in every_operation():
        assert kind.goes in get_args(Route), kind
        if kind.goes == "find":
            assert {field.name for field in fields(kind)} & {"job", "jobs"}, kind  # type: ignore[arg-type]
        if kind.goes == "all":
            assert kind.merge is not Operation.merge, f"{kind.__name__}: what do the replies of several shards say together?"


def test_admin_operations_go_to_all_shards_unless_they_say_otherwise() -> None:
    apart = {kind.__name__: kind.goes for kind in every_operation() if issubclass(kind, AdminOperation) and kind.goes != "all"}
    of_schedules = dict.fromkeys(("ScheduleChange", "PutSchedule", "EnableSchedule", "RemoveSchedule"), "home")
    assert apart == {**of_schedules, "Alter": "find", "Revive": "find", "Clean": "each", "Forget": "each"}


def test_each_layout_in_use_is_sent_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """While 3 shards become 5 both layouts have the whole limit of a name, and a key has its limit in its shard of each."""
    former, layout = Layout(1, 3), Layout(2, 5)

    def sent(operation: Operation) -> dict[str, Any]:
        record = first_record(3).preparing(5).moving()
        queue: Any = Queue("parts", shards=3)
        monkeypatch.setattr(queue, "look_up", lambda: record)
        return dict(queue._parts(operation))

    of_name = {name: part.limit.concurrency for name, part in sent(SetLimit("n:send", Limit(concurrency=16))).items()}
    assert of_name == {"parts": 4, "parts#1.1": 5, "parts#1.2": 5, **dict.fromkeys(layout.names("parts")[1:], 3)}
    of_key = [layout.name("parts", layout.home("acme", "", "")) for layout in (former, layout)]
    assert [*sent(SetLimit("k:acme", Limit(concurrency=2)))] == of_key
    bounds = {part.bounds for part in sent(SetRetention((("done_max", 30), ("done_age_ms", 9)))).values()}
    assert bounds == {(("done_max", kept), ("done_age_ms", 9)) for kept in (10, 6)}
    assert len(sent(Pause("send", 0))) == 7


# -- what users ask, of a whole queue and of one with shards

Call = Callable[[Queue], Any]


def put(queue: Queue) -> Any:
    return queue.schedules.put("nightly", "good", 1, cron="0 3 * * *")


def locked(queue: Queue) -> Any:
    lock = queue.locks.acquire("door")
    assert lock is not None
    return queue.locks.acquire("door"), queue.locks.extend(lock).renewals, queue.locks.release(lock)


def metrics(queue: Queue) -> Any:
    """What is told, and how many jobs there are in each state."""
    lines = [line.replace(queue.name, "q") for line in queue.metrics().splitlines()]
    return {line if line.startswith("ironclaim_jobs{") else line.rsplit(" ", 1)[0] for line in lines}


#: Each method of a queue and of its parts, in an order in which one leaves the next something to do.
CALLS: dict[str, Call] = {
    "enqueue": lambda queue: [queue.enqueue("late", n, id=f"late{n}", delay_ms=600_000 + n, key=f"k{n}") for n in range(6)],
    "enqueue_many": lambda queue: queue.enqueue_many([NewJob("wait", n, id=f"w{n}", key=f"k{n}") for n in range(12)]),
    "counts": lambda queue: queue.counts(),
    "jobs.counts_by_name": lambda queue: queue.jobs.counts_by_name(),
    "snapshot": lambda queue: {state: sorted(job for job, _ in found) for state, found in queue.snapshot().states.items()},
    "jobs.get": lambda queue: [queue.jobs.get(job) for job in ("w3", "late3", "bad1", "nobody")],
    "jobs.state": lambda queue: [queue.jobs.state(job) for job in ("w3", "late3", "bad1", "good1", "nobody")],
    "jobs.why": lambda queue: [queue.jobs.why(job).state for job in ("w3", "late3", "bad1", "nobody")],
    "jobs.list": lambda queue: [
        *(queue.jobs.list(state) for state in ("waiting", "delayed", "dead", "finished")),
        [job.id for job in queue.jobs.list("delayed", offset=2, limit=2)],
        queue.jobs.list("waiting", key="k7"),
    ],
    "jobs.page": lambda queue: [queue.jobs.page("delayed", limit=4), queue.jobs.page("dead", name="bad")],
    "dead.by_error": lambda queue: {(at.name, at.kind, at.count) for at in queue.dead.by_error().groups},
    "dead.list": lambda queue: queue.dead.list(error="ValueError"),
    "results.get": lambda queue: [queue.results.get(job) for job in ("good1", "good2", "bad1", "w3", "nobody")],
    "results.progress": lambda queue: [queue.results.progress(job) is None for job in ("good1", "bad1", "nobody")],
    "results.wait": lambda queue: [queue.results.wait(job).value for job in ("good1", "good2")],
    "stats": lambda queue: [(times.name, times.succeeded.count, times.failed.count) for times in queue.stats()],
    "metrics": metrics,
    "jobs.run_now": lambda queue: [queue.jobs.run_now(job) for job in ("late0", "w0", "nobody")],
    "jobs.cancel": lambda queue: [
        *(queue.jobs.cancel("w1"), queue.jobs.cancel("w2", expected_state="delayed"), queue.jobs.cancel("no")),
    ],
    "jobs.remove": lambda queue: [queue.jobs.remove("late1"), queue.jobs.remove("no", expected_state="waiting")],
    "pause": lambda queue: queue.pause("wait"),
    "set_limit": lambda queue: [
        queue.set_limit("wait", concurrency=9, rate=8, per_ms=1_000),
        *(queue.set_limit(key="k3", concurrency=2), queue.set_limit(key="*", concurrency=5)),
    ],
    "limits": lambda queue: [(limit.target, limit.concurrency, limit.rate) for limit in queue.limits()],
    "obstacles": lambda queue: [queue.obstacles().pauses, [lane[:3] for lane in map(astuple, queue.obstacles().lanes)]],
    "remove_limit": lambda queue: [
        *(queue.remove_limit("wait"), queue.remove_limit(key="k3"), queue.remove_limit(key="*")),
        queue.limits(),
    ],
    "resume": lambda queue: [queue.resume("wait"), queue.resume("wait")],
    "set_retention": lambda queue: queue.set_retention(done_max=400, dead_max=400),
    "events.on": lambda queue: queue.events.on(100),
    "events.off": lambda queue: queue.events.off(),
    "history.on": lambda queue: queue.history.on(400),
    "history.rule": lambda queue: queue.history.rule(),
    "schedules.put": put,
    "schedules.get": lambda queue: [getattr(queue.schedules.get(name), "job_name", None) for name in ("nightly", "none")],
    "schedules.list": lambda queue: [schedule.name for schedule in queue.schedules.list()],
    "schedules.disable": lambda queue: [queue.schedules.disable(name) for name in ("nightly", "none")],
    "schedules.enable": lambda queue: [queue.schedules.enable(name) for name in ("nightly", "none")],
    "schedules.run_now": lambda queue: [getattr(queue.schedules.run_now(name), "result", None) for name in ("nightly", "none")],
    "schedules.remove": lambda queue: [queue.schedules.remove(name) for name in ("nightly", "none")],
    **dict.fromkeys(("locks.acquire", "locks.extend", "locks.release"), locked),
    "workers.list": lambda queue: queue.workers.list(),
    "workers.get": lambda queue: queue.workers.get("w"),
    "workers.pause": lambda queue: queue.workers.pause("w", length_ms=60_000),
    "workers.resume": lambda queue: queue.workers.resume("w"),
    "dead.requeue": lambda queue: [queue.dead.requeue(job) for job in ("bad0", "w0", "no")],
    "workflows.get": lambda queue: [getattr(queue.workflows.get(job), "counts", None) for job in ("bad1", "no")],
    "workflows.retry": lambda queue: [queue.workflows.retry("bad2"), queue.workflows.retry("no")],
    "workflows.cancel": lambda queue: [queue.workflows.cancel("w4"), queue.workflows.cancel("no")],
    "dead.discard": lambda queue: [queue.dead.discard(job) for job in ("bad1", "no")],
    "dead.requeue_all": lambda queue: [queue.dead.requeue_all(limit=3), queue.dead.requeue_all("other")],
    "dead.discard_all": lambda queue: [queue.dead.discard_all("other"), queue.dead.discard_all(limit=1)],
    "dead.clear": lambda queue: [queue.dead.clear(limit=2), queue.dead.clear(), queue.dead.clear()],
    "clean": lambda queue: [queue.clean("waiting", limit=4), queue.clean("finished")],
    "drain": lambda queue: queue.drain(delayed=True),
    "history.list": lambda queue: Counter(past.outcome for past in queue.history.list()),
    "history.off": lambda queue: [queue.history.off(), queue.history.rule(), queue.history.list()],
    "call": lambda queue: worked(queue, lambda: queue.call("good", 7, key="k7")),
    "obliterate": lambda queue: [queue.obliterate(), queue.counts()],
}
#: How much one call reads or changes at most, in the small.
PAGES = {
    "looks.PIECE": 3, "admin.PIECE": 2, "synchronous._PAGE": 1, "asynchronous.parts._PAGE": 1, "synchronous._NAMES_PAGE": 2,
    "asynchronous.jobs._NAMES_PAGE": 2, "synchronous._SNAPSHOT_PAGE": 2, "asynchronous.queue._SNAPSHOT_PAGE": 2,
    "synchronous._STATS_PAGE": 1, "asynchronous.queue._STATS_PAGE": 1,
}  # fmt: skip
#: What each shard has for itself.
APART: dict[str, Call] = {
    "events.last": lambda queue: queue.events.last(), "events.read": lambda queue: list(queue.events.read("0", wait_ms=0)),
    "workers.set_concurrency": lambda queue: queue.workers.set_concurrency("w", 3),
    "use_test_clock": lambda queue: queue.use_test_clock(2**43),
}  # fmt: skip
#: What asks the server nothing.
WITHOUT_CALLS = {"job", "like", "close", "events.close", "results.close", "results.wait_out"}


def handlers() -> Handlers:
    made = Handlers()
    made("bad")(raises(ValueError("no")))
    made("good")(lambda job: job.payload)
    return made


def worked(queue: Queue, what: Callable[[], Any]) -> Any:
    """What comes of it while a worker works."""
    with Queue(queue.name, url=queue.url, shards=queue.shards) as served, at_work(Worker(served, handlers())):
        return what()


def told(value: Any) -> Any:
    """A value without times and what else is drawn or counted per shard; lists in one order."""
    if isinstance(value, Queue):
        return "queue"
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.compare]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        names = list(cast("Any", value)._fields)
    elif isinstance(value, dict):
        return {name: told(item) for name, item in value.items()}
    elif isinstance(value, list | tuple | set):
        return sorted((told(item) for item in value), key=repr)
    else:
        return value
    drawn = ("fence", "envelope", "errors", "last_error", "payload_bytes")
    return {name: told(getattr(value, name)) for name in names if not name.endswith(("_ms", "_us")) and name not in drawn}


@pytest.fixture
def both(kind: str, runner: asyncio.Runner, ironclaim_url: str) -> Iterator[tuple[Queue, Any]]:
    """A whole queue and one of each kind with shards, with the same jobs, some of which have ended."""
    made = AsyncQueue("parts", url=ironclaim_url, shards=SHARDS)
    with Queue("whole", url=ironclaim_url) as whole, Queue("parts", url=ironclaim_url, shards=SHARDS) as parts:
        for queue in (whole, parts):
            queue.enqueue_many([NewJob("bad", n, id=f"bad{n}", attempts=1, key=f"k{n}") for n in range(10)])
            queue.enqueue_many([NewJob("good", n, id=f"good{n}", key=f"k{n}" if n % 2 else None) for n in range(10)])
            # Nothing is taken ahead: what then waits for 200 ms, on a busy machine, goes back and is claimed twice.
            assert Worker(queue, handlers(), name="w", prefetch=0).run(burst=True) == "empty"
        yield whole, parts if kind == "sync" else Blocking(made, runner)
        runner.run(made.close())


def test_the_table_knows_every_method() -> None:
    def public(kind: type[Any], before: str = "") -> set[str]:
        methods = [name for name, value in vars(kind).items() if callable(getattr(value, "__func__", value))]
        return {f"{before}{name}" for name in methods if name[0] != "_"}

    queue = Queue("parts")
    found = public(Queue).union(*(public(type(getattr(queue, part)), f"{part}.") for part in PARTS))
    assert found == {*CALLS, *APART} | (WITHOUT_CALLS & found) and inspect.signature(Queue).parameters["shards"].default is None


def test_shards_answer_as_a_whole_queue_does_also_in_small_pages(both: tuple[Queue, Any], monkeypatch: Any) -> None:
    whole, parts = both
    for name, call in CALLS.items():
        wanted = told(call(whole))
        with monkeypatch.context() as small:
            for place, size in PAGES.items():
                small.setattr(f"engine.queue.{place}", size)
            assert told(call(parts)) == wanted, name


def test_what_shards_have_each_for_itself_is_refused(ironclaim_url: str) -> None:
    with Queue("parts", url=ironclaim_url, shards=SHARDS) as queue:
        for call in APART.values():
            refused(UnsupportedFeature, "shard", call, queue)


# -- what nobody has written yet


@immutable
class PauseDirectly(AdminOperation, script="pause", slots={"class": "class_name"}):
    """A call of an administrator that the queue does not know."""

    class_name: str
    length_ms: int


@pytest.fixture
def parts(kind: str, runner: asyncio.Runner, ironclaim_url: str) -> Iterator[Any]:
    """A queue of either kind with shards."""
    made = hurried(kind, runner, "parts", ironclaim_url, shards=SHARDS)
    yield made
    made.close()


def test_a_new_admin_call_reaches_all_shards_and_is_known_to_none_of_the_routes(parts: Any, client: Any) -> None:
    assert parts.do(PauseDirectly("send", 0)).result == "done"
    assert all(client.hexists(f"ic:{{{name}}}:paused", "send") for name in NAMES)


def test_what_cannot_be_merged_is_refused_and_asked_shard_by_shard(parts: Any) -> None:
    jobs = [item.job for item in parts.enqueue_many([NewJob("send", n) for n in range(20)])]
    refused(UnsupportedFeature, "Page: the shards of queue parts answer each for itself", parts.do, Page("waiting", 0, 100))
    found = [reply.jobs for _, reply in parts.each(Page("waiting", 0, 100))]
    assert len(found) == SHARDS and sorted(job for page in found for job in page) == sorted(jobs)
    assert parts.do(Inspect((jobs[3],))).items[0].state == "waiting"
    assert parts.do(Enqueue("made", "send", b"1", b"nonce---", PLAIN)).result == "created"
    assert parts.jobs.state("made") == "waiting"
