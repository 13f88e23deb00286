"""Models: each maps the engine's operations to calls on one data model in Redis. These are what a queue is given:

    from engine import Queue, models
    queue = Queue("emails", models.Bull())

`Lanes` is the engine's own and the default. The others are the keyspaces of four older job queues: a team with one of them puts
jobs in and works them off with this engine, next to its old clients. What such a wire cannot hold is an `UnsupportedFeature`, and
what it cannot be protected from stands in the docstring of the model's module. None but Lanes runs on a cluster.

`Dsps` is no queue: it is what a channel is given, `Channel("orders", models.Dsps())`. It runs on a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from engine.channel.rules import ChannelRule
    from engine.models.dsps import DspsModel
    from engine.models.model import Finding, Model

__all__ = ["Bananas", "Bridge", "Bull", "ChannelRule", "Dsps", "Finding", "Lanes", "Layout", "Mosquito"]

#: Which names and types a model uses where its design document and the programs differ: those of the document, or those that the
#: original programs write. Choose `live` for a keyspace that such programs use.
Layout = Literal["document", "live"]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The engine's own model, the default: every feature, and every protection."""

    prefix: str = "ic"

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        from engine.models.lanes import Lanes as Bound

        return Bound(queue, lua=lua, root=prefix)


@dataclass(frozen=True, slots=True)
class Bridge:
    """BridgeMQ: one keyspace is one queue, so the queue's name is a label that is not on the wire."""

    prefix: str = "bridge"

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        return _bound("bridge", "BridgeModel")(queue, prefix, lua=lua)


@dataclass(frozen=True, slots=True)
class Bananas:
    """Bananas: one keyspace is one queue, so the queue's name is a label that is not on the wire.

    `adopt_after_ms`: what a foreign worker has left in `queue:processing` comes back after so long; 0 = never, for nothing tells
    such an entry from a job that runs. `timeout_ms` bounds each run, as their workers do; 0 = not at all. The others say how many
    seconds jobs live that have completed or are dead, and the results of both.
    """

    layout: Layout = "document"
    prefix: str = "bananas"
    adopt_after_ms: int = 0
    timeout_ms: int = 300_000
    job_ttl_s: int = 86_400
    dead_ttl_s: int = 604_800
    result_ttl_s: int = 3_600
    error_ttl_s: int = 86_400

    def __post_init__(self) -> None:
        from engine import validate

        _check(self.layout)
        validate.integer("adopt_after_ms", self.adopt_after_ms, 0, validate.DURATION_MS_MAX)
        validate.integer("timeout_ms", self.timeout_ms, 0, validate.BACKOFF_MS_MAX)
        for name in ("job_ttl_s", "dead_ttl_s", "result_ttl_s", "error_ttl_s"):
            validate.integer(name, getattr(self, name), 1, validate.DURATION_MS_MAX // 1000)

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        numbers = (self.adopt_after_ms, self.job_ttl_s, self.dead_ttl_s, self.result_ttl_s, self.error_ttl_s, self.timeout_ms)
        settings = " ".join(map(str, numbers))
        return _bound("bananas", "BananasModel")(queue, prefix, lua=lua, layout=self.layout, settings=settings)


@dataclass(frozen=True, slots=True)
class Bull:
    """Bull 1.0.0: keys begin with the prefix and the queue's name. `priority`: the word that jobs carry as such in their opts
    where the queue is one of the five of a priority queue (`engine.PriorityQueue`)."""

    prefix: str = "bull"
    priority: Literal["", "low", "normal", "medium", "high", "critical"] = ""

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        return _bound("bull", "BullModel")(queue, prefix, lua=lua, settings=self.priority)


@dataclass(frozen=True, slots=True)
class Mosquito:
    """Mosquito: the queue's name is inside of its keys. The hash of a job lives on for `success_ttl_s` after its end and for
    `dead_ttl_s` after its death. `adopt_after_ms`: jobs in hand that name no runner (v2 has no names) come back after this time,
    0 = never. `coordinate`: our leader holds the lock of the original's coordinators."""

    layout: Layout = "document"
    prefix: str = "mosquito"
    success_ttl_s: int = 1
    dead_ttl_s: int = 86_400
    adopt_after_ms: int = 0
    coordinate: bool = False

    def __post_init__(self) -> None:
        _check(self.layout)
        for name in ("success_ttl_s", "dead_ttl_s", "adopt_after_ms"):
            _check_whole(name, getattr(self, name))

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        settings = f"{self.success_ttl_s} {self.dead_ttl_s} {self.adopt_after_ms} {int(self.coordinate)}"
        return _bound("mosquito", "MosquitoModel")(queue, prefix, lua=lua, layout=self.layout, settings=settings)


def _rules() -> tuple[ChannelRule, ...]:
    from engine.channel.rules import ChannelRule

    return (ChannelRule(),)


@dataclass(frozen=True, slots=True)
class Dsps:
    """DSPS, for channels: durable messages for any number of subscribers.

    `rules` say how long messages of a channel are kept: of those that match its name, the one that keeps them longest; half an
    hour for all, if nothing is said. `storage` is the name that receipts give the channel's server where it has no others; it
    must stay as it is while receipts are out.
    """

    rules: tuple[ChannelRule, ...] = field(default_factory=_rules)
    storage: str = "redis"

    def __post_init__(self) -> None:
        from engine import validate
        from engine.channel import rules

        object.__setattr__(self, "rules", rules.checked(self.rules))
        validate.text("storage", self.storage)

    def bind_channel(self, channel: str, lua: Path | None) -> DspsModel:
        """The model of one channel. `lua`: another folder of scripts."""
        return _bound("dsps", "DspsModel")(channel, lua)


def _bound(module: str, name: str) -> Any:
    """The class of a bound model: whoever uses one need not load the others."""
    return getattr(import_module(f"engine.models.{module}"), name)


def _check(layout: object) -> None:
    if layout not in ("document", "live"):
        from engine.errors import Malformed

        raise Malformed("layout", layout, "document or live")


def _check_whole(field: str, value: object) -> None:
    from engine import validate

    validate.integer(field, value, 0, validate.DURATION_MS_MAX)


def __getattr__(name: str) -> Any:
    if name == "Finding":
        return cast("Any", import_module("engine.models.model")).Finding
    if name == "ChannelRule":
        return cast("Any", import_module("engine.channel.rules")).ChannelRule
    raise AttributeError(f"module engine.models has no attribute {name}")
