"""Run LeNet through pyACL: ``python sample_nets/lenet/run_acl.py --config sample_nets/lenet/acl.json``."""

from __future__ import annotations

from sample_nets.acl_program import run
from sample_nets.data import digits

if __name__ == "__main__":
    run("lenet", lambda step, batch: digits(step, batch, 32))
