"""Contents of messages as bytes and back, spelled as the original spells them (wire-models 6.1)."""

import json
import sys
from decimal import Decimal
from typing import Any

from engine.channel import contents
from engine.channel.contents import CONTENT_BYTES_MAX, RawJson
from engine.errors import Malformed
from engine.validate import NESTING_MAX
from tests.engine.helpers.producing import refused


def test_a_value_is_written_compact_and_escaped() -> None:
    for content, spelled in (
        ({"text": "hello!", "n": [1, 2.5, None, True]}, '{"text":"hello!","n":[1,2.5,null,true]}'), (None, "null"),
        (False, "false"), ("", '""'), (-(2**63), "-9223372036854775808"),
        ("<b>a&b</b>", '"\\u003cb\\u003ea\\u0026b\\u003c/b\\u003e"'), ("\u2028\u2029", '"\\u2028\\u2029"'),
        ({"<": "é€𝄞\x7f"}, '{"\\u003c":"é€𝄞\x7f"}'), ('a"\\\n', '"a\\"\\\\\\n"'), ((1, {2: 3}), '[1,{"2":3}]'),
    ):  # fmt: skip
        assert contents.written(content) == spelled.encode()


def test_raw_json_keeps_its_spelling_and_loses_its_spaces() -> None:
    for raw, spelled in (
        (b' { "a" : 1.0 , "a" : 1e2 ,\n"b c":[ 1 ,\t2 ] }\r\n', '{"a":1.0,"a":1e2,"b c":[1,2]}'),
        ('"  spaces : stay, \\" <&> \u2028 "', '"  spaces : stay, \\" \\u003c\\u0026\\u003e \\u2028 "'),
        ('["\\u00e9","\\/","é"]', '["\\u00e9","\\/","é"]'), ("-0.10E+05", "-0.10E+05"), ("1" * 5000, "1" * 5000),
        ('"\\\\" ', '"\\\\"'), ('["\\\\" , "x"]', '["\\\\","x"]'), ('"\\ud800"', '"\\ud800"'),
    ):  # fmt: skip
        assert contents.written(RawJson(raw)) == spelled.encode()


def test_what_is_no_json_is_refused() -> None:
    numbers = (float("nan"), float("inf"), [float("-inf")], 10**5000)
    for content in (*numbers, b"{}", object(), {1, 2}, {"a": {"b": b""}}, {(1, 2): 3}, "\ud800"):
        told = refused(Malformed, None, contents.written, content)
        assert told.field == "content" and f"at most {CONTENT_BYTES_MAX} bytes" in str(told)


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


def test_raw_json_that_is_none_is_refused() -> None:
    raw: Any
    for raw in (
        *(b"", b" ", b"{", b"{]}", b'{"a":1,}', b"[1,]", b"'a'", b"NaN", b"[Infinity]", b"-Infinity", b"01", b"1.", b".5", b"+1"),
        *(b"1 2", b'"\xff"', b'"\x00"', b'"a\nb"', b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16"), '"\ud800"', "\u0661"),
        *("\u00a01", b"nul", b"{a:1}", None, 5, {"a": 1}, bytearray(b"{}")),
    ):
        assert refused(Malformed, None, RawJson, raw).field == "content"


def test_the_largest_content_is_taken_and_one_byte_more_is_not() -> None:
    assert len(contents.written("x" * (CONTENT_BYTES_MAX - 2))) == CONTENT_BYTES_MAX
    for content in ("x" * (CONTENT_BYTES_MAX - 1), RawJson('"' + "x" * (CONTENT_BYTES_MAX - 1) + '"')):
        refused(Malformed, f"{CONTENT_BYTES_MAX + 1} bytes", contents.written, content)
    # What counts is how it is stored.
    refused(Malformed, "content", contents.written, "<" * (CONTENT_BYTES_MAX // 3))
    assert contents.written(RawJson(" " * CONTENT_BYTES_MAX + "1")) == b"1"


def test_bodies_are_read_also_those_of_others() -> None:
    long, minus = "9" * 5_000, "-" + "7" * 4_301
    none = (b'{"id":"a"}', b'{"content":1}', b'{"id":5,"content":1}', b'["a",1]', b"new message", b"\xff\xfe", b"")
    for body, found in (
        (b'{"id":"a","content":{"b":[1]}}', ("a", {"b": [1]})), (b'{ "content" : null, "id" : "a", "more" : 1 }', ("a", None)),
        (f'{{"id":"a","content":[1,{long},{minus}]}}'.encode(), ("a", [1, Decimal(long), Decimal(minus)])),
        *((body, None) for body in (*none, b"[" * 100_000)),
    ):  # fmt: skip
        assert contents.read(body) == found
