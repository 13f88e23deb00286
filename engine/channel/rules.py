"""Settings of channels by their names, as the original has them: rules with regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from engine import validate
from engine.errors import Malformed
from engine.validate import settle

#: Ten years.
EXPIRE_MS_MAX = 10 * 366 * 86_400_000
#: What keys live longer than messages are promised to.
_MARGIN_MS = 15_000


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """Channels whose whole name matches `pattern`, a regular expression, keep messages for at least `expire_ms` after they were
    published; themselves and their subscribers as long after they were used last. Raises Malformed."""

    pattern: str = ".+"
    expire_ms: int = 1_800_000

    def __post_init__(self) -> None:
        settle(self, expire_ms=(0, EXPIRE_MS_MAX))
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise Malformed("pattern", self.pattern, f"a regular expression ({error})") from error


def checked(rules: object) -> tuple[ChannelRule, ...]:
    """At least one rule; the default one for None. Raises Malformed."""
    if rules is None:
        return (ChannelRule(),)
    bound = "a sequence of at least one ChannelRule"
    found = tuple(validate.items("rules", rules, bound))
    if not found or not all(isinstance(rule, ChannelRule) for rule in found):
        raise Malformed("rules", found, bound)
    return cast("tuple[ChannelRule, ...]", found)


def expire_ms(rules: Iterable[ChannelRule], channel: str) -> int:
    """How long messages of this channel are kept: the longest time of all rules that match. Raises Malformed when none does."""
    found = [rule.expire_ms for rule in rules if re.fullmatch(rule.pattern, channel)]
    if not found:
        raise Malformed("channel", channel, "a name that the pattern of one of the rules matches")
    return max(found)


def ttl_s(expire_ms: int) -> int:
    """The time to live of a channel's keys, in whole seconds: `expire_ms` with DSPS's margin, rounded up."""
    return -(-(expire_ms + _MARGIN_MS) // 1000)
