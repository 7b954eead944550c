"""Modules as in vision, language and diffusion networks, small, each with its inputs.

Every one is a function that returns the module, or a function of tensors, and the tensors it is called with.
"""

import torch
from torch import nn
from torch.nn import functional


class Lambda(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        """Apply it."""
        return self.function(*tensors)


class Residual(nn.Module):
    """A module's input added to its output."""

    def __init__(self, *layers):
        """Put the layers one behind the other."""
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        """Add."""
        return x + self.layers(x)


class SqueezeExcite(nn.Module):
    """EfficientNet's weights for channels."""

    def __init__(self, gate):
        """Make the two convolutions."""
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1), gate

    def forward(self, x):
        """Weigh the channels of (batch, 8, rows, columns)."""
        return x * self.gate(self.up(functional.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Rotary(nn.Module):
    """Causal attention of grouped queries with rotated halves."""

    def __init__(self):
        """Make the projections of four heads that share two keys."""
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        """Attend within (batch, words, 8)."""
        words = x.shape[1]
        angles = torch.outer(torch.arange(words), 1 / 10000 ** (torch.arange(0, 4, 2) / 4)).repeat(1, 2)
        q = self._rotated(self.q(x).unflatten(-1, (4, 4)).transpose(1, 2), angles)
        k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        k = self._rotated(k, angles).repeat_interleave(2, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v.repeat_interleave(2, dim=1), is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))

    def _rotated(self, x, angles):
        half = torch.cat((-x[..., 2:], x[..., :2]), -1)
        return x * angles.cos() + half * angles.sin()


class CrossAttention(nn.Module):
    """Attention of pixels to words, as in a diffusion network."""

    def __init__(self):
        """Make the projections."""
        super().__init__()
        self.norm, self.q, self.kv, self.o = (
            nn.GroupNorm(2, 8),
            nn.Linear(8, 8),
            nn.Linear(6, 16),
            nn.Linear(8, 8),
        )

    def forward(self, image, words):
        """Attend from (batch, 8, rows, columns) to (batch, words, 6)."""
        pixels = self.norm(image).flatten(2).transpose(1, 2)
        q = self.q(pixels).unflatten(-1, (2, 4)).transpose(1, 2)
        k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.kv(words).chunk(2, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return image + self.o(mixed).transpose(1, 2).reshape(image.shape)


def _image(*, channels=8, side=8):
    return torch.randn(2, channels, side, side)


def _words():
    return torch.randn(2, 5, 8)


def _classes():
    return torch.tensor([0, 3, 1])


def _of(function, *tensors):
    return lambda: (Lambda(function), tuple(tensor() for tensor in tensors))


def _plain(layer, *tensors):
    return lambda: (layer(), tuple(tensor() for tensor in tensors))


def _activation(name):
    return _of(getattr(functional, name), _words)


ACTIVATIONS = (
    "relu relu6 silu mish gelu hardswish hardsigmoid hardtanh elu selu celu leaky_relu softplus softsign"
    " tanhshrink logsigmoid sigmoid tanh"
)

VISION = {
    "residual of batch norms": _plain(
        lambda: Residual(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        _image,
    ),
    "depthwise convolution": _plain(
        lambda: nn.Sequential(
            nn.Conv2d(8, 8, 5, 2, 2, groups=8), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 4, 1)
        ),
        _image,
    ),
    "squeeze and excite": _plain(lambda: SqueezeExcite(nn.Sigmoid()), _image),
    "local response norm": _plain(lambda: nn.LocalResponseNorm(3), _image),
    "instance norm": _plain(lambda: nn.InstanceNorm2d(8, affine=True), _image),
    "adaptive average": _plain(lambda: nn.AdaptiveAvgPool2d(3), _image),
    "adaptive maximum": _plain(lambda: nn.AdaptiveMaxPool2d(2), _image),
    "adaptive average of one dimension": _plain(lambda: nn.AdaptiveAvgPool1d(2), _words),
    "average of one dimension": _plain(lambda: nn.AvgPool1d(2), _words),
    "maximum of one dimension": _plain(lambda: nn.MaxPool1d(2), _words),
    "average of three dimensions": _plain(lambda: nn.AvgPool3d(2), lambda: torch.randn(1, 2, 4, 4, 4)),
    "maximum of three dimensions": _plain(lambda: nn.MaxPool3d(2), lambda: torch.randn(1, 2, 4, 4, 4)),
    "convolution of three dimensions": _plain(
        lambda: nn.Conv3d(2, 3, 2, padding=1), lambda: torch.randn(1, 2, 4, 4, 4)
    ),
    "power average": _plain(lambda: nn.LPPool2d(2, 2), _image),
    "pixel shuffle": _plain(lambda: nn.PixelShuffle(2), _image),
    "reflected padding": _plain(lambda: nn.ReflectionPad2d(2), _image),
    "replicated padding": _plain(lambda: nn.ReplicationPad2d(2), _image),
    "sampling by a grid": _of(
        lambda x, grid: functional.grid_sample(x, grid.tanh(), align_corners=False),
        _image,
        lambda: torch.randn(2, 4, 4, 2),
    ),
    "nearest": _of(lambda x: functional.interpolate(x, scale_factor=2), _image),
    "bilinear": _of(lambda x: functional.interpolate(x, size=(11, 5), mode="bilinear"), _image),
    "bicubic": _of(lambda x: functional.interpolate(x, size=(11, 13), mode="bicubic"), _image),
    "antialiased": _of(
        lambda x: functional.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), _image
    ),
    "trilinear": _of(
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        lambda: torch.randn(1, 2, 3, 3, 3),
    ),
    "transposed convolution": _plain(lambda: nn.ConvTranspose2d(8, 4, 4, 2, 1), _image),
    "weight norm": _plain(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), _words),
}

