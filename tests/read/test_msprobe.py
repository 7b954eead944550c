"""Trees of msprobe: steps and ranks, names, statistics, killed programs, damaged and hostile files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msdump import open_dump
from msdump.errors import DumpReadError
from msdump.record import IO

_X = np.array([[1, 2], [3, 4]], np.float32)


def _tensor(array: np.ndarray, file: str | None) -> dict[str, Any]:
    numbers = {"Max": float(array.max()), "Min": float(array.min()), "Mean": float(array.mean())}
    form = {"type": "torch.Tensor", "dtype": f"torch.{array.dtype}", "shape": list(array.shape)}
    return {**form, **numbers, "Norm": float(np.linalg.norm(array)), "data_name": file}


def _write(process: Path, *, saves: bool = True, has_index: bool = True) -> Path:
    """Write the dump of a process: a Linear that is called twice, an API with a list, gradients."""
    folder = process / "dump_tensor_data"
    folder.mkdir(parents=True)
    data: dict[str, Any] = {}

    def tensor(name: str, array: np.ndarray) -> dict[str, Any]:
        if saves:
            np.save(folder / f"{name}.npy", array)
            time = len([*folder.iterdir()])
            os.utime(folder / f"{name}.npy", (time, time))
        return _tensor(array, f"{name}.npy" if saves else None)

    for call in range(2):
        name = f"Module.h.0.fc.Linear.forward.{call}"
        data[name] = {
            "input_args": [tensor(f"{name}.input.0", _X), {"type": "int", "value": 1}, None],
            "input_kwargs": {"mask": tensor(f"{name}.input.mask", _X > 2)},
            "output": [tensor(f"{name}.output.0", _X + call)],
            "parameters": {"weight": tensor(f"{name}.parameters.weight", _X * 2)},
        }
    name = "Torch.cat.0.forward"
    pieces = [tensor(f"{name}.input.0.{place}", _X + place) for place in range(2)]
    data[name] = {"input_args": [pieces], "input_kwargs": {}, "output": [tensor(f"{name}.output.0", _X)]}
    name = "Module.h.0.fc.Linear.parameters_grad.0"
    data[name] = {"weight": [tensor(f"{name}.weight", _X * 3)]}
    if has_index:
        (process / "dump.json").write_text(json.dumps({"task": "tensor", "level": "mix", "data": data}))
        (process / "stack.json").write_text("{")
    return process


_NAMES = [
    ("Linear", "Module.h.0.fc.Linear.forward.0", IO.INPUT, 0),
    ("Linear", "Module.h.0.fc.Linear.forward.0", IO.INPUT, 1),
    ("Linear", "Module.h.0.fc.Linear.forward.0", IO.OUTPUT, 0),
    ("Parameter", "h.0.fc.weight", IO.OUTPUT, 0),
    ("Linear", "Module.h.0.fc.Linear.forward.1", IO.INPUT, 0),
    ("Linear", "Module.h.0.fc.Linear.forward.1", IO.INPUT, 1),
    ("Linear", "Module.h.0.fc.Linear.forward.1", IO.OUTPUT, 0),
    ("cat", "Torch.cat.0.forward", IO.INPUT, 0),
    ("cat", "Torch.cat.0.forward", IO.INPUT, 1),
    ("cat", "Torch.cat.0.forward", IO.OUTPUT, 0),
    ("Linear", "Module.h.0.fc.Linear.parameters_grad.0.weight", IO.OUTPUT, 0),
]


@pytest.mark.parametrize("has_index", [True, False], ids=["whole", "killed"])
def test_tensors_of_modules_and_calls_are_records(tmp_path: Path, *, has_index: bool) -> None:
    """Inputs, outputs, parameters and their gradients are records in order, with or without dump.json."""
    _write(tmp_path / "step0" / "rank", has_index=has_index)
    records = open_dump(tmp_path).iterations[0].records
    found = [(each.op_type, each.op_name, each.io, each.slot) for each in records]
    assert sorted(found) == sorted(_NAMES)
    assert list(dict.fromkeys(name for _, name, *_ in _NAMES if name[0] != "h")) == list(
        dict.fromkeys(each.op_name for each in records if not each.is_parameter)
    )
    arrays = {(each.op_name, each.io, each.slot): each.array for each in records}
    assert np.array_equal(arrays["Module.h.0.fc.Linear.forward.1", IO.OUTPUT, 0], _X + 1)
    assert np.array_equal(arrays["Torch.cat.0.forward", IO.INPUT, 1], _X + 1)
    assert np.array_equal(arrays["Module.h.0.fc.Linear.parameters_grad.0.weight", IO.OUTPUT, 0], _X * 3)


def test_statistics_are_those_of_the_index(tmp_path: Path) -> None:
    """A tree of the task statistics has type, shape and statistics of each tensor, and no elements."""
    _write(tmp_path / "step0" / "rank", saves=False)
    iteration = open_dump(tmp_path).iterations[0]
    assert iteration.records == ()
    assert len(_NAMES) == len(iteration.tensors)
    tensor = next(each for each in iteration.tensors if each.op_type == "cat")
    assert (tensor.dtype, tensor.shape) == ("float32", (2, 2))
    assert (tensor.stats.max, tensor.stats.min, tensor.stats.mean) == (4.0, 1.0, 2.5)
    assert tensor.stats.l2norm == float(np.linalg.norm(_X))


@pytest.mark.parametrize(
    ("folders", "opened", "expected"),
    [
        (["step0/rank0", "step0/rank1", "step2/rank0"], "", [(0, 0), (0, 2), (1, 0)]),
        (["step3/proc412"], "", [(0, 3)]),
        (["step3/rank2", "step4/rank2"], "step3", [(2, 3)]),
        (["step3/rank2", "step4/rank2"], "step4/rank2", [(2, 4)]),
    ],
)
def test_steps_and_ranks_are_those_of_the_directories(
    tmp_path: Path, folders: list[str], opened: str, expected: list[tuple[int, int]]
) -> None:
    """A tree, a step and a rank open alike; a process without a rank is rank 0 where it is alone."""
    for each in folders:
        _write(tmp_path / each)
    dump = open_dump(tmp_path / opened)
    assert expected == [(each.rank, each.number) for each in dump.iterations]


def test_paths_do_not_leave_the_tree(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data_name that is a path, and a file that is missing, are left out and named; statistics remain."""
    np.save(tmp_path / "secret.npy", _X)
    process = _write(tmp_path / "step0" / "rank")
    index = json.loads((process / "dump.json").read_text())
    index["data"]["Torch.cat.0.forward"]["output"][0]["data_name"] = "../../../secret.npy"
    (process / "dump.json").write_text(json.dumps(index))
    (process / "dump_tensor_data" / "Torch.cat.0.forward.input.0.1.npy").unlink()
    iteration = open_dump(tmp_path / "step0").iterations[0]
    names = {(each.op_name, each.io, each.slot) for each in iteration.records}
    assert ("Torch.cat.0.forward", IO.OUTPUT, 0) not in names
    assert len(_NAMES) == len(iteration.tensors)
    assert "are no names of files, such as '../../../secret.npy'" in caplog.text
    assert "have no file in dump_tensor_data, such as 'Torch.cat.0.forward.input.0.1.npy'" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": {"Module.a.B.forward.0": {"out', "not JSON"),
        ("[1]", "it has no object 'data'"),
        ('{"data": 3}', "it has no object 'data'"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_damaged_index_is_an_error_that_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    """A dump.json that is cut off or of another form is named in the error."""
    process = tmp_path / "step0" / "rank"
    process.mkdir(parents=True)
    (process / "dump.json").write_text(text)
    with pytest.raises(DumpReadError, match=message) as raised:
        _ = open_dump(tmp_path).iterations[0].tensors
    assert str(process / "dump.json") == raised.value.path


def test_odd_values_of_the_index_are_read(tmp_path: Path) -> None:
    """NaN and infinities are numbers, and values of other types than expected are absent."""
    process = tmp_path / "step0" / "rank"
    process.mkdir(parents=True)
    (process / "dump.json").write_text(
        '{"data": {"a": 3, "Tensor.b.0.forward": {"output": [{"type": "torch.Tensor", "dtype": 7,'
        ' "shape": "x", "Max": NaN, "Min": -Infinity, "Mean": "m", "Norm": null, "data_name": null}]}}}'
    )
    (tensor,) = open_dump(tmp_path).iterations[0].tensors
    assert tensor.stats.has_nan is True
    assert (tensor.stats.min, tensor.stats.mean, tensor.shape) == (-np.inf, None, ())


def test_pt_files_need_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch a .pt file is an error with the command that installs it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    folder.mkdir(parents=True)
    (folder / "Module.fc.Linear.forward.0.output.0.pt").write_bytes(b"PK")
    (record,) = open_dump(tmp_path).iterations[0].records
    with pytest.raises(DumpReadError, match=r"pip install 'msdump\[torch\]'"):
        _ = record.array
