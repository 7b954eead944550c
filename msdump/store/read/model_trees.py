"""Models in a dump that was read: Ascend O2, GE, acl and torchair."""

from __future__ import annotations

from dataclasses import dataclass, field

from msdump.store import names
from msdump.store.layouts import Key, PathKind
from msdump.store.read.operator_files import OperatorFile
from msdump.store.read.tensor_directories import Iteration
from msdump.store.read.tree import TreeListing


@dataclass(frozen=True)
class DumpedModel:
    """The executions of one compiled model.

    Attributes:
        device: Number of the device.
        name: Its directory; "" for operators that were called alone.
        model_id: Its number in its process, None for operators that were called alone.
        iterations: Its executions by step, time and number.
    """

    device: int
    name: str
    model_id: int | None
    iterations: tuple[Iteration, ...] = field(repr=False)


def models(tree: TreeListing) -> tuple[DumpedModel, ...]:
    """Return the models of a dump by device, name and number; operators called alone come first."""
    iterations: dict[tuple[int, str, int | None], list[Iteration]] = {}
    for key, path in tree.paths.items():
        is_single = key.kind is PathKind.SINGLE and bool(tree.of(key, PathKind.SINGLE_OPERATOR))
        if (key.kind is PathKind.EXECUTION or is_single) and key.device is not None:
            model = (key.device, key.model or "", key.model_id)
            iterations.setdefault(model, []).append(Iteration(key, path, _no_name))
    return tuple(
        DumpedModel(*model, tuple(sorted(iterations[model], key=_order)))
        for model in sorted(iterations, key=str)
    )


def _order(iteration: Iteration) -> tuple[int, str, int]:
    key = iteration.key
    return (-1 if key.step is None else key.step, key.time or "", key.iteration or 0)


def failures(tree: TreeListing) -> tuple[OperatorFile, ...]:
    """Return the files in the directories of exception dumps: the tensors of operators that failed."""
    places = [path for key, path in tree.paths.items() if key.kind is PathKind.EXCEPTIONS]
    key = Key(PathKind.EXCEPTIONS)
    return tuple(file for path in sorted(places) for file in Iteration(key, path, _no_name).files)


def _no_name(name: names.TensorName) -> str | None:
    """Return no full name: a compiled graph has no list of its operators beside its tensors."""
    del name
    return None
