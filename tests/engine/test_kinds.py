"""Types that travel: unions that are told apart or refused, TypedDicts, paths, named types, and models of pydantic."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, TypedDict
from uuid import UUID

import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from engine import Malformed, Queue
from engine.kinds import kind_of
from tests.engine.helpers.producing import refused

USER, AT = UUID(int=7), datetime(2026, 2, 3, tzinfo=UTC)
EAST = datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
UserId = NewType("UserId", UUID)


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Place:
    x: int
    tags: set[str] | None = None


@dataclass
class Point3(Point):
    z: int = 0


@dataclass(kw_only=True)
class Moving(Point):
    speed: float


@dataclass
class Solid(Point):
    height: UUID | None = None
    kind: Literal["solid"] = "solid"


@dataclass
class Gas:
    x: int
    kind: Literal["gas"] = "gas"


@dataclass
class Circle:
    radius: Decimal


@dataclass
class Tree:
    children: list[Tree]


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(Enum):
    RED = "red"


class Half(Enum):
    ONE = 1.5


class Movie(TypedDict):
    title: str
    seen: NotRequired[datetime]


class Sequel(Movie, total=False):
    number: Required[int]
    of: str


class Foreign(typing_extensions.TypedDict, total=False):
    id: typing_extensions.Required[UUID]
    note: str


class Tag(TypedDict):
    tag: str


class User(BaseModel):
    name: str
    born: date | None = None
    tags: set[str] = set()


class Named(BaseModel):
    first: str = Field(alias="firstName")

    @pydantic.computed_field
    @property
    def upper(self) -> str:
        return self.first.upper()


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    id: UUID
    at: datetime


class Written(BaseModel):
    first: str = Field(serialization_alias="firstName")


class Ids(RootModel[list[UUID]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    owner: User


class Node(BaseModel):
    children: list[Node] = []


class Sub(User):
    more: int = 1


class Secretive(BaseModel):
    password: str = Field(exclude=True)


class Torn(BaseModel):
    name: str = Field(validation_alias="in", serialization_alias="out")


class Holder(BaseModel):
    torn: list[Torn]


class Odd(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    queue: Queue


def there_and_back(annotation: Any, value: Any) -> Any:
    kind = kind_of(annotation)
    return kind.read(json.loads(json.dumps(kind.write(value))))


@pytest.mark.parametrize(("annotation", "values"), [
    (int | str, [1, "1"]), (int | float, [1, 1.0, 1.5]), (int | float | str | bool | None, [1, 1.0, "a", True, None]),
    (UUID | int | None, [USER, 1, None]), (str | list[str], ["a", ["a"]]), (list[int] | list[str], [[1], ["a"], []]),
    (Literal["all"] | UUID, ["all", USER]), (Literal["auto"] | str, ["auto", "other"]), (Literal[1] | bool, [1, True]),
    (Colour | Level | None, [Colour.RED, Level.LOW, None]), (Any | None, [None, {"a": [1]}]),
    (timedelta | str, [timedelta(seconds=1.5), "x"]), (Point | Circle, [Point(1, 2), Circle(Decimal("0.1"))]),
    (Point | Moving, [Moving(x=1, speed=0.5), Point(1)]), (Gas | Solid, [Solid(1, height=USER), Gas(1)]),
    (Solid | Gas | Circle | int, [Solid(1), Gas(1), Circle(Decimal(1)), 5]),
    (Movie | Foreign, [{"title": "a", "seen": AT}, {"id": USER}, {"title": "a"}]),
    (Movie | list[Movie], [{"title": "a"}, [{"title": "a", "seen": AT}]]),
    (Cat | Dog, [Cat(lives=3), Dog(owner=User(name="ada"))]),
    (dict[str, Cat | Dog], [{"a": Cat(), "b": Dog(owner=User(name="ada"))}]), (Cat | Gas, [Cat(), Gas(1)]),
    (User | Point, [User(name="ada"), Point(1)]), (Ids | str, [Ids([USER]), "a"]), (User | None, [User(name="ada"), None]),
], ids=str)  # fmt: skip
def test_of_a_union_the_one_arrives_that_was_sent(annotation: Any, values: list[Any]) -> None:
    for value in values:
        assert (arrived := there_and_back(annotation, value)) == value and type(arrived) is type(value)
    refused((TypeError, ValueError), "", kind_of(annotation if annotation != Any | None else int | str).write, 1j)


@pytest.mark.parametrize("annotation", [
    UUID | str, datetime | date, Path | str, Decimal | UUID, Colour | str, Level | int, Literal["red"] | Colour,
    timedelta | int, Movie | dict[str, str],
    list[int] | set[int], tuple[int, int] | list[int], list[UUID] | list[int], Point | Point3, Point | dict[str, Any],
    Movie | dict[str, datetime], User | Named, User | dict[str, int], Any | UUID, list[UUID | str], Gas | Point,
], ids=str)  # fmt: skip
def test_a_union_that_nobody_could_tell_apart_is_refused(annotation: Any) -> None:
    refused(TypeError, "nobody could tell which of the two travelled", kind_of, annotation)


def test_a_union_is_called_after_its_members() -> None:
    assert kind_of(Point | Circle).name == "Point or Circle" and kind_of(None | int | str).name == "int or str or None"


MEMBERS: list[tuple[Any, Any]] = [
    (int, st.integers()), (float, st.floats(allow_nan=False)), (bool, st.booleans()), (str, st.text()), (None, st.none()),
    (UUID, st.uuids()), (date, st.dates()), (datetime, st.datetimes()), (Decimal, st.decimals(allow_nan=False)),
    (list[int], st.lists(st.integers())), (set[str], st.sets(st.text())), (Colour, st.sampled_from(Colour)),
    (Point, st.builds(Point, st.integers(), st.integers())), (Circle, st.builds(Circle, st.decimals(allow_nan=False))),
    (Gas, st.builds(Gas, st.integers())), (Literal["a", 1], st.sampled_from(["a", 1])),
    (Cat, st.builds(Cat, lives=st.integers())),
]  # fmt: skip


@given(st.data())
def test_any_union_is_refused_or_brings_the_value_itself(data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(MEMBERS), min_size=2, max_size=4, unique_by=lambda member: str(member[0])))
    union: Any = members[0][0]
    for annotation, _ in members[1:]:
        union = union | annotation if union is not None else annotation | None
    try:
        kind_of(union)
    except TypeError as refused:
        assert "nobody could tell" in str(refused)
        return
    value = data.draw(data.draw(st.sampled_from(members))[1])
    assert (arrived := there_and_back(union, value)) == value and type(arrived) is type(value)


@pytest.mark.feature("MQ03")
@pytest.mark.parametrize(("annotation", "value", "travels"), [
    (int, 2**70, 2**70), (float, 1, 1.0), (bool, True, True), (str, "ä", "ä"), (bytes, b"\x00\xff", "AP8="),
    (datetime, EAST, "2026-02-03T04:05:06+02:00"), (date, date(2026, 2, 3), "2026-02-03"), (time, time(4, 5), "04:05:00"),
    (timedelta, timedelta(minutes=1, microseconds=1), 60.000001), (UUID, USER, "00000000-0000-0000-0000-000000000007"),
    (Decimal, Decimal("1.10"), "1.10"), (Level, Level.HIGH, 2), (Place, Place(1, {"a"}), {"x": 1, "tags": ["a"]}),
    (list[Place], [Place(1)], [{"x": 1, "tags": None}]), (dict[str, Decimal], {"a": Decimal(2)}, {"a": "2"}),
    (tuple[int, str], (1, "a"), [1, "a"]), (tuple[int, ...], (1, 2, 3), [1, 2, 3]), (frozenset[int], frozenset([1]), [1]),
    (int | None, None, None), (Literal["a", 1], 1, 1), (None, None, None), (Any, {"any": [1]}, {"any": [1]}),
    (list, [1, "a"], [1, "a"]), (Path, Path("/a/b"), "/a/b"), (PurePath, PurePath("a"), "a"), (UserId, USER, str(USER)),
    (Annotated[list[UserId], "of them"], [USER], [str(USER)]), (Sequence[Decimal], [Decimal(1)], ["1"]),
    (Movie, {"title": "a"}, {"title": "a"}), (Sequel, {"title": "a", "number": 2}, {"title": "a", "number": 2}),
    (Foreign, {"id": USER}, {"id": str(USER)}),
    (User, User(name="ada", born=date(1815, 12, 10), tags={"x"}), {"name": "ada", "born": "1815-12-10", "tags": ["x"]}),
    (Named, Named(firstName="ada"), {"firstName": "ada"}),
    (Strict, Strict(id=USER, at=AT), {"id": str(USER), "at": "2026-02-03T00:00:00Z"}),
    (Written, Written(first="ada"), {"first": "ada"}), (Ids, Ids([USER]), [str(USER)]),
    (list[Dog], [Dog(owner=User(name="a"))], [{"kind": "dog", "owner": {"name": "a", "born": None, "tags": []}}]),
    (Node, Node(children=[Node()]), {"children": [{"children": []}]}),
], ids=str)  # fmt: skip
def test_what_travels_arrives(annotation: Any, value: Any, travels: Any) -> None:
    kind = kind_of(annotation)
    assert (written := json.loads(json.dumps(kind.write(value)))) == travels and kind.read(written) == value
    assert annotation in (Any, float) or type(kind.read(written)) is type(value)


NUMBERS = (st.decimals(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))


@given(st.datetimes(timezones=st.just(UTC)), *NUMBERS, st.binary())
def test_any_value_arrives(at: datetime, amount: Decimal, ratio: float, data: bytes) -> None:
    for annotation, value in ((datetime, at), (Decimal, amount), (float, ratio), (bytes, data)):
        assert there_and_back(annotation, value) == value


STAYING = [Queue, UUID | str, complex, Half, dict[int, str], list[complex], Literal[b"a"], "what", [int]]


@pytest.mark.parametrize("annotation", STAYING)
def test_types_that_do_not_travel(annotation: Any) -> None:
    refused(TypeError, "", kind_of, annotation)


def test_a_value_of_a_subclass_travels_as_what_was_declared() -> None:
    assert there_and_back(User, Sub(name="ada")) == User(name="ada") and there_and_back(Point, Point3(1, 2, 3)) == Point(1, 2)


@pytest.mark.parametrize(("annotation", "value"), [
    (int, True), (int, 1.0), (int, "1"), (float, "1"), (float, True), (bool, 1), (str, b"a"), (bytes, "a"), (datetime, "2"),
    (date, AT), (UUID, "no"), (Level, 1), (Place, {"x": 1}), (list[int], ["a"]), (list[int], "12"), (tuple[int, str], (1,)),
    (tuple[int, str], 5), (dict[str, int], {1: 1}), (Literal["a"], "b"), (Literal[1], True), (None, 0),
    (Path, "a"), (Movie, {}), (Movie, {"title": 1}), (Movie, {"title": "a", "more": 1}), (Sequel, {"title": "a"}),
    (Foreign, {"note": "a"}), (User, {"name": "ada"}), (User, Named(firstName="a")), (Tag, []), (UserId, 7),
])  # fmt: skip
def test_what_does_not_fit_is_not_written(annotation: Any, value: Any) -> None:
    refused((TypeError, ValueError), "", kind_of(annotation).write, value)


@pytest.mark.parametrize(("annotation", "value"), [
    (int, "1"), (int, 1.5), (datetime, "yesterday"), (datetime, 5), (UUID, "no"), (Level, 3), (Place, {"y": 1}), (Place, {}),
    (Place, []), (bytes, "?"), (Decimal, "x"), (timedelta, "1"), (tuple[int, str], [1]), (set[int], 5), (dict[str, int], []),
    (Path, 5), (Movie, []), (Movie, {"seen": AT.isoformat()}), (Movie, {"title": "a", "x": 1}), (Sequel, {"title": "a"}),
    (User, {}), (User, []), (Strict, {"id": str(USER), "at": 5}), (Strict, {"id": str(USER), "at": "2026-02-03", "x": 1}),
    (Ids, ["no"]), (Tag, {"tag": None}), (tuple[int, str], "1a"), (int | str, 1.5), (Point | Circle, {"z": 1}),
    (Gas | Solid, {"x": 1}), (Gas | Solid, {"x": 1, "kind": "ice"}), (Cat | Dog, {"lives": 1}), (Cat | Dog, {"kind": "cow"}),
    (UUID | int, "no"), (int | float, True), (Movie | Foreign, {}),
])  # fmt: skip
def test_what_does_not_fit_is_not_read(annotation: Any, value: Any) -> None:
    refused((TypeError, ValueError), "", kind_of(annotation).read, value)


@pytest.mark.parametrize(("annotation", "why"), [
    *((kind, f"{kind.__name__}: a model that writes other fields than it reads: in") for kind in (Torn, Holder)),
    (Secretive, "Secretive: a model that writes other fields than it reads: password"),
    (Odd, "Odd: a model of which pydantic has no JSON schema"), (Tree, "holds itself"), (list[Tree], "holds itself"),
])  # fmt: skip
def test_what_could_not_be_read_again_is_refused(annotation: Any, why: str) -> None:
    refused(TypeError, why, kind_of, annotation)


def test_the_error_of_a_model_says_which_field_it_is() -> None:
    queue, given = Queue("q"), {"users": [{"name": "a", "born": "x"}]}

    @queue.job("greet")
    def greet(users: list[User]) -> None: ...

    said = r"^payload\.users: .* a value of type list of User \(born: Input should be a valid date"
    refused(Malformed, said, queue.enqueue, "greet", given)


def test_the_statement_type_of_python_3_12() -> None:
    if sys.version_info < (3, 12):
        assert not hasattr(sys.modules["typing"], "TypeAliasType")
        return
    found: dict[str, Any] = {"UUID": UUID}
    exec("type Key = UUID | int", found)
    key = found["Key"]
    assert there_and_back(key | None, USER) == USER and there_and_back(list.__class_getitem__(key), [1]) == [1]
    refused(TypeError, "nobody could tell", kind_of, key | str)


def test_nobody_loads_pydantic_but_who_has_a_model() -> None:
    code = (
        "import sys\nfrom dataclasses import dataclass\nfrom engine import Queue\n"
        "@dataclass\nclass Point:\n    x: int | str\n"
        "@Queue('q').job('a')\ndef a(point: Point) -> Point | None: ...\n"
        "print(a.payload(Point(1)), 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'point': {'x': 1}} False"
