"""An evaluation that reads weights which a training step of the same dump wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.judge.compare.compared import START

PARAMETERS = """\
# IR entry: @kernel_graphNUMBER
# Params:
%para1_x: <Tensor[Float32], (12)> : [12]  :  <Float32xDefaultFormat[const vector][12]>  :  IsWeight: false
%para2_w: <Ref[Tensor[Float32]], (12), ref_key=w, is_parameter>  :  has_default  :  <Float32xDefaultFormat[const vector][12]>  :  IsWeight: true

subgraph @kernel_graphNUMBER() {
  %0(a) = TYPE(FIRST, SECOND) {instance name: a} primitive_attrs: {}
      : (<Tensor[Float32], (12)>, <Tensor[Float32], (12)>) -> (<Tensor[Float32], (12)>)
      : (<Float32xDefaultFormat[const vector][12]>, <Float32xDefaultFormat[const vector][12]>) -> (<Float32xDefaultFormat[const vector][12]>)
      : full_name_with_scope: (Default/TYPE-op0)
  Return(%0)
      : (<Tensor[Float32], (12)>)
}
"""  # noqa: E501 - the lines of a real file

VALUES = np.arange(1, 13, dtype="f4")


def dump(root, *, error, trains):
    """Write the dump of a step that adds to a weight, or only reads it, and of an evaluation with it.

    Args:
        root: The dump's root.
        error: Relative error of the weight after the step.
        trains: Whether the step writes the weight.
    """
    graphs = root / "rank_0" / "graphs"
    graphs.mkdir(parents=True)
    weight = VALUES * np.float32(1 + error)
    step = (weight, VALUES) if trains else (VALUES, VALUES)
    written = weight if trains else VALUES + VALUES
    networks = [
        ("AssignAdd", "%para2_w, %para1_x", step, written)
        if trains
        else ("Add", "%para1_x, %para1_x", step, written),
        ("Mul", "%para1_x, %para2_w", (VALUES, weight), VALUES * weight),
    ]
    for number, (op_type, operands, inputs, output) in enumerate(networks):
        text = PARAMETERS.replace("NUMBER", str(number)).replace("FIRST, SECOND", operands)
        file = graphs / f"ms_output_trace_code_graph_{number}.ir"
        file.write_text(text.replace("TYPE", op_type), encoding="utf-8")
        folder = root / "rank_0" / "Net" / str(number) / "0"
        folder.mkdir(parents=True)
        tensors = [*(("input", slot, array) for slot, array in enumerate(inputs)), ("output", 0, output)]
        for place, (io, slot, array) in enumerate(tensors):
            time = START + 100 * number + place
            name = f"{op_type}.Default_{op_type}-op0.0.0.{time}.{io}.{slot}.DefaultFormat.float32.npy"
            np.save(folder / name, array)
    return root


@pytest.mark.parametrize(
    ("error", "trains", "verdicts"),
    [
        (1e-6, True, {"AssignAdd": "agrees", "Mul": "agrees"}),
        (1e-6, False, {"Add": "equal", "Mul": "weight"}),
        (1e-2, True, {"AssignAdd": "own", "Mul": "inherited"}),
    ],
    ids=["trained", "never_written", "trained_wrong"],
)
def test_trained_weights_count_by_their_limit(tmp_path, run, error, trains, verdicts):
    """A weight that an optimizer rounds is the same, one that it wrote wrong its fault; else bits count."""
    mine = dump(tmp_path / "mine", error=error, trains=trains)
    golden = dump(tmp_path / "golden", error=0, trains=trains)

    done = run(mine, golden, "--json")

    assert verdicts == {each["op_type"]: each["verdict"] for each in json.loads(done.stdout)["operators"]}
