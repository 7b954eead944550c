"""What configurations in tests have in common."""


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
