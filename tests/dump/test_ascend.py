"""The emulated Ascend through MindSpore's door: precision, formats, fusion, memory, selection."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import msdump
from msdump.errors import DeviceMemoryError
from msdump.record import IO
from sample_nets import data
from tests.dump import nets, trees

O0 = {"device_target": "Ascend", "jit_level": "O0"}
O1 = {"device_target": "Ascend", "jit_level": "O1"}
ENABLE = pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])


def f16(array):
    """Round to float16 and widen."""
    with np.errstate(over="ignore"):
        return np.float32(array).astype(np.float16).astype(np.float32)


def bf16(array):
    """Round to bfloat16, ties to even, and widen: the upper half of the bits."""
    bits = np.float32(array).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def f32(array):
    """Round nothing."""
    return np.float32(array)


def load(door, step=0):
    """Return ``MatMul input 0`` -> array for the dumped tensors of a step."""
    folder = door.rank / "Net" / "0" / str(step)
    return {f"{m['type']} {m['io']} {m['slot']}": np.load(p) for m, p in trees.tensors(folder)}


def names(door):
    """Return the tensor files of step 0 without their times, in order of time."""
    folder = door.rank / "Net" / "0" / "0"
    return [trees.TIMESTAMP.sub("{ts}", m[0]) for m, _ in trees.tensors(folder)]


def product():
    """Return one matrix product of two terms, whose float16 products and sum a float32 rounds once."""
    return nets.model(
        [nets.node("MatMul", "x w", "y"), nets.node("Sigmoid", "y", "z")],
        [nets.value("x", [3, 2]), nets.value("w", [2, 4])],
        ["z"],
    )


FEEDS = {
    "x": np.array([[0.1, 0.2], [1 / 3, -7.7], [1000.7, 0.0001]], np.float32),
    "w": np.array([[0.3, 1.1, -2.7, 5.3], [0.7, 3.3, 1.9, 0.9]], np.float32),
}
MODES = {
    None: (f16, f32),
    "allow_fp32_to_fp16": (f16, f32),
    "allow_fp32_to_bf16": (bf16, f32),
    "force_fp16": (f16, f16),
}


@ENABLE
@pytest.mark.parametrize("way", ["call", "configuration"])
@pytest.mark.parametrize(("mode", "reads", "writes"), [(k, *v) for k, v in MODES.items()], ids=MODES)
def test_precision(door, enable, way, mode, reads, writes):
    """A matrix product is float32's of rounded inputs, rounded to the type that it writes."""
    context, changes = dict(O0), {"enable": enable}
    if mode and way == "call":
        context["ascend_config"] = {"precision_mode": mode}
    elif mode:
        changes["precision_mode"] = mode
    expected = writes(reads(FEEDS["x"]) @ reads(FEEDS["w"]))

    door.dump(product(), FEEDS, context=context, **changes)

    found = load(door)
    assert trees.same_bits(expected, found["MatMul output 0"])
    assert trees.same_bits(reads(FEEDS["x"]), found["MatMul input 0"])
    assert trees.same_bits(reads(FEEDS["w"]), found["MatMul input 1"])
    assert trees.same_bits(expected, found["Sigmoid input 0"])


