"""All that differs between the reference's training dumps and ours, with the reason."""

from __future__ import annotations

from tests.training.golden_differences import Difference, Expected, moved, numbers

_BACKBONES = {"convbn": "ConvNet", "attention": "Classifier", "datasink": "Dense"}

LAST_LAYER = (
    "all gradients of a function-style type lie under the last layer that uses it: ours under their own"
)
ORDER = "the reference numbers some types of a scope in another order than they run in"
VIEWS = "2.10's fault: a view, and who reads it, has the shape of the view's input"
UNWRITTEN = "the kernel does not write it: leftover memory"
WIDE = "the kernel computes in float32 where the graph says float16: 2.10 names the file by the graph"
LOST_LINES = "the reference's histories lose lines: it remembers the last iteration for all graphs together"
BRANCHES = (
    "a branch's operators have the inputs that come from outside here, and the main graph all variables"
)
KEEPING = "a branch without operators has no files here, there that of a parameter"

EXPANDED = "a decomposed operator lies under Expand, without its layer: ours under its own forward operator"
METHOD = "a method of a tensor has no layer: an operator of the network itself is in the network here"
USERS = "the gradients of a tensor with four users are added in another order"

FED = "the test feeds the reference's masks, which are random"

_GRAD = "Gradients/~"
_SQUARE = "Gradients/Default/network-WithLossCell/_loss_fn-MSELoss/Grad_Square"
_ATTENTION = f"{_GRAD}/attn-Attention/Grad_MatMulExt"
_SOFTMAX = f"{_GRAD}/attn-Attention/softmax-Softmax/Grad_Softmax"
_LAYER_NORM = f"{_GRAD}/norm-_OutputTo16/_backbone-LayerNorm"
_WIDE_SLOTS = (
    r".*/MatMul-op\d+ output\.0",
    r".*/BiasAdd-op\d+ (input|output)\.0",
    r".*/BiasAddGrad-op\d+ output\.0",
)


def of_layers(last, ending, *homes):
    """Return the reference's gradients of a type, all under its last layer, with our layers and numbers."""
    places = [home.split() for home in homes]
    return moved(
        f"{_GRAD}/{last}-Dense/{ending}",
        {theirs: f"{_GRAD}/{layer}-Dense/{ending}-op{ours}" for theirs, (layer, ours) in enumerate(places)},
    )


def of_passes(op_type, *homes):
    """Return the reference's operators of matrix products with our passes and numbers."""
    scopes = {"forward": "~/attn-Attention", "backward": _ATTENTION}
    places = [home.split() for home in homes]
    return moved(
        f"Expand/_MatMulExt/{op_type}",
        {theirs: f"{scopes[side]}/{op_type}-op{ours}" for theirs, (side, ours) in enumerate(places)},
    )


