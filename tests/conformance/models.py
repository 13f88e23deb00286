"""The models that the suite runs for, each with its layouts."""

from __future__ import annotations

from typing import Any

import pytest

from engine import models
from engine.models.model import Spec

#: Those of foreign formats, by the name of their test. Mosquito keeps the hash of a finished job for one second of real time
#: unless told otherwise, and so would lose it between two looks of a test on a busy machine.
FOREIGN: dict[str, Spec] = {
    "bridge": models.Bridge(),
    "bananas-document": models.Bananas(),
    "bananas-live": models.Bananas(layout="live"),
    "bull": models.Bull(),
    "mosquito-document": models.Mosquito(success_ttl_s=600),
    "mosquito-live": models.Mosquito(layout="live", success_ttl_s=600),
}
ALL: dict[str, Spec] = {"lanes": models.Lanes(), **FOREIGN}


def each(specs: dict[str, Spec]) -> list[Any]:
    """Parameters of a fixture."""
    return [pytest.param(spec, id=name) for name, spec in specs.items()]
