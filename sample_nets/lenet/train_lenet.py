"""Train LeNet-5 on handwritten digits: ``python sample_nets/lenet/train_lenet.py --epochs 6``."""

from __future__ import annotations

from sample_nets.data import labelled_digits
from sample_nets.trainer import Task, train

if __name__ == "__main__":
    train(Task("lenet", lambda: labelled_digits(32), epochs=6, batch=32, optimizer="momentum:0.02,0.9"))
