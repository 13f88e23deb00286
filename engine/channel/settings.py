"""The settings of a channel, its storages, and the bounds of what callers give, without I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from engine import validate
from engine.channel import contents
from engine.channel.asynchronous.storage import AsyncOpenRedis, AsyncOpenStorage
from engine.channel.session_state import SessionState
from engine.channel.several_storages import SeveralStorages
from engine.channel.steps import OneStorage, Opening
from engine.channel.synchronous.storage import OpenRedis, OpenStorage
from engine.errors import Malformed
from engine.models import Dsps, dsps
from engine.observer import Observer, spared_observer
from engine.ops.base import CALL_BYTES_MAX
from engine.ops.channels import NewMessage
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions, Endpoint

if TYPE_CHECKING:
    import redis
    import redis.asyncio

# -- Ids of channels, subscribers and messages.

ID_CHARACTERS_MAX = 63
#: As a regular expression.
ID_PATTERN = f"[0-9a-z][0-9a-z_-]{{0,{ID_CHARACTERS_MAX - 1}}}"
_ID = re.compile(ID_PATTERN)


def check_id(field: str, value: object) -> str:
    """The id of a channel, a subscriber or a message. Raises Malformed."""
    text = validate.plain_text(value)
    if text is None or _ID.fullmatch(text) is None:
        raise Malformed(
            field, value, f"an id: 1 to {ID_CHARACTERS_MAX} of 0-9 a-z _ -, the first one a digit or a letter"
        )
    return text


#: What one fetch may ask for, and one `are_old`.
MESSAGES_MAX = 1_000
#: Of one `publish_many`: all are checked, and held in memory, before the first is sent.
PUBLISH_MAX = 100_000
#: One script call: it keeps the server's one thread for some milliseconds.
_CALL_MESSAGES_MAX = 1_000


# -- Storages, which hold the messages of a channel: a server, or this process's memory. A channel may have
# several.
#
# A **storage** is what a service gives (`RedisStorage`, `MemoryStorage`); one may serve many channels. Opened
# for one of them it runs operations, and tells its listeners when something was published. Its clocks are its
# own: those of another storage say nothing here.


class Storage(Protocol):
    """Holds messages. Opening one does no I/O, and raises Malformed for settings that cannot be."""

    def open(self, opening: Opening) -> OpenStorage:
        """For `Channel`."""
        ...

    def open_async(self, opening: Opening) -> AsyncOpenStorage:
        """For `AsyncChannel`."""
        ...


# -- Channels on a Redis or Valkey server.


class RedisStorage:
    """A server, or several behind sentinels or in a cluster. `url`, or `client`: a redis.Redis or
    RedisCluster for `Channel`, those of redis.asyncio for `AsyncChannel`. Its address, credentials and TLS
    settings are used for connections of our own. `connect`: times and bounds of those. Each channel that is
    opened on it has connections of its own."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        client: redis.Redis
        | redis.RedisCluster
        | redis.asyncio.Redis
        | redis.asyncio.RedisCluster
        | None = None,
        connect: ConnectOptions | None = None,
    ) -> None:
        self._url = url
        self._client = client
        self._connect = connect

    @property
    def address(self) -> object:
        """Equal for storages that are given in the same words."""
        return self._url if self._client is None else id(self._client)

    def open(self, opening: Opening) -> OpenRedis:
        """For `Channel`. Raises Malformed for a url or client that does not fit."""
        return OpenRedis(Endpoint(self._url, self._client, self._connect), opening)

    def open_async(self, opening: Opening) -> AsyncOpenRedis:
        """For `AsyncChannel`. Raises Malformed for a url or client that does not fit."""
        return AsyncOpenRedis(Endpoint(self._url, self._client, self._connect, asynchronous=True), opening)


