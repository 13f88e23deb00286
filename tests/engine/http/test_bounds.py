"""Each bound at its very place, and settings and refusals as a whole. No server."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute

from engine import ConnectOptions, errors
from engine.http import access, answers, application, describing, shield
from engine.http.answers import Problem
from engine.http.channels import answers as channel_answers
from engine.http.channels import networks, tokens
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings, TokenCheck, TokenRefused
from engine.http.channels.webhooks import delivery
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings, secret_of
from engine.http.page import endpoints
from engine.http.settings import Access, HttpSettings, Token
from engine.queue.producing import NewJob
from tests.engine.helpers import told
from tests.engine.helpers.refusing import malformed
from tests.engine.http.channels.desk import SECRET, base64_of, pem, token

HS: Any = {"iss": ["issuer"], "keys": {"HS256": [base64_of(SECRET)]}, "aud": ["service"]}

BOUNDS: list[tuple[Any, dict[str, Any], str, int, int]] = [
    (HttpSettings, {}, "body_max_bytes", 1_024, 67_108_864),
    (HttpSettings, {}, "poll_max_ms", 1, 600_000),
    (HttpSettings, {}, "waiting_max", 1, 100_000),
    (ChannelPolicy, {}, "expire_ms", 0, 316_224_000_000),
    (ChannelSettings, {"real_ip_header": "X"}, "trusted_proxy_hops", 0, 16),
    (ChannelSettings, {}, "long_poll_max_ms", 1, 30_000),
    (ChannelSettings, {}, "webhook_concurrency", 1, 1_000),
    (JwtSettings, HS, "clock_skew_ms", 0, 86_400_000),
    (WebhookRetry, {}, "count", 0, 999),
    (WebhookRetry, {}, "interval_ms", 0, 86_400_000),
    (WebhookRetry, {}, "interval_multiplier", 1, 100),
    (WebhookRetry, {}, "interval_jitter_ms", 0, 86_400_000),
    (WebhookSettings, {"url": "https://a.b/"}, "timeout_ms", 1, 300_000),
    (WebhookSettings, {"url": "https://a.b/"}, "redirects_max", 0, 20),
]


@pytest.mark.parametrize(("kind", "more", "name", "least", "most"), BOUNDS)
def test_bounds_of_settings(kind: Any, more: dict[str, Any], name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(kind(**more, **{name: value}), name) == value
    for value in (least - 1, most + 1):
        assert malformed(kind, **more, **{name: value}).field.rpartition(".")[2] == name


def settings_given_by_name() -> told.Told:
    """Their defaults, and none of their secrets."""
    kinds = (HttpSettings, Access, Token, ChannelPolicy, ChannelSettings, JwtSettings, WebhookRetry, WebhookSettings)
    for kind in (*kinds, ConnectOptions, describing.Query, describing.Described):
        assert {one.kind for one in inspect.signature(kind).parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}, kind
    secret = "whsec_" + base64_of(b"s" * 24)
    yield "access", (JwtSettings(**HS), Token(secret="t" * 16), Access(role="read"))
    yield "webhook", WebhookSettings(url="https://a.b/token", headers={"X-Key": "token"}, secret=secret)
    yield "served", (HttpSettings(url="redis://ada:pw@a/0"), ChannelSettings(admin_tokens=("t" * 16,)))


def test_secrets_have_their_least_and_greatest_length() -> None:
    for length, good in ((15, False), (16, True), (512, True), (513, False)):
        for make, field in (
            (lambda text: Token(secret=text), "token.secret"),
            (lambda text: ChannelSettings(admin_tokens=(text,)), ""),
        ):
            assert make("t" * length) if good else malformed(make, "t" * length).field == (field or "admin_tokens")
    for length, good in ((23, False), (24, True), (64, True), (65, False)):
        text = "whsec_" + base64_of(b"s" * length)
        assert secret_of(text) == b"s" * length if good else malformed(secret_of, text).value == f"{length} bytes"
    assert {malformed(secret_of, text).value for text in (5, "x", "whsec_!")} == {"(not shown)"}
    for bits, least in ((256, 32), (384, 48), (512, 64)):
        assert tokens.loaded({f"HS{bits}": [base64_of(b"k" * least)]})
        short = malformed(tokens.loaded, {f"HS{bits}": [base64_of(b"k" * (least - 1))]})
        assert (short.field, short.value) == (f"jwt.keys.HS{bits}[0]", f"{least - 1} bytes")


# -- requests


def refusal(*headers: tuple[str, str], path: str = "/a", query: str = "", raw: str | None = None, **settings: Any) -> Any:
    """Status and field of what a request is refused with; None for one that is let in."""
    given = [("host", "localhost"), *headers] if not any(name == "host" for name, _ in headers) else headers
    scope: dict[str, Any] = {"headers": [(name.encode(), value.encode()) for name, value in given], "path": path}
    scope |= {"query_string": query.encode(), **({} if raw is None else {"raw_path": raw.encode()})}
    found = shield.refusal(scope, HttpSettings(**settings))
    return found and (found.status, found.more.get("field"))


def test_requests_are_let_in_up_to_each_bound() -> None:
    assert refusal(*((f"x{at}", "") for at in range(99))) is None and refusal(*((f"x{at}", "") for at in range(100))) == (
        431,
        None,
    )
    own = len("host") + len("localhost") + len("x")
    assert refusal(("x", "y" * (16_384 - own))) is None and refusal(("x", "y" * (16_385 - own))) == (431, None)
    assert refusal(path="/" + "a" * 2_047) is None and refusal(path="/" + "a" * 2_048) == (414, None)
    assert refusal(query="q" * 8_192) is None and refusal(query="q" * 8_193) == (414, None)
    assert refusal(("content-length", "1048576")) is None and refusal(("content-length", "1048577")) == (413, "body")
    for name in sorted(shield.SINGLE):
        text = name.decode()
        assert refusal((text, "a"), (text, "a")) == (400, text)
    assert refusal(("host", "JOBS.example:80"), allowed_hosts=("jobs.Example",)) is None
    for path, status in (
        *(("/", None), ("/a/", None), ("//a", 400), ("/a//b", 400), ("/./a", 400), ("/a/..", 400), ("/a\\b", 400)),
        *(("/%2e", 400), ("/%2F", 400), ("/a\x7f", 400), ("/a\ufffd", 400), ("/é", None), ("/.a", None)),
    ):
        assert refusal(path=path) == (status and (status, None)), path
    assert refusal(path="/a/b", raw="/a%2Fb") == (400, None)


def test_a_body_is_read_within_its_time_and_size_and_websockets_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [{"body": b"a" * 600, "more_body": True}, {"body": b"a" * 424, "more_body": False}, {"type": "http.disconnect"}]

    async def story() -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            sent.append([await receive() for _ in chunks])

        async def receive() -> Any:
            return next(left)

        made = shield.Shield(app, HttpSettings(body_max_bytes=1_024))
        scope: Any = {"type": "http", "headers": [(b"host", b"localhost")], "path": "/", "query_string": b"", "scheme": "http"}
        left = iter(chunks)
        await made(scope, receive, send)
        assert sent.pop() == chunks
        left = iter([chunks[0], {"body": b"a" * 425, "more_body": True}])
        with pytest.raises(Problem) as large:
            await made(scope, receive, send)
        assert large.value.status == 413
        monkeypatch.setattr(shield, "BODY_S", 0.0)
        with pytest.raises(Problem) as late:
            await made(scope, asyncio.Event().wait, send)
        assert (late.value.status, late.value.headers) == (408, {"Connection": "close"})
        await made({"type": "websocket"}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1003}]

    asyncio.run(story())


def asked(body: bytes = b"", query: str = "", **headers: str) -> Request:
    """A request with this body and query."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": given, "query_string": query.encode()}
    return Request(scope, receive)


