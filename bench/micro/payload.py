"""The payload of all measurements: 200 bytes of compact JSON, a typical size of a job's arguments."""

from __future__ import annotations

import json
from typing import Any

PAYLOAD: dict[str, Any] = {
    "user_id": 1234567,
    "email": "someone.example.two@example.com",
    "action": "send_welcome_email",
    "locale": "en_US",
    "attempt": 1,
    "tags": ["a", "b", "c"],
    "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
    "t": 0.125,
    "n": 1,
}

#: A flat variant that every model supports: one of them allows only strings, numbers and booleans.
FLAT = {**PAYLOAD, "tags": ",".join(PAYLOAD["tags"])}

#: Name of the measured jobs.
NAME = "bench"


def compact(payload: object) -> bytes:
    """The bytes of the payload as the engine stores them."""
    return json.dumps(payload, separators=(",", ":")).encode()
