"""Memory behind pyACL's pointers: nothing that a script does with them ends the interpreter."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

from msdump import acl

HH, HD, DH, DD = range(4)


def device(size=16):
    """Return an address of the device."""
    address, ret = acl.rt.malloc(size, 0)
    assert 0 == ret
    return address


def host(size=16):
    """Return an address of the host."""
    address, ret = acl.rt.malloc_host(size)
    assert 0 == ret
    return address


def test_bytes_go_round(script):
    """Bytes that go to the device, across it and back are the same."""
    data = bytes(range(16))
    first, second, back = device(), device(), host()

    assert [0] * 3 == [
        acl.rt.memcpy(first, 16, acl.util.bytes_to_ptr(data), 16, HD),
        acl.rt.memcpy(second, 16, first, 16, DD),
        acl.rt.memcpy(back, 16, second, 16, DH),
    ]
    assert data == acl.util.ptr_to_bytes(back, 16)


def test_part_of_a_block(script):
    """Pointers into a block reach the bytes behind them."""
    data = b"0123456789abcdef"
    block, back = device(), host(4)

    acl.rt.memcpy(block, 16, acl.util.bytes_to_ptr(data), 16, HD)

    assert 0 == acl.rt.memcpy(back, 4, block + 10, 4, DH)
    assert b"abcd" == acl.util.ptr_to_bytes(back, 4)
    assert 100000 == acl.rt.memcpy(back, 4, block + 13, 4, DH)


def test_arrays_are_read_and_written_in_place(script):
    """A pointer of an array is the array's memory, both ways."""
    source, target = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    block = device()

    acl.rt.memcpy(block, 16, acl.util.numpy_to_ptr(source), 16, HD)
    acl.rt.memcpy(acl.util.numpy_to_ptr(target), 16, block, 16, DH)

    assert np.array_equal(source, target)


def test_array_of_pointer_is_the_memory(script):
    """ptr_to_numpy gives the memory itself, which stays as long as the array."""
    address = host()

    array = acl.util.ptr_to_numpy(address, (2, 2), 11)
    array[:] = 7

    assert np.float32(7).tobytes() * 4 == acl.util.ptr_to_bytes(address, 16)
    acl.rt.free_host(address)
    assert 7 == array[1, 1]


def test_raw_addresses_of_the_process_work(script):
    """An address that no function of acl gave is memory where the process has it mapped."""
    array = np.arange(4, dtype=np.float32)
    buffer = ctypes.create_string_buffer(16)
    block = device()

    assert 0 == acl.rt.memcpy(block, 16, array.ctypes.data, 16, HD)
    assert 0 == acl.rt.memcpy(ctypes.addressof(buffer), 16, block, 16, DH)
    assert array.tobytes() == buffer.raw


WRONG = {
    "null": (0, 16),
    "low address": (8, 16),
    "unmapped": (1 << 46, 16),
    "beyond all memory": (1 << 80, 16),
    "negative": (-8, 16),
    "no number": ("x", 16),
    "nothing": (None, 16),
    "float": (1.5, 16),
}


@pytest.mark.parametrize(("address", "size"), WRONG.values(), ids=WRONG)
def test_unknown_pointers_are_refused(script, address, size):
    """A pointer to nothing is 100000 as source and as target, never a crash."""
    block, memory = device(), host()

    assert [100000] * 4 == [
        acl.rt.memcpy(block, 16, address, size, HD),
        acl.rt.memcpy(address, 16, memory, size, HD),
        acl.rt.memcpy(address, 16, block, size, DH),
        acl.rt.memcpy(address, 16, memory, size, HH),
    ]
    assert acl.util.ptr_to_bytes(address, size) is None
    assert acl.util.ptr_to_numpy(address, (4,), 11) is None


def test_sizes_are_checked(script):
    """More bytes than there are, or than fit, are 100000."""
    block, memory = device(), host()

    assert [100000] * 4 == [
        acl.rt.memcpy(block, 32, memory, 32, HD),
        acl.rt.memcpy(block, 8, memory, 16, HD),
        acl.rt.memcpy(memory, 17, block, 17, DH),
        acl.rt.memcpy(block, 16, memory, -1, HD),
    ]


@pytest.mark.parametrize("kind", [HH, HD, DH, DD, 4, -1, "1"])
def test_kinds_are_checked(script, kind):
    """Each kind takes pointers of its sides only."""
    block, memory = device(), host()
    sides = {HH: (memory, memory), HD: (block, memory), DH: (memory, block), DD: (block, block)}

    codes = {name: acl.rt.memcpy(to, 8, source, 8, kind) for name, (to, source) in sides.items()}

    assert {name: 0 if name == kind else 100000 for name in sides} == codes


