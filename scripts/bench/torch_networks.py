"""The sample networks once more, written for PyTorch: functions of weights under the samples' names.

They take the branches of a step that has run: an activation with an input next to a kink, within the
rounding of float32, may be on its other side in another program, and its gradient is another one then.
"""

import torch
from torch.nn import functional


class Weights:
    """The weights of a network, or of one layer of it."""

    def __init__(self, tensors, prefix=""):
        """Keep tensors by name.

        Args:
            tensors: All weights of the network.
            prefix: Prefix of this layer's names, ``layer1.0.``.
        """
        self.tensors, self.prefix = tensors, prefix

    def __getitem__(self, name):
        """Return one weight."""
        return self.tensors[self.prefix + name]

    def of(self, *path):
        """Return the weights of a layer inside."""
        return Weights(self.tensors, self.prefix + "".join(f"{part}." for part in path))

    def __contains__(self, path):
        """Tell whether there is a layer inside."""
        return any(name.startswith(f"{self.prefix}{path}.") for name in self.tensors)


class Branches:
    """The side of its kinks on which each activation was in a step."""

    def __init__(self, outputs):
        """Keep outputs.

        Args:
            outputs: Results of the activations of a step, in their order.
        """
        self._outputs = iter(outputs)
        self._last = None

    def relu(self, x):
        """Return the result of a ReLU."""
        self._last = next(self._outputs)
        return torch.where(self._last > 0, x, 0.0)

    def relu6(self, x):
        """Return the result of a ReLU6."""
        y = next(self._outputs).to(x.dtype)
        return torch.where((y > 0) & (y < 6), x, y)

    def max_pool(self, x, size, **window):
        """Pool the result of the last ReLU."""
        _, taken = functional.max_pool2d(self._last, size, return_indices=True, **window)
        return x.flatten(2).gather(2, taken.flatten(2)).view(taken.shape)


def dense(w, x):
    """Multiply by a weight (in, out), add the bias."""
    return x @ w["weight"] + w["bias"]


def batch_norm(w, x):
    """Normalise by the batch."""
    return functional.batch_norm(
        x, w["moving_mean"].clone(), w["moving_variance"].clone(), w["gamma"], w["beta"], training=True
    )


def lenet(w, branches, x):
    """Return the scores of LeNet-5."""
    for layer in ("conv1", "conv2"):
        x = branches.max_pool(branches.relu(functional.conv2d(x, w.of(layer)["weight"])), 2)
    x = x.flatten(1)
    for layer in ("fc1", "fc2"):
        x = branches.relu(dense(w.of(layer), x))
    return dense(w.of("fc3"), x)


def _residual_block(w, branches, x, stride):
    identity = x
    x = branches.relu(batch_norm(w.of("bn1"), functional.conv2d(x, w.of("conv1")["weight"])))
    x = functional.conv2d(x, w.of("conv2")["weight"], stride=stride, padding=1)
    x = branches.relu(batch_norm(w.of("bn2"), x))
    x = batch_norm(w.of("bn3"), functional.conv2d(x, w.of("conv3")["weight"]))
    if "down_sample_layer" in w:
        short_cut = w.of("down_sample_layer")
        identity = functional.conv2d(identity, short_cut.of("0")["weight"], stride=stride)
        identity = batch_norm(short_cut.of("1"), identity)
    return branches.relu(x + identity)


def resnet50(w, branches, x):
    """Return the scores of ResNet-50."""
    x = functional.conv2d(x, w.of("conv1")["weight"], stride=2, padding=3)
    x = branches.max_pool(branches.relu(batch_norm(w.of("bn1"), x)), 3, stride=2, padding=1)
    for stage, (count, stride) in enumerate(((3, 1), (4, 2), (6, 2), (3, 2)), 1):
        for block in range(count):
            x = _residual_block(w.of(f"layer{stage}", block), branches, x, 1 if block else stride)
    return dense(w.of("end_point"), x.mean((2, 3)))


def _conv_bn(w, x, padding=0, **options):
    x = functional.conv2d(x, w.of("0")["weight"], padding=padding, **options)
    return batch_norm(w.of("1"), x)


def _conv_bn_relu(w, branches, x, **options):
    return branches.relu6(_conv_bn(w.of("features"), x, **options))


def _inverted_residual(w, branches, x, stride, expansion):
    identity, conv, position = x, w.of("conv"), 0
    if expansion != 1:
        x, position = _conv_bn_relu(conv.of(0), branches, x), 1
    x = _conv_bn_relu(conv.of(position), branches, x, padding=1, stride=stride, groups=x.shape[1])
    x = functional.conv2d(x, conv.of(position + 1)["weight"])
    x = batch_norm(conv.of(position + 2), x)
    return identity + x if identity.shape == x.shape else x


def mobilenetv2(w, branches, x):
    """Return the scores of MobileNetV2."""
    features = w.of("features")
    x = _conv_bn_relu(features.of(0), branches, x, padding=1, stride=2)
    position = 1
    for expansion, count, first in (
        *((1, 1, 1), (6, 2, 2), (6, 3, 2), (6, 4, 2)),
        *((6, 3, 1), (6, 3, 2), (6, 1, 1)),
    ):
        for block in range(count):
            x = _inverted_residual(features.of(position), branches, x, 1 if block else first, expansion)
            position += 1
    x = _conv_bn_relu(features.of(position), branches, x)
    return dense(w.of("head"), x.mean((2, 3)))


def _layer_norm(w, x):
    return functional.layer_norm(x, x.shape[-1:], w["gamma"], w["beta"], eps=1e-12)


def _attention(w, x, mask, heads):
    def split(layer):
        return dense(w.of(layer), x).unflatten(-1, (heads, -1)).transpose(1, 2)

    query, key, value = (split(f"{name}_layer") for name in ("query", "key", "value"))
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    return (torch.softmax(scores + mask, -1) @ value).transpose(1, 2).flatten(2)


def _encoder(w, x, mask, heads):
    attended = _attention(w.of("attention"), x, mask, heads)
    output = w.of("attention_output")
    x = _layer_norm(output.of("layernorm"), dense(output.of("dense"), attended) + x)
    wide = functional.gelu(dense(w.of("intermediate"), x))
    output = w.of("output")
    return _layer_norm(output.of("layernorm"), dense(output.of("dense"), wide) + x)


def bert(w, _branches, input_ids, attention_mask, token_type_ids, *, heads, layers):
    """Return the pooled vectors of the encoder."""
    embeddings = w.of("embeddings")
    x = embeddings.of("word_embeddings")["embedding_table"][input_ids]
    x = x + embeddings.of("token_type_embeddings")["embedding_table"][token_type_ids]
    x = _layer_norm(embeddings.of("layernorm"), x + embeddings["position_embeddings"])
    mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
    for layer in range(layers):
        x = _encoder(w.of("layers", layer), x, mask, heads)
    return torch.tanh(dense(w.of("pooler"), x[:, 0]))
