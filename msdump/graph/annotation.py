"""A model with texts beside its nodes: metadata, which Netron shows and every runtime ignores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from msdump import reading
from msdump.errors import GraphError
from msdump.graph.names import name_nodes
from msdump.graph.order import subgraphs


def annotated(path: str, properties: Mapping[str, Mapping[str, str]], folder: str) -> tuple[bytes, int]:
    """Return a model with texts in the metadata of its nodes, and how many nodes have some.

    Nodes without a name get the one that the loader gives them. Texts of earlier annotations are replaced.

    Args:
        path: The .onnx file.
        properties: Texts by their keys by the name of the node.
        folder: Where the new model goes: beside the old one, where weights lie in files of their own.

    Raises:
        GraphError: The file cannot be read, or keeps weights in files that the folder lacks.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(reading.map_file(Path(path))))
    except OSError as error:
        raise GraphError(f"{path}: the model cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise GraphError(f"{path}: not an ONNX model") from error
    has_files = any(each.data_location == onnx.TensorProto.EXTERNAL for each in model.graph.initializer)
    if has_files and os.path.realpath(Path(path).parent) != os.path.realpath(folder):
        raise GraphError(
            f"{path}: its weights lie in other files; write the annotated model into the same folder"
        )
    name_nodes(model.graph)
    count = 0
    for node in _nodes(model.graph):
        texts = properties.get(node.name, {})
        kept = [each for each in node.metadata_props if each.key not in texts]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.metadata_props.extend(
            onnx.StringStringEntryProto(key=key, value=text) for key, text in texts.items()
        )
        count += bool(texts)
    return model.SerializeToString(), count


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)
