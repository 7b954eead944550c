"""pyACL's door: models and single operators run on the emulated device and dump as acl.json says.

``from msdump import acl`` replaces ``import acl``. Functions, return values and codes are pyACL's, and models
are .onnx files. No function raises an exception: an error is a return code and a line in the log.
"""

from __future__ import annotations

import atexit
from typing import Any

from msdump.config.acl import AclCode, faults, invalid, invalid_argument
from msdump.errors import AclError
from msdump.frontends.acl import mdl, state
from msdump.frontends.acl import operators as op
from msdump.frontends.acl import runtime as rt
from msdump.frontends.acl import runtime as util
from msdump.frontends.acl.operators import create_tensor_desc, destroy_tensor_desc, get_tensor_desc_size
from msdump.frontends.acl.state import DataBuffer

__all__ = [
    "create_data_buffer",
    "create_tensor_desc",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "finalize",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_recent_err_msg",
    "get_tensor_desc_size",
    "init",
    "mdl",
    "op",
    "rt",
    "util",
]


@state.code
def init(config_path: str | None = None) -> None:
    """Initialise pyACL (``aclInit``); a configuration file may configure a dump.

    Args:
        config_path: Path of an acl.json, None or "" for none.

    Codes: 100002 if pyACL is initialised, 100000 if the configuration differs from the first one, 100003,
    100006 and 100009 for an invalid file.
    """
    # vendor: CANN compares the configurations before it complains of the second call
    acl = state.current()
    if not config_path:
        data = b""
    else:
        if not isinstance(config_path, str):
            raise invalid_argument("aclInit", config_path, "configPath", "must be a path")
        data = faults.read_file(config_path)
    if acl.config and data and data != acl.config:
        reason = "the configuration differs from that of the first aclInit"
        raise invalid_argument("aclInit", config_path, "configPath", reason)
    if acl.is_initialised:
        raise AclError(AclCode.REPEAT_INITIALIZE, "acl.init has been called already")
    acl.dumps.read_environment()
    if config_path and data:
        acl.dumps.configure(config_path, AclCode.PARSE_FILE)
    acl.config = acl.config or data
    acl.is_initialised, acl.is_finalised = True, False


@state.code
def finalize() -> None:
    """Finalise pyACL (``aclFinalize``) and complete every file of the dump.

    Codes: 100037 if pyACL is finalised.
    """
    acl = state.current()
    if acl.is_finalised:
        raise AclError(AclCode.REPEAT_FINALIZE, "acl.finalize has been called already")
    acl.is_initialised, acl.is_finalised = False, True
    acl.dumps.is_initialised = False
    acl.models.clear()
    acl.dumps.stop()


def get_recent_err_msg() -> str:
    """Return the message of the last call that failed; a second call returns ""."""
    return state.recent_message()


@state.value(0)
def create_data_buffer(data: Any, size: Any) -> int:
    """Return the handle of a data buffer.

    Args:
        data: Address of the tensor; 0: an output gets memory when the model runs.
        size: Size of the tensor in bytes.
    """
    if not isinstance(data, int) or not isinstance(size, int) or size < 0:
        raise invalid(f"data buffer of {size!r} bytes at {data!r}")
    return state.current().handles.add(DataBuffer(data, size))


destroy_data_buffer = state.destroyer(DataBuffer)
"""Destroy a data buffer; its memory stays."""


get_data_buffer_addr = state.fact(DataBuffer, lambda buffer: buffer.address)
"""Return the address of a data buffer."""

get_data_buffer_size = state.fact(DataBuffer, lambda buffer: buffer.size)
"""Return the bytes of a data buffer."""


@atexit.register
def _flush() -> None:
    """Complete the files of a script that ends without ``finalize``."""
    state.current().dumps.flush()
