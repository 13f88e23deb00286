"""Scripts that say which of their lines ran: blocks of statements set marks, and the script writes them to the server's log."""

import json
from pathlib import Path

from tests.mutation.lua_tokens import CLOSING, OPENING, Token, begins_statement, by_line, tokens

#: What a line of the log has before the numbers of the marks.
LOGGED = b" @marks "
#: Beside the scripts: for each file, the mark of each of its lines, 0 for none.
LINES = "marks.json"

#: Goes behind the loader of the copy. The first line of a script stays the first one, and no line moves.
_WRAPPED = """

def _with_marks(script: Script, after: object = Script.__post_init__) -> None:
    first, _, body = script.text.partition("\\n")
    object.__setattr__(
        script,
        "text",
        f"{first}\\nlocal _marks = {{}} local function _script() {body}\\nend local ran, reply = pcall(_script) local set = {{}} "
        "for mark in pairs(_marks) do set[#set + 1] = mark end "
        "redis.log(redis.LOG_WARNING, '@marks ' .. table.concat(set, ' ')) if not ran then error(reply, 0) end return reply\\n",
    )
    after(script)


Script.__post_init__ = _with_marks
_KNOWN |= {"_marks"}
"""


def put_marks(tree: Path) -> None:
    """Change the scripts and the loader of a copy of the tree."""
    lines: dict[str, list[int]] = {}
    last = 0
    for path in sorted((tree / "lua").rglob("*.lua")):
        marked, marks = mark(path.read_text(), last)
        if path.parent.name == "published":
            continue
        path.write_text(marked)
        lines[str(path.relative_to(tree))] = marks
        last = max((last, *marks))
    (tree / LINES).write_text(json.dumps(lines))
    loader = tree / "engine" / "redis" / "scripts.py"
    loader.write_text(loader.read_text() + _WRAPPED)


def mark(text: str, last: int) -> tuple[str, list[int]]:
    """The text with marks from `last + 1` on, and the mark that each of its lines has, 0 for none.

    A line has the mark of its block: a mark is set where a block begins, and behind each block inside of it, as that one may
    have returned.
    """
    lines = text.split("\n")
    marks, module = [0] * len(lines), not text.startswith("#!")
    blocks, due = [0], True
    for before, line, _ in by_line(tokens(text)):
        at = line[0].line - 1
        marked = lines[at].startswith(" ") or not module
        if due and marked and begins_statement(before, line[0]):
            last += 1
            blocks[-1], due = last, False
            indent = len(lines[at]) - len(lines[at].lstrip())
            lines[at] = f"{lines[at][:indent]}_marks[{last}] = 1; {lines[at][indent:]}"
        marks[at] = blocks[-1] if line[0].text not in ("else", "elseif") else blocks[-2]
        due = _follow(line, blocks) or due
    for at, text_line in enumerate(lines[1:], 1):
        if not marks[at] and text_line.strip():
            marks[at] = marks[at - 1]
    return "\n".join(lines), marks


def _follow(line: list[Token], blocks: list[int]) -> bool:
    """Open and close the blocks of a line; whether the next statement needs a mark of its own."""
    changed = False
    for token in line:
        if token.text in CLOSING:
            blocks.pop()
        if token.text in OPENING:
            blocks.append(blocks[-1])
        changed = changed or token.text in OPENING or token.text in CLOSING or token.text in ("else", "elseif")
    return changed
