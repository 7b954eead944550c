"""Dataclasses whose methods are made when they are called first.

``dataclasses.dataclass`` compiles up to six methods for every class while its module is imported, half a
millisecond each time; a command imports between 50 and 200 such classes, and makes objects of few. Here the
standard library finds the fields and makes the slots; a method is compiled when it is called. The objects do
what those of ``dataclasses`` do: ``fields``, ``replace``, ``match``, ``copy`` and ``pickle`` take them.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

__all__ = ["dataclass"]

_Scope: TypeAlias = dict[str, Any]

_NOT_GIVEN: Final = object()  # stands for a default that a factory makes


@reprlib.recursive_repr()
def _shown(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(self: Any, name: str) -> bool:
    """Tell whether an attribute is a field; a subclass that is no dataclass may have others."""
    return "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_FROZEN: Final = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
# pickle and copy would set the slots one by one, which a frozen object refuses
_FROZEN_SLOTS: Final = _FROZEN | {"__getstate__": _state, "__setstate__": _set_state}


def _made(cls: type, *, frozen: bool = False, slots: bool = False, eq: bool = True) -> type:
    """Make a dataclass of a class: the slots and fields at once, the methods when they are called."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would look for the signature
    made: type = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    methods: dict[str, Any] = {
        "__init__": _at_first_call(made, "__init__", partial(_init, is_frozen=frozen)),
        "__repr__": _shown,
    }
    if frozen:
        methods |= _FROZEN_SLOTS if slots else _FROZEN
    if eq:
        methods["__eq__"] = _at_first_call(made, "__eq__", _eq)
        methods["__hash__"] = _at_first_call(made, "__hash__", _hash) if frozen else None
    for name, method in methods.items():
        if made.__dict__.get(name) is None:  # Python itself sets __hash__ to None beside an __eq__
            setattr(made, name, method)
    return made


def _at_first_call(cls: type, name: str, text_of: Callable[[type, _Scope], str]) -> Callable[..., Any]:
    """Return a method that puts in its place what is compiled from a text."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope: _Scope = {"__name__": cls.__module__}
        exec(text_of(cls, scope), scope)  # noqa: S102 - a text made of names of fields
        compiled = scope[name]
        compiled.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, compiled)
        return compiled(self, *args, **kwargs)

    return method


def _init(cls: type, scope: _Scope, *, is_frozen: bool) -> str:
    scope |= {"__dataclass_set__": object.__setattr__, "__dataclass_not_given__": _NOT_GIVEN}
    statement = "__dataclass_set__(__self, {0!r}, {1})" if is_frozen else "__self.{0} = {1}"
    every = dataclasses.fields(cls)
    body = [statement.format(each.name, value) for each in every if (value := _value(each, scope))]
    if hasattr(cls, "__post_init__"):
        body.append("__self.__post_init__()")
    taken = [each for each in every if each.init]
    parameters = [_parameter(each, scope) for each in taken if not each.kw_only]
    by_name = [_parameter(each, scope) for each in taken if each.kw_only]
    given = ", ".join(("__self", *parameters, *(("*", *by_name) if by_name else ())))
    return f"def __init__({given}):\n " + "\n ".join(body or ("pass",))


def _parameter(each: Field[Any], scope: _Scope) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=__dataclass_not_given__"
    return each.name if each.default is MISSING else f"{each.name}={_default(each, scope)}"


def _value(each: Field[Any], scope: _Scope) -> str:
    """Return what a field is set to; "" for one that is left as it is."""
    if each.default_factory is not MISSING:
        factory = f"__dataclass_factory_{each.name}__"
        scope[factory] = each.default_factory
        made = f"{factory}()"
        return f"{made} if {each.name} is __dataclass_not_given__ else {each.name}" if each.init else made
    if each.init:
        return each.name
    return "" if each.default is MISSING else _default(each, scope)


def _default(each: Field[Any], scope: _Scope) -> str:
    name = f"__dataclass_default_{each.name}__"
    scope[name] = each.default
    return name


def _eq(cls: type, _scope: _Scope) -> str:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    return (
        "def __eq__(__self, __other):\n"
        " if __other.__class__ is not __self.__class__:\n"
        "  return NotImplemented\n"
        f" return {_values('__self', names)} == {_values('__other', names)}"
    )


def _hash(cls: type, _scope: _Scope) -> str:
    every = dataclasses.fields(cls)
    names = [each.name for each in every if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(__self):\n return hash({_values('__self', names)})"


def _values(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a dataclass of a class; takes ``frozen``, ``slots`` and ``eq``."""
        return _made(cls, **options) if cls is not None else lambda cls: _made(cls, **options)
