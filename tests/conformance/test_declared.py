"""What a model does not declare raises UnsupportedFeature before anything is sent, for every option of jobs and every operation;
and so does Malformed for what no model takes."""

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from engine import AsyncQueue, Malformed, NewJob, Queue, UnsupportedFeature
from engine.models import Spec
from engine.ops import admin, jobs, looks, schedules, workers
from tests.conformance.declared import every_operation, has, holds
from tests.conformance.models import FOREIGN

AFTER = NewJob("main", {"label": "after"})
#: A value of each option that is not its default.
VALUES: dict[str, Any] = {
    **{"priority": 9, "lifo": True, "delay_ms": 5_000, "run_at_ms": 4_200_000_000_000, "attempts": 7},
    **{"timeout_ms": 77, "soft_timeout_ms": 76, "headers": {"a": "b"}, "serializer": "raw", "timestamp_ms": 1_795_233_562_980},
    **{"backoff": "linear", "backoff_ms": 77, "backoff_max_ms": 77_000, "backoff_delays_ms": [1, 2]},
    **{"unique": "u", "dedup": "d", "dedup_ms": 1_000, "key": "acme", "cost": 2, "jitter": 0.25},
    **{"needs": ["4711"], "on_parent_failure": "ignore", "crashes_max": 7, "skip_on": ["ValueError"]},
    **{"reroute_on": {"ValueError": "other"}, "route": "gpu", "target": {"stack": ["python"]}},
    **dict.fromkeys(("result_ttl_ms", "error_ttl_ms", "expires_ms"), 77_000),
    **dict.fromkeys(("on_success", "on_failure"), AFTER),
}
#: What has to stand beside it.
BESIDE = {"dedup": {"dedup_ms": 1_000}, "dedup_ms": {"dedup": "d"}, "backoff_delays_ms": {"backoff": "custom"}}
OPTIONS: dict[str, dict[str, Any]] = {name: {name: value, **BESIDE.get(name, {})} for name, value in VALUES.items()}

Face = Callable[[Queue], Any]
#: How a service meets each operation. What is missing here only workers and schedulers do.
FACES: dict[type[Any], Face] = {
    admin.SetLimit: lambda queue: queue.set_limit("main", concurrency=1),
    admin.SetRetention: lambda queue: queue.set_retention(done_max=5),
    admin.SetEvents: lambda queue: queue.events.on(),
    looks.ReadEvents: lambda queue: queue.events.last(),
    admin.SetHistory: lambda queue: queue.history.on(),
    looks.ListHistory: lambda queue: queue.history.list(),
    admin.SetWorker: lambda queue: queue.workers.set_concurrency("w", 1),
    admin.Pause: lambda queue: queue.pause(),
    admin.Resume: lambda queue: queue.resume(),
    admin.Alter: lambda queue: queue.jobs.cancel("4711"),
    admin.Revive: lambda queue: queue.dead.requeue("4711", with_children=True),
    admin.Clean: lambda queue: queue.clean("waiting"),
    admin.Forget: lambda queue: queue.obliterate(),
    schedules.PutSchedule: lambda queue: queue.schedules.put("s", "main", {"label": "s"}, every_ms=60_000),
    schedules.EnableSchedule: lambda queue: queue.schedules.disable("s"),
    schedules.RemoveSchedule: lambda queue: queue.schedules.remove("s"),
    schedules.ListSchedules: lambda queue: queue.schedules.list(),
    looks.Look: lambda queue: queue.results.get("4711"),
    looks.AwaitEnds: lambda queue: queue.results.wait("4711", wait_ms=1),
    looks.ReadProgress: lambda queue: queue.results.progress("4711"),
    looks.Inspect: lambda queue: queue.jobs.get("4711"),
    looks.Explain: lambda queue: queue.jobs.why("4711"),
    looks.ListObstacles: lambda queue: queue.limits(),
    looks.Page: lambda queue: queue.jobs.list("waiting"),
    looks.Count: lambda queue: queue.counts(),
    looks.Listing: lambda queue: queue.snapshot(),
    workers.ListWorkers: lambda queue: queue.workers.list(),
    workers.ListRunTimes: lambda queue: queue.stats(),
    workers.AcquireLock: lambda queue: queue.locks.acquire("l"),
}


