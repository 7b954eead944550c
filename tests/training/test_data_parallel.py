"""Data parallel training: ranks that average their gradients end as one rank on the joined batch."""

import numpy as np
import pytest

import msdump
from msdump import communication, env
from msdump.training import step_graph
from msdump.training.update import DataParallel
from sample_nets.build import build
from tests.training import mlp
from tests.world import O0

STEPS = 3
BATCH = 8


def _batches(count):
    """Return images and labels of every step."""
    generator = np.random.default_rng(5)
    return [
        (
            generator.standard_normal((count, 1, 32, 32)).astype(np.float32),
            generator.integers(0, 10, count).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


def _trained(model, batches):
    """Return losses and state of a model after some steps."""
    network = msdump.load(model)
    losses = [network.train_step(*batch) for batch in batches]
    return np.asarray(losses), network.state()


def _of_rank(model, ranks):
    """Train one rank on its share of every batch."""
    rank, share = communication.get_rank(), BATCH // ranks
    part = slice(rank * share, (rank + 1) * share)
    return _trained(model, [(images[part], labels[part]) for images, labels in _batches(BATCH)])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("ranks", "bucket_bytes", "choices"),
    [
        (2, 0, {}),
        (4, 0, {}),
        (2, 1 << 18, {}),
        (4, 1 << 18, {}),
        (2, 0, {"accumulate": 2, "clip_gradients": "global_norm:0.5"}),
    ],
    ids=str,
)
def test_ranks_end_as_one(tmp_path, ranks, bucket_bytes, choices):
    """LeNet on several ranks ends with the weights of one rank on the joined batch, bit-equal on each."""
    whole = step_graph(build("lenet", tmp_path, batch=BATCH), **choices)
    part = step_graph(
        build("lenet", tmp_path, batch=BATCH // ranks),
        data_parallel=DataParallel(ranks, bucket_bytes),
        **choices,
    )

    losses, expected = _trained(whole, _batches(BATCH))
    results = communication.spawn(ranks, _of_rank, part, ranks)

    np.testing.assert_allclose(losses, np.mean([loss for loss, _ in results], axis=0), rtol=1e-5)
    for name, array in expected.items():
        for _, state in results:
            # a sum over the batch in another order: float32 keeps seven digits
            np.testing.assert_allclose(array, state[name], rtol=0, atol=1e-6, err_msg=name)
            np.testing.assert_array_equal(results[0][1][name], state[name], err_msg=name)


def test_scopes_and_types(tmp_path):
    """Every gradient has an AllReduce and a Mul in the reducer's scope, a bucket has one for all."""
    path = build("lenet", tmp_path, batch=4)
    counts = {}
    for bucket_bytes in (0, 1 << 30):
        network = msdump.load(step_graph(path, data_parallel=DataParallel(2, bucket_bytes)))
        names = [operator.full_name for operator in network.operators]
        counts[bucket_bytes] = sum(
            "grad_reducer-DistributedGradReducer/AllReduce-op" in name for name in names
        )

    assert {0: 8, 1 << 30: 1} == counts


def _saturating(model):
    """Train two steps, the second of which saturates on rank 1 alone; return facts of each step."""
    network = msdump.load(model, context=O0)
    facts = []
    for step in range(2):
        images, labels = mlp.batch(step)
        factor = 1000 if (step, communication.get_rank()) == (1, 1) else 1
        before = network.state()
        _, overflow = network.train_step(images * np.float32(factor), labels)
        after = network.state()
        moved = any((before[name] != after[name]).any() for name in ("fc1.weight", "moments.fc1.weight"))
        facts.append((bool(overflow), moved, float(after["scale_sense"])))
    return facts


@pytest.mark.timeout(120)
def test_ranks_leave_a_saturated_step_out_together(monkeypatch):
    """The overflow status is that of one device: a rank that saturates skips the update of all."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, "SATURATION_MODE")
    model = step_graph(
        mlp.mlp(), precision="float16", loss_scale="dynamic:1024", device_target="Ascend", data_parallel=2
    )

    results = communication.spawn(2, _saturating, model)

    assert [[(False, True, 1024.0), (True, False, 512.0)]] * 2 == results
