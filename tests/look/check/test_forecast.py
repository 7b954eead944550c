"""The forecast of a dump, compared with the dump."""

import logging

import numpy as np
import onnx.parser
import pytest

from msdump.capture import Process
from msdump.graph import loader
from msdump.judge import inputs
from msdump.look import Amount, forecast, unrunnable
from msdump.plan import Context, DeviceTarget, FileFormat, JitLevel, Naming, StatisticSpec, Tree
from msdump.selector import DumpMode, IterationSet, KernelPattern, PatternKind, Selector
from msdump.session import Network
from tests import plans
from tests.texts import parsed
from tests.world import GRAPHS

CONTEXTS = {
    "CPU": Context(),
    "GPU": Context(DeviceTarget.GPU),
    "Ascend": Context(DeviceTarget.ASCEND, JitLevel.O0),
}
PLAN = plans.made(path="", net_name="Net", iterations=IterationSet.of([(1, 2), (9, 11)]))
SETTINGS = {
    "everything": {},
    "outputs": {"keeps_inputs": False},
    "inputs": {"keeps_outputs": False},
    "first iteration 10": {"initial_iteration": 10},
    "classic names": {"naming": Naming.CLASSIC},
    "kernel arguments": {"saves_kernel_args": True},
    "one type": {
        "selector": Selector(DumpMode.KERNELS, (KernelPattern(PatternKind.TYPE, "matmul", "MatMul"),))
    },
}
UNKNOWN_SHAPES = {"contrib", "dynamic_shapes", "optional"}
BRANCHES = {"if", "loop", "scan"}  # only a run shows their files


def written(root):
    """Return the files on disk."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return Amount(len(files), sum(path.stat().st_size for path in files))


def loaded(text):
    """Return the graph of a text of ONNX's own syntax."""
    return loader.load(parsed(text, opset=21))


def run(graph, plan, count, sizes):
    """Run a graph some times under a plan."""
    network = Network(graph, plan, Process())
    for step in range(count):
        network.run(inputs.made_up(graph, sizes, 0, step))


