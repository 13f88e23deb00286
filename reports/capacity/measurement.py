"""The shape of `measurement.json`, which the capacity runner writes and the plan is derived from. Declared here alone.

All rates are jobs per second. Shares of a processor are shares of one core of one process (the mean of the worker processes), so
1.0 is a process that never waits.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reports import verdict
from reports.errors import JudgeError

SCHEMA = 2
FILE = "measurement.json"

#: A wrong value is cut to this many characters in messages.
SHOWN_MAX = 60

T = TypeVar("T")


def above(bound: float, **more: Any) -> Any:
    """A number that must be greater than `bound`."""
    return field(metadata={"above": bound}, **more)


def least(bound: float, **more: Any) -> Any:
    """A number, or numbers, of at least `bound`."""
    return field(metadata={"least": bound}, **more)


class Bin(NamedTuple):
    """A bin of a histogram: its edges, and how many values lie in it."""

    lower_ms: float
    upper_ms: float
    count: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where it was measured."""

    cores: int = above(0)
    cpu: str
    server: str


@dataclass(frozen=True, kw_only=True)
class Target:
    """What had to be met, and with which jobs. `model` and `topology` are names of the harness."""

    p99_ms: float = above(0)
    payload_bytes: int = least(0)
    handler_ms: float = above(0)
    model: str
    topology: str


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From when a job was due until the server had answered the call that reported its end."""

    p50: float = least(0)
    p99: float = least(0)
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class Service:
    """How long a job takes a place of a worker: from its handler's start to its end. The report of the end takes none: the next
    job, which was taken ahead, begins meanwhile."""

    mean: float = above(0)
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """From the end of a handler until the server had answered the call that reported it."""

    mean: float = least(0)
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Jobs that wait for a handler, those that a worker has taken ahead among them: their mean, and how fast they become more
    (the slope and its 95 % interval)."""

    mean: float = least(0)
    slope_per_s: float
    slope_interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class InSystem:
    """Jobs in the system, means over all looks of the step: as the server `counted` them, and how many were `certain` (enqueue
    answered, handler not ended) and `possible` (enqueue sent, end not answered) at the same instants."""

    counted: float = least(0)
    certain: float = least(0)
    possible: float = least(0)


@dataclass(frozen=True, kw_only=True)
class Command:
    """Calls of a command per job, and the microseconds of all of them."""

    calls: float = least(0)
    us: float = least(0)


@dataclass(frozen=True, kw_only=True)
class Server:
    """The server at this rate, per job, without what the measurement itself asked. `round_trips`: requests that were answered, of
    which a pipeline is one. `sent`: the commands of clients; the time of a script has that of the commands in it, which are
    those `inside`."""

    us_per_job: float = above(0)
    cpu_share: float = least(0)
    round_trips: float = least(0)
    sent: Mapping[str, Command] = field(default_factory=dict[str, Command])
    inside: Mapping[str, Command] = field(default_factory=dict[str, Command])


@dataclass(frozen=True, kw_only=True)
class Process:
    """The worker processes, or the driver."""

    cpu_share: float = least(0)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: a constant offered rate against so many workers. `void`: why it says nothing, if it does not. `arrivals_ms`: when
    each job was due, from the begin, in a step that the simulator is compared with."""

    rate: float = above(0)
    workers: int = above(0)
    handlers_at_once: int = above(0)
    seconds: float = above(0)
    offered: int = above(0)
    finished: int = least(0)
    dropped: int = least(0)
    latency_ms: Latency
    service_ms: Service
    report_ms: Report
    waiting: Waiting
    in_system: InSystem
    server: Server
    worker: Process
    driver: Process
    void: str | None = None
    meets: bool
    arrivals_ms: tuple[float, ...] = ()

    @property
    def finished_per_s(self) -> float:
        """Jobs that were finished, by the second."""
        return self.finished / self.seconds

    @property
    def utilisation(self) -> float:
        """The share of the workers' places that were taken."""
        return self.finished_per_s * self.service_ms.mean / 1_000 / (self.workers * self.handlers_at_once)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a job takes of the server's memory; `fragmentation` is resident over used."""

    bytes_per_waiting: float = above(0)
    bytes_per_retained: float = least(0)
    fragmentation: float = above(0)


