"""Evidence on operators and tensors, and the possible verdicts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msdump.judge import TensorError
from msdump.read import ABSENT, ValueSource
from msdump.record import IO


class Verdict(enum.StrEnum):
    """The verdict on an operator that ran on both sides, or on one of them alone."""

    EQUAL = "equal"
    """All of its tensors are the same bit for bit, in the same element types."""
    AGREES = "agrees"
    """Its tensors lie within the limits."""
    HEALED = "healed"
    """An input differs, its outputs agree."""
    INHERITED = "inherited"
    """The errors of its inputs explain its error."""
    AMPLIFIED = "amplified"
    """Its error exceeds the errors of its inputs by more than most operators enlarge them."""
    ACCUMULATED = "accumulated"
    """Many small errors before it add up to more than the limit; none of them is the culprit."""
    OWN = "own"
    """Its inputs agree, its output does not."""
    WEIGHT = "weight"
    """A weight or constant that it reads differs."""
    NONFINITE = "nonfinite"
    """NaN or an infinity begins here."""
    REPLACED = "replaced"
    """Another operator stands in its place."""
    SHAPE = "shape"
    """An output has another shape."""
    DTYPE = "dtype"
    """An output has another element type."""
    MISSING = "missing"
    """Golden has the operator, the examined side does not."""
    UNCHECKED = "unchecked"
    """There is nothing to compare it with."""
    UNREADABLE = "unreadable"
    """Its files cannot be read."""
    STOPPED = "stopped"
    """An error ended a run of a side: a verdict on the whole alone."""


ACCUSING: Final = frozenset(
    {
        *(Verdict.OWN, Verdict.WEIGHT, Verdict.NONFINITE, Verdict.REPLACED),
        *(Verdict.SHAPE, Verdict.DTYPE, Verdict.MISSING),
    }
)
"""Verdicts that say: the fault is here."""

INNOCENT: Final = frozenset({Verdict.EQUAL, Verdict.AGREES, Verdict.HEALED, Verdict.UNCHECKED})
"""Verdicts on operators whose outputs do not differ, as far as they were compared."""


class TensorVerdict(enum.StrEnum):
    """The verdict on a tensor beside its counterpart, from the best to the worst."""

    UNCHECKED = "unchecked"
    """There is no counterpart."""
    EQUAL = "equal"
    """Bit for bit, in the same element type."""
    AGREES = "agrees"
    """Within the limits."""
    UNREADABLE = "unreadable"
    """A file or a memory format cannot be read."""
    SHAPE = "shape"
    """The shapes do not fit."""
    DTYPE = "dtype"
    """One of the two holds another kind of elements, and not the same numbers."""
    DIFFERS = "differs"
    """Beyond the limits, or NaN and infinities stand at other places."""


UNCOMPARED: Final = frozenset({TensorVerdict.UNCHECKED, TensorVerdict.UNREADABLE})
# UNCHECKED is neither AGREEING nor BAD: a tensor without counterpart says nothing about the computation.
AGREEING: Final = frozenset({TensorVerdict.EQUAL, TensorVerdict.AGREES})
BAD: Final = frozenset(
    {TensorVerdict.UNREADABLE, TensorVerdict.SHAPE, TensorVerdict.DTYPE, TensorVerdict.DIFFERS}
)

# TensorVerdict lists its members by severity.
SEVERITY: Final = {verdict: place for place, verdict in enumerate(TensorVerdict)}
"""Rank of the verdicts on tensors, the worst last."""


@dataclass(frozen=True, slots=True)
class OperatorPlace:
    """An operator, where and when it ran.

    Attributes:
        name: Name in files.
        op_type: Its type, "" if unknown.
        full_name: Its name with its scope, "" if only the name in files is known.
        onnx_name: Name of its node in the model, "" if unknown.
        scope: ``Default/fc1-Dense``; "" if unknown.
        source: Its line in the source, ``net.py:12: x = self.fc(x)``; "" if unknown.
        iteration: None if unknown.
        rank: None if unknown.
        pass_number: Number of its run in the iteration, from 0; None if it ran once.
        execution: Number of the execution if several left files in one directory; else None.
        label: Label of its directory, "" where there is only one.
        order: Place in the execution of its directory, from 1; 0 of an operator that did not run.
        time: Microseconds since the epoch, 0 if unknown. It orders operators of directories that
            overlap, as a loop's do.
    """

    name: str
    op_type: str = ""
    full_name: str = ""
    onnx_name: str = ""
    scope: str = ""
    source: str = ""
    iteration: int | None = None
    rank: int | None = None
    pass_number: int | None = None
    execution: int | None = None
    label: str = ""
    order: int = 0
    time: int = 0

    @property
    def shown_name(self) -> str:
        """Its full scoped name, or else its name in files."""
        return self.full_name or self.name


@dataclass(frozen=True, slots=True)
class TensorEvidence:
    """A tensor beside its counterpart, before a verdict.

    Attributes:
        io: Input or output.
        slot: Number of the input or output.
        shape: Shape of the tensor on the host, where it is known.
        dtype: Element type, "" if unknown.
        golden_dtype: Element type of the counterpart, "" if there is none.
        error: Measured error, None if nothing was compared.
        fault: Verdict if it does not depend on numbers (a file cannot be read); None: the error decides.
        note: Remark beside the numbers, "" for none.
        name: Name of the value or the parameter, "" if unknown.
        is_weight: Whether it is a weight or a constant of the model, or given to the network.
        is_rounded: Whether both are the same numbers, each rounded to a type of its side.
        rounded_to: Type to which golden's weight is rounded on the examined side, "" for none.
        places: Number and places of a weight's elements that differ, in words; "" if unknown or none.
        is_folded: Whether it is a constant that golden's operators compute of constants.
        overflows: Number of a weight's elements, without masks, that rounding made infinite on the examined
            side.
    """

    io: IO
    slot: int
    shape: tuple[int, ...] = ()
    dtype: str = ""
    golden_dtype: str = ""
    error: TensorError | None = None
    fault: TensorVerdict | None = None
    note: str = ""
    name: str = ""
    is_weight: bool = False
    is_rounded: bool = False
    rounded_to: str = ""
    places: str = ""
    is_folded: bool = False
    overflows: int = 0


@dataclass(frozen=True, slots=True)
class OwnError:
    """The error of an output against re-execution of the operator on the examined side's inputs.

    Attributes:
        slot: Number of the output.
        error: Measured error.
        allowed: Relative distance that rounding explains.
        is_explained: Whether the error is no larger than that distance.
        arithmetic: Arithmetic of the second run: ``float32``, ``Ascend:force_fp16``, ``float64``.
        note: Remark beside the numbers, "" for none.
        io: Whether it is an output, or an input that the operator writes.
        overflow: Name of the part of a fused kernel with infinities that explain the error, though later
            parts hide them; "" for none.
        explanation: Cause of the allowed distance, in words.
        finite: Relative distance of the elements that are finite on both sides, if other elements are not
            and rounding does not explain the distance; else 0.
        recurs: Whether the examined side's own arithmetic makes the same NaN and infinities again.
    """

    slot: int
    error: TensorError
    allowed: float
    is_explained: bool
    arithmetic: str
    note: str = ""
    io: IO = IO.OUTPUT
    overflow: str = ""
    explanation: str = "the limit of rounding is"
    finite: float = 0.0
    recurs: bool = False


FloatTypes = frozenset[tuple[IO, str]]
"""Float types of the inputs and of the outputs of an operator on a device."""


@dataclass(frozen=True, slots=True)
class OperatorEvidence:
    """Everything known of one execution of an operator.

    Attributes:
        operator: The operator.
        tensors: Its tensors, inputs first.
        own: Its own error, by output; empty if it did not run again.
        propagated: Relative distance of the golden output from the re-executed output on the examined side's
            inputs: the error that is due to the inputs. None if it did not run again.
        wiring: Sentence on an input that is not the output of its producer; "" for none.
        replaces: Name of the golden operator in its place, "" if both have the same operator.
        is_in_golden: Whether golden has the same operator, though it replaces another one of the model.
        reads: Sources of its inputs by number; empty without a graph.
        arithmetic: Float types in which the devices of the examined side and of golden read its inputs and
            write its outputs; empty if unknown.
        as_written: Returns whether an input, on the examined side, has the elements that its producer wrote,
            or these rounded to a type of the reading operator; None if unknown.
        is_random: Whether it draws random numbers without a common seed.
        returned: Numbers of its outputs that the network returns.
        is_state: Whether its weights are trained, so that two sound runs may differ in them.
        is_evaluation: Whether another graph of its dump trains the weights that it reads.
        wrong_weights: Names of the weights and constants that it read and that are not the model's, by input.
        unread: Numbers of outputs without a reader, if other outputs are read or the operator writes inputs.
        is_masking: Whether its outputs reach nothing but a softmax (``masking_operators``).
    """

    operator: OperatorPlace
    tensors: tuple[TensorEvidence, ...]
    own: tuple[OwnError, ...] = ()
    propagated: float | None = None
    wiring: str = ""
    replaces: str = ""
    is_in_golden: bool = False
    reads: tuple[ValueSource, ...] = ()
    arithmetic: tuple[FloatTypes, FloatTypes] = (frozenset(), frozenset())
    as_written: Callable[[int], bool | None] = lambda _: None
    is_random: bool = False
    returned: frozenset[int] = frozenset()
    is_state: bool = False
    is_evaluation: bool = False
    wrong_weights: Mapping[int, str] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()
    is_masking: bool = False

    def source(self, slot: int) -> ValueSource:
        """Return the source of an input, absent if unknown."""
        return self.reads[slot] if slot < len(self.reads) else ABSENT


def joined(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(filter(None, notes))
