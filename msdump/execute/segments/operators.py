"""One operator of a program, as the loop runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from msdump.execute.control import Control
from msdump.execute.runtime import Run
from msdump.graph.graph import Node


@dataclass(slots=True)
class ProgramOperator:
    """One operator of the program; the runtime's part is made when it first runs.

    Attributes:
        position: Its place in the graph's execution order.
        node: The node.
        dead: Slots that nobody reads after this operator.
        feeds: (feed name, slot) of everything that is fed.
        names: Output names of the kernel.
        results: Slot of each output.
        run: The kernel's function, None before the first run.
        control: Runs control flow in its place; None for every other operator.
        inputs: Values that observers see as its inputs.
        outputs: Values that observers see as its outputs.
    """

    position: int
    node: Node
    dead: tuple[int, ...]
    feeds: tuple[tuple[str, int], ...] = ()
    names: list[str] = field(default_factory=list)
    results: tuple[int, ...] = ()
    run: Run | None = None
    control: Control | None = None
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Find what observers see, once for all runs."""
        self.inputs, self.outputs = self.node.inputs_after_run, self.node.declared_outputs
