"""CompilerConfig: the settings that a torchair script passes to ``get_npu_backend``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msdump.config.torchair import ge_options
from msdump.frontends.torchair import rank
from msdump.frontends.torchair.options import (
    Callback,
    Group,
    Option,
    TolerantGroup,
    directory,
    json_file,
    one_of,
    text_like,
    unless_none,
)

MAX_AUTOTUNE: Final = "max-autotune"
"""The mode whose graphs are compiled as a whole, the only one that dumps operators."""

_BOOLEAN: Final = one_of(False, True)
_WITHOUT_EFFECT: Final = (
    "aoe_config",
    "export",
    "fusion_config",
    "experimental_config",
    "inference_config",
    "ge_config",
    "aclgraph_config",
)
_NESTED: Final = {"export": "experimental", "experimental_config": "aclgraph"}

_STEPS_SHOWN: Final = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
_STEPS: Final = r"^(?:\d(?:-\d)?\|?)*$"  # the same texts, in linear time

_DUMP_OPTIONS: Final = {
    "dump_mode": ge_options.MODE,
    "quant_dumpable": ge_options.QUANT,
    "dump_step": ge_options.STEP,
    "dump_layer": ge_options.LAYER,
    "dump_data": ge_options.DATA,
}
"""GE's name of each option that goes with enable_dump."""


class CompilerConfig(Group):
    """The settings of ``get_npu_backend``; every option is checked when it is set.

    ``dump_config`` configures the dump, ``debug.graph_dump`` the files of the captured graphs,
    ``debug.data_dump`` the dump of the graph that runs eagerly. The groups of options for the real
    device's compiler accept everything, with a warning.
    """

    __slots__ = ()

    def __init__(self) -> None:
        """Set every default."""
        members = {
            "debug": _debug(),
            "dump_config": _dump_config(),
            **{name: _tolerant(name) for name in _WITHOUT_EFFECT},
            "mode": Option(MAX_AUTOTUNE, one_of(MAX_AUTOTUNE, "reduce-overhead")),
        }
        super().__init__("CompilerConfig", members)

    def as_dict(self, mode: str = MAX_AUTOTUNE) -> tuple[dict[str, str], dict[str, str]]:
        """Return the local and the global GE options, and make the directory of the dump.

        Args:
            mode: The mode that the graph is compiled in.

        Raises:
            OSError: The directory of the dump cannot be made.
        """
        dump = self.dump_config
        options: dict[str, str] = {}
        if dump.dump_config_path.value is not None:
            options[ge_options.ACL_CONFIG] = dump.dump_config_path.value
        if dump.enable_dump:
            options |= _operator_dump(dump) if mode == MAX_AUTOTUNE else _capture_dump(dump)
        return {}, options


def _dump_config() -> Group:
    return Group(
        "_DataDumpConfig",
        {
            "enable_dump": Option(False, _BOOLEAN),
            "dump_path": Option("./", directory),
            "dump_mode": Option("all", one_of("input", "output", "all")),
            "quant_dumpable": Option(False, _BOOLEAN),
            "dump_step": Option("", text_like(_STEPS, "0|1|2-5|6", shown=_STEPS_SHOWN)),
            "dump_layer": Option("", text_like(r'^[0-9a-zA-Z_" "/\\.]*$', "Mul_1 Add1 Conv2D_1")),
            "dump_data": Option("tensor", one_of("tensor", "stats")),
            "dump_config_path": Option(None, json_file),
            "data_dump_stage": Option("optimized", one_of("original", "optimized")),
        },
    )


def _debug() -> Group:
    return Group(
        "_DebugConfig",
        {
            "graph_dump": Group(
                "_Dump", {"path": Option(), "type": Option(None, unless_none(one_of("txt", "pbtxt", "py")))}
            ),
            "data_dump": Group(
                "_DataDump",
                {"path": Option(), "type": Option(None, unless_none(one_of("npy"))), "filter": Callback()},
            ),
            "fx_summary": TolerantGroup("_FxSummary", {"type": Option(), "skip_compile": Option(True)}),
            "aclgraph": TolerantGroup("debug.aclgraph", {}),
            "run_eagerly": Option(False, _BOOLEAN),
        },
    )


def _tolerant(name: str) -> Group:
    nested = _NESTED.get(name)
    members = {} if nested is None else {nested: TolerantGroup(f"{name}.{nested}", {})}
    return TolerantGroup(name, members)


def _operator_dump(dump: Group) -> dict[str, str]:
    options = {ge_options.ENABLE: "1", ge_options.PATH: _full_path(dump)}
    # vendor: dump_step and dump_layer are passed on only where they say something
    values = {key: getattr(dump, name).value for name, key in _DUMP_OPTIONS.items()}
    return options | {key: value for key, value in values.items() if value}


def _capture_dump(dump: Group) -> dict[str, str]:
    return {
        ge_options.CAPTURE_ENABLE: "1",
        "aclgraph.dumpPath": _full_path(dump),
        "aclgraph.dumpStage": dump.data_dump_stage.value,
    }


def _full_path(dump: Group) -> str:
    path = Path(dump.dump_path.value) / rank.directory()
    path.mkdir(parents=True, exist_ok=True)  # vendor: made here, before a graph is captured
    return str(path)
