"""The contents of messages as bytes and back, spelled as the original spells them (wire-models 6.1): compact
JSON in UTF-8 with `<`, `>`, `&`, U+2028 and U+2029 escaped. Number spelling, duplicate keys and other
characters of raw JSON stay as they are."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, NoReturn, cast

from engine import validate
from engine.errors import Malformed, describe

#: Of one message, as it is stored.
CONTENT_BYTES_MAX = 512 * 1024

_BOUND = (
    f"a JSON value, or RawJson of its text, of at most {CONTENT_BYTES_MAX} bytes, nested at most "
    f"{validate.NESTING_MAX} deep"
)
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_TO_ESCAPE = re.compile("[<>&\u2028\u2029]")
#: A string of valid JSON; or what begins or ends a list or an object; or space between tokens.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BRACKETS = re.compile(_STRING + r"|([\[{])|([\]}])")
_SPACE = re.compile(rf"({_STRING})|[ \t\n\r]+")


class RawJson:
    """JSON as text or UTF-8 bytes, to be published as it is spelled, without the space between its tokens.
    Raises Malformed for what is no JSON."""

    __slots__ = ("text",)

    def __init__(self, text: str | bytes) -> None:
        self.text = _read(text)

    def compact(self) -> str:
        """The JSON without white space between its tokens."""
        return _SPACE.sub(lambda found: found.group(1) or "", self.text)

    def __repr__(self) -> str:
        return f"RawJson({self.text!r})"


def written(content: object) -> bytes:
    """The bytes of a content. Raises Malformed."""
    try:
        text = content.compact() if isinstance(content, RawJson) else validate.json_text(content)
        if _TO_ESCAPE.search(text) is not None:
            # These characters occur in strings only.
            text = _TO_ESCAPE.sub(lambda found: _ESCAPES[found.group()], text)
        data = text.encode()
    except Exception as error:
        raise Malformed("content", content, f"{_BOUND} ({describe(error)})", private=True) from error
    if len(data) > CONTENT_BYTES_MAX:
        raise Malformed("content", f"{len(data)} bytes", _BOUND)
    if (
        text.count("[") + text.count("{") > validate.NESTING_MAX
        and (nesting := _nesting(text)) > validate.NESTING_MAX
    ):
        raise Malformed("content", f"JSON nested {nesting} deep", _BOUND)
    return data


def _nesting(text: str) -> int:
    """How deep lists and objects of valid JSON are nested."""
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        depth += (found.lastindex == 1) - (found.lastindex == 2)
        deepest = max(deepest, depth)
    return deepest


def read(body: bytes) -> tuple[str, Any] | None:
    """Id and content of a stored body; None for one that is not in this format."""
    try:
        found = _read_body(body)
    except ValueError:
        return None
    except RecursionError:
        found = _read_on_an_empty_stack(body)
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    id = fields.get("id")
    if not isinstance(id, str) or "content" not in fields:
        return None
    return id, fields["content"]


def spelled(id: str, body: bytes) -> bytes:
    """The content of a stored body as it is spelled there; b'' for a body in another order or with spaces."""
    start = b'{"id":"%b","content":' % id.encode()
    return body[len(start) : -1] if body.startswith(start) and body.endswith(b"}") else b""


def _read_on_an_empty_stack(body: bytes) -> object:
    """Python counts the caller's frames as well: a message must not be skipped because its consumer calls
    from deep within."""
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(_read_body, body).result()
        except (ValueError, RecursionError):
            return None


def _read_body(body: bytes) -> object:
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        raise
    except ValueError:
        # Python takes no whole numbers of more than 4,300 digits from a text.
        return json.loads(body, parse_int=_whole_number)


def _whole_number(spelling: str) -> int | Decimal:
    try:
        return int(spelling)
    except ValueError:
        return Decimal(spelling)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _number(spelling: str) -> None:
    """Keep a number as it is spelled, however large."""


#: Reads for errors alone. Python's own reader takes NaN and the infinities.
_checker = json.JSONDecoder(parse_constant=_refuse, parse_int=_number, parse_float=_number)


def _read(text: object) -> str:
    bound = f"JSON of at most {CONTENT_BYTES_MAX} bytes as text, or as bytes in UTF-8"
    if not isinstance(text, str | bytes):
        raise Malformed("content", text, bound, private=True)
    try:
        found = text.decode() if isinstance(text, bytes) else text
        found.encode()
        _checker.decode(found)
    except (ValueError, RecursionError) as error:
        raise Malformed("content", text, f"{bound} ({error})", private=True) from error
    return found
