"""The kinds of corruption: each has a name, the check that must see it, and the edit that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from reports.corrupt.channel_history import ChannelHistory
from reports.corrupt.history import History

#: Changes a history and returns the subject of the violation that must be found: a job, a limit, a worker; of a channel run the
#: channel, of which every subscriber counts. `None`: the check itself must not be valid any more, whatever it names.
Edit = Callable[[History], str | None]
ChannelEdit = Callable[[ChannelHistory], str | None]
E = TypeVar("E", bound=Callable[[Any], str | None])


@dataclass(frozen=True)
class Kind:
    """One way in which a history may be wrong."""

    name: str
    check: str
    #: An `Edit` or a `ChannelEdit`.
    edit: Callable[[Any], str | None]
    #: The edit concerns the whole run, so it is judged in a copy of its own.
    apart: bool = False


#: Name -> kind, in the order of their definition: of job runs, and of channel runs.
KINDS: dict[str, Kind] = {}
CHANNEL_KINDS: dict[str, Kind] = {}

#: What a broken engine may do and no history shows -> why not: of job runs, and of channel runs.
UNSEEABLE: dict[str, str] = {}
CHANNEL_UNSEEABLE: dict[str, str] = {}


def into(kinds: dict[str, Kind]) -> Callable[..., Callable[[E], E]]:
    """What registers edits: their docstring says what the broken engine did, their name is the kind's."""

    def kind(check: str, *, apart: bool = False) -> Callable[[E], E]:
        def register(edit: E) -> E:
            name = edit.__name__.replace("_", "-")
            kinds[name] = Kind(name, check, edit, apart)
            return edit

        return register

    return kind


kind, channel_kind = into(KINDS), into(CHANNEL_KINDS)
