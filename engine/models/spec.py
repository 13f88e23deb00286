"""What names a model: the settings that a user gives, or a word, and the model of one queue that is made of
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from engine import models, validate
from engine.errors import Malformed, shown
from engine.models import Lanes
from engine.models.model import Model


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
    specs = (models.Lanes, models.Bridge, models.Bananas, models.Bull, models.Mosquito)
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
