"""The settings of a queue, and the checks of the jobs that are enqueued, without I/O."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from engine import validate
from engine.errors import Malformed, UnsupportedFeature, meant_for_the_caller
from engine.handlers import Handlers
from engine.hooks import EnqueueHooks
from engine.models import Bound, Spec, bind
from engine.observer import Observer, observer_of, spared_observer
from engine.ops.base import ServerClock
from engine.ops.jobs import Enqueue
from engine.ops.workers import ReplicationProbe
from engine.options import JobOptions
from engine.parameters import JobName, Parameters, TypedJob
from engine.queue import producing, sharding
from engine.queue.era import EraWatch, OnDataLoss, ShardsWatch
from engine.queue.producing import NewJob
from engine.redis.endpoint import TIMEOUT_MS_MAX, Endpoint
from engine.redis.exchange import Durability
from engine.serializers import Serializer, Serializers

#: Whose word makes a call answered: the server's, or a replica's as well (rule 8).
Durable = Literal["server", "replica"]
#: What the two counterparts of a queue have in common.
_SHARED = (
    *(
        "name",
        "url",
        "lua",
        "payload_bytes_max",
        "model",
        "spec",
        "prefix",
        "clock",
        "era",
        "durability",
        "serializers",
    ),
    *("hooks", "handlers", "parameters", "shards"),
)
#: The least time of a test clock: 2100-01-01.
TEST_CLOCK_LEAST_MS = 4_102_444_800_000


class QueueSettings:
    """A queue's settings and its model, and what needs no server: checking the jobs that are enqueued."""

    #: Whether it is one shard of a queue.
    is_shard = False

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        model: Spec | None = None,
        *,
        prefix: str | None = None,
        durability: Durable = "server",
        replica_wait_ms: validate.Milliseconds = 1000,
        payload_bytes_max: int = validate.PAYLOAD_BYTES_MAX,
        lua: Path | None = None,
        observer: Observer | None = None,
        serializer: Serializer | None = None,
        serializers: Iterable[Serializer] = (),
        shards: int | None = None,
    ) -> None:
        #: How many shards it has, as this client says; None: it is whole.
        self.shards = sharding.number_of_shards(shards)
        self.url = endpoint.url
        self.lua = validate.lua_folder(lua)
        self.payload_bytes_max = validate.integer(
            "payload_bytes_max", payload_bytes_max, 1, validate.PAYLOAD_BYTES_LIMIT
        )
        bound: Bound = bind(model, name, prefix, self.lua)
        #: Its data model, and the settings and the prefix that this was made of.
        self.model, self.spec, self.prefix = bound
        self.name = self.model.names.queue(name)
        if self.shards and self.model.name != "lanes":
            raise UnsupportedFeature(f"{self.model.name} has no shards: its jobs live in one slot")
        self.endpoint = endpoint.for_keys_like(self.model.keys.prefix)
        # Braces in the prefix of an old keyspace are no hash tag of all its keys.
        if endpoint.is_cluster and self.model.name != "lanes":
            lacking = f"keys of {self.model.name} have no hash tag, so they fall into many slots of a cluster"
            raise UnsupportedFeature(f"{lacking}: one server, or sentinels, is where it runs")
        wait_ms = validate.duration_ms("replica_wait_ms", replica_wait_ms, 1, TIMEOUT_MS_MAX)
        self._settle_model(wait_ms if validate.durability(durability) else None)
        if self.durability is not None and self.shards and endpoint.is_cluster:
            # The write that a repeat makes before it waits for a replica has a key of shard 0, at another
            # node.
            raise UnsupportedFeature(
                'durability="replica" of a queue with shards is for one server, or sentinels'
            )
        self.serializers = Serializers(serializer, serializers)
        #: What is to be done before and after each enqueue.
        self.hooks = EnqueueHooks()
        #: The functions that `job` has registered.
        self.handlers = Handlers()
        #: What their payloads hold, by name.
        self.parameters: dict[str, Parameters] = {}
        #: The AsyncQueue of a Queue and the other way round, once it was asked for (`engine.queue.settings`).
        self.counterpart: Any = None
        # When all else is known to fit: who observes may open a file.
        found = observer_of(self.name, observer)
        self.observer: Observer | None = found
        if found is not None and found.leads_to is not None:
            if not self.prefix.startswith(found.under):
                under = bind(self.spec, name, found.under + self.prefix, self.lua)
                self.model, self.spec, self.prefix = under
                self._settle_model(None if self.durability is None else wait_ms)
            self.endpoint = endpoint.led_to(found.leads_to).for_keys_like(self.model.keys.prefix)
            self.url = self.endpoint.url

    def _settle_model(self, replica_wait_ms: int | None) -> None:
        """Make what knows the keys of the model."""
        #: The server's time, as any of its calls has learned it, and what notices that the server went back.
        watch = ShardsWatch if self.shards else EraWatch
        self.era = watch(self.name, self.model) if "note_era" in self.model.scripts else None
        self.clock = ServerClock(self.era)
        #: What each of its drivers needs to wait for a replica; None where the server's own word is enough.
        self.durability = (
            None
            if replica_wait_ms is None
            else Durability(self.model.call(ReplicationProbe()), replica_wait_ms)
        )

    def on_data_loss(self, callback: OnDataLoss) -> OnDataLoss:
        """Call this with each DataLoss: the server has less than this process was acknowledged or has seen,
        after a failover, a restore, a restart without its data. Once for each, in a thread of its own or as a
        task of the running event loop, so that it neither holds up nor fails a call. What it raises is
        logged. Returns it, so that it can decorate. Raises UnsupportedFeature for an old keyspace, which has
        no sequence to tell by."""
        if self.era is None:
            raise UnsupportedFeature(f"{self.model.name} has no sequence that tells that a server went back")
        if not callable(callback):
            raise Malformed("callback", callback, "a function that takes a DataLoss")
        self.era.call_back(callback)
        return callback

    async def aclose(self) -> None:
        """Close the idle connections, also those that `aenqueue` and `acall` of its tasks have opened."""
        for counterpart in (self, self.counterpart):
            closing = None if counterpart is None else counterpart.close()
            if closing is not None:
                await closing

    def close(self) -> Any:
        """Close the idle connections."""
        raise NotImplementedError

    def _take_over(self, other: QueueSettings, observer: Observer | None) -> None:
        """Have the settings of another queue, and its handlers and hooks themselves."""
        vars(self).update({name: value for name, value in vars(other).items() if name in _SHARED})
        self.observer = other.observer if observer is None else spared_observer(observer)
        self.counterpart = None

    def _register(self, task: TypedJob[Any], batch: int | None, given: dict[str, Any]) -> Any:
        aliases = validate.items("aliases", given.pop("aliases", ()), "names that the job had before")
        names, handlers = (task.name, *map(self.model.names.job_name, aliases)), cast("Any", self.handlers)
        # All of them are checked before the first is registered.
        for name, registered in {name: handlers(name, batch=batch, **given) for name in names}.items():
            registered(task.handler)
            self.parameters[name] = task.parameters
        return task

    def _drafted(
        self, name: JobName, payload: object, id: str | None, options: JobOptions
    ) -> tuple[Enqueue, NewJob | None]:
        """A job, checked, and as its hooks have left it, if there are any. Raises Malformed."""
        tasks = self.parameters
        if type(name) is not str and validate.asked(
            "name", name, "a name, or a task", isinstance, name, TypedJob
        ):
            task = cast("TypedJob[Any]", name)
            merged: Any = {**task.options, **options}
            own_id = merged.pop("id", None)
            id, tasks = own_id if id is None else id, {**tasks, task.name: task.parameters}
            name, options = task.name, cast("JobOptions", merged)
        given: Any = options
        job = None
        if self.hooks.some:
            job = self.hooks.prepare(NewJob(name, payload, id=id, **options))
            name, payload, id, given = job.name, job.payload, job.id, job.options
        draft = producing.draft(
            name, payload, self.payload_bytes_max, id, given, self.serializers, self.model
        )
        if tasks:
            check_payload(tasks, self.serializers, draft)
        return draft, job

    def _drafted_many(self, jobs: Iterable[object]) -> list[Enqueue]:
        """Many jobs, checked as `_drafted` does, which their hooks have been called with. Raises Malformed
        that names the first bad one by its index."""
        drafts = producing.drafts(jobs, self.payload_bytes_max, self.serializers, self.model)
        if self.parameters:
            for at, draft in enumerate(drafts):
                try:
                    check_payload(self.parameters, self.serializers, draft)
                except Malformed as error:
                    raise error.within(f"jobs[{at}]") from error.__cause__
        return drafts


