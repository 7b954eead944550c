"""Networks that bring their own configuration: ``msdump.load(model, config=...)``."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import msdump
from msdump import env
from msdump.errors import ConfigSyntaxError, ConfigValueError, InputError
from tests.dump import nets, o2, trees
from tests.world import CPU, GPU, O0, O1, O2, compiled_config, config

X = {"x": np.ones((2, 4), np.float32)}


def iterations(root):
    """Return the iterations with directories, by graph."""
    graphs = sorted(path for path in (root / "rank_0" / "Net").iterdir())
    return {graph.name: sorted(int(path.name) for path in graph.iterdir()) for graph in graphs}


MODES = {
    "CPU": ({}, CPU),
    "GPU": ({}, GPU),
    "sync": ({}, O0),
    "async": ({"enable": False}, O1),
    "statistics": ({"saved_data": "statistic", "statistic_category": ("max",)}, O0),
}


@pytest.mark.parametrize(
    "give", [dict, MappingProxyType, "file", Path], ids=["dict", "mapping", "text", "path"]
)
@pytest.mark.parametrize(("changes", "context"), MODES.values(), ids=MODES)
def test_configuration_of_a_network(door, give, changes, context):
    """A path or a mapping configures one network, in every mode; the context may stand beside it."""
    blocks = config(door.path, **changes)
    file = door.folder / "own.json"
    file.write_text(json.dumps(blocks))
    given = {"file": str(file), Path: file}.get(give) or give(blocks)

    network = msdump.load(nets.dense(), config=given, context=context)
    network.run(X)

    assert {"0": [0]} == iterations(door.path)
    assert context["device_target"] == network.plan.context.device_target


def test_configuration_of_a_compiled_graph(door):
    """A network of its own configuration may run under O2."""
    network = msdump.load(nets.dense(), compiled_config(door.path), context=O2)
    network.run(X)

    assert [(0, 0)] == [(step, run) for step, _, _, _, run in o2.places(door.path)]


def test_default_stays(door):
    """MINDSPORE_DUMP_CONFIG holds for all other networks, before and after."""
    door.configure(iteration="0-9")
    before = msdump.load(nets.cosine())
    own = msdump.load(nets.cosine(), config=config(door.folder / "own"))
    after = msdump.load(nets.cosine())
    for network in (before, own, after):
        network.run(X)

    assert {"0": [0], "2": [1]} == iterations(door.path)
    assert {"1": [0]} == iterations(door.folder / "own")


def test_context_of_a_network_alone(door):
    """The context beside a configuration holds for that network alone."""
    own = msdump.load(nets.cosine(), config(door.path), context=O0)

    assert ("Ascend", None) == (own.plan.context.device_target, msdump.load(nets.cosine()).device)


def test_each_configuration_counts_by_itself(door):
    """Networks of one configuration share the counter and the budget, others do not."""
    first, second = config(door.folder / "a", max_bytes=10**6), config(door.folder / "b")
    one, same, other = (msdump.load(nets.cosine(), config=dict(given)) for given in (first, first, second))
    for network in (one, one, same, other, other):
        network.run(X)

    assert {"0": [0, 1], "1": [2]} == iterations(door.folder / "a")
    assert {"2": [0, 1]} == iterations(door.folder / "b")
    assert one.summary == same.summary != other.summary


def test_steering_holds_for_all(door):
    """Settings of the process, such as the number of the step, hold for every configuration."""
    networks = [msdump.load(nets.cosine(), config=config(door.folder / name, iteration="0")) for name in "ab"]
    msdump.set_init_iter(7)
    msdump.dump_start()
    for network in networks:
        network.run(X)

    assert [{"0": [7]}, {"1": [7]}] == [iterations(door.folder / name) for name in "ab"]


def test_marks_by_name(door):
    """A name that ``set_dump`` marks is met in networks of any configuration."""
    msdump.set_dump("Default/Cos-op0")
    msdump.load(nets.cosine(), config=config(door.path, dump_mode=2)).run(X)

    assert {"Default_Cos-op0"} == trees.operators(door.path)


def test_unused_kernels_of_each_configuration(door, caplog):
    """Each configuration has a name of its own in messages, one from a file its path."""
    file = door.folder / "own.json"
    blocks = config(door.path, dump_mode=1, kernels=["Softmax"])
    file.write_text(json.dumps(blocks))
    other = config(door.path, dump_mode=1, kernels=["LSTM"])
    for given in (blocks, file, other):
        msdump.load(nets.cosine(), config=given).run(X)
    door.process.close()

    told = [record.getMessage() for record in caplog.records if "matched no operator" in record.getMessage()]
    assert {
        "config (2): items of kernels that matched no operator that ran: LSTM",
        "config: items of kernels that matched no operator that ran: Softmax",
        f"{file}: items of kernels that matched no operator that ran: Softmax",
    } == set(told)


class Endless(Mapping):
    """A mapping that holds itself."""

    def __getitem__(self, key):
        """Return itself."""
        return self

    def __iter__(self):
        """Yield one key."""
        return iter("a")

    def __len__(self):
        """Tell that there is one."""
        return 1


FAULTY = {
    "value": (config("/dump", input_output=3), "config: $.common_dump_settings.input_output = 3: "),
    "text": (config("/dump", iteration="5-3"), "config: $.common_dump_settings.iteration = '5-3': "),
    "type": (
        config("/dump", kernels=["a", {1}]),
        "config: $.common_dump_settings.kernels[1] = '{1}': set is not a value of JSON; ",
    ),
    "number": (
        {"common_dump_settings": {"a": float("nan")}},
        "config: $.common_dump_settings.a = 'nan': float",
    ),
    "endless": (Endless(), "config: $ is nested too deeply, or contains itself"),
    "empty": ({}, "config: $"),
}


@pytest.mark.parametrize(("given", "message"), FAULTY.values(), ids=FAULTY)
def test_faulty_mapping(door, given, message):
    """A faulty mapping is refused by JSON paths, without file and line, and nothing is loaded."""
    with pytest.raises(ConfigValueError) as caught:
        msdump.load(nets.cosine(), config=given)

    assert str(caught.value).startswith(message)
    assert not list(door.folder.iterdir())


def test_faulty_file(door):
    """A faulty file is refused with its path and lines; mended, it is read again."""
    file = door.configure(input_output=3)
    door.monkeypatch.delenv(env.DUMP_CONFIG)
    with pytest.raises(ConfigValueError, match=rf"{file}:\d+: \$\.common_dump_settings\.input_output"):
        msdump.load(nets.cosine(), config=file)
    file.write_text(json.dumps(config(door.path)))

    msdump.load(nets.cosine(), config=file).run(X)

    assert {"0": [0]} == iterations(door.path)


def test_no_configuration(door):
    """Values other than a path or a mapping, and a missing file, are refused."""
    with pytest.raises(InputError, match=r"config = 3: must be the path of a \.json file or a dictionary"):
        msdump.load(nets.cosine(), config=3)
    with pytest.raises(ConfigSyntaxError, match=r"none\.json: no such file; config must be the path"):
        msdump.load(nets.cosine(), config=door.folder / "none.json")
