"""Tokens that open a channel: which are taken, which are refused, and that nothing of a refused request happens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from engine import Malformed
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from tests.engine.http.channels.desk import ADMIN, EC, RSA, SECRET, Desk, base64_of, desk, pem, token

pytestmark = pytest.mark.feature("DS27", model="dsps")

OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS = {
    "RS256": [pem(RSA)],
    "PS512": [pem(RSA)],
    "ES256": [pem(EC["ES256"])],
    "ES512": [pem(EC["ES512"])],
    "HS256": [base64_of(b"x" * 32), base64_of(SECRET)],
}


def room(**settings: Any) -> ChannelSettings:
    """Channels `room-N`, open to tokens that name N in the claim `room`."""
    made = JwtSettings(**{"iss": ["other", "issuer"], "aud": ["service"], "keys": KEYS, "clock_skew_ms": 30_000, **settings})
    policy = ChannelPolicy(pattern=r"room-(?P<id>\d+)", jwt=made)
    return ChannelSettings(channels=(policy, ChannelPolicy(pattern="open-.*")), disclose_auth_rejection=True)


def refused(client: Desk, credential: str) -> str:
    """Why a token was refused; that nothing has happened."""
    answer = client.put("/channel/room-7/message/m1", content="1", headers={"Authorization": f"Bearer {credential}"})
    assert (answer.status_code, answer.json()["code"], answer.json()["error"]) == (403, "dsps.auth.rejected", "Unauthorized")
    return answer.json()["reason"].removeprefix("JWT verification failure: ")


def taken(client: Desk, credential: str) -> bool:
    answer = client.put("/channel/room-7/message/m1", content="1", headers={"Authorization": f"Bearer {credential}"})
    return answer.status_code == 200


@pytest.mark.parametrize(
    ("algorithm", "key"), [("RS256", RSA), ("PS512", RSA), ("ES256", EC["ES256"]), ("ES512", EC["ES512"]), ("HS256", SECRET)]
)
def test_a_token_in_order_is_taken_by_every_call(ironclaim_url: str, algorithm: str, key: Any) -> None:
    with desk(ironclaim_url, room(), token=token(algorithm, key)) as client:
        assert client.subscribe("room-7", "s1").status_code == 200
        assert client.publish("room-7", "m1", "1").status_code == 200
        fetched = client.fetch("room-7", "s1").json()
        assert [message["messageID"] for message in fetched["messages"]] == ["m1"]
        assert client.acknowledge("room-7", "s1", fetched["ackHandle"]).status_code == 204
        assert client.unsubscribe("room-7", "s1").status_code == 200


def test_without_a_token_no_call_is_answered_and_other_channels_are_open(ironclaim_url: str) -> None:
    with desk(ironclaim_url, room()) as client, redis.Redis.from_url(ironclaim_url) as raw:
        calls = (
            client.publish("room-7", "m1", "1"),
            client.subscribe("room-7", "s1"),
            client.fetch("room-7", "s1"),
            client.acknowledge("room-7", "s1", "x"),
            client.unsubscribe("room-7", "s1"),
            client.get("/channel/room-7/subscription/polling/s1/message/old", params={"messageID": "m1"}),
        )
        assert [call.status_code for call in calls] == [403] * 6
        assert calls[0].json()["reason"] == "JWT verification failure: no JWT presented"
        assert raw.dbsize() == 0
        assert client.publish("open-door", "m1", "1").status_code == 200
        basic = client.put("/channel/room-7/message/m1", content="1", headers={"Authorization": f"Basic {token()}"})
        assert basic.status_code == 403


def test_why_a_token_was_refused_is_not_disclosed_unless_asked_for(ironclaim_url: str) -> None:
    settings = ChannelSettings(channels=room().channels)
    with desk(ironclaim_url, settings) as client:
        assert client.publish("room-7", "m1", "1").json() == {"code": "dsps.auth.rejected", "error": "Unauthorized"}


def segment(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


CLAIMS = {"iss": "issuer", "aud": "service", "exp": int(time.time()) + 600}


@pytest.mark.parametrize("spelling", ["none", "None", "NONE", "nOnE", "", None, 0, ["none"], ["RS256"], "rs256"])
def test_unsigned_tokens_are_refused_however_they_say_it(ironclaim_url: str, spelling: object) -> None:
    with desk(ironclaim_url, room()) as client, redis.Redis.from_url(ironclaim_url) as raw:
        for signature in ("", segment(b"x"), token().rpartition(".")[2]):
            assert refused(client, f"{segment({'alg': spelling, 'typ': 'JWT'})}.{segment(CLAIMS)}.{signature}")
        assert refused(client, f"{segment({'typ': 'JWT'})}.{segment(CLAIMS)}.")
        assert raw.dbsize() == 0


@pytest.mark.parametrize("public", [pem(RSA), pem(RSA).strip(), pem(RSA).replace("\n", "\r\n")])
def test_a_public_key_is_no_shared_secret(ironclaim_url: str, public: str) -> None:
    """Key confusion: a token whose HMAC has the bytes of the public key as its secret."""
    signed = f"{segment({'alg': 'HS256', 'typ': 'JWT'})}.{segment(CLAIMS)}"
    forged = f"{signed}.{segment(hmac.digest(public.encode(), signed.encode(), hashlib.sha256))}"
    with desk(ironclaim_url, room()) as client:
        assert "signature" in refused(client, forged)
    with desk(ironclaim_url, room(keys={"RS256": [pem(RSA)]})) as client:
        assert "algorithm" in refused(client, forged)


def test_keys_that_a_token_brings_along_are_not_used(ironclaim_url: str) -> None:
    own = json.loads(RSAAlgorithm.to_jwk(OTHER_RSA.public_key()))
    with desk(ironclaim_url, room()) as client:
        for headers in ({"jwk": own}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/k"}, {"kid": "../../x"}):
            assert "signature" in refused(client, token("RS256", OTHER_RSA, headers))
        assert "none is known here" in refused(client, token("RS256", RSA, {"crit": ["exp"]}))


@pytest.mark.parametrize(
    ("claims", "word"),
    [
        ({"exp": int(time.time()) - 40}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "xpiration"),
        ({"nbf": int(time.time()) + 90}, "not yet valid"),
        ({"iat": int(time.time()) + 90}, "not yet valid"),
        ({"iss": "nobody"}, "ssuer"),
        ({"iss": None}, "iss"),
        ({"aud": "elsewhere"}, "udience"),
        ({"aud": None}, "aud"),
        ({"aud": []}, "aud"),
    ],
)
def test_each_claim_counts(ironclaim_url: str, claims: dict[str, Any], word: str) -> None:
    with desk(ironclaim_url, room()) as client:
        assert word in refused(client, token(**claims))


def test_clocks_may_differ_by_what_is_allowed_and_audiences_be_several(ironclaim_url: str) -> None:
    now = int(time.time())
    with desk(ironclaim_url, room(clock_skew_ms=3_600_000)) as client:
        assert taken(client, token(exp=now - 600)) and taken(client, token(nbf=now + 600, iat=now + 600))
        assert refused(client, token(exp=now - 7_200))
        assert taken(client, token(aud=["elsewhere", "service"])) and taken(client, token(iss="other"))
    with desk(ironclaim_url, room(aud=(), require_exp=False)) as client:
        assert taken(client, token(aud="anything")) and taken(client, token(exp=None))


@pytest.mark.parametrize("broken", ["x", "a.b", "a.b.c", "....", "é.b.c", "x" * 15_000])
def test_what_is_no_token_is_refused(ironclaim_url: str, broken: str) -> None:
    with desk(ironclaim_url, room()) as client:
        answer = client.put("/channel/room-7/message/m1", content="1", headers=[(b"authorization", f"Bearer {broken}".encode())])
        assert answer.status_code == 403


def test_a_token_whose_claims_were_changed_is_refused(ironclaim_url: str) -> None:
    header, _, signature = token().split(".")
    with desk(ironclaim_url, room()) as client:
        assert "signature" in refused(client, f"{header}.{segment({**CLAIMS, 'sub': 'root'})}.{signature}")
        assert refused(client, token("RS256", OTHER_RSA)) and refused(client, token("HS256", b"y" * 32))
        assert taken(client, token("HS256", b"x" * 32)) and taken(client, token("HS256", SECRET))


def test_claims_of_its_own_are_those_of_the_channel(ironclaim_url: str) -> None:
    claims = {"room": "{{.channel.id}}", "role": ["admin", "user"], "paid": "true", "share": "3.14"}
    good = {"room": 7, "role": "user", "paid": True, "share": 3.14}
    with desk(ironclaim_url, room(claims=claims)) as client:
        assert taken(client, token(**good)) and taken(client, token(**{**good, "room": "7"}))
        for name, value in (("room", 8), ("room", "07"), ("room", None), ("role", "guest"), ("role", ["user"]), ("paid", False)):
            assert name in refused(client, token(**{**good, name: value}))
        other = client.put("/channel/room-8/message/m1", content="1", headers={"Authorization": f"Bearer {token(**good)}"})
        assert other.status_code == 403


def test_all_rules_that_match_ask(ironclaim_url: str) -> None:
    first = JwtSettings(iss=["issuer"], keys={"RS256": [pem(RSA)]}, claims={"role": "user"})
    second = JwtSettings(iss=["issuer"], keys={"RS256": [pem(RSA)]}, claims={"team": "red"})
    rules = ChannelSettings(channels=(ChannelPolicy(jwt=first), ChannelPolicy(pattern="room-.*", jwt=second)))
    with desk(ironclaim_url, rules) as client:

        def status(channel: str, **claims: Any) -> int:
            headers = {"Authorization": f"Bearer {token(**claims)}"}
            return client.put(f"/channel/{channel}/message/m1", content="1", headers=headers).status_code

        assert [status("room-7", role="user"), status("room-7", team="red"), status("hall", role="user")] == [403, 403, 200]
        assert status("room-7", role="user", team="red") == 200


@pytest.mark.feature("DS28", model="dsps")
def test_a_revoked_token_opens_nothing_and_others_do(ironclaim_url: str) -> None:
    settings = ChannelSettings(channels=room().channels, admin_tokens=(ADMIN,), disclose_auth_rejection=True)
    exp = int(time.time()) + 600
    with desk(ironclaim_url, settings) as client, redis.Redis.from_url(ironclaim_url) as raw:
        one, other = token(jti="id-1", exp=exp), token(jti="id-2", exp=exp)
        assert taken(client, one)
        revoke = {"params": {"jti": "id-1", "exp": exp}, "headers": {"Authorization": f"Bearer {ADMIN}"}}
        for _ in range(2):
            answer = client.put("/admin/jwt/revoke", **revoke)
            assert answer.status_code == 200 and answer.json() == {"jti": "id-1", "exp": exp}
        # The key, value and life of DSPS.
        assert raw.get("jwt.{id-1}.revoke") == str(exp).encode() and 600 < raw.ttl("jwt.{id-1}.revoke") <= 615
        assert refused(client, one) == "presented JWT has been revoked"
        assert taken(client, other)
        # As a DSPS server on the same storage revokes it.
        raw.set("jwt.{id-2}.revoke", exp)
        assert refused(client, other) == "presented JWT has been revoked"
        long_past = client.put("/admin/jwt/revoke", params={"jti": "id-3", "exp": 1_300_819_380}, headers=revoke["headers"])
        assert long_past.status_code == 200 and not raw.exists("jwt.{id-3}.revoke")


@pytest.mark.slow
@pytest.mark.feature("DS28", model="dsps")
def test_nobody_is_let_in_while_the_list_of_revoked_tokens_cannot_be_read() -> None:
    with desk("redis://127.0.0.1:1/0", room(), poll_max_ms=100) as client:
        headers = {"Authorization": f"Bearer {token(jti='id-1')}"}
        assert client.get("/channel/room-7/subscription/polling/s1", headers=headers).status_code == 500


def certificate_of(key: Any) -> bytes:
    """A certificate that holds the public key."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(begins).not_valid_after(begins + datetime.timedelta(days=36_500))
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM)


