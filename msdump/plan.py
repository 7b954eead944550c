"""The plan of a dump: settings checked and completed, the same for every frontend."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msdump.selector import IterationSet, Selector

if TYPE_CHECKING:
    from msdump.watch import WatchRule


@dataclass(frozen=True, slots=True)
class DtypeRule:
    """A line of a ``keep_dtype`` or ``customize_dtypes`` file."""

    name: str  # a node name of the model, or an operator type
    is_type: bool
    place: str  # file and line, for messages
    reads: str = "float32"  # element type that float32 inputs are rounded to
    writes: str = "float32"  # element type that float32 outputs are rounded to


@dataclass(frozen=True, slots=True)
class MixLists:
    """Changes of the lists of operator types for mixed precision in a ``modify_mixlist`` file."""

    source: str
    blocked: tuple[str, ...] = ()  # types that move to the blocklist: they stay in float32
    trusted: tuple[str, ...] = ()  # types that move to the trustlist: they compute in the smaller type
    follows: tuple[str, ...] = ()  # types that move to the graylist: each operator follows the one before it

    @property
    def types(self) -> tuple[str, ...]:
        """All types of the file."""
        return (*self.blocked, *self.trusted, *self.follows)


@dataclass(frozen=True, slots=True)
class OperatorDtypes:
    """Contents of the files of operators' types; customized types win over kept ones, as in CANN."""

    kept: tuple[DtypeRule, ...] = ()
    customized: tuple[DtypeRule, ...] = ()
    lists: MixLists | None = None

    def over(self, other: OperatorDtypes) -> OperatorDtypes:
        """Return these types, with the other's for each kind of file that these lack."""
        kept, customized = self.kept or other.kept, self.customized or other.customized
        return OperatorDtypes(kept, customized, self.lists or other.lists)


NO_OPERATOR_DTYPES = OperatorDtypes()
"""The precision mode decides for every operator."""


class Optimization(enum.StrEnum):
    """How far onnxruntime optimises operators that are not dumped."""

    NONE = "none"
    BASIC = "basic"
    ALL = "all"


class DeviceTarget(enum.StrEnum):
    """The emulated device."""

    CPU = "CPU"
    GPU = "GPU"
    ASCEND = "Ascend"


class JitLevel(enum.StrEnum):
    """How an Ascend device compiles the graph."""

    O0 = "O0"
    O1 = "O1"
    O2 = "O2"


class Naming(enum.StrEnum):
    """The generation of MindSpore's file names."""

    CLASSIC = "classic"
    V2_5 = "2.5"
    V2_7 = "2.7"


class Trigger(enum.IntEnum):
    """The event upon which an operator is dumped (``op_debug_mode``)."""

    ALWAYS = 0
    OVERFLOW = 3
    EXCEPTION = 4


class FileFormat(enum.StrEnum):
    """Files of Ascend O2: npy, one for each tensor, or bin, CANN's dump file of an operator."""

    NPY = "npy"
    BIN = "bin"


class OnWriteError(enum.StrEnum):
    """Effect of a file that could not be written: the run fails at the end of its step, or goes on."""

    RAISE = "raise"
    WARN = "warn"


class Existing(enum.StrEnum):
    """Treatment of files of earlier programs in the directory of a dump."""

    KEEP = "keep"
    REFUSE = "refuse"
    REPLACE = "replace"


class PrecisionMode(enum.StrEnum):
    """When a float32 network may compute in a smaller type (``precision_mode``)."""

    ALLOW_FP32_TO_FP16 = "allow_fp32_to_fp16"
    FORCE_FP16 = "force_fp16"
    FORCE_FP32 = "force_fp32"
    MUST_KEEP_ORIGIN_DTYPE = "must_keep_origin_dtype"
    ALLOW_FP32_TO_BF16 = "allow_fp32_to_bf16"
    ALLOW_MIX_PRECISION = "allow_mix_precision"
    ALLOW_MIX_PRECISION_FP16 = "allow_mix_precision_fp16"
    ALLOW_MIX_PRECISION_BF16 = "allow_mix_precision_bf16"


class ExceptionDump(enum.StrEnum):
    """Exception dumps beside a dump of Ascend O2 (``exception_dump`` of ``ascend_config``)."""

    OFF = "0"
    FULL = "1"
    LITE = "2"


class OverflowMode(enum.StrEnum):
    """Value of a float16 result beyond the type's range (MS_ASCEND_CHECK_OVERFLOW_MODE)."""

    INFNAN = "INFNAN_MODE"
    SATURATION = "SATURATION_MODE"


