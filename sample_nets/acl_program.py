"""A pyACL program: load a model, run it on batches, dump as an acl.json says.

Written as for a real device; only the imports of msdump differ.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from msdump import acl
from msdump.cli import streams
from sample_nets.build import CACHE, build

HOST_TO_DEVICE: Final = 1
DEVICE_TO_HOST: Final = 2
MALLOC_HUGE_FIRST: Final = 0


@streams.standard()
def run(name: str, batch_of: Callable[[int, int], np.ndarray]) -> None:
    """Run a sample network as the command line says.

    Args:
        name: The network; it has one input and one output.
        batch_of: Returns the input of a step: ``batch_of(step, batch)``.
    """
    options = _options(name)
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    model = build(name, options.cache, batch=1, seed=options.seed)
    check(acl.init(), "acl.init")
    check(acl.rt.set_device(options.device), "acl.rt.set_device")
    if options.config is not None:
        check(acl.mdl.init_dump(), "acl.mdl.init_dump")
        check(acl.mdl.set_dump(str(options.config)), "acl.mdl.set_dump")
    model_id, ret = acl.mdl.load_from_file(str(model))
    check(ret, "acl.mdl.load_from_file")
    for step in range(options.steps):
        values = infer(model_id, batch_of(step, 1))
        first = " ".join(f"{value:.4f}" for value in values.ravel()[:3])
        print(f"step {step}: output {values.dtype} {values.shape}, largest at {values.argmax()}, {first} ...")
    if options.config is not None:
        check(acl.mdl.finalize_dump(), "acl.mdl.finalize_dump")
    check(acl.mdl.unload(model_id), "acl.mdl.unload")
    check(acl.rt.reset_device(options.device), "acl.rt.reset_device")
    check(acl.finalize(), "acl.finalize")


def infer(model_id: int, image: np.ndarray) -> np.ndarray:
    """Run a model on an array; return its one output, of float32."""
    desc = acl.mdl.create_desc()
    check(acl.mdl.get_desc(desc, model_id), "acl.mdl.get_desc")
    source = to_device(image)
    size = acl.mdl.get_output_size_by_index(desc, 0)
    target, ret = acl.rt.malloc(size, MALLOC_HUGE_FIRST)
    check(ret, "acl.rt.malloc")
    inputs, outputs = dataset(source, image.nbytes), dataset(target, size)
    check(acl.mdl.execute(model_id, inputs, outputs), "acl.mdl.execute")
    dims, ret = acl.mdl.get_cur_output_dims(desc, 0)
    check(ret, "acl.mdl.get_cur_output_dims")
    values = np.frombuffer(to_host(target, size), np.float32).reshape(dims["dims"])
    for address in (source, target):
        check(acl.rt.free(address), "acl.rt.free")
    for handle in (inputs, outputs):
        check(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(handle, 0)), "acl.destroy_data_buffer")
        check(acl.mdl.destroy_dataset(handle), "acl.mdl.destroy_dataset")
    check(acl.mdl.destroy_desc(desc), "acl.mdl.destroy_desc")
    return values


def dataset(address: int, size: int) -> int:
    """Return a dataset with one buffer."""
    handle = acl.mdl.create_dataset()
    _, ret = acl.mdl.add_dataset_buffer(handle, acl.create_data_buffer(address, size))
    check(ret, "acl.mdl.add_dataset_buffer")
    return handle


def to_device(array: np.ndarray) -> int:
    """Return the address of a copy on the device."""
    data = array.tobytes()
    address, ret = acl.rt.malloc(len(data), MALLOC_HUGE_FIRST)
    check(ret, "acl.rt.malloc")
    pointer = acl.util.bytes_to_ptr(data)
    check(acl.rt.memcpy(address, len(data), pointer, len(data), HOST_TO_DEVICE), "acl.rt.memcpy")
    return address


def to_host(address: int, size: int) -> bytes:
    """Return a copy of bytes on the device."""
    host, ret = acl.rt.malloc_host(size)
    check(ret, "acl.rt.malloc_host")
    check(acl.rt.memcpy(host, size, address, size, DEVICE_TO_HOST), "acl.rt.memcpy")
    data = acl.util.ptr_to_bytes(host, size)
    check(acl.rt.free_host(host), "acl.rt.free_host")
    assert data is not None
    return data


def check(ret: int, call: str) -> None:
    """End the program where a call failed; the log says why."""
    if ret:
        sys.exit(f"{call} returned {ret}")


def _options(name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Run {name} through pyACL.")
    parser.add_argument("--config", type=Path, help="acl.json with the dump's settings (default: no dump)")
    parser.add_argument("--steps", type=int, default=2, help="executions (default: %(default)s)")
    parser.add_argument("--device", type=int, default=0, help="number of the device (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the built model")
    return parser.parse_args()
