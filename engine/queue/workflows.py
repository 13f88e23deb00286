"""Jobs that need other jobs as one workflow, without I/O: looked at, cancelled and retried from any of its
jobs (rule 25).

A queue keeps which jobs a job needs while it is there, and which children wait for it, may read its result,
or were buried with it. A walk follows these from job to job, so it finds what is connected by jobs that are
there. Of a job that has finished, it knows the state, and who needs it. A parent that has finished and left
no result does not lead to its children any more; they lead to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from engine import validate
from engine.errors import UnsupportedFeature
from engine.models.model import Model
from engine.ops.admin import AdminAction, Alter, Altered, AlteredJobs, Revive
from engine.ops.base import frozen
from engine.ops.looks import Relatives, RelativesTold
from engine.queue import admin
from engine.queue.producing import JOBS_MAX, Steps

#: Jobs of a workflow that are shown unless told.
SHOWN = 1_000
#: Parents that the jobs of one revival have together: the script looks at each.
_PARENTS_MAX = 1_000
#: Walks of one cancel or retry: while it goes on, jobs start, end and are buried.
_ROUNDS = 5


@frozen
class WorkflowJob:
    """One job of a workflow: its state (`gone`: forgotten since it has ended), its name ('' = it is not kept
    of a job that has ended), and the jobs of the workflow that it needs."""

    id: str
    name: str
    state: str
    needs: tuple[str, ...]


@frozen
class Workflow:
    """The jobs that are connected with one by what they need, parents before their children. Their states are
    those of the moments when they were looked at. `more`: there are more jobs than were asked for."""

    job: str
    jobs: tuple[WorkflowJob, ...]
    more: bool

    @property
    def counts(self) -> dict[str, int]:
        """How many of the jobs are in each state."""
        return dict(sorted(Counter(job.state for job in self.jobs).items()))


@frozen
class WorkflowChange:
    """What came of a workflow: how many jobs were `changed`, how many it could not change, and whether there
    are `more` than it has looked at."""

    changed: int
    left: int
    more: bool


def looking(model: Model, job: object, limit: object) -> Steps[Workflow | None]:
    """Look at the workflow of a job; None where the queue knows nothing of it. Raises Malformed."""
    start, most = _checked(model, job, limit)
    found = yield from _walk(start, most)
    if len(found.nodes) == 1 and found.nodes[start].state == "gone":
        return None
    jobs = [
        WorkflowJob(id, found.nodes[id].name, found.nodes[id].state, tuple(sorted(found.parents(id))))
        for level in found.levels()
        for id in level
    ]
    return Workflow(start, tuple(jobs), found.more)


def cancelling(model: Model, job: object, limit: object) -> Steps[WorkflowChange]:
    """Cancel what has not ended, children before their parents. Raises Malformed."""
    start, most = _checked(model, job, limit)
    changed = 0
    for _ in range(_ROUNDS):
        found = yield from _walk(start, most)
        before = changed
        for level in reversed(found.levels()):
            for state in admin.ALLOWED["cancel"]:
                jobs = [id for id in level if found.nodes[id].state == state]
                changed += sum(item.done for item in (yield from _alter("cancel", jobs, state)))
        if changed == before:
            break
    found = yield from _walk(start, most)
    left = sum(node.state in admin.ALLOWED["cancel"] for node in found.nodes.values())
    return WorkflowChange(changed, left, found.more)


def retrying(model: Model, job: object, limit: object) -> Steps[WorkflowChange]:
    """Requeue what is dead, parents before their children. Raises Malformed."""
    start, most = _checked(model, job, limit)
    done: set[str] = set()
    for _ in range(_ROUNDS):
        found = yield from _walk(start, most)
        before = len(done)
        for level in found.levels():
            # One that has died again is left alone.
            dead = [id for id in level if found.nodes[id].is_dead and id not in done]
            died = [id for id in dead if not found.nodes[id].lacks]
            for item in (yield from _alter("requeue", died, "dead")):
                done |= {item.job} if item.done else set()
            done |= yield from _revive(found, dead)
        if len(done) == before:
            break
    found = yield from _walk(start, most)
    left = sum(node.state == "dead" and id not in done for id, node in found.nodes.items())
    return WorkflowChange(len(done), left, found.more)


def requeueing(model: Model, job: object) -> Steps[Altered]:
    """Requeue a dead job, and let those wait for it again that were buried with it. One that is not dead any
    more stays as it is, and its children are looked at all the same. Raises Malformed."""
    start, most = _checked(model, job, JOBS_MAX)
    altered = yield from admin.altering(model.names, "requeue", start, None)
    if not altered.done and (altered.result != "changed" or altered.state in ("dead", "gone")):
        return altered
    revived: set[str] = set()
    left = 0
    for _ in range(_ROUNDS):
        found = yield from _walk(start, most, up=False)
        before = len(revived)
        for level in found.levels():
            dead = [id for id in level if found.nodes[id].is_dead and id not in revived]
            revived |= yield from _revive(found, dead)
        left = sum(bool(node.lacks) and id not in revived for id, node in found.nodes.items())
        if len(revived) == before and not found.more:
            break
    return altered._replace(children=len(revived), left=left)


@dataclass(slots=True)
class _Node:
    name: str
    state: str
    needs: tuple[str, ...]
    lacks: int
    children: set[str] = field(default_factory=set[str])

    @property
    def is_dead(self) -> bool:
        """Also where a revival was cut off that has left it among the dead."""
        return self.state == "dead" or self.lacks > 0


@dataclass(slots=True)
class _Found:
    nodes: dict[str, _Node]
    more: bool
    above: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def __post_init__(self) -> None:
        for id, node in self.nodes.items():
            self.above.setdefault(id, set()).update(self.nodes.keys() & set(node.needs))
            for child in node.children & self.nodes.keys():
                self.above.setdefault(child, set()).add(id)

    def parents(self, id: str) -> set[str]:
        """The jobs of the workflow that one needs."""
        return self.above[id]

    def levels(self) -> list[list[str]]:
        """The jobs, each behind all that it needs."""
        sorter = TopologicalSorter(self.above)
        try:
            sorter.prepare()
        except CycleError:
            # An id was used again, by a child of what needs its earlier job.
            return [list(self.nodes)]
        found: list[list[str]] = []
        while ready := sorter.get_ready():
            found.append(sorted(ready))
            sorter.done(*ready)
        return found


def _walk(start: str, most: int, *, up: bool = True) -> Steps[_Found]:
    """The jobs that are connected with one, at most so many; with `up` also by parents."""
    nodes: dict[str, _Node] = {}
    known, pending, more = {start}, deque([(start, "")]), False
    while pending:
        piece = [pending.popleft() for _ in range(min(admin.PIECE, len(pending)))]
        told: RelativesTold = yield Relatives(tuple(id for id, _ in piece), tuple(at for _, at in piece))
        # A reply ends after so many relatives: the others are asked for again.
        pending.extendleft(reversed(piece[len(told.items) :]))
        for (id, _), item in zip(piece, told.items, strict=False):
            node = nodes.setdefault(id, _Node(item.name, item.state, item.needs, item.lacks))
            node.children.update(item.children)
            if item.more:
                pending.append((id, item.more))
            for other in (*(item.needs if up else ()), *item.children):
                if other in known:
                    continue
                if len(known) >= most:
                    more = True
                else:
                    known.add(other)
                    pending.append((other, ""))
    return _Found(nodes, more)


def _alter(action: AdminAction, jobs: list[str], state: str) -> Steps[list[Altered]]:
    items: list[Altered] = []
    for at in range(0, len(jobs), admin.PIECE):
        reply: AlteredJobs = yield Alter(action, tuple(jobs[at : at + admin.PIECE]), state)
        items += reply.items
    return items


def _revive(found: _Found, dead: Iterable[str]) -> Steps[set[str]]:
    """Let those of these jobs wait for their parents again that were buried with one: which it did."""
    done: set[str] = set()
    for piece in _pieces(found, (id for id in dead if found.nodes[id].lacks)):
        reply: AlteredJobs = yield Revive(tuple(piece))
        done |= {item.job for item in reply.items if item.done}
    return done


def _pieces(found: _Found, jobs: Iterable[str]) -> Iterator[list[str]]:
    """The jobs in pieces whose parents are few enough."""
    piece: list[str] = []
    parents = 0
    for id in jobs:
        parents += len(found.nodes[id].needs)
        if piece and (parents > _PARENTS_MAX or len(piece) >= admin.PIECE):
            yield piece
            piece, parents = [], len(found.nodes[id].needs)
        piece.append(id)
    if piece:
        yield piece


def _checked(model: Model, job: object, limit: object) -> tuple[str, int]:
    """The id and the limit. Raises Malformed, and UnsupportedFeature where the format does not keep whose
    children jobs are."""
    if Relatives.script not in model.scripts:
        raise UnsupportedFeature(
            f"{model.name} does not keep which jobs need each other; `dead.requeue_all` with an error "
            "requeues those that died of it"
        )
    return model.names.known_id(job), validate.integer("limit", limit, 1, JOBS_MAX)
