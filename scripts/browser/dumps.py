"""Pages and dumps for the browser: a faulty training beside a sound one, a large network, the site."""

import os
import subprocess
import sys

from tests.world import ROOT

HEAD = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value"
)


def trained(folder):
    """Run the demonstration of the report in a folder and return its last output."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("MS_", "MINDSPORE_"))
    }
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/report.sh"), str(folder)],
        env=environment | {"DEVICE_TARGET": "Ascend", "STEPS": "4"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def site(folder):
    """Build the documentation in a folder, and return the folder."""
    build = (sys.executable, "-m", "sphinx", "-q", "-d", f"{folder}.cache", str(ROOT / "docs"), str(folder))
    subprocess.run(build, check=True)
    return folder


def large(root, *, operators=3000, iterations=4):
    """Write the statistics of a network with many operators, in which an infinity begins."""
    order = root / "rank_0/execution_order/ms_execution_order_graph_0.csv"
    order.parent.mkdir(parents=True)
    names = [f"Default/layer{place // 50}-Block/Conv2D-op{place}" for place in range(operators)]
    order.write_text("\n".join(("NodeExecutionOrder-FullNameWithScope", *names, "")), encoding="utf-8")
    for iteration in range(iterations):
        path = root / f"rank_0/Net/0/{iteration}/statistic.csv"
        path.parent.mkdir(parents=True)
        lines = [HEAD]
        for place, name in enumerate(names):
            is_struck = iteration == iterations - 1 and place == operators // 2
            high = "inf" if is_struck else f"{(place * 7919) % operators}.{iteration}"
            time = 1_795_217_009_000_000 + iteration * operators + place
            form = '24,float32,"(2,3)"'
            lines.append(f"Conv2D,{name.replace('/', '_')},0,0,{time},output,0,{form},{high},-1,{place + 1}")
        path.write_text("\n".join((*lines, "")), encoding="utf-8")
    return root


def called_by_acl(folder):
    """Run LeNet by a pyACL program that dumps every operator of the compiled model; return the dump."""
    (folder / "output").mkdir(parents=True)
    program = [sys.executable, str(ROOT / "sample_nets/lenet/run_acl.py"), "--cache", str(folder / "cache")]
    subprocess.run(
        [*program, "--config", str(ROOT / "sample_nets/lenet/acl.json")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return folder / "output"
