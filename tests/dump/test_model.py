"""``msdump.Model``: the loop over epochs and batches, callbacks, sinks, evaluation, and their dumps."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import msdump
from msdump.errors import InputError
from tests.dump import o2, trees
from tests.world import O0, O2

WITH_LOSS = "Default/network-WithLossCell"
LOSS = f"{WITH_LOSS}/_loss_fn-SoftmaxCrossEntropyWithLogits/SparseSoftmaxCrossEntropyWithLogits-op0"


def dense(classes: int = 3) -> onnx.ModelProto:
    """Return a network that is one layer."""
    random = np.random.default_rng(1)
    node = helper.make_node("Gemm", ["x", "weight", "bias"], ["y"], name="dense", transB=1)
    node.metadata_props.add(key="pkg.onnxscript.name_scopes", value=repr(["", ""]))
    node.metadata_props.add(key="pkg.onnxscript.class_hierarchy", value=repr(["Dense", ""]))
    graph = helper.make_graph(
        [node],
        "dense",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", classes])],
        [
            numpy_helper.from_array(random.normal(0, 0.3, shape).astype(np.float32), name)
            for name, shape in (("weight", (classes, 6)), ("bias", (classes,)))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def batches(count=2):
    """Return batches of four samples of six features."""
    random = np.random.default_rng(0)
    return [
        (random.normal(0, 1, (4, 6)).astype(np.float32), random.integers(0, 3, 4).astype(np.int32))
        for _ in range(count)
    ]


def trainer(**context):
    """Return a network that trains the layer."""
    step = msdump.training.step_graph(dense(), optimizer="momentum:0.1,0.9")
    return msdump.load(step, context=context)


class Diary:
    """Records calls of callbacks: steps under the newer name of the method, the rest under the older."""

    def __init__(self, last=None):
        """Stop after a step."""
        self.lines = []
        self._last = last

    def begin(self, run_context):
        """Note the numbers of a training."""
        arguments = run_context.original_args()
        self.lines.append((arguments.mode, arguments.epoch_num, arguments.batch_num))

    def on_train_step_end(self, run_context):
        """Note a step."""
        arguments = run_context.original_args()
        self.lines.append((arguments.cur_epoch_num, arguments.cur_step_num, float(arguments.net_outputs)))
        if arguments.cur_step_num == self._last:
            run_context.request_stop()

    def end(self, run_context):
        """Note the end."""
        self.lines.append(run_context.original_args().mode)


@pytest.mark.usefixtures("door")
class TestLoop:
    """A training without a dump."""

    def test_every_batch_of_every_epoch_is_a_step(self):
        """Losses and weights equal a plain loop's; callbacks are called for each step."""
        network, twin = trainer(), trainer()
        diary = Diary()

        msdump.Model(network).train(2, batches(), callbacks=diary)

        losses = [float(twin.train_step(*element)) for _ in range(2) for element in batches()]
        steps = [(1, 1), (1, 2), (2, 3), (2, 4)]
        told = [(*step, loss) for step, loss in zip(steps, losses, strict=True)]
        assert [("train", 2, 2), *told, "train"] == diary.lines
        for name, array in twin.state().items():
            np.testing.assert_array_equal(array, network.state()[name])

    def test_sinks_of_a_size_are_epochs(self):
        """An epoch is a sink; on an Ascend callbacks hear of its end, elsewhere of each step."""
        cpu, ascend = Diary(), Diary()

        msdump.Model(trainer()).train(3, batches(3), [cpu], dataset_sink_mode=True, sink_size=2)
        network = trainer(device_target="Ascend", jit_level="O0")
        msdump.Model(network).train(3, batches(3), [ascend], dataset_sink_mode=True, sink_size=2)

        assert [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6)] == [line[:2] for line in cpu.lines[1:-1]]
        assert [(1, 2), (2, 4), (3, 6)] == [line[:2] for line in ascend.lines[1:-1]]
        assert ("train", 3, 2) == ascend.lines[0]

    def test_whole_dataset_is_one_sink(self):
        """Size -1 is the whole dataset, of any length."""
        diary = Diary()

        network = trainer(device_target="Ascend", jit_level="O0")
        msdump.Model(network).train(2, batches(3), diary, dataset_sink_mode=True)

        assert [(1, 3), (2, 6)] == [line[:2] for line in diary.lines[1:-1]]

    def test_sink_of_a_step_trains(self):
        """MindSpore's data_sink takes the step itself, and gives the last loss."""
        one, two = trainer(), trainer()

        sink = msdump.data_sink(one.train_step, batches(3), sink_size=2)
        losses = [sink() for _ in range(3)]

        expected = [two.train_step(*element) for _ in range(2) for element in batches(3)]
        assert expected[1::2] == losses
        with pytest.raises(InputError, match="data_sink: network: must be a network, or its method"):
            msdump.data_sink(lambda x: x, batches())

    def test_callback_may_stop(self):
        """A request ends training after the step; the callback's ``end`` is called."""
        diary = Diary(last=3)

        msdump.Model(trainer()).train(5, batches(), diary)

        assert [1, 2, 3] == [line[1] for line in diary.lines[1:-1]]
        assert diary.lines[-1] == "train"

    def test_batches_by_name(self):
        """A mapping names the inputs of the step."""
        (x, y), *_ = batches()
        one, two = trainer(), trainer()

        msdump.Model(one).train(1, [{"inputs1": y, "inputs0": x}])
        msdump.Model(two).train(1, [(x, y)])

        np.testing.assert_array_equal(one.state()["weight"], two.state()["weight"])

    def test_evaluation_reads_the_trained_state(self):
        """Loss and accuracy follow from the trained weights, whenever the graph was loaded."""
        network = trainer()
        model = msdump.Model(network, msdump.training.eval_graph(dense()), metrics={"loss", "accuracy"})
        before = model.eval(batches())

        model.train(20, batches())
        after = model.eval(batches())

        weight, bias = network.state()["weight"], network.state()["bias"]
        scores = np.concatenate([x @ weight.T + bias for x, _ in batches()])
        labels = np.concatenate([y for _, y in batches()])
        losses = np.log(np.exp(scores).sum(-1)) - scores[np.arange(8), labels]
        assert after["loss"] == pytest.approx(float(losses.mean()), rel=1e-5)
        assert after["accuracy"] == (scores.argmax(-1) == labels).mean()
        assert after["loss"] < before["loss"]

    def test_metrics_of_ones_own(self):
        """An object that collects scores and labels is a metric; the loss is given to none but ``loss``."""

        class Highest:
            """The highest score."""

            def clear(self):
                """Forget."""
                self.highest = -np.inf

            def update(self, scores, labels):
                """Take a batch."""
                assert labels.dtype == np.int32
                self.highest = max(self.highest, float(scores.max()))

            def eval(self):
                """Return it."""
                return self.highest

        network = trainer()
        model = msdump.Model(network, msdump.training.eval_graph(dense()), metrics={"highest": Highest()})

        start = {tensor.name: numpy_helper.to_array(tensor) for tensor in dense().graph.initializer}
        scores = np.concatenate([x @ start["weight"].T + start["bias"] for x, _ in batches()])
        assert {"highest": pytest.approx(float(scores.max()), rel=1e-5)} == model.eval(batches())

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda model: model.train(0, batches()), "epoch = 0: must be a number from 1"),
            (lambda model: model.train(1.5, batches()), "epoch = 1.5"),
            (lambda model: model.train(1, []), "no batches left"),
            (lambda model: model.train(2, iter(batches())), "no batches left"),
            (
                lambda model: model.train(1, batches(), dataset_sink_mode=True, sink_size=0),
                "Model.train: sink_size = 0: must be a number from 1",
            ),
            (lambda model: model.eval(batches()), "metrics are needed"),
            (
                lambda model: msdump.Model(model.train_network, metrics=["loss"]).eval(batches()),
                "the network is a training step alone",
            ),
            (lambda model: msdump.Model(model.train_network, metrics=["los"]), "did you mean 'loss'"),
            (
                lambda model: msdump.Model(
                    model.train_network, msdump.load(msdump.training.eval_graph(dense())), ["loss"]
                ).eval(batches()),
                "eval_network has its own state",
            ),
        ],
    )
    def test_wrong_calls_are_told(self, call, words):
        """Numbers, datasets and metrics that cannot be are named."""
        with pytest.raises(InputError, match=words):
            call(msdump.Model(trainer()))

    def test_other_weights_are_no_state(self):
        """A graph with other shapes or names of initializers cannot read the state."""
        network = trainer()

        with pytest.raises(
            InputError, match=r"variable 'weight' is float32\[3, 6\], float32\[4, 6\] is given"
        ):
            msdump.load(msdump.training.eval_graph(dense(4)), state_of=network)
        with pytest.raises(InputError, match="the model describes its own training"):
            msdump.load(msdump.training.step_graph(dense()), state_of=network)
        other = dense()
        other.graph.initializer[0].name = other.graph.node[0].input[1] = "kernel"
        other.graph.initializer[1].name = other.graph.node[0].input[2] = "offset"
        with pytest.raises(InputError, match="no initializer has the name of a trained variable"):
            msdump.load(msdump.training.eval_graph(other), state_of=network)


