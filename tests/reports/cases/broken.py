"""What only some scenarios use: limits, unique keys, schedules, dependencies, routing and delays; and a run that breaks each."""

from typing import Any

from tests.reports.story import Story, srv_ms

CHECKS = ("J12", "J14", "J15", "J17", "J18", "J19", "J25")

#: What the spec of the run has.
LIMITS = [{"name": "batch", "concurrency": 2}, {"key": "*", "concurrency": 1}]
SPEC = {"schedules": [{"name": "beat", "every_ms": 500}], "dependencies": True, "routing": True, "effects": True}
#: Violations that are declared: those of this kind, of jobs that this worker had.
LAZY = {"name": "lazy", "text": "It returns first.", "checks": ["J12:none", "J25:no effect"], "procs": ["nobody", "worker-3"]}

#: The job that J14 finds.
NEXT_HOLDER = "next-holder"


def hold(story: Story, worker: str, job: str, start: float, end: float, name: str = "email", key: str = "") -> None:
    """A job in hand from one instant to another."""
    classed: dict[str, Any] = {"class": name}
    story.enqueue(job, 40.0, **classed)
    token = story.claim(worker, job, start, told={"class": name, "lane": f"{name}/{key}" if key else name})
    story.finish(token, end, start=start + 0.01, took=end - start - 0.02, effect=end - 0.005)


def life(story: Story, job: str, start: float, end: float) -> None:
    """A job with the unique key k from its enqueue to its finish."""
    story.enqueue(job, start, unique="k")
    token = story.claim("worker-1", job, start + 0.1)
    story.finish(token, end, start=start + 0.11, took=end - start - 0.2, effect=end - 0.01)


def ticked(tick_ms: int, result: str = "created") -> dict[str, Any]:
    """What came of a tick."""
    return {"job": f"cron:beat:{tick_ms}", "schedule": "beat", "tick_ms": srv_ms(38.9) + tick_ms, "result": result}


def tick(story: Story, worker: str, at: float, *ticks_ms: int, result: str = "created", reply: str | None = "ok") -> None:
    """A worker ticks the schedule `beat`, and another one runs the jobs that it made. A tick of 1000 is due at 39.9 s."""
    items = [ticked(tick_ms, result) for tick_ms in ticks_ms]
    story.operation(worker, "tick", at, items, reply=reply)
    if result == "created":
        for number, item in enumerate(items):
            story.run("worker-1", str(item["job"]), at + 0.1 + number / 10)


def delayed_jobs(story: Story, late_s: float, *, jobs: int = 48) -> None:
    """Jobs that are sent with a delay of a second; the last starts so long after it was due, the others in 4 ms."""
    story.spec["delayed_p99_ms"] = 100
    for index in range(jobs):
        sent = 38.0 + index / 20
        story.enqueue(f"later-{index}", sent, delay_ms=1_000)
        story.run("worker-1", f"later-{index}", sent + 1.002 + (late_s if index == jobs - 1 else 0.0))


def tell(story: Story) -> None:
    """Break every promise once."""
    hold(story, "worker-1", "first", 41.0, 42.0, name="batch")
    # The limit is of a name: what its jobs ask of a worker makes them a class of their own, and no limit of their own.
    hold(story, "worker-3", "second", 41.5, 43.0, name="batch~1a2b")
    hold(story, "worker-4", "third", 41.9, 42.4, name="batch@gpu")
    life(story, "holder", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="holder")
    life(story, NEXT_HOLDER, 40.7, 42.0)
    tick(story, "worker-1", 39.9, 1000)
    tick(story, "worker-1", 41.0, 2000)
    hold(story, "worker-4", "parent", 40.6, 40.9, name="resize")
    story.enqueue("child", 40.5, needs=["parent"])
    story.run("worker-4", "child", 40.7)
    story.process("consumer-1", "worker", at=40.0)
    hold(story, "consumer-1", "routed", 41.0, 41.4, name="report~1a2b")
    story.enqueue("unstarted", 41.0, **dict[str, Any]({"class": "resize"}))
    delayed_jobs(story, 2.0)
    for worker, job in (("worker-3", "unmoved"), ("worker-4", "lost")):
        hold(story, worker, job, 43.5, 43.9, name="resize")
    story.spec["findings"] = [LAZY]
    effects = [{"job": job, "times": times} for job, times in {"first": 3, "parent": 1, "unmoved": 0, "unstarted": 1}.items()]
    story.row("harness", "effects", 44.0, items=effects)
