"""The settings of the HTTP interface, checked in one place and before any I/O."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from engine import models, validate
from engine.errors import Malformed, counted
from engine.models import Spec, bind, named
from engine.queue.metrics import Scaling
from engine.redis.endpoint import Endpoint
from engine.validate import settle

if TYPE_CHECKING:
    from starlette.requests import Request

    from engine.http.channels.settings import ChannelSettings


# -- Roles, the access that a request has, and the tokens that give it.

#: Each role may also do what those before it may.
Role = Literal["read", "operate", "admin"]
_RANKS: dict[str, int] = {role: rank for rank, role in enumerate(get_args(Role))}

#: A token is a secret, not a word: 16 hexadecimal digits have 64 bits.
TOKEN_CHARACTERS_LEAST, TOKEN_CHARACTERS_MAX = 16, 512
_TOKEN = re.compile(rf"[\x21-\x7e]{{{TOKEN_CHARACTERS_LEAST},{TOKEN_CHARACTERS_MAX}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request may do. `queues`: on these queues and channels alone, () = on all. `name` is for the
    audit line. `ambient`: a browser shows it by itself with every request, as a cookie or because nobody is
    asked. So a page of another site could make the browser show it."""

    role: Role
    queues: tuple[str, ...] = ()
    name: str = ""
    ambient: bool = False

    def __post_init__(self) -> None:
        _check_bounds("access", self.role, self.queues)
        settle(self, "access.")

    def may(self, role: Role) -> bool:
        """Whether it has this role."""
        return _RANKS[self.role] >= _RANKS[role]

    def reaches(self, queue: str) -> bool:
        """Whether it reaches the queue or channel of this name."""
        return not self.queues or queue in self.queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A secret that a caller shows as `Authorization: Bearer SECRET`, and what it allows: a role, on these
    queues and channels alone where any are named. `name` stands in audit lines."""

    secret: str = field(repr=False)
    role: Role = "read"
    queues: tuple[str, ...] = ()
    name: str = "token"

    def __post_init__(self) -> None:
        _check_bounds("token", self.role, self.queues)
        settle(self, "token.")
        if not _TOKEN.fullmatch(self.secret):
            bound = f"{TOKEN_CHARACTERS_LEAST} to {TOKEN_CHARACTERS_MAX} visible ASCII characters"
            raise Malformed("token.secret", counted(len(self.secret), "character"), bound)
        for queue in self.queues:
            validate.any_text("token.queues", queue)
        validate.worker_name(self.name)

    def access(self, *, ambient: bool) -> Access:
        """What it allows."""
        return Access(role=self.role, queues=self.queues, name=self.name, ambient=ambient)


def _check_bounds(what: str, role: object, queues: object) -> None:
    """Raise Malformed for a role that there is not, and for queues that are no list: in a text each part of
    it is found."""
    if validate.plain_text(role) not in _RANKS:
        raise Malformed(f"{what}.role", role, f"one of {', '.join(_RANKS)}")
    bound = "a tuple of names; () for all queues"
    validate.instance(f"{what}.queues", queues, cast("type[object]", (tuple, list, set, frozenset)), bound)


BODY_BYTES_LEAST, BODY_BYTES_MAX = 1_024, 64 * 1024 * 1024
POLL_MS_MAX = 600_000
WAITING_MAX = 100_000
#: A name or an address, without a port: the port is that of a proxy as often as not.
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What the HTTP interface serves, and to whom. Nothing is changed unless `allow_changes` is set, and no
    payload is shown unless `show_payloads` is.

    `url`, `model` (`lanes`, `bull`, `bananas:live` and so on) and `prefix` say where the queues are.
    `tokens`: who may do what. `authorize`: a hook for a service that mounts the application and has its own
    users. It returns the access of a request; None refuses the request. Without either
    everybody has every role, which `ironclaim serve` allows on a loopback address only. `allowed_hosts`:
    names without ports that a `Host` header may have. `poll_max_ms` bounds each long poll, and `waiting_max`
    how many requests may wait at once, long polls and readers of events together. `channels`: DSPS channels
    are served where it is given. `runs`: the folder of drills whose reports the page lists. `scaling`: what
    `ironclaim_wanted_workers` of each queue's metrics aims at.
    """

    url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    model: str = "lanes"
    prefix: str | None = None
    allow_changes: bool = False
    show_payloads: bool = False
    tokens: tuple[Token, ...] = ()
    authorize: Callable[[Request], Awaitable[Access | None]] | None = None
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    body_max_bytes: int = 1_048_576
    poll_max_ms: int = 60_000
    waiting_max: int = 5_000
    channels: ChannelSettings | None = None
    runs: Path | None = None
    scaling: Scaling = field(default_factory=Scaling)

    def __post_init__(self) -> None:
        settle(
            self,
            tokens=Token,
            authorize=callable,
            body_max_bytes=(BODY_BYTES_LEAST, BODY_BYTES_MAX),
            poll_max_ms=(1, POLL_MS_MAX),
            waiting_max=(1, WAITING_MAX),
            runs=Path,
            scaling=Scaling,
        )
        if self.channels is not None:
            # Who has some has loaded what they need.
            from engine.http.channels.settings import ChannelSettings

            validate.instance("channels", self.channels, ChannelSettings, "ChannelSettings, or None")
        Endpoint(self.url, asynchronous=True)
        bind(self.spec, "any", self.prefix, None)
        if not self.allowed_hosts:
            raise Malformed("allowed_hosts", self.allowed_hosts, "at least one name")
        for host in self.allowed_hosts:
            if not _HOST.fullmatch(host):
                raise Malformed(
                    "allowed_hosts",
                    host,
                    "a name or an address without a port, such as jobs.example.org or [::1]",
                )
        if len({token.secret for token in self.tokens}) != len(self.tokens):
            raise Malformed("tokens", f"{len(self.tokens)} tokens", "tokens with different secrets")

    @property
    def spec(self) -> Spec:
        """The data model of the queues. Raises Malformed."""
        return named(self.model)

    @property
    def keyspace(self) -> str:
        """The name of the one queue that all names stand for. Those formats have one queue in a keyspace, and
        the name in a path is not in its keys. '' for formats that keep queues apart."""
        spec = self.spec
        return type(spec).__name__.lower() if isinstance(spec, models.Bananas | models.Bridge) else ""

    def may_be_elsewhere(self, id: str) -> bool:
        """Whether this job may have the key of another queue's job. In Bull, `x:1` of `mails` has the key of
        `1` of `mails:x`. Its own ids are numbers, also those of jobs that schedules make."""
        return isinstance(self.spec, models.Bull) and ":" in id

    @property
    def shares_ids(self) -> bool:
        """Whether ids and texts of `dedup` are of all queues together: in Mosquito they name keys that the
        queue is not in."""
        return isinstance(self.spec, models.Mosquito)

    @property
    def asks_who(self) -> bool:
        """Whether a caller has to show who it is."""
        return bool(self.tokens) or self.authorize is not None
