"""One-line edits of Lua: defects as people make them."""

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import redis

from chaos.planting import layers_around, without_unused
from engine.errors import ScriptFault
from engine.redis.scripts import load_script
from tests.mutation.edits import ROOT, Candidate, Edit, changed
from tests.mutation.lua_tokens import CLOSING, KEYWORDS, OPENING, Token, begins_statement, by_line, tokens

#: What the loader checks by itself, and texts for people.
_LEFT_ALONE = re.compile(r"^local \w+ = (?:tonumber\()?(?:KEYS|ARGV)\[\d+\]\)?$|\berror\(|error_reply|redis\.log")
_FLAGS = frozenset({"'NX'", "'XX'", "'GT'", "'LT'", "'KEEPTTL'", "'REV'"})
_INSTEAD = {
    "boundary": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
    "equality": {"==": "~=", "~=": "=="},
    "arithmetic": {"+": "-", "-": "+", "*": "+"},
    "logic": {"and": "or", "or": "and"},
    "function": {"min": "max", "max": "min", "floor": "ceil"},
    "literal": {"true": "false", "false": "true"},
    "command": {
        **{"'LPUSH'": "'RPUSH'", "'RPUSH'": "'LPUSH'", "'LPOP'": "'RPOP'", "'RPOP'": "'LPOP'", "'HSETNX'": "'HSET'"},
        **{"'ZRANGE'": "'ZREVRANGE'", "'PXAT'": "'EXAT'", "'PX'": "'EX'"},
    },
}
_SMALL = 10_000
#: Edits that change nothing: a text begins at byte 1 for 0, too, and a piece that is too long repeats words of the next one.
_SAME = {"0": re.compile(r"string\.(?:sub|byte)\([^,]*, $"), "+": re.compile(r"at \+ PIECE $")}
#: What comes to the same in whatever order it is named.
_UNORDERED = frozenset({"min", "max", "'EXISTS'", "'DEL'", "'UNLINK'"})

#: Operator, first and last character of the text that goes, and the text that comes.
_Span = tuple[str, int, int, str]


def find(text: str) -> Iterator[Candidate]:
    """What might be edited in a script or a module."""
    lines, found, at = text.split("\n"), tokens(text), 0
    for before, line, after in by_line(found):
        at += len(line)
        whole = lines[line[0].line - 1]
        outer = not text.startswith("#!") and not whole.startswith(" ")
        if outer or _LEFT_ALONE.search(whole) or line[-1].end > line[0].start + len(whole):
            continue
        first = text.rfind("\n", 0, line[0].start) + 1
        for operator, start, end, new in (*_of_tokens(found[max(0, at - len(line) - 1) : at + 1], line), *_of_line(text, line)):
            if new in _SAME and _SAME[new].search(whole[: start - first]):
                continue
            yield Candidate(line[0].line, start - first, operator, whole[: start - first] + new + whole[end - first :])
        if (operator := _dropped(before, line, after)) is not None:
            yield Candidate(line[0].line, 0, operator, "")


def _of_tokens(around: list[Token], line: list[Token]) -> Iterator[_Span]:
    """Edits of single tokens."""
    for token in line:
        at = around.index(token)
        before = around[at - 1].text if at else ""
        word, start, end = token.text, token.start, token.end
        unary = word in ("-", "+", "*") and not (at and _is_value(around[at - 1]))
        member = word in _INSTEAD["function"] and before != "."
        for operator, instead in _INSTEAD.items():
            if word in instead and not unary and not member:
                yield operator, start, end, instead[word]
        if word == "not" and at + 1 < len(around):
            yield "not", start, around[at + 1].start, ""
        if word in _FLAGS and before == ",":
            yield "flag", around[at - 1].start, end, ""
        if word.isdigit():
            for value in (int(word) + 1, int(word) - 1) if int(word) < _SMALL else (int(word) // 2,):
                if value >= 0 and (before != "[" or value):
                    yield "constant", start, end, str(value)
        if token.kind == "string" and len(word) > 2 and before in ("==", "~=", "=", "and", "or", "return"):
            yield "literal", start, end, "''"


def _is_value(token: Token) -> bool:
    return token.kind in ("number", "string") or token.text in (")", "]") or (token.kind == "name" and token.text not in KEYWORDS)


def _of_line(text: str, line: list[Token]) -> Iterator[_Span]:
    """Edits of several tokens: a condition the other way round, two arguments swapped."""
    words = [token.text for token in line]
    for at, token in enumerate(line):
        if token.text in ("if", "elseif") and "then" in words[at:]:
            start, end = line[at + 1].start, line[words.index("then", at) - 1].end
            yield "condition", start, end, f"not ({text[start:end]})"
        if token.text == "(" and at and line[at - 1].kind == "name" and line[at - 1].text not in KEYWORDS:
            arguments = _arguments(line[at + 1 :], token.depth + 1)
            if words[at - 1] in ("call", "pcall"):
                del arguments[:1]
            if "function" in words[max(0, at - 2) : at] or _UNORDERED & {words[at - 1], words[at + 1]}:
                continue
            for one, other in pairwise(arguments):
                first, second = text[one[0].start : one[-1].end], text[other[0].start : other[-1].end]
                # Arguments that look alike are those that people mix up.
                alike = len(one) == len(other) == 1 and one[0].kind == other[0].kind != "sign"
                if alike and first != second:
                    between = text[one[-1].end : other[0].start]
                    yield "arguments", one[0].start, other[-1].end, second + between + first


def _arguments(line: list[Token], depth: int) -> list[list[Token]]:
    """The arguments of a call that ends on its line, each as its tokens."""
    parts: list[list[Token]] = [[]]
    for token in line:
        if token.depth < depth:
            return parts if all(parts) else []
        if token.text == "," and token.depth == depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return []


def _dropped(before: Token | None, line: list[Token], after: Token | None) -> str | None:
    """The operator that drops the line; None when it is no whole statement, or one whose loss the compiler would see."""
    words = [token.text for token in line]
    complete = after is not None and (after.text in ("else", "elseif", *CLOSING) or begins_statement(line[-1], after))
    closed = sum(word in OPENING for word in words) == sum(word in CLOSING for word in words)
    if not complete or not closed or not begins_statement(before, line[0]):
        return None
    if words[0] in ("return", "break"):
        return "exit dropped" if before and before.text in ("then", "else") else None
    if words[0] == "if":
        return "guard dropped"
    if words[0] in KEYWORDS:
        return None
    return "assignment dropped" if any(token.text == "=" and not token.depth for token in line) else "call dropped"


class Loading:
    """Whether edited scripts still load: by the engine's loader, and by a server. `folder`: where its copy of them goes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._server = redis.Redis.from_url(url)
        self._lua = folder / "lua"
        shutil.copytree(ROOT / "lua", self._lua)

    def accepts(self, edit: Edit) -> bool:
        """Whether the edited files, all of Lua, load."""
        try:
            return all(self._loads(change.file.removeprefix("lua/"), edit) for change in edit.changes)
        except (ScriptFault, redis.ResponseError):
            return False

    def _loads(self, file: str, edit: Edit) -> bool:
        path, clean = self._lua / file, (ROOT / "lua" / file).read_text()
        changes = [change for change in edit.changes if change.file == f"lua/{file}"]
        path.write_text(without_unused(changed(clean, changes)))
        try:
            module = path.parent.name == "modules"
            text = path.read_text() if module else load_script(path, layers_around(path, self._lua)).text
            self._server.script_load(text)
        finally:
            path.write_text(clean)
        return True
