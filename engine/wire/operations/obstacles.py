"""What holds jobs back: the pauses and limits of a queue and what each lane waits for, and all that bears on one job. Nothing
here changes a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration
from engine.wire.operations.raw_replies import server_us, text, whole
from engine.wire.operations.workers import ListedWorker


class PauseOn(NamedTuple):
    """A pause that is on, of a name of jobs or of the whole queue (`*`), until this time (ms), 0: until it is resumed."""

    name: str
    until_ms: int

    @classmethod
    def read(cls, flat: Sequence[bytes]) -> tuple[PauseOn, ...]:
        """From names and times in turn."""
        return tuple(cls(text(flat[at]), whole(flat[at + 1])) for at in range(0, len(flat), 2))


class LimitUse(NamedTuple):
    """How far a limit is used up: `target` is `n:<name>`, `k:<key>` or `k:*`, `definition` as `Limit.words` has it, `in_hand` the
    leases and `used` the places of the window that count, `free_ms` when places come free (0: there are some), `parked` the lanes
    that wait for a slot, and `holders` some of the leases, each a job and its worker. `inherited`: the definition is that of
    `k:*`."""

    target: str
    definition: str
    in_hand: int
    used: int
    free_ms: int
    parked: int
    holders: tuple[tuple[str, str], ...]
    inherited: bool

    @classmethod
    def read(cls, values: Sequence[Any]) -> LimitUse:
        """From the values of a reply."""
        target, definition, in_hand, used, free_ms, parked, flat, inherited = values
        words = [text(word) for word in flat]
        numbers = (whole(in_hand), whole(used), whole(free_ms), whole(parked))
        return cls(text(target), text(definition), *numbers, tuple(zip(words[::2], words[1::2], strict=True)), inherited == 1)


class LaneLook(NamedTuple):
    """A lane with waiting jobs: since when the oldest one waits (ms), and what a claim has found to be in its way: a limit, or
    `rest` until `rest_ms`, or nothing."""

    lane: str
    waiting: int
    since_ms: int
    waits_for: str
    rest_ms: int


@immutable
class ListObstacles(Declaration, script="obstacles", label="obstacles"):
    """The pauses and limits of a queue, and one part of its lanes: `cursor` is what the call before has answered."""

    cursor: str = ""

    def parse(self, raw: Any, decode: object) -> ObstaclesPart:
        """The raw reply as a value."""
        lanes = tuple(
            LaneLook(text(lane), whole(size), whole(since), text(waits), whole(rest)) for lane, size, since, waits, rest in raw[3]
        )
        return ObstaclesPart(server_us(raw), PauseOn.read(raw[1]), tuple(map(LimitUse.read, raw[2])), lanes, raw[4].decode())


@immutable
class ObstaclesPart:
    """Pauses and limits come with the first part. `cursor`: there is another part."""

    srv_us: int
    pauses: tuple[PauseOn, ...]
    limits: tuple[LimitUse, ...]
    lanes: tuple[LaneLook, ...]
    cursor: str


class LivingWorker(NamedTuple):
    """A worker that is taken for alive, and until when it is paused by an administrator: 0 until it is resumed, -1 not at all."""

    listed: ListedWorker
    paused_until_ms: int


@immutable
class Explain(
    Declaration, script="why", label="look at a job", slots={"id": "job", "needs": "job", "feeds": "job", "heirs": "job"}
):
    """All that bears on one job."""

    job: str

    def parse(self, raw: Any, decode: object) -> Explained:
        """The raw reply as a value."""
        name, key, priority, target = raw[4]
        ran = {text(raw[5][at]): raw[5][at + 1].decode(errors="replace") for at in range(0, len(raw[5]), 2)}
        rest_ms, before, needed = map(whole, raw[8])
        words, fed = ([text(word) for word in flat] for flat in (raw[9], raw[11][1]))
        return Explained(
            *(server_us(raw), raw[1].decode(), whole(raw[2]), whole(raw[3])),
            *(text(name), text(key), whole(priority), text(target), ran),
            *(PauseOn.read(raw[6]), tuple(map(LimitUse.read, raw[7])), rest_ms, before, needed),
            tuple(zip(words[::2], words[1::2], strict=True)),
            tuple(LivingWorker(ListedWorker.read(values[:3], b""), whole(values[3])) for values in raw[10]),
            whole(raw[11][0]),
            tuple(zip(fed[::2], fed[1::2], strict=True)),
        )


@immutable
class Explained:
    """The job: its state, its last fence, the time (ms) that its state is scored by, name, key, priority, what it requires of a
    worker (JSON, '' = nothing), and of its run fields owner, error, failures and crashes. What bears on it: pauses and limits,
    the end of its lane's rest (ms, 0: none), how many jobs of its lane come first, how many it needs and some of them with their
    states, and the workers. `feeds` jobs wait for it or may still read its result; `children` are some of them."""

    srv_us: int
    state: str
    fence: int
    at_ms: int
    name: str
    key: str
    priority: int
    target: str
    ran: dict[str, str]
    pauses: tuple[PauseOn, ...]
    limits: tuple[LimitUse, ...]
    rest_ms: int
    before: int
    needed: int
    needs: tuple[tuple[str, str], ...]
    workers: tuple[LivingWorker, ...]
    feeds: int
    children: tuple[tuple[str, str], ...]


ObstaclesOperation = ListObstacles | Explain
ObstaclesReply = ObstaclesPart | Explained
