"""The raw keys of a foreign keyspace: the format's jobs and where each stands, and the engine's own keys beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from chaos.simulate.read_all import NO_KEYS, READ_ALL, Key, Keyspace, read_keyspace
from chaos.simulate.server import Reading


class WireJob(NamedTuple):
    """A job as its format keeps it. `text`: what its payload says of itself; `status`: by the format's own word, if it has one;
    `failures`: failed runs; `fields`: the members or fields of which it consists."""

    text: str
    failures: int
    status: str
    fields: Mapping[str, Any]


class Run(NamedTuple):
    """The engine's own fields of a job; `token` is empty where no lease lives."""

    fence: int
    token: str
    ended: str
    outcome: str
    claims: int
    crashes: int
    marked: str
    renewal: int


NO_RUN = Run(0, "", "", "", 0, 0, "", 0)


class Format(Protocol):
    """How a model's format is read, and what must hold of it. Times at which jobs are due are whole multiples of `due_unit_ms`,
    rounded up."""

    due_unit_ms: int

    def job(self, name: str, key: Key) -> tuple[str, WireJob] | None:
        """The id and the job that a key holds, if it holds one."""
        ...

    def place(self, name: str) -> str:
        """What a key holds ids of jobs for: waiting, active, delayed or dead; '' for another key."""
        ...

    def scored_ms(self, score: float) -> int:
        """The time that a score among the delayed jobs stands for."""
        ...

    def check(self, state: ForeignState) -> None:
        """What must hold of the format's own keys, whenever every script has run as a whole. Raises Found."""
        ...

    def lasts(self, name: str) -> bool:
        """Whether a key of the format may be left when all jobs have ended, beside the jobs themselves and the list of the
        dead."""
        ...


@dataclass(slots=True)
class ForeignState:
    """One instant. `prefix` is that of the engine's own keys; `places`: where each id stands, once for each entry."""

    keyspace: Keyspace
    prefix: str
    jobs: dict[str, WireJob] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    #: What each key holds, by its name.
    found: dict[str, tuple[str, WireJob] | None] = field(default_factory=dict)

    @property
    def raw(self) -> Mapping[str, Key]:
        """All keys by name."""
        return self.keyspace.keys

    @property
    def changed(self) -> Sequence[str]:
        """Names of the keys that differ from the instant before."""
        return self.keyspace.changed

    @property
    def expires_ms(self) -> int:
        """When the next key expires; 0 for none."""
        return self.keyspace.expires_ms

    def value(self, name: str, otherwise: Any = None) -> Any:
        """What a key holds."""
        key = self.raw.get(name)
        return otherwise if key is None else key.value

    def number(self, name: str) -> int:
        """The length of a list."""
        return len(self.value(name, ()))

    def members(self, name: str) -> tuple[str, ...]:
        """The members of an engine's own list or set."""
        return self.value(self.prefix + name, ())

    def zset(self, name: str) -> dict[str, float]:
        """An engine's own zset."""
        return self.value(self.prefix + name, {})

    def table(self, name: str) -> dict[str, str]:
        """An engine's own hash."""
        return self.value(self.prefix + name, {})

    def run(self, job: str) -> Run:
        """The engine's own fields of a job."""
        fields = self.table("run:" + job)
        if not fields:
            return NO_RUN
        fence, claims, crashes, renewal = (int(fields.get(name) or 0) for name in ("fence", "claims", "crashes", "renewal"))
        token = f"{fence}:{fields['nonce']}" if fields.get("nonce") else ""
        ended, outcome, marked = (fields.get(name, "") for name in ("ended", "outcome", "marked"))
        return Run(fence, token, ended, outcome, claims, crashes, marked, renewal)

    def at(self, place: str) -> list[str]:
        """The ids at a place."""
        return [id for id, places in self.places.items() if place in places]


def reading_of(prefix: str, form: Format) -> Reading[ForeignState]:
    """How the whole keyspace is read. `prefix`: of the engine's own keys."""
    return Reading("", READ_ALL, ForeignState(NO_KEYS, prefix), partial(_opened, prefix, form), clocked=True)


def _opened(prefix: str, form: Format, reply: Any, before: ForeignState) -> ForeignState:
    keyspace = read_keyspace(reply, before.keyspace)
    if not keyspace.changed:
        return ForeignState(keyspace, prefix, before.jobs, before.places, before.found)
    state = ForeignState(keyspace, prefix)
    for name, key in keyspace.keys.items():
        if name.startswith(prefix):
            continue
        same = before.raw.get(name)
        same = same is not None and same.value is key.value and name in before.found
        state.found[name] = found = before.found[name] if same else form.job(name, key)
        if found is not None:
            state.jobs[found[0]] = found[1]
        place = form.place(name)
        for id in key.value if place else ():
            state.places.setdefault(id, []).append(place)
    return state
