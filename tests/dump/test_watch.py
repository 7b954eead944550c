"""Watch rules while a network runs, and the history: effects of hits, steps on disk."""

import json
import logging
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest

import msdump
from msdump.capture import history as history_module
from msdump.errors import ConfigError, ExecutionError, WatchHitError
from tests import steps
from tests.communication.models import collective, model
from tests.dump import nets, trees
from tests.dump.test_overflow import SATURATION, overflow
from tests.texts import parsed
from tests.world import CPU, GPU, O0, O1, O2, ROOT, cli, config

OVERFLOW = [{"condition": "tensor_overflow"}]
MODES = {"CPU": CPU, "GPU": GPU, "O0": O0, "O1": O1, "O2": O2}


def logarithm():
    """Return a model with a second operator that makes NaN of negative numbers."""
    return parsed(
        "graph (float[2,3] x) => (y) { a = Mul(x, w) b = Log(a) y = Neg(b) }", w=np.float32([2, 2, 2])
    )


def run(network, *, count=10, bad=(7,)):
    """Run steps, of which some are fed negative numbers."""
    for step in range(count):
        network(np.full((2, 3), -1.0 if step in bad else 1.0 + step, np.float32))


def iterations(path):
    """Return the numbers of the iterations that left files, in any tree."""
    steps_with_files = (part for part in Path(path).rglob("*") if part.is_dir() and any(part.glob("*.*.*")))
    return sorted({int(part.name) for part in steps_with_files if part.name.isdigit()})


def contents(path, numbers):
    """Return the bytes of the files of some iterations by path, timestamps taken out."""
    files = {}
    for name, file in trees.tree(path).items():
        if {*name.split("/")[:-1]} & {str(number) for number in numbers}:
            files[trees.TIMESTAMP.sub("{ts}", name)] = file.read_bytes()
    return files


def note_of(path, rank=0):
    """Return the note of a rank on its history."""
    return json.loads((path / f"msdump_history_{rank}.json").read_text())


@pytest.fixture
def held(monkeypatch):
    """Give the bytes that the history has held whenever it took a file."""
    found, makes_room = [], history_module.HistorySink._makes_room

    def holding(sink, *arguments):
        is_held = makes_room(sink, *arguments)
        found.append(sink._bytes)
        return is_held

    monkeypatch.setattr(history_module.HistorySink, "_makes_room", holding)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_synchronous", [True, False])
def test_steps_before_a_hit_are_on_disk(mode, is_synchronous, door):
    """A hit writes the steps before it and its own, in every mode; others leave nothing."""
    changes = {"enable": is_synchronous, "watch": OVERFLOW, "history": 2, "file_format": "npy"}
    door.configure(**changes)

    run(door.load(logarithm(), **MODES[mode]))
    door.process.close()

    assert [5, 6, 7] == iterations(door.path)


@pytest.mark.parametrize("saved_data", ["tensor", "statistic", "full"])
def test_files_are_those_of_a_plain_dump(saved_data, door, tmp_path):
    """Files of the history have the names and bytes of a dump without it."""
    door.configure(watch=OVERFLOW, history=2, saved_data=saved_data)
    run(door.load(logarithm(), **MODES["O0"]), count=9)
    door.again()
    door.configure(path=str(tmp_path / "plain"), saved_data=saved_data)
    run(door.load(logarithm(), **MODES["O0"]), count=9)
    door.process.close()

    plain = contents(tmp_path / "plain" / "rank_0", (5, 6, 7))
    kept = contents(door.rank, (5, 6, 7))
    assert plain.keys() == kept.keys()
    # rows of statistics hold the times at which they were measured
    assert [] == [name for name in plain if name.endswith(".npy") and plain[name] != kept[name]]
    if saved_data != "tensor":
        assert [len(data.splitlines()) for name, data in plain.items() if name.endswith(".csv")] == [
            len(data.splitlines()) for name, data in kept.items() if name.endswith(".csv")
        ]


