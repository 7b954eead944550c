"""Facts of the machine."""

from pathlib import Path

import pytest

from tests.bench import machine

MOUNTS = """/dev/vda / ext4 rw,relatime 0 0
tmpfs /ram/disk tmpfs rw 0 0
/dev/vdb /mnt/a\\040disk xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/ram/disk/x", "tmpfs"),
        ("/ram/disk", "tmpfs"),
        ("/ram", "ext4"),
        ("/home/x", "ext4"),
        ("/mnt/a disk/x", "xfs"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount(folder, kind):
    """A folder lies in the mount that is nearest above it; blanks in its name are escaped there."""
    assert kind == machine.file_system(Path(folder), MOUNTS)


def test_facts_are_those_of_this_machine(tmp_path):
    """Whoever reads a table learns what it was measured on and with."""
    facts = machine.facts(tmp_path)

    assert {
        "cpu",
        "cores",
        "memory_gib",
        "kernel",
        "file_system",
        "python",
        "packages",
        "commit",
        "load",
    } == set(facts)
    assert {"numpy", "onnx", "onnxruntime"} <= set(facts["packages"])
    assert facts["cores"] >= 1
