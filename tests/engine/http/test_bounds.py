"""Each bound at its very place, and settings and refusals as a whole. No server."""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute

from engine import ConnectOptions, errors
from engine.http import access, answers, application, describing, serving, shield
from engine.http.channels import answers as channel_answers
from engine.http.channels import networks, tokens
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from engine.http.channels.webhooks import delivery
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings, secret_of
from engine.http.jobs import bananas
from engine.http.page import endpoints
from engine.http.settings import Access, HttpSettings, Token
from engine.ops.jobs import Options
from engine.queue.looks import JobInfo
from engine.queue.producing import NewJob
from tests import golden
from tests.engine.helpers import producing, refusing
from tests.engine.http.channels.desk import SECRET, base64_of, pem, token

ADMIN, MAILS = "a" * 32, "m" * 32
TOKENS = (Token(secret=ADMIN, role="admin", name="admin"), Token(secret=MAILS, role="admin", name="mails", queues=("mails",)))

HS: Any = {"iss": ["issuer"], "keys": {"HS256": [base64_of(SECRET)]}, "aud": ["service"]}

DAY_MS, HOOK = 86_400_000, {"url": "https://a.b/"}

#: What else they need, how the names of their fields begin in a refusal, and bounds.
BOUNDS: list[tuple[Any, dict[str, Any], str, dict[str, tuple[int, int]]]] = [
    (HttpSettings, {}, "", {"body_max_bytes": (1_024, 67_108_864), "poll_max_ms": (1, 600_000), "waiting_max": (1, 100_000)}),
    (ChannelPolicy, {}, "", {"expire_ms": (0, 316_224_000_000)}),
    (ChannelSettings, {"real_ip_header": "X"}, "", {"trusted_proxy_hops": (0, 16)}),
    (ChannelSettings, {}, "", {"long_poll_max_ms": (1, 30_000), "webhook_concurrency": (1, 1_000)}),
    (JwtSettings, HS, "jwt.", {"clock_skew_ms": (0, DAY_MS)}),
    (WebhookRetry, {}, "webhook.retry.", {"count": (0, 999), "interval_ms": (0, DAY_MS), "interval_jitter_ms": (0, DAY_MS)}),
    (WebhookRetry, {}, "webhook.retry.", {"interval_multiplier": (1, 100)}),
    (WebhookSettings, HOOK, "webhook.", {"timeout_ms": (1, 300_000), "redirects_max": (0, 20)}),
]


@pytest.mark.parametrize(("kind", "more", "begin", "bounds"), BOUNDS)
def test_bounds_of_settings(kind: Any, more: dict[str, Any], begin: str, bounds: dict[str, tuple[int, int]]) -> None:
    for name, (least, most) in bounds.items():
        for value in (least, most):
            assert getattr(kind(**more, **{name: value}), name) == value
        for value in (least - 1, most + 1):
            assert refusing.malformed(kind, **more, **{name: value}).field == f"{begin}{name}"


def settings_given_by_name() -> golden.Told:
    """Their defaults, and none of their secrets."""
    kinds = (HttpSettings, Access, Token, ChannelPolicy, ChannelSettings, JwtSettings, WebhookRetry, WebhookSettings)
    for kind in (*kinds, ConnectOptions, describing.Query, describing.Described):
        assert {one.kind for one in inspect.signature(kind).parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}, kind
    secret = "whsec_" + base64_of(b"s" * 24)
    yield "access", (JwtSettings(**HS), Token(secret="t" * 16), Access(role="read"))
    yield "webhook", WebhookSettings(url="https://a.b/token", headers={"X-Key": "token"}, secret=secret)
    yield "served", (HttpSettings(url="redis://ada:pw@a/0"), ChannelSettings(admin_tokens=("t" * 16,)))


