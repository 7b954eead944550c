"""Files on disk, read without the code under test."""

import re
import stat

import numpy as np
import onnx
import onnxruntime as ort

TIMESTAMP = re.compile(r"(?<=\.0\.0\.)[0-9]{16}(?=\.)")
TENSOR = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>[^.]+)\.0\.0\.(?P<time>[0-9]{16}|\{ts\})"
    r"\.(?P<io>input|output)\.(?P<slot>[0-9]+)\.(?P<format>\w+)(?:\.(?P<dtype>\w+))?\.npy"
)
_LEN = 2


def tree(root):
    """Return the files below a directory by their paths; names that stood in are given back."""
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            continue
        originals = _mapping(path.parent)
        name = originals.get(path.name, path.name)
        files[str((path.parent / name).relative_to(root))] = path
    return files


def _mapping(directory):
    path = directory / "mapping.csv"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(",", 1) for line in lines)


def timeless(names):
    """Return names with ``{ts}`` for timestamps, sorted; a repeated one stays repeated."""
    return sorted(TIMESTAMP.sub("{ts}", name) for name in names)


def tensors(root, *, iteration=None):
    """Return the tensor files below a directory: (match of the name, path) in order of time."""
    named_paths = []
    for name, path in tree(root).items():
        directory, _, base = name.rpartition("/")
        match = TENSOR.fullmatch(base)
        if match and (iteration is None or directory.endswith(f"/{iteration}")):
            named_paths.append((match, path))
    return sorted(named_paths, key=lambda item: item[0]["time"])


def operators(root):
    """Return the op_name fields of the operators that have files, parameters left out."""
    return {match["name"] for match, _ in tensors(root) if match["type"] != "Parameter"}


def parameters(root):
    """Return the op_name fields of parameter and constant files, sorted."""
    return sorted(match["name"] for match, _ in tensors(root) if match["type"] == "Parameter")


def slots(root):
    """Return ``Relu-op0 output 0`` for each tensor file, in order of time."""
    return [f"{match['name'].rpartition('_')[2]} {match['io']} {match['slot']}" for match, _ in tensors(root)]


def mode(path):
    """Return the permissions of a path."""
    return stat.S_IMODE(path.stat().st_mode)


def whole_graph(model, feeds):
    """Return every value that one session over the whole graph computes, by name.

    Args:
        model: A ModelProto.
        feeds: Inputs by name.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    listed = {item.name for item in (*model.graph.output, *model.graph.initializer)}
    names = [name for node in model.graph.node for name in node.output if name and name not in listed]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, feeds)
    values = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    values |= dict(zip((item.name for item in session.get_outputs()), results, strict=True))
    return values | feeds


def same_bits(left, right):
    """Tell whether two arrays are equal in type, shape and every bit."""
    return (
        left.dtype == right.dtype and left.shape == right.shape and bytes(left.data) == bytes(right.data)
        if left.flags.c_contiguous and right.flags.c_contiguous
        else same_bits(np.ascontiguousarray(left), np.ascontiguousarray(right))
    )


def pb_full_names(data):
    """Return the full names of the nodes of a .pb graph file, virtual ones included."""
    names = []
    for graph in _messages(data, 4):
        for item in _messages(graph, 1):
            names += [bytes(name).decode() for name in _messages(item, 8)]
    return names


def _messages(data, field_number):
    """Yield the length-delimited fields of a number in a protobuf message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        if tag & 7 != _LEN:
            continue  # a varint field; graph files hold no other kind at these levels
        if tag >> 3 == field_number:
            yield data[at : at + size]
        at += size


def _varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
