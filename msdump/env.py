"""Every environment variable that msdump reads, and the only reader of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        name: Its name.
        meaning: One sentence for the documentation.
    """

    name: str
    meaning: str


# MindSpore's dump
DUMP_CONFIG: Final = "MINDSPORE_DUMP_CONFIG"
DIAGNOSTIC_DATA_PATH: Final = "MS_DIAGNOSTIC_DATA_PATH"
DEVICE_TARGET: Final = "DEVICE_TARGET"
JIT_LEVEL: Final = "JIT_LEVEL"
DEVICE_ID: Final = "DEVICE_ID"
ENABLE_GE_DUMP: Final = "ENABLE_MS_GE_DUMP"
CHECK_OVERFLOW_MODE: Final = "MS_ASCEND_CHECK_OVERFLOW_MODE"
IGNORE_USELESS_OUTPUT: Final = "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT"
# CANN's exception dump
ASCEND_DUMP_SCENE: Final = "ASCEND_DUMP_SCENE"
ASCEND_DUMP_PATH: Final = "ASCEND_DUMP_PATH"
ASCEND_WORK_PATH: Final = "ASCEND_WORK_PATH"
NPU_COLLECT_PATH: Final = "NPU_COLLECT_PATH"
# files that show graphs: GE's, then MindSpore's
GE_GRAPH: Final = "DUMP_GE_GRAPH"
GE_GRAPH_LEVEL: Final = "DUMP_GRAPH_LEVEL"
GE_GRAPH_PATH: Final = "DUMP_GRAPH_PATH"
GE_GRAPH_FORMAT: Final = "DUMP_GRAPH_FORMAT"
SAVE_GRAPHS: Final = "MS_DEV_SAVE_GRAPHS"
SAVE_GRAPHS_PATH: Final = "MS_DEV_SAVE_GRAPHS_PATH"
# where the process runs
THREADS: Final = "MSDUMP_THREADS"
# which of several processes it is, as its launcher says (config/launchers.py)
OMPI_RANK: Final = "OMPI_COMM_WORLD_RANK"
OMPI_SIZE: Final = "OMPI_COMM_WORLD_SIZE"
OMPI_LOCAL_RANK: Final = "OMPI_COMM_WORLD_LOCAL_RANK"
PMI_RANK: Final = "PMI_RANK"
PMI_SIZE: Final = "PMI_SIZE"
PMI_LOCAL_RANK: Final = "PMI_LOCAL_RANK"
HYDRA_LOCAL_RANK: Final = "MPI_LOCALRANKID"
RANK: Final = "RANK"
WORLD_SIZE: Final = "WORLD_SIZE"
LOCAL_RANK: Final = "LOCAL_RANK"
RANK_ID: Final = "RANK_ID"
RANK_SIZE: Final = "RANK_SIZE"
SLURM_RANK: Final = "SLURM_PROCID"
SLURM_SIZE: Final = "SLURM_STEP_NUM_TASKS"
SLURM_JOB_SIZE: Final = "SLURM_NTASKS"
SLURM_LOCAL_RANK: Final = "SLURM_LOCALID"
PMIX_RANK: Final = "PMIX_RANK"
PMIX_SIZE: Final = "PMIX_SIZE"
PMIX_LOCAL_RANK: Final = "PMIX_LOCAL_RANK"
# how ranks wait for each other
COMMUNICATION_TIMEOUT: Final = "MSDUMP_COMMUNICATION_TIMEOUT"

