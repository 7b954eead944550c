"""Compile the statistics pass: a hook of the package's build, and ``python scripts/compile_kernel.py``.

Without a C compiler, or if the library cannot be loaded, msdump is installed without it. numpy then computes
the same statistics, more slowly. ``CC`` names another compiler than ``cc``.

``MSDUMP_KERNEL=0`` builds a wheel without the library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # called by hand: hatchling stands only where packages are built
    BuildHookInterface = object

_KERNEL: Final = Path("msdump") / "statistics" / "kernel"
_FLAGS: Final = (
    *("-std=gnu11", "-O3", "-fopenmp-simd", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fPIC", "-shared"),
)
# The C library of some systems cannot choose between variants of a function: the second time has one of each.
_ATTEMPTS: Final = ((), ("-DPORTABLE",))
_PATIENCE: Final = 300  # seconds


def compile_kernel(root: Path, tell: Callable[[str], None]) -> Path | None:
    """Compile the library of a source tree into it; return its path, None if the compiler fails.

    Args:
        root: Folder of the source tree.
        tell: Called with the reason of a failure.
    """
    library = root / _KERNEL / "_kernel.so"
    made = library.with_name(f"_kernel.{os.getpid()}.so")
    try:
        reasons = list(_failures(_compiler(), root / _KERNEL / "kernel.c", made))
        if len(reasons) < len(_ATTEMPTS):
            made.replace(library)  # a process that has the older one loaded keeps it
            return library
    except OSError as error:
        reasons = [str(error)]
    for left in (made, library):  # the latter of an older source
        with contextlib.suppress(OSError):
            left.unlink()
    tell(f"statistics will be computed by numpy: the library was not compiled: {reasons[0]}")
    return None


def _failures(compiler: str, source: Path, library: Path) -> Iterator[str]:
    """Compile with the flags of each attempt until one works; yield why the others do not."""
    for flags in _ATTEMPTS:
        command = [compiler, *_FLAGS, *flags, "-o", str(library), str(source), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
            ctypes.CDLL(str(library)).msdump_kernel_version()
        except subprocess.CalledProcessError as error:
            yield error.stderr.strip()
        except (OSError, AttributeError, subprocess.TimeoutExpired) as error:
            yield str(error)
        else:
            return


def _compiler() -> str:
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise FileNotFoundError(f"there is no C compiler ({', '.join(names)})")
    return found


class KernelHook(BuildHookInterface):
    """Puts the compiled kernel into wheels, and beside its source in editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Compile the kernel; a wheel with a kernel fits this platform and any Python."""
        if os.environ.get("MSDUMP_KERNEL") == "0":
            return
        library = compile_kernel(Path(self.root), self.app.display_warning)
        if library is None:
            return
        build_data["artifacts"].append(f"/{library.relative_to(self.root)}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    made = compile_kernel(Path(__file__).resolve().parent.parent, lambda text: print(text, file=sys.stderr))
    sys.exit(made is None)
