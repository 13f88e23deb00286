"""The server fixtures for the whole suite: those that users get, also where the project is not installed."""

from __future__ import annotations

from engine.testing.plugin import ironclaim_server as ironclaim_server
from engine.testing.plugin import ironclaim_url as ironclaim_url
