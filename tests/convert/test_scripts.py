"""Conversions of the user's own, and PyTorch's files."""

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from msdump.convert import OutputKind, Target
from msdump.errors import ToolError
from tests.judge import dumped
from tests.judge.dumped import IMAGE, NAME, convert


class TestScripts:
    """Conversions of the user's own."""

    @staticmethod
    def write(directory, text, name="convert_ND_to_NCHW.py"):
        """Write a script and return its directory."""
        folder = directory / "scripts" / "format_convert"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return str(directory / "scripts")

    def test_a_script_converts(self, tmp_path):
        """A script gets shapes and the flat array, and beats the built-in conversion."""
        scripts = self.write(
            tmp_path,
            "def convert(shape_from, shape_to, array):\n"
            "    assert shape_to == [2, 3], shape_to\n"
            "    assert array.ndim == 1\n"
            "    return -array.reshape(shape_from).T\n",
        )
        path = dumped.file(tmp_path / NAME, dumped.tensor(dumped.counted((3, 2)), original=(2, 3)))

        convert([path], tmp_path / "out", Target("NCHW", scripts=scripts))

        loaded = np.load(tmp_path / "out" / f"{NAME}.output.0.2x3.npy")
        assert (-dumped.counted((3, 2)).T).tolist() == loaded.tolist()

    def test_groups_are_passed(self, tmp_path):
        """A grouped weight's script gets the number of groups, and its result is cut to the shape."""
        scripts = self.write(
            tmp_path,
            "import numpy as np\n"
            "def convert(shape_from, shape_to, array, group=1):\n"
            "    return np.full((9, 9, 9, 9), group)\n",
            "convert_FRACTAL_Z_to_NCHW.py",
        )
        weight = dumped.tensor(np.zeros((1, 1, 16, 16)), "FRACTAL_Z", (4, 2, 1, 1), groups=2)
        path = dumped.file(tmp_path / NAME, weight)

        convert([path], tmp_path / "out", Target("NCHW", scripts=scripts))

        assert (np.load(tmp_path / "out" / f"{NAME}.output.0.4x2x1x1.npy") == 2).all()

    SCRIPTS: ClassVar = {
        "raises": ("def convert(a, b, c):\n    raise KeyError(1)\n", 26, "the script failed: KeyError: 1"),
        "returns a list": ("def convert(a, b, c):\n    return [1]\n", 26, "the script returned a list"),
        "has no function": ("x = 1\n", 26, "has no function convert"),
        "is no Python": ("def", 26, "SyntaxError"),
    }

    @pytest.mark.parametrize(("text", "code", "message"), SCRIPTS.values(), ids=SCRIPTS)
    def test_faulty_scripts(self, tmp_path, text, code, message):
        """A script that fails is a failure of the tensor, with the script's own error."""
        scripts = self.write(tmp_path, text)
        path = dumped.file(tmp_path / NAME, dumped.tensor(np.zeros((2, 3))))

        done = convert([path], tmp_path / "out", Target("NCHW", scripts=scripts))

        assert code == done.code
        assert message in done.failed[0].failures[0].message

    def test_unsafe_scripts_are_refused(self, tmp_path, image):
        """A script that others may change, or a huge one, runs not."""
        scripts = self.write(tmp_path, "raise SystemExit")
        path = Path(scripts, "format_convert", "convert_ND_to_NCHW.py")
        path.chmod(0o620)

        with pytest.raises(
            ToolError, match=r"other users may change the script; run chmod go-w on it"
        ) as unsafe:
            convert([image], tmp_path / "out", Target("NCHW", scripts=scripts))
        path.chmod(0o600)
        path.write_bytes(bytes((1 << 20) + 1))
        with pytest.raises(ToolError, match=r"1048577 bytes are over the 1048576 allowed") as huge:
            convert([image], tmp_path / "out", Target("NCHW", scripts=scripts))

        assert 46 == unsafe.value.code == huge.value.code


class TestTorch:
    """PyTorch's files."""

    def test_tensors_are_saved_by_torch(self, tmp_path, image, monkeypatch):
        """torch.save gets the array as a tensor."""
        torch = types.ModuleType("torch")
        torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
        torch.from_numpy = lambda array: array
        torch.save = lambda array, file: file.write(b"pt" + array.tobytes())
        monkeypatch.setitem(sys.modules, "torch", torch)

        convert([image], tmp_path / "out", Target("NCHW", OutputKind.PT))

        assert b"pt" + IMAGE.tobytes() == (tmp_path / "out" / f"{NAME}.input.0.2x20x5x4.pt").read_bytes()

    def test_torch_is_missing(self, tmp_path, image, monkeypatch):
        """Without PyTorch the error names the package to install."""
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

        with pytest.raises(ToolError, match=r"needs PyTorch, which is not installed; install torch or"):
            convert([image], tmp_path / "out", Target(kind=OutputKind.PT))
