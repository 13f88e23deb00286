"""The words of a printed verdict that a newcomer does not know, each explained below the section that has it first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

#: Word, as it is printed -> what it means, in half a line.
WORDS: Mapping[str, str] = {
    "model": "whose format the keys on the server have; lanes is the engine's own",
    "topology": "the servers of the run",
    "lost": "acknowledged, and gone without an end",
    "doubled": "finished more than once",
    "refused stale": "ends of a lease that was over, refused as they must be",
    "dead": "given up after the last attempt, kept until a person decides",
    "not sent": "planned, and no connection could be had in time",
    "again": "delivered more than once to the same subscriber",
    "told as lost": "dropped as the channel's bounds allow, and the subscriber was told",
    "wraps crossed": "channels whose clock began again at its lowest value",
    "era changes": "a server lost writes, and its channels said so",
    "not answered": "sent, and no reply came",
    "stranded": "still in the server's keys, and no worker takes it",
    "late": "ran, and later than the promise or the bound",
    "worker exits": "workers that ended by themselves",
    "unfinished": "jobs of the phase that never finished",
    "p50": "half took at most this",
    "p99": "99 of 100 took at most this; inf: so many never finished",
    "lead-in": "load before the first fault",
    "settle": "load after the last fault",
    "drain": "no new load, what is left is worked off",
    "waitpid": "when the kernel says that the process is gone",
    "in hand": "claimed by the worker and not ended when it was killed",
    "bound": "the longest that it may take",
    "witnessed": "something was seen that only the fault can have caused",
    "healed": "the fault was taken away, and that was seen",
    "send lag": "how much later than planned the load was sent",
    "recorder": "what writes the history that is judged",
    "declared": "what the wire format or the servers are known not to protect; no violation",
    "possible": "neither proved nor excluded by the evidence; no violation",
    "unknown": "the evidence does not suffice for valid or violated",
    "no lane": "a lane has the waiting jobs of one name and key, in their order",
    "fence": "a number that is higher for each lease of a job",
    "lease": "the right of one worker to run a job until a time",
    "tick": "one time of a schedule, for which one job is made",
}

#: Words that mean the same in every sentence, also in the plural. The others are explained only as the whole of a cell.
ANYWHERE = (
    *("refused stale", "not sent", "told as lost", "wraps crossed", "era changes", "not answered", "worker exits", "in hand"),
    *("model", "topology", "p50", "p99", "waitpid", "send lag", "recorder", "no lane", "fence", "lease", "tick"),
)

PATTERNS = {
    word: re.compile(rf"(?<![\w-]){word}s?(?![\w-])" if word in ANYWHERE else rf"(?<=  ){word}(?=  |$)") for word in WORDS
}


def explained(sections: Iterable[Sequence[str]]) -> list[list[str]]:
    """The sections, each followed by lines on the words that it is the first to print."""
    told: set[str] = set()
    found: list[list[str]] = []
    for section in sections:
        fresh = [word for word in WORDS if word not in told and any(PATTERNS[word].search(line) for line in section)]
        told.update(fresh)
        found.append([*section, *(f"    {word}: {WORDS[word]}" for word in fresh)])
    return found