@pytest.mark.parametrize("mode", ["force_fp32", "must_keep_origin_dtype"])
def test_modes_that_round_nothing(door, mode):
    """Under these modes every value is the whole graph's, bit for bit."""
    expected = trees.whole_graph(product(), FEEDS)

    door.dump(product(), FEEDS, context={**O0, "ascend_config": {"precision_mode": mode}})

    assert trees.same_bits(expected["y"], load(door)["MatMul output 0"])
    assert trees.same_bits(expected["z"], load(door)["Sigmoid output 0"])


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("opset", [7, 9, 12, 13])
def test_bfloat16_in_old_opsets(door, opset, level):
    """Models whose opset cannot cast to bfloat16 are rounded to it all the same, fused or not."""
    random = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "scale": 4, "bias": 4, "mean": 4, "var": 4}
    weights = {
        name: np.abs(random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()
    }
    nodes = [
        nets.node("Conv", "x w", "y"),
        nets.node("BatchNormalization", "y scale bias mean var", "n"),
        nets.node("Relu", "n", "z"),
    ]
    feeds = {"x": random.standard_normal((2, 3, 6, 6)).astype(np.float32)}
    shape = [2, 3, 6, 6]
    model = nets.model(nodes, [nets.value("x", shape)], ["z"], weights, opset=opset)
    rounded = nets.model(
        nodes, [nets.value("x", shape)], ["z"], weights | {"w": bf16(weights["w"])}, opset=opset
    )
    expected = trees.whole_graph(rounded, {"x": bf16(feeds["x"])})["z"]
    context = {"device_target": "Ascend", "jit_level": level}

    network = door.load(model, **context, ascend_config={"precision_mode": "allow_fp32_to_bf16"})

    np.testing.assert_allclose(network.run(feeds)["z"], expected, rtol=1e-5, atol=1e-6)


def test_call_beats_configuration(door):
    """The precision mode of ``set_context`` wins over the configuration's."""
    context = {**O0, "ascend_config": {"precision_mode": "force_fp16"}}

    network = door.dump(product(), FEEDS, context=context, precision_mode="force_fp32")

    assert trees.same_bits(f16(f16(FEEDS["x"]) @ f16(FEEDS["w"])), load(door)["MatMul output 0"])
    assert network.plan.precision_mode == "force_fp32"


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8, np.int32, np.int64, np.float64, np.bool_])
def test_other_types(door, dtype):
    """Tensors of other types than float32 keep their type and their values."""
    x = np.array([[1, 0, 3], [0, 5, 1]]).astype(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = nets.model([nets.node("Transpose", "x", "y")], [nets.value("x", [2, 3], kind)], ["y"])

    door.dump(model, {"x": x}, context=O0, trans_flag=False, precision_mode="force_fp16")

    assert trees.same_bits(x.T.copy(), load(door)["Transpose output 0"])
    assert names(door)[0].endswith(f".input.0.DefaultFormat.{np.dtype(dtype).name}.npy")


def test_float16_of_the_model(door):
    """A float16 operator computes in float32 on its inputs and rounds once."""
    x = np.array([0.1, 3.3, 700], np.float16)
    kind = onnx.TensorProto.FLOAT16
    model = nets.model(
        [nets.node("Exp", "x", "y")], [nets.value("x", [3], kind)], [nets.value("y", [3], kind)]
    )
    single = nets.model([nets.node("Exp", "x", "y")], [nets.value("x", [3])], ["y"])
    with np.errstate(over="ignore"):
        expected = trees.whole_graph(single, {"x": x.astype(np.float32)})["y"].astype(np.float16)

    door.dump(model, {"x": x}, context=O0)

    assert trees.same_bits(expected, load(door)["Exp output 0"])
    assert np.isposinf(expected[2])


@ENABLE
def test_lenet_in_mixed_precision(door, sample_net, enable):
    """Every cube operator of a real network is one session on its dumped, rounded inputs."""
    path, feeds = sample_net("lenet"), {"x": data.digits(0, 2, 32)}
    network = door.dump(path, feeds, context=O0, enable=enable)
    opset = dict(network.graph.opsets)[""]

    folder = door.rank / "Net" / "0" / "0"
    found = {}
    for match, file in trees.tensors(folder):
        found.setdefault(match["name"], {})[match["io"], int(match["slot"])] = np.load(file)

    cubes = 0
    for node in network.graph.nodes:
        tensors = found[re.sub(r"[^\w-]", "_", node.operator.full_name)]
        given = [tensors["input", slot] for slot in range(len(node.inputs))]
        assert trees.same_bits(_alone(node, given, opset), tensors["output", 0]), node.operator.full_name
        if node.op_type in {"Conv", "Gemm", "MatMul"}:
            cubes += 1
            assert all(trees.same_bits(f16(array), array) for array in given)
    assert cubes >= 4


def _alone(node, given, opset):
    """Return what a session of one operator, its weights as initializers, makes of its inputs."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    alone = nets.model(
        [proto],
        [nets.value(node.inputs[0], given[0].shape)],
        [node.outputs[0]],
        dict(zip(node.inputs[1:], given[1:], strict=True)),
        opset=opset,
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(alone.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {node.inputs[0]: given[0]})[0]


MINI_DEVICE = [
    ("Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.input.0.NC1HWC0.float16.npy", (1, 1, 6, 6, 16)),
    ("Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.input.1.FRACTAL_Z.float16.npy", (9, 1, 16, 16)),
    ("Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.NC1HWC0.float32.npy", (1, 1, 4, 4, 16)),
    ("ReLU.Default_relu-ReLU_ReLU-op0.0.0.{ts}.input.0.NC1HWC0.float32.npy", (1, 1, 4, 4, 16)),
    ("ReLU.Default_relu-ReLU_ReLU-op0.0.0.{ts}.output.0.NC1HWC0.float32.npy", (1, 1, 4, 4, 16)),
    ("Flatten.Default_flatten-Flatten_Flatten-op0.0.0.{ts}.input.0.DefaultFormat.float32.npy", (1, 2, 4, 4)),
    ("Flatten.Default_flatten-Flatten_Flatten-op0.0.0.{ts}.output.0.DefaultFormat.float32.npy", (1, 32)),
    ("MatMul.Default_fc-Dense_MatMul-op0.0.0.{ts}.input.0.FRACTAL_NZ.float16.npy", (2, 1, 16, 16)),
    ("MatMul.Default_fc-Dense_MatMul-op0.0.0.{ts}.input.1.FRACTAL_NZ.float16.npy", (1, 2, 16, 16)),
    ("MatMul.Default_fc-Dense_MatMul-op0.0.0.{ts}.output.0.FRACTAL_NZ.float32.npy", (1, 1, 16, 16)),
    ("BiasAdd.Default_fc-Dense_BiasAdd-op0.0.0.{ts}.input.0.DefaultFormat.float32.npy", (1, 3)),
    ("BiasAdd.Default_fc-Dense_BiasAdd-op0.0.0.{ts}.input.1.DefaultFormat.float32.npy", (3,)),
    ("BiasAdd.Default_fc-Dense_BiasAdd-op0.0.0.{ts}.output.0.DefaultFormat.float32.npy", (1, 3)),
]
MINI_HOST_SHAPES = [
    *((1, 1, 6, 6), (2, 1, 3, 3), (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4), (1, 32)),
    *((1, 32), (32, 3), (1, 3), (1, 3), (3,), (1, 3)),
]


@ENABLE
def test_trans_flag_false(door, enable):
    """Device tensors have the device's format name, type and shape."""
    door.dump(nets.mini(), nets.mini_feeds(), context=O0, enable=enable, trans_flag=False)

    shapes = [np.load(path).shape for _, path in trees.tensors(door.rank)]
    assert list(zip(names(door), shapes, strict=True)) == MINI_DEVICE


@ENABLE
def test_trans_flag_true(door, enable):
    """Host tensors have DefaultFormat, the host's type and shape."""
    expected = [
        re.sub(r"\.\w+\.float(16|32)\.npy", ".DefaultFormat.float32.npy", name) for name, _ in MINI_DEVICE
    ]

    door.dump(nets.mini(), nets.mini_feeds(), context=O0, enable=enable, trans_flag=True)

    assert expected == names(door)
    assert [np.load(path).shape for _, path in trees.tensors(door.rank)] == MINI_HOST_SHAPES


def test_device_bytes(door):
    """An image of two channels lies in NC1HWC0 with its channels last and zeros for the other fourteen."""
    x = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
    w = np.array([[[[1]], [[10]]]], np.float32)
    model = nets.model([nets.node("Conv", "x w", "y")], [nets.value("x", [1, 2, 1, 2])], ["y"], {"w": w})

    door.dump(model, {"x": x}, context=O0, trans_flag=False)

    found = load(door)
    pad = [0.0] * 14
    assert found["Conv2D input 0"].tolist() == [[[[[1, 3, *pad], [2, 4, *pad]]]]]
    assert found["Conv2D input 1"].shape == (1, 1, 16, 16)
    assert found["Conv2D input 1"][0, 0, 0].tolist() == [1, 10, *pad]
    assert not found["Conv2D input 1"][0, 0, 1:].any()
    assert found["Conv2D output 0"].tolist() == [[[[[31, 0, *pad], [42, 0, *pad]]]]]


def test_ir_shows_the_device(door):
    """The device line of the .ir has type, format and device dimensions, as the documented example."""
    w = np.zeros((384, 256, 3, 3), np.float32)
    node = nets.node("Conv", "x w", "y", pads=[1, 1, 1, 1])
    door.configure()

    door.load(nets.model([node], [nets.value("x", [32, 256, 13, 13])], ["y"], {"w": w}), **O0)

    text = (door.rank / "graphs" / "ms_output_trace_code_graph_0.ir").read_text()
    assert (
        "(<Float16xNC1HWC0[const vector][32, 16, 13, 13, 16]>, "
        "<Float16xFracZ[const vector][144, 24, 16, 16]>)"
        " -> (<Float32xNC1HWC0[const vector][32, 24, 13, 13, 16]>)"
    ) in text


@ENABLE
def test_recurrent_weights(door, caplog, enable):
    """The .ir shows FRACTAL_ZN_RNN and ND_RNN_BIAS; as their bytes are unknown, host tensors are saved."""
    rng = np.random.default_rng(7)
    given = {"w": (1, 8, 3), "r": (1, 8, 2), "b": (1, 16)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
    node = nets.node("LSTM", "x w r b", "y", "lstm/LSTM", hidden_size=2)
    model = nets.model([node], [nets.value("x", [5, 1, 3])], ["y"], weights)

    door.dump(model, {"x": np.ones((5, 1, 3), np.float32)}, context=O0, enable=enable, trans_flag=False)

    text = (door.rank / "graphs" / "ms_output_trace_code_graph_0.ir").read_text()
    assert (
        "<Float32xFRACTAL_ZN_RNN[const vector][1, 1, 4, 16, 16]>, "
        "<Float32xFRACTAL_ZN_RNN[const vector][1, 1, 4, 16, 16]>, "
        "<Float32xND_RNN_BIAS[const vector][1, 128]>)"
    ) in text
    fields = [(m["slot"], m["format"]) for m, _ in trees.tensors(door.rank) if m["io"] == "input"]
    assert [("0", "FRACTAL_NZ"), *((slot, "DefaultFormat") for slot in "123")] == fields
    for slot, name in enumerate(("w", "r", "b"), 1):
        assert trees.same_bits(weights[name], load(door)[f"LSTM input {slot}"])
    told = [r.getMessage() for r in caplog.records if "is saved as on the host" in r.getMessage()]
    (line,) = told
    assert line.startswith("Default/lstm/LSTM-op0: input.1 is saved as on the host: trans_flag false cannot")
    assert line.endswith(" FRACTAL_ZN_RNN")


def chain():
    """Return an elementwise chain behind a matrix product."""
    nodes = [
        nets.node("MatMul", "x w", "p", "fc-Dense/MatMul"),
        nets.node("Add", "p b", "a", "act-Act/Add"),
        nets.node("Sigmoid", "a", "s", "act-Act/Sigmoid"),
        nets.node("Mul", "a2 s", "m", "act-Act/Mul"),
    ]
    return nets.model(
        nodes,
        [nets.value("x", [3, 2]), nets.value("b", [3, 4]), nets.value("a2", [3, 4])],
        ["m"],
        {"w": FEEDS["w"]},
    )


CHAIN_FEEDS = {
    "x": FEEDS["x"],
    "b": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4),
    "a2": np.linspace(-1, 5, 12, dtype=np.float32).reshape(3, 4),
}
FUSED = "Default/act-Act/Add-op0Sigmoid-op0Mul-op0"


@pytest.mark.parametrize("mode", ["allow_fp32_to_fp16", "force_fp16", "force_fp32"])
@ENABLE
def test_fusion(door, enable, mode):
    """O1 runs an elementwise chain as one kernel with the values that O0 gives."""
    context = {**O0, "ascend_config": {"precision_mode": mode}}
    expected = door.load(chain(), **context).run(CHAIN_FEEDS)
    door.again()

    network = door.dump(chain(), CHAIN_FEEDS, context=context | O1, enable=enable)

    order = (door.rank / "execution_order" / "ms_execution_order_graph_0.csv").read_text().splitlines()
    assert ["Default/fc-Dense/MatMul-op0", FUSED] == order[1:]
    fused = {key: value for key, value in load(door).items() if "MatMul" not in key}
    assert {f"AddSigmoidMul {slot}" for slot in ("input 0", "input 1", "input 2", "output 0")} == set(fused)
    assert trees.same_bits(expected["m"], fused["AddSigmoidMul output 0"])
    assert trees.same_bits(expected["m"], network.run(CHAIN_FEEDS)["m"])


def test_fused_away_by_set_dump(door):
    """``set_dump`` of an operator inside a fused one says where it is; the fused name works."""
    door.configure(dump_mode=2)
    network = door.load(chain(), **O1)

    with pytest.raises(KeyError, match=re.escape(f"Default/act-Act/Sigmoid-op0 is fused into {FUSED}")):
        network.operator("Default/act-Act/Sigmoid-op0")
    msdump.set_dump(network.operator(FUSED))
    network.run(CHAIN_FEEDS)

    assert trees.operators(door.rank) == {"Default_act-Act_Add-op0Sigmoid-op0Mul-op0"}


def test_fused_away_by_kernels(door, caplog):
    """A ``kernels`` item that names an operator inside a fused one is told where it is, in order."""
    hidden = ["Default/act-Act/Add-op0", "Default/act-Act/Sigmoid-op0"]

    door.dump(chain(), CHAIN_FEEDS, context=O1, dump_mode=1, kernels=hidden[::-1])

    told = [r.getMessage() for r in caplog.records if "is fused into" in r.getMessage()]
    assert [
        f"{door.folder}/data_dump.json: kernels: {name} is fused into {FUSED} and cannot be seen inside it;"
        " dump that, or use jit_level O0"
        for name in hidden
    ] == told
    assert trees.tensors(door.rank) == []


def test_memory_limit(door):
    """A limit that is too small names the tensor that does not fit, and what to do."""
    door.configure()
    network = door.load(nets.mini(), **O0, max_device_memory="1KB")

    with pytest.raises(
        DeviceMemoryError, match=r"tensor '\S+' of \d+ bytes does not fit .* max_device_memory"
    ):
        network.run(nets.mini_feeds())

    assert trees.tensors(door.rank) == []


@pytest.mark.parametrize(
    ("input_output", "expected"),
    [(0, ["ReLU-op0 input 0", "ReLU-op0 output 0"]), (2, ["ReLU-op0 output 0"])],
)
def test_memory_limit_in_the_middle(input_output, expected, door):
    """A result that does not fit is named; the files of the operators before it are complete."""
    x = np.ones((1, 1024), np.float32)
    nodes = [nets.node("Relu", "x", "a"), nets.node("Concat", "a a a a", "big", axis=0)]
    door.configure(input_output=input_output)
    network = door.load(
        nets.model(nodes, [nets.value("x", [1, 1024])], ["big"]), **O0, max_device_memory="10KB"
    )

    with pytest.raises(DeviceMemoryError, match="tensor 'big' of 16384 bytes"):
        network.run({"x": x})

    assert trees.slots(door.rank) == expected


def test_memory_use(door):
    """Peak and total of a run are reported, and memory is used again."""
    x = np.ones((1, 1024), np.float32)
    nodes = [nets.node("Relu", "x", "a"), nets.node("Abs", "a", "b"), nets.node("Neg", "b", "c")]

    network = door.load(nets.model(nodes, [nets.value("x", [1, 1024])], ["c"]), **O0)
    network.run({"x": x})

    assert network.device_memory.total == 4 * 4096
    assert network.device_memory.peak < network.device_memory.total


def test_memory_is_the_devices(door):
    """Memory counts device bytes: the padding of NC1HWC0 and FRACTAL_Z, two bytes for each float16."""
    network = door.load(nets.mini(), **O0)

    network.run(nets.mini_feeds())

    use = network.device_memory
    sizes = {(io, slot): use.block(0, io, slot).size for io, slot in ((IO.INPUT, 0), (IO.INPUT, 1))}
    assert {(IO.INPUT, 0): 1536, (IO.INPUT, 1): 4608} == sizes  # 1*1*6*6*16*2 = 1152; 9*1*16*16*2
    assert 1024 == use.block(0, IO.OUTPUT, 0).size  # 1*1*4*4*16*4
    assert {512} == {use.blocks[name].size for name in ("x", "conv1.weight", "output")}


def test_memory_of_each_input_shape(door):
    """A run with other shapes has other addresses; one with shapes seen before has the old ones again."""
    network = door.load(nets.cosine(), **O0)
    found = []
    for rows in (1, 1000, 1):
        network.run({"x": np.ones((rows, 4), np.float32)})
        found.append((network.device_memory.peak, network.device_memory.block(0, IO.OUTPUT, 0).address))

    assert [1024, 32768, 1024] == [peak for peak, _ in found]
    assert found[0] == found[2] != found[1]


SAMPLES = {
    "fewer": (4, (4,), [1, 2, 3, 4]),
    "just as many": (6, (2, 3), [[1, 2, 3], [4, 5, 6]]),
    "more": (7, (2, 3), [[1, 2, 3], [4, 5, 6]]),
    "one": (1, (1,), [1]),
}


@ENABLE
@pytest.mark.parametrize(("number", "shape", "expected"), SAMPLES.values(), ids=SAMPLES)
def test_samples(door, enable, number, shape, expected):
    """Of a tensor with more than ``sample_num`` elements the first in memory are kept, as a vector."""
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    model = nets.model([nets.node("Identity", "x", "y")], [nets.value("x", [2, 3])], ["y"])

    door.dump(model, {"x": x}, context=O0, enable=enable, sample_mode=1, sample_num=number)

    found = load(door)
    assert {shape} == {array.shape for array in found.values()}
    assert [expected] * 2 == [array.tolist() for array in found.values()]


def test_samples_of_device_bytes(door):
    """With trans_flag false the sample is of the device's memory, padding included."""
    x = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
    model = nets.model(
        [nets.node("MaxPool", "x", "y", kernel_shape=[1, 1])], [nets.value("x", [1, 2, 1, 2])], ["y"]
    )

    door.dump(model, {"x": x}, context=O0, trans_flag=False, sample_mode=1, sample_num=18)

    assert load(door)["MaxPool input 0"].tolist() == [1, 3, *[0] * 14, 2, 4]


INPUT_OUTPUT = {
    "both": (0, ["input 0", "output 0"]),
    "inputs": (1, ["input 0"]),
    "outputs": (2, ["output 0"]),
}


@ENABLE
@pytest.mark.parametrize(("key", "expected"), INPUT_OUTPUT.values(), ids=INPUT_OUTPUT)
def test_input_output(door, enable, key, expected):
    """``input_output`` chooses inputs, outputs or both; parameters are not written on Ascend."""
    door.dump(
        nets.mini(),
        nets.mini_feeds(),
        context=O0,
        enable=enable,
        input_output=key,
        dump_mode=1,
        kernels=["ReLU"],
    )

    assert [f"ReLU-op0 {slot}" for slot in expected] == trees.slots(door.rank)


SELECTIONS = {
    "everything": ({"dump_mode": 0}, {"Conv2D", "ReLU", "Flatten", "MatMul", "BiasAdd"}),
    "type": ({"dump_mode": 1, "kernels": ["matmul"]}, {"MatMul"}),
    "name": ({"dump_mode": 1, "kernels": ["Default/relu-ReLU/ReLU-op0"]}, {"ReLU"}),
    "expression": ({"dump_mode": 1, "kernels": ["name-regex(Default/fc.+)"]}, {"MatMul", "BiasAdd"}),
    "nothing given": ({"dump_mode": 1, "kernels": []}, {"Conv2D", "ReLU", "Flatten", "MatMul", "BiasAdd"}),
    "marks": ({"dump_mode": 2}, {"MatMul", "BiasAdd"}),
    "other device": ({"support_device": [1]}, set()),
    "later step": ({"iteration": "1"}, set()),
}


@ENABLE
@pytest.mark.parametrize(("changes", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_selection(door, enable, changes, expected):
    """``dump_mode``, ``kernels``, ``support_device`` and ``iteration`` hold in both ways of dumping."""
    msdump.set_dump("fc")

    door.dump(nets.mini(), nets.mini_feeds(), context=O0, enable=enable, **changes)

    assert expected == {match["type"] for match, _ in trees.tensors(door.rank)}


ITERATIONS = {
    "some": ({"iteration": "0 | 2-3"}, ["0", "2", "3"]),
    "from a number": ({"iteration": "6|8", "initial_iteration": 5}, ["6", "8"]),
    "all": ({"iteration": "all"}, ["0", "1", "2", "3", "4"]),
}


@ENABLE
@pytest.mark.parametrize(("changes", "expected"), ITERATIONS.values(), ids=ITERATIONS)
def test_iterations(door, enable, changes, expected):
    """Steps count from ``initial_iteration``."""
    door.dump(nets.mini(), nets.mini_feeds(), steps=5, context=O0, enable=enable, **changes)

    assert expected == sorted(path.name for path in (door.rank / "Net" / "0").iterdir())


@ENABLE
def test_user_steps(door, enable):
    """After ``set_init_iter`` only ``dump_step`` counts; start and stop overrule ``iteration``."""
    door.configure(iteration="8", enable=enable)
    network = door.load(nets.cosine(), **O0)
    feeds = {"x": np.ones((1, 4), np.float32)}
    msdump.set_init_iter(7)
    network.run(feeds)
    msdump.dump_step()
    network.run(feeds)
    network.run(feeds)
    msdump.dump_start()
    msdump.dump_step(2)
    network.run(feeds)
    msdump.dump_stop()
    msdump.dump_step(-2)
    network.run(feeds)

    counts = {p.name: len(list(p.iterdir())) for p in (door.rank / "Net" / "0").iterdir()}
    assert counts == {"8": 4, "10": 2}


def test_dump_step_without_user_steps(door, caplog):
    """``dump_step`` before ``set_init_iter`` warns and changes nothing."""
    door.configure()
    network = door.load(nets.cosine(), **O0)

    msdump.dump_step(3)
    network.run({"x": np.ones((1, 4), np.float32)})

    assert [path.name for path in (door.rank / "Net" / "0").iterdir()] == ["0"]
    assert len([r for r in caplog.records if "dump_step" in r.getMessage()]) == 1


@pytest.mark.parametrize("wrong", [-1, "1", 1.5, True, None])
def test_wrong_step(door, wrong):
    """Numbers of steps that are none are refused."""
    with pytest.raises(ValueError, match=re.escape(f"set_init_iter({wrong!r})")):
        msdump.set_init_iter(wrong)


def test_save_kernel_args(door):
    """The arguments of a matrix product have MindSpore's names and printed values."""
    door.dump(nets.mini(), nets.mini_feeds(), context=O0, save_kernel_args=True)

    folder = door.rank / "Net" / "0" / "0"
    product = json.loads((folder / "MatMul.Default_fc-Dense_MatMul-op0.json").read_text())
    assert product == {"transpose_a": "False", "transpose_b": "False"}
    assert len(list(folder.glob("*.json"))) == 5


def test_save_kernel_args_async(door, caplog):
    """An asynchronous dump saves no arguments, and says so."""
    door.dump(nets.mini(), nets.mini_feeds(), context=O0, enable=False, save_kernel_args=True)

    assert list(door.rank.rglob("*.json")) == []
    assert any("save_kernel_args" in r.getMessage() for r in caplog.records)


USELESS = {None: {0, 1, 3}, "1": {0, 1, 3}, "0": {0, 1, 2, 3}, "2": {0, 1, 3}}
FLASH = """<ir_version: 10, opset_import: ["": 23, "mindspore.ops": 1]>
g (float[1,2,3,4] q) => (float[1,2,3,4] y) {
    a, b, c, y = mindspore.ops.FlashAttentionScore (q)
}
<domain: "mindspore.ops", opset_import: ["": 23]> FlashAttentionScore (q) => (a, b, c, y) {
    a = Exp (q)
    b = Tanh (q)
    c = Abs (q)
    y = Relu (q)
}"""


@ENABLE
@pytest.mark.parametrize(("value", "expected"), USELESS.items(), ids=str)
def test_useless_output(door, caplog, enable, value, expected):
    """The third output of FlashAttentionScore is useless unless the variable is 0."""
    if value is not None:
        door.monkeypatch.setenv("MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", value)
    feeds = {"q": np.ones((1, 2, 3, 4), np.float32)}

    network = door.dump(onnx.parser.parse_model(FLASH), feeds, context=O0, enable=enable, input_output=2)

    reason = "useless to other operators; MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT=0 dumps them"
    assert (0 if value == "0" else 1) == network.summary.skipped.get(reason, 0)
    assert expected == {int(m["slot"]) for m, _ in trees.tensors(door.rank)}
    assert (value == "2") == any("IGNORE_USELESS" in r.getMessage() for r in caplog.records)


@ENABLE
def test_cache_of_attention(door, enable):
    """What ONNX's Attention keeps for the next call is no useless output of FlashAttentionScore."""
    shape, past = [1, 2, 3, 4], [1, 2, 1, 4]
    feeds = {n: np.ones(shape, np.float32) for n in "qkv"} | {
        n: np.ones(past, np.float32) for n in ("a", "b")
    }
    model = nets.model(
        [nets.node("Attention", "q k v - a b", "y s t")],
        [nets.value(n, array.shape) for n, array in feeds.items()],
        ["y", "s", "t"],
        opset=23,
    )

    network = door.dump(model, feeds, context=O0, enable=enable, input_output=2)

    assert {int(m["slot"]) for m, _ in trees.tensors(door.rank)} == {0, 1, 2}
    assert network.summary.skipped == {}


@ENABLE
def test_real_network_under_every_key(door, sample_net, enable):
    """A real network with every key of the documents at once leaves what they say, and nothing else."""
    path, feeds = sample_net("lenet"), {"x": data.digits(0, 2, 32)}

    door.dump(
        path,
        feeds,
        steps=3,
        context={**O0, "device_id": 2},
        enable=enable,
        dump_mode=1,
        kernels=["Conv2D", "name-regex(Default/.+/ReLU-op[0-9]+)"],
        iteration="4-5",
        initial_iteration=3,
        input_output=2,
        support_device=[0, 2],
        saved_data="full",
        statistic_category=["l2norm", "max", "md5"],
        trans_flag=False,
        sample_mode=1,
        sample_num=50,
        save_kernel_args=True,
    )

    assert sorted(p.name for p in (door.rank / "Net" / "0").iterdir()) == ["4", "5"]
    for step in "45":
        folder = door.rank / "Net" / "0" / step
        files = trees.tensors(folder)
        assert {m["type"] for m, _ in files} == {"Conv2D", "ReLU"}
        assert {m["io"] for m, _ in files} == {"output"}
        assert {m["format"] for m, _ in files if m["type"] == "Conv2D"} == {"NC1HWC0"}
        assert {np.load(p).shape for _, p in files} == {(50,)}
        lines = (folder / "statistic.csv").read_text().splitlines()
        assert lines[0].endswith(",Shape,L2Norm Value,Max Value,MD5")
        assert len(lines) == 1 + len(files)
        assert len(list(folder.glob("*.json"))) == (len(files) if enable else 0)
