"""Episodes of the models of foreign keyspaces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from chaos.simulate.episode import Episode, JobsPlan, Scene
from chaos.simulate.foreign.judge import ForeignJudge
from chaos.simulate.foreign.state import ForeignState, Format, reading_of
from chaos.simulate.plan import Plan, Result
from chaos.simulate.planned_actions import PlannedAction, plan_actions
from chaos.simulate.producer import Producer
from chaos.simulate.profile import Profile
from chaos.simulate.server import Scripts
from chaos.simulate.wire import Wire
from chaos.simulate.world import Found
from engine.models.foreign.foreign import Foreign
from engine.queue.producing import NewJob

#: So many of the jobs whose ids the server may give have one of their own.
_OWN_IDS = 0.3
#: The engine's own keys that outlive all jobs: `run:<id>` of the dead is looked at apart.
_LASTING = frozenset({"sweep", "stats", "settings", "layout", "ids", "done", "routes", "seq", "order", "limited", "wake"})


class Variant(NamedTuple):
    """A model in one of its layouts, and how its keys are read."""

    model: Foreign
    form: Format


class ForeignStage:
    """A server and the layouts of one foreign model; an episode's seed says in which it is played."""

    def __init__(self, wire: Wire, variants: Sequence[Variant]) -> None:
        self._variants: list[tuple[Scene, Format]] = []
        for model, form in variants:
            model.now_ms = 0
            reading = reading_of(model.keys.prefix, form)
            self._variants.append((Scene(wire, model, Scripts(wire, model.scripts, reading), reading), form))

    def plan(self, seed: int, profile: Profile) -> JobsPlan:
        """The plan that a seed makes of a profile, with what the format has room for."""
        chooser = random.Random(seed)
        model = self._variants[0][0].model
        actions = plan_actions(profile, chooser)
        names = [job.id for action in actions for job in action.jobs]
        return Plan(seed, profile, tuple(_fitting(action, model, names, chooser) for action in actions))

    def play(self, plan: JobsPlan) -> Result:
        """One episode."""
        scene, form = self._variants[plan.seed % len(self._variants)]
        return ForeignEpisode(scene, plan, form).play()


def _fitting(action: PlannedAction, model: Foreign, names: Sequence[str | None], chooser: random.Random) -> PlannedAction:
    jobs: list[NewJob] = []
    for job in action.jobs:
        given = model.new_id() == "" and names.count(job.id) == 1 and chooser.random() >= _OWN_IDS
        options: Any = {name: value for name, value in job.options.items() if name in model.OPTIONS}
        jobs.append(NewJob(job.name, job.payload, id=None if given else job.id, **options))
    return replace(action, jobs=tuple(jobs))


class ForeignEpisode(Episode):
    """One episode with a foreign model."""

    def __init__(self, scene: Scene, plan: JobsPlan, form: Format) -> None:
        self._form = form
        super().__init__(scene, plan)

    def _new_judge(self) -> ForeignJudge:
        return ForeignJudge(self._world, self._server, self._counts, self._form)

    def _all_over(self, producer: Producer) -> bool:
        state: ForeignState = self._server.state
        return not (producer.open or state.zset("active") or self._living())

    def _living(self) -> tuple[str, ...]:
        state: ForeignState = self._server.state
        return tuple(id for id, places in state.places.items() if set(places) & {"waiting", "active", "delayed"})

    def _wait_no_hours(self) -> None:
        """Due times are left alone when the clock steps back (rule 10), by an hour perhaps."""
        state: ForeignState = self._server.state
        if self._profile.clock_runs or state.zset("active") or state.at("waiting"):
            return
        delayed = [key for name, key in state.raw.items() if self._form.place(name) == "delayed"]
        self._wait_no_longer(min((self._form.scored_ms(score) for key in delayed for score in key.value.values()), default=0))

    def _nothing_left(self) -> None:
        state: ForeignState = self._server.state
        dead = set(state.at("dead"))
        for name in state.raw:
            own = name.removeprefix(state.prefix)
            kind, _, rest = own.partition(":")
            if name != own:
                # Until a week after its last lease a foreign client may run a job.
                lasts = own in _LASTING or (kind == "run" and rest in dead) or kind in ("wake", "took", "from")
            else:
                found = state.found.get(name)
                lasts = found is not None and (found[0] in dead or self._may_stay(state, found[0]))
                lasts = lasts or self._form.place(name) in ("dead", "done") or self._form.lasts(name)
            if not lasts:
                raise Found("leak", f"{name} is left when all has ended")

    def _may_stay(self, state: ForeignState, id: str) -> bool:
        """Whether the job under an id has ended, or is a remnant: its call was cut off before it wrote the job's entry, nobody
        was told that the job is there, and no copy of the call has come since."""
        book = self._judge.book
        birth = book.job(id)
        return birth in book.ends or not (self._profile.exact or state.places.get(id) or birth in book.acknowledged)