class Silence:
    """A server that nobody may call."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.socket.getsockname()[1]}/0"

    def kept(self) -> bool:
        return not select.select([self.socket], [], [], 0)[0]


@pytest.fixture
def silence() -> Iterator[Silence]:
    made = Silence()
    yield made
    made.socket.close()


@pytest.fixture
def unheard(spec: Spec, silence: Silence) -> Iterator[Queue]:
    """A queue on that server."""
    with Queue("q", spec, url=silence.url) as queue:
        yield queue
    assert silence.kept()


def test_the_table_knows_every_option() -> None:
    assert {*OPTIONS} == {field.name for field in fields(jobs.Options)}


def test_what_a_model_declares_exists(unheard: Queue) -> None:
    model: Any = unheard.model
    assert {*getattr(model, "OPTIONS", ())} <= {*OPTIONS}
    assert {*getattr(model, "LACKS", ())} <= every_operation()


def test_an_option_that_jobs_of_the_model_do_not_hold_is_refused_before_it_is_sent(unheard: Queue) -> None:
    for option, given in OPTIONS.items():
        if not holds(unheard, *given):
            payload = b"raw" if option == "serializer" else {"label": "j"}
            with pytest.raises(UnsupportedFeature, match=f"{unheard.model.name} has no option"):
                unheard.enqueue("main", payload, **given)
            with pytest.raises(UnsupportedFeature, match=r"jobs\[1\]"):
                unheard.enqueue_many([{"name": "main", "payload": {"label": "i"}}, {"name": "main", "payload": payload, **given}])


def test_the_same_under_asyncio(spec: Spec, silence: Silence) -> None:
    async def refused() -> int:
        queue, count = AsyncQueue("q", spec, url=silence.url), 0
        for option, given in OPTIONS.items():
            if not holds(queue, *given):  # type: ignore[arg-type]
                with pytest.raises(UnsupportedFeature):
                    await queue.enqueue("main", b"raw" if option == "serializer" else {"label": "j"}, **given)
                count += 1
        await queue.close()
        return count

    assert (asyncio.run(refused()) > 0) == (spec in FOREIGN.values()) and silence.kept()


def test_each_call_of_the_administration_has_a_face() -> None:
    declared = {kind for kind in every_operation() if issubclass(kind, admin.AdminOperation) and kind.script}
    assert len(declared) > 10
    lacks = {kind.__name__ for kind in declared - FACES.keys()}
    assert lacks == {"SetMetadata"}, "FACES above lacks how a service asks; SetMetadata has none, for `JobMetadata` refuses it"


def test_an_operation_that_the_model_lacks_is_refused_before_it_is_sent(unheard: Queue) -> None:
    for operation, face in FACES.items():
        if not has(unheard, operation):
            with pytest.raises(UnsupportedFeature, match=f"{unheard.model.name} has no {operation.__name__}"):
                face(unheard)


#: A field, and a call in which it is wrong.
BAD: dict[str, tuple[str, Face]] = {
    "name": ("name", lambda queue: queue.enqueue("", {"label": "j"})),
    "half a pair": ("name", lambda queue: queue.enqueue("\ud800", {"label": "j"})),
    "payload": ("payload", lambda queue: queue.enqueue("main", {"label": {1, 2}})),
    "nan": ("payload", lambda queue: queue.enqueue("main", {"label": float("nan")})),
    "size": ("payload", lambda queue: queue.enqueue("main", {"label": "x" * 600_000})),
    "id": ("id", lambda queue: queue.enqueue("main", {"label": "j"}, id="")),
    "priority": ("priority", lambda queue: queue.enqueue("main", {"label": "j"}, priority=11)),
    "delay": ("delay_ms", lambda queue: queue.enqueue("main", {"label": "j"}, delay_ms=-1)),
    "option": ("prio", lambda queue: queue.enqueue("main", {"label": "j"}, prio=1)),  # type: ignore[call-arg]
    "many": (r"jobs\[0\]", lambda queue: queue.enqueue_many([{"name": "main"}])),
    "state": ("state", lambda queue: queue.clean("elsewhere")),
    "age": ("older_than_ms", lambda queue: queue.clean("waiting", older_than_ms=-1)),
    "length": ("length_ms", lambda queue: queue.pause(length_ms=-1)),
    "force": ("force", lambda queue: queue.obliterate(force=1)),  # type: ignore[arg-type]
    "offset": ("offset", lambda queue: queue.jobs.list("waiting", offset=-1)),
    "known": ("id", lambda queue: queue.jobs.get("")),
    "schedule": ("every_ms", lambda queue: queue.schedules.put("s", "main", {}, every_ms=1)),
}


def test_what_is_out_of_bounds_is_refused_before_it_is_sent(unheard: Queue) -> None:
    for field, face in BAD.values():
        with pytest.raises((Malformed, UnsupportedFeature), match=field):
            face(unheard)


@pytest.mark.parametrize("layout", ["", "Live", None, 7])
def test_a_layout_that_does_not_exist_is_refused(layout: Any) -> None:
    kinds: set[Any] = {type(spec) for spec in FOREIGN.values() if hasattr(spec, "layout")}
    for kind in kinds:
        with pytest.raises(Malformed, match="layout"):
            kind(layout=layout)