@dataclass(frozen=True, kw_only=True)
class Network:
    """Bytes of the server per job, both ways, and an empty round trip."""

    bytes_per_job: float = above(0)
    round_trip_ms: float = least(0)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """One run at a multiple of the predicted rate."""

    rate: float = above(0)
    times: float = above(0)
    meets: bool
    p99_ms: float = least(0)


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How soon work goes on after a loss, and which drill has seen it, or that it is a bound."""

    ms: float = least(0)
    source: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """All of it. `recovery`: by fault, of the model that was measured, since it depends on its lease and sweep."""

    schema: int
    made: str
    machine: Machine
    target: Target
    steps: tuple[Step, ...]
    memory: Memory
    network: Network
    recovery: Mapping[str, Recovery]
    verify: tuple[Verified, ...] = ()

    @property
    def sound(self) -> tuple[Step, ...]:
        """The steps that say something, by rate."""
        return tuple(sorted((step for step in self.steps if step.void is None), key=lambda step: step.rate))

    @property
    def met(self) -> tuple[Step, ...]:
        """The steps that met the target, by rate."""
        return tuple(step for step in self.sound if step.meets)


def read(path: Path) -> Measurement:
    """The measurement in a file, or in a folder that has one. Raises JudgeError with one line that names the wrong field."""
    file = path / FILE if path.is_dir() else path
    if not file.exists():
        raise JudgeError(f"{file} does not exist; `python -m chaos capacity` measures, and says in which folder it left {FILE}")
    found = read_as(Measurement, verdict.content(file.parent, file.name, SCHEMA), file.name)
    if not found.met:
        raise JudgeError(f"{file.name}: none of the {len(found.steps)} steps met its target, so nothing can be derived from it")
    return found


def read_as(kind: type[T], value: object, at: str) -> T:
    """A value of JSON as this type; `at` names it in errors. Raises JudgeError."""
    if is_dataclass(kind):
        return read_object(kind, value, at)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    made: Any
    if origin is types.UnionType:
        made = None if value is None else read_as(inner[0], value, at)
    elif origin is tuple and inner[-1] is Ellipsis:
        made = tuple(read_as(inner[0], one, f"{at}[{place}]") for place, one in enumerate(values(value, at)))
    elif origin is tuple:
        made = numbers(value, at, len(inner))
    elif kind is Bin:
        made = read_bin(value, at)
    elif origin is Mapping:
        if not isinstance(value, dict):
            raise wrong(at, value, "an object")
        made = {str(name): read_as(inner[1], one, f"{at}.{name}") for name, one in value.items()}
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise wrong(at, value, "a number")
        made = float(value)
    elif type(value) is not kind:
        raise wrong(at, value, {int: "a whole number", str: "a text", bool: "true or false"}[typing.cast(Any, kind)])
    else:
        made = value
    return made


def read_object(kind: type[T], value: object, at: str) -> T:
    """An object of JSON as this dataclass."""
    if not isinstance(value, dict):
        raise wrong(at, value, "an object")
    hints, made = typing.get_type_hints(kind), dict[str, Any]()
    for one in fields(typing.cast(Any, kind)):
        where = f"{at}.{one.name}"
        if one.name in value:
            made[one.name] = read_as(hints[one.name], value[one.name], where)
            check(made[one.name], where, one.metadata)
        elif one.default is MISSING and one.default_factory is MISSING:
            raise JudgeError(f"{where} is missing")
    return kind(**made)


def check(value: Any, at: str, bounds: Mapping[str, float]) -> None:
    """Raise JudgeError when a number, or one of an object's, is out of its bounds."""
    for number in value.values() if isinstance(value, dict) else [value]:
        if "above" in bounds and number <= bounds["above"]:
            raise wrong(at, number, f"above {bounds['above']:g}")
        if "least" in bounds and number < bounds["least"]:
            raise wrong(at, number, f"at least {bounds['least']:g}")


def read_bin(value: object, at: str) -> Bin:
    """A bin of a histogram."""
    found = Bin(*numbers(value, at, len(Bin._fields)))
    if not 0 <= found.lower_ms <= found.upper_ms or found.count < 0:
        raise wrong(at, value, "[lower_ms, upper_ms, count] with 0 <= lower_ms <= upper_ms and no count below 0")
    return found


def numbers(value: object, at: str, count: int) -> tuple[float, ...]:
    """So many numbers."""
    found = values(value, at)
    if len(found) != count:
        raise wrong(at, value, f"a list of {count} numbers")
    return tuple(read_as(float, one, f"{at}[{place}]") for place, one in enumerate(found))


def values(value: object, at: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise wrong(at, value, "a list")
    return value


def wrong(at: str, value: object, bound: str) -> JudgeError:
    """The error of a field: its name, its value, and what it must be."""
    return JudgeError(f"{at} is {value!r:.{SHOWN_MAX}}, it must be {bound}")
