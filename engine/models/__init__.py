"""Models: each maps the engine's operations to calls on one data model in Redis. A queue takes one of them:

    from engine import Queue, models
    queue = Queue("emails", models.Bull())

`Lanes` is the engine's own model and the default. The others are the keyspaces of four older job queues. A
team that uses one of them can enqueue and process its jobs with this engine, next to its old clients. A
feature that such a format cannot hold raises `UnsupportedFeature`; defects that the engine cannot prevent are
the `FINDINGS` of the model's module. Only Lanes runs on a cluster.

`Dsps` is not for queues but for channels: `Channel("orders", models.Dsps())`. It runs on a cluster.
"""

from __future__ import annotations

from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, get_args

from engine import validate
from engine.errors import Malformed, shown
from engine.ops.base import frozen
from engine.validate import settle

if TYPE_CHECKING:
    from engine.models.dsps import ChannelRule
    from engine.models.model import Finding, Model

__all__ = [
    "Bananas",
    "BananasLayout",
    "Bridge",
    "Bull",
    "ChannelRule",
    "Dsps",
    "Finding",
    "Lanes",
    "Layout",
    "Mosquito",
]

#: Where a model's design document and the original programs differ in key names and types: those of the
#: document, or those of the programs (`live`). Choose `live` for a keyspace that such programs use.
Layout = Literal["document", "live"]
#: Of Bananas: `live` for programs without routes, `routed` for those with routes (see
#: engine/models/foreign/bananas.py).
BananasLayout = Literal["document", "live", "routed"]


@frozen
class Lanes:
    """The engine's own model, the default: every feature, and every protection."""

    prefix: str = "ic"

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        from engine.models.lanes import Lanes as Bound

        return Bound(queue, lua=lua, root=prefix)


@frozen
class Bridge:
    """BridgeMQ: one keyspace is one queue, so the queue's name is a label that is not on the wire."""

    prefix: str = "bridge"

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        from engine.models.foreign.bridge import BridgeModel

        return BridgeModel(queue, prefix, lua=lua)