def problem(call: Any, *given: Any) -> tuple[int, dict[str, Any]]:
    """Status and members of the problem that a call raises."""
    with pytest.raises(Problem) as caught:
        found = call(*given)
        if inspect.iscoroutine(found):
            asyncio.run(found)
    return caught.value.status, caught.value.more


def test_forms_are_read_up_to_their_bound() -> None:
    form: dict[str, Any] = {"content_type": "application/x-www-form-urlencoded; charset=utf-8"}
    body = "&".join(f"f{at}={at}" for at in range(199)) + "&f0=last"
    assert asyncio.run(access.form_of(asked(body.encode(), **form)))["f0"] == "last"
    assert problem(access.form_of, asked(f"{body}&more=".encode(), **form))[0] == 400
    assert problem(access.form_of, asked(b"a=%ff", **form))[0] == problem(access.form_of, asked(b"\xff", **form))[0] == 400
    assert problem(access.form_of, asked(b"a=b", content_type="text/plain"))[0] == 415
    assert asyncio.run(access.form_of(asked(b"a=", **form))) == {"a": ""}


def test_numbers_of_forms_and_addresses_are_digits() -> None:
    for text, number in (("", 0), (" 7 ", 7), ("0", 0), ("9" * 20, 10**20 - 1)):
        assert endpoints._form_number({"a": text}, "a") == number
    assert endpoints._form_number({}, "a") == 0
    for text in ("9" * 21, "-1", "\u0661", "1.5", "x"):
        wrong = (422, {"field": "a", "value": text, "bound": "a number"})
        assert problem(endpoints._form_number, {"a": text}, "a") == wrong
    for field, most in (("since", 2**47), ("cursor", 2**64 - 1), ("offset", 100_000)):
        assert endpoints._number(asked(query=f"{field}={most}"), field) == most
        assert malformed(endpoints._number, asked(query=f"{field}={most + 1}"), field).field == field
    assert endpoints._number(asked(), "offset") == 0 and problem(endpoints._number, asked(query="offset=x"), "offset")[0] == 422
    assert endpoints._of({"of": "name", "target": "a"}) == ("a", None) and endpoints._of({"target": "a"}) == (None, "a")
    assert endpoints._from({"view": "limits"}) == ("limits",) and endpoints._from({"view": "jobs"}) == ()