class OnHit(enum.StrEnum):
    """Effect of a hit of a watch rule beyond the warning."""

    LOG = "log"
    DUMP = "dump"
    STOP = "stop"


class Tree(enum.Enum):
    """Layout of the directories of a dump (``store/layouts.py``)."""

    RANKS = enum.auto()
    """A directory for each rank and network: MindSpore O0, O1, CPU and GPU."""
    STEPS = enum.auto()
    """A directory for each step, with compiled models in it: MindSpore O2."""
    MODELS = enum.auto()
    """Compiled models: GE, acl and torchair."""


class Scene(enum.StrEnum):
    """Values of acl.json's ``dump_scene``: exception dumps and the watcher."""

    LITE_EXCEPTION = "lite_exception"
    BRIEF_EXCEPTION = "aic_err_brief_dump"
    NORM_EXCEPTION = "aic_err_norm_dump"
    DETAIL_EXCEPTION = "aic_err_detail_dump"
    WATCHER = "watcher"


class DumpLevel(enum.StrEnum):
    """Files of graph operators, of kernels or of both (acl.json's ``dump_level``)."""

    OP = "op"
    KERNEL = "kernel"
    ALL = "all"


class OperatorStatistic(enum.StrEnum):
    """Statistics of acl.json's ``dump_stats``, in the order of the columns of an operator's csv file."""

    MAX = "Max"
    MIN = "Min"
    AVG = "Avg"
    NAN = "Nan"
    NEGATIVE_INF = "Negative Inf"
    POSITIVE_INF = "Positive Inf"
    L2NORM = "L2norm"


DEFAULT_STATISTICS: Final = tuple(name for name in OperatorStatistic if name != OperatorStatistic.L2NORM)
"""Default of ``dump_stats``."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where a network runs."""

    device_target: DeviceTarget = DeviceTarget.CPU
    jit_level: JitLevel | None = None  # None: the level that the dump configuration implies
    device_id: int = 0
    # whether scopes carry class names (``conv1-Conv2d``) or not (``conv1``)
    reserves_class_names: bool = True
    # operators of a .mindir file have the names that they have once MindSpore loaded it
    has_loaded_scopes: bool = False
    # how an Ascend computes; None: as the configuration says, else by default
    precision_mode: PrecisionMode | None = None
    overflow_mode: OverflowMode = OverflowMode.INFNAN
    exception_dump: ExceptionDump = ExceptionDump.OFF
    memory_limit: int | None = None  # bytes of device memory of an Ascend, None: as many as needed
    fuses: bool = True  # whether compiling a whole graph (O2, acl) fuses operators (``fusion_switch``)
    # whether the operators of a graph that is compiled as a whole are called by the model's own node names
    # (acl, torchair), not by scoped full names (MindSpore)
    keeps_node_names: bool = False
    # operators that compute in other types than the precision mode's
    operator_dtypes: OperatorDtypes = NO_OPERATOR_DTYPES


@dataclass(frozen=True, slots=True)
class StatisticSpec:
    """Which statistics are computed, and where."""

    # names of ``statistic_category`` in the user's order
    categories: tuple[str, ...] = ("max", "min", "l2norm")
    on_device: bool = False  # computed by the emulated device instead of the host
    high_precision: bool = True  # device sums accumulate in float32 instead of the tensor's dtype


@dataclass(frozen=True, slots=True)
class Blocked:
    """One entry of ``optype_blacklist`` or ``opname_blacklist``."""

    name: str  # operator type or name; "" filters nothing
    # tensors that are left out, ``input0``, ``output1``; none filters nothing
    positions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelItem:
    """One item of acl.json's ``dump_list``."""

    model_name: str | None = None  # file stem or graph name of a model, None: any model
    layers: tuple[str, ...] = ()  # names of operators, fused or original; none: all of them
    watched: tuple[str, ...] = ()  # operators with outputs that the watcher reads again
    blocked_types: tuple[Blocked, ...] = ()  # tensors left out, by operator type
    blocked_names: tuple[Blocked, ...] = ()  # tensors left out, by operator name
    ranges: tuple[tuple[str, str], ...] = ()  # first and last operator of each closed range


