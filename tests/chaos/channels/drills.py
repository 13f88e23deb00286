"""Short drills on channels, for tests."""

from pathlib import Path

from chaos import runs
from chaos.channels.drill import ChannelDrill
from chaos.channels.plan import FAULT_NAMES
from chaos.channels.spec import ChannelSpec, Crossings
from chaos.plan import Pace
from chaos.scenarios.channels import drawn
from tests.chaos.drills import prepared

PACE = Pace(lead_in_ms=1_500, delay_max_ms=200, calm_ms=500, settle_ms=1_500)


def make_drill(folder: Path, *, seed: int, kinds: tuple[str, ...] = FAULT_NAMES, last_ms: int = 8_000) -> ChannelDrill:
    """A drill with short phases, in which every clock wraps within so many ms."""
    spec = ChannelSpec(id=runs.run_id("bench", seed, "dsps", 0.0), seed=seed)
    made = drawn(spec, crossings=Crossings(first_ms=500, last_ms=last_ms), pace=PACE, kinds=kinds)
    drill = prepared(made, folder)
    assert isinstance(drill, ChannelDrill)
    return drill