def test_arguments_are_read_within_their_bounds() -> None:
    settings = HttpSettings()
    number = describing.whole("n", "", -1, "poll_max_ms", 0)
    assert [number.kind("n", text, settings) for text in ("-1", "60000", "007")] == [-1, 60_000, 7]
    words, plain, one_of = (
        describing.text("t", "", pattern="a+"),
        describing.text("t", ""),
        describing.choice("c", "", ("a", "b"), "a"),
    )
    assert (
        words.kind("t", "a" * 200, settings) == "a" * 200
        and plain.kind("t", "b", settings) == one_of.kind("t", "b", settings) == "b"
    )
    for query, texts, bound in (
        (number, ("-2", "60001", "1.0", "", "+1", "9" * 19), "a whole number from -1 to 60000"),
        *(
            (words, ("a" * 201, "ab"), "a text of a+"),
            (plain, ("", "a" * 201), "a text of 1 to 200 characters"),
            (one_of, ("c",), "one of a, b"),
        ),
    ):
        for text in texts:
            assert problem(query.kind, "n", text, settings) == (422, {"field": "n", "value": text[:80], "bound": bound})
    schemas = (words, plain, describing.name_of("n", "", "a"), channel_answers.argument("m", "", pattern="a", most=3))
    assert [query.schema(settings) for query in (*schemas, channel_answers.argument("m", "", words=("a",)))] == [
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^(a+)$"},
        {"type": "string", "minLength": 1, "maxLength": 200},
        {"type": "string", "minLength": 1, "pattern": "^(a)$"},
        {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "minLength": 1, "pattern": "^(a)$"}},
        {"enum": ["a"]},
    ]
    for query, asks, wrong in (
        ("n=1&n=2", (number, plain), {"field": "n", "value": "2", "bound": "given once"}),
        ("m=1", (number, plain), {"field": "m", "value": "1", "bound": "one of n, t"}),
        ("m=1", (), {"field": "m", "value": "1", "bound": "left out: nothing is asked for here"}),
    ):
        request = asked(query=query)
        request.scope |= {
            "endpoint": describing.described("s", query=asks)(lambda: None),
            "app": application.application(settings),
        }
        assert problem(describing.arguments, request) == (422, wrong)


# -- answers