# text behind the first input, bytes of a tensor, tensors on Ascend and where inputs have files of their own
UNFIT = {
    "range": (
        ") => (y) <int64 a={0}, int64 b={4611686018427387904}, int64 d={1}> {y=Range(a,b,d)}",
        2**65,
        1,
        1,
    ),
    "constant": (") => (y) <int64[2] s = {4611686018427387904, 8}> { y = ConstantOfShape(s) }", 2**67, 1, 1),
    "input": (", float[1125899906842624] v) => (y) { y = Relu(v) }", 2**52, 2, 3),
    "no elements": (", float[0, 4611686018427387904] v) => (y) { y = Relu(v) }", 0, 2, 3),
    "rank": (f", float[{', '.join(70 * '1')}] v) => (y) {{ y = Relu(v) }}", 4, 2, 3),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
@pytest.mark.parametrize(("text", "size", "count", "elsewhere"), UNFIT.values(), ids=UNFIT.keys())
def test_tensors_that_no_array_holds_are_counted(tmp_path, text, size, count, elsewhere, context):
    """A tensor of more bytes or dimensions than an array may have is kept apart, and its size is exact."""
    graph = loaded(f"net (float[2] x{text}")
    plan = plans.changed(PLAN, context=context, path=str(tmp_path))

    told = forecast(graph, plan, graph)

    tensors = count if context.device_target is DeviceTarget.ASCEND else elsewhere
    assert [] == list(unrunnable(graph))
    assert (0, Amount(tensors, tensors * size)) == (told.unknown, told.unfit)


def test_computed_shapes_are_known():
    """Shapes that a model computes from sizes, also through casts and floats, are the shapes of a run."""
    model = parsed(
        "graph (float[N,3,H,W] x) => (float[A,B,C,D] y) {"
        " s = Shape(x) f = Cast<to=1>(s) g = Mul(f, half) i = Cast<to=7>(g) hw = Slice(i, two, four)"
        " n = Slice(s, zero, two) t = Concat<axis=0>(n, hw) e = Expand(one, t)"
        " u = Shape(e) c = Gather(u, two) y = Reshape(e, t) }",
        half=np.float32([0.5]),
        one=np.float32([1]),
        zero=np.int64([0]),
        two=np.int64([2]),
        four=np.int64([4]),
    )

    graph = loader.load(model, sizes={"N": 2, "H": 9, "W": 6})

    assert {"e": (2, 3, 4, 3), "y": (2, 3, 4, 3), "c": (1,)} == {
        name: graph.type_of(name).shape for name in ("e", "y", "c")
    }
    assert 11 == len(graph.nodes)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_windows_larger_than_their_input(tmp_path, context):
    """The output of a window that does not fit is of unknown size."""
    graph = loaded("net (float[1,2,8] x) => (y) { y = MaxPool<kernel_shape=[10]>(x) }")

    told = forecast(graph, plans.changed(PLAN, context=context, path=str(tmp_path)), graph)

    assert (1, Amount(0, 0)) == (told.unknown, told.unfit)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
@pytest.mark.parametrize(
    ("name", "settings"), [*(("mini", key) for key in SETTINGS), ("transformer", "everything")]
)
def test_forecast_is_what_the_run_writes(tmp_path, name, context, settings):
    """Files and bytes of all iterations equal the files on disk after the run, to the byte."""
    graph = loader.load(GRAPHS / f"{name}.onnx")
    plan = plans.changed(PLAN, context=context, path=str(tmp_path), **SETTINGS[settings])
    if context.device_target is DeviceTarget.GPU:  # their list of iterations also has the undumped ones
        plan = plans.changed(plan, iterations=IterationSet.of([(0, 11)]))

    told = forecast(graph, plan, graph)
    run(graph, plan, 12 - plan.when.initial_iteration, {})

    assert written(tmp_path) == told.total
    assert told.unknown == 0


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_forecast_without_dumped_iterations(tmp_path, context):
    """Of a run that dumps no iteration, the files are reported that are written once."""
    graph = loader.load(GRAPHS / "mini.onnx")
    none = {"iterations": IterationSet.of([(0, 1)]), "initial_iteration": 2}
    plan = plans.changed(PLAN, context=context, path=str(tmp_path), **none)

    told = forecast(graph, plan, graph)
    run(graph, plan, 1, {})

    assert told.iterations == 0
    assert written(tmp_path).files == told.total.files


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_small_graph_is_forecast(tmp_path, path):
    """For each model of graphs/ the forecast is exact, or says for how many tensors it is not."""
    graph = loader.load(path)
    plan = plans.changed(PLAN, path=str(tmp_path), iterations=IterationSet.of([(0, 1)]))

    sizes = {"N": 3} if any("N" in (value.type.shape or ()) for value in graph.inputs) else {}

    told = forecast(graph, plan, loader.load(path, sizes=sizes))
    run(graph, plan, 2, sizes)

    found = written(tmp_path)
    assert (path.stem in UNKNOWN_SHAPES) == (told.unknown > 0)
    assert (path.stem in BRANCHES) == (told.branches > 0)
    if told.branches:
        assert told.total.files < found.files
    elif told.unknown:
        assert told.total.files < found.files <= told.total.files + 2 * told.unknown
    else:
        assert found == told.total


O2 = Context(DeviceTarget.ASCEND, JitLevel.O2)
COMPILED = {
    "dump files": {"file_format": FileFormat.BIN},
    "npy files": {},
    "GE": {"tree": Tree.MODELS, "file_format": FileFormat.BIN},
    "outputs": {"file_format": FileFormat.BIN, "keeps_inputs": False},
    "statistics": {"statistics": StatisticSpec(("md5",)), "keeps_tensors": False},
}
STAND_INS = {"transformer"}  # long names: the digits in mapping.csv differ from run to run
CONTROL_FLOW = {"if", "loop", "scan"}  # of which nothing is foretold


NAMES = {path.stem for path in GRAPHS.glob("*.onnx")} - STAND_INS - CONTROL_FLOW


@pytest.mark.parametrize(
    ("name", "settings"),
    sorted({(name, "dump files") for name in NAMES} | {("lenet", each) for each in COMPILED}),
)
def test_compiled_graphs_are_forecast(tmp_path, name, settings):
    """Files and bytes of a compiled graph's dump equal the files on disk; unknown ones are counted."""
    graph = loader.load(GRAPHS / f"{name}.onnx")
    steps = IterationSet.of([(0, 1)])
    plan = plans.changed(
        PLAN, path=str(tmp_path), iterations=steps, context=O2, **{"tree": Tree.STEPS} | COMPILED[settings]
    )
    sizes = {"N": 3} if any("N" in (value.type.shape or ()) for value in graph.inputs) else {}

    told = forecast(graph, plan, loader.load(GRAPHS / f"{name}.onnx", sizes=sizes))
    run(graph, plan, 2, sizes)

    found = written(tmp_path)
    if told.unknown:  # a graph input has a file of its own, its readers another tensor
        assert told.total.files <= found.files <= told.total.files + 2 * (told.unknown + len(graph.inputs))
    else:
        assert found == told.total


def test_forecast_of_device_formats_takes_no_memory():
    """Tensors of many gigabytes in the device's formats are forecast without being laid out."""
    graph = loaded(
        "agraph (float[1024,1024,64,64] x) => (float[1024,1024,32,32] y)"
        " { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }"
    )
    plan = plans.changed(PLAN, path="/dump", context=O2, tree=Tree.STEPS, file_format=FileFormat.BIN)

    told = forecast(graph, plan, graph)

    assert told.per_iteration.bytes > 4 * (3 << 32)


def test_unfilled_dimension_is_counted():
    """Without a size for N, the tensors that depend on it are counted as unknown, its own file too."""
    graph = loader.load(GRAPHS / "external_data.onnx")

    settled = loader.load(GRAPHS / "external_data.onnx", sizes={"N": 2})
    assert forecast(graph, plans.changed(PLAN, path="/dump"), graph).unknown == 5
    assert forecast(graph, plans.changed(PLAN, path="/dump", keeps_outputs=False), graph).unknown == 2
    assert forecast(graph, plans.changed(PLAN, path="/dump"), settled).unknown == 0


@pytest.mark.parametrize("context", [*CONTEXTS.values(), O2], ids=str)
def test_sizes_reach_every_tensor(tmp_path, context):
    """Shapes that follow from a size by computation are known too: nothing is left out, to the byte."""
    text = (
        "agraph (float[N,6] x) => (float[M,2] y) { s = Constant<value = int64[3] {-1, 2, 3}>()"
        " axes = Constant<value = int64[1] {2}>() a = Exp(x) b = Reshape(a, s) c = Relu(b)"
        " y = ReduceMax<keepdims = 0>(c, axes) }"
    )
    path = tmp_path / "model.onnx"
    onnx.save(parsed(text, opset=21), path)
    tree = {"tree": Tree.STEPS, "file_format": FileFormat.NPY} if context is O2 else {}
    plan = plans.changed(PLAN, context=context, path=str(tmp_path / "dump"), **tree)
    plan = plans.changed(plan, iterations=IterationSet.of([(0, 1)]))

    told = forecast(loader.load(path), plan, loader.load(path, sizes={"N": 8}))
    run(loader.load(path), plan, 2, {"N": 8})

    assert 0 == told.unknown
    assert written(tmp_path / "dump") == told.total


TENSORS = "agraph (float[2,0] e, string[2] s, int4[3] n) => (float[2,0] a, string[2] b, float[3] c)"


def test_tensors_without_files_are_told(tmp_path, caplog):
    """Empty tensors and texts get no file and are counted by reason; int4 takes a byte each."""
    graph = loaded(f"{TENSORS} {{ a = Relu(e) b = Identity(s) c = Cast<to=1>(n) }}")
    plan = plans.changed(
        PLAN, path=str(tmp_path), context=CONTEXTS["Ascend"], iterations=IterationSet.of([(0, 0)])
    )
    caplog.set_level(logging.ERROR, "msdump")

    told = forecast(graph, plan, graph)
    run(graph, plan, 1, {})

    assert told.skipped == {"no elements": 2, "text": 2}
    assert written(tmp_path) == told.total
    assert told.per_iteration.files == 2


def test_long_names_are_forecast(tmp_path):
    """Stand-ins and their mapping.csv are counted; each of its rows may be some digits shorter."""
    scope = "/".join(f"layer_{number:03}" for number in range(30))
    graph = loaded(f'g (float[2] x) => (float[2] y) {{ ["/{scope}/Relu"] y = Relu(x) }}')
    plan = plans.changed(PLAN, path=str(tmp_path), iterations=IterationSet.of([(0, 0)]))

    told = forecast(graph, plan, graph)
    run(graph, plan, 1, {})

    found = written(tmp_path)
    assert found.files == told.total.files
    assert abs(found.bytes - told.total.bytes) <= 2 * 9
    assert list(tmp_path.rglob("mapping.csv"))


@pytest.mark.parametrize(
    ("iterations", "initial", "count"),
    [
        (IterationSet(), 0, None),
        (IterationSet.of([(0, 0)]), 0, 1),
        (IterationSet.of([(0, 8), (120, 120)]), 0, 10),
        (IterationSet.of([(0, 8), (120, 120)]), 5, 5),
        (IterationSet.of([(0, 8)]), 9, 0),
        (IterationSet.of([(0, 0xFFFFFFFF)]), 0, 1 << 32),
    ],
    ids=["no end", "one", "two ranges", "from the fifth on", "all passed", "very many"],
)
def test_iterations_are_counted(iterations, initial, count):
    """Only iterations from the first on count, and "all" has no total."""
    plan = plans.changed(PLAN, path="/dump", iterations=iterations, initial_iteration=initial)

    told = forecast(loader.load(GRAPHS / "mini.onnx"), plan, {})

    assert told.iterations == count
    assert (told.total is None) == (count is None)


def test_forecast_takes_no_memory():
    """Tensors of many gigabytes are forecast without being filled."""
    graph = loaded("agraph (float[1048576,4096] x) => (float[1048576,4096] y) { y = Relu(x) }")
    plan = plans.changed(PLAN, path="/dump", context=CONTEXTS["Ascend"])

    told = forecast(graph, plan, graph)

    assert told.per_iteration == Amount(2, 2 * (128 + (1 << 34)))


def test_digits_of_iteration_numbers_are_counted():
    """The list of iterations of CPU grows by the digits of each number and a line feed."""
    graph = loader.load(GRAPHS / "mini.onnx")
    totals = [
        forecast(
            graph, plans.changed(PLAN, path="/d", iterations=IterationSet.of([(low, high)])), {}
        ).total.bytes
        for low, high in ((0, 9), (10, 19), (95, 104), (9995, 10004))
    ]

    more = [len("".join(map(str, numbers))) - 10 for numbers in (range(95, 105), range(9995, 10005))]
    assert [0, 10, *more] == [total - totals[0] for total in totals]


@pytest.mark.parametrize("keeps_device_format", [False, True])
def test_forecast_does_not_depend_on_what_memory_held(monkeypatch, keeps_device_format):
    """Rows of statistics are forecast with the same numbers each time."""
    graph = loader.load(GRAPHS / "mini.onnx")
    plan = plans.changed(
        PLAN,
        path="/dump",
        context=CONTEXTS["Ascend"],
        statistics=StatisticSpec(),
        keeps_device_format=keeps_device_format,
    )
    quiet = forecast(graph, plan, graph)

    monkeypatch.setattr(np, "empty", lambda shape, dtype: np.full(shape, 1.2345e4, dtype))

    assert quiet == forecast(graph, plan, graph)
