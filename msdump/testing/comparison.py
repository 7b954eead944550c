"""Compares the results of a model with golden ones, for tests.

Each comparison runs in its own process. So another use of msdump in the test, ``MINDSPORE_DUMP_CONFIG`` and
similar variables have no effect, and a crash of the runtime fails one test only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes, env
from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, InputError
from msdump.execute import unmasked
from msdump.judge import load_arrays, write_arrays
from msdump.read import read_json
from msdump.store.write import write_stream

_AGREES, _DIFFERS = 0, 1
_LEVELS: Final = {"O0", "O1", "O2"}
_DEVICES: Final = {"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend"}
_KEPT_CONFIG: Final = "data_dump.json"
_KEPT_CONTEXT: Final = "config.json"

_Path = str | os.PathLike[str]


class ComparisonError(Exception):
    """Nothing could be compared: the model, an input or the golden side is wrong."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The result of a comparison.

    Attributes:
        agrees: Whether everything that was compared agrees.
        title: The model and the golden side.
        text: The operators at fault and the table of operators; for outputs one line each.
    """

    agrees: bool
    title: str
    text: str


def compare(
    model: Any,
    inputs: Mapping[str, Any] | _Path | None = None,
    *,
    golden: Mapping[str, Any] | _Path,
    mine: str = "float32",
    tolerance: float | _Path | None = None,
    cosine: float | None = None,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    folder: _Path | None = None,
) -> ModelComparison:
    """Compare a model with a golden side, operator by operator if golden is not only outputs.

    Args:
        model: An .onnx file, or an ``onnx.ModelProto``.
        inputs: Arrays by the names of inputs, or an .npz file; None: made up from the seed.
        golden: The golden side: a variant, such as ``"float64"`` or ``"onnxruntime"``; a second
            .onnx file; a dump (the model is dumped again with the dump's configuration); an .npz file or a
            mapping of golden outputs by name.
        mine: The variant on which the model runs: ``"float32"``, ``"Ascend"``, ``"Ascend:force_fp16:O2"``.
            If golden is a dump: a device and level; "float32" is the device of the dump.
        tolerance: Largest relative Euclidean distance, or a file of limits; None: by the element types.
        cosine: Least cosine similarity; None: 0.99.
        seed: Seed of made-up inputs and random numbers.
        sizes: Sizes of dynamic dimensions by name, for made-up inputs.
        folder: Folder of the comparison's files; None: a temporary folder.

    Raises:
        ComparisonError: Nothing could be compared; the message has the reason.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="msdump_"))
        place = Path(folder)
        if isinstance(model, str | os.PathLike):
            path = str(model)
        else:
            write_stream(str(place), "model.onnx", (model.SerializeToString(),))
            path = str(place / "model.onnx")
        is_file = isinstance(tolerance, str | os.PathLike)
        option = "--limits" if is_file else "--distance"
        distance = () if tolerance is None else (option, str(tolerance))
        request = _Request(
            path,
            place,
            mine,
            _feeds(inputs, place, seed, sizes),
            (distance if cosine is None else (*distance, "--cosine", str(cosine))),
        )
        if isinstance(golden, Mapping):
            return request.with_outputs(golden, "arrays")
        kind = Path(golden)
        if kind.is_dir():
            return request.with_dump(kind)
        if kind.suffix == ".npz":
            return request.with_outputs(_arrays(kind), str(golden))
        if kind.suffix == ".onnx":
            return request.lockstep((path, str(golden)), "float32", str(golden))
        return request.lockstep((path,), str(golden), str(golden))


