"""Roles, the access that a request has, and the tokens that give it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from engine import validate
from engine.errors import Malformed
from engine.validate import settle

#: Each role may also do what those before it may.
Role = Literal["read", "operate", "admin"]
_RANKS: dict[str, int] = {role: rank for rank, role in enumerate(get_args(Role))}

#: A token is a secret, not a word: 16 hexadecimal digits have 64 bits.
TOKEN_CHARACTERS_LEAST, TOKEN_CHARACTERS_MAX = 16, 512
_TOKEN = re.compile(rf"[\x21-\x7e]{{{TOKEN_CHARACTERS_LEAST},{TOKEN_CHARACTERS_MAX}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request may do. `queues`: on these queues and channels alone, () = on all. `name` is for the audit line. `ambient`:
    a browser shows it by itself with every request, as a cookie or because nobody is asked, so another site's page could make
    it do so."""

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
    """A secret that a caller shows as `Authorization: Bearer SECRET`, and what it allows: a role, on these queues and channels
    alone where any are named. `name` stands in audit lines."""

    secret: str = field(repr=False)
    role: Role = "read"
    queues: tuple[str, ...] = ()
    name: str = "token"

    def __post_init__(self) -> None:
        _check_bounds("token", self.role, self.queues)
        settle(self, "token.")
        if not _TOKEN.fullmatch(self.secret):
            bound = f"{TOKEN_CHARACTERS_LEAST} to {TOKEN_CHARACTERS_MAX} visible ASCII characters"
            raise Malformed("token.secret", f"{len(self.secret)} characters", bound)
        for queue in self.queues:
            validate.any_text("token.queues", queue)
        validate.worker_name(self.name)

    def access(self, *, ambient: bool) -> Access:
        """What it allows."""
        return Access(role=self.role, queues=self.queues, name=self.name, ambient=ambient)


def _check_bounds(what: str, role: object, queues: object) -> None:
    """Raise Malformed for a role that there is not, and for queues that are no list: in a text each part of it is found."""
    if validate.plain_text(role) not in _RANKS:
        raise Malformed(f"{what}.role", role, f"one of {', '.join(_RANKS)}")
    bound = "a tuple of names; () for all queues"
    validate.instance(f"{what}.queues", queues, cast("type[object]", (tuple, list, set, frozenset)), bound)
