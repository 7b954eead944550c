"""Why a tensor has no file: one enum for every filter, from the configuration to the disk."""

from __future__ import annotations

import enum
from typing import Self

from msdump import env


class Reason(enum.StrEnum):
    """Why a tensor has no file.

    A member is the text under which summaries count it, ``"no elements"``, so that it
    equals that text. Members stand in the order in which the filters come.
    """

    sentence: str  # the reason and the remedy, for one tensor or operator

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
        "The dump is off: support_device does not contain this device.",
    )
    MODEL_NOT_LISTED = (
        "of a model outside of dump_list",
        "No item of dump_list names this model.",
    )
    KERNEL_LEVEL = (
        "of a graph, left out by dump_level kernel",
        "dump_level kernel dumps single operators only; op and all dump the operators of graphs.",
    )

    # The operator.
    FOLDED = (
        "computed when the model was compiled",
        "The compiler computed it from constants and it does not run; jit_level O0 runs it.",
    )
    FUSED = (
        "inside a fused operator",
        "It is part of a fused operator; dump the fused operator or switch off fusion.",
    )
    NOT_IN_KERNELS = (
        "not selected by kernels",
        "dump_mode is 1 and no item of kernels matches its name.",
    )
    NOT_MARKED = (
        "not marked by set_dump",
        "dump_mode is 2 and set_dump did not mark it.",
    )
    NOT_IN_DUMP_LIST = (
        "not selected by dump_list",
        "layer and opname_range of dump_list do not select it.",
    )
    NOT_WATCHED = (
        "not watched",
        "The watcher writes only the outputs of watcher_nodes, after each operator of layer.",
    )
    CONTROL_FLOW = (
        "control flow; its inner operators are dumped",
        "Control flow has no files; the operators of its branches and loop bodies have files.",
    )
    NO_TASK = (
        "without a task on the device",
        "The device runs no task for it, as for all control flow, data flow and shape changes.",
    )

    PARAMETER = (
        "weights and graph inputs, dumped as inputs of operators",
        "Only CPU and GPU write files for weights and graph inputs; on Ascend they are inputs of operators.",
    )

    # The side or the slot of an operator.
    SIDE_NOT_ASKED = (
        "of a side not selected (input or output)",
        "The configuration selects only the other side (input_output, dump_mode).",
    )
    BLACKLISTED = (
        "left out by a blacklist",
        "optype_blacklist or opname_blacklist excludes it.",
    )
    USELESS = (
        f"not used by other operators; {env.IGNORE_USELESS_OUTPUT}=0 dumps them",
        f"The operator declares that no operator uses this output; {env.IGNORE_USELESS_OUTPUT}=0 dumps it.",
    )
    ABSENT = (
        "optional and absent",
        "It is optional and the model omits it.",
    )

    # The moment.
    ITERATION_NOT_ASKED = (
        "of an iteration not selected",
        "The configuration does not select this iteration.",
    )
    BRANCH_NOT_RUN = (
        "in a branch or loop body that did not run",
        "Its branch or loop body did not run in this iteration.",
    )
    NO_OVERFLOW = (
        "dumped only if the operator overflows",
        "op_debug_mode 3 dumps only operators that overflow; it did not overflow.",
    )
    OVERFLOW_LIMIT = (
        "after overflow_number operators",
        "overflow_number is reached: earlier operators of the process overflowed.",
    )
    NO_FAILURE = (
        "dumped only if the operator fails",
        "Only a failing operator is dumped; it did not fail.",
    )
    NO_HIT = (
        "dumped only if a watch rule hits",
        "on_hit dump writes only operators that a watch rule hits; no rule hit it.",
    )
    NOT_RELEASED = (
        "of a step not written by the history",
        "history keeps the last steps in memory and writes them after a hit or a failure.",
    )

    # The tensor.
    NO_TENSOR = (
        "sequences and maps",
        "It is a sequence, a map or an optional; only tensors have files.",
    )
    TEXT = (
        "text",
        "It is text; a dump holds numbers only.",
    )
    NO_ELEMENTS = (
        "no elements",
        "It has no elements to write.",
    )
    STATISTICS_ONLY = (
        "only measured",
        "It is only measured; a table of statistics has its row (saved_data statistic).",
    )

    # The file.
    ALREADY_WRITTEN = (
        "a constant written earlier",
        "Constants are written once, in the first dumped iteration.",
    )
    OVER_LIMIT = (
        "over max_bytes",
        "Its file did not fit into the rest of max_bytes.",
    )
    WRITE_ERROR = (
        "could not be written",
        "The write failed (see the log of the run), or the file was removed.",
    )