@dataclass(frozen=True, slots=True)
class _Request:
    """Arguments of commands: model, folder for files, examined variant, options of inputs and limits."""

    model: str
    folder: Path
    mine: str
    feeds: tuple[str, ...]
    limits: tuple[str, ...]

    def lockstep(self, models: Sequence[str], golden: str, name: str) -> ModelComparison:
        """Compare two variants or models that run side by side."""
        options = ("--mine", self.mine, "--golden", golden, *self.feeds, *self.limits)
        code, text = _call("diff", *models, *options)
        return self._judged(code, name, text)

    def with_dump(self, golden: Path) -> ModelComparison:
        """Compare with a dump: the model is dumped by the dump's own configuration."""
        config = self.folder / "mine.json"
        context = _described(golden, config, self.folder / "dump")
        context |= self._target(str(golden))
        code, text = _call("run", self.model, "--config", str(config), *_options(context), *self.feeds)
        if code != _AGREES:
            raise ComparisonError(f"{self.model}: the dump failed:\n{text}")
        made = ("-out", str(self.folder))
        code, text = _call("compare", str(self.folder / "dump"), str(golden), *made, *self.limits)
        return self._judged(code, str(golden), text)

    def with_outputs(self, golden: Mapping[str, Any], name: str) -> ModelComparison:
        """Compare the model's outputs with golden ones."""
        made = self.folder / "outputs.npz"
        target = self._target("outputs")
        code, text = _call("run", self.model, "--save-outputs", str(made), *_options(target), *self.feeds)
        if code != _AGREES:
            raise ComparisonError(f"{self.model}: the run failed:\n{text}")
        outputs = _arrays(made)
        unknown = [each for each in golden if each not in outputs]
        if unknown or not golden:
            raise ComparisonError(
                f"{name}: not outputs of {self.model}: {', '.join(unknown)}; it has {', '.join(outputs)}"
            )
        results = [self._output(each, outputs[each], golden[each]) for each in golden]
        return self._judged(max(code for code, _ in results), name, "".join(text for _, text in results))

    def _target(self, beside: str) -> dict[str, str]:
        """Return the options of the device and the level that are examined; none for "float32"."""
        target = {}
        for word in () if self.mine == "float32" else self.mine.split(":"):
            if word.lower() in _DEVICES:
                target["--device-target"] = _DEVICES[word.lower()]
            elif word.upper() in _LEVELS:
                target["--jit-level"] = word.upper()
            else:
                raise ComparisonError(
                    f"mine={self.mine!r}: beside {beside} it is a device and a level, such as Ascend:O1"
                )
        return target

    def _output(self, name: str, mine: Any, golden: Any) -> tuple[int, str]:
        for side, given in (("mine", mine), ("golden", golden)):
            try:
                array = np.asarray(unmasked(given))
                contents = npy.encode(dtypes.widen(array, dtypes.from_numpy(array.dtype)))
            except (FormatError, InputError) as error:
                raise ComparisonError(
                    f"output {name!r} of {self.model} cannot be compared: {error}"
                ) from error
            write_stream(str(self.folder), f"{side}.npy", contents)
        files = (str(self.folder / f"{side}.npy") for side in ("mine", "golden"))
        code, text = _call("compare", *files, *self.limits)
        return code, f"output {name!r}\n{text}"

    def _judged(self, code: int, golden: str, text: str) -> ModelComparison:
        if code not in {_AGREES, _DIFFERS}:
            raise ComparisonError(f"{self.model} and {golden} cannot be compared:\n{text}")
        return ModelComparison(code == _AGREES, f"{self.model} compared with {golden}", text)


def _options(named: Mapping[str, str]) -> list[str]:
    return [text for option in named.items() for text in option]


def _call(*arguments: str) -> tuple[int, str]:
    """Run a command of msdump; return its exit code and all that it printed."""
    done = subprocess.run(  # noqa: S603 - this program, with arguments and no shell
        (sys.executable, "-m", "msdump", *arguments),
        env=env.unset() | {"PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def _feeds(
    inputs: Mapping[str, Any] | _Path | None, folder: Path, seed: int, sizes: Mapping[str, int] | None
) -> tuple[str, ...]:
    if inputs is None:
        named = (text for name, size in (sizes or {}).items() for text in ("--dim", f"{name}={size}"))
        return ("--seed", str(seed), *named)
    if not isinstance(inputs, Mapping):
        return ("--inputs", str(inputs))
    path = str(folder / "inputs.npz")
    try:
        arrays = {name: np.asarray(unmasked(item, f"input {name!r}: ")) for name, item in inputs.items()}
    except InputError as error:
        raise ComparisonError(str(error)) from error
    write_arrays(path, arrays)
    return ("--inputs", path)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return load_arrays(str(path), "numpy.savez(path, output_name=array) writes one")
    except InputError as error:
        raise ComparisonError(str(error)) from error


def _described(golden: Path, config: Path, dump: Path) -> dict[str, str]:
    """Write the configuration of a dump, with another path; return the options of its device."""
    metadata = next(iter(sorted(golden.rglob(".dump_metadata"))), golden)
    try:
        described = read_json(str(metadata / _KEPT_CONFIG))
        described["common_dump_settings"]["path"] = str(dump.absolute())
    except (DumpReadError, KeyError, TypeError) as error:
        raise ComparisonError(
            f"{golden}: not a dump with its configuration ({_KEPT_CONFIG} in .dump_metadata): {error}"
        ) from error
    write_stream(str(config.parent), config.name, (json.dumps(described).encode(),))
    try:
        return {"--device-target": str(read_json(str(metadata / _KEPT_CONTEXT))["device_target"])}
    except (DumpReadError, KeyError, TypeError):
        return {"--device-target": "Ascend"}  # the metadata of CPU and GPU alone names the device
