"""MindSpore's ``load`` and ``nn.GraphCell``: a .mindir file as a network that runs and dumps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from msdump.errors import InputError, name_hint
from msdump.frontends import mindspore
from msdump.graph import Graph
from msdump.mindspore.tensor import Parameter, Tensor
from msdump.session import Network


class FuncGraph:
    """The graph of a .mindir file, for ``GraphCell``."""

    def __init__(self, path: str) -> None:
        self.path = path


def load(file_name: str | os.PathLike[str], **kwargs: Any) -> FuncGraph:
    """Return the graph of a .mindir file.

    Args:
        file_name: Path of the file.
        kwargs: ``dec_key`` and ``dec_mode`` of MindSpore, which are refused.

    Raises:
        InputError: The file is encrypted, or there is none.
    """
    if kwargs:
        raise InputError(
            f"load({str(file_name)!r}): {', '.join(kwargs)}: encrypted files cannot be read; load the file in"
            " MindSpore with its key and export it without one"
        )
    path = os.fspath(file_name)
    if not os.path.exists(path):
        raise InputError(f"load({path!r}): there is no such file")
    return FuncGraph(path)


class GraphCell:
    """A network that runs the graph of a .mindir file, and dumps by MINDSPORE_DUMP_CONFIG."""

    def __init__(self, graph: FuncGraph, params_init: Mapping[str, Any] | None = None) -> None:
        """Load the network.

        Args:
            graph: The result of ``load``.
            params_init: Tensors in place of weights of the file, by name.

        Raises:
            InputError: ``graph`` is no graph, or a weight that the file does not have, or of another shape.
            MsdumpError: The file cannot be loaded.
        """
        if not isinstance(graph, FuncGraph):
            raise InputError(f"GraphCell: graph: must be what load returned, is {type(graph).__name__}")
        self._path = graph.path
        self._weights: dict[str, np.ndarray] = {}
        self._network: Network | None = None
        self._graph: Graph = mindspore.load_graph(self._path)
        if params_init:
            self._replace(params_init)

    def __call__(self, *inputs: Any) -> Any:
        """Run the network on tensors or arrays; return a tensor, or a tuple of tensors."""
        outputs = self.network(*(item.asnumpy() if isinstance(item, Tensor) else item for item in inputs))
        return tuple(map(Tensor, outputs)) if isinstance(outputs, tuple) else Tensor(outputs)

    construct = __call__

    @property
    def network(self) -> Network:
        """The network, which is made where it first runs."""
        if self._network is None:
            self._network = mindspore.load(self._path, weights=self._weights)
        return self._network

    def set_train(self, mode: bool = True) -> GraphCell:  # noqa: FBT001, FBT002 - MindSpore's signature
        """No-op: the file has the graph of training, or that of inference."""
        del mode
        return self

    def parameters_dict(self) -> dict[str, Parameter]:
        """Return the weights by name, as they are now."""
        constants = set(self._graph.constants)
        arrays = {name: array for name, array in self._graph.weights.items() if name not in constants}
        state = {} if self._network is None else self._network.state()
        return {name: Parameter(array, name) for name, array in {**arrays, **self._weights, **state}.items()}

    def _replace(self, weights: Mapping[str, Any]) -> None:
        own = self.parameters_dict()
        state = {} if self._network is None else self._network.state()
        for name, value in weights.items():
            array = Tensor(value).asnumpy()
            if name not in own:
                raise InputError(f"GraphCell: the network has no parameter {name!r}{name_hint(name, own)}")
            if array.shape != own[name].shape:
                raise InputError(
                    f"GraphCell: parameter {name!r} has shape {own[name].shape}, the given one {array.shape}"
                )
            self._weights[name] = array.astype(own[name].dtype)
        if self._network is not None and state.keys() >= weights.keys():
            self._network.load_state(state | {name: self._weights[name] for name in weights})
        else:
            self._network = None


def load_param_into_net(
    net: GraphCell,
    parameter_dict: Mapping[str, Any],
    strict_load: bool = False,  # noqa: FBT001, FBT002
) -> tuple[list[str], list[str]]:
    """Replace weights of a network.

    Args:
        net: The network.
        parameter_dict: The result of ``load_checkpoint``.
        strict_load: Convert no element types.

    Returns:
        Names of the network's parameters without a value, and of values without a parameter.

    Raises:
        InputError: Another shape, or with ``strict_load`` another type.
    """
    if not isinstance(net, GraphCell):
        raise InputError(f"load_param_into_net: net: must be a GraphCell, is {type(net).__name__}")
    own = net.parameters_dict()
    fitting = {name: value for name, value in parameter_dict.items() if name in own}
    for name, value in fitting.items():
        if strict_load and np.asarray(value).dtype != own[name].dtype:
            raise InputError(
                f"load_param_into_net: {name!r} is {np.asarray(value).dtype}, not {own[name].dtype}"
            )
    net._replace(fitting)
    return sorted(own.keys() - fitting.keys()), sorted(parameter_dict.keys() - fitting.keys())


def set_dump(target: GraphCell | str, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - MindSpore's
    """Select a network, or a scope or operator by name, for ``dump_mode`` 2."""
    mindspore.set_dump(target.network if isinstance(target, GraphCell) else target, enabled)
