"""The emulated device memory: addresses, and bytes by address."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.device import BASE, DeviceMemory
from msdump.device.memory import DeviceMemoryError


def offsets(blocks):
    """Return offsets and sizes by name."""
    return {name: (block.address - BASE, block.size) for name, block in blocks.items()}


def test_addresses_are_aligned_and_reused():
    """Sizes round up to 512 bytes; the smallest fitting hole is used first, the lowest among equals."""
    memory = DeviceMemory()
    for name, nbytes in {"a": 1, "b": 1025, "c": 512, "d": 0}.items():
        memory.allocate(name, nbytes)
    memory.release("b")
    memory.release("a")
    memory.release("c")

    memory.allocate("e", 600)
    memory.allocate("f", 2000)
    memory.allocate("g", 100)

    assert {"d": (2560, 512), "e": (0, 1024), "f": (3072, 2048), "g": (1024, 512)} == offsets(memory.blocks)
    assert (4096, 4096, 6656, 5120) == (memory.in_use, memory.peak, memory.total, memory.extent)


def test_a_hole_at_the_end_grows():
    """Free space at the end is part of a larger tensor's block."""
    memory = DeviceMemory(limit=2048)
    memory.allocate("a", 512)
    memory.allocate("b", 512)
    memory.release("b")

    block = memory.allocate("c", 1536)

    assert 512 == block.address - BASE
    assert 2048 == memory.extent


def test_a_limit_that_is_too_small_names_the_tensor():
    """The refusal names the tensor, its size, the bytes in use, the limit, the largest piece, the remedy."""
    memory = DeviceMemory(limit=4096)
    memory.allocate("conv1.weight", 1000)
    memory.allocate("x", 1024)
    memory.allocate("h", 512)
    memory.release("x")

    with pytest.raises(DeviceMemoryError) as refusal:
        memory.allocate("conv1 output", 2000)

    assert (
        "tensor 'conv1 output' of 2000 bytes does not fit the device: 1536 of 4096 bytes are in use by 2"
        " tensors, the largest free block has 1536 bytes; raise max_device_memory"
    ) == str(refusal.value)
    assert ["conv1.weight", "h"] == list(memory.blocks)
    assert 1536 == memory.in_use


def test_a_name_has_memory_once():
    """Two tensors of one name are a mistake of the caller."""
    memory = DeviceMemory()
    memory.allocate("a", 1)

    with pytest.raises(ValueError, match=r"'a' already has device memory; release it first"):
        memory.allocate("a", 1)


ACTIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5000)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(ACTIONS)
def test_live_tensors_never_overlap(actions):
    """Whatever comes and goes, live pieces are disjoint and aligned, and all counts are true."""
    memory, wanted, most, total = DeviceMemory(), {}, 0, 0
    for number, nbytes in actions:
        if str(number) in wanted:
            memory.release(str(number))
            del wanted[str(number)]
        else:
            wanted[str(number)] = nbytes
            total += memory.allocate(str(number), nbytes).size
        most = max(most, sum(wanted.values()))
        pieces = sorted((block.address, block.end) for block in memory.blocks.values())

        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(pieces))
        assert all(start % 512 == 0 and start >= BASE for start, _ in pieces)
        assert all(memory.blocks[name].size >= size for name, size in wanted.items())
        assert sum(end - start for start, end in pieces) == memory.in_use
        assert most <= memory.peak <= memory.extent
    assert total == memory.total


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_freeing_everything_gives_one_piece(sizes, order):
    """After all tensors are released in any order, one tensor can take the whole memory."""
    names = [str(number) for number in range(len(sizes))]
    whole = sum(-(-size // 512) * 512 for size in sizes)
    memory = DeviceMemory(limit=whole)
    for name, size in zip(names, sizes, strict=True):
        memory.allocate(name, size)
    order.shuffle(names)
    for name in names:
        memory.release(name)

    block = memory.allocate("all", whole)

    assert (BASE, whole) == (block.address, block.size)
    assert whole == memory.extent
