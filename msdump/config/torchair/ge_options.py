"""Names of the options of GE behind torch.compile: CompilerConfig writes them, ``torchair`` reads them."""

from __future__ import annotations

from typing import Final

ACL_CONFIG: Final = "ge_dump_with_acl_config"
CAPTURE_ENABLE: Final = "aclgraph.enableDump"
ENABLE: Final = "ge.exec.enableDump"
ENABLE_DEBUG: Final = "ge.exec.enableDumpDebug"
PATH: Final = "ge.exec.dumpPath"
MODE: Final = "ge.exec.dumpMode"
STEP: Final = "ge.exec.dumpStep"
LAYER: Final = "ge.exec.dumpLayer"
DATA: Final = "ge.exec.dumpData"
DEBUG_MODE: Final = "ge.exec.dumpDebugMode"
QUANT: Final = "ge.quant_dumpable"
