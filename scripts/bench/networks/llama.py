"""A Llama-like decoder with a KV cache: in float32 as exporters of PyTorch cut it, and in int4.

The int4 model has the operators and input names that onnxruntime-genai's model builder writes for the CPU:
packed projections (MatMulNBits, blocks of 32), GroupQueryAttention with rotary embeddings in it, and
normalisations that add the skipped values. Both read the names of ``past_key_values`` and ``present``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET: Final = 20
_IR_VERSION: Final = 10
_EPSILON: Final = 1e-5
_THETA: Final = 10_000.0
_SIGMA: Final = 0.02
"""Standard deviation of the weights."""

_MASKED: Final = np.float32(-3.4e38)
_BLOCK: Final = 32
"""Elements of an int4 weight with one scale."""

_INT8_COMPUTE: Final = 4
"""``accuracy_level`` of MatMulNBits: activations are rounded to int8 in blocks."""

_MICROSOFT: Final = frozenset({"GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization"})

_TOKENS: Final = ("batch_size", "sequence_length")
_ALL_TOKENS: Final = ("batch_size", "total_sequence_length")
_PAST, _PRESENT = "past_sequence_length", "total_sequence_length"
"""Names of free dimensions."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of the decoder; the defaults are TinyLlama's at half the width: 313 million parameters.

    Attributes:
        vocabulary: Number of tokens.
        hidden: Length of a token's vector.
        heads: Attention heads; they share ``hidden``.
        key_heads: Heads of keys and values; each one serves ``heads / key_heads`` heads.
        layers: Number of blocks.
        wide: Length of the vectors between the gated dense layers.
        positions: Tokens of the longest sequence.
    """

    vocabulary: int = 32_000
    hidden: int = 1024
    heads: int = 16
    key_heads: int = 4
    layers: int = 22
    wide: int = 2816
    positions: int = 2048

    @property
    def head(self) -> int:
        """Length of the vectors of one head."""
        return self.hidden // self.heads


def float32(config: LlamaConfig | None = None) -> onnx.ModelProto:
    """Return the decoder in float32; inputs are the ids, mask and positions, int64, and the cache."""
    return _Float32(config or LlamaConfig()).model()


def int4(config: LlamaConfig | None = None) -> onnx.ModelProto:
    """Return the decoder with int4 weights but for the embedding; inputs are ids, mask and the cache."""
    return _Int4(config or LlamaConfig()).model()


class _Decoder:
    """Nodes and seeded random weights of one decoder."""

    inputs: tuple[tuple[str, Sequence[str]], ...] = (
        ("input_ids", _TOKENS),
        ("attention_mask", _ALL_TOKENS),
    )

    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.random = np.random.default_rng(0)

    def model(self) -> onnx.ModelProto:
        """Return the model of all nodes."""
        self.write_nodes()
        config = self.config
        caches = [f"{layer}.{part}" for layer in range(config.layers) for part in ("key", "value")]

        def cache(prefix: str, length: str) -> list[onnx.ValueInfoProto]:
            shape = ("batch_size", config.key_heads, length, config.head)
            return [
                helper.make_tensor_value_info(f"{prefix}.{name}", TensorProto.FLOAT, shape) for name in caches
            ]

        ids = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in self.inputs]
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (*_TOKENS, config.vocabulary))
        graph = helper.make_graph(
            self.nodes,
            "llama",
            [*ids, *cache("past_key_values", _PAST)],
            [logits, *cache("present", _PRESENT)],
            self.weights,
        )
        domains = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=_IR_VERSION)

    def write_nodes(self) -> None:
        """Add the nodes from the inputs to all outputs."""
        raise NotImplementedError

    def node(self, name: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add an operator and return its first output.

        Args:
            name: Its scope and, as the last part, its type, with a number behind ``_`` where it stands twice.
            inputs: Names of values.
            outputs: Names of values; none: one, named as exporters do.
            attributes: Attributes of the operator.
        """
        kind = name.rpartition("/")[2].partition("_")[0]
        domain = "com.microsoft" if kind in _MICROSOFT else ""
        given = outputs or (f"{name}_output_0",)
        self.nodes.append(helper.make_node(kind, inputs, given, name=name, domain=domain, **attributes))
        return given[0]

    def weight(self, name: str, values: Any) -> str:
        """Add an initializer and return its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def normal(self, name: str, *shape: int) -> str:
        """Add a weight of normal values."""
        return self.weight(name, self.random.standard_normal(shape, np.float32) * np.float32(_SIGMA))

    def gain(self, name: str) -> str:
        """Add the scales of a normalisation, around 1."""
        return self.weight(name, self.random.uniform(0.8, 1.2, self.config.hidden).astype(np.float32))

    def embedded(self) -> str:
        """Add the embedding of the ids."""
        table = self.normal("model.embed_tokens.weight", self.config.vocabulary, self.config.hidden)
        return self.node("/model/embed_tokens/Gather", table, "input_ids")

    def projected(self, scope: str, x: str, size_in: int, size_out: int) -> str:
        """Add the product of a value with a weight (size_in, size_out)."""
        raise NotImplementedError

    def gated(self, scope: str, x: str) -> str:
        """Add the gated dense layers of a block."""
        hidden, wide = self.config.hidden, self.config.wide
        gate = self.projected(f"{scope}/gate_proj", x, hidden, wide)
        up = self.projected(f"{scope}/up_proj", x, hidden, wide)
        bent = self.node(f"{scope}/act_fn/Mul", gate, self.node(f"{scope}/act_fn/Sigmoid", gate))
        return self.projected(f"{scope}/down_proj", self.node(f"{scope}/Mul", bent, up), wide, hidden)


class _Float32(_Decoder):
    """The decoder cut into ONNX's own operators."""

    inputs = (*_Decoder.inputs, ("position_ids", _TOKENS))

    def write_nodes(self) -> None:
        config = self.config
        self.weight("two", np.float32(2))
        self.weight("epsilon", np.float32(_EPSILON))
        self.weight("scale", np.float32(config.head**-0.5))
        for name, values in (
            ("axis1", [1]), ("axis2", [2]), ("axes13", [1, 3]), ("axes12", [1, 2]), ("last", [-1]),
            ("start", [0]), ("half", [config.head // 2]), ("end", [np.iinfo(np.int64).max]),
            ("repeats", [1, 1, config.heads // config.key_heads, 1, 1]),
            ("split", [0, 0, -1, config.head]), ("grouped", [0, config.heads, -1, config.head]),
            ("merged", [0, 0, config.hidden]),
        ):  # fmt: skip
            self.weight(name, np.array(values, np.int64))
        self.mask = self._mask()
        self.cos, self.sin = self._angles()
        x = self.embedded()
        for layer in range(config.layers):
            scope = f"/model/layers.{layer}"
            normed = self._normed(f"{scope}/input_layernorm", x)
            x = self.node(f"{scope}/Add", x, self._attention(f"{scope}/self_attn", normed, layer))
            normed = self._normed(f"{scope}/post_attention_layernorm", x)
            x = self.node(f"{scope}/Add_1", x, self.gated(f"{scope}/mlp", normed))
        x = self._normed("/model/norm", x)
        self.projected("/lm_head", x, config.hidden, config.vocabulary, "logits")

    def projected(self, scope: str, x: str, size_in: int, size_out: int, *outputs: str) -> str:
        weight = self.normal(f"{scope[1:].replace('/', '.')}.weight", size_in, size_out)
        return self.node(f"{scope}/MatMul", x, weight, outputs=outputs)

    def _mask(self) -> str:
        """Add the summands of scores (N, 1, tokens, all tokens): 0, or -3.4e38 for a hidden token."""
        scope = "/model/mask"
        total = self.node(
            f"{scope}/Gather", self.node(f"{scope}/Shape", "attention_mask"), self.weight("one", 1)
        )
        keys = self.node(f"{scope}/Range", self.weight("zero", 0), total, "one")
        queries = self.node(f"{scope}/Unsqueeze", "position_ids", "axes13")
        earlier = self.node(f"{scope}/LessOrEqual", keys, queries)
        given = self.node(f"{scope}/Cast", "attention_mask", to=TensorProto.BOOL)
        seen = self.node(f"{scope}/And", earlier, self.node(f"{scope}/Unsqueeze_1", given, "axes12"))
        nothing, much = self.weight("nothing", np.float32(0)), self.weight("masked", _MASKED)
        return self.node(f"{scope}/Where", seen, nothing, much)

    def _angles(self) -> tuple[str, str]:
        """Add cosine and sine (N, 1, tokens, head) of the angles of the rotary embedding."""
        scope = "/model/rotary_emb"
        powers = np.arange(0, self.config.head, 2, dtype=np.float32) / self.config.head
        frequencies = self.weight("inv_freq", (1 / _THETA**powers).astype(np.float32)[None, :])
        positions = self.node(f"{scope}/Cast", "position_ids", to=TensorProto.FLOAT)
        angles = self.node(
            f"{scope}/MatMul", self.node(f"{scope}/Unsqueeze", positions, "axis2"), frequencies
        )
        both = self.node(f"{scope}/Concat", angles, angles, axis=-1)
        return tuple(
            self.node(f"{scope}/Unsqueeze_{kind}", self.node(f"{scope}/{kind}", both), "axis1")
            for kind in ("Cos", "Sin")
        )

    def _normed(self, scope: str, x: str) -> str:
        mean = self.node(f"{scope}/ReduceMean", self.node(f"{scope}/Pow", x, "two"), "last", keepdims=1)
        root = self.node(f"{scope}/Sqrt", self.node(f"{scope}/Add", mean, "epsilon"))
        scaled = self.node(f"{scope}/Mul", x, self.node(f"{scope}/Reciprocal", root))
        return self.node(f"{scope}/Mul_1", self.gain(f"{scope[1:].replace('/', '.')}.weight"), scaled)

    def _attention(self, scope: str, x: str, layer: int) -> str:
        config = self.config
        query = self._heads(f"{scope}/q_proj", x, config.heads)
        key = self._heads(f"{scope}/k_proj", x, config.key_heads)
        value = self._heads(f"{scope}/v_proj", x, config.key_heads)
        query, key = self._turned(f"{scope}/rotary_q", query), self._turned(f"{scope}/rotary_k", key)
        key = self._cached(f"{scope}/keys", key, f"{layer}.key")
        value = self._cached(f"{scope}/values", value, f"{layer}.value")
        keys = self.node(f"{scope}/Transpose", key, perm=[0, 1, 3, 2])
        scores = self.node(f"{scope}/Mul", self.node(f"{scope}/MatMul", query, keys), "scale")
        shares = self.node(f"{scope}/Softmax", self.node(f"{scope}/Add", scores, self.mask), axis=-1)
        context = self.node(
            f"{scope}/Transpose_1", self.node(f"{scope}/MatMul_1", shares, value), perm=[0, 2, 1, 3]
        )
        merged = self.node(f"{scope}/Reshape", context, "merged")
        return self.projected(f"{scope}/o_proj", merged, config.hidden, config.hidden)

    def _heads(self, scope: str, x: str, heads: int) -> str:
        """Add a projection as (N, heads, tokens, head)."""
        x = self.projected(scope, x, self.config.hidden, heads * self.config.head)
        return self.node(f"{scope}/Transpose", self.node(f"{scope}/Reshape", x, "split"), perm=[0, 2, 1, 3])

    def _turned(self, scope: str, x: str) -> str:
        """Add the rotary embedding of (N, heads, tokens, head)."""
        first = self.node(f"{scope}/Slice", x, "start", "half", "last")
        second = self.node(f"{scope}/Slice_1", x, "half", "end", "last")
        crossed = self.node(f"{scope}/Concat", self.node(f"{scope}/Neg", second), first, axis=-1)
        straight = self.node(f"{scope}/Mul", x, self.cos)
        return self.node(f"{scope}/Add", straight, self.node(f"{scope}/Mul_1", crossed, self.sin))

    def _cached(self, scope: str, x: str, name: str) -> str:
        """Add the values of all tokens, repeated for each head of the queries."""
        past = f"past_key_values.{name}"
        x = self.node(f"{scope}/Concat", past, x, outputs=[f"present.{name}"], axis=-2)
        x = self.node(f"{scope}/Expand", self.node(f"{scope}/Unsqueeze", x, "axis2"), "repeats")
        return self.node(f"{scope}/Reshape", x, "grouped")


class _Int4(_Decoder):
    """The decoder in fused operators of onnxruntime."""

    def write_nodes(self) -> None:
        config = self.config
        self._lengths()
        powers = np.arange(0, config.head, 2, dtype=np.float32) / config.head
        angles = np.outer(np.arange(config.positions, dtype=np.float32), 1 / _THETA**powers)
        self.weight("cos_cache", np.cos(angles).astype(np.float32))
        self.weight("sin_cache", np.sin(angles).astype(np.float32))
        skipped, x = "", self.embedded()
        for layer in range(config.layers):
            scope = f"/model/layers.{layer}"
            normed, skipped = self._normed(f"{scope}/input_layernorm", x, skipped)
            x = self._attention(f"{scope}/attn", normed, layer)
            normed, skipped = self._normed(f"{scope}/post_attention_layernorm", x, skipped)
            x = self.gated(f"{scope}/mlp", normed)
        normed, _ = self._normed(f"/model/layers.{config.layers}/final_norm_layernorm", x, skipped)
        self.projected("/lm_head", normed, config.hidden, config.vocabulary, "logits")

    def _lengths(self) -> None:
        """Add the last position of each example and the number of all tokens, int32."""
        scope = "/model/attn_mask_reformat"
        one = self.weight("one", np.array([1], np.int64))
        last = self.node(
            f"{scope}/Sub", self.node(f"{scope}/ReduceSum", "attention_mask", one, keepdims=1), one
        )
        self.seqlens = self.node(f"{scope}/Cast", last, to=TensorProto.INT32)
        shape = self.node(f"{scope}/Shape", "attention_mask")
        total = self.node(f"{scope}/Gather", shape, self.weight("axis", np.int64(1)))
        self.total = self.node(f"{scope}/Cast_1", total, to=TensorProto.INT32)

    def projected(self, scope: str, x: str, size_in: int, size_out: int, *outputs: str) -> str:
        name, blocks = scope[1:].replace("/", "."), size_in // _BLOCK
        packed = self.random.integers(0, 256, (size_out, blocks, _BLOCK // 2), np.uint8)
        spread = np.float32(_SIGMA / 4.6)  # of sixteen values that are equally frequent
        scales = self.random.uniform(0.8, 1.2, size_out * blocks).astype(np.float32) * spread
        return self.node(
            f"{scope}/MatMulNBits",
            x,
            self.weight(f"{name}.weight_Q4", packed),
            self.weight(f"{name}.weight_scales", scales),
            outputs=outputs,
            K=size_in,
            N=size_out,
            bits=4,
            block_size=_BLOCK,
            accuracy_level=_INT8_COMPUTE,
        )

    def _normed(self, scope: str, x: str, skipped: str) -> tuple[str, str]:
        """Add a normalisation of the sum of two values; return it and the sum."""
        weight = self.gain(f"{scope[1:].replace('/', '.')}.weight")
        if not skipped:
            attributes = {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}
            return self.node(f"{scope}/SimplifiedLayerNormalization", x, weight, **attributes), x
        name = f"{scope}/SkipSimplifiedLayerNormalization"
        outputs = [f"{name}_output_0", "", "", f"{name}_output_3"]
        return self.node(name, skipped, x, weight, outputs=outputs, epsilon=_EPSILON), outputs[3]

    def _attention(self, scope: str, x: str, layer: int) -> str:
        config = self.config
        sizes = config.hidden + 2 * config.key_heads * config.head
        packed = self.projected(f"{scope}/qkv_proj", x, config.hidden, sizes)
        name = f"{scope}/GroupQueryAttention"
        context = self.node(
            name,
            packed,
            "",
            "",
            f"past_key_values.{layer}.key",
            f"past_key_values.{layer}.value",
            self.seqlens,
            self.total,
            "cos_cache",
            "sin_cache",
            outputs=[f"{name}_output_0", f"present.{layer}.key", f"present.{layer}.value"],
            do_rotary=1,
            kv_num_heads=config.key_heads,
            num_heads=config.heads,
            scale=config.head**-0.5,
        )
        return self.projected(f"{scope}/o_proj", context, config.hidden, config.hidden)
