"""Lua 5.1 cut into tokens, as far as edits and marks need it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<comment>--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*)"
    r"|(?P<string>\[(?P<s>=*)\[.*?\](?P=s)\]|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<number>0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.\.|\.\.|[=~<>]=|[^\s\w])",
    re.DOTALL,
)

OPENING, CLOSING = frozenset({"if", "function", "do", "repeat"}), frozenset({"end", "until"})
_BEGINNING = frozenset({"if", "for", "while", "repeat", "local", "return", "break", "do", "function"})
_GOING_ON = frozenset({"then", "else", "elseif", "end", "until", "and", "or", "not", "in", "nil", "true", "false"})
KEYWORDS = _BEGINNING | _GOING_ON
#: What a statement may follow, beside names, numbers and strings.
_BEFORE = frozenset({"then", "else", "do", "repeat", "end", ";", ")", "]", "}", "...", "break", "nil", "true", "false"})


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its kind (string, number, name or sign), its place in the text, its line (the first is 1), and how many
    brackets are open before it."""

    kind: str
    text: str
    start: int
    end: int
    line: int
    depth: int


def tokens(text: str) -> list[Token]:
    """All tokens without the comments and without a script's first line, `#!lua`."""
    found: list[Token] = []
    at, line, depth = (text.find("\n") if text.startswith("#!") else 0), 1, 0
    for match in _TOKEN.finditer(text, at):
        line += text.count("\n", at, match.start())
        at, kind = match.start(), match.lastgroup or ""
        kind = {"c": "comment", "s": "string"}.get(kind, kind)
        if kind == "comment":
            continue
        word = match.group()
        depth -= word in (")", "]", "}")
        found.append(Token(kind, word, match.start(), match.end(), line, depth))
        depth += word in ("(", "[", "{")
    return found


def by_line(found: list[Token]) -> Iterator[tuple[Token | None, list[Token], Token | None]]:
    """Line by line: the token before it, its tokens, the token after it."""
    start = 0
    while start < len(found):
        end = start
        while end < len(found) and found[end].line == found[start].line:
            end += 1
        yield (found[start - 1] if start else None), found[start:end], (found[end] if end < len(found) else None)
        start = end


def begins_statement(before: Token | None, token: Token) -> bool:
    """Whether a statement begins with the first token of a line."""
    if token.depth or (token.kind != "name" and token.text != "(") or token.text in _GOING_ON:
        return False
    if token.text in _BEGINNING:
        # `local x =` may be followed by a function on the next line.
        return token.text != "function" or before is None or before.text not in ("=", ",", "(", "return")
    return before is None or before.text in _BEFORE or (before.kind != "sign" and before.text not in KEYWORDS)
