"""Read-only views of a queue: counts, pages of jobs, and the description of one. Nothing here changes a key."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

from engine.immutable import immutable
from engine.wire.operations.claims import Attributes
from engine.wire.operations.declaration import Declaration
from engine.wire.operations.raw_replies import server_us, text, whole

#: States of jobs as a snapshot lists them, and how many digits of the sequence stand before an id among the delayed ones.
_STATES = ("waiting", "delayed", "active", "dead", "done", "blocked")
_DUE_DIGITS = 10


@immutable
class Count(Declaration, script="counts", label="counts"):
    """Count the jobs in each state; with classes, of the waiting ones only those in them. Of many lanes one call counts a part:
    `cursor` is what the call before has answered, and the waiting jobs are the sum of all calls. With `worker` and `priorities`
    those models that look at the routing of each job count only what this worker may run."""

    classes: tuple[str, ...] = ()
    cursor: str = ""
    worker: Attributes | None = None
    priorities: tuple[int, int] | None = None

    def parse(self, raw: Any, decode: object) -> Counts:
        """The raw reply as a value."""
        numbers, losses = list(map(whole, raw[1:10])), whole(raw[12]) if len(raw) > 12 else 0
        return Counts(server_us(raw), *numbers, cursor=raw[10].decode(), expired=whole(raw[11]), data_losses=losses)


@immutable
class Counts:
    """Jobs in each state at one instant; the waiting ones of more than some 500 lanes at several. `blocked` wait for others to
    finish; `handing` have ended, and those are still to be told. `done` keeps the last 1,000 that finished; `finished`,
    `buried` and `expired` count all that ever were, `data_losses` how often processes found that the server went back. `cursor`
    says that these are not all lanes; a queue's `counts` have them all."""

    srv_us: int
    waiting: int
    delayed: int
    active: int
    dead: int
    done: int
    finished: int
    buried: int
    blocked: int = 0
    handing: int = 0
    cursor: str = ""
    expired: int = 0
    data_losses: int = 0


class NameCounts(NamedTuple):
    """Jobs of one name in each state."""

    waiting: int = 0
    delayed: int = 0
    active: int = 0
    dead: int = 0
    blocked: int = 0


@immutable
class Listing(Declaration, script="listing", label="snapshot"):
    """One page of every state."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> Snapshot:
        """The raw reply as a value: ids and scores of each state."""
        states: dict[str, list[tuple[str, int]]] = {}
        for state, flat in zip(_STATES, raw[1:7], strict=True):
            skip = _DUE_DIGITS if state == "delayed" else 0
            pairs = [(text(flat[at][skip:]), whole(flat[at + 1])) for at in range(0, len(flat), 2)]
            states[state] = [(job, 0) for job, _ in pairs] if state == "waiting" else pairs
        return Snapshot(server_us(raw), states)


@immutable
class Snapshot:
    """Ids of each state (waiting, delayed, active, dead, done, blocked) with the time that the state scores them by, 0 for
    waiting."""

    srv_us: int
    states: dict[str, list[tuple[str, int]]]


@immutable
class Page(Declaration, script="page", label="list of jobs", slots={"newest": "newest_first"}):
    """One page of the jobs in a state: their ids, or with `names` how many of them each name has; those of waiting jobs come in
    parts, of which `cursor` is the next one."""

    state: str
    offset: int
    limit: int
    newest_first: bool = False
    names: bool = False
    cursor: str = ""

    def parse(self, raw: Any, decode: object) -> Paged:
        """The raw reply as a value."""
        # An id of an old keyspace may be no text; so `Inspect` still finds it.
        words = [word.decode(errors="surrogateescape") for word in raw[2]] if not self.names else []
        names = {text(name): int(count) for name, count in zip(raw[2][::2], raw[2][1::2], strict=True)} if self.names else {}
        return Paged(server_us(raw), int(raw[1]), tuple(words), names, raw[3].decode())


@immutable
class Paged:
    """How many entries were looked at, and their ids, or the count of each name. `cursor`: there is another part."""

    srv_us: int
    seen: int
    jobs: tuple[str, ...]
    names: dict[str, int]
    cursor: str


@immutable
class Inspect(Declaration, script="inspect", label="look at jobs"):
    """What is known of these jobs; `whole`: with envelopes and run fields, else their states alone."""

    jobs: tuple[str, ...]
    whole: bool = True

    def parse(self, raw: Any, decode: object) -> Inspected:
        """The raw reply as a value."""
        if not 1 <= len(raw) - 1 <= len(self.jobs):
            raise ValueError(f"{len(raw) - 1} items for {len(self.jobs)} jobs")
        items: list[Looked] = []
        for state, fence, at_ms, envelope, flat in raw[1:]:
            run = {text(flat[at]): flat[at + 1] for at in range(0, len(flat), 2)}
            items.append(Looked(state.decode(), whole(fence), whole(at_ms), envelope, run))
        return Inspected(server_us(raw), tuple(items))


@immutable
class Looked:
    """What is known of one job, raw: its state, last fence, the time that its state is scored by, envelope and run fields."""

    state: str
    fence: int
    at_ms: int
    envelope: bytes
    run: dict[str, bytes] = field(default_factory=dict[str, bytes])


@immutable
class Inspected:
    """What is known of the first jobs of the call, at least of one."""

    srv_us: int
    items: tuple[Looked, ...]


LooksOperation = Inspect | Page | Count | Listing
LooksReply = Paged | Inspected | Counts | Snapshot
