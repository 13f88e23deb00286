"""The events of a queue, for monitoring: off unless switched on, then an entry of a stream for each.

The script that does a thing writes its entry, last and only where it changes something: a call that is sent twice tells once, and
one that the server cut off just before the end may have told nothing. Kinds, and what their `detail` says:

- `created` (waiting, delayed or blocked), `promoted` (its delay is over, or somebody said so), `unblocked` (its parents ended);
- `claimed` (the worker), `progress` (percent), `released` (given back), `finished`;
- `failed` (the error; the job is tried again unless `buried` follows), `reaped` (the worker that stalled or died with it);
- `buried` (the reason), `requeued`, `cancelled`, `discarded`, `skipped`, `rerouted`, `expired`;
- `paused` (length in ms, if any) and `resumed` of a name, or of the queue, `*`; a pause that ends by itself is not told.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

from engine import validate
from engine.errors import Malformed
from engine.ops.looks import Event, EventPage, ReadEvents
from engine.queue import administering
from engine.queue.asynchronous.calls import AsyncBlockingCalls, AsyncPart, AsyncQueueCalls
from engine.queue.results import BLOCK_MS
from engine.validate import Milliseconds

_PAGE = 100
_ENTRY = re.compile(r"\d{1,20}(-\d{1,20})?\Z", re.ASCII)


class AsyncEvents(AsyncPart):
    """The events of a queue: `queue.events`. See `engine.queue.asynchronous.events` for the kinds."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        super().__init__(queue)
        self._blocking = AsyncBlockingCalls(queue)

    async def on(self, keep: int = 10_000) -> None:
        """Record events from now on. The last `keep` events stay (at most 1,000,000), and up to 100 more: the server
        drops them by pages. Each costs a write of the script that tells it, and some 100 bytes. Raises as `queue.pause` does."""
        await self._queue.carry_out(administering.sending(administering.set_events(keep)))

    async def off(self) -> None:
        """Stop recording events and delete those that were recorded. Raises as `queue.pause` does."""
        await self._queue.carry_out(administering.sending(administering.set_events(None)))

    async def last(self) -> str:
        """The id of the last event, to read after it; `0-0` where there is none. Raises ServerUnavailable."""
        page: EventPage = await self._run(ReadEvents("$", 1, 0))
        return page.after

    async def read(self, after: str = "$", *, wait_ms: Milliseconds | None = None) -> AsyncIterator[Event]:
        """The events after this one, and each further one when it comes, until for `wait_ms` none has; None: for ever.

        `after`: the id of an event, `0` for all that are kept, or `$` for what comes from the first step of the iterator on. Who
        falls behind by more than are kept misses some. Raises Malformed at the first step, and ServerUnavailable or
        OutcomeUnknown when the server is away: then read on after the last event that came.
        """
        if not isinstance(after, str) or not (after == "$" or _ENTRY.match(after)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("after", after, "the id of an event, 0 or $")
        most_ms = None if wait_ms is None else validate.duration_ms("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX)
        page: EventPage = await self._blocking.run(ReadEvents("$", 1, 0)) if after == "$" else EventPage((), after)
        until_s = time.monotonic() + (most_ms or 0) / 1000
        while True:
            left_ms = BLOCK_MS if most_ms is None else max(0, int((until_s - time.monotonic()) * 1000))
            page = await self._blocking.run(ReadEvents(page.after, _PAGE, min(BLOCK_MS, left_ms)))
            for event in page.events:
                yield event
            if page.events:
                until_s = time.monotonic() + (most_ms or 0) / 1000
            elif left_ms == 0:
                return

    async def close(self) -> None:
        """Close the idle connections of readers."""
        await self._blocking.close()
