"""What each operation declares beside its fields: the script that carries it out, how its fields fill the
script's slots, how the script's reply is read, and in a queue with several shards where it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast, dataclass_transform

#: Where an operation goes: see `Operation.goes`.
Route = Literal["home", "job", "find", "all", "each"]


class Operation:
    """The base of the operations: `class Pause(Operation, script="pause", slots={"class": "class_name"})`."""

    __slots__ = ()
    #: The script that carries it out, in the folder of each model; '' where a model makes its call in another
    #: way.
    script: ClassVar[str] = ""
    #: Slot of the script's header -> the field that fills it, where their names differ. A field of a field is
    #: `lease.fence`.
    slots: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: What an error message calls it; '' = the words of its class's name.
    label: ClassVar[str] = ""
    #: Whether its call is sent again until it is answered. False where waiting for it would only hold up
    #: others.
    patient: ClassVar[bool] = True
    #: Which shards of a queue carry it out. `home`: shard 0, which has schedules, locks and the record of the
    #: shards. `job`: the shard that its job belongs to, by key, unique key or id. `find`: the shard that has
    #: its `job`, or the only one of its `jobs`. `all`: every one its `part`, and `merge` makes one reply of
    #: theirs. `each`: every one, and the replies stay apart, because pages cannot be merged (`queue.each`).
    #: Workers send theirs to the shard that they serve, whatever this says.
    goes: ClassVar[Route] = "home"

    def __init_subclass__(
        cls,
        script: str | None = None,
        slots: Mapping[str, str] | None = None,
        label: str | None = None,
        patient: bool | None = None,
        goes: Route | None = None,
    ) -> None:
        # A dataclass with slots is made twice, the second time without these.
        declared = {"script": script, "slots": slots, "label": label, "patient": patient, "goes": goes}
        for name, value in declared.items():
            if value is not None:
                setattr(cls, name, value)

    def parse(self, raw: Any, decode: Any) -> Any:
        """The raw reply as a value. `decode` reads a job as the model stores it (see
        `engine.ops.claims.Decode`).

        Raises TypeError, ValueError, IndexError, KeyError or AttributeError for a reply outside the script's
        contract.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reply")

    def part(self, number: int, shards: int, home: Callable[[str], int]) -> Self | None:
        """What shard `number` of so many is sent of an operation that goes to all; None: nothing. `home`
        tells the shard of a key. Raises Malformed and UnsupportedFeature for what so many shards cannot
        do."""
        del number, shards, home
        return self

    def merge(self, replies: Sequence[Any]) -> Any:
        """One reply for those of all shards, shard 0 first."""
        raise NotImplementedError(f"{type(self).__name__} goes to one shard")


# -- Reads fields of raw replies, for the `parse` of each operation. What a contract does not allow is a
# TypeError or ValueError.

_WHOLE_MAX = 2**63


def server_us(raw: Any) -> int:
    """The server's time in microseconds, with which every reply of a script begins."""
    srv_us = raw[0]
    if not isinstance(srv_us, int):
        raise TypeError("it does not begin with the server's time")
    return srv_us


def text(raw: bytes) -> str:
    """A name of the reply, such as an id. What is no UTF-8 is shown as `\\xff`: one bad entry must not hide
    the others."""
    return raw.decode(errors="backslashreplace")


def whole(raw: bytes | str | int) -> int:
    """A score, or a number of a state, of which other programs may have made anything; 0 for what is no
    number of the server's own 64 bits: no page, metric or sum of ours reckons with more."""
    try:
        number = int(raw)
    except ValueError:
        try:
            number = int(float(raw))
        except (ValueError, OverflowError):
            return 0
    return number if -_WHOLE_MAX <= number < _WHOLE_MAX else 0


def one_of(raw: bytes, allowed: tuple[str, ...]) -> Any:
    """A word of the reply that has to be one of `allowed`; a caller names the values of a Literal with
    `get_args`."""
    word = raw.decode()
    if word not in allowed:
        raise ValueError(f"{word} is none of {allowed}")
    return word


# -- `immutable`: the decorator of small classes that hold values and never change, like operations,
# replies and events.
#
# A frozen dataclass with slots would do the same and also refuse an assignment at run time. For that it
# generates four more methods and assigns each field of a new object through a call. Here the type checker
# alone refuses the assignment. Values that users get are `frozen`.
#
# A process uses a dozen of these classes of 170, and dataclass needs 0.35 ms for each. So its work is done
# when somebody looks for the first time at what it makes, such as `__init__`.

Immutable = TypeVar("Immutable")

#: What dataclass makes of a class; but its documentation, which each of them has.
_MADE = (
    "__dataclass_fields__",
    "__dataclass_params__",
    "__eq__",
    "__hash__",
    "__init__",
    "__match_args__",
    *(("__replace__",) if sys.version_info >= (3, 13) else ()),
    "__repr__",
)


