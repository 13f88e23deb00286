"""Makes the bound model of a queue from the arguments of `Queue`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from engine import validate
from engine.errors import Malformed, shown
from engine.models import Lanes
from engine.models.model import Model, Spec


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
