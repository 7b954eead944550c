"""Every environment variable that msdump reads, and the only reader of them."""

from __future__ import annotations

import os
from typing import Final, NamedTuple


class Variable(NamedTuple):
    """An environment variable and a sentence on its meaning."""

    name: str
    meaning: str


VARIABLES: Final[list[Variable]] = []
"""Every variable, in the order of the reference page."""


def _variable(name: str, meaning: str) -> str:
    VARIABLES.append(Variable(name, meaning))
    return name


DUMP_CONFIG: Final = _variable(
    "MINDSPORE_DUMP_CONFIG", "Path of the dump configuration; unset or empty: no dump."
)
DIAGNOSTIC_DATA_PATH: Final = _variable(
    "MS_DIAGNOSTIC_DATA_PATH", "Base of the dump path if the configuration gives none."
)
DEVICE_TARGET: Final = _variable("DEVICE_TARGET", "CPU (default), GPU or Ascend.")
JIT_LEVEL: Final = _variable("JIT_LEVEL", "O0, O1 or O2: how Ascend compiles and dumps the graph.")
DEVICE_ID: Final = _variable(
    "DEVICE_ID",
    "Number of the device, for support_device; by default the local rank of the process"
    " (0 without a launcher).",
)
ENABLE_GE_DUMP: Final = _variable("ENABLE_MS_GE_DUMP", "1: dump through GE options under Ascend O2.")
CHECK_OVERFLOW_MODE: Final = _variable(
    "MS_ASCEND_CHECK_OVERFLOW_MODE",
    "INFNAN_MODE (default) or SATURATION_MODE: float16 results beyond the range become infinite "
    "or the largest number, on Ascend.",
)
IGNORE_USELESS_OUTPUT: Final = _variable(
    "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT",
    "1 (default): useless outputs (of Print, Send, ...) are not dumped on Ascend and GPU; 0: they are.",
)
ASCEND_DUMP_SCENE: Final = _variable(
    "ASCEND_DUMP_SCENE",
    "aic_err_brief_dump, aic_err_norm_dump or aic_err_detail_dump: acl dumps the operator that fails.",
)
ASCEND_DUMP_PATH: Final = _variable(
    "ASCEND_DUMP_PATH",
    "Directory of acl's exception dump; takes precedence over ASCEND_WORK_PATH and dump_path.",
)
ASCEND_WORK_PATH: Final = _variable(
    "ASCEND_WORK_PATH", "Directory of acl's exception dump; takes precedence over dump_path."
)
NPU_COLLECT_PATH: Final = _variable(
    "NPU_COLLECT_PATH", "Turns on acl's exception dump aic_err_norm_dump, and is its directory."
)
GE_GRAPH: Final = _variable(
    "DUMP_GE_GRAPH",
    "Files of the graphs that Ascend O2 and acl compile: 1 with constants, 2 without, 3 only relations.",
)
GE_GRAPH_LEVEL: Final = _variable(
    "DUMP_GRAPH_LEVEL",
    "Stages with graph files: 1 or 2 (default) all, 3 the last, 4 the first; or parts of their names, a|b.",
)
GE_GRAPH_PATH: Final = _variable(
    "DUMP_GRAPH_PATH", "Parent of the graph files' pid_{pid}_deviceid_{id}; the working directory by default."
)
GE_GRAPH_FORMAT: Final = _variable("DUMP_GRAPH_FORMAT", "ge_proto, onnx, or both, ge_proto|onnx (default).")
SAVE_GRAPHS: Final = _variable(
    "MS_DEV_SAVE_GRAPHS", "1, 2 or 3: save the graphs of msdump.load as trace_code_graph files."
)
SAVE_GRAPHS_PATH: Final = _variable(
    "MS_DEV_SAVE_GRAPHS_PATH", "Directory of trace_code_graph files; the working directory by default."
)
THREADS: Final = _variable(
    "MSDUMP_THREADS", "Threads of one operator; the number of cores, at most 8, by default."
)
OMPI_RANK: Final = _variable(
    "OMPI_COMM_WORLD_RANK",
    "Rank of the process, from Open MPI's mpirun; takes precedence over the launchers below.",
)
OMPI_SIZE: Final = _variable("OMPI_COMM_WORLD_SIZE", "Number of ranks.")
OMPI_LOCAL_RANK: Final = _variable(
    "OMPI_COMM_WORLD_LOCAL_RANK", "Local rank of the process on its machine, the default of DEVICE_ID."
)
PMI_RANK: Final = _variable(
    "PMI_RANK", "Rank of the process, from MPICH, Intel MPI and others that speak PMI."
)
PMI_SIZE: Final = _variable("PMI_SIZE", "Number of ranks.")
PMI_LOCAL_RANK: Final = _variable("PMI_LOCAL_RANK", "As OMPI_COMM_WORLD_LOCAL_RANK, from Cray's PMI.")
HYDRA_LOCAL_RANK: Final = _variable("MPI_LOCALRANKID", "As OMPI_COMM_WORLD_LOCAL_RANK, from MPICH's Hydra.")
RANK: Final = _variable("RANK", "Rank of the process, from torchrun; without WORLD_SIZE it has no effect.")
WORLD_SIZE: Final = _variable("WORLD_SIZE", "Number of ranks.")
LOCAL_RANK: Final = _variable("LOCAL_RANK", "As OMPI_COMM_WORLD_LOCAL_RANK, from torchrun.")
RANK_ID: Final = _variable(
    "RANK_ID", "Rank of the process, as scripts for MindSpore set it; without RANK_SIZE it has no effect."
)
RANK_SIZE: Final = _variable("RANK_SIZE", "Number of ranks.")
SLURM_RANK: Final = _variable("SLURM_PROCID", "Rank of the process, from Slurm's srun.")
SLURM_SIZE: Final = _variable("SLURM_STEP_NUM_TASKS", "Number of ranks: tasks of the step.")
SLURM_JOB_SIZE: Final = _variable(
    "SLURM_NTASKS", "Number of ranks if SLURM_STEP_NUM_TASKS is not set: tasks of the job."
)
SLURM_LOCAL_RANK: Final = _variable("SLURM_LOCALID", "As OMPI_COMM_WORLD_LOCAL_RANK, from Slurm.")
PMIX_RANK: Final = _variable("PMIX_RANK", "Rank of the process, from launchers that speak PMIx.")
PMIX_SIZE: Final = _variable("PMIX_SIZE", "Number of ranks, if the launcher sets it.")
PMIX_LOCAL_RANK: Final = _variable(
    "PMIX_LOCAL_RANK", "As OMPI_COMM_WORLD_LOCAL_RANK, if the launcher sets it."
)
COMMUNICATION_TIMEOUT: Final = _variable(
    "MSDUMP_COMMUNICATION_TIMEOUT",
    "Longest wait for another rank in a collective, in seconds; 120 by default.",
)


def read(name: str) -> str | None:
    """Return the value of a variable of the table, None where it is unset or empty."""
    # MindSpore and CANN take an empty variable for one that is not set
    return os.environ.get(name) or None


def spare_matrix_threads() -> None:
    """Let numpy's library for matrices start no threads in this process, unless the user says how many.

    Their start takes as long as that of numpy itself. It has an effect before numpy is imported.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def number(text: str, most: int) -> int | None:
    """Return the number of a text of decimal digits, None for any other text and for one above ``most``.

    >>> number("007", 10), number("11", 10), number("-1", 10), number("", 10)
    (7, None, None, None)
    """
    # the length is compared first, since int() raises on a text of more than 4300 digits
    digits = text.lstrip("0") or text[-1:]
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)) or int(digits) > most:
        return None
    return int(digits)


def unset() -> dict[str, str]:
    """Return the environment without msdump's variables, except MSDUMP_THREADS, for a subprocess."""
    names = {variable.name for variable in VARIABLES} - {THREADS}
    return {name: value for name, value in os.environ.items() if name not in names}
