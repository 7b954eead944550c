"""Kernels that are faulty on purpose: they write past the end of their output in device memory.

The watcher of acl's dump finds such kernels on a device; a model for trying it out has one. A node
states it in its metadata, ``msdump.stomp`` = number of bytes; the values that the model computes stay
the same.
"""

from __future__ import annotations

from typing import Final

from msdump.errors import GraphError
from msdump.graph.graph import Node

KEY: Final = "msdump.stomp"


def stomped_bytes(node: Node) -> int:
    """Return how many bytes behind its last output a node's kernel overwrites, 0 for a sound one.

    Raises:
        GraphError: The metadata is no number of bytes.
    """
    count = 0
    for part in node.members:
        for entry in part.proto.metadata_props:
            if entry.key == KEY:
                if not entry.value.isdecimal():
                    raise GraphError(
                        f"node {part.name!r}: metadata {KEY} = {entry.value!r}: a number of bytes is expected"
                    )
                count = int(entry.value)
    return count
