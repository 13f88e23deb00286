"""What the jobs of one name share beside their payloads: `JobMetadata(queue, "ok_job")`, on queues of Mosquito (MQ16).

    metadata = JobMetadata(queue, "ok_job")
    metadata.set(cursor="17", owner=None)
    metadata.add("seen")                     # 1
    metadata.get()                           # {"cursor": "17", "seen": "1"}

The original's programs read and write the same hash, so all values are texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import validate
from engine.errors import Malformed, UnsupportedFeature
from engine.ops.admin import ReadMetadata, SetMetadata
from engine.queue import administering
from engine.queue.steps import DeadlineBound, Steps
from engine.redis.exchange import Sent

if TYPE_CHECKING:
    from engine.queue.synchronous.calls import QueueCalls

_FIELDS_MAX = 1000


class JobMetadata:
    """The shared values of one name of jobs. Raises UnsupportedFeature for a queue of another model."""

    def __init__(self, queue: QueueCalls, name: str) -> None:
        if queue.model.name != "mosquito":
            raise UnsupportedFeature(f"{queue.model.name} has no metadata of jobs by their name")
        self._queue = queue
        self._name = queue.model.names.job_name(name)

    def get(self) -> dict[str, str]:
        """All fields. Raises as `Queue.counts` does."""
        return self._queue.driver.run(self._queue.model.call(ReadMetadata(self._name)))

    def set(self, **fields: str | None) -> None:
        """Set fields; None removes one. Raises as `Queue.enqueue` does, and Malformed for what is no text."""
        for field, value in fields.items():
            if value is not None and not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Malformed(field, value, "a text, or None to remove it")
        if not 1 <= len(fields) <= _FIELDS_MAX:
            raise Malformed("fields", f"{len(fields)} fields", f"1 to {_FIELDS_MAX} fields")
        self._carry_out(tuple(fields.items()), ())

    def add(self, field: str, number: int = 1) -> int:
        """Add to a number, once however often the call is sent; what it is now. Raises as `set` does."""
        checked = validate.integer("number", number, -(2**53), 2**53)
        return self._carry_out((), ((field, checked),))[0]

    def _carry_out(self, fields: tuple[tuple[str, str | None], ...], added: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
        op_id = administering.new_op_id()

        def made(not_after_ms: int) -> SetMetadata:
            return SetMetadata(op_id, not_after_ms, self._name, fields, added)

        def sending() -> Steps[Sent]:
            return (yield DeadlineBound(made))

        sent = self._queue.carry_out(sending())
        administering.conclude(sent)
        return sent.reply.values
