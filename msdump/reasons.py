"""Why a tensor has no file: one enum for every filter, from the configuration to the disk."""

from __future__ import annotations

import enum
from typing import Self

from msdump import env


class Reason(enum.StrEnum):
    """Why a tensor has no file.

    A member is the text under which summaries count it, ``"no elements"``, so that it
    equals that text. Members stand in the order in which the filters come.

    Attributes:
        sentence: The reason and the remedy, for one tensor or operator.
    """

    sentence: str

    def __new__(cls, text: str, sentence: str) -> Self:
        """Make a member of the text that is counted and the sentence that is shown."""
        # a str, so that counts by reason are shown, sorted and compared as the texts that they are
        member = str.__new__(cls, text)
        member._value_ = text
        member.sentence = sentence
        return member

    def __repr__(self) -> str:
        """Return the text in quotes, so that a printed summary shows ``{'no elements': 2}``."""
        return repr(self.value)

    # The whole network.
    OTHER_DEVICE = (
        "on a device that support_device leaves out",
        "The dump is off: support_device does not hold the number of this device.",
    )
    MODEL_NOT_LISTED = (
        "of a model that dump_list does not name",
        "No item of dump_list names this model.",
    )
    KERNEL_LEVEL = (
        "of a graph, which dump_level kernel leaves out",
        "dump_level kernel dumps operators that are called alone; op or all dump those of graphs.",
    )

    # The operator.
    FOLDED = (
        "computed when the model was compiled",
        "The compiler computed it from constants, so that it does not run; jit_level O0 runs it.",
    )
    FUSED = (
        "inside a fused operator",
        "It is fused into another operator and cannot be seen inside it; dump that, or fuse nothing.",
    )
    NOT_IN_KERNELS = (
        "not selected by kernels",
        "dump_mode is 1 and no item of kernels matches the name.",
    )
    NOT_MARKED = (
        "not marked by set_dump",
        "dump_mode is 2 and set_dump did not mark the operator.",
    )
    NOT_IN_DUMP_LIST = (
        "not selected by dump_list",
        "Neither layer nor opname_range of dump_list holds the operator.",
    )
    NOT_WATCHED = (
        "not watched",
        "The watcher writes outputs of watcher_nodes alone, again after each operator of layer.",
    )
    CONTROL_FLOW = (
        "control flow, of which the operators inside are dumped",
        "Control flow is never dumped itself; the operators of its branches and loop bodies are.",
    )
    NO_TASK = (
        "without a task on the device",
        "The device runs no task for it: control flow, data flow and changes of shape have none.",
    )

    PARAMETER = (
        "weights and graph inputs, which operators show",
        "Weights and graph inputs have files of their own on CPU and GPU alone; operators read them.",
    )

    # The side or the slot of an operator.
    SIDE_NOT_ASKED = (
        "of a side that is not asked for",
        "The configuration asks for the other side alone (input_output, dump_mode).",
    )
    BLACKLISTED = (
        "left out by a black list",
        "optype_blacklist or opname_blacklist leaves it out.",
    )
    USELESS = (
        f"useless to other operators; {env.IGNORE_USELESS_OUTPUT}=0 dumps them",
        f"The operator declares this output useless to others; {env.IGNORE_USELESS_OUTPUT}=0 dumps it.",
    )
    ABSENT = (
        "optional and not there",
        "It is optional, and the model leaves it out.",
    )

    # The moment.
    ITERATION_NOT_ASKED = (
        "of an iteration that is not asked for",
        "The configuration does not ask for this iteration.",
    )
    BRANCH_NOT_RUN = (
        "in a branch or loop body that did not run",
        "Its branch or loop body did not run in this iteration.",
    )
    NO_OVERFLOW = (
        "dumped only where the operator overflows",
        "op_debug_mode 3 dumps operators that overflow, and this one did not.",
    )
    OVERFLOW_LIMIT = (
        "after overflow_number operators",
        "If it overflowed, overflow_number operators of the process had done so before.",
    )
    NO_FAILURE = (
        "dumped only where the operator fails",
        "Only the operator that fails is dumped, and this one did not.",
    )
    NO_HIT = (
        "dumped only where a watch rule hits",
        "on_hit dump writes operators at which a watch rule hits, and none did.",
    )
    NOT_RELEASED = (
        "of a step that the history did not write",
        "history keeps the last steps in memory and writes them where something happens.",
    )

    # The tensor.
    NO_TENSOR = (
        "sequences and maps",
        "It is a sequence, a map or an optional, not a tensor, and no file holds those.",
    )
    TEXT = (
        "text",
        "It is text, which a dump cannot hold.",
    )
    NO_ELEMENTS = (
        "no elements",
        "It has no elements, so there is nothing to write.",
    )
    STATISTICS_ONLY = (
        "only measured",
        "It is only measured: statistics have its row (saved_data statistic).",
    )

    # The file.
    ALREADY_WRITTEN = (
        "a constant that is written already",
        "Constants are written once, in the first dumped iteration.",
    )
    OVER_LIMIT = (
        "over max_bytes",
        "Its file did not fit into max_bytes, which the process had used up.",
    )
    WRITE_ERROR = (
        "could not be written",
        "It could not be written (the log of the run tells why), or it was removed.",
    )
