"""The network of mindspore_cnn.mindir: MindSpore 2.10 writes the file by ``python mindspore_cnn.py``."""  # noqa: INP001 - a sample, not a package

import mindspore
import numpy as np
from mindspore import nn


class Residual(nn.Cell):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, pad_mode="pad", padding=1, has_bias=True)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        """Return features of the same shape."""
        return self.relu(self.conv2(self.relu(self.bn1(self.conv1(x)))) + x)


class Cnn(nn.Cell):
    """Ten probabilities for an image of 8 x 8 pixels."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="same", has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.blocks = nn.SequentialCell(Residual(8), Residual(8))
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(8 * 4 * 4, 10)
        self.softmax = nn.Softmax(-1)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        """Return the probabilities."""
        return self.softmax(self.fc(self.flatten(self.blocks(self.pool(self.stem(x))))))


if __name__ == "__main__":
    network = Cnn().set_train(mode=False)
    image = mindspore.Tensor(np.zeros((2, 3, 8, 8), np.float32))
    mindspore.export(network, image, file_name="mindspore_cnn", file_format="MINDIR")
