"""Publishing: `PUT /channel/{channelID}/message/{messageID}` with any JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.channel import contents
from engine.channel.contents import RawJson
from engine.errors import Malformed
from engine.http.channels import answers
from engine.http.channels.answers import Refused
from engine.http.channels.describing import ERRORS, record
from engine.http.channels.guarding import about, channel_route, id_of
from engine.http.channels.policies import ChannelAccess
from engine.http.channels.service import service_of
from engine.http.describing import described


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
