"""Live knowledge from the histories of publishers and subscribers: what was published and delivered, and what is in hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from chaos.watch import ProcessView, Watch, apply
from engine.models.dsps import clock_after


class Reader(NamedTuple):
    """A subscriber of a channel."""

    channel: str
    subscriber: str


@dataclass
class ChannelView(ProcessView):
    """What one process's history says so far; `created` counts messages published, `finished` messages delivered."""

    #: Subscribers that were seen to be there: a subscribe or a fetch of theirs was answered.
    ready: set[Reader] = field(default_factory=set)
    #: What was delivered and not acknowledged yet: the last clock, and when it came (monotonic ns).
    unread: dict[Reader, tuple[int, int]] = field(default_factory=dict)
    #: The clock of the first message that the process was given.
    first: dict[Reader, int] = field(default_factory=dict)


class ChannelWatch(Watch):
    """Views of all followed processes."""

    def new_view(self) -> ProcessView:
        return ChannelView()

    def apply(self, view: ProcessView, row: dict[str, Any]) -> None:
        apply(view, row)
        if row.get("kind") == "operation" and row.get("type") == "ok" and isinstance(view, ChannelView):
            apply_channels(view, row)

    def channels(self, proc: str) -> ChannelView:
        """The view of a process; an empty one for a process that was never followed."""
        found = self.views.get(proc)
        return found if isinstance(found, ChannelView) else ChannelView()

    def delivered_again(self, proc: str, in_hand: dict[Reader, int]) -> list[Reader]:
        """Those of `in_hand`, each with the clock of what was not acknowledged, that this process was given at or before it."""
        first = self.channels(proc).first
        return [place for place, clock in in_hand.items() if place in first and not clock_after(first[place], clock)]


def apply_channels(view: ChannelView, row: dict[str, Any]) -> None:
    """Fold an answered operation on a channel into the view."""
    operation, items = row.get("f"), cast("Iterable[dict[str, Any]]", row.get("items") or ())
    place = Reader(str(row.get("channel", "")), str(row.get("subscriber", "")))
    if operation == "publish":
        results = [item.get("result") for item in items]
        view.created += results.count("created")
        if "duplicate" in results and row.get("sends", 1) > 1:
            # As near to "repeated" as this wire says it: the first copy had published.
            view.repeated_ns["publish"] = row["done_ns"]
    elif operation == "subscribe":
        view.ready.add(place)
    elif operation == "fetch":
        view.ready.add(place)
        clocks = [item["clock"] for item in items if "clock" in item]
        view.finished += len(clocks)
        if clocks:
            view.unread[place] = clocks[-1], row["done_ns"]
            view.first.setdefault(place, clocks[0])
    elif operation == "acknowledge" and row.get("result") == "OK":
        view.unread.pop(place, None)
