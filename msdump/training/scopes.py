"""The scopes of a training step's operators, in the words of ``TrainOneStepCell`` and MindSpore's gradients.

Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/       the network
Default/network-WithLossCell/_loss_fn-MSELoss/                    the loss
Gradients/Default/network-WithLossCell/.../Grad_Conv2D/           gradients, each in its forward operator's
Default/optimizer-Momentum/                                       the optimizer
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msdump.graph import names
from msdump.graph.graph import Graph, Node

Cell = tuple[str, str]
"""Name and class of a cell in the one around it, ``("fc1", "Dense")``; without class: ""."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator stands in the user's program.

    Attributes:
        cells: From the root inwards.
        trace: The source lines, as an exporter writes them; "" for none.
        forward: ONNX name of the forward operator that a gradient belongs to.
    """

    cells: tuple[Cell, ...]
    trace: str = ""
    forward: str = ""

    def inside(self, *cells: Cell) -> Place:
        """Return a place further in."""
        return replace(self, cells=(*self.cells, *cells))

    def gradients(self, forward: str = "") -> Place:
        """Return the place of gradients of what stands here."""
        return replace(self, cells=(("Gradients", ""), *self.cells), forward=forward)

    @property
    def path(self) -> str:
        """The scope as MindSpore writes it, ``Default/fc1-Dense``."""
        return "/".join(f"{name}-{kind}" if kind else name for name, kind in self.cells)

    @property
    def source(self) -> str:
        """The last source line and its code, to stand in a message behind what it is about; "" for none."""
        lines = [line.strip() for line in self.trace.splitlines() if line.strip()]
        return f", {'; '.join(lines[-2:])}" if lines else ""

    def metadata(self) -> dict[str, str]:
        """Return what the nodes of this place carry, in onnxscript's keys."""
        entries = {
            names.ONNXSCRIPT + "name_scopes": repr([name for name, _ in self.cells]),
            names.ONNXSCRIPT + "class_hierarchy": repr([kind for _, kind in self.cells]),
        }
        if self.trace:
            entries[names.ONNXSCRIPT + "stack_trace"] = self.trace
        if self.forward:
            entries[names.FORWARD] = self.forward
        return entries


ROOT = Place((("Default", ""),))
WITH_LOSS = ROOT.inside(("network", "WithLossCell"))


def backbone(graph: Graph) -> Place:
    """Return the place of the network itself, ``_backbone-LeNet5``."""
    return WITH_LOSS.inside(("_backbone", names.root_class(graph) or "Cell"))


def place_of(node: Node, around: Place) -> Place:
    """Return the place of an operator of a network.

    Args:
        node: The operator, with the scope that the model gives it.
        around: The place of the network.
    """
    components = node.scope.split("/")
    # a model that already has MindSpore's scopes of a training cell keeps them
    cells = [_cell(component) for component in components]
    whole = len(cells) > 1 and cells[1] == WITH_LOSS.cells[1]
    return Place(tuple(cells) if whole else (*around.cells, *cells[1:]), names.trace_of(node))


def _cell(component: str) -> Cell:
    name, _, kind = component.rpartition("-")
    return (name, kind) if name else (component, "")