class _Made:
    """A member of a class that dataclass has not yet made: whoever looks at one has all made. `define` makes
    a class of the same name, bases and fields; a new one each time, so threads may do it at once."""

    __slots__ = ("_define", "_name", "_owner")

    def __init__(self, define: Callable[[], type]) -> None:
        self._define = define

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        definition = self._define()
        for name, member in list(vars(self._owner).items()):
            if isinstance(member, _Made):
                setattr(self._owner, name, vars(definition)[name])
        return getattr(owner if instance is None else instance, self._name)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(definition: type[Immutable]) -> type[Immutable]:
    """The class as a dataclass with slots that compares and hashes by its fields."""
    return _made_later(definition, cast("Any", dataclass(unsafe_hash=True)), {})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(definition: type[Immutable]) -> type[Immutable]:
    """The class as `dataclass(frozen=True, slots=True)` makes it, for values that users get."""
    own = {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _restore}
    return _made_later(definition, cast("Any", dataclass(frozen=True)), own)


def _made_later(definition: type[Any], make: Callable[[type], type], own: Mapping[str, object]) -> Any:
    """The class with slots, whose other members `make` makes at the first look, but for these `own`."""
    kind = cast("Any", type(definition))
    name, bases = definition.__name__, definition.__bases__
    members = {
        key: value
        for key, value in vars(definition).items()
        if key not in ("__dict__", "__weakref__", "__slots__")
    }
    members["__qualname__"] = definition.__qualname__
    fields_of_its_own = tuple(members.get("__annotations__", ()))
    made = {key: value for key, value in members.items() if key not in fields_of_its_own}
    made["__slots__"] = fields_of_its_own
    made |= own
    made |= {key: _Made(lambda: make(kind(name, bases, dict(members)))) for key in _MADE}
    return kind(name, bases, made)


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


@immutable
class DeadlineBound(Operation):
    """The base of operations that are void after a server time (rules 3 and 7). Who makes one leaves that
    open: what sends it stamps it when it leaves, and once more when it came late. The identity stays, so both
    are copies of one call."""

    #: Server time (ms); 0: not stamped yet.
    not_after_ms: int = field(default=0, kw_only=True)

    def stamped(self, not_after_ms: int) -> Self:
        """The same operation, to leave now."""
        return replace(self, not_after_ms=not_after_ms)


# -- A call: one operation as it is sent. Building one does no I/O; a driver runs it (docs/architecture.md).

#: What calls of many things carry at most: a longer one would keep the server's one thread for too long.
CALL_BYTES_MAX = 1024 * 1024
#: Calls of one bulk that go out together.
PIPELINE_CALLS = 8
#: A call blocks on the server for at most this long. Who waits longer asks again: a connection that has
#: died unnoticed shows only when a block is over.
BLOCK_MS = 5_000
T = TypeVar("T")


@immutable
class Call(Generic[T]):
    """Which script, its keys, its arguments, how to parse the reply, and the operation that it carries out.
    The first key says where in a cluster it goes; all keys of a call are of one slot.

    A call may be sent any number of times: its arguments hold the identity that makes a second send harmless.
    `block_ms` is how long the server may hold the reply back. One that is not `patient` is sent once: what it
    does is not worth waiting for.
    """

    #: A Script of `engine.redis.scripts`; None for a plain command, whose words are `arguments`.
    script: Any
    keys: tuple[str, ...]
    arguments: tuple[object, ...]
    parse: Callable[[Any], T]
    operation: Operation
    block_ms: int = 0
    patient: bool = True

    def words(self) -> tuple[object, ...]:
        """The command as it goes on the wire."""
        if self.script is None:
            return self.arguments
        return ("EVALSHA", self.script.digest, len(self.keys), *self.keys, *self.arguments)


# -- An estimate of the server's time that never runs ahead of it.
#
# Each reply says the server's time. It is counted from the reply's *arrival*. So the estimate is early by the
# reply's travel (rule 3). A call that is void after `not_after_ms` may be refused a little too soon, and is
# then sent again. But a copy of it can never be accepted too late.


class Watch(Protocol):
    """What looks out for a server that went back (`engine.queue.era`). Called from many threads, it does not
    raise."""

    #: Commands of each handshake.
    commands: tuple[tuple[object, ...], ...]
    #: Kinds of operations: it is told of the calls of these alone.
    readers: Mapping[Any, Any]

    def mark_of(self, call: Any) -> Any:
        """What a call that leaves now remembers for `answered`."""
        ...

    def greeted(self, server: Any, replies: list[Any]) -> tuple[tuple[object, ...], ...]:
        """A handshake has met this server (a ServerIdentity): the command that it has to send in addition, if
        any."""
        ...

    def concluded(self, raw: Any) -> None:
        """The reply to that."""
        ...

    def answered(self, call: Any, raw: Any, mark: Any) -> None:
        """This call has been answered, which left with this mark."""
        ...


class ServerClock:
    """The offset between the server's clock and this process's monotonic clock, from the latest reply. All
    drivers of a queue have one in common, and with it the `watch` over its server, None where nobody
    watches."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch
        self._offset_us: int | None = None

    def learn(self, srv_us: int, arrival_ns: int) -> None:
        """Take the server time of a reply that arrived at `arrival_ns` (monotonic). The latest one counts."""
        self._offset_us = srv_us - arrival_ns // 1000

    @property
    def known(self) -> bool:
        """Whether any reply has arrived."""
        return self._offset_us is not None

    def now_ms(self, now_ns: int) -> int:
        """The server's time in ms at the monotonic instant `now_ns`, or a little before it."""
        if self._offset_us is None:
            raise RuntimeError("the server's time is not known before the first reply")
        return (now_ns // 1000 + self._offset_us) // 1000
