"""Run the network with a faulty kernel through pyACL.

``python sample_nets/stomp/run_acl.py --config sample_nets/stomp/acl_watcher.json``
"""

from __future__ import annotations

from sample_nets.acl_program import run
from sample_nets.data import digits

if __name__ == "__main__":
    run("stomp", lambda step, batch: digits(step, batch, 16))
