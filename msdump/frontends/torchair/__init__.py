"""torchair's door: graphs that torch.compile captures run on the emulated device and are dumped.

``from msdump import torchair`` replaces ``import torchair``. Import and configuration do not need torch;
``get_npu_backend`` and ``scope`` do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msdump.errors import NotAvailableError
from msdump.frontends.torchair.compiler_config import CompilerConfig

if TYPE_CHECKING:
    from msdump.frontends.torchair import scope
    from msdump.frontends.torchair.backend import get_npu_backend

__all__ = ["CompilerConfig", "get_npu_backend", "scope"]

_PACKAGE = __name__


def __getattr__(name: str) -> Any:
    """Import ``get_npu_backend`` or ``scope`` at first use; NotAvailableError without torch."""
    if name not in __all__:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise NotAvailableError(
            f"msdump.torchair needs PyTorch, and {error.name!r} is not installed: pip install msdump[torch]"
        ) from None
    if name == "scope":
        return importlib.import_module(f"{_PACKAGE}.scope")
    return importlib.import_module(f"{_PACKAGE}.backend").get_npu_backend


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