LANGUAGE = {
    "torch's norm of squares": _plain(lambda: nn.RMSNorm(8), _words),
    "torch's gated unit": _plain(nn.GLU, _words),
    "rotary attention": _plain(Rotary, _words),
    "encoder layer": _plain(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), _words
    ),
    "decoder layer": _plain(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True), _words, _words
    ),
    "padded embedding": _plain(
        lambda: nn.Embedding(10, 8, padding_idx=0), lambda: torch.tensor([[0, 3, 3], [9, 0, 1]])
    ),
    "bag of embeddings": _plain(
        lambda: nn.EmbeddingBag(10, 8, mode="mean"), lambda: torch.tensor([[0, 3, 3], [9, 0, 1]])
    ),
    "routed experts": _of(
        lambda x: torch.zeros_like(x.detach()).scatter(-1, x.topk(2, -1).indices, x.topk(2, -1).values),
        _words,
    ),
    "added where written": _of(
        lambda x: torch.zeros(4, 5, 8).index_put((torch.tensor([3, 3]),), x * 2, accumulate=True), _words
    ),
    "running sum": _of(lambda x: x.cumsum(1), _words),
    "running product": _of(lambda x: x.cumprod(1), _words),
    "running product from a zero": _of(
        lambda x: x.cumprod(-1), lambda: torch.tensor([[2.0, 0.0, 3.0, 4.0], [1.0, 2.0, 0.0, 0.0]])
    ),
    "running maximum": _of(lambda x: x.cummax(1).values, _words),
    "sorted": _of(lambda x: x.sort(-1, descending=True).values, _words),
    "einsum": _of(lambda x, y: torch.einsum("bwi,bvi->bwv", x, y), _words, _words),
    "strided": _of(lambda x: x.as_strided((2, 3), (1, 2)) * 2, _words),
    "diagonal": _of(
        lambda x: (x @ x.mT).diagonal(dim1=1, dim2=2) + (x @ x.mT)[:, 0].diag_embed(-1, 0, 2).sum((0, 1))[:5],
        _words,
    ),
    "distance": _of(torch.cdist, _words, _words),
    "median": _of(lambda x: x.median(-1).values, _words),
    "largest of two": _of(
        lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) + x.fmax(y) * y.fmin(x), _words, _words
    ),
    "inverse": _of(lambda x: torch.inverse(x @ x.mT + torch.eye(5)), _words),
    "recurrent": _plain(lambda: nn.GRU(8, 4, batch_first=True), _words),
    "long short-term memory": _plain(lambda: nn.LSTM(8, 4, batch_first=True), _words),
}

DIFFUSION = {
    "cross attention": _plain(CrossAttention, _image, lambda: torch.randn(2, 3, 6)),
    "group norm": _plain(lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU()), _image),
    "nearest and convolution": _plain(
        lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 3, padding=1)), _image
    ),
    "snake": _of(lambda x: x + (1 / 0.7) * torch.sin(0.7 * x).pow(2), _words),
}

LOSSES = {
    "cross entropy": _of(lambda x: functional.cross_entropy(x[0, :3], _classes()), _words),
    "smoothed cross entropy": _of(
        lambda x: functional.cross_entropy(
            x[0, :3], _classes(), torch.arange(1.0, 9.0), ignore_index=1, label_smoothing=0.1
        ),
        _words,
    ),
    "cross entropy of pixels": _of(
        lambda x: functional.cross_entropy(x, torch.arange(128).view(2, 8, 8) % 8), _image
    ),
    "huber": _of(lambda x, y: functional.huber_loss(x, y, delta=0.5), _words, _words),
    "binary of logits": _of(
        lambda x, y: functional.binary_cross_entropy_with_logits(
            x, y.sigmoid(), pos_weight=torch.full((8,), 2.0)
        ),
        _words,
        _words,
    ),
    "gaussian": _of(lambda x, y: functional.gaussian_nll_loss(x, y, x.exp()), _words, _words),
    "triplets": _of(lambda x, y: functional.triplet_margin_loss(x[0], x[1], y[0]), _words, _words),
    "connectionist": _of(
        lambda x: functional.ctc_loss(
            x.log_softmax(-1).transpose(0, 1), torch.tensor([[1, 2], [3, 3]]), (5, 5), (2, 2)
        ),
        _words,
    ),
}

MODULES = {
    **{name: _activation(name) for name in ACTIVATIONS.split()},
    "prelu": _plain(nn.PReLU, _words),
    **VISION,
    **LANGUAGE,
    **DIFFUSION,
    **LOSSES,
}
"""Name -> function that returns a module and the tensors it is called with."""

MISSING = {
    "sampling by a grid": "aten.grid_sampler_2d_backward",
    "antialiased": "aten._upsample_bilinear2d_aa_backward",
    "bag of embeddings": "aten._embedding_bag_backward",
    "running maximum": "aten.cummax",
    "strided": "prims.as_strided_scatter",
    "distance": "aten._cdist_forward",
    "median": "aten.median",
}
"""Name -> the operator that neither the exporter nor the door translates: ONNX has no form for it."""


def step(case, backend):
    """Return a module's results, and the gradients and buffers that a training step leaves.

    Args:
        case: A value of ``MODULES``.
        backend: A backend of ``torch.compile``, None: eager.
    """
    torch.manual_seed(0)
    model, inputs = case()
    torch.manual_seed(0)
    given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    run = model.train() if backend is None else torch.compile(model.train(), backend=backend)

    made = run(*given)
    made = made if isinstance(made, torch.Tensor) else made[0]
    made.backward(torch.linspace(-1, 1, made.numel()).view(made.shape))

    leaves = [*given, *model.parameters()]
    return [made.detach(), *(leaf.grad for leaf in leaves), *model.buffers()]
