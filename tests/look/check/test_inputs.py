"""Inputs from files that are damaged."""

import numpy as np
import pytest

from msdump.errors import InputError
from msdump.graph import loader
from msdump.judge import inputs
from tests.dump import nets

FLAGS, METHOD = 8, 10  # of an entry of the archive's directory, from its signature


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (FLAGS, 0x01, "encrypted"),
        (FLAGS, 0x20, "compressed patched data"),
        (FLAGS, 0x40, "strong encryption"),
        (METHOD, 99, "compression method"),
    ],
)
def test_an_archive_that_asks_for_more_is_refused(tmp_path, at, value, reason):
    """An .npz file with flags that numpy does not support is an error that names the file."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((2, 4), np.float32))
    data = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x01\x02", 0), (b"PK\x03\x04", -2)):
        data[data.index(signature) + at + shift] |= value
    path.write_bytes(data)

    with pytest.raises(InputError, match=rf"x\.npz: not an .npz file of plain arrays \(.*{reason}"):
        inputs.from_file(loader.load(nets.mini()), str(path))


def test_a_wrong_shape_is_told_before_its_elements_are_read(tmp_path):
    """The header of an array is compared with the input: elements that cannot be read do not matter yet."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((3, 50_000), np.float32))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") - 40] ^= 1  # an element, so that the archive's checksum does not fit
    path.write_bytes(data)

    with pytest.raises(InputError, match=r"input 'x': shape \(3, 50000\) given, .* expected"):
        inputs.from_file(loader.load(nets.mini()), str(path))
