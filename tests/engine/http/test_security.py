"""Safe by default: what must be refused is refused, over a real socket, and leaves nothing in the queue."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine import Queue, errors, testing
from engine.http import access, application, routes, serving, shield
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import Access, HttpSettings, Token
from tests.engine.http.serving import asking, bearer, rest_of, served
from tests.engine.using import STREAM_S, malformed, refused, soon, wait_until

READ, OPERATE, ADMIN, MAILS = "r" * 32, "o" * 32, "a" * 32, "m" * 32
TOKENS = (
    Token(secret=READ, role="read", name="reader"), Token(secret=OPERATE, role="operate", name="operator"),
    Token(secret=ADMIN, role="admin", name="admin"), Token(secret=MAILS, role="admin", name="mails", queues=("mails",)),
)  # fmt: skip
JOBS = "/api/queues/q/jobs"
FULL = "As many wait as may: 2 requests."
#: Longer than any run of digits in a page: a clock in milliseconds holds each number of four digits now and then.
CARD = "4111-1111-1111-1111"
#: A browser whose token is the right one.
BROWSER = {"Cookie": f"{access.CSRF_COOKIE}={'t' * 43}", "X-CSRF-Token": "t" * 43}


@pytest.fixture(scope="module")
def clients(ironclaim_server: testing.EmbeddedServer) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Of an application that asks nobody, and lets everybody change things; and of one with tokens."""
    url = ironclaim_server.url
    with asking(url, allow_changes=True) as anybody, asking(url, allow_changes=True, tokens=TOKENS) as known:
        yield anybody, known


@pytest.fixture
def open_client(clients: tuple[httpx.Client, httpx.Client], ironclaim_url: str) -> httpx.Client:
    """The first of them; its server is empty."""
    clients[0].cookies.clear()
    return clients[0]


@pytest.fixture
def client(clients: tuple[httpx.Client, httpx.Client], ironclaim_url: str) -> httpx.Client:
    """The other one; its server is empty."""
    clients[1].cookies.clear()
    return clients[1]


# -- who


NOT_LET_IN = [
    *(None, "", "Bearer", f"Bearer {ADMIN}x", f"Bearer {ADMIN[:-1]}", f"Bearer x{ADMIN}"),
    *(f"Bearer {ADMIN} {ADMIN}", f"Basic {ADMIN}", ADMIN, "Bearer \xff\xfe", f"Bearer {ADMIN.upper()}"),
]


@pytest.mark.parametrize("authorization", NOT_LET_IN)
def test_only_the_whole_secret_lets_in(client: httpx.Client, authorization: str | None) -> None:
    headers = {} if authorization is None else {b"Authorization": authorization.encode("latin-1")}
    answer = client.get("/api/queues", headers=headers)
    assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
    assert client.get("/api/queues", headers=bearer(READ)).status_code == 200


def test_each_role_may_do_what_those_before_it_may_and_no_more(client: httpx.Client, queue: Queue) -> None:
    asked = (("GET", "/api/queues/q", None), ("POST", JOBS, {"name": "a"}), ("PUT", "/api/queues/q/limits/a", {"concurrency": 1}))
    for held, secret in enumerate((READ, OPERATE, ADMIN)):
        for needed, (method, path, body) in enumerate(asked):
            answer = client.request(method, path, json=body, headers=bearer(secret))
            assert (answer.status_code == 403) == (needed > held), (held, path, answer.text)
    assert queue.counts().waiting == 2


def test_a_token_of_one_queue_reaches_no_other_by_any_name(client: httpx.Client, queue: Queue) -> None:
    for name in ("q", "mails2", "mail", "Mails", "xmails", "mails:", "mails%3Aq", "q%20"):
        for method, path in (("GET", ""), ("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/events"), ("PUT", "/limits/a")):
            answer = client.request(method, f"/api/queues/{name}{path}", json={"name": "a"}, headers=bearer(MAILS))
            assert answer.status_code == 403, (name, path)
    assert client.post("/api/queues/mails/jobs", json={"name": "a"}, headers=bearer(MAILS)).status_code == 201
    assert client.post("/api/v1/jobs", json={"name": "a"}, headers=bearer(MAILS)).status_code == 403
    client.post(JOBS, json={"name": "a"}, headers=bearer(ADMIN))
    assert [found["queue"] for found in client.get("/api/queues", headers=bearer(MAILS)).json()["queues"]] == ["mails"]
    assert queue.counts().waiting == 1


