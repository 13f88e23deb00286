"""Run everything now: for tests of services, without a worker process and without waiting for delays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast

from engine import validate
from engine.command.arguments import find
from engine.errors import Malformed, UnsupportedFeature
from engine.handlers import Handlers
from engine.job import Job
from engine.ops.looks import Counts, Listing
from engine.outcomes import Bury, Discard, RetryLater
from engine.queue.settings import TEST_CLOCK_LEAST_MS, QueueSettings, asynchronous
from engine.queue.synchronous import Queue
from engine.testing.server import serving
from engine.worker.worker import Worker

#: How far the test's clock moves unless told otherwise: jobs that enqueue themselves again would go on for
#: ever.
FOR_MS = 7 * 86_400_000


class QueueInTest(Queue):
    """The queue of the fixture `ironclaim_queue`: empty, and with a time that stands still, in 2100, until
    `run_all` or `use_test_clock` moves it."""

    def __init__(self, url: str) -> None:
        super().__init__("test", url=url)
        self._server = url
        self._replaced: list[tuple[QueueSettings, dict[str, Any]]] = []
        self._others: list[QueueInTest] = []
        self.use_test_clock(TEST_CLOCK_LEAST_MS)

    def replaces(self, queue: str | QueueSettings) -> Queue:
        """Take the place of a queue that a module made at import, `"shop.jobs:queue"` or the queue itself,
        until the end of the test. Whoever has it, its tasks too, uses the server and the time of the test.
        This queue has its name, model, serialisers, hooks and handlers from then on; it is whole, and waits
        for no replica. Returns it. For a second queue of the service another one is returned. Raises
        Malformed for what is no queue, or was replaced already."""
        bound = "a Queue or an AsyncQueue, or where one is: shop.jobs:queue"
        given: object = find(queue, bound)[0] if isinstance(queue, str) else queue
        if not isinstance(given, QueueSettings) or any(given is one for one, _ in self._replaced):
            raise Malformed("queue", queue, f"{bound}, each once")
        made, now_ms = self, self.model.now_ms
        if self._replaced:
            self._others.append(made := QueueInTest(self._server))
        made._be(given, now_ms)
        place = cast("QueueSettings", asynchronous(made)) if given.endpoint.asynchronous else made
        before = vars(given)
        # What a subclass has of its own stays.
        vars(place).update({name: value for name, value in before.items() if name not in vars(place)})
        self._replaced.append((given, before))
        given.__dict__ = vars(place)
        return made

    def _be(self, queue: QueueSettings, now_ms: int | None) -> None:
        """Have the settings of this queue."""
        super().close()
        super().__init__(
            queue.name,
            queue.spec,
            url=self._server,
            prefix=queue.prefix,
            payload_bytes_max=queue.payload_bytes_max,
            lua=queue.lua,
            observer=queue.observer,
        )
        self.serializers, self.hooks = queue.serializers, queue.hooks
        self.handlers, self.parameters = queue.handlers, queue.parameters
        with suppress(UnsupportedFeature):
            self.use_test_clock(now_ms or TEST_CLOCK_LEAST_MS)

    def close(self) -> None:
        """Close the idle connections, and give those that were replaced their places back."""
        replaced, others = self._replaced, self._others
        self._replaced, self._others = [], []
        for queue, before in replaced:
            queue.__dict__ = before
        for other in others:
            other.close()
        super().close()


def run_all(
    queue: QueueSettings,
    handlers: Handlers | None = None,
    *,
    for_ms: int = FOR_MS,
    raise_failures: bool = True,
    any_server: bool = False,
) -> Counts:
    """Run what these handlers (or those of `queue.job`) can run until nothing is left; what is in each state
    then. `queue` may be an AsyncQueue.

    On a queue with a test's clock (`use_test_clock`; the fixture `ironclaim_queue` has one) that clock moves
    on to whatever falls due next, by `for_ms` at most: retries, delays and times of day take no real time. On
    another queue what is delayed stays. Jobs that wait for other handlers, a pause or a limit stay as well.

    The first exception that a handler raises is raised here, with its job as the worker has left it, and
    nothing more starts; RetryLater, Bury and Discard are none. With `raise_failures=False` jobs fail as they
    do in a service: they are retried, skipped or dead.

    Raises Malformed, also for a queue that is not at a server of this process's tests (EmbeddedServer): the
    jobs may be somebody's. `any_server` takes it all the same. Raises whatever `Worker.run` raises.
    """
    if isinstance(queue, QueueSettings) and not validate.truth("any_server", any_server):  # pyright: ignore[reportUnnecessaryIsInstance]
        _refuse_strange(queue)
    length_ms = validate.duration_ms("for_ms", for_ms, 0, validate.DURATION_MS_MAX)
    failures: list[Exception] = []
    if validate.truth("raise_failures", raise_failures):
        given, handlers = handlers, Handlers()
        handlers.include(queue.handlers if given is None else given)

        @handlers.hooks.around
        @contextmanager
        def noting(job: Job) -> Generator[None]:
            try:
                yield
            except (RetryLater, Bury, Discard):
                raise
            except Exception as failure:
                failures.append(failure)
                worker.stop()
                raise

    worker = Worker(queue, handlers, lease_ms=60_000, sweep_ms=10, beat_ms=0)
    queue = worker.queue
    end_ms = None if queue.model.now_ms is None else queue.model.now_ms + length_ms
    while True:
        reason = worker.run(burst=True, delayed=False)
        if failures:
            raise failures[0]
        if reason != "empty":
            raise Malformed("worker", reason, "left alone until nothing is left to run")
        now_ms = queue.model.now_ms
        delayed = queue.driver.run(queue.model.call(Listing(0, 1))).states["delayed"]
        if now_ms is None or end_ms is None or not delayed or delayed[0][1] > end_ms:
            return queue.counts()
        # At least a millisecond: what was due and did not move is not ours.
        queue.use_test_clock(max(now_ms + 1, delayed[0][1]))


def _refuse_strange(queue: QueueSettings) -> None:
    """Raise Malformed for a queue of a server that no test has started here."""
    # A test's clock is of a test's queue, also behind a proxy.
    own = {f"{host}:{port}/" for host in ("127.0.0.1", "localhost") for port in serving}
    if queue.model.now_ms is not None or any(address in f"{queue.url}/" for address in own):
        return
    bound = (
        "one at a server that this test has started: ironclaim_queue.replaces(...) puts one in the place of "
        "a service's queue; any_server=True takes any"
    )
    raise Malformed("queue", f"{queue.name} at {queue.url}", bound)
