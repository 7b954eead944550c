"""Dataclasses whose methods are made at the first call, beside those of the standard library."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass as standard
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from msdump import dataclass as module
from msdump.dataclass import dataclass as lazy

_Value = TypeVar("_Value")
PACKAGE = Path(__file__).resolve().parents[1] / "msdump"


@lazy(frozen=True, slots=True)
class Span:
    """Pickle finds it by its name."""

    first: int
    last: int = 9
    names: list[str] = field(default_factory=list)


@lazy(frozen=True)
class Place:
    """The same without slots."""

    name: str


@lazy(slots=True)
class Count:
    """One that changes."""

    number: int = 0


def frozen_slots(dataclass):
    """Return a class that cannot change."""

    @dataclass(frozen=True, slots=True)
    class Sample:
        first: int
        second: str = "b"
        hidden: Any = field(default=None, repr=False, compare=False)
        made: list[int] = field(default_factory=list)
        named: int = field(default=4, kw_only=True)

    return Sample


def frozen(dataclass):
    """Return one without slots."""

    @dataclass(frozen=True)
    class Sample:
        first: int
        second: int = 2

    return Sample


def mutable(dataclass):
    """Return one that can change, and finds a field itself."""

    @dataclass(slots=True)
    class Sample:
        first: int
        second: int = 2
        length: int = field(init=False)
        fixed: int = field(default=7, init=False)
        made: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            self.length = self.first + self.second

    return Sample


def bare(dataclass):
    """Return one that needs no arguments to its decorator."""

    @dataclass
    class Sample:
        first: int
        second: int = 2

    return Sample


def incomparable(dataclass):
    """Return one that is equal to itself alone."""

    @dataclass(frozen=True, eq=False)
    class Sample:
        first: int
        second: int = 2

    return Sample


def own_methods(dataclass):
    """Return one with methods of its own."""

    @dataclass(frozen=True, slots=True)
    class Sample:  # noqa: PLW1641 - the decorator makes it
        first: int
        second: int = 2

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Sample) and self.first == other.first

    return Sample


def inherited(dataclass):
    """Return one with fields of a generic base."""

    @dataclass(frozen=True, slots=True)
    class Base(Generic[_Value]):
        first: _Value

    @dataclass(frozen=True, slots=True)
    class Sample(Base[int]):
        second: int = 2

    return Sample


KINDS = [frozen_slots, frozen, mutable, bare, incomparable, own_methods, inherited]


def outcome(call):
    """Return what a call gives, or the type of its error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - compared
        return type(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "asked",
    [
        lambda cls: repr(cls(1)).rpartition(".")[2],
        lambda cls: cls(1) == cls(1),
        lambda cls: cls(1) == cls(2),
        lambda cls: cls(1, 3) == cls(1, second=3),
        lambda cls: cls(1) == 1,
        lambda cls: len({cls(1), cls(1)}),
        lambda cls: cls(),
        lambda cls: cls(1, 2, None, [], 5),
        lambda cls: cls(1, unknown=2),
        lambda cls: setattr(cls(1), "first", 2),
        lambda cls: delattr(cls(1), "first"),
        lambda cls: dataclasses.asdict(cls(1)),
        lambda cls: dataclasses.replace(cls(1), first=5).first,
        lambda cls: [each.name for each in dataclasses.fields(cls)],
        lambda cls: cls.__match_args__,
        lambda cls: copy.copy(cls(1)).first,
        lambda cls: hasattr(cls(1), "__dict__"),
        lambda cls: cls.__hash__ is None,
        lambda cls: cls(1) and str(inspect.signature(cls.__init__)).count(","),
    ],
)
def test_objects_are_as_those_of_the_standard_library(kind, asked):
    """Objects, their comparison, hash and text, and errors are as those of the standard library."""
    ours, theirs = kind(lazy), kind(standard)

    assert outcome(lambda: asked(ours)) == outcome(lambda: asked(theirs))


@pytest.mark.parametrize("value", [Span(1, 2, ["a"]), Place("a"), Count(3)])
def test_objects_travel(value):
    """What was pickled, or copied in depth, is equal."""
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - its own
    assert copy.deepcopy(value) == value


def test_an_object_that_holds_itself_is_shown():
    """The text of an object that holds itself ends."""
    names: list[Any] = []
    span = Span(1, names=names)
    names.append(span)

    assert repr(span) == "Span(first=1, last=9, names=[...])"


def test_a_subclass_of_a_frozen_class_may_have_attributes_of_its_own():
    """A subclass without the decorator may set what is no field, and no field."""

    class Named(Span):
        pass

    named = Named(1)
    named.label = "a"

    assert named.label == "a"
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Span(1).label = "a"


def test_a_method_is_compiled_once_and_when_it_is_called(monkeypatch):
    """Making a class compiles nothing, its first object one method, the second none."""
    compiled = []

    def listening(text, scope):
        compiled.append(text.partition("(")[0])
        exec(text, scope)  # noqa: S102 - what the module would do

    monkeypatch.setattr(module, "exec", listening, raising=False)
    cls = frozen_slots(lazy)
    made = list(compiled)
    first, second = cls(1), cls(1)

    assert made == []
    assert compiled == ["def __init__"]
    assert first == second
    assert compiled == ["def __init__", "def __eq__"]


def test_classes_of_the_package_are_made_so():
    """Only the class whose objects have an order takes the decorator of the standard library."""
    takes = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(name.name == "dataclass" for name in node.names)
    }

    assert takes == {"dataclass/__init__.py", "tools/advise/exact.py"}
