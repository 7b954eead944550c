"""Run the BERT-like encoder on English text: ``python sample_nets/bert/run.py --steps 4``."""

from __future__ import annotations

from sample_nets.data import texts
from sample_nets.runner import run

if __name__ == "__main__":
    run("bert", lambda step, batch: texts(step, batch, 128, 30522))
