"""Run AlexNet on photographs: ``python sample_nets/alexnet/run.py --steps 4``."""

from __future__ import annotations

from sample_nets.data import photos
from sample_nets.runner import run

if __name__ == "__main__":
    run("alexnet", lambda step, batch: photos(step, batch, 227))
