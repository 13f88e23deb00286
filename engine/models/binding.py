"""Makes the bound model of a queue from the arguments of `Queue`."""

from __future__ import annotations

from pathlib import Path

from engine import validate
from engine.errors import Malformed
from engine.models import Lanes
from engine.models.model import Model, Spec


def bind(spec: Spec | None, queue: str, prefix: object, lua: Path | None) -> Model:
    """The model of a queue. None means Lanes, and a prefix of None the model's default. Raises Malformed."""
    spec = Lanes() if spec is None else spec
    if not hasattr(spec, "bind"):
        raise Malformed("model", spec, "one of engine.models, such as models.Bull()")
    return spec.bind(queue, validate.prefix(spec.prefix if prefix is None else prefix), lua)