DIFFERENCES = {
    "momentum": (
        Difference(
            LAST_LAYER,
            names=of_layers("fc2", "Grad_MatMul/MatMul", "fc2 0", "fc1 0", "fc2 1")
            | of_layers("fc2", "Grad_BiasAdd/BiasAddGrad", "fc2 0", "fc1 0"),
        ),
    ),
    "convbn": (
        Difference(
            LAST_LAYER,
            names=moved(
                f"{_GRAD}/fc-Dense/Grad_BiasAdd/BiasAddGrad",
                {1: f"{_GRAD}/conv2-Conv2d/Grad_BiasAdd/BiasAddGrad-op0"},
            ),
        ),
        Difference(
            VIEWS,
            shapes=(
                "~/flatten-Flatten/Flatten-op0 output.0",
                "~/fc-Dense/MatMul-op0 input.0",
                f"{_GRAD}/fc-Dense/Grad_MatMul/MatMul-op1 input.1",
                f"{_GRAD}/flatten-Flatten/Grad_Flatten/Reshape-op0 output.0",
                f"{_GRAD}/relu-ReLU/Grad_ReLU/ReluGrad-op0 input.0",
            ),
        ),
        Difference(
            UNWRITTEN,
            values=(
                "~/bn1-BatchNorm2d/BatchNorm-op0 output.[12]",
                f"{_GRAD}/bn1-BatchNorm2d/Grad_BatchNorm/BatchNormGrad-op0 input.5",
            ),
        ),
        Difference(UNWRITTEN, values=("~/bn1-BatchNorm2d/BatchNorm-op0 output.[34]",), graph="1"),
        Difference(LOST_LINES, histories={"0": ["0", "1"]}),
    ),
    "adam": (
        Difference(
            LAST_LAYER,
            names=of_layers("fc3", "Grad_MatMul/MatMul", "fc3 0", "fc2 0", "fc1 0", "fc2 1", "fc3 1")
            | of_layers("fc3", "Grad_BiasAdd/BiasAddGrad", "fc1 0", "fc2 0", "fc3 0"),
        ),
        Difference(
            EXPANDED,
            names={
                "Expand/_PowTensorScalar/Pow-op0": f"{_SQUARE}/Pow-op0",
                "Expand/_Muls/Mul-op0": f"{_SQUARE}/Mul-op0",
                f"{_SQUARE}/Mul-op0": f"{_SQUARE}/Mul-op1",
            },
        ),
        Difference(UNWRITTEN, values=(r"Default/optimizer-Adam/Adam-op\d output\.\d",)),
        Difference(FED, ours=("~/drop-Dropout/Dropout-op0 input.4", "numbers output.0")),
    ),
    "attention": (
        Difference(
            EXPANDED,
            names=of_passes("BroadcastTo", "forward 0", "forward 1", "backward 1", "backward 0")
            | of_passes(
                "BatchMatMul",
                "forward 0",
                "forward 2",
                "forward 1",
                "forward 3",
                "backward 0",
                "backward 2",
                "backward 5",
                "backward 3",
                "backward 1",
                "backward 4",
            )
            | of_passes("MatMul", "backward 1", "backward 0")
            | moved(
                "Expand/_Muls/Mul",
                {0: "~/attn-Attention/Mul-op0", 1: f"{_GRAD}/attn-Attention/Grad_Mul/Mul-op0"},
            )
            | {
                f"Expand/_SoftmaxBackward/{name}": f"{_SOFTMAX}/{name}"
                for name in ("Mul-op0", "ReduceSum-op0", "Sub-op0", "Mul-op1")
            },
        ),
        Difference(
            METHOD,
            names={"Default/ReduceMean-op0": "~/ReduceMean-op0"}
            | {
                f"Gradients/Default/Grad_ReduceMean/{name}-op0": f"{_GRAD}/Grad_ReduceMean/{name}-op0"
                for name in ("Reshape", "Tile", "RealDiv")
            },
        ),
        Difference(
            ORDER,
            names=numbers(f"{_ATTENTION}/Transpose", 0, 2, 6, 3, 1, 4, 5)
            | numbers(f"{_ATTENTION}/Reshape", 1, 0),
        ),
        Difference(
            VIEWS,
            shapes=(
                "~/embed-Embedding/Reshape-op[01] output.0",
                "~/embed-Embedding/Gather-op0 input.1",
                "~/Add-op0 input.0",
                "~/attn-Attention/Transpose-op0 input.0",
                "~/attn-Attention/BatchMatMul-op[01] input.0",
                f"{_ATTENTION}/Reshape-op[01] output.0",
                f"{_ATTENTION}/MatMul-op[01] input.1",
                f"{_GRAD}/Grad_ReduceMean/Reshape-op0 output.0",
                f"{_GRAD}/Grad_ReduceMean/Tile-op0 input.0",
                f"{_GRAD}/embed-Embedding/Grad_Reshape/Reshape-op0 output.0",
                f"{_GRAD}/embed-Embedding/Grad_Gather/UnsortedSegmentSum-op0 input.[01]",
            ),
        ),
        Difference(UNWRITTEN, values=(r"Default/optimizer-AdamWeightDecay/AdamWeightDecay-op\d output\.\d",)),
        Difference(USERS, values=(f"{_GRAD}/embed-Embedding/AddN-op0 input.[12]",)),
    ),
    "datasink": (),
    "fixedscale": (
        Difference(
            LAST_LAYER,
            names=moved(
                "Gradients/Default/network-WithLossCell/Grad_Cast/Cast",
                {
                    1: f"{_GRAD}/norm-_OutputTo16/Grad_Cast/Cast-op0",
                    2: f"{_LAYER_NORM}/Grad_Cast/Cast-op0",
                    3: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op2",
                    4: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op3",
                    5: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op0",
                    6: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op1",
                    7: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op2",
                    8: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op3",
                    9: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op0",
                    10: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op1",
                },
            )
            | of_layers("fc2", "Grad_BiasAdd/BiasAddGrad", "fc2 0", "fc1 0")
            | of_layers("fc2", "Grad_BiasAdd/Cast", "fc2 0", "fc1 0")
            | of_layers("fc2", "Grad_MatMul/MatMul", "fc2 0", "fc1 0", "fc2 1")
            | of_layers("fc2", "Grad_MatMul/Cast", "fc2 0", "fc2 1", "fc1 0", "fc1 1", "fc2 2", "fc2 3"),
        ),
        Difference(
            ORDER,
            names=numbers("~/fc1-Dense/Cast", 2, 0, 3, 1)
            | numbers("~/fc2-Dense/Cast", 2, 0, 3, 1)
            | numbers("Default/optimizer-Momentum/Mul", 0, 5, 4, 3, 2, 1),
        ),
        Difference(
            WIDE,
            halved=(
                *_WIDE_SLOTS,
                "Default/network-WithLossCell/Cast-op0 input.0",
                "~/norm-_OutputTo16/_backbone-LayerNorm/Cast-op0 input.0",
                f"{_GRAD}/(fc1|fc2)-Dense/Grad_Cast/Cast-op[02] input.0",
                f"{_GRAD}/relu-ReLU/Grad_ReLU/Cast-op0 input.0",
            ),
        ),
    ),
    "lossscale": (
        Difference(
            LAST_LAYER,
            names=moved(
                f"{_GRAD}/fc1-Dense/Grad_Cast/Cast",
                {
                    0: f"{_GRAD}/Grad_Cast/Cast-op0",
                    1: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op0",
                    2: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op1",
                    3: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op2",
                    4: f"{_GRAD}/fc2-Dense/Grad_Cast/Cast-op3",
                    5: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op0",
                    6: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op1",
                    7: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op2",
                    8: f"{_GRAD}/fc1-Dense/Grad_Cast/Cast-op3",
                },
            )
            | of_layers("fc2", "Grad_BiasAdd/BiasAddGrad", "fc2 0", "fc1 0")
            | of_layers("fc2", "Grad_BiasAdd/Cast", "fc2 0", "fc1 0")
            | of_layers("fc2", "Grad_MatMul/MatMul", "fc2 1", "fc2 0", "fc1 0")
            | of_layers("fc2", "Grad_MatMul/Cast", "fc2 0", "fc2 3", "fc2 2", "fc2 1", "fc1 0", "fc1 1"),
        ),
        Difference(
            ORDER,
            names=numbers("~/fc1-Dense/Cast", 0, 3, 1, 4, 2)
            | numbers("~/fc2-Dense/Cast", 2, 0, 3, 1)
            | numbers("Default/Mul", 3, 2, 1, 0)
            | numbers("Default/loss_scaling_manager-DynamicLossScaleUpdateCell/Select", 1, 0),
        ),
        Difference(
            WIDE,
            halved=(
                *_WIDE_SLOTS,
                "~/Cast-op0 input.0",
                "~/relu-ReLU/Cast-op0 input.0",
                f"{_GRAD}/(fc1|fc2)-Dense/Grad_Cast/Cast-op[02] input.0",
                f"{_GRAD}/relu-ReLU/Grad_ReLU/Cast-op0 input.0",
            ),
        ),
        Difference(
            VIEWS,
            shapes=(
                r"Default/Reshape-op[0-4] output\.0",
                r"Default/AddN-op0 input\.\d",
                "Default/LessEqual-op0 input.1",
            ),
        ),
        Difference(
            BRANCHES,
            ours=(
                r"Default/optimizer-Momentum/ApplyMomentum-op\d+ input\.[0-4]",
                "Default/optimizer-Momentum/AssignAdd-op0 input.0",
                r"(global_step|learning_rate|momentum|moments_.*) output\.0",
            ),
        ),
        Difference(KEEPING, places=("1/0", "1/1")),
    ),
}


def expected(golden):
    """Return the differences of a golden."""
    network = f"Default/network-WithLossCell/_backbone-{_BACKBONES.get(golden, 'MLP')}"
    return Expected(network, DIFFERENCES[golden])