def errors_as_problems() -> told.Told:
    """Status, headers and members, in the job API and in that of channels."""
    for kind in (*(one for one, _ in answers.STATUS_OF_ERRORS if one is not errors.Malformed), errors.JobFailed):
        error = kind.__new__(kind)
        Exception.__init__(error, "why")
        found = answers.problem_of(error)
        yield kind.__name__, (found.status, found.headers, channel_answers.of_engine_error(error).status_code)
    yield "members", answers.problem_of(errors.Malformed("f", "v" * 81, "b")).members()
    yield "without words", answers.problem_of(errors.ServerUnavailable()).detail
    refused, unknown = channel_answers.Refused(400, "e", "c", "r"), Problem(401, "x")
    for answer in (
        *map(channel_answers.of_problem, (refused, unknown, Problem(503, "x", headers={"Retry-After": "9"}))),
        *map(channel_answers.of_engine_error, (errors.OutcomeUnknown("x"), errors.ServerUnavailable("x"))),
        channel_answers.nothing(),
    ):
        yield "an answer of channels", (answer.status_code, bytes(answer.body), dict(answer.headers))


def test_only_routes_that_say_what_they_need_are_served() -> None:
    async def anything(request: Request) -> Response:
        return Response()

    application._check(Mount("/x", routes=[Route("/y", access.public(anything))]))
    for route, words in (
        (Mount("/x", routes=[Route("/y", lambda request: Response())]), "/y: its endpoint does not say"),
        (WebSocketRoute("/y", anything), "is neither a route"),
    ):
        with pytest.raises(TypeError, match=words):
            application._check(route)


# -- channels


def test_tokens_are_refused_beyond_each_bound() -> None:
    check = TokenCheck(JwtSettings(**HS))
    good = token("HS256", SECRET)
    assert check.claims_of(good, {})["sub"] == "somebody"
    for text, why in (("", "no JWT presented"), ("x" * 16_385, "it is longer than 16384 characters")):
        with pytest.raises(TokenRefused, match=why):
            check.claims_of(text, {})
    with pytest.raises(TokenRefused, match="it is no JWT"):
        check.claims_of("x" * 16_384, {})
    assert malformed(tokens.loaded, {"HS256": [5]}).field == "jwt.keys.HS256[0]"
    assert malformed(tokens.check, "f", 5, ()).field == "f"
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    assert "RSA of at least 2048 bits" in malformed(tokens.loaded, {"RS256": [pem(small)]}).bound
    assert malformed(networks.networks, "f", [5]).field == "f[0]"


def retries() -> told.Told:
    """How long a failed delivery waits, and after which answers it is given up."""
    retry = WebhookRetry(interval_ms=1_000, interval_multiplier=2, interval_jitter_ms=100)
    yield "waits", [retry.wait_ms(failed, 0.5) for failed in (1, 2, 4, 65, 999)]
    yield "give or take", [retry.wait_ms(1, random) for random in (0.0, 1.0)]
    yield "none", WebhookRetry(interval_ms=0, interval_jitter_ms=10).wait_ms(1, 0.0)
    slow = WebhookRetry(interval_ms=1, interval_jitter_ms=0)
    yield "slow", [slow.wait_ms(failed, 0.5) for failed in (63, 64, 65, 66)]
    yield "given up", (sorted(delivery._GIVE_UP), sorted(delivery._KEEPING))


def test_defaults_statuses_and_waits_are_what_was_promised() -> None:
    told.same(Path(__file__).parent / "golden" / "bounds.txt", settings_given_by_name, errors_as_problems, retries)


def test_a_job_of_a_delivery_outlives_the_duplicates_of_its_message() -> None:
    made: Any = object.__new__(delivery.WebhookQueue)
    made._expire_ms = 1_500
    hook = WebhookSettings(url="https://a.b/x?token=1", retry=WebhookRetry(count=4))
    target = delivery.Target(hook, hook.url, {})
    of = b"\0".join((b"c", b"m1", b"PUT", hook.url.encode()))
    id = f"m1.{hashlib.sha256(of).hexdigest()[:32]}"
    more: Any = {"attempts": 5, "dedup": id, "dedup_ms": 17_000, "headers": {"webhook-url": "https://a.b/x?***"}, "key": "c"}
    assert made._job("c", "m1", target, b"{}") == NewJob("webhook", b"{}", id=id, result_ttl_ms=0, **more)
