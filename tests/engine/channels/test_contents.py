"""Contents of messages as bytes and back, spelled as the original spells them (wire-models 6.1)."""

import json
import sys
from decimal import Decimal
from typing import Any

from engine.channel import contents
from engine.channel.contents import CONTENT_BYTES_MAX, RawJson
from engine.errors import Malformed
from engine.validate import NESTING_MAX
from tests import golden
from tests.engine.helpers.producing import refused


def written_raw(text: str | bytes) -> bytes:
    return contents.written(RawJson(text))


def test_how_contents_are_written_and_bodies_are_read() -> None:
    """A value compact and escaped; what is raw keeps its spelling and loses its spaces; a body of others is read as well."""
    some: list[Any] = [{"text": "hello!", "n": [1, 2.5, None, True]}, None, False, "", -(2**63), "<b>a&b</b>", "\u2028\u2029"]
    some += [{"<": "é€𝄞\x7f"}, 'a"\\\n', ((1, {2: 3}),)]
    raw = [b' { "a" : 1.0 , "a" : 1e2 ,\n"b c":[ 1 ,\t2 ] }\r\n', '"  spaces : stay, \\" <&> \u2028 "', '["\\u00e9","\\/","é"]']
    raw += ["-0.10E+05", '"\\\\" ', '["\\\\" , "x"]', '"\\ud800"']
    bodies = [b'{"id":"a","content":{"b":[1]}}', b'{ "content" : null, "id" : "a", "more" : 1 }', b'{"id":"a"}', b'{"content":1}']
    bodies += [b'{"id":5,"content":1}', b'["a",1]', b"new message", b"\xff\xfe", b""]
    told = golden.answers([(contents.written, some), (written_raw, raw), (contents.read, bodies)])
    golden.same("engine/contents.txt", "".join(f"{what}: {found!r}\n" for what, found in told))
    long, minus = "9" * 5_000, "-" + "7" * 4_301
    assert written_raw(long) == long.encode() and contents.read(b"[" * 100_000) is None
    body = f'{{"id":"a","content":[1,{long},{minus}]}}'
    assert contents.read(body.encode()) == ("a", [1, Decimal(long), Decimal(minus)])


def test_what_is_too_deep_or_refers_to_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for content in (ring, deep):
        refused(Malformed, "content", contents.written, content)
    refused(Malformed, "content", RawJson, "[" * 100_000 + "]" * 100_000)


def test_what_is_nested_deeper_than_any_consumer_reads_is_refused() -> None:
    def nested(depth: int) -> RawJson:
        return RawJson('{"a":[' * (depth // 2) + "[" * (depth % 2) + "]" * (depth % 2) + "]}" * (depth // 2))

    for depth in (NESTING_MAX - 1, NESTING_MAX):
        assert contents.written(nested(depth)) == nested(depth).text.encode()
    refused(Malformed, f"JSON nested {NESTING_MAX + 1} deep", contents.written, nested(NESTING_MAX + 1))
    # Not how many there are counts, nor what is in strings.
    wide = [[[']\\"[']] * NESTING_MAX, "[{" * NESTING_MAX]
    assert json.loads(contents.written(wide)) == wide


def test_a_deep_content_is_read_from_deep_within_as_well() -> None:
    deepest: list[Any] = []
    for _ in range(NESTING_MAX - 1):
        deepest = [deepest]
    body = b'{"id":"a","content":%b}' % contents.written(deepest)

    def read(frames: int) -> Any:
        return contents.read(body) if frames == 0 else read(frames - 1)

    assert read(sys.getrecursionlimit() * 3 // 5) == ("a", deepest)


def test_the_largest_content_is_taken_and_one_byte_more_is_not() -> None:
    assert len(contents.written("x" * (CONTENT_BYTES_MAX - 2))) == CONTENT_BYTES_MAX
    for content in ("x" * (CONTENT_BYTES_MAX - 1), RawJson('"' + "x" * (CONTENT_BYTES_MAX - 1) + '"')):
        refused(Malformed, f"{CONTENT_BYTES_MAX + 1} bytes", contents.written, content)
    # What counts is how it is stored.
    refused(Malformed, "content", contents.written, "<" * (CONTENT_BYTES_MAX // 3))
    assert contents.written(RawJson(" " * CONTENT_BYTES_MAX + "1")) == b"1"
