"""Data models by the words that people write: `bull`, or `bananas:live` with a layout."""

from __future__ import annotations

from typing import Any

from engine import models, validate
from engine.errors import Malformed
from engine.models.model import Spec


def named(text: str) -> Spec:
    """The settings of a model. Raises Malformed."""
    name, _, layout = (validate.plain_text(text) or "").partition(":")
    specs = (models.Lanes, models.Bridge, models.Bananas, models.Bull, models.Mosquito)
    kinds: dict[str, Any] = {spec.__name__.lower(): spec for spec in specs}
    try:
        return kinds[name](**({"layout": layout} if layout else {}))
    except (KeyError, TypeError, Malformed):
        raise Malformed("model", text, f"one of {', '.join(kinds)}, with a layout where it has several") from None