def test_keys_are_read_from_files_and_certificates(ironclaim_url: str, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_bytes(certificate_of(RSA))
    (tmp_path / "secret").write_text(base64_of(SECRET) + "\n")
    keys = {"RS256": [tmp_path / "certificate.pem"], "HS512": [tmp_path / "secret"]}
    with desk(ironclaim_url, room(keys=keys)) as client:
        assert taken(client, token()) and taken(client, token("HS512", SECRET))


SMALL = rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"iss": []}, "jwt.iss"),
        ({"iss": "issuer"}, "jwt.iss"),
        ({"aud": "service"}, "jwt.aud"),
        ({"keys": {}}, "jwt.keys"),
        ({"keys": {"none": []}}, "jwt.keys"),
        ({"keys": {"none": ["x"]}}, "jwt.keys"),
        ({"keys": {"RS256": []}}, "jwt.keys.RS256"),
        ({"keys": {"RS256": pem(RSA)}}, "jwt.keys.RS256"),
        ({"keys": {"RS256": ["no key"]}}, "jwt.keys.RS256[0]"),
        ({"keys": {"RS256": [pem(EC["ES256"])]}}, "jwt.keys.RS256[0]"),
        ({"keys": {"RS256": [pem(SMALL)]}}, "jwt.keys.RS256[0]"),
        ({"keys": {"ES256": [pem(EC["ES512"])]}}, "jwt.keys.ES256[0]"),
        ({"keys": {"HS256": [pem(RSA)]}}, "jwt.keys.HS256[0]"),
        ({"keys": {"HS256": [base64_of(b"x" * 31)]}}, "jwt.keys.HS256[0]"),
        ({"keys": {"HS512": [base64_of(b"x" * 63)]}}, "jwt.keys.HS512[0]"),
        ({"keys": {"RS256": [Path("/nowhere/key.pem")]}}, "jwt.keys.RS256[0]"),
        ({"clock_skew_ms": -1}, "jwt.clock_skew_ms"),
        ({"claims": {"room": "{{.channel.nothing}}"}}, "jwt.claims.room"),
        ({"claims": {"room": "{{ .other }}"}}, "jwt.claims.room"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(Malformed) as caught:
        room(**settings)
    assert caught.value.field == field
    assert base64_of(b"x" * 31) not in str(caught.value)


def test_a_key_of_another_curve_opens_nothing(ironclaim_url: str) -> None:
    with desk(ironclaim_url, room()) as client:
        assert "signature" in refused(client, token("ES256", ec.generate_private_key(ec.SECP256R1())))
