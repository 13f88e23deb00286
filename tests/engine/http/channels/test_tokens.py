"""Tokens that open a channel: which are taken, which are refused, and that nothing of a refused request happens."""

import base64
import datetime
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from engine import Channel
from engine.http.channels import guarding
from engine.http.channels.service import Revocations
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from tests.engine.helpers import refusing, waiting
from tests.engine.http.channels.desk import ADMIN, EC, RSA, SECRET, Desk, base64_of, desk, pem, revoke, token
from tests.engine.http.serving import bearer

pytestmark = pytest.mark.feature("DS27", model="dsps")

OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS = {
    **{"RS256": [pem(RSA)], "PS512": [pem(RSA)], "ES256": [pem(EC["ES256"])], "ES512": [pem(EC["ES512"])]},
    "HS256": [base64_of(b"x" * 32), base64_of(SECRET)],
}


def room(**settings: Any) -> ChannelSettings:
    """Channels `room-N`, open to tokens that name N in the claim `room`."""
    made = JwtSettings(**{"iss": ["other", "issuer"], "aud": ["service"], "keys": KEYS, "clock_skew_ms": 30_000, **settings})
    policy = ChannelPolicy(pattern=r"room-(?P<id>\d+)", jwt=made)
    return ChannelSettings(channels=(policy, ChannelPolicy(pattern="open-.*")), disclose_auth_rejection=True)


#: The same, where an administrator may revoke tokens.
ADMINISTERED = ChannelSettings(channels=room().channels, admin_tokens=(ADMIN,), disclose_auth_rejection=True)


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[Desk]:
    """Of those channels."""
    with desk(ironclaim_url, room()) as made:
        yield made


@pytest.fixture
def revoking(ironclaim_url: str) -> Iterator[Desk]:
    """Of those channels, where tokens may be revoked."""
    with desk(ironclaim_url, ADMINISTERED) as made:
        yield made


def published(client: Desk, credential: str, channel: str = "room-7") -> httpx.Response:
    return client.put(f"/channel/{channel}/message/m1", content="1", headers=bearer(credential))


def refused(client: Desk, credential: str) -> str:
    """Why a token was refused; that nothing has happened."""
    answer = published(client, credential)
    assert (answer.status_code, answer.json()["code"], answer.json()["error"]) == (403, "dsps.auth.rejected", "Unauthorized")
    return answer.json()["reason"].removeprefix("JWT verification failure: ")


def taken(client: Desk, credential: str) -> bool:
    return published(client, credential).status_code == 200


def test_a_token_in_order_is_taken_by_every_call(client: Desk) -> None:
    for algorithm, key in {"RS256": RSA, "PS512": RSA, **EC, "HS256": SECRET}.items():
        client.headers["Authorization"] = f"Bearer {token(algorithm, key)}"
        assert client.subscribe("room-7", "s1").status_code == 200, algorithm
        message = algorithm.lower()
        assert client.publish("room-7", message, "1").status_code == 200
        fetched = client.fetch("room-7", "s1").json()
        assert [message["messageID"] for message in fetched["messages"]] == [message]
        assert client.acknowledge("room-7", "s1", fetched["ackHandle"]).status_code == 204
        assert client.unsubscribe("room-7", "s1").status_code == 200


def test_without_a_token_no_call_is_answered_and_other_channels_are_open(client: Desk, raw: Any) -> None:
    calls = [client.publish("room-7", "m1", "1"), client.subscribe("room-7", "s1"), client.fetch("room-7", "s1")]
    calls += [client.acknowledge("room-7", "s1", "x"), client.unsubscribe("room-7", "s1")]
    calls += [client.get("/channel/room-7/subscription/polling/s1/message/old", params={"messageID": "m1"})]
    assert [call.status_code for call in calls] == [403] * 6
    assert calls[0].json()["reason"] == "JWT verification failure: no JWT presented" and raw.dbsize() == 0
    assert client.publish("open-door", "m1", "1").status_code == 200
    assert client.put("/channel/room-7/message/m1", content="1", headers={"Authorization": f"Basic {token()}"}).status_code == 403


