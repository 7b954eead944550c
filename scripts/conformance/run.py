"""ONNX's own backend suite, run twice: by onnxruntime as a whole and by msdump operator by operator.

``python -m scripts.conformance.run [KIND...]`` prints the counts and every case that fails, with
its reason.
"""

import argparse
import functools
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from msdump.execute.runtime import short
from msdump.graph import loader
from msdump.session import Network
from tests.execute import whole

KINDS: Final = ("node", "simple", "pytorch-operator", "pytorch-converted")

REASONS: Final = {
    "bernoulli|training_dropout": "draws random numbers of its own",
    "dft|stft": "onnxruntime's float32 transform gives up to 1e-4 where the exact value is 0",
    "qk_matmul_bias_.d_mask_causal": "onnxruntime masks with the lowest float, the case expects -inf",
    "attention_4d_causal_fp16": "one float16 in 192 is one unit in the last place off",
    "maxunpool_export_with_output_shape": "onnxruntime reads the indices in the given output shape",
    "resize_downsample_scales_.*_align_corners": "onnxruntime rounds the size before it aligns corners",
    "gradient_of": "neither onnxruntime nor ONNX's reference implements Gradient",
}
"""Why a case that fails as a whole as well cannot pass, by a pattern of its name."""

_FLOAT16_CHAIN: Final = (
    "onnxruntime computes chains of float16 operators in float32 and omits casts to float16 between them;"
    " operator by operator each value is rounded to float16 (within two units in the last place)"
)
_TWO_FLOAT16_ULPS: Final = 2**-9  # the suite's own tolerance for bfloat16, in float16's precision

Run = Callable[[onnx.ModelProto, dict[str, Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the suite.

    Attributes:
        kind: The part of the suite it belongs to.
        name: Its name there.
        model: The network.
        data_sets: (inputs, expected outputs) in the model's order.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
    """

    kind: str
    name: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went.

    Attributes:
        case: The case.
        whole: Why it fails as a whole; "" where it passes.
        by_operator: Why it fails operator by operator; "" where it passes.
        explanation: Why it cannot pass operator by operator; "" where it passes or is unexplained.
    """

    case: Case
    whole: str
    by_operator: str
    explanation: str


def cases(kind: str) -> Iterator[Case]:
    """Yield the cases of one part of the suite; random inputs are the same in every process."""
    np.random.seed(0)  # noqa: NPY002 - the suite draws from numpy's global generator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        loaded = load_model_tests(kind=kind)
    for case in sorted(loaded, key=lambda case: case.name):
        if case.model is None:
            folder = Path(case.model_dir)
            model = onnx.load(folder / "model.onnx")
            data_sets = tuple(_stored(model, data) for data in sorted(folder.glob("test_data_set_*")))
        else:
            model = case.model
            data_sets = tuple((_arrays(inputs), _arrays(outputs)) for inputs, outputs in case.data_sets)
        yield Case(kind, case.name, model, data_sets, case.rtol, case.atol)


def _arrays(items: Sequence[Any]) -> list[Any]:
    return [_array(item) for item in items]


def _array(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return np.asarray(item) if isinstance(item, np.generic) else item


def _stored(model: onnx.ModelProto, folder: Path) -> tuple[list[Any], list[Any]]:
    def read(side: str, values: Sequence[onnx.ValueInfoProto]) -> list[Any]:
        count = len(list(folder.glob(f"{side}_*.pb")))
        return [
            _decoded((folder / f"{side}_{position}.pb").read_bytes(), values[position].type)
            for position in range(count)
        ]

    return read("input", model.graph.input), read("output", model.graph.output)


def _decoded(data: bytes, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def run_by_operator(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Return the outputs of msdump's run."""
    outputs = Network(loader.load(model)).run(feeds)
    return [outputs[value.name] for value in model.graph.output]


def failure(case: Case, run: Run, rtol: float | None = None) -> str:
    """Return why a case fails, "" where it passes; ``rtol`` replaces the case's own."""
    names = [value.name for value in case.model.graph.input]
    try:
        for inputs, expected in case.data_sets:
            got = run(case.model, dict(zip(names, inputs, strict=False)))
            check(expected, got, rtol or case.rtol, case.atol)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the case's reason
        text = short(error) if type(error).__module__.startswith("onnxruntime") else str(error)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"{type(error).__name__}: {'; '.join(lines[:4])}"
    return ""


def check(expected: Sequence[Any], got: Sequence[Any], rtol: float, atol: float) -> None:
    """Compare by the suite's rules, absent optionals included.

    Raises:
        AssertionError: Other values, shapes or types.
    """
    assert len(expected) == len(got), f"{len(got)} outputs, {len(expected)} expected"
    for left, right in zip(expected, got, strict=True):
        if left is None or right is None:
            assert left is right, f"{type(right).__name__} instead of {type(left).__name__}"
        elif isinstance(left, list):
            assert isinstance(right, list), f"{type(right).__name__} instead of a list"
            check(left, right, rtol, atol)
        else:
            Runner.assert_similar_outputs([np.asarray(left)], [right], rtol, atol)


@functools.cache
def outcomes(kind: str) -> tuple[Outcome, ...]:
    """Run the cases of one part of the suite both ways."""
    with np.errstate(all="ignore"):
        return tuple(_outcome(case) for case in cases(kind))


def _outcome(case: Case) -> Outcome:
    as_whole, by_operator = failure(case, whole.run), failure(case, run_by_operator)
    return Outcome(case, as_whole, by_operator, _explanation(case, as_whole, by_operator))


def _explanation(case: Case, as_whole: str, by_operator: str) -> str:
    if not by_operator:
        return ""
    if not as_whole:
        is_rounding = _computes_in_float16(case) and not failure(case, run_by_operator, _TWO_FLOAT16_ULPS)
        return _FLOAT16_CHAIN if is_rounding else ""
    return next((reason for pattern, reason in REASONS.items() if re.search(pattern, case.name)), "")


def _computes_in_float16(case: Case) -> bool:
    return any(o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for o in case.model.graph.output)


def report(kind: str) -> str:
    """Return the counts of one part of the suite and every case that fails, with its reason."""
    done = outcomes(kind)
    passed = sum(not outcome.by_operator for outcome in done)
    passed_whole = sum(not outcome.whole for outcome in done)
    lines = [f"{kind}: {passed} of {len(done)} cases pass operator by operator, {passed_whole} as a whole"]
    for outcome in done:
        if outcome.by_operator:
            mark = " (passes as a whole)" if not outcome.whole else ""
            why = outcome.explanation or outcome.by_operator[:300]
            lines.append(f"  {outcome.case.name}{mark}: {why}")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"parts of the suite ({', '.join(KINDS)})")
    logging.getLogger("msdump").setLevel(logging.ERROR)
    for kind in parser.parse_args().kinds or KINDS:
        print(report(kind), flush=True)


if __name__ == "__main__":
    main()
