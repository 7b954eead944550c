"""Dumping processes that are killed, terminated, interrupted, or that find the disk full."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import subprocess
import time

import msdump
from msdump.errors import DumpWriteError
from msdump.frontends import mindspore
from scripts.soak import networks, wholeness
from scripts.soak.children import Child

LONGEST = 0.25  # seconds after which a process is killed at the latest
SECRET = b"a file of somebody else's\n"
STEP = b"."


def dump(report, setup, folder, model, steps, policy="raise", largest=resource.RLIM_INFINITY):
    """Dump some steps, with a report after each, of failed writes, and of lost files."""
    network = None
    setup.configure(folder, on_write_error=policy)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    data, feeds = model
    try:
        network = msdump.load(data)
        report(b"!")
        for _ in range(steps):
            network.run(feeds)
            report(STEP)
    except DumpWriteError:
        report(b"w")
    finally:
        mindspore._state.process.close()
        if network is not None:
            report(b"lost %d" % sum(network.summary.lost.values()))


def kill(seed, folder):
    """Kill a dumping process at a random moment; then let another one dump into the same place."""
    moments = random.Random(seed)
    setup = moments.choice(networks.SETUPS)
    model = moments.choice((networks.network, networks.wide))()
    foreign = plant(folder)
    for _ in range(moments.choice((1, 1, 2))):
        child = Child(dump, setup, folder, model, 1 << 30)
        if moments.random() < 0.7:  # else also while it starts
            child.wait_for_bytes()
        time.sleep(moments.uniform(0, LONGEST))
        child.send(signal.SIGKILL)
        _, code = child.end()
        if code != -signal.SIGKILL:
            return [f"{setup.name}: the process ended by itself: {code}"]
    found = wholeness.violations(folder / "dump", may_leave_names=True)
    told, code = Child(dump, setup, folder, model, 1).end()
    if code != 0 or STEP not in told:
        found.append(f"{setup.name}: the next run ended with {code}: {told[-2000:].decode(errors='replace')}")
    found += left(folder / "dump")
    return found + changed(foreign)


def left(root):
    """Return the temporary names in the directories that every run writes to."""
    places = [root, *root.glob("rank_*/graphs"), *root.glob("rank_*/execution_order")]
    return [f"{path}: left by a killed run" for place in places for path in place.glob(".*.tmp")]


def plant(folder):
    """Put foreign files where dumps go; return their paths."""
    root = folder / "dump"
    for place in (root, root / "rank_0", root / "rank_0" / "Net" / "0" / "0"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "notes.txt").write_bytes(SECRET)
        (place / ".hidden.tmp.txt").write_bytes(SECRET)
    return list(root.rglob("*.txt"))


def changed(foreign):
    """Return the planted files that are not as they were."""
    return [f"{path}: changed" for path in foreign if not path.is_file() or path.read_bytes() != SECRET]


def told_to_end(seed, folder):
    """Send SIGTERM or SIGINT to a dumping process: the steps that it finished are on disk as a whole."""
    moments = random.Random(seed)
    setup = moments.choice(networks.SETUPS)
    number = moments.choice((signal.SIGTERM, signal.SIGINT))
    model = moments.choice((networks.network, networks.wide))()
    child = Child(dump, setup, folder, model, 1 << 30)
    told = child.wait_for_bytes()
    time.sleep(moments.uniform(0, LONGEST))
    child.send(number)
    rest, code = child.end()
    told += rest
    found = wholeness.violations(folder / "dump", may_leave_names=number == signal.SIGTERM)
    if code not in {130, -signal.SIGTERM}:
        found.append(
            f"{setup.name}: {number.name} ended it with {code}: {told[-2000:].decode(errors='replace')}"
        )
    return found + _missing(setup, folder / "dump", told.count(STEP))


def _missing(setup, root, steps):
    """Return the finished steps with other files in their directories than the first one."""
    if setup.compiled:
        places = {int(path.name): path for path in root.glob("*/[0-9]*/0/*/*/*") if path.is_dir()}
        places |= {int(path.name): path for path in root.glob("[0-9]*/0/*/*/*") if path.is_dir()}
    else:
        places = {int(path.name): path for path in root.glob("rank_0/Net/0/*") if path.is_dir()}
    counts = {number: len(list(path.iterdir())) for number, path in places.items() if number < steps}
    if len(counts) != steps:
        return [f"{setup.name}: {steps} steps were finished, {len(counts)} directories are there in {root}"]
    if len(set(counts.values())) > 1:
        return [f"{setup.name}: finished steps of different numbers of files: {counts} in {root}"]
    return []


def fill_up(seed, folder):
    """Let files fail, by a limit of their size or on a full disk: files are whole, losses count."""
    moments = random.Random(seed)
    setup = moments.choice(networks.SETUPS)
    model = moments.choice((networks.network, networks.wide))()
    policy = moments.choice(("raise", "warn"))
    most = int(2 ** moments.uniform(4, 18))
    with small_disk(folder / "dump", most + 4096 if moments.random() < 0.5 else 0) as is_small:
        largest = resource.RLIM_INFINITY if is_small else most
        told, code = Child(dump, setup, folder, model, 2, policy, largest).end()
        found = wholeness.violations(folder / "dump")
    what = f"{setup.name}, {most} bytes, {policy}"
    text = told[-2000:].decode(errors="replace")
    if code != 0:
        found.append(f"{what}: ended with {code}: {text}")
    has_lost = told.rpartition(b"lost ")[2] not in {b"0", told}
    if policy == "raise" and has_lost and b"w" not in told:
        found.append(f"{what}: files were lost, and nothing was raised: {text}")
    if policy == "warn" and told.count(STEP) != 2 and b"!" in told:
        found.append(f"{what}: the run stopped: {text}")
    return found


@contextlib.contextmanager
def small_disk(place, size):
    """Mount a file system of some bytes where the user may; yield whether it is there. No bytes: none."""
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    is_mounted = bool(size) and subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)
