"""Train AlexNet to tell two photographs apart: ``python sample_nets/alexnet/train_alexnet.py --steps 10``."""

from __future__ import annotations

from sample_nets.data import labelled_photos
from sample_nets.trainer import Task, train

if __name__ == "__main__":
    task = Task(
        "alexnet",
        lambda: (labelled_photos(16, 227), labelled_photos(8, 227)),
        epochs=2,
        batch=4,
        optimizer="momentum:0.003,0.9",
    )
    train(task)
