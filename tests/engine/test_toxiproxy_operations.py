"""Every operation with its request lost once and with its reply lost once, through a real Toxiproxy: the same outcome as once.

The scenes are those of the cluster tests, of which each script has some. The queue runs under virtual time, so the keys that two
runs of a scene leave behind can be compared byte by byte.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest

from chaos import toxiproxy_binary
from chaos.network import Network
from chaos.probe import through
from chaos.toxiproxy import blackhole
from engine.models.lanes import Lanes
from engine.redis.async_driver import AsyncDriver
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import ConnectOptions, Endpoint
from engine.redis.exchange import InFlightCall, Sent, settle
from tests.engine.helpers.scenes import DONE_NOW
from tests.engine.using import START_MS, Call, Desk, MakeTestQueue
from tests.scenes import MOVING, Scene

pytestmark = pytest.mark.slow

#: What counts as a lost reply: nothing on this machine takes that long.
PATIENCE = ConnectOptions(timeout_ms=150)

#: The name of the client's proxy.
CLIENT = "client"


class SoloDesk(Desk):
    """One queue on one server, for scenes that were made for a cluster."""

    def tick(self, ms: int) -> Self:
        """Move the clock; nothing expires."""
        self.now_ms += ms
        self.queue.model.now_ms = self.now_ms
        return self

    def prepared(self, scene: Scene) -> Call[Any]:
        """Prepare a scene on an empty server; the call that it is about."""
        self.redis.flushall()
        self._counters = {}
        self.queue.model.now_ms = None
        self.run(MakeTestQueue())
        self.now_ms = self.queue.model.now_ms = START_MS
        call = self.call(scene.begin(self))
        self.redis.config_resetstat()
        return call

    def dump(self) -> dict[str, Any]:
        """Every key; entries of streams without their ids, which are the server's own time."""
        found = super().dump()
        for key, (kind, value, expiry) in found.items():
            if kind == "stream":
                found[key] = (kind, [fields for _, fields in value], expiry)
        return found

    def sends(self) -> int:
        """How many scripts the server has run since the scene was prepared."""
        return self.redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


class Lossy:
    """Runs calls over a proxy that loses the first request or the first reply, and is healed before the second send."""

    def __init__(self, network: Network, desk: SoloDesk) -> None:
        self.network, self.desk = network, desk
        self.url = through(desk.queue.url, network.proxy(CLIENT))
        #: After each send that failed: how many copies have arrived by then.
        self.arrived: list[int] = []

    def settle(self, in_flight: Sequence[InFlightCall], replies: Sequence[Any]) -> float:
        """What a driver does after each send. The next one is to succeed."""
        pause_s = settle(in_flight, replies)
        if not all(in_flight_call.ended for in_flight_call in in_flight):
            self.arrived.append(self.desk.sends())
            self.network.heal((CLIENT,))
        return pause_s

    def send(self, kind: str, call: Call[Any], direction: str) -> Sent:
        scripts = self.desk.queue.model.scripts.values()
        self.arrived.clear()
        if kind == "asyncio":
            return asyncio.run(self._send_async(call, direction))
        driver = SyncDriver(Endpoint(self.url, options=PATIENCE), scripts)
        try:
            driver.server_now_ms()
            self.network.poison((CLIENT,), [blackhole(direction)])
            return driver.send(call)
        finally:
            driver.close()
            self.network.heal((CLIENT,))

    async def _send_async(self, call: Call[Any], direction: str) -> Sent:
        driver = AsyncDriver(Endpoint(self.url, options=PATIENCE, asynchronous=True), self.desk.queue.model.scripts.values())
        try:
            await driver.server_now_ms()
            self.network.poison((CLIENT,), [blackhole(direction)])
            return await driver.send(call)
        finally:
            await driver.close()
            self.network.heal((CLIENT,))


@pytest.fixture(scope="module")
def network(ironclaim_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """One Toxiproxy for all of them."""
    program = toxiproxy_binary.find()
    assert program is not None, "there is no Toxiproxy server; `make setup` builds it"
    with Network(ironclaim_server.url, program=program, log=tmp_path_factory.mktemp("toxiproxy") / "log") as made:
        made.connect(CLIENT)
        yield made


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[SoloDesk]:
    made = SoloDesk(ironclaim_url)
    yield made
    made.close()


@pytest.fixture
def lossy(network: Network, desk: SoloDesk, monkeypatch: pytest.MonkeyPatch) -> Lossy:
    made = Lossy(network, desk)
    for driver in ("driver", "async_driver"):
        monkeypatch.setattr(f"engine.redis.{driver}.settle", made.settle)
    return made


def words(reply: object) -> str:
    """A reply without the word that tells a repeat from a first time."""
    return DONE_NOW.sub("'repeated'", repr(reply))


#: Those of a restore go by the server's own time, and leave it in keys; test_backup.py cuts them off at every write.
SCRIPTS = Lanes("desk").scripts
TIMED = [scene for scene in MOVING if "now_ms" in SCRIPTS[scene.script].arguments or scene.script == "make_test_queue"]
#: The two drivers decide by the same in_flight, so one scene of each script is enough for asyncio.
FIRST = list({scene.script: scene for scene in reversed(TIMED)}.values())


@pytest.mark.parametrize("scene", TIMED, ids=lambda scene: scene.id)
def test_an_operation_whose_request_or_reply_is_lost_is_done_once(desk: SoloDesk, lossy: Lossy, scene: Scene) -> None:
    call = desk.prepared(scene)
    assert call.script is not None and call.script.name == scene.script
    once, keys = desk.queue.driver.send(call), desk.dump()

    def again() -> Call[Any]:
        """The same call; also a beat, of which no worker sends a second copy, is sent again here."""
        return replace(desk.prepared(scene), patient=True)

    request_lost = lossy.send("sync", again(), "upstream")
    assert (lossy.arrived, desk.sends()) == ([0], 1), "the first copy was lost on its way, the second one was not"
    assert request_lost.reply == once.reply and not request_lost.definite and desk.dump() == keys

    for kind in ("sync", "asyncio") if scene in FIRST else ("sync",):
        reply_lost = lossy.send(kind, again(), "downstream")
        assert (lossy.arrived, desk.sends()) == ([1], 2), "both copies arrived, and the first one's answer did not"
        assert words(reply_lost.reply) == words(once.reply) and not reply_lost.definite
        assert desk.dump() == keys