class ChannelSettings:
    """A channel's settings, its storages, and what decides how calls use them."""

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
        self.name = check_id("channel", name)
        spec = Dsps() if model is None else validate.instance("model", model, Dsps, "models.Dsps()")
        #: How long messages are kept at least, and the life of keys for that.
        self.expire_ms = dsps.expire_ms(dsps.checked(spec.rules), self.name)
        self.ttl_s = dsps.ttl_s(self.expire_ms)
        if storages is None:
            named = {spec.storage: cast("Storage", RedisStorage(url, client=client, connect=connect))}
        elif url != DEFAULT_URL or client is not None or connect is not None:
            raise Malformed(
                "storages", storages, "given without url, client and connect: each storage has its own"
            )
        else:
            named = _checked_storages(storages)
        self.storages: Mapping[str, Storage] = named
        self._opening = Opening(self.name, validate.lua_folder(lua), spared_observer(observer))
        sessions = {id: SessionState(self.ttl_s, channel=self.name) for id in named}
        self._plan = (
            OneStorage(self.name, *sessions.popitem())
            if len(sessions) == 1
            else SeveralStorages(self.name, sessions)
        )


def _checked_storages(storages: object) -> dict[str, Storage]:
    bound = (
        "a mapping of 1 to 10 ids to storages, RedisStorage(...) or MemoryStorage(), each in another place"
    )
    if not isinstance(storages, Mapping) or not 1 <= len(cast("Mapping[Any, Any]", storages)) <= 10:
        raise Malformed("storages", cast("object", storages), bound)
    given = cast("Mapping[Any, Any]", storages)
    for storage in given.values():
        opens = callable(getattr(storage, "open", None)) and callable(getattr(storage, "open_async", None))
        if not opens or isinstance(storage, type):
            raise Malformed("storages", given, bound)
    # What is written to one storage twice is a duplicate of itself each time.
    addresses = [
        storage.address if isinstance(storage, RedisStorage) else id(storage) for storage in given.values()
    ]
    if any(address in addresses[:at] for at, address in enumerate(addresses)):
        raise Malformed("storages", given, bound)
    return {validate.text("storages", id): storage for id, storage in given.items()}


def message_ids(ids_given: object) -> tuple[str, ...]:
    """Ids to ask for, checked. Raises Malformed."""
    bound = f"a sequence of at most {MESSAGES_MAX} ids of messages"
    found = validate.items("ids", ids_given, bound)
    if len(found) > MESSAGES_MAX:
        raise Malformed("ids", f"{len(found)} ids", bound)
    return tuple(check_id(f"ids[{at}]", id) for at, id in enumerate(found))


_PAIR = "a pair of id and content"


def _pair(given: object, at: int) -> list[Any]:
    pair = list(cast("list[Any]", given)) if isinstance(given, tuple | list) else []
    if len(pair) != 2:
        raise Malformed(f"messages[{at}]", cast("object", given), _PAIR, private=True)
    return pair


def new_messages(messages: object) -> list[NewMessage]:
    """Messages to publish, checked. Raises Malformed that names the first bad one by its index."""
    bound = f"an iterable of at most {PUBLISH_MAX} pairs of id and content"
    if validate.asked("messages", messages, bound, isinstance, messages, str | bytes | Mapping):
        raise Malformed("messages", messages, bound, private=True)
    found: list[NewMessage] = []
    known: set[str] = set()
    for at, pair in enumerate(validate.each("messages", messages, bound)):
        if at == PUBLISH_MAX:
            raise Malformed("messages", f"more than {PUBLISH_MAX} messages", bound)
        id, content = validate.asked(f"messages[{at}]", pair, _PAIR, _pair, pair, at)
        try:
            message = NewMessage(check_id("id", id), contents.written(content))
        except Malformed as error:
            raise error.within(f"messages[{at}]") from error.__cause__
        known.add(message.id)
        if len(known) <= at:
            raise Malformed(f"messages[{at}].id", id, "an id that no other message of the call has")
        found.append(message)
    return found


def parts_of(messages: list[NewMessage]) -> list[tuple[NewMessage, ...]]:
    """The messages of each call, in order."""
    parts: list[tuple[NewMessage, ...]] = []
    start = size = 0
    for at, message in enumerate(messages):
        message_bytes = len(message.content) + len(message.id)
        if at > start and (at - start == _CALL_MESSAGES_MAX or size + message_bytes > CALL_BYTES_MAX):
            parts.append(tuple(messages[start:at]))
            start, size = at, 0
        size += message_bytes
    if messages:
        parts.append(tuple(messages[start:]))
    return parts