def test_read_only_memory_is_not_written(script):
    """Bytes and read-only arrays are no target."""
    data, array, block = b"0123456789abcdef", np.zeros(4, np.float32), device()
    array.flags.writeable = False

    assert 100000 == acl.rt.memcpy(acl.util.bytes_to_ptr(data), 16, block, 16, DH)
    assert 100000 == acl.rt.memcpy(acl.util.numpy_to_ptr(array), 16, block, 16, DH)
    assert b"0123456789abcdef" == data


def test_bounds_of_lent_memory(script):
    """Bytes behind an array are not reached through its pointer, the rest of its base is."""
    base = np.arange(8, dtype=np.float32)
    part, block = base[2:4], device(64)

    pointer = acl.util.numpy_to_ptr(part)

    assert 0 == acl.rt.memcpy(block, 64, pointer, 24, HD)
    assert 100000 == acl.rt.memcpy(block, 64, pointer, 25, HD)


def test_lent_memory_is_let_go(script):
    """Objects that the script dropped are dropped too, once another is lent."""
    first, kept = np.zeros(1000, np.float32), np.zeros(10, np.float32)
    acl.util.numpy_to_ptr(kept)
    acl.util.numpy_to_ptr(first)
    reference = weakref.ref(first)

    del first
    gc.collect()
    assert reference() is not None
    acl.util.bytes_to_ptr(b"another")

    assert reference() is None


@pytest.mark.parametrize("size", [0, -1, None, "1", 1.5, True, 1 << 60])
def test_impossible_sizes_are_refused(script, size):
    """Malloc takes a number of bytes from 1."""
    assert (0, 100000) == acl.rt.malloc(size, 0)
    assert (0, 100000) == acl.rt.malloc_host(size)


def test_memory_is_freed_once(script):
    """Memory is given back to the side that gave it, once, and is gone then."""
    block, memory = device(), host()

    assert [100000, 100000] == [acl.rt.free(memory), acl.rt.free_host(block)]
    assert [0, 0] == [acl.rt.free(block), acl.rt.free_host(memory)]
    assert [100000, 100000] == [acl.rt.free(block), acl.rt.free_host(memory)]
    assert 100000 == acl.rt.memcpy(host(), 16, block, 16, DH)


def test_freed_memory_is_used_again(script):
    """A block of the size of a freed one lies where that one lay."""
    first = device()
    device()
    acl.rt.free(first)

    assert first == device()


@pytest.mark.parametrize("item", [None, 7, [1], b"", np.zeros(0), np.array(["x"], object), "text"])
def test_only_bytes_and_arrays_have_pointers(script, item):
    """Everything else has the pointer 0."""
    assert (0, 0) == (acl.util.numpy_to_ptr(item), acl.util.bytes_to_ptr(item))


def test_scattered_arrays_have_no_pointer(script, caplog):
    """An array that is not contiguous is refused with the remedy."""
    assert 0 == acl.util.numpy_to_ptr(np.zeros((4, 4))[:, ::2])
    assert "copy it first" in caplog.text


def test_unknown_element_types_are_refused(script):
    """A number that is no numpy type gives nothing."""
    assert acl.util.ptr_to_numpy(host(), (4,), 999) is None


def test_device_memory_is_no_host_memory(script, caplog):
    """Memory of the device is not read directly."""
    assert acl.util.ptr_to_bytes(device(), 16) is None
    assert "copy it to the host with acl.rt.memcpy" in caplog.text


def test_device_of_a_rank(script, monkeypatch):
    """A process that a launcher has started works on the device of its number until it sets another one."""
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_RANK", "3")

    assert (3, 0) == acl.rt.get_device()
    assert 0 == acl.rt.set_device(5)
    assert (5, 0) == acl.rt.get_device()


def test_devices_and_contexts(script):
    """There are eight devices; contexts and streams are handles; unknown devices are 200002."""
    context, ret = acl.rt.create_context(3)

    assert 0 == ret
    assert (3, 0) == acl.rt.get_device()
    assert [0, 0] == [acl.rt.set_device(5), acl.rt.destroy_context(context)]
    assert (5, 0) == acl.rt.get_device()
    assert (8, 0) == acl.rt.get_device_count()
    assert (1, 0) == acl.rt.get_run_mode()
    assert [200002] * 3 == [acl.rt.set_device(8), acl.rt.set_device("0"), acl.rt.reset_device(-1)]
    assert (0, 200002) == acl.rt.create_context(9)
