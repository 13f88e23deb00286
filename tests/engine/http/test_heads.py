"""HEAD and OPTIONS of every route end at once: the next request on the same connection is answered."""

import http.client
import re
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from engine import Queue
from engine.http.application import application
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings
from tests.engine.http.serving import served

_OF = {"queue": "q", "id": "j1", "channel": "c", "subscriber": "s", "message": "m"}
_POLL = "/channel/{channel}/subscription/polling/{subscriber}"
_WAITS = {"/api/queues/{queue}/jobs/{id}/result": "?wait_ms=60000", _POLL: "?timeout=60s"}


@pytest.mark.slow
def test_a_connection_serves_on_after_head_and_options_of_each_route(ironclaim_url: str) -> None:
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, channels=ChannelSettings())
    routes = [route for route in application(settings).routes if isinstance(route, Route)]
    with Queue("q", url=ironclaim_url) as queue:
        queue.enqueue("a", 1, id="j1")
    with served(settings) as base:
        connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=30)
        paths = {route.path: re.sub(r"\{(\w+)[^}]*\}", lambda found: _OF.get(found[1], "x"), route.path) for route in routes}
        connection.request("PUT", paths[_POLL])
        connection.getresponse().read()
        for path, filled in {**paths, "/static": "/static/page.css"}.items():
            for method in ("HEAD", "OPTIONS"):
                connection.request(method, filled + _WAITS.get(path, ""))
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status < 500, (method, path, answer.status)
                assert method == "OPTIONS" or not body
                assert answer.status != 405 or answer.headers["Allow"], (method, path)
                connection.request("GET", "/openapi.json")
                assert connection.getresponse().read(), (method, path)
        connection.close()
