"""Several networks that several threads call at once: each call is one iteration, whole."""

from __future__ import annotations

import random
import threading

import numpy as np

import msdump
from msdump.frontends import mindspore
from tests.dump import nets
from tests.soak import networks, wholeness
from tests.soak.children import Child

THREADS, CALLS, WIDTH = 3, 3, 500


def run(seed, folder):
    """Call networks from threads, in a process of its own; look at the results and at every directory."""
    moments = random.Random(seed)
    setup = moments.choice([setup for setup in networks.SETUPS if not setup.compiled])
    count = moments.choice((1, 2))
    told, code = Child(_call, setup, folder, count, seed).end()
    found = wholeness.violations(folder / "dump")
    if code != 0 or told:
        found.append(f"{setup.name}: threads ended with {code}: {told[-2000:].decode(errors='replace')}")
    for graph in sorted(folder.glob("dump/rank_0/Net/*")):
        sizes = {path.name: len(list(path.iterdir())) for path in graph.iterdir() if path.name.isdigit()}
        if len(sizes) != THREADS * CALLS or len(set(sizes.values())) != 1:
            found.append(f"{setup.name}: {graph}: {THREADS * CALLS} calls left {sizes}")
        found += _mixed(graph)
    return found


def _mixed(graph):
    """Return the directories that hold tensors of several calls: each call has a number of its own."""
    found = []
    for place in graph.iterdir():
        values = [np.load(path) for path in place.glob("Add.*.output.*.npy")]
        if len({value.flat[0] - step for step, value in enumerate(sorted(values, key=np.max))}) > 1:
            found.append(f"{place}: tensors of several calls")
    return found


def model():
    """Return a network that adds one, three times."""
    x = nets.value("x", [WIDTH])
    nodes = [nets.node("Add", f"{f'v{n}' if n else 'x'} one", f"v{n + 1}", f"add{n}") for n in range(3)]
    made = nets.model(nodes, [x], [nets.value("v3", [WIDTH])], {"one": np.ones(1, np.float32)})
    return made.SerializeToString()


def _call(report, setup, folder, count, seed):
    setup.configure(folder)
    loaded = [msdump.load(model()) for _ in range(count)]
    start = threading.Barrier(THREADS, timeout=60)

    def work(thread):
        start.wait()
        for turn in range(CALLS):
            for at, network in enumerate(loaded):
                number = 1 + 10 * (at + count * (turn + CALLS * thread))
                found = network(np.full(WIDTH, number, np.float32))
                if not np.all(found == number + 3):
                    report(b"seed %d: thread %d got %r\n" % (seed, thread, found.flat[0]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mindspore._state.process.close()