def test_constants_and_lists_of_a_cpu_dump_are_kept(door):
    """Constants, which the first step writes, and the list of iterations fit the steps on disk."""
    nodes = [
        nets.node("Constant", "", "c", value=onnx.numpy_helper.from_array(np.float32([2, 2, 2]))),
        nets.node("Mul", "x c", "a"),
        nets.node("Log", "a", "y"),
    ]
    door.configure(watch=OVERFLOW, history=1)
    run(door.load(nets.model(nodes, [nets.value("x", [2, 3])], ["y"])))
    door.process.close()

    assert [6, 7] == iterations(door.path)
    assert 1 == len(list((door.rank / "Net" / "0" / "constants").glob("*.npy")))
    (listed,) = (door.rank / "execution_order").glob("ms_global*")
    assert ["6", "7"] == listed.read_text().split()


def test_only_operators_that_hit_are_written_without_history(door):
    """Without a history on_hit dump writes the operators at which a rule hits, and nothing else."""
    door.configure(watch=OVERFLOW)
    network = door.load(logarithm(), **MODES["O0"])
    run(network)

    assert [("Log", "output"), ("Log", "input"), ("Neg", "input"), ("Neg", "output")] == sorted(
        [(match["type"], match["io"]) for match, _ in trees.tensors(door.rank)],
        key=lambda pair: (pair[0], pair != ("Log", "output"), pair[1]),
    )
    assert network.summary.skipped["dumped only if a watch rule hits"] == 9 * 7 + 3


def test_operator_that_passed_before_is_looked_at_again(door):
    """An operator that was cleared before is dumped in each step in which it hits, and in no other."""
    door.configure(watch=OVERFLOW, input_output=2)
    network = door.load(logarithm(), **MODES["O0"])
    run(network, count=12, bad=(2, 3, 9))

    assert [2, 3, 9] == iterations(door.rank)
    assert network.summary.skipped["dumped only if a watch rule hits"] == 12 * 3 - 3 * 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"history": 2}, "5-7"), ({}, "7"), ({"on_hit": "log"}, "0-9"), ({"on_hit": "log", "history": 2}, "")],
)
def test_network_tells_which_iterations_are_on_disk(changes, expected, door):
    """A network lists the iterations on disk, by rules and history."""
    door.configure(watch=OVERFLOW, **changes)
    network = door.load(logarithm(), **MODES["O0"])
    run(network)
    door.process.close()

    assert expected == str(network.written_iterations)


def test_log_changes_nothing_of_the_dump(door, caplog):
    """on_hit log dumps as ever and warns: the first hit of an operator, then the tenth."""
    door.configure(watch=OVERFLOW, on_hit="log")
    with caplog.at_level(logging.WARNING, "msdump"):
        run(door.load(logarithm(), **MODES["O0"]), count=12, bad=range(12))
        door.process.close()

    lines = [record.getMessage() for record in caplog.records if "watch rule" in record.getMessage()]
    assert [*range(12)] == iterations(door.path)
    assert (
        "watch rule 'tensor_overflow' hit in iteration 0: Default/Log-op0 output.0: "
        "the number of elements that are NaN or infinite is 6 (> 0)" == lines[0]
    )
    assert 2 == sum(line.endswith("(10 times so far)") for line in lines)
    assert "hit 36 times at 2 operators" in lines[-1]


def test_a_step_has_one_line(door, caplog):
    """Hits that spread from one operator to all that follow have one warning in a step, and a total."""
    nodes = [nets.node("Log", "x", "v0")]
    nodes += [nets.node("Neg" if n % 2 else "Abs", f"v{n}", f"v{n + 1}") for n in range(20)]
    door.configure(watch=OVERFLOW, history=2)
    network = door.load(nets.model(nodes, [nets.value("x", [2, 3])], ["v20"]), **MODES["O0"])

    run(network, count=4, bad=(1, 3))
    door.process.close()

    lines = [message for message in caplog.messages if "watch rule" in message]
    assert ["iteration 1: Default/Log-op0", "82 times at 21 operators"] == [
        line.partition(" hit in ")[2].partition(" output")[0] or line.partition(" hit ")[2] for line in lines
    ]


