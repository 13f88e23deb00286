"""Serves an application on a real socket for the length of a test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from typing import Any

from engine.http import serving
from engine.http.settings import HttpSettings
from tests.engine.helpers.waiting import wait_until


@contextlib.contextmanager
def served(settings: HttpSettings, **more: Any) -> Generator[str]:
    """The base url of an application with these settings, which runs in a thread and has ended afterwards."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = serving.server(settings, log_config=None, **more)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="served", daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the application serves")
        assert server.started, "the application has not started"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