def check_payload(tasks: Mapping[str, Parameters], serializers: Serializers, job: Enqueue) -> None:
    """Raise Malformed where the function of this name could not be called with what will arrive."""
    for field, callback in (("on_success", job.options.on_success), ("on_failure", job.options.on_failure)):
        if callback is not None:
            try:
                check_payload(tasks, serializers, callback)
            except Malformed as error:
                raise error.within(field) from error.__cause__
    parameters = tasks.get(job.name)
    if parameters is None:
        return
    try:
        arrives = serializers.read(job.options.serializer, job.payload)
    except BaseException as failure:
        if meant_for_the_caller(failure):
            raise
        # This process cannot read what its serialiser writes; workers check the payload.
        return
    parameters.item(arrives)


# -- The two counterparts of a queue: a Queue and an AsyncQueue with the same settings, handlers and hooks.
#
# A task is enqueued by functions and by coroutines. A worker calls the server in threads whatever kind of
# queue it works for. So a queue of either kind is asked here for itself or for its other counterpart. The two
# connect apart, and neither imports the other.

#: Two threads that ask at once get the same counterpart.
_making = threading.Lock()


def synchronous(queue: QueueSettings) -> Any:
    """The Queue of these settings. Raises Malformed where a client of redis-py cannot be made anew for it."""
    return _other(queue, "engine.queue.synchronous", "Queue") if queue.endpoint.asynchronous else queue


def asynchronous(queue: QueueSettings) -> Any:
    """The AsyncQueue of these settings. Raises as `synchronous` does."""
    return (
        queue
        if queue.endpoint.asynchronous
        else _other(queue, "engine.queue.asynchronous.queue", "AsyncQueue")
    )


def _other(queue: QueueSettings, module: str, name: str) -> Any:
    with _making:
        if queue.counterpart is None:
            queue.counterpart = getattr(import_module(module), name).like(queue)
            queue.counterpart.counterpart = queue
        return queue.counterpart