@pytest.mark.parametrize("history", [0, 3])
def test_stop_ends_the_run(history, door):
    """on_hit stop raises an error that names rule, operator and iteration; the tensors are on disk."""
    door.configure(watch=[{"condition": "tensor_overflow", "name": "no NaN"}], on_hit="stop", history=history)
    network = door.load(logarithm(), **MODES["O0"])

    with pytest.raises(
        WatchHitError, match="'no NaN' hit at Default/Log-op0 in iteration 7: output"
    ) as caught:
        run(network)

    assert ("no NaN", "Default/Log-op0", 7) == (
        caught.value.rule,
        caught.value.operator,
        caught.value.iteration,
    )
    assert ([*range(8)] if not history else [4, 5, 6, 7]) == iterations(door.path)
    assert {"Mul", "Log"} == {match["type"] for match, _ in trees.tensors(door.rank, iteration=7)}
    door.process.close()


def test_history_alone_waits_for_a_failure(door):
    """Without rules the steps before a failing operator are written, and the files of its own step."""
    model = parsed("graph (float[2] x, int64[1] i) => (y) { a = Neg(x) y = Gather(a, i) }")
    door.configure(history=2)
    network = door.load(model, **MODES["O0"])
    x = np.ones(2, np.float32)
    for _ in range(5):
        network(x, np.array([1]))
    assert [] == iterations(door.path)

    with pytest.raises(ExecutionError):
        network(x, np.array([9]))

    assert [3, 4, 5] == iterations(door.path)
    note = note_of(door.path)
    assert ("ExecutionError", [3, 4, 5]) == (
        note["released"][0]["reason"].split(":")[0],
        note["released"][0]["written"],
    )


def test_nothing_is_written_where_nothing_happens(door):
    """A run without a hit leaves its graph files and a note of dropped steps, with rank and version."""
    door.configure(watch=OVERFLOW, history=2)
    run(door.load(logarithm()), bad=())
    door.process.close()

    note = note_of(door.path)
    assert [] == iterations(door.path)
    assert (msdump.__version__, 0, 2, 0, "", "0-7", "8-9") == (
        *(note["msdump"], note["rank"], note["history"], note["releases"], note["written"]),
        note["dropped"]["replaced by newer steps"],
        note["dropped"]["at the end of the program"],
    )


def test_memory_drops_oldest_steps_whole(door, held):
    """The bound of the memory holds at any time; oldest steps go first, and the note lists them."""
    step_bytes = 6 * (24 + 128 + 1024)  # files of float[2,3] on O0, which have a header
    bound = 3 * step_bytes + step_bytes // 2
    door.configure(watch=OVERFLOW, history=5, history_bytes=bound)
    run(door.load(logarithm(), **MODES["O0"]))
    door.process.close()

    assert max(held) <= bound
    assert [5, 6, 7] == iterations(door.path)
    note = note_of(door.path)
    assert note["dropped"]["for lack of memory"].startswith("0-4")


def test_step_larger_than_all_memory_is_told(door):
    """A step that does not fit even alone is given up, and only files behind the hit are written."""
    door.configure(watch=OVERFLOW, history=5, history_bytes=2000)
    run(door.load(logarithm(), **MODES["O0"]), count=8)
    door.process.close()

    note = note_of(door.path)
    assert "7" == note["dropped"]["larger than history_bytes"]
    assert {"Log", "Neg"} >= {match["type"] for match, _ in trees.tensors(door.rank, iteration=7)}


@pytest.mark.parametrize("role", ["weight", "gradient", "loss"])
def test_roles_of_a_training(role, door, caplog):
    """A rule on a role looks at the optimizer's weight and gradient, or at the loss."""
    rule = {"condition": "tensor_too_large", "max_gt": -1e9, "role": role}
    door.configure(watch=[rule], input_output=0)
    network = steps.plain()
    network.train_step(steps.X, steps.T)

    expected = {
        "weight": {"ApplyMomentum", "Parameter"},
        "gradient": {"ApplyMomentum"},
        "loss": {"ReduceMean"},
    }
    assert expected[role] == {match["type"] for match, _ in trees.tensors(door.rank)}