def secrets() -> golden.Told:
    """Their least and greatest length."""
    for length in (15, 16, 512, 513):
        makers: tuple[Any, ...] = (lambda text: Token(secret=text), lambda text: ChannelSettings(admin_tokens=(text,)))
        made = [golden.outcome(lambda make=make, length=length: bool(make("t" * length))) for make in makers]
        yield f"{length} characters", made
    for text in (*("whsec_" + base64_of(b"s" * length) for length in (23, 24, 64, 65)), 5, "x", "whsec_!"):
        yield "of a webhook", golden.outcome(secret_of, text)
    for bits, least in ((256, 32), (384, 48), (512, 64)):
        keys = [{f"HS{bits}": [base64_of(b"k" * length)]} for length in (least - 1, least)]
        yield f"of HS{bits}", [golden.outcome(tokens.loaded, one) for one in keys]


# -- requests


def refusal(*headers: tuple[str, str], path: str = "/a", query: str = "", raw: str | None = None, **settings: Any) -> Any:
    """Status and field of what a request is refused with; None for one that is let in."""
    given = [("host", "localhost"), *headers] if not any(name == "host" for name, _ in headers) else headers
    scope: dict[str, Any] = {"headers": [(name.encode(), value.encode()) for name, value in given], "path": path}
    scope |= {"query_string": query.encode(), **({} if raw is None else {"raw_path": raw.encode()})}
    found = shield.refusal(scope, HttpSettings(**settings))
    return found and (found.status, found.more.get("field"))


