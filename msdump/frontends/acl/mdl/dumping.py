"""``acl.mdl``: the dump of models."""

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
    """Begin with dumps (``aclmdlInitDump``).

    Codes: 100001 before ``acl.init``, 100002 where it has begun already.
    """
    now = state.current()
    state.require_init(now, "aclmdlInitDump")
    if now.dumps.is_initialised:
        raise out_of_turn("aclmdlInitDump", _REPEATED, AclCode.REPEAT_INITIALIZE)
    now.dumps.is_initialised = True


@answers.code
def set_dump(dump_cfg_path: str | None) -> None:
    """Dump as a configuration file says (``aclmdlSetDump``); models loaded from now on take it.

    Args:
        dump_cfg_path: Path of an acl.json.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``, 100000 for None, 100003, 100006
    and 100009 for a file that cannot be used, 500000 where it goes with no exception dump that the
    environment has turned on.
    """
    now = state.current()
    _require_dump(now, "aclmdlSetDump")
    if dump_cfg_path is None:
        raise null_pointer("aclmdlSetDump", "dumpCfgPath")
    now.dumps.configure(path_text(dump_cfg_path, "dumpCfgPath"))


@answers.code
def finalize_dump() -> None:
    """End with dumps (``aclmdlFinalizeDump``): every loaded model stops at once.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``.
    """
    now = state.current()
    _require_dump(now, "aclmdlFinalizeDump")
    now.dumps.is_initialised = False
    now.dumps.stop()


def _require_dump(now: AclState, function: str) -> None:
    state.require_init(now, function)
    if not now.dumps.is_initialised:
        reason = f"aclmdlInitDump must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.DUMP_NOT_RUN)
