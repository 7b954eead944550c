"""pyACL's functions used in odd ways: a code as the real ones give, never an exception."""

import inspect
import itertools
import logging
import threading

import numpy as np
import pytest

from msdump import acl
from tests.frontends.acl.script import dataset, sent
from tests.texts import parsed

ODD = [None, -1, 0, 7, "x", b"", [], {}, 1.5, 1 << 70, True, np.zeros(2)]
X = np.ones((2, 3), np.float32)
NET = parsed("graph (float[2,3] x) => (y) { [softmax] y = Softmax(x) }")
UNTRIED = {"init", "finalize"}
"""Functions that would end the state that the others are tried in."""

PAIRED = {"mdl.add_dataset_buffer", "mdl.set_dataset_tensor_desc"}
"""Functions that give their first argument back with the code."""


def functions():
    """Return pyACL's functions by name."""
    modules = {"acl": acl, "mdl": acl.mdl, "rt": acl.rt, "util": acl.util}
    found = {
        f"{prefix}.{name}": getattr(module, name)
        for prefix, module in modules.items()
        for name in (module.__all__ if hasattr(module, "__all__") else dir(module))
    }
    found |= {
        f"op.{name}": getattr(acl.op, name)
        for name in dir(acl.op)
        if name.startswith(("set_attr", "execute"))
    }
    return {
        name: function
        for name, function in found.items()
        if inspect.isfunction(function)
        and (hasattr(function, "__wrapped__") or name in PAIRED)
        and function.__module__.startswith("msdump.frontends.acl")
        and name.rpartition(".")[2] not in UNTRIED
        and not name.rpartition(".")[2].startswith("_")
    }


def odd_calls(count):
    """Yield odd arguments: every combination of few, some of many."""
    if count <= 2:
        return list(itertools.product(ODD, repeat=count))
    rng = np.random.default_rng(count)
    return [tuple(ODD[at] for at in rng.integers(0, len(ODD), count)) for _ in range(200)]


@pytest.mark.parametrize("name", sorted(functions()))
def test_odd_arguments_are_refused(script, name, caplog):
    """Every function returns for every argument, and logs the reason of a failure."""
    assert 0 == acl.init()
    function = functions()[name]

    with caplog.at_level(logging.ERROR, "msdump.acl"):
        for given in odd_calls(len(inspect.signature(function).parameters)):
            function(*given)

    assert [] == [message for message in caplog.messages if message.startswith("internal error")]


def test_what_is_gone_is_refused(script):
    """Handles, memory and models that were destroyed, freed or unloaded are 100000 and 145003."""
    assert 0 == acl.init()
    model_id = script.load(NET)
    inputs, outputs = dataset(X), acl.mdl.create_dataset()
    desc, (stream, _), (context, _) = acl.mdl.create_desc(), acl.rt.create_stream(), acl.rt.create_context(0)
    address, host = acl.rt.malloc(8)[0], acl.rt.malloc_host(8)[0]
    acl.mdl.get_desc(desc, model_id)
    pairs = [
        (acl.mdl.destroy_dataset, outputs, 100000),
        (acl.mdl.destroy_desc, desc, 100000),
        (acl.rt.destroy_stream, stream, 100000),
        (acl.rt.destroy_context, context, 100000),
        (acl.rt.free, address, 100000),
        (acl.rt.free_host, host, 100000),
        (acl.mdl.unload, model_id, 145003),
    ]

    assert [(0, code) for _, _, code in pairs] == [(end(item), end(item)) for end, item, _ in pairs]
    assert 145003 == acl.mdl.execute(model_id, inputs, outputs)
    assert 100000 == acl.rt.synchronize_stream(stream)


def test_buffers_too_small(script):
    """An input that is too small is 100017, an output 100018; the model runs on afterwards."""
    assert 0 == acl.init()
    model_id = script.load(NET)
    small = acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(small, acl.create_data_buffer(sent(X[:1]), 12))

    assert [100017, 100018] == [
        acl.mdl.execute(model_id, small, dataset(X)),
        acl.mdl.execute(model_id, dataset(X), small),
    ]
    assert 0 == script.run(model_id, X)[0]


def test_failure_of_a_stream_is_told_once(script):
    """A stream returns its first failure when it is synchronised, and goes on."""
    assert 0 == acl.init()
    model_id = script.load(NET)
    stream, _ = acl.rt.create_stream()
    empty = acl.mdl.create_dataset()

    assert 0 == acl.mdl.execute_async(model_id, empty, dataset(X), stream)
    assert 0 == acl.mdl.execute_async(model_id, dataset(X), dataset(X), stream)

    assert [100017, 0] == [acl.rt.synchronize_stream(stream) for _ in range(2)]


def test_threads_have_devices_of_their_own(script):
    """Contexts are a thread's own; models of several devices run at once."""
    assert 0 == acl.init()
    ready, found = threading.Barrier(4), {}

    def work(number):
        ready.wait(20)
        context, _ = acl.rt.create_context(number)
        model_id = script.load(NET, f"net{number}")
        codes = [script.run(model_id, X)[0] for _ in range(5)]
        found[number] = (
            acl.rt.get_device()[0],
            codes,
            acl.mdl.unload(model_id),
            acl.rt.destroy_context(context),
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert {number: (number, [0] * 5, 0, 0) for number in range(4)} == found