@dataclass(frozen=True, slots=True)
class What:
    """Selection of tensors, and of their elements."""

    selector: Selector = field(default_factory=Selector)
    keeps_inputs: bool = True
    keeps_outputs: bool = True
    drops_useless: bool = True  # outputs that an operator declares useless are not dumped (Ascend and GPU)
    sample_count: int | None = None  # first elements to keep of each tensor, or None for all
    keeps_device_format: bool = False  # tensors keep device shape, dtype and format (``trans_flag`` false)
    saves_kernel_args: bool = False  # write ``{op_type}.{op_name}.json``
    has_unused_kernels: bool = False  # ``kernels`` has items, and the dump_mode does not use ``kernels``


@dataclass(frozen=True, slots=True)
class When:
    """In which iterations, and upon which event, operators are dumped."""

    iterations: IterationSet = field(default_factory=IterationSet)
    initial_iteration: int = 0
    trigger: Trigger = Trigger.ALWAYS  # always, on overflow, or on exception
    overflow_limit: int = 0  # overflowing operators to dump in the whole process, 0: all


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Place, names and formats of files."""

    path: str  # absolute root of the dump
    net_name: str = ""
    tree: Tree = Tree.RANKS
    file_format: FileFormat = FileFormat.NPY  # npy or bin (Ascend O2)
    keeps_tensors: bool = True  # tensor files are written, not only statistics
    naming: Naming = Naming.V2_5
    existing: Existing = Existing.KEEP
    on_write_error: OnWriteError = OnWriteError.RAISE
    is_async: bool = False  # the next operator does not wait for files
    # above this the next operator waits, so that memory stays bounded
    queue_bytes: int = 256 << 20  # most bytes that wait in the asynchronous queue
    writer_threads: int = 1  # threads that write large tensors
    max_bytes: int = 0  # most bytes of tensor files of the process, 0: no limit


@dataclass(frozen=True, slots=True)
class ModelDump:
    """Settings of dumps of compiled models alone: Ascend O2, GE and acl.json."""

    # which operators of which models are dumped (acl.json), None: as the selector says
    models: tuple[ModelItem, ...] | None = None
    dumps_single_operators: bool = False
    level: DumpLevel = DumpLevel.ALL
    scene: Scene | None = None  # an exception dump or the watcher, None: neither is on
    # absolute directory below which a failing operator leaves ``extra-info``, "": the root of the dump
    exception_path: str = ""
    # columns of the csv file that stands in for each operator's tensors (``dump_data`` stats), None:
    # tensors
    operator_statistics: tuple[OperatorStatistic, ...] | None = None
    # GE options turn the dump on, so that the compiled graph has a ``ge_proto_*_Build.txt``
    shows_graph: bool = False


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """Watch rules of a run, and its history."""

    rules: tuple[WatchRule, ...] = ()  # rules that look at the tensors which are dumped
    on_hit: OnHit = OnHit.DUMP
    history: int = 0  # steps that are kept in memory until a rule hits or an operator fails, 0: files at once
    # most memory of these steps, and separately of the earlier step that rules compare with
    history_bytes: int = 256 << 20

    @property
    def writes_hits_alone(self) -> bool:
        """Whether operators are written only where a rule hits."""
        return bool(self.rules) and self.on_hit is OnHit.DUMP and not self.history


NO_WATCH: Final = WatchPlan()
"""No rules and no history."""


@dataclass(frozen=True, slots=True)
class DumpPlan:
    """A complete description of a dump: which tensors, when, as which files."""

    source: str  # path of the configuration file, for messages
    source_bytes: bytes  # its bytes, copied to ``.dump_metadata/data_dump.json``
    context: Context  # device and level that the plan was made for; ``jit_level`` is set on Ascend
    files: FilePlan
    what: What = field(default_factory=What)
    when: When = field(default_factory=When)
    statistics: StatisticSpec | None = None
    compiled: ModelDump = field(default_factory=ModelDump)
    watch: WatchPlan = NO_WATCH
    is_enabled: bool = True  # False where ``support_device`` leaves this device out
    precision_mode: PrecisionMode | None = None  # precision mode of the emulated device, None: not said here
    # operators that compute in other types; the context's win over these
    operator_dtypes: OperatorDtypes = NO_OPERATOR_DTYPES
    # how far the runtime optimises operators that are not dumped
    optimization: Optimization = Optimization.NONE

    @property
    def writes_behind(self) -> bool:
        """Whether operators run on while files are written; vendor: CPU and GPU write at once."""
        return self.files.is_async and self.context.device_target is DeviceTarget.ASCEND
