"""One-line edits of Python: defects as people make them."""

import ast
from collections.abc import Iterator

from tests.mutation.edits import Candidate

_COMPARED: dict[type[ast.AST], tuple[str, str, str]] = {
    **{ast.Lt: ("boundary", "<", "<="), ast.LtE: ("boundary", "<=", "<"), ast.Gt: ("boundary", ">", ">=")},
    **{ast.GtE: ("boundary", ">=", ">"), ast.Eq: ("equality", "==", "!=")},
    **{ast.NotEq: ("equality", "!=", "=="), ast.Is: ("equality", "is", "is not")},
    **{ast.IsNot: ("equality", "is not", "is"), ast.In: ("equality", "in", "not in")},
    ast.NotIn: ("equality", "not in", "in"),
}
_ARITHMETIC: dict[type[ast.AST], tuple[str, str]] = {
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*")},
    ast.Mod: ("%", "+"),
}
_JOINED: dict[type[ast.AST], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Methods and calls whose text is for people.
_FOR_PEOPLE = frozenset({"__repr__", "__str__"})
_LOGGERS = frozenset({"log", "_log", "logger", "logging", "warnings"})
_SMALL = 10_000


def find(text: str) -> Iterator[Candidate]:
    """What might be edited in a module."""
    lines = [line.encode() for line in text.split("\n")]
    tree = ast.parse(text)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    ends = {id(node.body[-1]) for node in functions}
    for node in _code(tree):
        # A function returns None at its end also without the word.
        if id(node) in ends and isinstance(node, ast.Return) and ast.unparse(node) in ("return", "return None"):
            continue
        for operator, line, start, end, new in _of_node(node, lines):
            # Columns of `ast` are bytes.
            whole = lines[line - 1]
            yield Candidate(line, start, operator, (whole[:start] + new + whole[end:]).decode())


def valid(text: str) -> bool:
    """Whether an edited module still compiles."""
    try:
        compile(text, "edited", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that do something: no annotations, no docstrings, nothing that is for people or for the type checker."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else (value,):
            if not isinstance(child, ast.AST) or name in ("annotation", "returns", "type_params") or _left_alone(child):
                continue
            yield child
            yield from _code(child)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.FunctionDef(name=name) if name in _FOR_PEOPLE:
            return True
        case (
            ast.FunctionDef(decorator_list=[ast.Name(id="overload")])
            | ast.AsyncFunctionDef(decorator_list=[ast.Name(id="overload")])
        ):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGGERS:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in ("TypeVar", "NewType", "cast", "print", "ParamSpec"):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name in ("__slots__", "__all__"):
            return True
        # They forbid, and change nothing of what is done.
        case ast.keyword(arg="slots" | "strict" | "kw_only" | "frozen"):
            return True
    return False


#: Operator, line, first and last byte of the text that goes, and the text that comes.
_Span = tuple[str, int, int, int, bytes]


def _of_node(node: ast.AST, lines: list[bytes]) -> Iterator[_Span]:
    match node:
        case ast.Compare():
            sides = (node.left, *node.comparators)
            for operation, left, right in zip(node.ops, sides, sides[1:], strict=False):
                # An instant more or less is nothing.
                if not (_is_clock(left) or _is_clock(right)) or _COMPARED[type(operation)][0] != "boundary":
                    yield from _between(_COMPARED[type(operation)], left, right, lines)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
            if not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str | bytes)):
                yield from _between(("arithmetic", *_ARITHMETIC[type(node.op)]), node.left, node.right, lines)
        case ast.BoolOp():
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _between(("logic", *_JOINED[type(node.op)]), left, right, lines)
        case ast.UnaryOp(op=ast.Not()) if node.lineno == node.operand.lineno:
            # A bracket behind it stays: it may hold more than the operand's first line.
            yield "not", node.lineno, node.col_offset, node.col_offset + len("not "), b""
        case ast.Constant():
            yield from _constants(node)
        case ast.If() | ast.IfExp() if _on_one_line(node.test):
            start, end = node.test.col_offset, node.test.end_col_offset or 0
            yield "condition", node.test.lineno, start, end, b"not (" + lines[node.test.lineno - 1][start:end] + b")"
        case ast.Call():
            yield from _calls(node, lines)
    if isinstance(node, ast.stmt):
        yield from _statements(node)


def _between(kind: tuple[str, str, str], left: ast.expr, right: ast.expr, lines: list[bytes]) -> Iterator[_Span]:
    """The sign between two operands, where it is alone with brackets."""
    operator, old, new = kind
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset]
    if gap.strip(b" ()").split() == old.encode().split():
        start = left.end_col_offset + gap.index(old.split()[0].encode())
        end = left.end_col_offset + gap.rindex(old.split()[-1].encode()) + len(old.split()[-1])
        yield operator, right.lineno, start, end, new.encode()


def _is_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.monotonic", "time.monotonic_ns", "time.time")


def _constants(node: ast.Constant) -> Iterator[_Span]:
    place = (node.lineno, node.col_offset, node.end_col_offset or 0)
    if isinstance(node.value, bool):
        yield "literal", *place, str(not node.value).encode()
    elif isinstance(node.value, int):
        for value in (node.value + 1, node.value - 1) if node.value < _SMALL else (node.value // 2,):
            if value >= 0:
                yield "constant", *place, str(value).encode()


def _calls(node: ast.Call, lines: list[bytes]) -> Iterator[_Span]:
    """Neighbouring arguments swapped; a function that is another one's opposite."""
    if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        yield "function", node.func.lineno, node.func.col_offset, node.func.end_col_offset or 0, _FUNCTIONS[node.func.id].encode()
    if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "hasattr", "getattr", "min", "max"):
        return
    for one, other in zip(node.args, node.args[1:], strict=False):
        # Arguments that look alike are those that people mix up.
        alike = type(one) is type(other) and isinstance(one, ast.Name | ast.Attribute | ast.Constant)
        together = one.lineno == one.end_lineno == other.lineno == other.end_lineno
        if alike and together and ast.dump(one) != ast.dump(other):
            line, end, start = lines[one.lineno - 1], one.end_col_offset or 0, other.col_offset
            first, second = line[one.col_offset : end], line[start : other.end_col_offset]
            yield "arguments", one.lineno, one.col_offset, other.end_col_offset or 0, second + line[end:start] + first


def _statements(node: ast.stmt) -> Iterator[_Span]:
    """Statements on a line of their own that are dropped."""
    if not _on_one_line(node) or not node.col_offset:
        return
    place = (node.lineno, node.col_offset, node.end_col_offset or 0, b"pass")
    match node:
        case ast.Expr(ast.Call() | ast.Await()):
            if not _left_alone(node.value):
                yield "call dropped", *place
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "assignment dropped", *place
        case ast.Continue() | ast.Break() | ast.Raise():
            yield "exit dropped", *place
        case ast.Return(value=None | ast.Constant()):
            yield "exit dropped", *place


def _on_one_line(node: ast.expr | ast.stmt) -> bool:
    return node.lineno == node.end_lineno
