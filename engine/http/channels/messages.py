"""Publishing: `PUT /channel/{channelID}/message/{messageID}` with any JSON."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Coroutine
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.channel import contents, settings
from engine.channel.asynchronous.channel import AsyncChannel
from engine.channel.contents import RawJson
from engine.channel.settings import MESSAGES_MAX
from engine.channel.values import Fetched, Message
from engine.errors import Malformed, logger
from engine.http.answers import Problem
from engine.http.channels import answers
from engine.http.channels.answers import ERRORS, Refused, argument, duration_ms, record
from engine.http.channels.guarding import about, channel_route, id_of, while_admitted
from engine.http.channels.service import service_of
from engine.http.channels.settings import ChannelAccess
from engine.http.describing import Schema, described
from engine.http.opening import wait_for, waiting_ms
from engine.http.security.shield import QUERY_BYTES_MAX
from engine.validate import GO_DURATION


def message_routes() -> list[BaseRoute]:
    """The routes of messages."""
    return [channel_route("/message/{message}", "PUT", publish)]


@described(
    "Publish a message",
    tag="channels",
    body={},
    answers={200: record(channelID={"type": "string"}, messageID={"type": "string"}), **ERRORS},
)
async def publish(request: Request, channel: ChannelAccess) -> Response:
    """Publish any JSON; it is there once, however often it is sent."""
    message = id_of(request, "message", "messageID")
    body = await request.body()
    about(request, {"messaging.message.id": message, "messaging.message.body.size": len(body)})
    try:
        content = RawJson(body)
    except Malformed:
        raise Refused(400, "Request body is not JSON") from None
    try:
        written = contents.written(content)
    except Malformed as error:
        raise Refused(400, f"Request body must be {error.bound}") from None
    published = await request.app.state.opened.channel(channel.name).publish(message, content)
    service = service_of(request)
    # Also for a duplicate: whoever published it first may have died before this.
    await service.webhooks.put(channel, message, written)
    service.telemetry.count("published", int(published.created))
    return answers.told({"channelID": channel.name, "messageID": message})


# -- Subscribers that poll: subscribe, unsubscribe, fetch with or without waiting, acknowledge, and ask
# whether messages are old.

log = logger("ironclaim.http")

_PATH = "/subscription/polling/{subscriber}"
_MAX_DEFAULT = "64"
_WHOLE = re.compile(r"[0-9]{1,18}")
#: So many of the longest ids fit into a query.
_ASKED_MAX = QUERY_BYTES_MAX // len("&messageID=" + "i" * settings.ID_CHARACTERS_MAX)

_TIMEOUT = argument(
    "timeout",
    "How long to wait for a message: a length of time of Go, such as 30s",
    pattern=GO_DURATION.pattern,
)
_MAX = argument("max", f"Messages at most, {_MAX_DEFAULT} unless told", pattern=_WHOLE.pattern)
_HANDLE = argument("ackHandle", "What a fetch gave", required=True)
_MESSAGE = argument(
    "messageID", "The messages to ask about", required=True, pattern=settings.ID_PATTERN, most=_ASKED_MAX
)
_ID: Schema = {"type": "string"}
_SUBSCRIBER: Schema = record(channelID=_ID, subscriberID=_ID)
_LIST: Schema = {"type": "array", "items": record(messageID=_ID, content={})}
_MESSAGES: Schema = record(channelID=_ID, messages=_LIST, moreMessages={"type": "boolean"})
_MESSAGES["properties"]["ackHandle"] = {"type": "string"}
_OLD: Schema = record(
    channelID=_ID, subscriberID=_ID, old={"type": "object", "additionalProperties": {"type": "boolean"}}
)


def subscription_routes() -> list[BaseRoute]:
    """The routes of subscribers."""
    return [
        channel_route(_PATH, "PUT", subscribe),
        channel_route(_PATH, "DELETE", unsubscribe),
        channel_route(_PATH, "GET", fetch),
        channel_route(f"{_PATH}/message", "DELETE", acknowledge),
        # DSPS has this question in its storages, and no path for it.
        channel_route(f"{_PATH}/message/old", "GET", ask_old),
    ]


@described("Subscribe", tag="channels", answers={200: _SUBSCRIBER, **ERRORS})
async def subscribe(request: Request, channel: ChannelAccess) -> Response:
    """Create a subscriber, whose first message is the next one that is published. One that is there stays as
    it is."""
    subscriber = _subscriber(request)
    await _opened(request, channel).subscribe(subscriber)
    return answers.told({"channelID": channel.name, "subscriberID": subscriber})


@described("Unsubscribe", tag="channels", answers={200: _SUBSCRIBER, **ERRORS})
async def unsubscribe(request: Request, channel: ChannelAccess) -> Response:
    """Delete a subscriber, if there is one."""
    subscriber = _subscriber(request)
    await _opened(request, channel).unsubscribe(subscriber)
    return answers.told({"channelID": channel.name, "subscriberID": subscriber})


@described("Fetch messages", tag="channels", query=(_TIMEOUT, _MAX), answers={200: _MESSAGES, **ERRORS})
async def fetch(request: Request, channel: ChannelAccess) -> Response:
    """The next messages of a subscriber; they come again until they are acknowledged. With a timeout it waits
    for one."""
    subscriber = _subscriber(request)
    try:
        wait_ms = duration_ms("timeout", request.query_params.get("timeout", "0ms"))
    except Malformed:
        raise answers.invalid("timeout") from None
    most = request.query_params.get("max", _MAX_DEFAULT)
    if not _WHOLE.fullmatch(most):
        raise answers.invalid("max")
    service = service_of(request)
    most_ms = min(service.settings.long_poll_max_ms, request.app.state.settings.poll_max_ms)
    wait_ms = waiting_ms(request, min(wait_ms, most_ms))
    fetching = partial(
        _opened(request, channel).fetch,
        subscriber,
        max_messages=min(int(most), MESSAGES_MAX),
        wait_ms=wait_ms,
    )
    fetched = await (_waited(request, while_admitted(request, channel, fetching)) if wait_ms else fetching())
    if request.method != "HEAD":
        service.telemetry.count("delivered", len(fetched.messages))
    return answers.spelled(_body(channel.name, fetched))


@described("Acknowledge messages", tag="channels", query=(_HANDLE,), answers={204: None, **ERRORS})
async def acknowledge(request: Request, channel: ChannelAccess) -> Response:
    """Let the messages of a fetch, and all before them, not come again."""
    subscriber = _subscriber(request)
    handle = request.query_params.get("ackHandle", "")
    if not handle:
        raise answers.missing("ackHandle")
    try:
        acknowledged = await _opened(request, channel).acknowledge(subscriber, handle)
    except Malformed:
        raise Refused(400, answers.BAD_HANDLE, answers.BAD_HANDLE) from None
    service_of(request).telemetry.count("acknowledged", int(acknowledged.result == "OK"))
    return answers.nothing()


@described("Ask whether messages are old", tag="channels", query=(_MESSAGE,), answers={200: _OLD, **ERRORS})
async def ask_old(request: Request, channel: ChannelAccess) -> Response:
    """Whether the subscriber will not be given these messages any more."""
    subscriber = _subscriber(request)
    messages = request.query_params.getlist("messageID")
    if not messages:
        raise answers.missing("messageID")
    if len(messages) > _ASKED_MAX:
        raise answers.invalid("messageID")
    try:
        old = await _opened(request, channel).are_old(subscriber, messages)
    except Malformed:
        raise answers.invalid("messageID") from None
    return answers.told(
        {"channelID": channel.name, "subscriberID": subscriber, "old": dict(sorted(old.items()))}
    )


async def _waited(request: Request, fetching: Coroutine[Any, Any, Fetched]) -> Fetched:
    """What a fetch that waits returns: nothing when the server ends, as DSPS does."""
    try:
        return await wait_for(request, fetching)
    except Problem:
        if request.app.state.waits.ending.is_set():
            return Fetched()
        raise


def _subscriber(request: Request) -> str:
    subscriber = id_of(request, "subscriber", "subscriberID")
    about(request, {"dsps.subscriber_id": subscriber})
    return subscriber


def _opened(request: Request, channel: ChannelAccess) -> AsyncChannel:
    return request.app.state.opened.channel(channel.name)


def _body(channel: str, fetched: Fetched) -> bytes:
    """The messages in the spelling of their publishers."""
    found = [(message.id.encode(), _spelled(message)) for message in fetched.messages]
    messages = [b'{"content":%b,"messageID":"%b"}' % (content, id) for id, content in found if content]
    # Also without messages: what a subscriber has missed it acknowledges too, or it comes no further.
    receipt = b'"ackHandle":"%b",' % fetched.receipt.encode() if fetched.receipt is not None else b""
    more = b"true" if fetched.more_messages else b"false"
    shape = b'{%b"channelID":"%b","messages":[%b],"moreMessages":%b}'
    return shape % (receipt, channel.encode(), b",".join(messages), more)


def _spelled(message: Message) -> bytes:
    """The content of a message as JSON; b'' for one that is none, which only somebody else can have
    written."""
    for content in (_as_published(message), message.content):
        with contextlib.suppress(Malformed):
            return contents.written(content)
    log.warning("message %s at clock %s is left out: it is no JSON", message.id, message.clock)
    return b""


def _as_published(message: Message) -> object:
    try:
        return RawJson(message.spelled)
    except Malformed:
        return message.content
