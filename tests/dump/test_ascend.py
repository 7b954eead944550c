"""The emulated Ascend through MindSpore's door: precision, formats, fusion, memory, selection."""

import re

import numpy as np
import onnx
import pytest

import msdump
from msdump.errors import DeviceMemoryError
from msdump.record import IO
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import O0, O1

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
    """Return a matrix product of two terms: float32 rounds their sum once."""
    return parsed("graph (float[3,2] x, float[2,4] w) => (z) { y = MatMul(x, w) z = Sigmoid(y) }")


FEEDS = {
    "x": np.array([[0.1, 0.2], [1 / 3, -7.7], [1000.7, 0.0001]], np.float32),
    "w": np.array([[0.3, 1.1, -2.7, 5.3], [0.7, 3.3, 1.9, 0.9]], np.float32),
}
MODES = {
    None: (f16, f32),
    "allow_fp32_to_fp16": (f16, f32),
    "allow_fp32_to_bf16": (bf16, f32),
    "force_fp16": (f16, f16),
    "force_fp32": (f32, f32),
    "must_keep_origin_dtype": (f32, f32),
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


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("opset", [7, 9, 12, 13])
def test_bfloat16_in_old_opsets(door, opset, level):
    """Models of an opset without casts to bfloat16 are rounded to it all the same, fused or not."""
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


def test_device_bytes(door):
    """An image of two channels lies in NC1HWC0 with its channels last and zeros for the other fourteen."""
    x = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
    w = np.array([[[[1]], [[10]]]], np.float32)
    model = parsed("graph (float[1,2,1,2] x) => (y) { y = Conv(x, w) }", w=w)

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
    told = [r.getMessage() for r in caplog.records if "is saved in the host's format" in r.getMessage()]
    (line,) = told
    assert line.startswith(
        "Default/lstm/LSTM-op0: input.1 is saved in the host's format: trans_flag false cannot"
    )
    assert line.endswith(" FRACTAL_ZN_RNN")


def chain():
    """Return an elementwise chain behind a matrix product."""
    return parsed(
        """graph (float[3,2] x, float[3,4] b, float[3,4] a2) => (m) {
            ["fc-Dense/MatMul"] p = MatMul(x, w)
            ["act-Act/Add"] a = Add(p, b)
            ["act-Act/Sigmoid"] s = Sigmoid(a)
            ["act-Act/Mul"] m = Mul(a2, s)
        }""",
        w=FEEDS["w"],
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
    """A warning names the fused operator for each ``kernels`` item that names an operator inside it."""
    hidden = ["Default/act-Act/Add-op0", "Default/act-Act/Sigmoid-op0"]

    door.dump(chain(), CHAIN_FEEDS, context=O1, dump_mode=1, kernels=hidden[::-1])

    told = [r.getMessage() for r in caplog.records if "is fused into" in r.getMessage()]
    assert [
        f"{door.folder}/data_dump.json: kernels: {name} is fused into {FUSED};"
        f" dump {FUSED}, or use jit_level O0"
        for name in hidden
    ] == told
    assert trees.tensors(door.rank) == []


@pytest.mark.parametrize(
    ("input_output", "expected"), [(0, ["ReLU-op0 input 0", "ReLU-op0 output 0"]), (2, ["ReLU-op0 output 0"])]
)
def test_memory_limit_in_the_middle(input_output, expected, door):
    """A result that does not fit is named; the files of the operators before it are complete."""
    x = np.ones((1, 1024), np.float32)
    door.configure(input_output=input_output)
    network = door.load(
        parsed("graph (float[1,1024] x) => (big) { a = Relu(x) big = Concat<axis = 0>(a, a, a, a) }"),
        **O0,
        max_device_memory="10KB",
    )

    with pytest.raises(
        DeviceMemoryError, match=r"tensor 'big' of 16384 bytes does not fit .* max_device_memory"
    ):
        network.run({"x": x})

    assert trees.slots(door.rank) == expected


def test_memory_of_each_input_shape(door):
    """A run with other shapes has other addresses; one with shapes seen before has the old ones again."""
    network = door.load(nets.cosine(), **O0, max_device_memory="1GB")
    found = []
    for rows in (1, 1000, 1):
        network.run({"x": np.ones((rows, 4), np.float32)})
        found.append((network.device_memory.peak, network.device_memory.block(0, IO.OUTPUT, 0).address))

    assert [1024, 32768, 1024] == [peak for peak, _ in found]
    assert found[0] == found[2] != found[1]


def test_samples_of_device_bytes(door):
    """With trans_flag false the sample is of the device's memory, padding included."""
    x = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
    model = parsed("graph (float[1,2,1,2] x) => (y) { y = MaxPool<kernel_shape = [1, 1]>(x) }")

    door.dump(model, {"x": x}, context=O0, trans_flag=False, sample_mode=1, sample_num=18)

    assert load(door)["MaxPool input 0"].tolist() == [1, 3, *[0] * 14, 2, 4]


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

    reason = "not used by other operators; MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT=0 dumps them"
    assert (0 if value == "0" else 1) == network.summary.skipped.get(reason, 0)
    assert expected == {int(m["slot"]) for m, _ in trees.tensors(door.rank)}
    assert (value == "2") == any("IGNORE_USELESS" in r.getMessage() for r in caplog.records)


@ENABLE
def test_cache_of_attention(door, enable):
    """The cache that ONNX's Attention returns is no useless output of FlashAttentionScore."""
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
