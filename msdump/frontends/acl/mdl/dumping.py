"""``acl.mdl``: the calls that turn the dump of models on and off."""

from __future__ import annotations

from typing import Final

from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import null_pointer, out_of_turn
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.arguments import path_text
from msdump.frontends.acl.state import AclState

_REPEATED: Final = "This API cannot be called repeatedly"


@answers.code
def init_dump() -> None:
    """Allow dumps to be configured (``aclmdlInitDump``).

    Codes: 100001 before ``acl.init``, 100002 where it was called already.
    """
    acl = state.current()
    state.require_init(acl, "aclmdlInitDump")
    if acl.dumps.is_initialised:
        raise out_of_turn("aclmdlInitDump", _REPEATED, AclCode.REPEAT_INITIALIZE)
    acl.dumps.is_initialised = True


@answers.code
def set_dump(dump_cfg_path: str | None) -> None:
    """Configure the dump of models that are loaded from now on (``aclmdlSetDump``).

    Args:
        dump_cfg_path: Path of an acl.json.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``, 100000 for None, 100003, 100006
    and 100009 for a file that cannot be used, 500000 where it goes with no exception dump that the
    environment has turned on.
    """
    acl = state.current()
    _require_dump(acl, "aclmdlSetDump")
    if dump_cfg_path is None:
        raise null_pointer("aclmdlSetDump", "dumpCfgPath")
    acl.dumps.configure(path_text(dump_cfg_path, "dumpCfgPath"))


@answers.code
def finalize_dump() -> None:
    """End every dump (``aclmdlFinalizeDump``): loaded models stop dumping at once.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``.
    """
    acl = state.current()
    _require_dump(acl, "aclmdlFinalizeDump")
    acl.dumps.is_initialised = False
    acl.dumps.stop()


def _require_dump(acl: AclState, function: str) -> None:
    state.require_init(acl, function)
    if not acl.dumps.is_initialised:
        reason = f"aclmdlInitDump must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.DUMP_NOT_RUN)
