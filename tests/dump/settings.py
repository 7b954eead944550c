"""Configurations of tests."""

import json


def common(root, **changes):
    """Return ``common_dump_settings`` that dump everything below a root, with keys replaced."""
    return {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(root),
        "net_name": "Net",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
    } | changes


def write(path, root, /, *, own=None, is_synchronous=True, **changes):
    """Write a configuration that dumps everything below a root, with keys replaced; return its path.

    ``own`` holds msdump's own keys.
    """
    blocks = {
        "common_dump_settings": common(root, **changes),
        "e2e_dump_settings": {"enable": is_synchronous},
    }
    path.write_text(json.dumps(blocks | ({"msdump": own} if own else {})), encoding="utf-8")
    return path
