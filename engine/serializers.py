"""How payloads become bytes and back: JSON unless a queue says otherwise, bytes untouched, or a serialiser of
your own.

The envelope names the serializer of its job, so workers with another default can read it. A worker that does
not know it fails the job and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Protocol

from engine import validate
from engine.errors import Malformed, describe, meant_for_the_caller
from engine.ops.base import frozen
from engine.ops.jobs import Options
from engine.options import PLAIN

#: The names of those that every queue has. JSON is not written into envelopes.
JSON, RAW = "json", "raw"
#: That of a foreign format without types: JSON of an object of texts, each read as what a parameter wants it
#: to be. No other one can have this name.
TEXTS = "~texts"


class Texts(dict[str, str]):
    """A payload of texts: no type is known of any of them."""


@frozen
class UnreadablePayload:
    """Stands where a payload would, in what is known of a job or a schedule: why nobody here can read it, and
    its bytes."""

    reason: str
    data: bytes = field(repr=False)


class Serializer(Protocol):
    """A serialiser of the service. Its `name` stands in the envelope of each job that it wrote, so it must
    not change while one of them exists. With child processes it has to be something that `pickle` can send to
    them."""

    @property
    def name(self) -> str:
        """1 to 128 of the characters that names may have; not `json` or `raw`."""
        ...

    def dumps(self, value: Any, /) -> bytes:
        """A payload as bytes. What it raises becomes a Malformed of the enqueue."""
        ...

    def loads(self, data: bytes, /) -> Any:
        """The payload that these bytes were made of. What it raises is a failed run."""
        ...


_BOUND = "an object with name, dumps and loads"


def _name_of(serializer: object) -> str:
    """The name of a serialiser. Raises Malformed for what is none."""
    if not hasattr(serializer, "name"):
        raise Malformed("serializer", serializer, _BOUND, private=True)
    name = validate.text("serializer", getattr(serializer, "name", None))
    if not (callable(getattr(serializer, "dumps", None)) and callable(getattr(serializer, "loads", None))):
        raise Malformed("serializer", serializer, _BOUND)
    return name


class Serializers:
    """The serialisers of a queue: JSON, raw bytes, and the given ones. `default` is for jobs that name none;
    None: JSON."""

    def __init__(self, default: Serializer | None = None, others: Iterable[Serializer] = ()) -> None:
        self._by_name: dict[str, Serializer] = {}
        bound = "a list of objects with name, dumps and loads"
        given = [*([] if default is None else [default]), *validate.items("serializers", others, bound)]
        for serializer in given:
            name = validate.asked("serializer", serializer, _BOUND, _name_of, serializer)
            if name in (JSON, RAW, *self._by_name):
                raise Malformed(
                    "serializer", name, "a name that is not taken: json, raw, or that of another one"
                )
            self._by_name[name] = serializer
        self._default = JSON if default is None else next(iter(self._by_name))
        #: Whether payloads are JSON unless they or their jobs say otherwise.
        self.plain = self._default == JSON
        self._plain_options = {name: replace(PLAIN, serializer=name) for name in (RAW, *self._by_name)}

    @property
    def own(self) -> bool:
        """Whether the queue has serialisers beside JSON and raw bytes."""
        return bool(self._by_name)

    def write(self, payload: object, options: Options, most: int) -> tuple[bytes, Options]:
        """The bytes of a payload, and the options that say what wrote them. Bytes travel untouched, whatever
        the default. Raises Malformed."""
        name = options.serializer or (RAW if isinstance(payload, bytes | bytearray) else self._default)
        if name == JSON:
            return validate.payload_bytes(payload, most), replace(
                options, serializer=""
            ) if options.serializer else options
        if name == RAW:
            if not isinstance(payload, bytes | bytearray):
                raise Malformed("payload", payload, "bytes, which travel raw", private=True)
            data: object = bytes(payload)
        else:
            data = self._dumps(self._find(name), payload)
        if not isinstance(data, bytes):
            bound = f"something of which {name} makes bytes, not a {type(data).__name__}"
            raise Malformed("payload", payload, bound, private=True)
        if len(data) > most:
            raise Malformed("payload", f"{len(data)} bytes", f"at most {most} bytes")
        return data, self._plain_options[name] if options is PLAIN else replace(options, serializer=name)

    def read(self, name: str, data: bytes) -> Any:
        """The payload of a job that this serialiser wrote ('' = JSON). Raises ValueError, and whatever a
        serialiser raises."""
        if not name:
            return json.loads(data)
        if name == TEXTS:
            return Texts(json.loads(data))
        return data if name == RAW else self._find(name).loads(data)

    def look(self, name: str, data: bytes) -> Any:
        """As `read`, for who looks at a job and does not run it: an UnreadablePayload where reading
        raises."""
        try:
            return self.read(name, data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Whatever a serialiser raises, also SystemExit: one payload must not hide the jobs that are
            # listed beside it.
            return UnreadablePayload(describe(error), data)

    def _find(self, name: str) -> Serializer:
        found = self._by_name.get(name)
        if found is None:
            raise Malformed(
                "serializer", name, f"one that this queue knows: {', '.join((JSON, RAW, *self._by_name))}"
            )
        return found

    @staticmethod
    def _dumps(serializer: Serializer, payload: object) -> object:
        try:
            return serializer.dumps(payload)
        except BaseException as error:
            if meant_for_the_caller(error):
                raise
            # Its text is the caller's to read, as the cause, because it may quote what could not be written.
            bound = f"something that {serializer.name} can write ({type(error).__name__})"
            raise Malformed("payload", payload, bound, private=True) from error


#: Of a queue that was given none.
BUILT_IN = Serializers()
