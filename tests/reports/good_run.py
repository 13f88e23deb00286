"""A run that is valid: a kill, a freeze, both witnessed and healed, and work after them."""

from collections.abc import Iterable
from pathlib import Path

from reports import checks, facts
from tests.reports.story import END_S, HEALED_S, Story

#: The checks of every run; the others are for scenarios that use what they are about.
GENERAL = [check for check in checks.CHECKS if check.judges(facts.Run(spec={}, files={}))]


def cast(story: Story, *, sink: bool = True) -> None:
    """The processes of a run: harness, producer, three workers."""
    story.process("harness", "harness")
    story.process("producer-1", "producer")
    for number in (1, 2, 3):
        story.process(f"worker-{number}", "worker", sink=sink)


def kill(story: Story, *, witness: str = "ok", again: bool = True) -> None:
    """worker-2 is killed at 10 s with job k1 in hand, which runs elsewhere after 9.2 s (`again`); worker-4 replaces it at
    20 s."""
    token = story.handled("worker-2", "k1", 9.9, enqueued=9.8, took=None)
    for stage, at in (("inject", 10.0), ("witness", 10.01), ("heal", 20.0), ("healed", 21.0)):
        result, held = (witness, [token]) if stage == "witness" else ("ok", [])
        story.fault("1-worker-kill", "worker-2", stage, at, result=result, detail=f"{stage} seen", held=held)
    if witness == "ok":
        story.left_open.add("worker-2")
    if again:
        story.reap("worker-1", token, 19.0)
        story.run("worker-1", "k1", 19.208)
    story.process("worker-4", "worker", at=20.0)
    story.life("worker-4", "after-kill", 20.8)


def freeze(story: Story) -> None:
    """worker-3 is frozen at 25 s with job z1 in hand; worker-1 takes it over, and the zombie's finish is refused."""
    zombie = story.handled("worker-3", "z1", 24.9, enqueued=24.8, took=11.1)
    story.reap("worker-1", zombie, 34.2)
    story.run("worker-1", "z1", 34.4)
    story.stages("2-worker-freeze", "worker-3", 25.0, 35.5, HEALED_S, 36.5, detail="{} seen")
    story.finish(zombie, 36.02, effect=36.01, result="stale")


def struck(folder: Path, *, witness: str = "ok", again: bool = True) -> Story:
    """A run with these two faults, and nothing else yet."""
    story = Story(folder)
    cast(story)
    kill(story, witness=witness, again=again)
    freeze(story)
    return story


def traffic(story: Story, workers: Iterable[str] = ("worker-1", "worker-3", "worker-4"), jobs: int = 12) -> None:
    """Jobs after the last heal, the same number for each worker."""
    for index in range(jobs):
        for worker in workers:
            story.life(worker, f"calm-{worker}-{index}", 37.0 + index / 2)


def healthy(folder: Path) -> Story:
    """A run that is valid: a kill, a freeze, both witnessed and healed, and work after them."""
    story = Story(folder)
    cast(story)
    story.phases(lead_in=0.0, kill=10.0, recover_kill=20.0, freeze=25.0, recover_freeze=36.0, settle=38.0, drain=45.0, end=END_S)
    for index in range(3):
        story.life(f"worker-{index + 1}", f"quiet-{index}", 1.0 + index)
    kill(story)
    freeze(story)
    traffic(story)
    return story
