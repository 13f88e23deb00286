"""One episode of a channel: publishers, subscribers, faults for a while; then all that was published must arrive."""

from __future__ import annotations

import random
from collections import Counter

from chaos.simulate.chance import Chance
from chaos.simulate.channel.judge import ChannelJudge
from chaos.simulate.channel.processes import TTL_S, Publisher, Subscriber
from chaos.simulate.channel.profiles import ChannelProfile, PlannedPublish, plan_publishes
from chaos.simulate.channel.state import KEYS, READING
from chaos.simulate.plan import Plan, Result
from chaos.simulate.server import Scripts, SimulatedServer
from chaos.simulate.wire import Wire
from chaos.simulate.world import MS, Found, TimeIsUp, World
from engine.models.dsps import CLOCK_MAX, DspsModel

ChannelPlan = Plan[ChannelProfile, PlannedPublish]
#: A dead subscriber is followed by another one after this.
_RESTART_MS = 700
#: All has arrived so long after the last fault: calls that are still under way give up after 10 s.
_DRAIN_MS = 60_000


class ChannelStage:
    """A server and the scripts of DSPS."""

    def __init__(self, wire: Wire, model: DspsModel) -> None:
        self._wire = wire
        self._model = model
        self._scripts = Scripts(wire, model.scripts, READING)

    def plan(self, seed: int, profile: ChannelProfile) -> ChannelPlan:
        """The plan that a seed makes of a profile."""
        return Plan(seed, profile, plan_publishes(profile, random.Random(seed)))

    def play(self, plan: ChannelPlan) -> Result:
        """One episode."""
        return _Episode(self._wire, self._model, self._scripts, plan).play()


class _Episode:
    def __init__(self, wire: Wire, model: DspsModel, scripts: Scripts, plan: ChannelPlan) -> None:
        self._plan = plan
        self._chance = Chance(plan.seed, plan.faults)
        self._counts: Counter[str] = Counter()
        self._world = World(plan.profile, self._chance, plan.until_ns)
        self._server = SimulatedServer(self._world, wire, model, scripts, READING, self._counts)
        self._judge = ChannelJudge(self._world, self._server, self._counts)
        self._server.observer = self._judge
        self._alive: list[Subscriber] = []
        self._born = 0

    def play(self) -> Result:
        found: Found | None = None
        with self._world.clock_of_calls():
            try:
                self._act()
            except Found as broken:
                found = broken
            except TimeIsUp:
                pass
        return Result(self._world.steps, self._world.rows, self._chance.struck, found, self._counts)

    def _act(self) -> None:
        world, profile = self._world, self._plan.profile
        if profile.to_wrap:
            lives_until_ms = self._server.now_ms() + TTL_S * 1000
            self._server.set_raw(("SET", KEYS.clock, CLOCK_MAX - profile.to_wrap, "PXAT", lives_until_ms))
        for number in range(profile.subscribers):
            self._subscribe(f"s{number + 1}")
        publishers = [Publisher(world, self._server, self._judge, f"p{number + 1}") for number in range(profile.publishers)]
        for action in self._plan.actions:
            publishers[action.number % len(publishers)].does(action)
        world.run(world.now_ns + profile.chaos_ms * MS, lambda: False)
        self._chance.healed = True
        self._server.settle()
        for process in self._alive:
            process.thaw()
            process.cut_until_ns = min(process.cut_until_ns, world.now_ns)

        def over() -> bool:
            return not any(publisher.open for publisher in publishers) and not self._open()

        world.run(world.now_ns + _DRAIN_MS * MS, over)
        if not over():
            raise Found(
                "liveness",
                f"{', '.join(self._open()) or 'a publisher'} has not come to the end {_DRAIN_MS} ms after the last fault",
            )
        self._judge.over()

    def _open(self) -> list[str]:
        waited_for = {f"s{number + 1}" for number in range(self._plan.profile.subscribers)} - set(self._judge.since)
        return sorted(waited_for) + self._judge.open_at(self._server.state)

    def _subscribe(self, subscriber: str) -> None:
        self._born += 1
        self._alive.append(Subscriber(self._world, self._server, self._judge, subscriber, self._born, self._gone))

    def _gone(self, process: Subscriber) -> None:
        self._alive.remove(process)
        delay_ms = _RESTART_MS * (0.5 + self._chance.draw("restart", self._born))
        self._world.at(self._world.now_ns + int(delay_ms * MS), self._subscribe, process.subscriber)
