"""Operators with a precision of their own, from the configuration and from set_context to the files."""

import numpy as np
import pytest

from msdump.errors import ConfigError, InputError
from tests.dump import nets
from tests.world import CPU, O0

FP16 = {"precision_mode": "force_fp16", "trans_flag": False}


def dtypes(door):
    """Return the element types of the dumped outputs, as the device holds them, by operator type."""
    files = sorted(door.rank.rglob("*.output.0.*.npy"))
    return {file.name.partition(".")[0]: np.load(file).dtype.name for file in files}


def written(door, name, text):
    """Write a file beside the dump and return its path."""
    path = door.folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("way", ["configuration", "set_context"])
def test_kept_operators(door, way):
    """The files show an operator that is kept in float32, and the others in float16."""
    path = written(door, "keep.cfg", "OpType::ReLU\n")
    dumped, changes = (O0 | {"ascend_config": {"keep_dtype": path}}, {}), {"keep_dtype": path}
    context, more = (O0, changes) if way == "configuration" else dumped

    door.dump(nets.mini(), nets.mini_feeds(), context=context, **FP16, **more)

    found = dtypes(door)
    assert "float32" == found.pop("ReLU")
    assert {"float16"} == set(found.values()) - {"int64"}


def test_context_wins(door):
    """Settings of an operator by set_context win over the configuration, as precision_mode does."""
    keeps, narrows = "OpType::ReLU\n", "OpType::ReLU:InputDtype:float16,OutputDtype:float16\n"
    context = O0 | {"ascend_config": {"customize_dtypes": written(door, "custom.cfg", narrows)}}

    door.dump(nets.mini(), nets.mini_feeds(), context=context, **FP16, keep_dtype=written(door, "k", keeps))

    assert "float16" == dtypes(door)["ReLU"]


def test_mixed_precision(door):
    """GE's options of ascend_config turn mixed precision on and change its lists."""
    lists = written(
        door, "mix.json", '{"white-list": {"to-add": ["ReLU"]}, "black-list": {"to-add": ["Conv2D"]}}'
    )
    options = {"ge.exec.precision_mode": "allow_mix_precision", "ge.exec.modify_mixlist": lists}

    door.dump(
        nets.mini(),
        nets.mini_feeds(),
        context=O0 | {"ascend_config": {"ge_options": {"global": options}}},
        trans_flag=False,
    )

    found = dtypes(door)
    assert ("float16", "float32") == (found["ReLU"], found["Conv2D"])


def test_faulty_files(door):
    """A file that is missing or wrong stops the network before it runs, on Ascend alone."""
    faulty = written(door, "keep.cfg", "fine\nOpType::\n")

    with pytest.raises(ConfigError, match=r"keep\.cfg:2"):
        door.dump(nets.mini(), nets.mini_feeds(), context=O0, keep_dtype=faulty)
    with pytest.raises(InputError, match="needs a precision_mode with mixed precision"):
        door.dump(nets.mini(), nets.mini_feeds(), context=O0, modify_mixlist=written(door, "mix.json", "{}"))
    door.dump(nets.mini(), nets.mini_feeds(), context=CPU, keep_dtype=faulty)

    assert list(door.rank.rglob("*.npy"))
