"""One row of evidence for each operator, as any source makes it, and the verdicts that the judge adds."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msdump.graph import written_inputs
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
    EXTRA = "extra"
    """Golden lacks the operator, and its effect reaches an output."""
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
        *(Verdict.SHAPE, Verdict.DTYPE, Verdict.MISSING, Verdict.EXTRA),
    }
)
"""Verdicts that say: the fault is here."""


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


TURNED: Final = "golden is transposed"
"""Note of a weight that was compared with golden's transposed one."""

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
    """A tensor beside its counterpart; no arrays.

    A source fills in all fields but ``limit``. It leaves ``verdict`` out where ``error`` decides, and sets it
    where no numbers do: a file cannot be read, shapes do not fit.

    Attributes:
        io: Input or output.
        slot: Number of the input or output.
        shape: Shape of the tensor on the host, where it is known.
        dtype: Element type that holds the tensor on the examined side, "" if unknown.
        golden_dtype: Element type of the counterpart, "" if there is none.
        error: Measured distance from the counterpart, None if nothing was compared. A saturated element
            beside a larger one counts as an infinity.
        verdict: The verdict; ``UNCHECKED`` until the judge has compared ``error`` with ``limit``.
        note: Remark beside the numbers, later the reason of the verdict; "" for none.
        name: Name of the value or the parameter, "" if unknown.
        is_weight: Whether it is a weight or a constant of the model, or given to the network.
        is_rounded: Whether both are the same numbers, each rounded to a type of its side.
        rounded_to: Type to which golden's weight is rounded on the examined side, "" for none.
        places: Number and places of a weight's elements that differ, in words; "" if unknown or none.
        is_folded: Whether it is a constant that golden's operators compute of constants.
        overflows: Number of a weight's elements, without masks, that rounding made infinite on the examined
            side.
        as_written: Whether an input, on the examined side, has the elements that its producer wrote, or
            these rounded to a type of the reading operator; None if unknown.
        summed: Norm of an output if none of the summands cancelled, of an operator that sums; else 0.
        limit: Largest relative distance that agrees: by the types' rounding and the inputs. None
            if the two had to be the same, or were not compared.
    """

    io: IO
    slot: int
    shape: tuple[int, ...] = ()
    dtype: str = ""
    golden_dtype: str = ""
    error: TensorError | None = None
    verdict: TensorVerdict = TensorVerdict.UNCHECKED
    note: str = ""
    name: str = ""
    is_weight: bool = False
    is_rounded: bool = False
    rounded_to: str = ""
    places: str = ""
    is_folded: bool = False
    overflows: int = 0
    as_written: bool | None = None
    summed: float = 0.0
    limit: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it differs, or could not be compared with its counterpart."""
        return self.verdict in BAD

    @property
    def is_turned(self) -> bool:
        """Whether it is golden's square weight, transposed: another one unless the operator reads it so."""
        is_square = len(self.shape) > 1 and self.shape[-1] == self.shape[-2]
        return self.is_weight and is_square and TURNED in self.note

    @property
    def is_flipped(self) -> bool:
        """Whether it agrees except for flipped elements: integers or truth values that rounding changed."""
        return self.verdict is TensorVerdict.AGREES and self.error is not None and self.error.changed > 0

    @property
    def is_noise(self) -> bool:
        """Whether it agrees as the rounding of its summands alone, so that no digit of it may be right."""
        is_far = self.limit is not None and self.distance > self.limit
        return self.verdict is TensorVerdict.AGREES and is_far and bool(self.summed)

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Sort key that is largest for the tensor that agrees least: verdict, whether an output, distance."""
        return SEVERITY[self.verdict], self.io is IO.OUTPUT, math.inf if self.error is None else self.distance

    @property
    def distance(self) -> float:
        """Its relative distance from its counterpart, 0 if the two were not compared."""
        return 0.0 if self.error is None else self.error.distance

    @property
    def misplaced(self) -> int:
        """Number of elements that are NaN or infinite where the counterpart's are not, or vice versa."""
        return 0 if self.error is None else self.error.misplaced