def test_rules_on_changes_look_at_the_step_before(door):
    """A weight that training changes is no unchanged one; its update ratio is measured."""
    rules = [
        {"condition": "weight_not_changed", "types": ["ApplyMomentum"]},
        {"condition": "update_to_weight", "types": ["ApplyMomentum"], "ratio_gt": None, "ratio_lt": 1e9},
    ]
    door.configure(watch=rules, on_hit="stop")
    network = steps.plain()
    network.train_step(steps.X, steps.T)

    with pytest.raises(WatchHitError, match="'update_to_weight' hit at Default/ApplyMomentum-op0 in"):
        network.train_step(steps.X, steps.T)


def test_rules_look_into_loops(door, caplog):
    """Operators in the bodies of loops are watched in each pass."""
    door.configure(watch=[{"condition": "tensor_too_large", "max_gt": -1e9}], on_hit="log")
    network = door.load(str(ROOT / "graphs" / "loop.onnx"), **MODES["O0"])
    with caplog.at_level(logging.WARNING, "msdump"):
        network.run({"count": np.array(3), "start": np.ones(3, np.float32)})
        door.process.close()

    files = len(trees.tensors(door.rank))
    (total,) = [r.getMessage() for r in caplog.records if "times at" in r.getMessage()]
    assert f"hit {files} times" in total


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"watch": [{"condition": "tensor_overflw"}]}, "did you mean 'tensor_overflow'?"),
        ({"watch": [3]}, "$.msdump.watch[0]"),
        ({"watch": {}}, "a list of watch rules"),
        ({"watch": [{"condition": "ranks_disagree"}]}, "at the end of a step"),
        (
            {"watch": [{"condition": "operator_overflow"}], "input_output": 1},
            "input_output = 1 leaves them out",
        ),
        ({"on_hit": "sotp"}, "did you mean 'stop'?"),
        ({"history": -1}, "a whole number from 0"),
        ({"history_bytes": 0}, "a whole number of bytes from 1"),
    ],
)
def test_faults_of_the_configuration(changes, expected, door):
    """Faulty rules and settings are errors before anything runs."""
    door.configure(**changes)

    with pytest.raises(ConfigError) as caught:
        door.load(logarithm())

    assert expected in str(caught.value)


