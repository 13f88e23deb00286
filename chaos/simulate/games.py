"""What the simulator is played with: Lanes, the models of foreign keyspaces, and channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.foreign_keys import MosquitoKeys
from chaos.simulate.campaign import EXPECTED
from chaos.simulate.channel.episode import ChannelStage
from chaos.simulate.channel.profiles import CHANNEL_EXPECTED, CHANNEL_PROFILES
from chaos.simulate.channel.removals import CHANNEL_REMOVALS
from chaos.simulate.channel.state import CHANNEL
from chaos.simulate.episode import QUEUE, Stage
from chaos.simulate.foreign.bananas import BananasFormat
from chaos.simulate.foreign.bridge import BridgeFormat
from chaos.simulate.foreign.bull import BullFormat
from chaos.simulate.foreign.episode import ForeignStage, Variant
from chaos.simulate.foreign.mosquito import MosquitoFormat
from chaos.simulate.foreign.profiles import FOREIGN_EXPECTED, FOREIGN_PROFILES
from chaos.simulate.foreign.removals import FOREIGN_REMOVALS
from chaos.simulate.foreign.state import Format
from chaos.simulate.patching import Removal
from chaos.simulate.plan import Player
from chaos.simulate.profile import Mishaps
from chaos.simulate.profiles import PROFILES
from chaos.simulate.removals import NOT_REMOVABLE, REMOVALS
from chaos.simulate.wire import Wire
from engine.models.dsps import DspsModel
from engine.models.foreign.bananas import BananasModel
from engine.models.foreign.bridge import BridgeModel
from engine.models.foreign.bull import BullModel
from engine.models.foreign.mosquito import MosquitoModel
from engine.models.lanes import Lanes


@dataclass(frozen=True, slots=True)
class Game:
    """One of them. `stage`: plays episodes on a server, with the scripts in a folder (None: those of the engine); `expected`:
    what a whole run has to meet; `not_removable`: rules whose loss it cannot see, and why."""

    name: str
    stage: Callable[[Wire, Path | None], Player[Any, Any]]
    profiles: Sequence[Mishaps]
    expected: Sequence[str]
    removals: Sequence[Removal]
    not_removable: Mapping[int, str]

    def profile(self, name: str) -> Mishaps:
        """The kind of episodes that is called so."""
        return next(profile for profile in self.profiles if profile.name == name)


def _bull(wire: Wire, lua: Path | None) -> ForeignStage:
    model = BullModel(QUEUE, "bull", lua=lua)
    return ForeignStage(wire, [Variant(model, BullFormat(model.keys.wire))])


def _bananas(wire: Wire, lua: Path | None) -> ForeignStage:
    models = [BananasModel(QUEUE, "bananas", lua=lua, layout=layout) for layout in ("document", "live", "routed")]
    return ForeignStage(wire, [Variant(model, BananasFormat(model.keys.wire)) for model in models])


def _bridge(wire: Wire, lua: Path | None) -> ForeignStage:
    model = BridgeModel(QUEUE, "bridge", lua=lua)
    return ForeignStage(wire, [Variant(model, BridgeFormat(model.keys.wire))])


def _mosquito(wire: Wire, lua: Path | None) -> ForeignStage:
    models = [MosquitoModel(QUEUE, "mosquito", lua=lua, layout=layout) for layout in ("document", "live")]
    return ForeignStage(wire, [Variant(model, MosquitoFormat(MosquitoKeys(QUEUE))) for model in models])


def foreign(name: str, stage: Callable[[Wire, Path | None], Player[Any, Any]], form: type[Format]) -> Game:
    """That of a model of a foreign keyspace, with what its format can show."""
    removals = [one for one in FOREIGN_REMOVALS if form.due_unit_ms == 1 or not one.exact]
    return Game(name, stage, FOREIGN_PROFILES, FOREIGN_EXPECTED, removals, {})


#: By their names.
GAMES = {
    game.name: game
    for game in (
        Game("lanes", lambda wire, lua: Stage(wire, Lanes(QUEUE, lua=lua)), PROFILES, EXPECTED, REMOVALS, NOT_REMOVABLE),
        foreign("bull", _bull, BullFormat),
        foreign("bananas", _bananas, BananasFormat),
        foreign("bridge", _bridge, BridgeFormat),
        foreign("mosquito", _mosquito, MosquitoFormat),
        Game(
            "dsps",
            lambda wire, lua: ChannelStage(wire, DspsModel(CHANNEL, lua)),
            CHANNEL_PROFILES,
            CHANNEL_EXPECTED,
            CHANNEL_REMOVALS,
            {},
        ),
    )
}
