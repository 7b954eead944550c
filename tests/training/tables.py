"""Cases of operators: ONNX's own tests of nodes, and tables of all test modules of this folder.

A module has them in tables, ``CASES`` or others: by name, the arguments of ``differences.one_operator``, of
which ``test_rules`` checks the gradients by differences, or a tuple of them and the module's own expected
result. Rules that it tests otherwise stand in ``COVERED``, as domain and type.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from unittest import mock

import numpy as np
import pytest
from onnx import defs, helper
from onnx.backend.test.case import base
from onnx.backend.test.case import node as onnx_tests

from msdump.training.rules import LOWERINGS, RULES, constant_zero
from tests.training.differences import OPSET

_HERE = Path(__file__).parent


def modules():
    """Yield the test modules of this folder, but for modules that need missing packages."""
    for path in sorted(_HERE.glob("test_*.py")):
        try:
            yield import_module(f"tests.training.{path.stem}")
        except pytest.skip.Exception:
            continue


def entries():
    """Return the rows of all tables of operators, by module, table and name."""
    return {
        f"{module.__name__.rpartition('.test_')[2]}-{table}-{name}": entry
        for module in modules()
        for table, rows in vars(module).items()
        if table.isupper() and not table.startswith("_") and isinstance(rows, dict)
        for name, entry in rows.items()
        if _is_case(entry)
    }


def operator_cases():
    """Return the arguments of every case of an operator, by module, table and name, or by ONNX's name."""
    own = {name: entry if isinstance(entry[0], str) else entry[0] for name, entry in entries().items()}
    return own | onnx_cases()


_SLOW = {"averagepool", "lppool", "maxpool"}
"""Modules of ONNX's tests that take 4 of the 5 seconds of all; test_convolutions has pooling of its own."""

_LARGEST = 150  # elements of all floating-point inputs: two runs of the operator for each
_LEFT_OUT = re.compile(
    r"""
    globalmaxpool | gru_reverse | lstm_.* | simple_rnn_.*  # rounding
    | acosh_example | (elu|leakyrelu|selu|thresholdedrelu)_example | l[12]normalization_axis_.*  # kinks
    | pow | reduce_min_default_axes_keepdims_example | scatternd_(max|min)
    | .*empty_set.* | .*_zero_size_.* | reshape_allowzero_reordered  # nothing to differentiate
    | batchnorm_.* | .*dropout.*  # other results in training
    | .*_batchwise | rnn_seq_length | .*_not_(larger|smaller) | .*multiply | .*reduction_mul  # refused
    | .*fmod_0.* | pow_types_.* | spacetodepth_.*  # no kernel of onnxruntime
    | gridsample.*  # read between elements, and by cubic interpolation
    | .*_opset13  # of another opset than the tests'
    """,
    re.VERBOSE,
)


@cache
def onnx_cases():
    """Return the arguments of ONNX's tests of operators with a gradient rule, but for special cases."""
    rules = {op_type for domain, op_type in RULES | LOWERINGS if not domain}
    rules -= {op_type for (_, op_type), rule in RULES.items() if rule is constant_zero}
    rules -= {"Attention", "RotaryEmbedding"}  # too large, or without kernels
    cases = {}
    with (
        np.errstate(all="ignore"),  # infinities are cases, too
        mock.patch.object(onnx_tests, "import_recursive", _import_quick),
        mock.patch.object(base, "process_snippet"),  # finding sources for documents takes half of the time
    ):
        collected = onnx_tests.collect_testcases(None)
    for case in collected:
        name = case.name.removeprefix("test_")
        if case.model is None or name.endswith(("_expanded", "_expanded_ver18")) or _LEFT_OUT.fullmatch(name):
            continue
        node, *others = case.model.graph.node
        if not others and not node.domain and node.op_type in rules:
            values = dict(
                zip((item.name for item in case.model.graph.input), case.data_sets[0][0], strict=True)
            )
            arrays = [values.get(name) for name in node.input]
            floats = [array.size for array in arrays if getattr(array, "dtype", None) == np.float32]
            if floats and 0 < sum(floats) <= _LARGEST:
                cases[f"onnx-{name}"] = _arguments(node, arrays, case.model.opset_import[0].version)
    return cases


def _import_quick(package):
    """Import the modules of ONNX's tests but for the slow ones, in place of all."""
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        if module.name.rpartition(".")[2] not in _SLOW:
            import_module(module.name)


def _arguments(node, arrays, version):
    """Return the arguments of a case in the tests' own opset, unless the operator is newer."""
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    texts = {name: value.decode() for name, value in attributes.items() if isinstance(value, bytes)}
    is_old = defs.has(node.op_type, OPSET, "")
    schema = defs.get_schema(node.op_type, OPSET if is_old else version)
    fits = is_old and not schema.deprecated and attributes.keys() <= schema.attributes.keys()
    return node.op_type, arrays, attributes | texts, len(node.output), OPSET if fits else min(version, 24)


def _is_case(entry):
    """Tell whether a row of a table begins with type, arrays and attributes of an operator."""
    match entry:
        case (str(), [*_], dict(), *_) | ((str(), [*_], dict(), *_), *_):
            return True
    return False


def covered():
    """Return the rules that modules test without cases."""
    return {rule for module in modules() for rule in getattr(module, "COVERED", ())}


def kind(arguments):
    """Return domain and type of the operator of a case."""
    return (arguments[5] if len(arguments) > 5 else ""), arguments[0]