PROGRAM = """
import sys, time
import numpy as np
import msdump
msdump.set_context(device_target="Ascend", jit_level="O0")
network = msdump.load("net.onnx")
x = np.ones((2, 3), np.float32)
for step in range(20):
    network(x)
print("ready", flush=True)
way = sys.argv[1] if len(sys.argv) > 1 else WAY
if way == "exception":
    raise ValueError("in user code")
for _ in range(6000 if way == "signal" else 0):  # a signal that comes just before a wait is heard behind it
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("way", "number", "expected", "reason"),
    [
        ("end", None, [], None),
        ("exception", None, [18, 19], "ValueError: in user code"),
        ("signal", signal.SIGTERM, [18, 19], "SIGTERM"),
        ("signal", signal.SIGXCPU, [18, 19], "SIGXCPU"),
        ("signal", signal.SIGINT, [18, 19], "KeyboardInterrupt"),
    ],
)
@pytest.mark.parametrize("is_synchronous", [True, False])
def test_end_of_a_process(way, number, expected, reason, is_synchronous, python, tmp_path):
    """SIGTERM, Ctrl-C and an exception write the last steps; a program that just ends drops them."""
    onnx.save(logarithm(), tmp_path / "net.onnx")
    blocks = config(tmp_path / "dump", enable=is_synchronous, history=2)
    (tmp_path / "dump.json").write_text(json.dumps(blocks))
    process = python(PROGRAM.replace("WAY", repr(way)), MINDSPORE_DUMP_CONFIG="dump.json")
    assert "ready\n" == process.stdout.readline()
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=60)

    assert expected == iterations(tmp_path / "dump")
    note = note_of(tmp_path / "dump")
    reasons = [event["reason"].rstrip(": ") for event in note["released"]]
    assert ([] if reason is None else [reason]) == reasons


@pytest.mark.usefixtures("door")
def test_ranks_hear_of_a_hit_where_they_wait(tmp_path):
    """A hit that ends the run of one rank fails the other where it waits for it, and both write."""
    for rank in range(2):
        nodes = [collective("AllReduce", ("a",), ("y",))]
        nodes.insert(0, nets.node("Log" if rank else "Neg", "x", "a"))
        onnx.save(model(nodes), tmp_path / f"rank{rank}.onnx")
    np.savez(tmp_path / "x.npz", x=np.full((4, 6), -1, np.float32))
    blocks = config(tmp_path / "dump", watch=OVERFLOW, on_hit="stop", history=2, support_device=[0, 1])
    (tmp_path / "dump.json").write_text(json.dumps(blocks))

    arguments = ["run", f"{tmp_path}/rank{{rank}}.onnx", "--ranks", "2", "--inputs", f"{tmp_path}/x.npz"]
    done = cli(*arguments, "--config", f"{tmp_path}/dump.json")

    assert 1 == done.exit_code
    assert "watch rule 'tensor_overflow' hit at Default/Log-op0 in iteration 0" in done.output
    for rank, other in enumerate(("Neg", "Log")):
        note = note_of(tmp_path / "dump", rank)
        assert (rank, [0]) == (note["rank"], note["released"][0]["written"])
        assert any(match["type"] == other for match, _ in trees.tensors(tmp_path / "dump" / f"rank_{rank}"))


DEVICE_OVERFLOW = [{"condition": "operator_overflow"}]


def squares():
    """Return a model that squares, and then makes the result small again."""
    return parsed(
        "graph (float[2,3] x) => (y) { a = Mul(x, x) b = Mul(a, small) y = Neg(b) }", small=np.float32(1e-3)
    )


def feed(value):
    """Return an input with one large element."""
    array = np.ones((2, 3), np.float32)
    array[0, 1] = value
    return {"x": array}


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_saturation_is_told_though_all_is_finite(level, door, caplog):
    """float16 that the device clamps is finite everywhere; its status names the operator."""
    overflow(door, SATURATION)
    door.configure(watch=DEVICE_OVERFLOW, on_hit="log", precision_mode="force_fp16", file_format="npy")
    network = door.load(squares(), device_target="Ascend", jit_level=level)
    with caplog.at_level(logging.WARNING, "msdump"):
        outputs = [network.run(feed(value))["y"] for value in (10, 1000, 10)]
        door.process.close()

    assert all(np.isfinite(array).all() for array in outputs)
    hits = [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]
    assert [True] == ["hit in iteration 1: Default/" in each and " output.0: " in each for each in hits]
    assert "the number of the operator's overflows in the device's records is 1 (> 0)" in hits[0]


@pytest.mark.parametrize("mode", MODES)
def test_infinity_is_an_overflow_of_who_makes_and_who_passes_it(mode, door):
    """An operator with an infinite output overflows in each mode, and only such ones are written."""
    door.configure(watch=DEVICE_OVERFLOW, file_format="npy")
    network = door.load(squares(), **MODES[mode])
    for value in (10, 1e30, 10):
        network.run(feed(value))

    assert [1] == iterations(door.path)


def test_all_outputs_of_an_overflowing_operator_hit(door, caplog):
    """The device's status is an operator's, so that its finite outputs hit as well, and its inputs do not."""
    made = parsed("graph (float[2,3] x) => (b, c) { b, c = Split<axis = 0, num_outputs = 2>(x) }")
    door.configure(watch=DEVICE_OVERFLOW, on_hit="log")
    network = door.load(made, **MODES["O0"])
    with caplog.at_level(logging.WARNING, "msdump"):
        network.run(feed(np.inf))
        network.run(feed(1))
        door.process.close()

    first, total = [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]
    assert "hit in iteration 0: Default/Split-op0 output.0: " in first
    assert total.endswith("hit 2 times at 1 operators")
