"""Run the smallest network on handwritten digits: ``python sample_nets/mini/run.py --steps 4``."""

from __future__ import annotations

from sample_nets.data import digits
from sample_nets.runner import run

if __name__ == "__main__":
    run("mini", lambda step, batch: digits(step, batch, 6))
