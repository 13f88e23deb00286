"""The signature of a delivery, as the Standard Webhooks specification has it, so that receivers check it by any of its libraries:
`webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,` with the HMAC-SHA256 of `id.timestamp.body` in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from engine.errors import Malformed

_PREFIX = "whsec_"
#: What the specification asks for.
SECRET_BYTES_LEAST, SECRET_BYTES_MAX = 24, 64


def secret_of(text: object) -> bytes:
    """The bytes of a secret. Raises Malformed, which does not show it."""
    bound = f"{_PREFIX} and {SECRET_BYTES_LEAST} to {SECRET_BYTES_MAX} random bytes in base64"
    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise Malformed("webhook.secret", "(not shown)", bound)
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise Malformed("webhook.secret", "(not shown)", bound) from error
    if not SECRET_BYTES_LEAST <= len(secret) <= SECRET_BYTES_MAX:
        raise Malformed("webhook.secret", f"{len(secret)} bytes", bound)
    return secret


def signed(secret: bytes, delivery: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery with this id at this time, in seconds since 1970."""
    told = f"{delivery}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(secret, told, hashlib.sha256)).decode()
    return {"webhook-id": delivery, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{signature}"}
