"""Attributes of a node under MindSpore's argument names: the .ir's primitive_attrs and save_kernel_args."""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.graph.graph import Graph, Node
from msdump.graph.operators import Argument, ArgumentRule, facts_of, plain

_SHOWN: Final = 16  # most elements that a tensor's text lists

# vendor: graph files spell Conv's argument pad_mode without its last letter.
_CONSTRUCTOR_NAMES: Final = {"pad_mod": "pad_mode"}


def arguments(node: Node, graph: Graph) -> dict[str, Argument]:
    """Return a node's arguments by MindSpore's names, or by ONNX's where the table of operators has none.

    Every attribute of the model appears once. Defaults appear where the table states
    them. A subgraph attribute appears as ``@`` and the name of the subgraph.
    """
    if node.arguments is not None:
        return dict(node.arguments)
    # MindSpore's type comes first: an ONNX Add may be MindSpore's BiasAdd, which has other arguments
    rows: tuple[ArgumentRule, ...] = ()
    if not node.domain:
        rows = facts_of(node.operator.op_type).arguments or facts_of(node.op_type).arguments
    values: dict[str, Argument] = {}
    for row in rows:
        value = row.value(node, graph)
        if value is not None:
            values[row.name] = value
    translated = {row.attribute for row in rows}
    return values | {name: plain(value) for name, value in node.attributes.items() if name not in translated}


def kernel_args(node: Node, graph: Graph) -> dict[str, str]:
    """Return the arguments as ``save_kernel_args`` writes them, sorted by name.

    Values are texts such as ``True``, ``0``, ``[1 2]``, as in MindSpore's documents.
    """
    texts = {
        _CONSTRUCTOR_NAMES.get(name, name): _text(value) for name, value in arguments(node, graph).items()
    }
    return dict(sorted(texts.items()))


def kernel_args_json(node: Node, graph: Graph) -> bytes:
    """Return the ``{op_type}.{op_name}.json`` file: sorted keys, four spaces of indent."""
    return json.dumps(kernel_args(node, graph), indent=4, ensure_ascii=False).encode()


def tensor_text(array: np.ndarray) -> str:
    """Return a constant tensor as graph files print it, the elements only where they are 16 or fewer.

    >>> tensor_text(np.array([1, 2]))
    'Tensor(shape=[2], dtype=Int64, value=[1 2])'
    >>> tensor_text(np.zeros(17, np.float32))
    'Tensor(shape=[17], dtype=Float32, value=[...])'
    """
    if array.size > _SHOWN:
        value = "[...]"
    elif array.ndim:
        value = _text(tuple(array.tolist()))
    else:
        value = _text(array.item())
    return f"Tensor(shape={list(array.shape)}, dtype={dtypes.from_numpy(array.dtype).title}, value={value})"


def number_text(number: float) -> str:
    """Return a float with six significant digits, as C++ streams print it.

    >>> number_text(0.1), number_text(1e-5), number_text(1234567.0)
    ('0.1', '1e-05', '1.23457e+06')
    """
    return f"{number:g}"


def _text(value: Argument) -> str:
    if isinstance(value, np.ndarray):
        return tensor_text(value)
    if isinstance(value, (tuple, list)):
        return f"[{' '.join(_text(item) for item in value)}]"
    if isinstance(value, float):
        return number_text(value)
    return str(value)
