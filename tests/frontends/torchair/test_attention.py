"""The fused attention that torch takes in evaluation runs through the backend."""

import pytest

torch = pytest.importorskip("torch")

from msdump import torchair  # noqa: E402 - torch first


def layer(**options):
    """Return an encoder layer in evaluation."""
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options).eval()


def key_mask():
    """Return a mask that hides the last key of the second sequence."""
    mask = torch.zeros(2, 4, dtype=torch.bool)
    mask[1, 3] = True
    return mask


CASES = {
    "plain": ({}, {}),
    "gelu": ({"activation": "gelu"}, {}),
    "norm first": ({"norm_first": True}, {}),
    "mask of queries": ({}, {"src_mask": torch.ones(4, 4, dtype=torch.bool).triu(1)}),
    "mask of keys": ({}, {"src_key_padding_mask": key_mask()}),
}


@pytest.mark.parametrize(("options", "masks"), CASES.values(), ids=CASES)
def test_encoder_layer(options, masks):
    """An encoder layer in evaluation returns the values of eager."""
    model, data = layer(**options), torch.randn(2, 4, 16)

    with torch.no_grad():
        made = torch.compile(model, backend=torchair.get_npu_backend())(data, **masks)
        expected = model(data, **masks)

    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("averages", [True, False])
def test_weights_of_attention(averages):
    """Attention gives its weights too, averaged over the heads or not."""
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
    data = torch.randn(2, 4, 16)

    def attend(x):
        return model(x, x, x, average_attn_weights=averages)

    with torch.no_grad():
        made = torch.compile(attend, backend=torchair.get_npu_backend())(data)
        expected = attend(data)

    for one, other in zip(made, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
