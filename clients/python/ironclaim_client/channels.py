"""The channels of a DSPS server: what is asked for each call, and what its answer says."""

from __future__ import annotations

import uuid
from typing import Any

from ironclaim_client import checks
from ironclaim_client.errors import Refused
from ironclaim_client.replies import Reply, member, object_of
from ironclaim_client.retrying import Call
from ironclaim_client.values import Delivery, Message

MESSAGES_MAX = 1_000
#: As long as the server waits for messages at most.
WAIT_MS_MAX = 30_000


class Channels:
    """The calls of one channel."""

    def __init__(self, channel: str) -> None:
        self.path = f"/channel/{checks.segment('channel', channel)}"

    def publish(self, id: str, content: object) -> Call:
        """A message that is published twice is there once, by its id."""
        body = checks.json_bytes("content", content)
        return Call(
            method="PUT", path=f"{self.path}/message/{checks.segment('id', id)}", body=body, changes=True
        )

    def subscribe(self, subscriber: str) -> Call:
        """A subscriber that is created twice stays as it is."""
        return Call(method="PUT", path=self._subscriber(subscriber), changes=True)

    def unsubscribe(self, subscriber: str) -> Call:
        """A subscriber that is deleted twice is deleted."""
        return Call(method="DELETE", path=self._subscriber(subscriber), changes=True)

    def poll(self, subscriber: str, max_messages: int, wait_ms: int) -> Call:
        """The messages come again until they are acknowledged, so that a lost reply loses none."""
        params = {"max": str(max_messages), "timeout": f"{wait_ms}ms"}
        return Call(method="GET", path=self._subscriber(subscriber), params=params, wait_ms=wait_ms)

    def acknowledge(self, subscriber: str, receipt: str) -> Call:
        """A receipt that is acknowledged twice changes nothing the second time."""
        params = {"ackHandle": checks.header("receipt", receipt)}
        return Call(
            method="DELETE", path=f"{self._subscriber(subscriber)}/message", params=params, changes=True
        )

    def _subscriber(self, subscriber: str) -> str:
        return f"{self.path}/subscription/polling/{checks.segment('subscriber', subscriber)}"


def new_id(prefix: str) -> str:
    """An id that nobody else makes, of characters that channels take."""
    return f"{prefix}-{uuid.uuid4()}"


def delivery(reply: Reply) -> Delivery:
    """What a poll has brought."""
    items: list[Any] = reply.member("messages", list)
    messages = tuple(Message(member(item, "messageID", str), item.get("content")) for item in items)
    # Also without messages: what a subscriber has missed is acknowledged too, or it comes no further.
    receipt = reply.member("ackHandle", str) if messages or "ackHandle" in object_of(reply.body) else ""
    return Delivery(messages, receipt, bool(reply.member("moreMessages", bool)))


def is_over(error: Refused) -> bool:
    """Whether a subscription cannot go on: the server itself says so, and not a proxy that knows the path no
    more for a while."""
    return bool(error.problem) and error.status in (400, 401, 403, 404, 422)