def test_nothing_changes_unless_changes_are_allowed(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("a", 1, id="j1")
    with asking(ironclaim_url, tokens=TOKENS) as client:
        document, tried = client.get("/openapi.json").json(), 0
        for path, methods in document["paths"].items():
            for method in methods.keys() - {"get"}:
                filled = path.format_map({"queue": "q", "id": "j1", "name": "a", "schedule": "s", "key": "k"})
                answer = client.request(method, filled, json={}, headers=bearer(ADMIN))
                assert answer.status_code == 403 and "--allow-changes" in answer.json()["detail"], (method, path)
                tried += 1
        assert tried > 15
        for method in ("PATCH", "DELETE", "PUT", "TRACE", "OPTIONS"):
            assert client.request(method, JOBS, headers=bearer(ADMIN)).status_code == 405
        assert client.get(f"{JOBS}/j1/cancel", headers={**bearer(ADMIN), "X-HTTP-Method-Override": "POST"}).status_code == 405
    assert queue.jobs.state("j1") == "waiting"


def test_an_auth_hook_decides_and_what_it_lets_in_by_cookie_may_be_forged(ironclaim_url: str, queue: Queue) -> None:
    async def authorize(request: Request) -> Access | None:
        return Access(role="operate", name="user") if request.cookies.get("own") == "yes" else None

    with asking(ironclaim_url, allow_changes=True, authorize=authorize) as client:
        assert client.get("/api/queues").status_code == 401
        assert client.get("/api/queues", headers={"Cookie": "own=yes"}).status_code == 200
        assert client.post(JOBS, json={"name": "a"}, headers={"Cookie": "own=yes"}).status_code == 403
        browser = {**BROWSER, "Cookie": f"own=yes; {BROWSER['Cookie']}", "Origin": str(client.base_url).rstrip("/")}
        assert client.post(JOBS, json={"name": "a"}, headers=browser).status_code == 201
    assert queue.counts().waiting == 1


# -- which page


def test_the_page_of_another_site_changes_nothing(open_client: httpx.Client, queue: Queue) -> None:
    cookie, token = ({name: BROWSER[name]} for name in ("Cookie", "X-CSRF-Token"))
    foreign = ("https://evil.example", "null", "http://[", "http://127.0.0.1.evil.example", "http://127.0.0.1", "file://OWN")
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for headers in (
        *({"Origin": origin, **more} for origin in foreign for more in ({}, BROWSER)),
        {"Origin": "http://evil.example/http://127.0.0.1"},
        *({"Origin": "http://OWN", **more} for more in (cookie, {**cookie, "X-CSRF-Token": "u" * 43}, token)),
        {"Origin": "http://OWN", "Cookie": f"{access.CSRF_COOKIE}=", "X-CSRF-Token": ""},
        *(BROWSER, {"Sec-Fetch-Site": "cross-site"}, *({"Sec-Fetch-Site": "same-origin", **more} for more in ({}, BROWSER))),
        *({"Content-Type": form} for form in forms),
    ):
        own = open_client.base_url.netloc.decode()
        given = {name: value.replace("OWN", own) for name, value in headers.items()}
        answer = open_client.post(JOBS, content=b'{"name": "a"}', headers={"Content-Type": "application/json", **given})
        assert answer.status_code == 403 and queue.counts().waiting == 0


def test_a_page_of_this_site_and_what_is_no_browser_may(open_client: httpx.Client, queue: Queue) -> None:
    own = {"Origin": str(open_client.base_url).rstrip("/"), **BROWSER}
    assert open_client.post(JOBS, json={"name": "a"}, headers=own).status_code == 201
    assert open_client.post(JOBS, json={"name": "a"}).status_code == 201 and queue.counts().waiting == 2


def test_a_session_begins_and_ends_with_its_token(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    @access.public
    async def sign_in(request: Request) -> Response:
        await access.refuse_foreign(request)
        response = PlainTextResponse(access.csrf_token(request))
        access.sign_in(request, response, (await access.form_of(request))["token"])
        return response

    @access.public
    async def begin(request: Request) -> Response:
        return PlainTextResponse(access.csrf_token(request))

    own = [Route("/in", sign_in, methods=["POST"]), Route("/begin", begin, methods=["GET"])]
    monkeypatch.setattr(routes, "page_routes", lambda settings: own)
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, tokens=TOKENS)
    with served(settings) as base, httpx.Client(base_url=base, timeout=120) as client:
        begun = client.get("/begin")
        assert "HttpOnly" in begun.headers["set-cookie"] and "SameSite=Strict" in begun.headers["set-cookie"]
        csrf, origin = begun.text, {"Origin": base}
        assert client.post("/in", data={"token": OPERATE, "csrf_token": csrf}).status_code == 403, "without the Origin"
        assert client.post("/in", data={"token": OPERATE, "csrf_token": "x" * 43}, headers=origin).status_code == 403
        wrong = client.post("/in", data={"token": OPERATE + "x", "csrf_token": csrf}, headers=origin)
        assert access.SESSION_COOKIE not in wrong.cookies and client.get("/api/queues").status_code == 401
        signed = client.post("/in", data={"token": OPERATE, "csrf_token": csrf}, headers=origin)
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(signed.headers["set-cookie"].split("; "))
        assert OPERATE not in signed.headers["set-cookie"] and client.get("/api/queues").status_code == 200
        assert client.post(JOBS, json={"name": "a"}).status_code == 403
        assert client.post(JOBS, json={"name": "a"}, headers={**origin, "X-CSRF-Token": csrf}).status_code == 201
        session = client.cookies[access.SESSION_COOKIE]
        cookie = {"Cookie": f"{access.SESSION_COOKIE}={session}"}
        name, ends_s, code = session.split(".")
    changed = (f"{int(ends_s) + 1}.{code}", f"{ends_s}.{code[:-1]}", f"{ends_s}.", f"-1.{code}")
    fewer = HttpSettings(url=ironclaim_url, allow_changes=True, tokens=TOKENS[:1])
    with served(settings) as base:
        for value, status in ((session, 200), *((value, 401) for value in (*(f"{name}.{end}" for end in changed), "a.b.c"))):
            answer = httpx.get(f"{base}/api/queues", headers={"Cookie": f"{access.SESSION_COOKIE}={value}"}, timeout=120)
            assert answer.status_code == status, value
        monkeypatch.setattr(access.time, "time", lambda: time.time_ns() / 1e9 + access.LENGTH_S + 1)
        assert httpx.get(f"{base}/api/queues", headers=cookie, timeout=120).status_code == 401
    monkeypatch.undo()
    with served(fewer) as base:
        assert httpx.get(f"{base}/api/queues", headers=cookie, timeout=120).status_code == 401
    assert queue.counts().waiting == 1


# -- which host, path, headers and size


def test_only_names_of_this_server_are_answered_to(open_client: httpx.Client) -> None:
    own = ("localhost", "LOCALHOST:8080", "[::1]:8080")
    others = ("evil.example", "localhost.evil.example", "evil-localhost", "127.0.0.1.nip.example", "localhost@evil.example")
    others += ("evil.example/localhost", "localhost:80:80", "localhost.", "")
    for host, status in (*((host, 200) for host in own), *((host, 421) for host in others)):
        assert open_client.get("/api/queues", headers={"Host": host, "X-Forwarded-Host": "localhost"}).status_code == status


def raw(base: httpx.URL, request: bytes) -> bytes:
    """What a server answers to these bytes, until it closes the connection."""
    with socket.create_connection((base.host, base.port or 0), timeout=120) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts: list[bytes] = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_paths_that_two_could_read_differently_are_refused(open_client: httpx.Client) -> None:
    segments = ("%2e%2e/jobs", "../queues/q", "q%2Fjobs", "q%5cjobs", "q\\jobs", "q%00", "%ff", "q%0d%0aX:1", "q" + "a" * 3_000)
    wholes = ("/api/./queues/q", "/api//queues/q", "//evil.example/api/queues")
    for path in (*(f"/api/queues/{segment}" for segment in segments), *wholes):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        assert raw(open_client.base_url, request).split(b" ")[1] in (b"400", b"414")


def test_headers_that_two_could_read_differently_are_refused(open_client: httpx.Client, queue: Queue) -> None:
    wrong = ("Authorization: Bearer a\r\nAuthorization: Bearer b", "Host: evil.example", "Content-Length: -1")
    wrong += ("Origin: http://localhost\r\nOrigin: https://evil.example", "Content-Length: 14\r\nContent-Length: 15")
    wrong += ("Content-Length: 14\r\nTransfer-Encoding: chunked", "Cookie: a=b\r\nCookie: c=d")
    wrong += ("Idempotency-Key: a\r\nIdempotency-Key: b",)
    for lines in (*(f"Host: localhost\r\n{more}" for more in wrong), "X: y"):
        head = f"POST {JOBS} HTTP/1.1\r\n{lines}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
        answer = raw(open_client.base_url, head.encode() + b'{"name": "a"}\n')
        assert answer.split(b" ")[1] == b"400", answer
        assert queue.counts().waiting == 0


def test_a_connection_serves_on_and_requests_come_in_parts(open_client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEADERS_S", STREAM_S)
    connection = http.client.HTTPConnection(open_client.base_url.netloc.decode(), timeout=STREAM_S)
    # A stream whose headers alone are asked for ends at once.
    connection.request("HEAD", "/api/queues/q/events")
    assert connection.getresponse().read() == b""
    own, head = connection.sock, b"GET /api/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(2):
        own.sendall(head[:30])
        # One loop reads both connections, so it has read the first part by now.
        assert open_client.get("/openapi.json").status_code == 200
        own.sendall(head[30:])
        answer = http.client.HTTPResponse(own)
        answer.begin()
        assert answer.read() and answer.status == 200
    monkeypatch.setattr(serving, "HEADERS_S", 0.05)
    own.sendall(head[:30])
    assert ended(own) == b"", "the headers of a later request are waited for no longer than those of the first"
    connection.close()


def test_headers_and_bodies_are_bounded(open_client: httpx.Client, queue: Queue) -> None:
    for count, length, status in ((120, 1, 431), (90, 1, 200), (1, 17_000, 431), (1, 15_000, 200)):
        headers = {f"X-{at}": "y" * length for at in range(count)}
        assert open_client.get("/api/queues", headers=headers).status_code == status, (count, length)
    assert open_client.get("/api/queues?limit=" + "1" * 9_000).status_code == 414
    json_type = {"Content-Type": "application/json"}
    announced = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\nConnection: close\r\n\r\n"
    assert raw(open_client.base_url, announced.encode()).split(b" ")[1] == b"413"
    parts = (b"x" * 65_536 for _ in range(100))
    assert open_client.post(JOBS, content=parts, headers=json_type).status_code == 413 and queue.counts().waiting == 0


@pytest.mark.slow
def test_who_sends_or_takes_too_slowly_is_cut_off(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.enqueue_many([{"name": "a", "payload": "x" * 100_000} for _ in range(100)])
    head = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 14\r\n"
    with served(HttpSettings(url=ironclaim_url, allow_changes=True, show_payloads=True)) as base:
        address = (httpx.URL(base).host, httpx.URL(base).port or 0)
        with monkeypatch.context() as short:
            short.setattr(serving, "HEADERS_S", 0.2)
            with socket.create_connection(address, timeout=120) as silent, socket.create_connection(address, timeout=120) as half:
                half.sendall(head.encode())
                assert (ended(silent), ended(half)) == (b"", b""), "neither has sent whole headers"
        monkeypatch.setattr(shield, "BODY_S", 0.2)
        with socket.create_connection(address, timeout=120) as slow:
            slow.sendall(f"{head}\r\n{{".encode())
            assert slow.recv(100).split(b" ")[1] == b"408"
        monkeypatch.setattr(serving, "SENT_S", 0.2)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(address)
            wait_until(lambda: is_open(deaf), "the server has accepted it")
            deaf.sendall(b"GET /api/queues/q/jobs?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: not is_open(deaf), "the server has cut it off", 120)
    assert queue.counts().waiting == 100


def test_a_connection_within_the_bounds_outlives_them(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEADERS_S", 0.3)
    monkeypatch.setattr(serving, "SENT_S", 0.6)
    queue.enqueue_many([{"name": "a", "payload": "x" * 100_000, "id": f"j{at}"} for at in range(100)])
    with served(HttpSettings(url=ironclaim_url, show_payloads=True), buffer_bytes=65_536) as base:

        def stays() -> bool:
            """A slow machine may be too slow for the bounds itself, so it is tried again."""
            connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=STREAM_S)
            try:
                for path in ("/j0/result?wait_ms=500", "?limit=100", "/j0/result?wait_ms=800"):
                    connection.request("GET", f"{JOBS}{path}")
                    assert connection.getresponse().read()
            except (http.client.HTTPException, ConnectionError):
                return False
            finally:
                connection.close()
            return True

        assert wait_until(stays, "a request, and an answer that was taken, end the waits for them")


def is_open(connection: socket.socket) -> bool:
    """Whether the other end of a connection, which this process has too, is open."""
    peer = connection.getsockname()
    return any(other.raddr and tuple(other.raddr) == peer for other in psutil.Process().net_connections("tcp4"))


def ended(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection, one way or another."""
    parts: list[bytes] = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


# -- how long and how many


def test_long_polls_are_bounded_in_time_and_number(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("a", 1, id="j1")
    subscription = "/channel/c/subscription/polling/s"
    with asking(ironclaim_url, poll_max_ms=5_000, waiting_max=2, allow_changes=True, channels=ChannelSettings()) as client:
        assert client.put(subscription).is_success
        for wait_ms in ("5001", "-1", "1e3", "9" * 30, "1&wait_ms=2"):
            answer = client.get(f"{JOBS}/j1/result?wait_ms={wait_ms}")
            assert answer.status_code == 422 and answer.json()["field"] == "wait_ms", wait_ms
        with client.stream("GET", "/api/queues/q/events"), client.stream("GET", "/api/queues/q/events"):
            full = client.get(f"{JOBS}/j1/result", params={"wait_ms": 5_000})
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
            assert full.json()["detail"] == client.get(f"{subscription}?timeout=5s").json()["error"] == FULL
            assert client.get("/api/queues/q/events").status_code == 503 and client.get(f"{JOBS}/j1").status_code == 200
        assert client.get(f"{JOBS}/j1/result", params={"wait_ms": 1}).status_code in (202, 503)


# -- what is shown, and what is noted


def test_payloads_and_results_are_hidden_unless_they_may_be_seen(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("a", {"card": CARD}, id="j1", headers={"secret": CARD})
    queue.schedules.put("s", "a", {"card": CARD}, every_ms=3_600_000)
    paths = (f"{JOBS}/j1", JOBS, f"{JOBS}?text={CARD}", "/api/queues/q/schedules", f"{JOBS}/j1/result", "/api/queues/q")
    for shows in (False, True):
        with served(HttpSettings(url=ironclaim_url, tokens=TOKENS, show_payloads=shows)) as base:
            shown = [httpx.get(f"{base}{path}", headers=bearer(READ), timeout=120).text for path in paths]
        assert [(CARD in text) for text in shown] == [shows, shows, shows, shows, False, False]
        assert len(json.loads(shown[2])["jobs"]) == shows, "nor can they be guessed by asking for their text"


def test_every_change_leaves_an_audit_line(client: httpx.Client, caplog: pytest.LogCaptureFixture, audit: Any) -> None:
    client.post(JOBS, json={"name": "a", "id": "j1"}, headers=bearer(OPERATE))
    client.post(JOBS, json={"name": "a b"}, headers=bearer(OPERATE))
    client.get(JOBS, headers=bearer(READ))
    client.post(f"{JOBS}/j1/cancel", headers=bearer(READ))
    assert not any(secret in caplog.text for secret in (READ, OPERATE, ADMIN))
    told = [(line["who"], line["method"], line["path"], line["status"]) for line in audit()]
    operator = ("operator", "POST", JOBS)
    assert told == [(*operator, 201), (*operator, 422), ("reader", "POST", f"{JOBS}/j1/cancel", 403)]


LENGTHS = [(None, "1024"), (None, "0"), (413, "1025"), (413, "9" * 15), (None, "1024".zfill(15)), (413, "1024".zfill(16))]


@pytest.mark.parametrize(("status", "length"), [*LENGTHS, (400, "many"), (400, "-1"), (400, "")])
def test_a_body_is_refused_by_what_is_said_of_its_length(status: int | None, length: str) -> None:
    """Whatever the server lets through: uvicorn refuses some of it by itself."""
    settings = HttpSettings(body_max_bytes=1_024)
    refusal = shield._size_refusal({b"content-length": length.encode()}, settings)  # pyright: ignore[reportPrivateUsage]
    assert (refusal and refusal.status) == status
    both = shield._size_refusal({b"content-length": b"1", b"transfer-encoding": b"chunked"}, settings)  # pyright: ignore[reportPrivateUsage]
    assert both is not None and both.status == 400


# -- settings


def test_others_are_let_in_only_where_somebody_is_asked_who_it_is() -> None:
    for host in (*("0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.example.org", "localhost.example.org"), ""):
        refused(errors.Malformed, "host", serving.server, HttpSettings(), host=host)
        serving.check_bind(host, HttpSettings(tokens=TOKENS))
        for own in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
            serving.check_bind(own, HttpSettings())


def test_bad_settings_name_their_field() -> None:
    wrong: Any = (("url", "http://x"), ("model", "resque"), ("prefix", "a{b"), ("body_max_bytes", 0), ("poll_max_ms", 10**9))
    wrong += (("waiting_max", 0), *(("allowed_hosts", hosts) for hosts in ((), ("*",), ("a.example:80",))))
    for field, value in (*wrong, ("tokens", (TOKENS[0], TOKENS[0])), ("channels", 5)):
        assert malformed(HttpSettings, **{field: value}).field == field


def test_a_short_secret_is_refused_and_never_shown() -> None:
    assert "hunter2" not in str(malformed(Token, secret="hunter2", role="admin"))
    assert "hunter2" not in repr(Token(secret="hunter2hunter2hunter2"))
    assert malformed(Token, secret=ADMIN, name="two words").value == "two words"


@pytest.mark.parametrize("queues", ["mails", None, b"mails", 5, ("mails", 5), {"mails": 1}])
def test_queues_that_are_no_list_of_names_are_refused(queues: Any) -> None:
    """A part of a text is found in it, and None would be all queues."""
    assert malformed(Token, secret=ADMIN, queues=queues).field.partition("[")[0] == "token.queues"
    assert malformed(Access, role="read", queues=queues).field.partition("[")[0] == "access.queues"
    for role in ("root", "", None, []):
        assert "role" in malformed(Access, role=role).field


def test_a_hook_that_says_what_there_is_not_lets_nobody_in(ironclaim_url: str, queue: Queue) -> None:
    async def authorize(request: Request) -> Access | None:
        return Access(role=request.headers["x-role"], queues=request.headers.get("x-queues", ()))  # type: ignore[arg-type]

    with asking(ironclaim_url, allow_changes=True, authorize=authorize, headers=bearer(ADMIN)) as client:
        for headers in ({"X-Role": "root"}, {"X-Role": "admin", "X-Queues": "q,mails"}):
            assert client.post(JOBS, json={"name": "a"}, headers=headers).status_code == 422
        assert client.post(JOBS, json={"name": "a"}, headers={"X-Role": "operate"}).status_code == 201
    assert queue.counts().waiting == 1


def test_a_stream_ends_with_its_admission(ironclaim_url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch, audit: Any) -> None:
    """A hook is asked again: what comes afterwards is not sent any more."""
    known, asked_of = {"ada"}, [""]

    async def authorize(request: Request) -> Access | None:
        found = Access(role="read", name="ada") if request.headers.get("x-user") in known else None
        # Told once it is decided: who sees it here may change who is known.
        asked_of.append(request.url.path)
        return found

    monkeypatch.setattr(access, "ASKED_AGAIN_S", 0.0)
    queue.events.on()
    with served(HttpSettings(url=ironclaim_url, authorize=authorize)) as base:
        for path in ("/api/queues/q/events", "/queues/q/live"):
            known.add("ada")
            with httpx.stream("GET", f"{base}{path}", headers={"X-User": "ada"}, timeout=STREAM_S) as stream:
                lines = stream.iter_lines()
                next(lines)
                known.clear()
                later = f"later-than{path.replace('/', '-')}"
                queue.enqueue(later, None)
                assert not any(later in line for line in rest_of(lines)), path
        known.add("ada")
        queue.enqueue("late", None, id="late")
        with ThreadPoolExecutor(1) as pool:
            asked: Any = {"params": {"wait_ms": 25_000}, "headers": {"X-User": "ada"}, "timeout": STREAM_S}
            poll = pool.submit(httpx.get, f"{base}{JOBS}/late/result", **asked)
            soon(lambda: asked_of[-1].endswith("/result"), "the poll is let in")
            known.clear()
            queue.jobs.cancel("late")
            assert poll.result(STREAM_S).status_code == 403
    ended = audit()
    paths = ["/api/queues/q/events", "/queues/q/live", f"{JOBS}/late/result"]
    assert [(line["path"], line["status"]) for line in ended] == [(path, 403) for path in paths]
    assert all(line["refused"].startswith("no longer admitted") for line in ended)


def test_a_route_that_does_not_say_what_it_needs_is_no_application(monkeypatch: pytest.MonkeyPatch) -> None:
    async def anything(request: Request) -> Response:
        return PlainTextResponse("")

    reads, changes = access.needs("read")(anything), access.needs("read", changes=True)(anything)
    for endpoint, method in ((anything, "GET"), (reads, "POST"), (changes, "GET")):
        own = [Route("/x", endpoint, methods=[method])]
        monkeypatch.setattr(routes, "page_routes", lambda settings, own=own: own)
        refused(TypeError, "/x", application.application, HttpSettings())