class TestMonitors:
    """The callbacks that print."""

    def test_loss_is_printed_in_mindspores_words(self, door, capsys):  # noqa: ARG002 - a process of its own
        """Every second step has a line."""
        diary = Diary()

        msdump.Model(trainer()).train(2, batches(), [msdump.LossMonitor(2), msdump.ProgressBar(), diary])

        losses = [np.float32(line[2]) for line in diary.lines[1:-1]]
        lines = [f"epoch: 1 step: 2, loss is {losses[1]}", f"epoch: 2 step: 2, loss is {losses[3]}"]
        assert lines == capsys.readouterr().out.splitlines()

    def test_infinite_loss_ends_training(self, door):  # noqa: ARG002 - a process of its own
        """MindSpore's monitor stops a training that has failed."""
        x, y = batches(1)[0]

        with pytest.raises(ValueError, match=r"epoch: 1 step: 1. Invalid loss nan, terminating training."):
            msdump.Model(trainer()).train(3, [(x * np.inf, y)], msdump.LossMonitor())

    @pytest.mark.parametrize("every", [0, -1, 1.5, True])
    def test_wrong_interval(self, every):
        """A number of steps is a number from 1."""
        with pytest.raises(InputError, match="per_print_times"):
            msdump.LossMonitor(every)


