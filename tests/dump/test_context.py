"""Sources of configuration and context."""

import pytest

import msdump
from msdump.errors import ConfigError
from tests.dump import nets, trees
from tests.world import CPU, O0, O2, compiled_config


def test_without_a_configuration(door, caplog):
    """Without MINDSPORE_DUMP_CONFIG nothing is written and nothing is said."""
    caplog.set_level("DEBUG", "msdump")

    network = door.load(nets.mini())
    network.run(nets.mini_feeds())
    door.process.close()

    assert network.summary is None
    assert list(door.folder.iterdir()) == []
    assert caplog.records == []


def test_variable_is_read_once(door):
    """Changes of the variable or the file after the first load have no effect."""
    file = door.configure(net_name="First")
    first = door.load(nets.mini())
    file.write_text("{}")
    door.monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", "/none.json")

    first.run(nets.mini_feeds())
    door.load(nets.mini()).run(nets.mini_feeds())

    assert {"0", "1"} == {path.name for path in (door.rank / "First").iterdir()}


def test_faulty_configuration_is_read_again(door):
    """A faulty configuration raises at every load until it is mended."""
    door.configure(iteration="5-3")
    for _ in range(2):
        with pytest.raises(ConfigError, match="iteration"):
            door.load(nets.mini())

    door.configure()
    door.load(nets.mini()).run(nets.mini_feeds())

    assert trees.tensors(door.rank)


def test_configuration_by_relative_path(door):
    """The variable may hold a relative path; a later change of directory does not matter."""
    file = door.configure()
    door.monkeypatch.chdir(door.folder)
    door.monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", file.name)
    network = door.load(nets.mini())
    door.monkeypatch.chdir("/")

    network.run(nets.mini_feeds())

    assert file.read_bytes() == (door.rank / ".dump_metadata" / "data_dump.json").read_bytes()


def test_context_of_each_network(door):
    """Each network is compiled for the context of its load."""
    door.configure(save_kernel_args=True)

    on_cpu, on_ascend = door.load(nets.mini(), **CPU), door.load(nets.mini(), **O0)
    for network in (on_cpu, on_ascend):
        network.run(nets.mini_feeds())

    dtypes = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "0")}
    assert {None} == dtypes
    dtypes = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "1")}
    assert {"float32"} == dtypes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device_target": "TPU"}, "device_target = 'TPU': must be one of CPU, GPU, Ascend"),
        ({"jit_level": "O3"}, "jit_level = 'O3': must be one of O0, O1, O2"),
        (
            {"ascend_config": {"exception_dump": 2}},
            r"ascend_config\['exception_dump'\] = 2: must be one of '0', '1', '2'",
        ),
        ({"device_id": -1}, r"device_id = -1: must be a device number \(0, 1, ... 2147483647\)"),
        ({"device_id": True}, "device_id = True"),
        ({"device_id": 1 << 31}, "device_id = 2147483648: must be a device number"),
        ({"device_id": 10**5000}, "device_id = a number of more digits: must be a device number"),
        (
            {"max_device_memory": f"{5000 * '9'}GB"},
            f"max_device_memory = '{79 * '9'}...: must be a size such as",
        ),
        ({"reserve_class_name_in_scope": 0}, "reserve_class_name_in_scope = 0: must be True or False"),
        ({"mode": 0}, "set_context has no setting 'mode'; it has device_target, "),
        (
            {"ascend_config": {"fusion_switch": True}},
            r"ascend_config\['fusion_switch'\] = True: must be 'on' or 'off'",
        ),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_wrong_context(door, settings, message):
    """A wrong setting is refused with the allowed values, and changes nothing."""
    with pytest.raises(ValueError, match=message):
        msdump.set_context(**settings)

    door.dump(nets.mini(), nets.mini_feeds())
    assert (door.rank / ".dump_metadata" / "config.json").read_text().startswith('{"device_target":"CPU"')


ARGUMENT = "it is an argument of set_context itself: set_context(**config)"
UNSUPPORTED = {
    "a whole call": (
        {"ascend_config": {"precision_mode": "force_fp16"}},
        f"ascend_config['ascend_config'] has no effect: {ARGUMENT}",
    ),
    "an argument": ({"jit_level": "O0"}, f"ascend_config['jit_level'] has no effect: {ARGUMENT}"),
    "unknown": ({"jit_compile": True}, "ascend_config['jit_compile'] has no effect: only precision_mode, "),
}


@pytest.mark.parametrize(("value", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_keys_without_an_effect(door, caplog, value, message):
    """A key of ascend_config that is an argument of set_context is named as one."""
    msdump.set_context(ascend_config=value)

    assert message in caplog.text


def test_context_from_the_environment(door):
    """DEVICE_TARGET and JIT_LEVEL hold where no call says otherwise."""
    door.monkeypatch.setenv("DEVICE_TARGET", "Ascend")
    door.monkeypatch.setenv("JIT_LEVEL", "O1")
    door.dump(nets.mini(), nets.mini_feeds())
    of_environment = {m["dtype"] for m, _ in trees.tensors(door.rank)}

    door.load(nets.mini(), device_target="CPU").run(nets.mini_feeds())
    of_call = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "1")}

    assert ({"float32"}, {None}) == (of_environment, of_call)


def test_wrong_environment(door):
    """A wrong variable is named at the load."""
    door.monkeypatch.setenv("DEVICE_TARGET", "NPU")

    with pytest.raises(ValueError, match="DEVICE_TARGET = 'NPU': must be one of CPU, GPU, Ascend"):
        door.load(nets.mini())


@pytest.mark.parametrize(
    ("of_call", "of_file", "expected"),
    [("on", "on", 1), ("off", "on", 2), ("on", "off", 2)],
    ids=["on", "off by call", "off by file"],
)
def test_fusion_switch(door, of_call, of_file, expected):
    """Operators are fused under O2 unless a call or the configuration turns fusion off."""
    door.configure(compiled_config(door.path, fuses=of_file == "on"))

    network = door.load(nets.exp_plus_one(), **O2, ascend_config={"fusion_switch": of_call})

    assert expected == len(network.operators)