VARIABLES: Final = (
    Variable(DUMP_CONFIG, "Path of the dump configuration; unset or empty: no dump."),
    Variable(DIAGNOSTIC_DATA_PATH, "Base of the dump path where the configuration gives none."),
    Variable(DEVICE_TARGET, "CPU (default), GPU or Ascend."),
    Variable(JIT_LEVEL, "O0, O1 or O2: how Ascend compiles and dumps the graph."),
    Variable(
        DEVICE_ID,
        "Number of the device, by default that of the process on its machine (0 without a launcher);"
        " support_device selects by it.",
    ),
    Variable(ENABLE_GE_DUMP, "1: dump through GE options under Ascend O2."),
    Variable(
        CHECK_OVERFLOW_MODE,
        "INFNAN_MODE (default) or SATURATION_MODE: what float16 results beyond the range become on Ascend.",
    ),
    Variable(
        IGNORE_USELESS_OUTPUT,
        "1 (default): useless outputs (of Print, Send, ...) are not dumped on Ascend and GPU; 0: they are.",
    ),
    Variable(
        ASCEND_DUMP_SCENE,
        "aic_err_brief_dump, aic_err_norm_dump or aic_err_detail_dump: acl dumps the operator that fails.",
    ),
    Variable(ASCEND_DUMP_PATH, "Where acl's exception dump goes, before ASCEND_WORK_PATH and dump_path."),
    Variable(ASCEND_WORK_PATH, "Where acl's exception dump goes, before dump_path."),
    Variable(NPU_COLLECT_PATH, "Turns on acl's exception dump aic_err_norm_dump, which goes there."),
    Variable(
        GE_GRAPH,
        "Files of the graphs that Ascend O2 and acl compile: 1 with constants, 2 without, 3 only relations.",
    ),
    Variable(
        GE_GRAPH_LEVEL,
        "Stages of which there are graph files: 1 or 2 (default) all, 3 the last, 4 the first; or parts of"
        " their names, a|b.",
    ),
    Variable(
        GE_GRAPH_PATH, "Where graph files go, in pid_{pid}_deviceid_{id}; the working directory by default."
    ),
    Variable(GE_GRAPH_FORMAT, "ge_proto, onnx, or both, ge_proto|onnx (default)."),
    Variable(
        SAVE_GRAPHS, "1, 2 or 3: save the graphs that MindSpore's door loads as trace_code_graph files."
    ),
    Variable(SAVE_GRAPHS_PATH, "Where trace_code_graph files go; the working directory by default."),
    Variable(THREADS, "Threads of one operator; the number of cores, at most 8, by default."),
    Variable(OMPI_RANK, "Rank of the process, from Open MPI's mpirun, which beats the launchers below."),
    Variable(OMPI_SIZE, "Number of its ranks."),
    Variable(OMPI_LOCAL_RANK, "Rank of the process among those of its machine, which chooses the device."),
    Variable(PMI_RANK, "Rank of the process, from MPICH, Intel MPI and others that speak PMI."),
    Variable(PMI_SIZE, "Number of its ranks."),
    Variable(PMI_LOCAL_RANK, "As OMPI_COMM_WORLD_LOCAL_RANK, from Cray's PMI."),
    Variable(HYDRA_LOCAL_RANK, "As OMPI_COMM_WORLD_LOCAL_RANK, from MPICH's Hydra."),
    Variable(RANK, "Rank of the process, from torchrun; without WORLD_SIZE it has no effect."),
    Variable(WORLD_SIZE, "Number of its ranks."),
    Variable(LOCAL_RANK, "As OMPI_COMM_WORLD_LOCAL_RANK, from torchrun."),
    Variable(
        RANK_ID, "Rank of the process, as scripts for MindSpore set it; without RANK_SIZE it has no effect."
    ),
    Variable(RANK_SIZE, "Number of its ranks."),
    Variable(SLURM_RANK, "Rank of the process, from Slurm's srun."),
    Variable(SLURM_SIZE, "Number of its ranks: tasks of the step."),
    Variable(SLURM_JOB_SIZE, "As SLURM_STEP_NUM_TASKS, where that is not set: tasks of the job."),
    Variable(SLURM_LOCAL_RANK, "As OMPI_COMM_WORLD_LOCAL_RANK, from Slurm."),
    Variable(PMIX_RANK, "Rank of the process, from launchers that speak PMIx."),
    Variable(PMIX_SIZE, "Number of its ranks, where the launcher sets it."),
    Variable(PMIX_LOCAL_RANK, "As OMPI_COMM_WORLD_LOCAL_RANK, where the launcher sets it."),
    Variable(
        COMMUNICATION_TIMEOUT, "Seconds that a rank waits for another one in a collective; 120 by default."
    ),
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
    """Return the environment for a program that nothing but its arguments configures; its threads stay."""
    names = {variable.name for variable in VARIABLES} - {THREADS}
    return {name: value for name, value in os.environ.items() if name not in names}