def requests() -> golden.Told:
    """They are let in up to each bound."""
    many, own = [(f"x{at}", "") for at in range(100)], len("host") + len("localhost") + len("x")
    yield "headers", (refusal(*many[1:]), refusal(*many))
    yield "bytes", [refusal(("x", "y" * (length - own))) for length in (16_384, 16_385)]
    yield "paths", [refusal(path="/" + "a" * length) for length in (2_047, 2_048)]
    yield "queries", [refusal(query="q" * length) for length in (8_192, 8_193)]
    yield "bodies", [refusal(("content-length", str(length))) for length in (1_048_576, 1_048_577)]
    yield "twice", [refusal((name.decode(), "a"), (name.decode(), "a")) for name in sorted(shield.SINGLE)]
    yield "a host", refusal(("host", "JOBS.example:80"), allowed_hosts=("jobs.Example",))
    odd = ("/", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\\b", "/%2e", "/%2F", "/a\x7f", "/a\ufffd", "/é", "/.a")
    yield "odd paths", {path: refusal(path=path) for path in odd}
    yield "a raw path", refusal(path="/a/b", raw="/a%2Fb")


async def test_a_body_is_read_within_its_time_and_size_and_websockets_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [{"body": b"a" * 600, "more_body": True}, {"body": b"a" * 424, "more_body": False}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append([await receive() for _ in chunks])

    async def receive() -> Any:
        # As it is when the loop stood still: the time is over as well, and the task gets what came some turns later.
        for _ in range(3):
            await asyncio.sleep(0)
        return next(left)

    silence: Any = asyncio.Event().wait
    made = shield.Shield(app, HttpSettings(body_max_bytes=1_024))
    scope: Any = {"type": "http", "headers": [(b"host", b"localhost")], "path": "/", "query_string": b"", "scheme": "http"}
    left = iter(chunks)
    await made(scope, receive, send)
    assert sent.pop() == chunks
    left = iter([chunks[0], {"body": b"a" * 425, "more_body": True}])
    with pytest.raises(answers.Problem) as large:
        await made(scope, receive, send)
    assert large.value.status == 413
    monkeypatch.setattr(shield, "BODY_S", 0.0)
    left = iter(chunks)
    await made(scope, receive, send)
    assert sent.pop() == chunks
    with pytest.raises(answers.Problem) as late:
        await made(scope, silence, send)
    assert (late.value.status, late.value.headers) == (408, {"Connection": "close"})
    await made({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1003}]


def asked(body: bytes = b"", query: str = "", **headers: str) -> Request:
    """A request with this body and query."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": given, "query_string": query.encode()}, receive)


def problem(call: Any, *given: Any) -> tuple[int, dict[str, Any]]:
    """Status and members of the problem that a call raises."""
    with pytest.raises(answers.Problem) as caught:
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


def numbers() -> golden.Told:
    """Of forms and addresses: digits."""
    yield "forms", [endpoints._form_number({"a": text}, "a") for text in ("", " 7 ", "0", "9" * 20)]
    yield "no field", endpoints._form_number({}, "a")
    for text in ("9" * 21, "-1", "\u0661", "1.5", "x"):
        yield ascii(text), problem(endpoints._form_number, {"a": text}, "a")
    for field, most in (("since", 2**47), ("cursor", 2**64 - 1), ("offset", 100_000)):
        yield field, [golden.outcome(endpoints._number, asked(query=f"{field}={most + more}"), field) for more in (0, 1)]
    yield "offset", (endpoints._number(asked(), "offset"), problem(endpoints._number, asked(query="offset=x"), "offset"))
    yield "of", [endpoints._of(form) for form in ({"of": "name", "target": "a"}, {"target": "a"})]
    yield "from", [endpoints._from({"view": view}) for view in ("limits", "jobs")]


def arguments() -> golden.Told:
    """They are read within their bounds."""
    settings, number = HttpSettings(), describing.whole("n", "", -1, "poll_max_ms", 0)
    words, plain = describing.text("t", "", pattern="a+"), describing.text("t", "")
    one_of = describing.choice("c", "", ("a", "b"), "a")
    read = ((number, "-1"), (number, "60000"), (number, "007"), (words, "a" * 200), (plain, "b"), (one_of, "b"))
    yield "read", [query.kind("t", text, settings) for query, text in read]
    wrong = {number: ("-2", "60001", "1.0", "", "+1", "9" * 19), words: ("a" * 201, "ab"), plain: ("", "a" * 201), one_of: ("c",)}
    for query, texts in wrong.items():
        yield query.name, [problem(query.kind, query.name, text, settings) for text in texts]
    shaped = (words, plain, describing.name_of("n", "", "a"), channel_answers.argument("m", "", pattern="a", most=3))
    yield "schemas", [query.schema(settings) for query in (*shaped, channel_answers.argument("m", "", words=("a",)))]
    for text, asks in (("n=1&n=2", (number, plain)), ("m=1", (number, plain)), ("m=1", ())):
        request = asked(query=text)
        endpoint = describing.described("s", query=asks)(lambda: None)
        request.scope.update({"endpoint": endpoint, "app": application.application(settings)})
        yield text, problem(describing.arguments, request)


# -- answers


def errors_as_problems() -> golden.Told:
    """Status, headers and members, in the job API and in that of channels."""
    for kind in (*(one for one, _ in answers.STATUS_OF_ERRORS if one is not errors.Malformed), errors.JobFailed):
        error = kind.__new__(kind)
        Exception.__init__(error, "why")
        found = answers.problem_of(error)
        yield kind.__name__, (found.status, found.headers, channel_answers.of_engine_error(error).status_code)
    yield "members", answers.problem_of(errors.Malformed("f", "v" * 81, "b")).members()
    long = "redis://" * 1_250
    yield "long values", [answers.problem_of(errors.Malformed("f", text, "b")).more["value"] for text in (long, f"{long}x")]
    yield "without words", answers.problem_of(errors.ServerUnavailable()).detail
    denied, unknown = channel_answers.Refused(400, "e", "c", "r"), answers.Problem(401, "x")
    for answer in (
        *map(channel_answers.of_problem, (denied, unknown, answers.Problem(503, "x", headers={"Retry-After": "9"}))),
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
        producing.refused(TypeError, words, application._check, route)


# -- channels


def test_tokens_are_refused_beyond_each_bound() -> None:
    check = tokens.TokenCheck(JwtSettings(**HS))
    assert check.claims_of(token("HS256", SECRET), {})["sub"] == "somebody"
    for text, why in (("", "no JWT presented"), ("x" * 16_385, "longer than 16384 characters"), ("x" * 16_384, "it is no JWT")):
        producing.refused(tokens.TokenRefused, why, check.claims_of, text, {})
    assert [tokens.is_revocable(text) for text in ("x" * 1_024, "x" * 1_025, "é" * 513, "\ud800")] == [True, False, False, False]
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    assert "RSA of at least 2048 bits" in refusing.malformed(tokens.loaded, {"RS256": [pem(small)]}).bound
    for call, given in ((tokens.loaded, ({"HS256": [5]},)), (tokens.check, ("f", 5, ())), (networks.networks, ("f", [5]))):
        refusing.malformed(call, *given)


def retries() -> golden.Told:
    """How long a failed delivery waits, and after which answers it is given up."""
    retry = WebhookRetry(interval_ms=1_000, interval_multiplier=2, interval_jitter_ms=100)
    yield "waits", [retry.wait_ms(failed, 0.5) for failed in (1, 2, 4, 65, 999)]
    yield "give or take", [retry.wait_ms(1, random) for random in (0.0, 1.0)]
    yield "none", WebhookRetry(interval_ms=0, interval_jitter_ms=10).wait_ms(1, 0.0)
    half = WebhookRetry(interval_ms=3_000, interval_multiplier=1.5, interval_jitter_ms=1_500)
    yield "by half", [half.wait_ms(failed, random) for failed, random in ((1, 0.5), (2, 0.5), (3, 0.5), (1, 0.0), (1, 1.0))]
    yield "no less than none", WebhookRetry(interval_ms=100, interval_jitter_ms=1_000).wait_ms(1, 0.0)
    yield "slow", [WebhookRetry(interval_ms=1, interval_jitter_ms=0).wait_ms(failed, 0.5) for failed in (63, 64, 65, 66)]
    yield "given up", (sorted(delivery._GIVE_UP), sorted(delivery._KEEPING))


def test_defaults_bounds_statuses_and_waits_are_what_was_promised() -> None:
    golden.tells("http/bounds.txt", settings_given_by_name, secrets, requests, numbers, arguments, errors_as_problems, retries)


def test_a_job_of_a_delivery_outlives_the_duplicates_of_its_message() -> None:
    made: Any = object.__new__(delivery.WebhookQueue)
    made._expire_ms = 1_500
    hook = WebhookSettings(url="https://a.b/x?token=1", retry=WebhookRetry(count=4))
    target = delivery.Target(hook, hook.url, {})
    of = b"\0".join((b"c", b"m1", b"PUT", hook.url.encode()))
    id = f"m1.{hashlib.sha256(of).hexdigest()[:32]}"
    more: Any = {"attempts": 5, "dedup": id, "dedup_ms": 17_000, "headers": {"webhook-url": "https://a.b/x?***"}, "key": "c"}
    assert made._job("c", "m1", target, b"{}") == NewJob("webhook", b"{}", id=id, result_ttl_ms=0, **more)


# -- what uvicorn is told, cookies of sessions, headers of all answers, who is asked again, and jobs as Bananas shows them


def plain(value: Any) -> Any:
    """A value as a text can hold it: of what is no data, its kind alone."""
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, map(plain, value)))
    if isinstance(value, re.Pattern):
        return f"/{value.pattern!r}/{value.flags}"
    return value if isinstance(value, str | bytes | int | float | None) else getattr(value, "__name__", type(value).__name__)


def asking(settings: HttpSettings, cookies: str = "", **scope: Any) -> Request:
    """A request to an application with these settings."""
    app = SimpleNamespace(state=SimpleNamespace(settings=settings))
    more: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "path_params": {}, "scheme": "http", "client": None}
    return Request({**more, "headers": [(b"cookie", cookies.encode())], "query_string": b"", "app": app, **scope})


def told_to_uvicorn() -> golden.Told:
    """By which bounds and switches it serves."""
    names = ("host", "port", "ws", "lifespan", "proxy_headers", "server_header", "access_log", "limit_concurrency")
    names += ("h11_max_incomplete_event_size", "timeout_graceful_shutdown", "http")
    config = serving.server(HttpSettings(waiting_max=7), host="::1", port=9).config
    yield "config", {name: plain(getattr(config, name)) for name in names}


def cookies() -> golden.Told:
    """Of sessions: how they begin and end, and until when they count."""
    settings, now_s = HttpSettings(tokens=TOKENS), 1_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.http.access.time", SimpleNamespace(time=lambda: now_s))
        for scope in ({}, {"scheme": "https", "root_path": "/jobs"}):
            request, answer = asking(settings, headers=[(b"host", b"localhost")], **scope), Response()
            signed = access.sign_in(request, answer, MAILS)
            access.sign_out(request, answer)
            set_there = [re.sub("expires=.*? GMT", "expired", one) for one in answer.headers.getlist("set-cookie")]
            yield "begun and ended", (signed, set_there)
        yield "a wrong one", (access.sign_in(request, Response(), "x"), access.sign_in(request, Response(), ADMIN[:-1]))
        for ends_s in (now_s, now_s + 1, now_s + 43_200, now_s + 43_201):
            cookie = f"{access.SESSION_COOKIE}={access._signed(TOKENS[1], ends_s)}"
            yield f"ends {ends_s}", access.session_of(asking(settings, cookie))
        for value in ("", "a.b", ".1000001.", "a.1000001.b.c"):
            yield repr(value), access.session_of(asking(settings, f"{access.SESSION_COOKIE}={value}"))


def asked_again() -> golden.Told:
    """A hook is asked at most every 15 s who reads a stream."""
    times: list[float] = []

    async def authorize(request: Request) -> Access:
        times.append(now_s[0])
        return Access(role="read", queues=("q",))

    now_s = [100.0]
    request = asking(HttpSettings(authorize=authorize))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.http.access.time", SimpleNamespace(monotonic=lambda: now_s[0]))

        async def story() -> list[bool]:
            await access._admit(request, "read", "", False)
            found: list[bool] = []
            for now_s[0] in (100.0, 114.9, 115.0, 115.1, 129.9, 130.0):
                found.append(await access.still_admitted(request, "read"))
            return found

        yield "asked", (asyncio.run(story()), times)


def headers() -> golden.Told:
    """Those of all answers, each once, beside those that an answer brings; and the cookie of a new browser."""
    for state, scheme in (({}, "http"), ({"new_csrf": "t"}, "http"), ({"new_csrf": "t"}, "https")):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"own")]})

        scope: Any = {"type": "http", "headers": [(b"host", b"localhost")], "path": "/", "query_string": b"", "scheme": scheme}
        asyncio.run(shield.Shield(app, HttpSettings())({**scope, "state": state}, lambda: None, send))  # type: ignore[arg-type]
        yield f"{state} {scheme}", sent


def of_bananas() -> golden.Told:
    """Jobs as its API shows them, and which times of it are taken."""
    for state, options, more in (
        ("waiting", Options(priority=1, headers=((bananas.DESCRIPTION, "d"),)), {"enqueued_ms": 1_500}),
        ("delayed", Options(priority=5, route="west", attempts=4), {"due_ms": 2_001}),
        ("finished", Options(priority=9), {"failures": 1, "crashes": 2}),
        ("dead", Options(priority=10), {"last_error": "ValueError: 5", "unreadable": "torn"}), ("expired", Options(), {}),
    ):  # fmt: skip
        job = JobInfo("j1", state, name="send", payload_bytes=b"[5]", options=options, **more)  # type: ignore[arg-type]
        for payloads in (False, True):
            yield f"{state} {payloads}", bananas._view(job, asking(HttpSettings(show_payloads=payloads)))
    texts = ("2030-01-15T10:30:00Z", "2030-01-15t10:30:00.0001z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00.0000001Z")
    texts += ("5999-12-31T23:59:59+00:00", "6000-01-01T00:00:00Z", "2030-01-15T10:30:00", "0001-01-01T00:00:00+10:00", "x")
    texts += ("2099-01-01T00:00:00.001Z", "2099-01-01T00:00:00.0010001Z", "2099-01-01T00:00:00.000999+00:00")
    for text in (*texts, None, 5):
        yield f"at {text}", golden.outcome(bananas._instant_ms, text)
    yield "priorities", [golden.outcome(bananas._priority, word) for word in ("high", "normal", "low", "High", None)]


def test_serving_access_cookies_and_the_shield_are_as_they_were_read() -> None:
    golden.tells("http/whole.txt", told_to_uvicorn, of_bananas, cookies, asked_again, headers)
