"""Operators of dumps as folders that run: from the model, from the graph file alone, on every level."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.errors import InputError, UnsupportedOpError
from msdump.frontends import mindspore
from msdump.graph import loader
from msdump.judge import find_run, inputs, reproduce, write_folder
from msdump.read import open_dump, parse_attributes
from msdump.record import IO
from tests.texts import parsed
from tests.world import CPU, GRAPHS, O0, O1, O2, cli, completed
from tests.world import common_settings as everything

MODES = {
    "CPU": (CPU, {}),
    "O0": (O0, {}),
    "O1": (O1, {}),
    "O2": (O2, {"file_format": "npy"}),
    "O2 bin": (O2, {"file_format": "bin"}),
}


@pytest.fixture
def dumped(monkeypatch, tmp_path):
    """Return a function that dumps runs of a model and opens the dump."""

    def dump(model, mode="CPU", *, runs=1, trains=False, training=None, **common):
        context, more = MODES[mode]
        settings = {"common_dump_settings": everything(tmp_path / "dump", **more, **common)}
        if mode in {"CPU", "O0", "O1"}:
            settings["e2e_dump_settings"] = {"enable": True, "trans_flag": True}
        network = mindspore.load(model, settings, context=context, **(training or {}))
        for number in range(runs):
            fed = inputs.made_up(network.training.graph if trains else network.graph, {}, 0, number)
            network.train_step(**fed) if trains else network.run(fed)
        mindspore.finish()
        return open_dump(tmp_path / "dump")

    return dump


def names(dump):
    """Return the operators of a dump, without operators that compilation or the runtime added."""
    listed = dict.fromkeys(record.full_name or record.op_name for record in dump.records)
    return [name for name in listed if "-op" in name]


def error(repro):
    """Return the largest relative distance between the dumped outputs and the model's."""
    session = onnxruntime.InferenceSession(repro.model)
    results = session.run(list(repro.outputs), dict(repro.inputs))
    pairs = zip(repro.outputs.values(), results, strict=True)
    return max(
        float(np.linalg.norm(a.astype(float) - b.astype(float)) / (np.linalg.norm(b.astype(float)) or 1))
        for a, b in pairs
    )


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        *((model, mode) for model in ("lenet", "loop", "bfloat16", "int4", "functions") for mode in MODES),
        *(("transformer", mode) for mode in ("O1", "O2 bin")),
    ],
)
def test_every_operator_of_a_dump_runs_again(dumped, model, mode):
    """Cut out of the model, each operator gives its dumped outputs, fused ones and bodies' too."""
    path = GRAPHS / f"{model}.onnx"
    dump, graph = dumped(path, mode), loader.load(path)

    assert names(dump)
    for name in names(dump):
        # the default mode of Ascend rounds results of cube operators; the dumped inputs are rounded already
        assert error(reproduce(find_run(dump, name), dump, graph)) < 1e-3, name


@pytest.mark.parametrize("mode", ["CPU", "O0"])
@pytest.mark.parametrize("model", ["lenet", "transformer", "torch_export"])
def test_the_graph_file_alone_is_enough_for_known_primitives(dumped, model, mode):
    """Type and arguments of the .ir make the same operator."""
    dump = dumped(GRAPHS / f"{model}.onnx", mode)

    for name in names(dump):
        assert error(reproduce(find_run(dump, name), dump, None)) < 1e-5, name


def test_inputs_that_were_not_dumped_are_outputs_of_others(dumped):
    """With outputs alone, an operator reads its producers' outputs; weights are the model's."""
    path = GRAPHS / "lenet.onnx"
    dump, graph = dumped(path, input_output=2), loader.load(path)

    repro = reproduce(find_run(dump, "fc1-Dense_MatMul-op0"), dump, graph)

    assert error(repro) < 1e-5


STEP = """
net (float[4,3] x) => (float[] loss, float[3,2] new) <float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>
{
  out = MatMul(x, w)
  square = Mul(out, out)
  loss = ReduceMean <keepdims = 0> (square)
  half = Constant <value_float = 0.5> ()
  new = Mul(w, half)
}
"""


def test_each_iteration_has_its_own_tensors(dumped):
    """The last iteration is taken unless another one is given."""
    model = parsed(STEP)
    dump = dumped(model, runs=3, trains=True, training={"update_binding": {"w": "new"}})
    graph = loader.load(model, update_binding={"w": "new"})

    last, first = (find_run(dump, "Mul-op1", iteration=number) for number in (None, 0))

    assert [2, 0] == [last.first.iteration, first.first.iteration]
    np.testing.assert_array_equal(
        reproduce(first, dump, graph).outputs["new"] / 4, reproduce(last, dump, graph).outputs["new"]
    )


def refusal(message, operator, *, dump="lenet", model=None, saved="tensor", **numbers):
    """Return an operator to find in a dump, the model to reproduce it by, and the refusal."""
    return dump, saved, {"operator": operator, **numbers}, model, message


CONV = "Default/conv1-Conv2d/Conv2D-op0"
REFUSALS = {
    "a name that is none": refusal("did you mean", "Default/conv9-Conv2d/Conv2D-op0"),
    "an unknown name": refusal("no operator 'Rule'", "Rule"),
    "an iteration that was not dumped": refusal("no iteration 7, but 0", "Conv2D-op0", iteration=7),
    "a rank that is none": refusal("no rank 3, but 0", "Conv2D-op0", rank=3),
    "a pass that did not run": refusal("no pass 2", "conv1-Conv2d_Conv2D-op0", pass_number=2),
    "a component of several": refusal("2 operators match 'Conv2D-op0'; give a full name", "Conv2D-op0"),
    "another model": refusal(f"has no operator {CONV}", "conv1/Conv_node_0", model="transformer"),
    "an unknown primitive": refusal("--model", "Default/QLinearConv-op0", dump="quantized"),
    "no tensors": refusal("no tensors of an operator", CONV, saved="statistic"),
}


