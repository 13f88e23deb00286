"""The endpoints of channels: publish, subscribe, fetch and acknowledge; the admin API; and probes."""

from __future__ import annotations

import contextlib
import hmac
import logging
import re
from collections.abc import Coroutine
from functools import partial, wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.channel import contents, settings
from engine.channel.asynchronous.channel import AsyncChannel
from engine.channel.contents import RawJson
from engine.channel.settings import MESSAGES_MAX
from engine.errors import EngineError, Malformed, logger
from engine.http.access import Endpoint, carried_out, noted
from engine.http.answers import Problem
from engine.http.channels import answers, networks
from engine.http.channels.answers import ERRORS, Refused, argument, record
from engine.http.channels.guarding import about, bearer, id_of, route, while_admitted
from engine.http.channels.service import ChannelService, service_of
from engine.http.channels.settings import ChannelAccess, duration_ms
from engine.http.channels.tokens import is_revocable
from engine.http.describing import Schema, described
from engine.http.opening import wait_for, waiting_ms
from engine.http.settings import Access
from engine.http.shield import QUERY_BYTES_MAX
from engine.ops.channels import Fetched, Message
from engine.validate import GO_DURATION


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


# -- The admin API: revoke a token, and set how much is logged. Callers show a bearer token and come from
# an allowed network.

#: Until the year 5138.
_SECONDS = re.compile(r"[0-9]{1,11}")
_LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")}
#: The categories of DSPS that there are here, and the loggers that they set. `*`: all of the engine's.
_LOGGERS = {
    "*": "ironclaim",
    "http": "ironclaim.http",
    "auth": "ironclaim.http.auth",
    "outgoing-webhook": "ironclaim.worker",
}


def admin_route(path: str, endpoint: Endpoint) -> BaseRoute:
    """The route of an endpoint that administrators alone are admitted to."""

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        return await carried_out(request, _admit(request), endpoint, changes=True)

    return route(f"/admin{path}", "PUT", guarded)


async def _admit(request: Request) -> Access:
    """The access of an administrator. Raises Refused, which does not say why."""
    service = service_of(request)
    settings = service.settings
    allowed = _of_an_allowed_network(request, service)
    # Each token is compared, so that the time tells nothing.
    given = bearer(request).encode(errors="surrogateescape")
    known = sum(hmac.compare_digest(token.encode(), given) for token in settings.admin_tokens)
    if not allowed or not known:
        raise Refused(403, "")
    return Access(role="admin", name="administrator")


def _of_an_allowed_network(request: Request, service: ChannelService) -> bool:
    """Whether the caller is of an allowed network; not where nobody can say who it is, which the audit line
    tells."""
    peer, name = request.client.host if request.client else "", service.settings.real_ip_header
    forwarded = request.headers.getlist(name) if name else None
    try:
        caller = networks.caller(
            peer, forwarded, service.trusted_proxies, service.settings.trusted_proxy_hops
        )
    except networks.Unreadable as error:
        noted(request, refused=f"the caller cannot be read: {error}")
        return False
    if not networks.among(caller, service.admin_networks):
        noted(request, refused=f"{caller} is in no admin network")
        return False
    return True


@described(
    "Revoke a token",
    tag="admin",
    query=(
        argument("jti", "The id of the token", required=True),
        argument("exp", "When it expires, seconds since 1970", required=True, pattern=_SECONDS.pattern),
    ),
    answers={200: record(jti={"type": "string"}, exp={"type": "integer"}), **ERRORS},
)
async def revoke(request: Request) -> Response:
    """Refuse a token from now on, for as long as any server might take it."""
    jti = request.query_params.get("jti", "")
    if not jti:
        raise answers.missing("jti")
    if not is_revocable(jti):
        raise answers.invalid("jti")
    expires = request.query_params.get("exp", "")
    if not _SECONDS.fullmatch(expires):
        raise answers.invalid("exp")
    revocations = service_of(request).revocations
    noted(request, jti=jti, exp=expires)
    if revocations.is_late(int(expires)):
        noted(request, late=True)
    if not await revocations.revoke(jti, int(expires)):
        noted(request, late=True, ended=True)
    return answers.told({"jti": jti, "exp": int(expires)})


@described(
    "Set how much is logged",
    tag="admin",
    query=(
        argument("category", "What is logged", required=True, words=tuple(_LOGGERS)),
        argument("level", "What is logged of it at least", required=True, words=tuple(_LEVELS)),
    ),
    answers={204: None, **ERRORS},
)
async def set_level(request: Request) -> Response:
    """Log more or less of one category, in this process."""
    category, level = request.query_params.get("category", ""), request.query_params.get("level", "")
    if not category:
        raise answers.missing("category")
    if category not in _LOGGERS:
        raise answers.invalid("category")
    if level not in _LEVELS:
        raise answers.invalid("level")
    logging.getLogger(_LOGGERS[category]).setLevel(_LEVELS[level])
    return answers.nothing()


# -- Probes: whether this process should be killed, and whether it can answer requests. They ask nobody
# who he is, and tell nothing that could help an attacker.

_STORAGE = record(storage={"type": "object"})


@described("Is the process alive", tag="probes", answers={200: _STORAGE})
async def liveness(request: Request) -> Response:
    """This process answers; a server that is away is no reason to kill it."""
    return answers.told({"storage": {}})


@described("Is the process ready", tag="probes", answers={200: _STORAGE, 500: _STORAGE})
async def readiness(request: Request) -> Response:
    """A call reaches the server and is answered."""
    try:
        await service_of(request).probed.is_revoked("probe")
    except EngineError as error:
        return answers.told({"storage": {"redis": type(error).__name__}}, 500)
    return answers.told({"storage": {"redis": "ping OK"}})
