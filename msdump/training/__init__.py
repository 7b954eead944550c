"""Training steps: the backward graph and the update of a model as ONNX operators."""

from msdump.training.step_graph import eval_graph, step_graph

__all__ = ["eval_graph", "step_graph"]