@pytest.mark.parametrize(("name", "saved", "wanted", "model", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(dumped, name, saved, wanted, model, message):
    """The message lists the dump's names and numbers; an operator is not guessed."""
    dump = dumped(GRAPHS / f"{name}.onnx", "CPU" if saved == "tensor" else "O0", saved_data=saved)
    graph = None if model is None else loader.load(GRAPHS / f"{model}.onnx")

    with pytest.raises((InputError, UnsupportedOpError), match=message):
        reproduce(find_run(dump, **wanted), dump, graph)


@pytest.mark.parametrize("mode", ["O2", "O2 bin"])
def test_a_kernel_of_several_operators_needs_the_model(dumped, mode, monkeypatch, tmp_path):
    """GE's graph file holds the first part of a fused kernel alone, which would give something else."""
    monkeypatch.setenv("DUMP_GE_GRAPH", "1")
    monkeypatch.setenv("DUMP_GRAPH_PATH", f"{tmp_path}/dump")
    dump = dumped(GRAPHS / "lenet.onnx", mode)

    with pytest.raises(
        InputError, match="is one kernel of Conv2D, ReLU, but the graph file describes only Conv2D"
    ):
        reproduce(find_run(dump, "conv1-Conv2d_Conv2D-op0ReLU-op0"), dump, None)


WITHOUT_MODEL = {
    "fused": (
        "lenet",
        "O2",
        "conv1-Conv2d_Conv2D-op0ReLU-op0",
        "no graph file of the dump describes",
        "float16",
    ),
    "fused, bin": (
        "lenet",
        "O2 bin",
        "conv1-Conv2d_Conv2D-op0ReLU-op0",
        "no graph file of the dump",
        "float16",
    ),
    "unknown type": (
        "quantized",
        "CPU",
        "Default/QLinearConv-op0",
        "alone does not tell how to comp",
        "uint8",
    ),
}


@pytest.mark.parametrize(
    ("model", "mode", "operator", "reason", "dtype"), WITHOUT_MODEL.values(), ids=WITHOUT_MODEL
)
def test_tensors_where_no_model_can_be_had(dumped, tmp_path, model, mode, operator, reason, dtype):
    """The folder has the operator's inputs and outputs, and says why it has no model."""
    dump = dumped(GRAPHS / f"{model}.onnx", mode)

    done = cli("extract", dump.path, operator, "-o", tmp_path / "repro")

    assert (0, True) == (done.exit_code, "warning: no model.onnx" in done.stderr)
    assert ["inputs.npz", "operator.json", "outputs.npz"] == sorted(
        path.name for path in (tmp_path / "repro").iterdir()
    )
    told = json.loads((tmp_path / "repro/operator.json").read_text())
    assert (None, True) == (told["model"], reason in told["reason"])
    assert dtype == told["tensors"]["input_0"]["dtype"]
    run = find_run(dump, operator)
    for name, io in (("inputs", IO.INPUT), ("outputs", IO.OUTPUT)):
        arrays = np.load(tmp_path / f"repro/{name}.npz")
        assert {f"{io}_{slot}" for slot in run.of(io)} == {*arrays}
        for slot, record in run.of(io).items():
            np.testing.assert_array_equal(record.host, arrays[f"{io}_{slot}"])


def test_what_was_not_dumped_is_told_without_a_model(dumped, tmp_path):
    """Outputs alone are no repro: an error names the missing inputs, and nothing is written."""
    dump = dumped(GRAPHS / "lenet.onnx", "O2", input_output=2)

    done = cli("extract", dump.path, "conv1-Conv2d_Conv2D-op0ReLU-op0", "-o", tmp_path / "repro")

    assert (2, False) == (done.exit_code, (tmp_path / "repro").exists())
    assert "no input of " in done.stderr


def test_the_script_of_the_folder_runs(dumped, tmp_path):
    """It prints how far the dumped output is off, also where it was changed."""
    dump = dumped(GRAPHS / "lenet.onnx")
    run = find_run(dump, "Default/conv1-Conv2d/Conv2D-op0")
    repro = reproduce(run, dump, None)
    paths = write_folder(run, repro, str(tmp_path / "repro"))

    assert ["model.onnx", "inputs.npz", "outputs.npz", "run.py"] == [Path(path).name for path in paths]
    done = completed(sys.executable, paths[-1], check=True)
    assert "output_0: largest difference " in done.stdout

    np.savez(paths[2], output_0=repro.outputs["output_0"] * 2)
    done = completed(sys.executable, paths[-1], check=True)
    assert "relative distance 1" in done.stdout


VALUES = st.recursive(
    st.integers(-(10**9), 10**9) | st.booleans() | st.sampled_from(["valid", "NCHW", "none"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


def text_of(value):
    """Return a value as graph files write it."""
    if isinstance(value, bool):
        return f"Bool({int(value)})"
    if isinstance(value, list):
        return f"({', '.join(map(text_of, value))})"
    return f"I64({value})" if isinstance(value, int) else f'"{value}"'


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, max_size=5))
def test_arguments_are_read_as_they_are_written(attributes):
    """Numbers, truth values, texts and lists of them come back."""
    text = ", ".join(f"{name}: {text_of(value)}" for name, value in attributes.items())

    assert attributes == parse_attributes(text)
