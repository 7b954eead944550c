"""Real training dumps of the reference, and ours, in one shape: graph and iteration, operator, slot."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.dump import trees

FOLDER = Path(__file__).parent / "goldens"

Slots = dict[str, np.ndarray]
"""Arrays by ``input.0``."""
Files = dict[str, dict[str, Slots]]
"""By graph and iteration, ``0/2``, and by operator as files call it, ``ReLU.Default_ReLU-op0``."""


@dataclass(frozen=True)
class Golden:
    """Output and dump of the reference in a training.

    Attributes:
        config: Its configuration.
        losses: The loss of each step.
        outputs: The first row of the output, where each step is followed by a run of the network alone; loss
            and accuracy, where an evaluation ends the training.
        weights: The first values of the parameters.
        csv: The execution order of each graph.
        history: The iterations that the history of each graph lists.
        files: All tensor files.
    """

    config: dict
    losses: list[float]
    outputs: list[list[float]]
    weights: Slots
    csv: dict[str, list[str]]
    history: dict[str, list[str]]
    files: Files


def golden(name):
    """Return the reference's training of a network."""
    content = json.loads((FOLDER / f"{name}.json").read_text())
    with np.load(FOLDER / f"{name}.npz") as pools:
        arrays = dict(pools)

    def array(entry):
        dtype, shape, start = entry
        return arrays[dtype][start : start + int(np.prod(shape))].reshape(shape)

    files = {
        place: {
            operator: {slot: array(entry) for slot, entry in slots.items()}
            for operator, slots in operators.items()
        }
        for place, operators in content.pop("files").items()
    }
    weights = {weight: array(entry) for weight, entry in content.pop("weights").items()}
    return Golden(**content, weights=weights, files=files)


def dumped(rank):
    """Return csv, histories and files of a dump.

    Args:
        rank: Directory of the rank.
    """
    orders = rank / "execution_order"
    csv = {
        path.stem.removeprefix("ms_execution_order_graph_"): path.read_text().splitlines()[1:]
        for path in orders.glob("ms_execution_order_graph_*.csv")
    }
    history = {
        path.stem.removeprefix("ms_global_execution_order_graph_"): path.read_text().split()
        for path in orders.glob("ms_global_execution_order_graph_*.csv")
    }
    files: Files = {}
    for folder in (rank / "Net").glob("*/[0-9]*"):
        place = files[f"{folder.parent.name}/{folder.name}"] = {}
        for match, path in trees.tensors(folder):
            slots = place.setdefault(f"{match['type']}.{match['name']}", {})
            array = np.load(path)
            assert match["dtype"] == str(array.dtype).capitalize().replace("Uint", "UInt")
            slots[f"{match['io']}.{match['slot']}"] = array
    return csv, history, files
