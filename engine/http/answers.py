"""The one way to answer with JSON: whatever is stored, an answer can be sent."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from engine.errors import json_text


class JsonAnswer(JSONResponse):
    """JSON in UTF-8; what JSON cannot say is said as a text (`engine.errors`)."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json_text(content).encode()