class TestDump:
    """Dumps of training and evaluation."""

    @pytest.mark.parametrize("sink", [False, True])
    def test_iterations_are_those_of_mindspore(self, door, sink):
        """Training is graph 0 with iterations 0 to 3; evaluation is graph 1, first 4 and then 1."""
        door.configure()
        model = msdump.Model(trainer(), msdump.training.eval_graph(dense()), metrics={"loss", "accuracy"})

        model.train(2, batches(), dataset_sink_mode=sink)
        model.eval(batches())

        orders = door.rank / "execution_order"
        written = {path.name: path.read_text().split() for path in orders.glob("*.csv")}
        assert ["0", "1", "2", "3"] == written["ms_global_execution_order_graph_0.csv"]
        assert ["4", "1"] == written["ms_global_execution_order_graph_1.csv"]
        layer = f"{WITH_LOSS}/_backbone-Dense"
        forward = [f"{layer}/MatMul-op0", f"{layer}/BiasAdd-op0", LOSS]
        assert forward == written["ms_execution_order_graph_1.csv"][1:]
        assert set(forward) < set(written["ms_execution_order_graph_0.csv"])
        assert {"0", "1", "2", "3"} == {path.name for path in (door.rank / "Net" / "0").iterdir()} - {
            "constants"
        }

    def test_evaluation_shows_the_trained_weights(self, door):
        """Its Parameter files and inputs hold the trained values; data and label are its inputs."""
        door.configure()
        network = trainer()
        model = msdump.Model(network, msdump.training.eval_graph(dense()), metrics={"loss"})

        model.train(1, batches(1))
        model.eval(batches(1))

        files = {
            (match["name"].rpartition("_")[2], match["io"], int(match["slot"])): np.load(path)
            for match, path in trees.tensors(door.rank / "Net" / "1" / "1")
        }
        np.testing.assert_array_equal(network.state()["weight"], files["weight", "output", 0])
        np.testing.assert_array_equal(network.state()["weight"], files["MatMul-op0", "input", 1])
        parameters = {name for name, io, _ in files if "-op" not in name and io == "output"}
        assert {"weight", "bias", "data", "label"} == parameters

    @pytest.mark.parametrize("sink_size", [2, -1])
    def test_compiled_graph_runs_single_steps(self, door, sink_size):
        """A dump of Ascend O2 refuses larger sinks, with MindSpore's words; sinks of 1 dump each step."""
        door.configure(enable=None)
        model = msdump.Model(trainer(**O2))

        with pytest.raises(ValueError, match="sink size must be 1, but got 2"):
            model.train(1, batches(), dataset_sink_mode=True, sink_size=sink_size)

        model.train(3, batches(), dataset_sink_mode=True, sink_size=1)
        assert [0, 1, 2] == sorted(place[0] for place in o2.places(door.path))


@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "O0"])
@pytest.mark.parametrize("sinks", [False, True])
def test_rules_and_history_watch_a_training(context, sinks, door):
    """A batch with NaN ends the training at its step; the two steps before it are on disk, and no others."""
    data = batches(6)
    data[4][0][0, 0] = np.nan
    rule = {"condition": "tensor_overflow", "role": "loss"}
    door.configure(watch=[rule], on_hit="stop", history=2)
    network = trainer(**context)

    with pytest.raises(msdump.errors.WatchHitError, match="in iteration 10"):
        msdump.Model(network).train(1, [*batches(6), *data], dataset_sink_mode=sinks)

    steps = {int(path.name) for path in (door.rank / "Net" / "0").iterdir() if path.name.isdigit()}
    assert {8, 9, 10} == steps
    assert np.isfinite(network.state()["weight"]).all()
