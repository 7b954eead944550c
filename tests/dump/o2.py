"""MindSpore's door under Ascend O2, and its files, read without the code under test."""

import json
import re
import stat

from tests.world import O2, compiled_config

PLACE = re.compile(
    r"(?:(?P<step>\d+)/)?(?P<time>\d{14})/(?P<device>\d+)/(?P<model>[\w-]+)/(?P<id>\d+)/(?P<run>\d+)"
)
NAME = re.compile(r"(?P<type>[\w-]+)\.(?P<name>[\w-]+)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d{16})")


def dump(door, model, feeds, *, steps=1, fuses=False, **changes):
    """Configure, load and run a network under O2; return it."""
    network = load(door, model, fuses=fuses, **changes)
    for _ in range(steps):
        network.run(feeds)
    return network


def aside(door, name, model, feeds, **changes):
    """Dump a fused network into a directory of its own and start anew; return the directory."""
    path = door.folder / name
    dump(door, model, feeds, fuses=True, path=str(path), **changes)
    door.again()
    return path


def load(door, model, *, fuses=False, **changes):
    """Configure and load a network under O2."""
    door.configure(compiled_config(door.path, fuses=fuses, **changes))
    return door.load(model, **O2)


def places(root):
    """Return step, device, model, number and run of the directories of executions, in order."""
    executions = set()
    for path in root.rglob("*"):
        match = PLACE.fullmatch(str(path.relative_to(root)))
        if match is not None and path.is_dir():
            step = None if match["step"] is None else int(match["step"])
            executions.add((step, int(match["device"]), match["model"], int(match["id"]), int(match["run"])))
    return sorted(executions, key=str)


def folder(root):
    """Return the one directory of an execution."""
    (execution,) = [path for path in root.rglob("*") if PLACE.fullmatch(str(path.relative_to(root)))]
    return execution


def files(folder):
    """Return the names of an execution's files by time."""
    return sorted((path.name for path in folder.iterdir()), key=_time)


def _time(name):
    match = NAME.match(name)
    return (match["time"] if match else "", name)


def operators(folder):
    """Return type and name of the operators with files, in the order of their times, each once."""
    matches = (NAME.match(name) for name in files(folder))
    return list(dict.fromkeys((match["type"], match["name"]) for match in matches if match))


def told(root, device=0):
    """Return the acl.json of the last step."""
    return json.loads((root / f"acl_dump_{device}.json").read_text())


def modes(root):
    """Return the permissions of directories and of files."""
    directories = {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_dir()}
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()}
    return directories, names
