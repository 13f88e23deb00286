"""How the producer of a drill of jobs sends: to the server itself, or over HTTP to apps that lead to it. Names alone."""

from __future__ import annotations

DIRECT, HTTP = "direct", "http"
FACES = (DIRECT, HTTP)

#: The processes of `ironclaim serve` that are called over HTTP.
APPS = ("app-1", "app-2")
