"""Two models beside each other on each road: by dumps, by dumps and golden's model, in lockstep."""

from __future__ import annotations

import json

import numpy as np
import onnx
from click.testing import CliRunner

import msdump
from msdump.cli import main

ROADS = ("files", "model", "diff")


def dumped(folder, model, *feeds):
    """Dump one run of a model, with all inputs and outputs of its operators."""
    common = {"dump_mode": 0, "path": str(folder), "net_name": "Net", "iteration": "all", "input_output": 0}
    common |= {"kernels": [], "support_device": [0], "op_debug_mode": 0}
    config = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
    folder.with_suffix(".json").write_text(json.dumps(config), encoding="utf-8")
    msdump.load(model, config=str(folder.with_suffix(".json")), context={"device_target": "CPU"})(*feeds)


def judged(folder, mine, golden, road, *options, **feeds):
    """Return exit code, names of the accused nodes, and the document of two models on a road with options."""
    for name, model in (("mine", mine), ("golden", golden)):
        onnx.save(model, folder / f"{name}.onnx")
        if road != "diff":
            dumped(folder / name, folder / f"{name}.onnx", *feeds.values())
    np.savez(folder / "in.npz", **feeds)
    files = ["compare", folder / "mine", folder / "golden", "-out", folder / "out"]
    arguments = {
        "files": files,
        "model": [*files, "--model", folder / "golden.onnx"],
        "diff": ["diff", folder / "mine.onnx", folder / "golden.onnx", "--inputs", folder / "in.npz"],
    }[road]
    done = CliRunner().invoke(main, [*map(str, arguments), *options, "--json"])
    told = json.loads(done.stdout)
    assert "operators" in told, told
    accused = [each for each in told["operators"] if each["operator"] in told["accused"]]
    return done.exit_code, [each["onnx_name"] or each["operator"] for each in accused], told
