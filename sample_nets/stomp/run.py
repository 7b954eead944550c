"""Run the network with a faulty kernel on digits: ``python sample_nets/stomp/run.py --steps 4``."""

from __future__ import annotations

from sample_nets.data import digits
from sample_nets.runner import run

if __name__ == "__main__":
    run("stomp", lambda step, batch: digits(step, batch, 16))
