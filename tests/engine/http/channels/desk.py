"""A client of the channel API, and what applications are made of in tests."""

import base64
import contextlib
import time
from collections.abc import Generator, Mapping
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings
from tests.engine.helpers.waiting import STREAM_S
from tests.engine.http.serving import bearer, served

ADMIN = "admin-token-0123456789"


class Desk(httpx.Client):
    """Calls one application; `token` is sent with each call."""

    def __init__(self, base: str, token: str = "") -> None:
        headers = bearer(token) if token else {}
        super().__init__(base_url=base, headers=headers, timeout=STREAM_S, trust_env=False)

    def publish(self, channel: str, message: str, content: bytes | str) -> httpx.Response:
        return self.put(f"/channel/{channel}/message/{message}", content=content)

    def subscribe(self, channel: str, subscriber: str) -> httpx.Response:
        return self.put(f"/channel/{channel}/subscription/polling/{subscriber}")

    def unsubscribe(self, channel: str, subscriber: str) -> httpx.Response:
        return self.delete(f"/channel/{channel}/subscription/polling/{subscriber}")

    def fetch(self, channel: str, subscriber: str, **query: Any) -> httpx.Response:
        return self.get(f"/channel/{channel}/subscription/polling/{subscriber}", params=query)

    def acknowledge(self, channel: str, subscriber: str, handle: str) -> httpx.Response:
        return self.delete(f"/channel/{channel}/subscription/polling/{subscriber}/message", params={"ackHandle": handle})


@contextlib.contextmanager
def desk(url: str, channels: ChannelSettings | None = None, *, token: str = "", **settings: Any) -> Generator[Desk]:
    """A client of an application that serves these channels, and may change them."""
    made = HttpSettings(url=url, channels=channels or ChannelSettings(), **{"allow_changes": True, **settings})
    with served(made) as base, Desk(base, token) as client:
        yield client


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = {"ES256": ec.generate_private_key(ec.SECP256R1()), "ES512": ec.generate_private_key(ec.SECP521R1())}
SECRET = bytes(range(64))


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    """The public key of a private one."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def revoke(client: Desk, jti: object, exp: int) -> httpx.Response:
    """Revoke a token, as an administrator."""
    return client.put("/admin/jwt/revoke", params={"jti": jti, "exp": exp}, headers=bearer(ADMIN))  # type: ignore[dict-item]


def base64_of(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def token(algorithm: str = "RS256", key: Any = RSA, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
    """A token that is in order but for what is said; a claim of None is left out."""
    whole = {"iss": "issuer", "aud": "service", "exp": int(time.time()) + 600, "sub": "somebody", **claims}
    told = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(told, key, algorithm=algorithm, headers=dict(headers or {}))
