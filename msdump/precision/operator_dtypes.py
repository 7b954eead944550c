"""Operators that compute in other types than the precision mode says: what files such as keep_dtype hold."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class DtypeRule:
    """A line of a ``keep_dtype`` or ``customize_dtypes`` file.

    Attributes:
        name: A node name of the model, or an operator type.
        is_type: Whether it is a type.
        place: File and line, for messages.
        reads: Element type that float32 inputs are rounded to; float32 for operators that are kept.
        writes: Element type that float32 outputs are rounded to.
    """

    name: str
    is_type: bool
    place: str
    reads: str = "float32"
    writes: str = "float32"


@dataclass(frozen=True, slots=True)
class MixLists:
    """Changes of the lists of operator types that mixed precision goes by (``modify_mixlist``).

    Attributes:
        source: The file, for messages.
        blocked: Types that move to the blocklist: they stay in float32.
        trusted: Types that move to the trustlist: they compute in the smaller type.
        follows: Types that move to the graylist: each operator does what the one before it does.
    """

    source: str
    blocked: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """All types that the file names."""
        return (*self.blocked, *self.trusted, *self.follows)


@dataclass(frozen=True, slots=True)
class OperatorDtypes:
    """Everything that such files say.

    Attributes:
        kept: Operators that keep the types of the model.
        customized: Operators with types of their own; they win over ``kept``, as in CANN.
        lists: Changed lists of mixed precision.
    """

    kept: tuple[DtypeRule, ...] = ()
    customized: tuple[DtypeRule, ...] = ()
    lists: MixLists | None = None

    def over(self, other: OperatorDtypes) -> OperatorDtypes:
        """Return these, with what they do not say taken from others."""
        return replace(
            self,
            kept=self.kept or other.kept,
            customized=self.customized or other.customized,
            lists=self.lists or other.lists,
        )


NO_OPERATOR_DTYPES = OperatorDtypes()
"""The precision mode decides for every operator."""
