"""Several networks that several threads call at once: each call is one iteration, whole."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import msdump
from msdump.frontends import mindspore
from scripts.soak import networks, wholeness
from scripts.soak.children import Child
from tests.texts import parsed

THREADS, CALLS, WIDTH = 3, 3, 500


def run(seed, folder):
    """Call networks from threads, in a process of its own; look at the results and at every directory."""
    moments = random.Random(seed)
    return calls(moments.choice(networks.SETUPS), moments.choice((1, 2)), folder, seed)


def calls(setup, count, folder, seed=0):
    """Call so many networks of a setup from threads; return the violations."""
    told, code = Child(_call, setup, folder, count, seed).end()
    found = wholeness.violations(folder / "dump")
    if code != 0 or told:
        found.append(f"{setup.name}: threads ended with {code}: {told[-2000:].decode(errors='replace')}")
    graphs = "[0-9]*/[0-9]*/0/graph/*/*" if setup.compiled else "rank_0/Net/*/*"
    places = {path for path in folder.glob(f"dump/{graphs}") if path.name.isdigit()}
    sizes = {len(list(path.iterdir())) for path in places}
    if len(places) != THREADS * CALLS * count or len(sizes) != 1:
        found.append(f"{setup.name}: {THREADS * CALLS * count} calls left {len(places)}, of {sizes} files")
    return found + [f"{place}: tensors of several calls" for place in places if _is_mixed(place)]


def _is_mixed(place):
    """Return whether a directory holds tensors of several calls: each call has a number of its own."""
    values = [np.load(path) for path in place.glob("Add.*.output.*.npy")]
    return len({value.flat[0] - step for step, value in enumerate(sorted(values, key=np.max))}) > 1


def model():
    """Return a network that adds one, three times."""
    body = " ".join(f"[add{n}] v{n + 1} = Add(v{n}, one)" for n in range(3))
    text = f"graph (float[{WIDTH}] v0) => (float[{WIDTH}] v3) <float[1] one = {{1}}> {{ {body} }}"
    return parsed(text).SerializeToString()


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

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    mindspore._state.process.close()
