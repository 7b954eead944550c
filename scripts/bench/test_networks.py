"""Networks that the bench makes itself."""

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.session import Network
from sample_nets import build as samples
from sample_nets.resnet50 import net as resnet50
from sample_nets.tracing import trace
from scripts.bench import sides, whole
from scripts.bench.networks import chains, files, gpt2, llama
from tests.world import cli, write_config

TINY = llama.LlamaConfig(vocabulary=97, hidden=64, heads=4, key_heads=2, layers=2, wide=96, positions=128)
DECODERS = {"float32": llama.float32, "int4": llama.int4}
ASCEND = DeviceTarget.ASCEND
CONTEXTS = {
    "CPU": Context(),
    **{f"Ascend {level}": Context(ASCEND, level) for level in (JitLevel.O0, JitLevel.O1, JitLevel.O2)},
}


TINY_GPT2 = gpt2.Gpt2Config(vocabulary=50, sequence=6, hidden=16, heads=2, layers=2, is_whole=True)
WRITTEN = {
    "resnet50": (resnet50.network, lambda: [ir.val("x", ir.DataType.FLOAT, [1, 3, 32, 32])]),
    "decoder": (partial(gpt2.network, TINY_GPT2), partial(gpt2.inputs, 1, TINY_GPT2)),
}


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("resnet50", "Default/layer1-SequentialCell/0-ResidualBlock/bn1-BatchNorm2d/BatchNorm-op0"),
        ("decoder", "Default/h-CellList/0-Gpt2Block/attn-CausalAttention/c_proj-Dense/BiasAdd-op0"),
    ],
    ids=WRITTEN,
)
def test_a_mindir_file_is_the_network_that_it_was_written_from(name, full_name, tmp_path):
    """Its operators have MindSpore's names, and compute as ONNX's do."""
    network, inputs = WRITTEN[name]
    path = tmp_path / "model.onnx"
    samples.write(path, trace(network(), inputs(), name=name))
    feeds = sides.inputs(path)

    (expected,) = sides.network(path).run(feeds).values()
    written = sides.network(files.as_mindir(path))
    (result,) = written.run(feeds).values()

    assert full_name in {operator.full_name for operator in written.operators}
    # a product with a transposed weight may add in another order
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def saved(path, model):
    """Write a model and return its path."""
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "model",
    [
        chains.loop(passes=3),
        chains.unary(7, [16]),
        chains.binary(7, 16),
        llama.float32(TINY),
        llama.int4(TINY),
    ],
    ids=["loop", "unary", "binary", "llama", "llama-int4"],
)
def test_networks_run_alike_on_both_sides(model, tmp_path):
    """Both sides compute the same from the same seeded inputs."""
    path = saved(tmp_path / "model.onnx", model)
    session = whole.session(path, 1)
    feeds = whole.inputs(session)

    expected = session.run(None, feeds)
    results = Network(loader.load(path)).run(feeds)

    for array, result in zip(expected, results.values(), strict=True):
        np.testing.assert_array_equal(array, result)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_decoder_reads_its_cache(decoder, context, tmp_path):
    """A prefill and single tokens behind it have the scores of one run over all tokens."""
    path = saved(tmp_path / "llama.onnx", DECODERS[decoder](TINY))
    network = Network(loader.load(path), context=CONTEXTS[context])
    ids = np.random.default_rng(0).integers(0, TINY.vocabulary, (1, 9))

    expected, _ = decoded(network, ids)
    scores, cache = decoded(network, ids[:, :6])
    for position in range(6, 9):
        further, cache = decoded(network, ids[:, position : position + 1], cache)
        scores = np.concatenate([scores, further], axis=1)

    # Scores reach 0.6. Sums are in another order where other numbers of tokens run at a time, by which
    # Ascend's rounding to float16 (2**-11 of a value) may fall to the other side, in each of two layers.
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 if context == "CPU" else 2e-3)


def decoded(network, ids, cache=None):
    """Run tokens behind a cache; return their scores and the new cache, by the names of its inputs."""
    names = [value.name for value in network.graph.inputs]
    shape = (1, TINY.key_heads, 0, TINY.head)
    cache = cache or {name: np.zeros(shape, np.float32) for name in names if name.startswith("past")}
    past = cache["past_key_values.0.key"].shape[2]
    total = past + ids.shape[1]
    given = {
        "input_ids": ids,
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(past, total)[None],
        **cache,
    }
    results = network.run({name: given[name] for name in names})
    return results["logits"], {name: results[name.replace("past_key_values", "present")] for name in cache}


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_commands_take_a_decoder(decoder, level, tmp_path):
    """Free dimensions are given by name; a step of the decoder is checked, runs and is dumped."""
    path = saved(tmp_path / "llama.onnx", DECODERS[decoder](TINY))
    np.savez(tmp_path / "inputs.npz", **whole.inputs(whole.session(path, 1)))
    config = write_config(tmp_path / "data_dump.json", tmp_path / "dump")
    device = ("--device-target", "Ascend", "--jit-level", level)
    sizes = [word for name, size in whole.SIZES.items() for word in ("--dim", f"{name}={size}")]

    for command in (
        ["check", config, "--model", path, *sizes],
        ["run", path, "--config", config, "--inputs", tmp_path / "inputs.npz"],
    ):
        done = cli(*command, *device)
        assert not done.exit_code, done.output
    assert list((tmp_path / "dump").rglob("*SkipSimplified*" if decoder == "int4" else "*BatchMatMul*"))
