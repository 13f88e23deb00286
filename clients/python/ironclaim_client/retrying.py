"""When a request is sent again, and what its caller hears when it is not: pure decisions, carried out by the
transports.

A request is repeated only where a repetition is harmless: because it only reads, or because it carries an
identity by which the server knows it. What is repeated waits longer each time, by a random share, so that
clients of a server that comes back do not return all at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ironclaim_client import checks
from ironclaim_client.errors import OutcomeUnknown, ServerUnavailable

#: The server knows the id of a job for 20 s after its end. A repetition that comes later would make a second
#: job, so none is begun after this time.
REPEATED_MS_MAX = 15_000


def is_temporary(status: int) -> bool:
    """Whether a repetition may succeed after this answer. 501 is a feature that the server does not have."""
    return status in (408, 429) or (status >= 500 and status != 501)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How long a request is tried, and how long the client waits in between. Raises InvalidArgument."""

    deadline_ms: int = 10_000
    """No attempt begins after this. 0 to 15,000; 0: there is one attempt."""
    attempt_ms: int = 5_000
    """How long an attempt waits to connect and for its next byte, beside what the request itself asks the
    server to wait."""
    first_ms: int = 100
    """The most that is waited after the first failure; it doubles with each further one."""
    longest_ms: int = 2_000
    """The most that is waited after any failure."""
    poll_ms: int = 25_000
    """How long one request waits on the server where a longer wait takes several: below the time after which
    proxies commonly give an idle connection up. At most what the server allows, 60,000 unless it was told
    otherwise."""

    def __post_init__(self) -> None:
        checks.whole("deadline_ms", self.deadline_ms, 0, REPEATED_MS_MAX)
        for name in ("attempt_ms", "first_ms", "longest_ms"):
            checks.whole(name, getattr(self, name), 1, REPEATED_MS_MAX)
        checks.whole("poll_ms", self.poll_ms, 1, checks.POLL_MS_MAX)

    def pause_ms(self, failures: int, share: float) -> int:
        """How long to wait after so many failures; `share` is drawn from 0 to 1."""
        return round(share * min(self.longest_ms, self.first_ms * 2 ** min(failures - 1, 16)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as it is sent however often. `once` says that a repetition would do harm; `changes`, that
    it is no look."""

    method: str
    path: str
    """Its segments are quoted."""
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    """JSON, or nothing."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: bool = False
    once: bool = False

    @property
    def shown(self) -> str:
        """What errors call it: with `***` for a name of other characters than those of a plain one, such as
        a url that was given by mistake."""
        named = ("***" if "%" in part else part for part in self.path.split("/"))
        return f"{self.method} {'/'.join(named)}"

    wait_ms: int = 0
    """How long the server is asked to wait before it answers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without an answer that counts. `undone`: the server has certainly not carried it out."""

    why: str
    undone: bool
    retry_after_ms: int = 0


class Attempts:
    """The attempts of one call."""

    def __init__(
        self,
        call: Call,
        retries: Retries,
        *,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1_000,
        share: Callable[[], float] = random.random,
    ) -> None:
        self._call, self._retries, self._now_ms, self._share = call, retries, now_ms, share
        self._end_ms = now_ms() + retries.deadline_ms
        self._failures = 0
        self._all_undone = True

    def after(self, failure: Failure) -> float:
        """How long to wait before the next attempt, in ms. Raises ServerUnavailable or OutcomeUnknown where
        there is none."""
        self._failures += 1
        self._all_undone = self._all_undone and failure.undone
        pause_ms = max(failure.retry_after_ms, self._retries.pause_ms(self._failures, self._share()))
        if not self._call.once and self._now_ms() + pause_ms < self._end_ms:
            return pause_ms
        what = f"{self._call.shown}: {failure.why}"
        times = f" (attempt {self._failures})" if self._failures > 1 else ""
        raise (OutcomeUnknown if self._call.changes and not self._all_undone else ServerUnavailable)(
            what + times
        )
