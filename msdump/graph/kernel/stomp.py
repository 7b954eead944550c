"""Kernels that are faulty on purpose: they write past the end of their output in device memory.

A node says so in its metadata, ``msdump.stomp`` = number of bytes; what the model
computes elsewhere does not change.
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
    found = 0
    for part in node.members:
        for entry in part.proto.metadata_props:
            if entry.key == KEY:
                if not entry.value.isdecimal():
                    raise GraphError(
                        f"node {part.name!r}: metadata {KEY} = {entry.value!r}: a number of bytes is expected"
                    )
                found = int(entry.value)
    return found
