"""Modules as in vision, language and diffusion networks, small, each with its inputs.

Every one is a function that returns the module, or a function of tensors, and the tensors it is called with.
"""

from __future__ import annotations

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
    "hard squeeze and excite": _plain(lambda: SqueezeExcite(nn.Hardsigmoid()), _image),
    "channel shuffle": _of(lambda x: functional.channel_shuffle(x, 4) * 2, _image),
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
    "pixel unshuffle": _plain(lambda: nn.PixelUnshuffle(2), _image),
    "unfold": _of(lambda x: functional.unfold(x, 3, padding=1, stride=2), _image),
    "fold": _of(lambda x: functional.fold(x, (4, 4), 2, stride=2), lambda: torch.randn(2, 8, 4)),
    "flip": _of(lambda x: x.flip(-1) + x.rot90(1, (2, 3)), _image),
    "constant padding": _of(lambda x: functional.pad(x, (1, 2, 0, 1), value=0.5) * 2, _image),
    "reflected padding": _plain(lambda: nn.ReflectionPad2d(2), _image),
    "replicated padding": _plain(lambda: nn.ReplicationPad2d(2), _image),
    "circular padding": _of(lambda x: functional.pad(x, (1, 1, 1, 1), mode="circular") * 2, _image),
    "sampling by a grid": _of(
        lambda x, grid: functional.grid_sample(x, grid.tanh(), align_corners=False),
        _image,
        lambda: torch.randn(2, 4, 4, 2),
    ),
    "affine grid": _of(
        lambda theta: functional.affine_grid(theta, [2, 1, 4, 4], align_corners=False),
        lambda: torch.randn(2, 2, 3),
    ),
    "nearest": _of(lambda x: functional.interpolate(x, scale_factor=2), _image),
    "nearest exact": _of(lambda x: functional.interpolate(x, size=(5, 3), mode="nearest-exact"), _image),
    "bilinear": _of(lambda x: functional.interpolate(x, size=(11, 5), mode="bilinear"), _image),
    "bilinear by corners": _of(
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), _image
    ),
    "bicubic": _of(lambda x: functional.interpolate(x, size=(11, 13), mode="bicubic"), _image),
    "antialiased": _of(
        lambda x: functional.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), _image
    ),
    "linear": _of(lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), _words),
    "trilinear": _of(
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        lambda: torch.randn(1, 2, 3, 3, 3),
    ),
    "transposed convolution": _plain(lambda: nn.ConvTranspose2d(8, 4, 4, 2, 1), _image),
    "layer scale": _plain(
        lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(approximate="tanh")), _words
    ),
    "weight norm": _plain(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), _words),
    "spectral norm": _plain(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)), _words),
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
    "masked scores": _of(
        lambda x: (x @ x.mT).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf).softmax(-1),
        _words,
    ),
    "gathered labels": _of(
        lambda x: x.log_softmax(-1).gather(-1, torch.tensor([1, 7, 0, 2, 2]).expand(2, 5)[..., None]), _words
    ),
    "routed experts": _of(
        lambda x: torch.zeros_like(x.detach()).scatter(-1, x.topk(2, -1).indices, x.topk(2, -1).values),
        _words,
    ),
    "added by index": _of(
        lambda x: torch.zeros(4, 8).index_add(0, torch.tensor([0, 3, 3, 1, 0]), x[0]), _words
    ),
    "written by index": _of(lambda x: torch.zeros(4, 5, 8).index_put((torch.tensor([3, 0]),), x * 2), _words),
    "added where written": _of(
        lambda x: torch.zeros(4, 5, 8).index_put((torch.tensor([3, 3]),), x * 2, accumulate=True), _words
    ),
    "selected rows": _of(lambda x: x.index_select(1, torch.tensor([4, 0, 0])) * 2, _words),
    "taken along": _of(lambda x: torch.take_along_dim(x, x.argsort(-1), -1), _words),
    "scattered sum": _of(
        lambda x: torch.zeros(2, 5, 8).scatter_reduce(1, x.argsort(1), x, "sum", include_self=True), _words
    ),
    "running sum": _of(lambda x: x.cumsum(1), _words),
    "running product": _of(lambda x: x.cumprod(1), _words),
    "running product from a zero": _of(
        lambda x: x.cumprod(-1), lambda: torch.tensor([[2.0, 0.0, 3.0, 4.0], [1.0, 2.0, 0.0, 0.0]])
    ),
    "running maximum": _of(lambda x: x.cummax(1).values, _words),
    "running log of sums": _of(lambda x: x.logcumsumexp(1), _words),
    "log of a sum": _of(lambda x: x.logsumexp(-1), _words),
    "sorted": _of(lambda x: x.sort(-1, descending=True).values, _words),
    "largest": _of(lambda x: x.max(-1).values + x.amax(-1) + x.amin(-1), _words),
    "einsum": _of(lambda x, y: torch.einsum("bwi,bvi->bwv", x, y), _words, _words),
    "baddbmm": _of(lambda x, y: torch.baddbmm(x @ y.mT, x, y.mT, beta=0.5, alpha=2), _words, _words),
    "triangles": _of(lambda x: (x @ x.mT).tril() + (x @ x.mT).triu(1) * 2, _words),
    "clamped": _of(lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0.1), _words),
    "chosen": _of(lambda x: torch.where(x > 0, x * 2, x * x), _words),
    "repeated": _of(lambda x: x.repeat(1, 2, 1) + x.repeat_interleave(2, 1) + x.tile(2, 1), _words),
    "split": _of(lambda x: torch.cat([part * n for n, part in enumerate(x.split([1, 3, 1], 1))], 1), _words),
    "stacked": _of(lambda x: torch.stack(x.unbind(1), 0), _words),
    "sliding windows": _of(lambda x: x.unfold(1, 3, 1) * 2, _words),
    "strided": _of(lambda x: x.as_strided((2, 3), (1, 2)) * 2, _words),
    "diagonal": _of(
        lambda x: (x @ x.mT).diagonal(dim1=1, dim2=2) + (x @ x.mT)[:, 0].diag_embed(-1, 0, 2).sum((0, 1))[:5],
        _words,
    ),
    "outer": _of(lambda x: torch.outer(x[0, 0], x[1, 1]) + torch.kron(x[0, 0], x[1, 1]).view(8, 8), _words),
    "norms": _of(lambda x: x.norm(dim=-1) + torch.linalg.vector_norm(x, 1, -1) + x.norm(), _words),
    "normalized": _of(lambda x: functional.normalize(x, dim=-1), _words),
    "cosine": _of(lambda x, y: functional.cosine_similarity(x, y, -1), _words, _words),
    "distance": _of(torch.cdist, _words, _words),
    "moments": _of(lambda x: x.std(-1) + x.var(-1, unbiased=False) + x.mean(-1), _words),
    "median": _of(lambda x: x.median(-1).values, _words),
    "product": _of(lambda x: x.prod(-1), _words),
    "powers": _of(lambda x: x.abs().add(0.1).pow(1.5) + 2.0**x + x.abs().add(0.1).sqrt(), _words),
    "logarithms": _of(lambda x: x.abs().add(0.1).log2() + x.exp().log1p() + x.expm1(), _words),
    "angles": _of(
        lambda x, y: torch.atan2(x, y) + x.sin() + y.tan() + torch.sinh(x) * x.atan(), _words, _words
    ),
    "error function": _of(lambda x: x.erf() + x.erfc(), _words),
    "remainders": _of(lambda x: x.fmod(0.7) + x.remainder(0.7) + x.frac() + x.floor(), _words),
    "interpolated": _of(lambda x, y: x.lerp(y, 0.3) + torch.addcmul(x, x, y, value=0.5), _words, _words),
    "divided": _of(
        lambda x, y: torch.addcdiv(x, x, y.exp()) + x.div(0.3, rounding_mode="floor"), _words, _words
    ),
    "largest of two": _of(
        lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) + x.fmax(y) * y.fmin(x), _words, _words
    ),
    "inverse": _of(lambda x: torch.inverse(x @ x.mT + torch.eye(5)), _words),
    "recurrent": _plain(lambda: nn.GRU(8, 4, batch_first=True), _words),
    "long short-term memory": _plain(lambda: nn.LSTM(8, 4, batch_first=True), _words),
    "dropout of nothing": _plain(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0)), _words),
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
    "cross entropy of shares": _of(lambda x, y: functional.cross_entropy(x, y.softmax(1)), _words, _words),
    "cross entropy of pixels": _of(
        lambda x: functional.cross_entropy(x, torch.arange(128).view(2, 8, 8) % 8), _image
    ),
    "squares": _of(functional.mse_loss, _words, _words),
    "differences": _of(functional.l1_loss, _words, _words),
    "smooth differences": _of(functional.smooth_l1_loss, _words, _words),
    "huber": _of(lambda x, y: functional.huber_loss(x, y, delta=0.5), _words, _words),
    "binary": _of(
        lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach()), _words, _words
    ),
    "binary of logits": _of(
        lambda x, y: functional.binary_cross_entropy_with_logits(
            x, y.sigmoid(), pos_weight=torch.full((8,), 2.0)
        ),
        _words,
        _words,
    ),
    "divergence": _of(
        lambda x, y: functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        _words,
        _words,
    ),
    "gaussian": _of(lambda x, y: functional.gaussian_nll_loss(x, y, x.exp()), _words, _words),
    "poisson": _of(lambda x, y: functional.poisson_nll_loss(x, y.exp()), _words, _words),
    "triplets": _of(lambda x, y: functional.triplet_margin_loss(x[0], x[1], y[0]), _words, _words),
    "cosines": _of(
        lambda x, y: functional.cosine_embedding_loss(x[0], y[0], torch.tensor([1, -1, 1, 1, -1])),
        _words,
        _words,
    ),
    "margin of classes": _of(lambda x: functional.multi_margin_loss(x[0, :3], _classes()), _words),
    "soft margin": _of(lambda x, y: functional.soft_margin_loss(x, y.sign().detach()), _words, _words),
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