@frozen
class Bananas:
    """Bananas: one keyspace is one queue, so the queue's name is a label that is not on the wire.

    `adopt_after_ms`: jobs that a foreign worker has left in `queue:processing` come back after this time; 0 =
    never, because such an entry looks like that of a running job. `timeout_ms` bounds each run, as in the
    original workers; 0 = no bound. The others are the seconds for which completed and dead jobs, and the
    results of both, are kept.
    """

    layout: BananasLayout = "document"
    prefix: str = "bananas"
    adopt_after_ms: int = 0
    timeout_ms: int = 300_000
    job_ttl_s: int = 86_400
    dead_ttl_s: int = 604_800
    result_ttl_s: int = 3_600
    error_ttl_s: int = 86_400

    def __post_init__(self) -> None:
        _check(self.layout, BananasLayout)
        bounds = {"adopt_after_ms": (0, validate.DURATION_MS_MAX), "timeout_ms": (0, validate.BACKOFF_MS_MAX)}
        bounds |= dict.fromkeys(
            ("job_ttl_s", "dead_ttl_s", "result_ttl_s", "error_ttl_s"), (1, validate.DURATION_MS_MAX // 1000)
        )
        settle(self, **bounds)

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        numbers = (
            self.adopt_after_ms,
            self.job_ttl_s,
            self.dead_ttl_s,
            self.result_ttl_s,
            self.error_ttl_s,
            self.timeout_ms,
        )
        settings = " ".join(map(str, numbers))
        from engine.models.foreign.bananas import BananasModel

        return BananasModel(queue, prefix, lua=lua, layout=self.layout, settings=settings)


@frozen
class Bull:
    """Bull 1.0.0: keys begin with the prefix and the queue's name. `priority`: the `priority` in the opts of
    each job, if the queue is one of the five of a priority queue (`engine.PriorityQueue`)."""

    prefix: str = "bull"
    priority: Literal["", "low", "normal", "medium", "high", "critical"] = ""

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        from engine.models.foreign.bull import BullModel

        return BullModel(queue, prefix, lua=lua, settings=self.priority)


@frozen
class Mosquito:
    """Mosquito: the queue's name is inside of its keys. The hash of a job is kept for `success_ttl_s` after a
    success and for `dead_ttl_s` after its death. `adopt_after_ms`: active jobs without the id of a runner (v2
    writes none) come back after this time, 0 = never. `coordinate`: the engine's leader holds the lock of the
    original's coordinators."""

    layout: Layout = "document"
    prefix: str = "mosquito"
    success_ttl_s: int = 1
    dead_ttl_s: int = 86_400
    adopt_after_ms: int = 0
    coordinate: bool = False

    def __post_init__(self) -> None:
        _check(self.layout, Layout)
        settle(
            self,
            **dict.fromkeys(("success_ttl_s", "dead_ttl_s", "adopt_after_ms"), (0, validate.DURATION_MS_MAX)),
        )

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        settings = f"{self.success_ttl_s} {self.dead_ttl_s} {self.adopt_after_ms} {int(self.coordinate)}"
        from engine.models.foreign.mosquito import MosquitoModel

        return MosquitoModel(queue, prefix, lua=lua, layout=self.layout, settings=settings)


def _rules() -> tuple[ChannelRule, ...]:
    from engine.models.dsps import ChannelRule

    return (ChannelRule(),)


@frozen
class Dsps:
    """DSPS, for channels: durable messages for any number of subscribers.

    `rules` set how long messages of a channel are kept: of the rules that match its name, the one that keeps
    them longest applies. The default is half an hour for all. `storage` is the name of the channel's only
    server in receipts; it must not change while receipts may still come back. Beside a DSPS server it must be
    the storage id of that server's configuration: DSPS accepts a receipt with another one, answers 204 and
    moves nothing. Here such a receipt is `Malformed`.
    """

    rules: tuple[ChannelRule, ...] = field(default_factory=_rules)
    storage: str = "redis"

    def __post_init__(self) -> None:
        from engine.models import dsps

        object.__setattr__(self, "rules", dsps.checked(self.rules))
        settle(self, rules=dsps.ChannelRule)
        validate.text("storage", self.storage)


def _check(layout: object, layouts: object) -> None:
    known = get_args(layouts)
    if validate.plain_text(layout) not in known:
        raise Malformed("layout", layout, f"{', '.join(known[:-1])} or {known[-1]}")


# -- What names a model: the settings that a user gives, or a word, and the model of one queue that is made
# of them.


class Spec(Protocol):
    """The settings of a model, without a queue: what `Queue(model=...)` takes."""

    @property
    def prefix(self) -> str:
        """The default prefix of the keys."""
        ...

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Model:
        """The model of one queue. `lua`: another folder of scripts."""
        ...


def named(text: str) -> Spec:
    """The settings of the model that a word names: `bull`, or `bananas:live` with a layout. Raises
    Malformed."""
    name, _, layout = (validate.plain_text(text) or "").partition(":")
    specs = (Lanes, Bridge, Bananas, Bull, Mosquito)
    kinds: dict[str, Any] = {spec.__name__.lower(): spec for spec in specs}
    try:
        return kinds[name](**({"layout": layout} if layout else {}))
    except (KeyError, TypeError, Malformed):
        raise Malformed(
            "model", text, f"one of {', '.join(kinds)}, with a layout where it has several"
        ) from None


class Bound(NamedTuple):
    """The model of a queue, and what it was made of."""

    model: Model
    spec: Spec
    prefix: str


def bind(spec: Spec | None, queue: str, prefix: object, lua: Path | None) -> Bound:
    """The model of a queue. None means Lanes, and a prefix of None the model's default. Raises Malformed."""
    spec = Lanes() if spec is None else spec
    bound = "one of engine.models, such as models.Bull()"
    if issubclass(type(spec), type) or not validate.asked("model", spec, bound, hasattr, spec, "bind"):
        raise Malformed("model", spec, bound)
    given: Any = spec.prefix if prefix is None else prefix
    # Up to here the names of its keys are texts and nothing else.
    model = spec.bind(_text(queue), _text(given), lua)
    model.names.queue(queue)
    return Bound(model, spec, model.names.prefix(given))


def _text(value: object) -> str:
    """A name before it is checked; what is no text is refused when it is."""
    text = validate.plain_text(value)
    return shown(value) if text is None else text


def __getattr__(name: str) -> Any:
    if name == "Finding":
        return cast("Any", import_module("engine.models.model")).Finding
    if name == "ChannelRule":
        return cast("Any", import_module("engine.models.dsps")).ChannelRule
    raise AttributeError(f"module engine.models has no attribute {name}")