def test_why_a_token_was_refused_is_not_disclosed_unless_asked_for(ironclaim_url: str) -> None:
    with desk(ironclaim_url, ChannelSettings(channels=room().channels)) as client:
        assert client.publish("room-7", "m1", "1").json() == {"code": "dsps.auth.rejected", "error": "Unauthorized"}


def segment(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


CLAIMS = {"iss": "issuer", "aud": "service", "exp": int(time.time()) + 100_000}


def test_unsigned_tokens_are_refused_however_they_say_it(client: Desk, raw: Any) -> None:
    spellings = ("none", "None", "NONE", "nOnE", "", None, 0, ["none"], ["RS256"], "rs256")
    for head in ({"typ": "JWT"}, *({"alg": spelling, "typ": "JWT"} for spelling in spellings)):
        for signature in ("", segment(b"x"), token().rpartition(".")[2]):
            assert refused(client, f"{segment(head)}.{segment(CLAIMS)}.{signature}"), head
    assert raw.dbsize() == 0


def test_a_public_key_is_no_shared_secret(ironclaim_url: str) -> None:
    """Key confusion: a token whose HMAC has the bytes of the public key as its secret."""
    signed = f"{segment({'alg': 'HS256', 'typ': 'JWT'})}.{segment(CLAIMS)}"
    publics = (pem(RSA), pem(RSA).strip(), pem(RSA).replace("\n", "\r\n"))
    macs = [segment(hmac.digest(public.encode(), signed.encode(), hashlib.sha256)) for public in publics]
    for keys, why in ((KEYS, "signature"), ({"RS256": [pem(RSA)]}, "algorithm")):
        with desk(ironclaim_url, room(keys=keys)) as client:
            assert all(why in refused(client, f"{signed}.{mac}") for mac in macs)


def test_keys_that_a_token_brings_along_are_not_used(client: Desk) -> None:
    own = json.loads(RSAAlgorithm.to_jwk(OTHER_RSA.public_key()))
    for headers in ({"jwk": own}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/k"}, {"kid": "../../x"}):
        assert "signature" in refused(client, token("RS256", OTHER_RSA, headers))
    assert "crit" in refused(client, token("RS256", RSA, {"crit": ["exp"]}))


def test_each_claim_counts(client: Desk) -> None:
    now_s = int(time.time())
    wrong: tuple[tuple[str, Any, str], ...] = (
        ("exp", now_s - 40, "expired"), ("exp", None, "exp"), ("exp", "soon", "xpiration"),
        *((name, now_s + 100_000, "not yet valid") for name in ("nbf", "iat")), ("iss", "nobody", "ssuer"), ("iss", None, "iss"),
        ("aud", "elsewhere", "udience"), ("aud", None, "aud"), ("aud", [], "aud"),
    )  # fmt: skip
    for name, value, word in wrong:
        claim: dict[str, Any] = {name: value}
        assert word in refused(client, token(**claim)), claim


def test_clocks_may_differ_by_what_is_allowed_and_audiences_be_several(ironclaim_url: str) -> None:
    now = int(time.time())
    with desk(ironclaim_url, room(clock_skew_ms=3_600_000)) as client:
        assert taken(client, token(exp=now - 600)) and taken(client, token(nbf=now + 600, iat=now + 600))
        assert refused(client, token(exp=now - 7_200))
        assert taken(client, token(aud=["elsewhere", "service"])) and taken(client, token(iss="other"))
    with desk(ironclaim_url, room(aud=(), require_exp=False)) as client:
        assert taken(client, token(aud="anything")) and taken(client, token(exp=None))


def test_what_is_no_token_is_refused(client: Desk) -> None:
    for broken in ("x", "a.b", "a.b.c", "....", "é.b.c", "x" * 15_000):
        headers = [(b"authorization", f"Bearer {broken}".encode())]
        assert client.put("/channel/room-7/message/m1", content="1", headers=headers).status_code == 403, broken[:20]


def test_a_token_whose_claims_were_changed_is_refused(client: Desk) -> None:
    header, _, signature = token().split(".")
    assert "signature" in refused(client, f"{header}.{segment({**CLAIMS, 'sub': 'root'})}.{signature}")
    assert refused(client, token("RS256", OTHER_RSA)) and refused(client, token("HS256", b"y" * 32))
    # Of another curve.
    assert "signature" in refused(client, token("ES256", ec.generate_private_key(ec.SECP256R1())))
    assert taken(client, token("HS256", b"x" * 32)) and taken(client, token("HS256", SECRET))


def test_claims_of_its_own_are_those_of_the_channel(ironclaim_url: str) -> None:
    claims = {"room": "{{.channel.id}}", "role": ["admin", "user"], "paid": "true", "share": "3.14"}
    good = {"room": 7, "role": "user", "paid": True, "share": 3.14}
    with desk(ironclaim_url, room(claims=claims)) as client:
        assert taken(client, token(**good)) and taken(client, token(**{**good, "room": "7"}))
        for name, value in (("room", 8), ("room", "07"), ("room", None), ("role", "guest"), ("role", ["user"]), ("paid", False)):
            assert name in refused(client, token(**{**good, name: value}))
        assert published(client, token(**good), "room-8").status_code == 403


def test_all_rules_that_match_ask(ironclaim_url: str) -> None:
    first = JwtSettings(iss=["issuer"], keys={"RS256": [pem(RSA)]}, claims={"role": "user"})
    second = JwtSettings(iss=["issuer"], keys={"RS256": [pem(RSA)]}, claims={"team": "red"})
    rules = ChannelSettings(channels=(ChannelPolicy(jwt=first), ChannelPolicy(pattern="room-.*", jwt=second)))
    with desk(ironclaim_url, rules) as client:

        def status(channel: str, **claims: Any) -> int:
            return published(client, token(**claims), channel).status_code

        assert [status("room-7", role="user"), status("room-7", team="red"), status("hall", role="user")] == [403, 403, 200]
        assert status("room-7", role="user", team="red") == 200


@pytest.mark.feature("DS28", model="dsps")
def test_a_revoked_token_opens_nothing_and_others_do(revoking: Desk, raw: Any) -> None:
    exp = int(time.time()) + 600
    one, other = token(jti="id-1", exp=exp), token(jti="id-2", exp=exp)
    assert taken(revoking, one)
    for _ in range(2):
        answer = revoke(revoking, "id-1", exp)
        assert answer.status_code == 200 and answer.json() == {"jti": "id-1", "exp": exp}
    # The key and value of DSPS. It lives as long as the token may be used: clocks may differ by 30 s, a poll last 30 s.
    assert raw.get("jwt.{id-1}.revoke") == str(exp).encode() and 660 < raw.ttl("jwt.{id-1}.revoke") <= 675
    assert refused(revoking, one) == "presented JWT has been revoked" and taken(revoking, other)
    # As a DSPS server on the same storage revokes it.
    raw.set("jwt.{id-2}.revoke", exp)
    assert refused(revoking, other) == "presented JWT has been revoked"
    assert revoke(revoking, "id-3", 1_300_819_380).status_code == 200 and not raw.exists("jwt.{id-3}.revoke")


def raw_token(claims: dict[str, Any] | str, **headers: Any) -> str:
    """A signed token with claims that a library would not write."""
    head = segment({"alg": "HS256", "typ": "JWT", **headers})
    signed = f"{head}.{segment(claims.encode() if isinstance(claims, str) else claims)}"
    return f"{signed}.{segment(hmac.digest(SECRET, signed.encode(), hashlib.sha256))}"


#: Claims and headers beside those of a token in order, and whether it is taken. docs/guides/http-channels.md has the same table.
DECIDED: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
    *(({"sub": sub}, {}, True) for sub in (7, "x", "", None, True, [1], {"a": 1}, 1.5, "s" * 5_000)),
    *(({"jti": jti}, {}, True) for jti in (7, -7, 7.5, 2**60, 10**300, "7", "", None, "é" * 512, "j" * 1_024)),
    *(({"jti": jti}, {}, False) for jti in (True, False, [], ["a"], {}, {"a": 1}, "é" * 513, "j" * 1_025, "j" * 2_000, "\ud800")),
    *(({"exp": exp}, {}, False) for exp in (True, "2000000000", "", [], {}, None, 1e300, 10**12, 10**400, -1, 0, 0.5)),
    *(({"exp": exp}, {}, True) for exp in (4_070_912_400, 4_070_912_400.5, 99_999_999_999)),
    *(({name: time_s}, {}, False) for name in ("nbf", "iat") for time_s in (True, "1", "soon", [], {}, 4_070_912_400, 1e300)),
    *(({name: time_s}, {}, True) for name in ("nbf", "iat") for time_s in (1, 1.5, 0, -1)),
    *(({"iss": iss}, {}, False) for iss in ("nobody", "Issuer", "", 7, ["issuer"], None)),
    *(({"aud": aud}, {}, False) for aud in ("elsewhere", 7, [7], [], None, "", {"service": 1})),
    *(({"aud": aud}, {}, True) for aud in ("service", ["service"], ["elsewhere", "service"])),
    *(({}, headers, True) for headers in ({"kid": "any"}, {"kid": "../../x"}, {"typ": "x"}, {"cty": "x"}, {"jku": "http://x"})),
    *(({}, headers, False) for headers in ({"crit": []}, {"crit": ["exp"]}, {"crit": None}, {"b64": False}, {"kid": 7})),
    *(({}, {"alg": alg}, False) for alg in ("none", "HS384", "hs256", "RS256", "", None)),
)


async def test_a_revocation_is_noted_as_long_as_any_server_may_take_the_token(ironclaim_url: str) -> None:
    # A millisecond of a poll is a second, and there is a margin of 15 s.
    made = Revocations(ironclaim_url, ChannelSettings(long_poll_max_ms=1), now_s=lambda: 1_000.0)
    assert [await made.revoke(f"j{exp}", exp) for exp in (984, 985)] == [False, True]
    await made.close()


def test_each_claim_and_header_is_decided(client: Desk, audit: Any) -> None:
    for claims, headers, good in DECIDED:
        assert taken(client, raw_token({**CLAIMS, **claims}, **headers)) is good, (claims, headers)
    assert max(len(line["who"] or "") for line in audit()) == len("token of ") + 100
    for number in ("NaN", "Infinity", "1e400", "9" * 5_000):
        text = '{"iss":"issuer","aud":"service","exp":NUMBER}'.replace("NUMBER", number)
        assert not taken(client, raw_token(text)), number[:80]
    assert not taken(client, raw_token('{"a":' * 3_000 + "1" + "}" * 3_000))


@pytest.mark.feature("DS28", model="dsps")
def test_whatever_id_is_taken_can_be_revoked(revoking: Desk) -> None:
    """Ids with what a query or a key may stumble over, as long as they may be."""
    ids: list[Any] = ["é" * 512, "\U0001f600" * 256, "j" * 1_024, " a ", "a+b&c=d%20", "{x}", "}.revoke", "\n", "\x00", ".."]
    ids += ["*", "?", "#", 7, -7, 7.5, 1e22, 2**60, 10**300, "7e0"]
    assert not any(taken(revoking, raw_token({**CLAIMS, "jti": jti})) for jti in ("é" * 513, "j" * 2_000, [], True, {}))
    for jti in ids:
        credential = raw_token({**CLAIMS, "jti": jti})
        assert taken(revoking, credential), jti
        shown = jti if isinstance(jti, str) else format(Decimal(repr(jti)), "f").removesuffix(".0")
        told = revoke(revoking, shown, CLAIMS["exp"])
        assert told.status_code == 200, (jti, told.text)
        assert not taken(revoking, credential), jti


@pytest.mark.slow
@pytest.mark.feature("DS28", model="dsps")
def test_a_revocation_lasts_as_long_as_its_token_could(ironclaim_url: str, raw: Any, audit: Any) -> None:
    stricter = ChannelPolicy(pattern="stricter", jwt=JwtSettings(iss=["issuer"], keys=KEYS, clock_skew_ms=0))
    channels = (stricter, *room(clock_skew_ms=300_000).channels)
    settings = ChannelSettings(channels=channels, admin_tokens=(ADMIN,), disclose_auth_rejection=True)
    now_s = int(time.time())
    with desk(ironclaim_url, settings) as client:

        def told(jti: str, exp: int) -> dict[str, Any]:
            """What the audit is told of a revocation."""
            audit()
            assert revoke(client, jti, exp).status_code == 200
            (line,) = audit()
            return line

        for ago_s in (1, 14, 16, 100, 270):
            jti, exp = f"late-{ago_s}", int(time.time()) - ago_s
            assert taken(client, token(jti=jti, exp=exp)), "within the skew"
            line = told(jti, exp)
            assert (line["jti"], line["exp"], line["late"]) == (jti, str(exp), True) and "ended" not in line
            assert refused(client, token(jti=jti, exp=exp)) == "presented JWT has been revoked"
            # The skew, the longest poll and a margin, less what has passed.
            assert 340 - ago_s - 30 < raw.ttl(f"jwt.{{{jti}}}.revoke") <= 345 - ago_s
        # What comes later with an earlier end shortens nothing, and one with a later end lengthens.
        assert "late" not in told("in-time", now_s + 6_000)
        for exp, least_s in ((now_s + 10, 6_000), (now_s + 10_000, 10_000)):
            assert raw.ttl("jwt.{in-time}.revoke") > 6_000
            told("in-time", exp)
            assert raw.ttl("jwt.{in-time}.revoke") > least_s
        line = told("gone", now_s - 1_000)
        assert line["late"] and line["ended"] and not raw.exists("jwt.{gone}.revoke")
        # As a DSPS server has written it, until 15 s after the end.
        now_s = int(time.time())
        raw.set("jwt.{other}.revoke", now_s, ex=15)
        told("other", now_s)
        assert raw.ttl("jwt.{other}.revoke") > 300


@pytest.mark.feature("DS28", model="dsps")
def test_a_token_without_an_end_is_revoked_for_ever_and_one_without_an_id_may_be_refused(ironclaim_url: str, raw: Any) -> None:
    settings = ChannelSettings(channels=room(require_exp=False).channels, admin_tokens=(ADMIN,))
    with desk(ironclaim_url, settings) as client:
        endless = token(jti="endless", exp=None)
        assert taken(client, endless) and revoke(client, "endless", 1).status_code == 200
        assert raw.ttl("jwt.{endless}.revoke") == -1 and not taken(client, endless)
    with desk(ironclaim_url, room(require_jti=True)) as client:
        assert taken(client, token(jti="a")) and taken(client, raw_token({**CLAIMS, "jti": 7}))
        assert all("jti" in refused(client, raw_token({**CLAIMS, **more})) for more in ({}, {"jti": ""}, {"jti": None}))


@pytest.mark.feature("DS28", model="dsps")
def test_a_poll_ends_when_its_token_is_revoked(ironclaim_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "RECHECK_S", 0.01)
    with waiting_poll(ironclaim_url, ADMINISTERED, raw) as poll:
        begun_s = time.monotonic()
        # By another server on the same storage.
        raw.set("jwt.{id-1}.revoke", 1)
        answer = poll.result(waiting.STREAM_S)
        assert answer.status_code == 403 and answer.json()["reason"].endswith("presented JWT has been revoked")
        # Before it would have ended by itself; when exactly, a slow machine decides.
        assert time.monotonic() - begun_s < 28


@contextmanager
def waiting_poll(url: str, settings: ChannelSettings, raw: Any) -> Iterator[Future[httpx.Response]]:
    """A poll of half a minute with a token of its own."""
    with desk(url, settings, token=token(jti="id-1")) as client, ThreadPoolExecutor(1) as pool:
        assert client.subscribe("room-7", "s1").status_code == 200
        poll = pool.submit(client.fetch, "room-7", "s1", timeout="30s")
        waiting.soon(lambda: raw.execute_command("PUBSUB", "CHANNELS", "dsps.c.*"), "the poll waits")
        yield poll


@pytest.mark.feature("DS28", model="dsps")
def test_what_comes_in_for_a_revoked_token_is_not_handed_out(ironclaim_url: str, raw: Any, audit: Any) -> None:
    """The message and the revocation come together, long before the token would be looked up again."""
    with waiting_poll(ironclaim_url, room(), raw) as poll, Channel("room-7", url=ironclaim_url) as channel:
        raw.set("jwt.{id-1}.revoke", 1)
        channel.publish("m1", "secret")
        answer = poll.result(waiting.STREAM_S)
        assert answer.status_code == 403 and "secret" not in answer.text
        assert audit()[-1] == {
            **{"who": "token of somebody", "role": "operate", "from": "127.0.0.1", "method": "GET", "status": 403},
            **{"path": "/channel/room-7/subscription/polling/s1", "jti": "id-1", "refused": "revoked while it waited"},
        }


@pytest.mark.slow
@pytest.mark.feature("DS28", model="dsps")
def test_nobody_is_let_in_while_the_list_of_revoked_tokens_cannot_be_read() -> None:
    with desk("redis://127.0.0.1:1/0", room(), poll_max_ms=100, token=token(jti="id-1")) as client:
        assert client.fetch("room-7", "s1").status_code == 500


def certificate_of(key: Any) -> bytes:
    """A certificate that holds the public key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(begins).not_valid_after(begins + datetime.timedelta(days=36_500))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_keys_are_read_from_files_and_certificates(ironclaim_url: str, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_bytes(certificate_of(RSA))
    (tmp_path / "secret").write_text(base64_of(SECRET) + "\n")
    keys = {"RS256": [tmp_path / "certificate.pem"], "HS512": [tmp_path / "secret"]}
    with desk(ironclaim_url, room(keys=keys)) as client:
        assert taken(client, token()) and taken(client, token("HS512", SECRET))


SMALL = rsa.generate_private_key(public_exponent=65537, key_size=1024)


def test_settings_that_cannot_be_are_named() -> None:
    wrong = [("RS256", key) for key in ("no key", pem(EC["ES256"]), pem(SMALL), Path("/nowhere/key.pem"))]
    wrong += [("ES256", pem(EC["ES512"])), ("HS256", pem(RSA)), ("HS256", base64_of(b"x" * 31)), ("HS512", base64_of(b"x" * 63))]
    settings: Any
    for settings, field in (
        *(({"iss": []}, "iss"), ({"iss": "issuer"}, "iss"), ({"aud": "service"}, "aud")),
        *(({"keys": keys}, "keys") for keys in ({}, {"none": []}, {"none": ["x"]})),
        *(({"keys": {"RS256": keys}}, "keys.RS256") for keys in ([], pem(RSA))),
        *(({"keys": {name: [key]}}, f"keys.{name}[0]") for name, key in wrong),
        *(({"claims": {"room": claim}}, "claims.room") for claim in ("{{.channel.nothing}}", "{{ .other }}")),
    ):
        told = refusing.malformed(room, **settings)
        assert told.field == f"jwt.{field}" and base64_of(b"x" * 31) not in str(told)
