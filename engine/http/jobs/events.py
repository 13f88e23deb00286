"""The events of a queue as a stream of server-sent events (SSE): one reader for each queue, however many
listen.

The reader takes each event from the server once and hands it to all listeners. It wakes some of them at a
time, so that other requests are served in between. A listener more than `BEHIND_MAX` events behind is told
so, and its stream ends. It may reconnect with `Last-Event-ID`. It then first gets the missed events that the
queue still keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import EngineError, json_text, logger
from engine.http.access import needs, still_admitted
from engine.http.answers import bad_value
from engine.http.describing import Header, described
from engine.http.jobs import schemas
from engine.http.opening import Opened, Waits, queue_of
from engine.ops.looks import Event
from engine.queue.asynchronous.queue import AsyncQueue

log = logger("ironclaim.http")

BEHIND_MAX = 1_000
#: A comment after so long without an event, so that what is in between does not close the connection. It has
#: no place among them.
SILENCE_S = 15.0
_COMMENT, _ANY_PLACE = b": \n\n", (2**128, 0)
#: Listeners that are woken at once: to send an event to one takes 30 to 50 us.
WOKEN_MAX = 25
#: Events that are sent at once.
_SENT_MAX = 100
#: A browser comes back after so long.
_RETRY_MS = 2_000
#: The reader tries again after so long when the server is away.
_AGAIN_S = 1.0
#: Listeners that read at once what they have missed.
_CATCHING_UP_MAX = 8
_HEADER = "Last-Event-ID"
#: The greatest number in the id of an entry of a stream.
POSITION_MAX = 2**64 - 1
_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


class Listener:
    """One stream of a client: the events that it was not sent yet, each with its id."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[tuple[int, int], bytes]] = deque()
        self.behind = False
        self._told = asyncio.Event()

    def tell(self, position: tuple[int, int], chunk: bytes) -> None:
        """Hand it an event, which it sends once it is woken."""
        if len(self.waiting) >= BEHIND_MAX:
            self.behind = True
        else:
            self.waiting.append((position, chunk))

    def take(self, seen: tuple[int, int]) -> bytes:
        """Some of its events, those after `seen`, as one text."""
        some = [self.waiting.popleft() for _ in range(min(_SENT_MAX, len(self.waiting)))]
        return b"".join(chunk for position, chunk in some if position > seen)

    async def rest(self) -> None:
        """Wait until it is woken."""
        await self._told.wait()
        self._told.clear()

    def wake(self) -> None:
        """End its rest."""
        self._told.set()


class Reader:
    """Reads the events of one queue for all who listen."""

    def __init__(self, queue: AsyncQueue) -> None:
        self.queue = queue
        self.catching_up = asyncio.Semaphore(_CATCHING_UP_MAX)
        self._listeners: set[Listener] = set()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def listened(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[Listener]:
        """A listener, from now on. Raises ServerUnavailable."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            if self._task is None or self._task.done():
                after = await self.queue.events.last()
                if self._task is None or self._task.done():
                    self._task = asyncio.get_running_loop().create_task(self._work(after))
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def end(self) -> None:
        """Wake all listeners."""
        for listener in self._listeners:
            listener.wake()

    async def _work(self, after: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(after))
            tasks.create_task(self._wake())

    async def _wake(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._arrived.wait()
            except TimeoutError:
                self.tell(_ANY_PLACE, _COMMENT)
            self._arrived.clear()
            for number, listener in enumerate(tuple(self._listeners), 1):
                listener.wake()
                if number % WOKEN_MAX == 0:
                    await asyncio.sleep(0)

    def tell(self, position: tuple[int, int], chunk: bytes) -> None:
        """Hand an event to all listeners."""
        for listener in self._listeners:
            listener.tell(position, chunk)
        self._arrived.set()

    async def _read(self, after: str) -> None:
        while True:
            try:
                async for event in self.queue.events.read(after):
                    after = event.id
                    self.tell(position_of(after), _chunk(event))
            except EngineError as error:
                log.warning("events of %s: %s", self.queue.name, error)
                await asyncio.sleep(_AGAIN_S)


class Readers:
    """The readers of an application: of the queues that somebody listens to, as they were opened."""

    def __init__(self) -> None:
        self._by_queue: dict[AsyncQueue, Reader] = {}

    @contextlib.asynccontextmanager
    async def listening(self, queue: AsyncQueue) -> AsyncGenerator[tuple[Reader, Listener]]:
        """The reader of a queue and a listener of it, from now on. Raises ServerUnavailable."""
        reader = self._by_queue.get(queue)
        if reader is None:
            reader = self._by_queue[queue] = Reader(queue)
        try:
            async with reader.listening() as listener:
                yield reader, listener
        finally:
            if not reader.listened:
                self._by_queue.pop(queue, None)

    def end(self) -> None:
        """Wake all listeners of all queues."""
        for reader in self._by_queue.values():
            reader.end()


@described(
    "What happens in a queue, as it happens; nothing unless its events are recorded",
    answers={200: schemas.EVENT},
    media_type="text/event-stream",
    headers=(
        Header(_HEADER, "the id of the last event that was seen: those after it come first", _ID.pattern),
    ),
)
@needs("read")
async def stream_events(request: Request) -> Response:
    """Server-sent events, each with its id and the fields of an event as JSON."""
    after = request.headers.get(_HEADER)
    if after is not None and (not _ID.fullmatch(after) or max(position_of(after)) > POSITION_MAX):
        raise bad_value(
            _HEADER, after, f"the id of an event, two numbers up to {POSITION_MAX} with a - between them"
        )
    state, queue = request.app.state, queue_of(request)
    # All that may refuse comes before the answer begins, so that a refusal is a problem and not a broken
    # stream.
    stack = contextlib.AsyncExitStack()
    try:
        stack.enter_context(state.waits.one_more())
        readers: Readers = state.readers
        reader, listener = await stack.enter_async_context(readers.listening(queue))
    except BaseException:
        await stack.aclose()
        raise
    return EventStream(_stream(request, reader, listener, after), stack)


class EventStream(StreamingResponse):
    """A stream that gives back what it has taken, also where its client has gone before it began."""

    def __init__(self, chunks: AsyncGenerator[bytes], taken: contextlib.AsyncExitStack) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._taken = taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._taken:
            if scope["method"] == "HEAD":
                # The stream itself does not end, so the connection would serve nobody any more.
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                await send({"type": "http.response.body", "body": b""})
            else:
                await super().__call__(scope, receive, send)


async def _stream(
    request: Request, reader: Reader, listener: Listener, after: str | None
) -> AsyncGenerator[bytes]:
    waits: Waits = request.app.state.waits
    opened: Opened = request.app.state.opened
    yield f"retry: {_RETRY_MS}\n\n".encode()
    seen = (0, 0)
    if after is not None:
        async with reader.catching_up:
            async for event in reader.queue.events.read(after, wait_ms=0):
                seen = position_of(event.id)
                yield _chunk(event)
    # Who comes back asks the queue as it is by then.
    while not (waits.ending.is_set() or await opened.is_outdated(reader.queue)) and await still_admitted(
        request, "read"
    ):
        while listener.waiting:
            chunk = listener.take(seen)
            if chunk:
                yield chunk
        if listener.behind:
            yield b"event: behind\ndata: {}\n\n"
            return
        await listener.rest()


def position_of(id: str) -> tuple[int, int]:
    """The position of an event among the others."""
    at_ms, _, number = id.partition("-")
    return int(at_ms), int(number or 0)


def _chunk(event: Event) -> bytes:
    return f"id: {event.id}\ndata: {json_text(event._asdict(), spaced=True)}\n\n".encode()