@dataclass(frozen=True, slots=True)
class OwnError:
    """The error of an output against re-execution of the operator on the examined side's inputs.

    Attributes:
        slot: Number of the output.
        error: Measured error.
        allowed: Relative distance that rounding explains, by the arithmetic of the second run and by the type
            that the examined side computed in.
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
class Finding:
    """One execution of an operator: a row of evidence that a source makes, and the verdict of the judge.

    A source (files, rows of statistics, two runs in lockstep, an operator that runs again, another framework)
    gives the rows of one run in the order of execution. It fills in the known fields; the
    default of another field means unknown, or no difference.

    Attributes:
        place: The operator, where and when it ran.
        verdict: The verdict, ``UNCHECKED`` until the judge has drawn it.
        tensors: Its tensors, inputs first; with a control flow operator's inputs where a branch or a loop
            reads them.
        note: Reason of the verdict beside the numbers; "" for none. A source gives one to an operator if its
            counterpart did not run: it is not judged for this reason.
        own: Its own error, by output; empty if it did not run again.
        replaces: Name of the golden operator in its place, "" if both have the same operator.
        reaches_output: Whether its NaN or infinities reach an output of the network; None if that is not
            known, or does not apply.
        propagated: Relative distance of the golden output from the re-executed output on the examined side's
            inputs: the error that is due to the inputs. None if it did not run again.
        wiring: Sentence on an input that is not the output of its producer; "" for none.
        is_in_golden: Whether golden has the same operator, though it replaces another one of the model.
        reads: Sources of its inputs by number; empty without a graph.
        arithmetic: Float types in which the devices of the examined side and of golden read its inputs and
            write its outputs; empty if unknown.
        is_random: Whether it draws random numbers without a common seed.
        returned: Numbers of its outputs that the network returns.
        is_state: Whether its weights are trained, so that two sound runs may differ in them.
        is_evaluation: Whether another graph of its dump trains the weights that it reads.
        wrong_weights: Names of the weights and constants that it read and that are not the model's, by input.
        unread: Numbers of outputs without a reader, if other outputs are read or the operator writes inputs.
        is_masking: Whether its outputs reach nothing but a softmax (``masking_operators``).
        passes: How often it ran in this run of the network on the examined side and in golden, if these
            differ; None: equally often.
        scale: For an operator that quantises a tensor which golden does not: noise of its scale and zero
            point, in multiples of the noise of a scale that fits the tensor's range, and a sentence on them.
    """

    place: OperatorPlace
    verdict: Verdict = Verdict.UNCHECKED
    tensors: tuple[TensorEvidence, ...] = ()
    note: str = ""
    own: tuple[OwnError, ...] = ()
    replaces: str = ""
    reaches_output: bool | None = None
    propagated: float | None = None
    wiring: str = ""
    is_in_golden: bool = False
    reads: tuple[ValueSource, ...] = ()
    arithmetic: tuple[FloatTypes, FloatTypes] = (frozenset(), frozenset())
    is_random: bool = False
    returned: frozenset[int] = frozenset()
    is_state: bool = False
    is_evaluation: bool = False
    wrong_weights: Mapping[int, str] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()
    is_masking: bool = False
    passes: tuple[int, int] | None = None
    scale: tuple[float, str] | None = None

    def source(self, slot: int) -> ValueSource:
        """Return the source of an input, absent if unknown."""
        return self.reads[slot] if slot < len(self.reads) else ABSENT

    def of(self, io: IO) -> tuple[TensorEvidence, ...]:
        """Return the inputs or the outputs; an input that the operator writes is an output."""
        written = written_inputs(self.place.op_type)
        if not written:
            return tuple([tensor for tensor in self.tensors if tensor.io is io])
        return tuple(
            tensor
            for tensor in self.tensors
            if (IO.OUTPUT if tensor.io is IO.INPUT and tensor.slot in written else tensor.io) is io
        )

    @property
    def inputs(self) -> tuple[TensorEvidence, ...]:
        """Its inputs."""
        return self.of(IO.INPUT)

    @property
    def outputs(self) -> tuple[TensorEvidence, ...]:
        """Its outputs, and inputs that it updates."""
        return self.of(IO.OUTPUT)

    @property
    def worst(self) -> TensorEvidence | None:
        """The tensor that agrees least, None if it has none."""
        return max(self.tensors, key=lambda tensor: tensor.badness, default=None)

    @property
    def is_accused(self) -> bool:
        """Whether the fault is in this operator."""
        return self.verdict in ACCUSING

    @property
    def is_bad(self) -> bool:
        """Whether it is accused, or one of its tensors differs or could not be compared."""
        return self.is_accused or any(tensor.is_bad for tensor in self.tensors)

    @property
    def own_error(self) -> float:
        """Its own error: measured where it ran again, else its distance beyond that of the inputs."""
        if self.own:
            return max(each.error.distance for each in self.own)
        before, behind = largest_distance(self.inputs), self.distance
        if self.is_accused:
            return max(behind, before)
        return max(0.0, behind - before) if math.isfinite(before) else 0.0

    @property
    def distance(self) -> float:
        """Relative distance of the output that is furthest from golden's."""
        return largest_distance(self.outputs)

    def wrong(self, side: IO) -> tuple[TensorEvidence, ...]:
        """Return the inputs or the outputs that differ or could not be compared."""
        return tuple(tensor for tensor in self.of(side) if tensor.is_bad)


def largest_distance(tensors: Iterable[TensorEvidence]) -> float:
    """Return the largest relative distance of tensors, 0 without any."""
    return max((each.distance for each in tensors), default=0.0)


def are_golden(tensors: Iterable[TensorEvidence]) -> bool:
    """Return whether outputs were compared, and all of them have golden's bits."""
    found = [each.error for each in tensors if each.io is IO.OUTPUT and each.error is not None]
    return bool(found) and all(each.is_same for each in found)


def joined(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(filter(None, notes))
