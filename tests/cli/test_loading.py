"""What commands load: libraries and rooms that a call does not need take time from every call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MINI = str(Path(__file__).resolve().parents[2] / "graphs/mini.onnx")

MODELS = ("google.protobuf", "onnx", "onnxruntime")
RUNNING = ("msdump.execute.program", "msdump.session")
STATISTICS = ("msdump.capture.statistics.rows",)
MEASURING = ("msdump.statistics.insession", "msdump.statistics.passes")
WATCHING = ("msdump.capture.flight.watched", "msdump.config.watch", "msdump.watch.rules")
COMPILED = ("msdump.capture.compiled.dump", "msdump.encode.dump_data")
FILES_ALONE = (*MODELS, *RUNNING, "pydantic", "rich", "jinja2", "duckdb")


def loaded_by(*arguments):
    """Return the names of the modules that a call of the program loads in a fresh interpreter."""
    code = (
        "import sys\nfrom msdump.cli import main\n"
        f"try: main({list(map(str, arguments))!r})\n"
        "finally: print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()[-1].split()
    assert words[0] == "loaded"
    return set(words[1:])


@pytest.mark.parametrize(
    ("name", "spared"),
    [
        ("convert", FILES_ALONE),
        ("compare", FILES_ALONE),
        ("overflow", FILES_ALONE),
        ("show", FILES_ALONE),
        ("query", FILES_ALONE),
        ("trend", FILES_ALONE),
        ("baseline", FILES_ALONE),
        ("pack", FILES_ALONE),
        ("watch", (*MODELS, *RUNNING, "rich", "jinja2")),
        ("report", ("onnxruntime", *RUNNING, "pydantic", "rich", "jinja2", "duckdb")),
        ("compile", (*RUNNING, *WATCHING, *STATISTICS, *MEASURING, "pydantic", "rich")),
        ("run", ("rich", "jinja2", "duckdb", *WATCHING, *STATISTICS)),
    ],
)
def test_command_loads_no_library_that_it_does_not_use(name, spared):
    """A command spares what others need, whatever it is called with."""
    loaded = loaded_by(name, "--help")

    assert f"msdump.cli.{name}" in loaded
    assert set() == loaded & {*spared}


@pytest.mark.parametrize(
    ("common", "own", "needed", "spared"),
    [
        ({}, {}, set(), (*RUNNING, *WATCHING, *STATISTICS, *MEASURING, *COMPILED, "rich")),
        ({"saved_data": "statistic"}, {}, {*STATISTICS}, (*RUNNING, *WATCHING, *COMPILED)),
        ({}, {"watch": [{"condition": "tensor_overflow"}]}, {*WATCHING}, (*RUNNING, *COMPILED)),
    ],
)
def test_check_loads_what_its_configuration_asks_for(tmp_path, common, own, needed, spared):
    """A forecast loads the rooms of statistics and of watch rules for configurations that have some."""
    settings = {
        "common_dump_settings": {
            "dump_mode": 0,
            "path": f"{tmp_path}/dump",
            "net_name": "Net",
            "iteration": "0",
            "input_output": 0,
            "kernels": [],
            "support_device": [0],
            **common,
        },
        "e2e_dump_settings": {"enable": True},
        "msdump": own,
    }
    config = tmp_path / "data_dump.json"
    config.write_text(json.dumps(settings), encoding="utf-8")

    loaded = loaded_by("check", config, "--model", MINI, "--device-target", "Ascend")

    assert needed == loaded & needed
    assert set() == loaded & {*spared}
