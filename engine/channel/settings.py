"""What the two faces of a channel share: their settings, the bounds of what callers give, and their decisions, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from engine import validate
from engine.channel import contents, ids, polling, rules
from engine.channel.one_storage import OneStorage
from engine.channel.redis_storage import RedisStorage
from engine.channel.session_state import Knowledge
from engine.channel.several_storages import SeveralStorages
from engine.channel.steps import Steps
from engine.channel.storage import Opening, Storage
from engine.channel.values import Acknowledged, Fetched, Published, Subscribed
from engine.drivers.endpoint import DEFAULT_URL
from engine.errors import Malformed
from engine.models import Dsps
from engine.observer import Observer
from engine.operations.channels import NewMessage

#: What one fetch may ask for, and one `are_old`.
MESSAGES_MAX = 1_000
#: Of one `publish_many`: all are checked, and held in memory, before the first is sent.
PUBLISH_MAX = 100_000
#: One script call: it keeps the server's one thread for some milliseconds.
_CALL_MESSAGES_MAX = 1_000
_CALL_BYTES_MAX = 1024 * 1024


class ChannelSurface:
    """A channel's settings; `Channel` and `AsyncChannel` add its opened storages and what people call."""

    def __init__(
        self,
        name: object,
        model: object,
        *,
        url: str,
        client: Any,
        connect: Any,
        storages: object,
        lua: object,
        observer: Observer | None,
    ) -> None:
        self.name = ids.check("channel", name)
        spec = Dsps() if model is None else model
        if not isinstance(spec, Dsps):
            raise Malformed("model", spec, "models.Dsps()")
        #: How long messages are kept at least, and the life of keys for that.
        self.expire_ms = rules.expire_ms(rules.checked(spec.rules), self.name)
        self.ttl_s = rules.ttl_s(self.expire_ms)
        if storages is None:
            named = {spec.storage: cast("Storage", RedisStorage(url, client=client, connect=connect))}
        elif url != DEFAULT_URL or client is not None or connect is not None:
            raise Malformed("storages", storages, "given without url, client and connect: each storage has its own")
        else:
            named = _checked_storages(storages)
        self.storages: Mapping[str, Storage] = named
        self._opening = Opening(self.name, validate.lua_folder(lua), observer)
        known = {id: Knowledge(self.ttl_s) for id in named}
        self._plan = OneStorage(self.name, *known.popitem()) if len(known) == 1 else SeveralStorages(self.name, known)

    def _publishing(self, id: object, content: object, intended_ns: object) -> Steps[Published]:
        message = NewMessage(ids.check("id", id), contents.written(content))
        return self._plan.publish(message, validate.intended_ns(intended_ns))

    def _publishing_many(self, messages: object, intended_ns: object) -> Steps[list[Published]]:
        return self._plan.publish_many(_parts(_new_messages(messages)), validate.intended_ns(intended_ns))

    def _subscribing(self, subscriber: object) -> Steps[Subscribed]:
        return self._plan.subscribe(ids.check("subscriber", subscriber))

    def _unsubscribing(self, subscriber: object) -> Steps[bool]:
        return self._plan.unsubscribe(ids.check("subscriber", subscriber))

    def _fetching(self, subscriber: object, max_messages: object, wait_ms: object) -> tuple[Steps[Fetched], bool]:
        """The steps, and whether they may rest."""
        known = ids.check("subscriber", subscriber)
        most = validate.integer("max_messages", max_messages, 0, MESSAGES_MAX)
        wait = validate.integer("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX) if most else 0
        steps = polling.waiting(
            lambda waited_ms: self._plan.fetch(known, most, waited_ms),
            wait,
            self.ttl_s,
            has_more=lambda found: found.more_messages,
        )
        return steps, wait > 0

    def _acknowledging(self, subscriber: object, receipt: object) -> Steps[Acknowledged]:
        return self._plan.acknowledge(ids.check("subscriber", subscriber), cast("str", receipt))

    def _asking_old(self, subscriber: object, messages: object) -> Steps[dict[str, bool]]:
        known = ids.check("subscriber", subscriber)
        bound = f"a sequence of at most {MESSAGES_MAX} ids of messages"
        if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
            raise Malformed("ids", messages, bound)
        found = tuple(cast("Iterable[object]", messages))
        if len(found) > MESSAGES_MAX:
            raise Malformed("ids", f"{len(found)} ids", bound)
        return self._plan.are_old(known, tuple(ids.check(f"ids[{at}]", id) for at, id in enumerate(found)))


def _checked_storages(storages: object) -> dict[str, Storage]:
    bound = "a mapping of 1 to 10 ids to storages, RedisStorage(...) or MemoryStorage(), each in another place"
    if not isinstance(storages, Mapping) or not 1 <= len(cast("Mapping[Any, Any]", storages)) <= 10:
        raise Malformed("storages", cast("object", storages), bound)
    given = cast("Mapping[Any, Any]", storages)
    for storage in given.values():
        opens = callable(getattr(storage, "open", None)) and callable(getattr(storage, "open_async", None))
        if not opens or isinstance(storage, type):
            raise Malformed("storages", given, bound)
    # What is written to one place twice is a duplicate of itself each time.
    places = [storage.place if isinstance(storage, RedisStorage) else id(storage) for storage in given.values()]
    if any(place in places[:at] for at, place in enumerate(places)):
        raise Malformed("storages", given, bound)
    return {validate.text("storages", id): storage for id, storage in given.items()}


def _new_messages(messages: object) -> list[NewMessage]:
    bound = f"an iterable of at most {PUBLISH_MAX} pairs of id and content"
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise Malformed("messages", cast("object", messages), bound)
    found: list[NewMessage] = []
    known: set[str] = set()
    for at, pair in enumerate(cast("Iterable[Any]", messages)):
        if at == PUBLISH_MAX:
            raise Malformed("messages", f"more than {PUBLISH_MAX} messages", bound)
        if not isinstance(pair, tuple | list) or len(cast("list[Any]", pair)) != 2:
            raise Malformed(f"messages[{at}]", cast("object", pair), "a pair of id and content")
        id, content = cast("list[object]", pair)
        try:
            message = NewMessage(ids.check("id", id), contents.written(content))
        except Malformed as error:
            raise Malformed(f"messages[{at}].{error.field}", error.value, error.bound) from None
        known.add(message.id)
        if len(known) <= at:
            raise Malformed(f"messages[{at}].id", id, "an id that no other message of the call has")
        found.append(message)
    return found


def _parts(messages: list[NewMessage]) -> list[tuple[NewMessage, ...]]:
    """The messages of each call, in order."""
    parts: list[tuple[NewMessage, ...]] = []
    start = size = 0
    for at, message in enumerate(messages):
        message_bytes = len(message.content) + len(message.id)
        if at > start and (at - start == _CALL_MESSAGES_MAX or size + message_bytes > _CALL_BYTES_MAX):
            parts.append(tuple(messages[start:at]))
            start, size = at, 0
        size += message_bytes
    if messages:
        parts.append(tuple(messages[start:]))
    return parts
